"""Names and errors may hold any character; what is made from a report is well-formed all the same."""

import json
from xml.etree import ElementTree

import pytest
import report_documents
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.reports import files
from refnum.conformance.reports.printable import printable
from refnum.errors import FileError

BAD = "\x1b[31mno\x01 \udcff\ufffe\x85"
SHOWN = "\\x1b[31mno\\x01 \\udcff\\ufffe\\x85"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A valid report with such characters in every place that takes free text."""
    whole = report_documents.document()
    for subject in whole["header"]["subjects"]:
        subject["name"] += BAD
    for row in whole["results"]:
        row["subject"] += BAD
        row["words"] += BAD
        row["evidence"] += BAD
        row["refused"], row["refusal"] = 1, BAD
        row["probes"] = {"ten repeats" + BAD: BAD}
        for record in row["failures"]:
            record["words"] += BAD
            if record["page"]:  # a fault has none
                record["page"]["place"] += BAD
    whole["harness"] = [BAD]
    whole["header"]["broken_subjects"] = [{"name": BAD, "reason": BAD}]
    path = tmp_path_factory.mktemp("bad") / "report.json"
    files.write_json(path, whole)
    return path


def test_text_stays_and_the_rest_is_shown_by_its_number():
    assert printable("a\tb\nc ü € 𝄞 \xa0") == "a\tb\nc ü € 𝄞 \xa0"
    assert printable({"k" + BAD: [BAD, 1, None, (True,)]}) == {"k" + SHOWN: [SHOWN, 1, None, [True]]}


@pytest.mark.parametrize("kind", ["html", "junit", "sarif", "summary"])
@pytest.mark.parametrize("to_file", [True, False])
def test_any_character_can_be_in_a_report(report, tmp_path, kind, to_file, monkeypatch):
    from refnum.conformance.reports import report as reports

    monkeypatch.setattr(reports, "check", lambda document, origin: None)  # the footer is not made anew
    out = tmp_path / "out"
    words = ["report", kind, str(report), *(["-o", str(out)] if to_file else [])]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    text = out.read_bytes().decode() if to_file else done.stdout_bytes.decode()
    assert "\x1b" not in text and "\x01" not in text and "no\\x01" in text.replace("\\\\", "\\")
    if kind == "junit":
        root = ElementTree.fromstring(text)
        values = [entry.get("value") for entry in root.iter("property") if entry.get("name") == "evidence"]
        assert values and all(value.endswith(SHOWN) for value in values)
        assert all(suite.get("name").endswith((SHOWN, "harness")) for suite in root.iter("testsuite"))
    if kind == "sarif":
        assert json.dumps(json.loads(text), ensure_ascii=False).encode()


def test_a_text_file_is_written_whole_or_not_at_all(tmp_path):
    files.write_text(tmp_path / "a", "x\udcff\n")
    assert (tmp_path / "a").read_bytes() == b"x\\udcff\n"
    (tmp_path / "b").mkdir()
    with pytest.raises(FileError, match="Cannot write"):
        files.write_text(tmp_path / "b", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
