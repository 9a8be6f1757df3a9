"""The badge says what the report says, and is that report's only."""

import json
from functools import partial

import pytest
from report_documents import document as make_document
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.reports import report as reports
from refnum.conformance.reports.badge import badge, digest


def verified(**header):
    document = make_document()
    document["results"] = [row for row in document["results"] if row["outcome"] == "pass"]
    document["header"].update(header)
    document["footer"].update(reports.concluded(document))
    assert document["footer"]["exit"] == 0
    return document


def cut_short():
    document = verified()
    document["footer"]["status"] = "partial"
    document["footer"].update(reports.concluded(document))
    return document


@pytest.mark.parametrize(
    ("document", "words", "colour"),
    [
        (verified, "verified, standard", "2e7d32"),
        (partial(verified, level="exhaustive"), "verified, exhaustive", "2e7d32"),
        (partial(verified, level="smoke"), "not verified, smoke", "757575"),
        (cut_short, "not verified, standard", "757575"),
        (make_document, "wrong, standard", "c62828"),
    ],
)
def test_it_is_green_only_for_a_whole_run_that_verifies(document, words, colour):
    line = badge(document())
    assert line.startswith(f"![refnum: {words}, model ") and line.endswith(f"-{colour})")


def test_it_names_the_digests_of_model_and_report():
    document = verified()
    line = badge(document, link="report.html")
    assert digest(document)[7:19] in line and document["header"]["environment"]["model_digest"][7:19] in line
    assert line.startswith("[![") and line.endswith("](report.html)")
    other = verified(seed=1)
    assert digest(other) != digest(document) and badge(other) != badge(document)
    assert digest(json.loads(json.dumps(document, indent=3))) == digest(document)


def test_the_command_checks_that_a_file_has_the_badge_of_this_report(tmp_path):
    path, readme = tmp_path / "r.json", tmp_path / "README.md"
    path.write_text(json.dumps(verified()))
    line = CliRunner().invoke(app, ["report", "badge", str(path), "--link", "r.html"]).stdout
    readme.write_text(f"# mine\n\n{line}\n")
    assert CliRunner().invoke(app, ["report", "badge", str(path), "--check", str(readme)]).exit_code == 0
    path.write_text(json.dumps(verified(seed=1)))
    done = CliRunner().invoke(app, ["report", "badge", str(path), "--check", str(readme)])
    assert done.exit_code == 1 and "does not stand in" in done.stderr
    assert CliRunner().invoke(app, ["report", "badge", str(path), "--check", str(tmp_path / "none")]).exit_code == 2
