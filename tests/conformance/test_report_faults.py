"""A fault that was seen is a finding in every form of report, beside all else, and what it cost is said."""

import functools
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from run_tools import report_of, right, subject

from refnum.conformance.api import as_text
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import NO_LEVEL
from refnum.conformance.commands.check.run import Plan
from refnum.conformance.mismatches.failures import Presenter
from refnum.conformance.reports import report as reports
from refnum.conformance.reports.html import html
from refnum.conformance.reports.junit import junit
from refnum.conformance.reports.sarif import sarif
from refnum.conformance.reports.summary import markdown
from refnum.conformance.verdicts.tally import Failure, Tally

WORDS = "ValueError: no rows, no result"


def no_rows(x, profile):
    """Right but on Inf, and raise without rows."""
    if not len(x):
        raise ValueError("no rows, no result")
    packed, scales = right(x, profile)
    return packed, np.where(scales == 255, np.uint8(254), scales)


def some(operation, profile, params):
    for number in range(7):
        x = np.ones((0 if number in (2, 3, 5) else 2, 32), params["input"])
        x[:, :1] = np.inf if number == 1 else 1
        yield Case(operation, profile, params, {"x": x}, label=f"case {number}")


@functools.cache
def faulty():
    return report_of(subject(no_rows), subject(name="fine"), cases=some).document()


def test_a_fault_is_a_finding_beside_a_mismatch():
    row = faulty()["results"][0]
    reports.check(faulty(), "this report")
    assert row["outcome"] == "mismatch" and "raised" in row["findings"] and row["faults"] == 3
    (record,) = [one for one in row["failures"] if one["finding"] == "raised"]
    assert (record["words"], record["label"], record["reproduced"]) == (WORDS, "case 2", "3 of 3")
    assert record["case"].startswith("x [0, 32]")


def test_the_terminal_shows_a_fault_once():
    def raises(x, profile):
        if not len(x):
            raise ValueError("no rows, no result")
        return right(x, profile)

    report = report_of(subject(raises), cases=some).document()
    text = as_text(report)
    assert text.count("FAULT") == text.count(WORDS) == len(report["results"]) == 3


def test_what_was_not_asked_after_faults_is_said():
    row, fine = faulty()["results"][0], next(r for r in faulty()["results"] if r["subject"] == "fine")
    assert row["not_asked"] == "not asked, after 3 faults: 1 of 7 corner cases" and row["not_asked"] in row["evidence"]
    assert fine["not_asked"] == "" and fine["outcome"] == "pass"


FORMS = {
    "terminal": as_text,
    "json": json.dumps,
    "junit": lambda report: "".join(ElementTree.fromstring(junit(report)).itertext()),
    "sarif": lambda report: "\n".join(
        [result["message"]["text"] for result in json.loads(sarif(report))["runs"][0]["results"]]
        + [note["message"]["text"] for note in json.loads(sarif(report))["runs"][0]["invocations"][0][
            "toolExecutionNotifications"]]
    ),
    "html": html,
    "markdown": markdown,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_report_has_the_fault_and_what_was_not_asked(form):
    text = FORMS[form](faulty())
    assert WORDS in text and "after 3 faults: 1 of 7 corner cases" in text


def test_every_stream_that_was_not_asked_is_named():
    def broken(x, profile):
        if x.size > 64:
            raise RuntimeError("too much for me")
        return right(x, profile)

    row = report_of(subject(broken), cases=None, level="smoke").document()["results"][0]
    assert row["outcome"] == "fault"
    for words in ("frozen vectors", "corner cases", "structural cases", "sampled cases"):
        assert words in row["not_asked"]
    whole = report_of(subject(broken), cases=None, save=False).document()["results"][0]["not_asked"]
    assert "domains (" in whole and "illegal calls" in whole


def test_an_illegal_call_that_is_answered_is_a_finding_beside_a_mismatch():
    document = report_of(subject(no_rows), cases=some).document()
    illegal = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.ones((1, 31), np.float32)})
    tally = Tally("k", illegal.operation, illegal.profile, illegal.params, compared=1, reached=NO_LEVEL)
    tally.fail(Failure(illegal.with_inputs({"x": np.ones((1, 32), np.float32)}), NO_LEVEL))
    tally.accepted.append(("31 columns", illegal))
    result = Presenter(Plan([], [], save=False)).result(subject(), tally)
    document["results"] = [result]
    document["footer"].update(reports.concluded(document))
    reports.check(document, "this report")
    record = next(one for one in result["failures"] if one["finding"] == "illegal-accepted")
    assert result["outcome"] == "flaky" and record["words"] == "taken, and must be refused: 31 columns"
    assert record["replay"] is None and all("must be refused: 31 columns" in FORMS[form](document) for form in FORMS)
