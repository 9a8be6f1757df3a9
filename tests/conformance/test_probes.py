"""The probes of the calling contract on the host: each habit is tried, and a breach has its name."""

import numpy as np
from run_tools import only, report_of, right, subject


def test_a_refusal_of_strides_is_said_and_is_no_failure():
    def dense_only(x, profile):
        if not x.flags.c_contiguous:
            raise ValueError("make it contiguous")
        return right(x, profile)

    document = report_of(subject(dense_only))
    assert only(document)["outcome"] == "pass" and "make it contiguous" in only(document)["probes"]["views with gaps"]
    assert only(document)["refused"] == 0


def test_every_probe_that_applies_is_in_the_report():
    document = report_of(subject(right))
    assert list(only(document)["probes"]) == [
        "new data in place",
        "views with gaps",
        "padded rows",
        "rows one element apart",
        "views at an odd address",
        "ten repeats",
    ]
    assert not any(only(document)["probes"].values())


def test_a_result_that_is_not_determined_is_named_and_shown_again():
    calls = []

    def now_and_then(x, profile):
        calls.append(1)
        packed, scales = right(x, profile)
        return (packed ^ np.uint8(len(calls) % 5 == 3), scales)

    row = only(report_of(subject(now_and_then)))
    assert row["outcome"] == "mismatch" and "not-deterministic" in row["findings"]
    shown = next(failure for failure in row["failures"] if failure["finding"] == "not-deterministic")
    assert shown["reproduced"] == "3 of 3"
