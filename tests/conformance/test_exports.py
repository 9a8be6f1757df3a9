"""Reports for CI: the same facts, and never more bytes than the reader takes."""

from xml.etree import ElementTree

import pytest
from report_documents import document as make_document
from report_documents import many

from refnum.conformance.reports.junit import junit
from refnum.conformance.reports.summary import LIMIT, markdown


@pytest.fixture(scope="module")
def document():
    return make_document()


def suites_of(document):
    return {suite.get("name"): suite for suite in ElementTree.fromstring(junit(document))}


def test_junit_has_a_testcase_for_every_result(document):
    suites = suites_of(document)
    counts = {
        name: tuple(int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped"))
        for name, suite in suites.items()
    }
    assert counts == {"right": (3, 0, 0, 0), "wrong": (3, 3, 0, 0), "refuses": (3, 0, 0, 3), "faults": (3, 0, 3, 0)}
    failure = suites["wrong"].find("testcase/failure")
    assert "MISMATCH" in failure.text and "-> even (N2)" in failure.text
    assert suites["refuses"].find("testcase/skipped").get("message").endswith("needs a <GPU> | a big one")


def test_junit_shows_control_characters_and_says_when_the_harness_failed():
    document = make_document()
    document["harness"] = ["vector 12 is not what the model says\x00"]
    suites = suites_of(document)
    assert r"boom \x1b[31m <b>" in suites["faults"].find("testcase/error").get("message")
    assert suites["harness"].find("testcase/error").get("message") == r"vector 12 is not what the model says\x00"


def test_a_tensor_that_fails_is_a_failure_of_its_own():
    document = make_document()
    row = next(row for row in document["results"] if row["outcome"] == "mismatch")
    document["data"] = [{**row, "tensor": "layer.0", "level": "none"}]
    document["results"] = []
    suite = suites_of(document)["wrong"]
    assert suite.get("failures") == "1" and suite.find("testcase").get("name").endswith("] layer.0")
    assert "layer.0" in markdown(document)


def test_markdown_starts_with_the_verdict_and_escapes_cells(document):
    text = markdown(document)
    assert text.startswith("## refnum: WRONG at level standard") and "needs a &lt;GPU> \\| a big one" in text
    assert text.count("```") % 2 == 0 and "E2M1_TIES_UP" in text
    assert text.index("| wrong |") < text.index("| refuses |")


@pytest.mark.parametrize("limit", [400, 900, 2500, 5000, 100_000])
def test_markdown_keeps_its_limit_and_says_what_is_left_out(document, limit):
    text = markdown(document, limit)
    assert len(text.encode()) <= limit and text.startswith("## refnum: WRONG")
    assert ("mismatches do not fit here" in text) == (text.count("MISMATCH") < markdown(document).count("MISMATCH"))


def test_ten_thousand_mismatches_fit_a_step_summary_with_rows_and_pages():
    text = markdown(many(10_000))
    assert LIMIT // 2 < len(text.encode()) <= LIMIT == 1024 * 1024
    assert text.count("| mismatch |") > 1000 and text.count("MISMATCH") > 100
    rows, pages = text.count("| mismatch |"), text.count("MISMATCH")
    assert f"{10_000 - rows} more rows do not fit" in text and f"{10_000 - pages} more mismatches do not fit" in text
