"""Ways that a subject takes by size, and splits as an array: asked of every small case, named and shown again."""

import contextlib

import numpy as np
from run_tools import only, report_of, right, subject

import refnum
from conformance.controls import controls
from conformance.subject import from_dict

KNOWN = {control.subject.name: control.subject for control in controls()}


def failure(document, finding):
    return next(one for one in only(document)["failures"] if one["finding"] == finding)


def test_a_way_that_no_case_takes_by_its_size_is_judged_named_and_shown_again():
    document = report_of(KNOWN["way_by_size"])
    assert failure(document, "way-by-size")["reproduced"] == "3 of 3"


def test_a_right_way_passes_and_is_in_the_report():
    taken = []

    @contextlib.contextmanager
    def other():
        taken.append(1)
        yield

    entry = {"name": "ways", "operations": {"quantize_mxfp4": right}, "ways": {"quantize_mxfp4": {"other": other}}}
    row = only(report_of(from_dict(entry, "here")))
    assert row["outcome"] == "pass" and row["probes"]["ways by size"] == "" and taken


def test_what_a_kernel_does_in_a_probe_is_no_refusal():
    class DriverError(Exception):
        pass

    def strays_on_odd_rows(x, profile):
        if x.strides[0] != x.shape[1] * x.itemsize:
            raise DriverError("an illegal memory access was encountered")
        return right(x, profile)

    row = only(report_of(subject(strays_on_odd_rows)))
    assert row["outcome"] == "fault", row


def test_splits_in_an_array_are_judged_with_more_experts_than_a_cta_has_threads():
    row = KNOWN["splits_in_one_cta"]
    taken = []

    def permute_pad(payload, row_map, splits, align=32, *, out=None):
        if isinstance(splits, np.ndarray):
            taken.append((splits.dtype.name, splits.size > 1024))
        result = refnum.permute_pad(payload, row_map, list(splits), align)
        if out is None:
            return result
        out[0][...], out[1][...] = result
        return out

    document = report_of(from_dict({"name": "fine", "operations": {"permute_pad": permute_pad}}, "here"),
                         operation="permute_pad")  # fmt: skip
    assert only(document)["outcome"] == "pass"
    assert {*taken} == {("int32", False), ("int64", True)}
    assert failure(report_of(row, operation="permute_pad"), "splits-as-array")["reproduced"] == "3 of 3"
