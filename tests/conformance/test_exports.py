"""Reports for CI: the same facts, and never more bytes than the reader takes."""

from xml.etree import ElementTree

import pytest

import refnum
from conformance import exports
from conformance import report as reports
from conformance.controls.cases import control_cases
from conformance.operation import select
from conformance.run import Plan, run
from conformance.subject import Subject
from refnum.errors import UnsupportedError


def wrong(x, profile):
    return refnum.quantize_mxfp4(x, profile.replace(name="wrong", ties="away"))


def refuses(x, profile):
    raise UnsupportedError("needs a <GPU> | a big one")


def faults(x, profile):
    raise RuntimeError("boom")


def right(x, profile):
    return refnum.quantize_mxfp4(x, profile)


@pytest.fixture(scope="module")
def document():
    subjects = [Subject(f.__name__, {"quantize_mxfp4": f}) for f in (right, wrong, refuses, faults)]
    plan = Plan(subjects, select(["quantize_mxfp4"]), ["HOPPER"], save=False, cases=control_cases)
    return run(plan, reports.Report(reports.header("standard", 0, [], [], []))).document()


def test_junit_has_a_testcase_for_every_result(document):
    root = ElementTree.fromstring(exports.junit(document))
    suites = {suite.get("name"): suite for suite in root}
    counts = {
        name: tuple(int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped"))
        for name, suite in suites.items()
    }
    assert counts == {"right": (3, 0, 0, 0), "wrong": (3, 3, 0, 0), "refuses": (3, 0, 0, 3), "faults": (3, 0, 3, 0)}
    failure = suites["wrong"].find("testcase/failure")
    assert "MISMATCH" in failure.text and "-> even (N2)" in failure.text
    assert suites["refuses"].find("testcase/skipped").get("message").endswith("needs a <GPU> | a big one")


def test_markdown_starts_with_the_verdict_and_escapes_cells(document):
    text = exports.markdown(document)
    assert text.startswith("## refnum: WRONG at level standard") and "needs a <GPU> \\| a big one" in text
    assert text.count("```") % 2 == 0 and "E2M1_TIES_UP" in text


@pytest.mark.parametrize("limit", [400, 900, 2500, 5000, 100_000])
def test_markdown_keeps_its_limit_and_says_what_is_left_out(document, limit):
    text = exports.markdown(document, limit)
    assert len(text.encode()) <= limit and text.startswith("## refnum: WRONG")
    assert ("do not fit here" in text) == (text.count("MISMATCH") < exports.markdown(document).count("MISMATCH"))
