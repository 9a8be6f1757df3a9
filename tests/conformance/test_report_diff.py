"""The difference of two reports: what is new, fixed or lost, and nothing that stayed."""

import json

import pytest
from report_documents import document as make_document
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.reports import report as reports
from refnum.conformance.reports.difference import difference
from refnum.conformance.reports.merge import PartialReport, UnlikeReports

NAMES = ("old.json", "new.json")


def of(document, subject):
    return [row for row in document["results"] if row["subject"] == subject]


def as_passing(document):
    """Make the wrong kernel pass; its rows are those of the right one."""
    for row, good in zip(of(document, "wrong"), of(document, "right"), strict=True):
        row.update({**good, "subject": "wrong", "variant": row["variant"], "params": row["params"]})
    document["footer"].update(reports.concluded(document))
    return document


def kinds(found):
    return {name: [line.subject for line in getattr(found, name)] for name in ("new", "fixed", "lost", "gained")}


def test_the_same_report_has_no_difference():
    found = difference(make_document(), make_document(), NAMES)
    assert not any(kinds(found).values()) and (found.same, found.unchanged, found.exit) == (6, 6, 0)


def test_what_fails_now_is_new_and_what_passes_now_is_fixed():
    good, bad = as_passing(make_document()), make_document()
    found = difference(good, bad, NAMES)
    assert kinds(found) == {"new": ["wrong"] * 3, "fixed": [], "lost": [], "gained": []} and found.exit == 1
    assert all(line.failures for line in found.new)
    found = difference(bad, good, NAMES)
    assert kinds(found) == {"new": [], "fixed": ["wrong"] * 3, "lost": [], "gained": []} and found.exit == 0


def test_another_mistake_in_the_place_of_an_old_one_is_new():
    other = make_document()
    record = of(other, "wrong")[0]["failures"][0]
    record["bug_classes"] = [{"id": "E2M1_TIES_ZERO", "words": "ties go to zero"}]
    found = difference(make_document(), other, NAMES)
    assert kinds(found)["new"] == ["wrong"] and found.same == 5 and found.exit == 1


def without(subject):
    def change(document):
        document["results"] = [row for row in document["results"] if row["subject"] != subject]

    return change


def unsupported(document):
    for row in of(document, "right"):
        row.update(outcome="unsupported", words="no GPU here")


def with_hole(document):
    of(document, "right")[0]["holes"] = ["tie at 5"]


def unproved(document):
    of(document, "right")[0]["domains"] = []


@pytest.mark.parametrize(
    ("change", "lost", "words"),
    [
        (without("right"), 3, "no result"),
        (unsupported, 3, "no GPU here"),
        (with_hole, 1, "no longer covered: tie at 5"),
        (unproved, 1, "no longer proved: all halves"),
    ],
)
def test_what_is_not_verified_any_more_is_lost_and_never_quiet(change, lost, words):
    old, new = make_document(), make_document()
    of(old, "right")[0]["domains"] = [{"name": "all halves", "size": 9, "how": "", "points": 9, "verdict": "proved"}]
    of(new, "right")[0]["domains"] = of(old, "right")[0]["domains"]
    change(new)
    found = difference(old, new, NAMES)
    assert kinds(found) == {"new": [], "fixed": [], "lost": ["right"] * lost, "gained": []} and found.exit == 3
    assert found.lost[0].words == words


def test_a_failure_that_is_gone_with_its_subject_is_lost_and_not_fixed():
    new = make_document()
    without("wrong")(new)
    assert kinds(difference(make_document(), new, NAMES)) == {
        "new": [], "fixed": [], "lost": ["wrong"] * 3, "gained": []
    }  # fmt: skip


def test_a_new_subject_that_passes_is_gained():
    old = make_document()
    without("right")(old)
    found = difference(old, make_document(), NAMES)
    assert kinds(found)["gained"] == ["right"] * 3 and found.exit == 0


def test_an_error_of_the_harness_is_new():
    new = make_document()
    new["harness"] = ["a vector has another answer"]
    assert difference(make_document(), new, NAMES).exit == 1


def test_runs_that_did_not_do_the_same_are_refused_and_another_model_is_a_note():
    new = make_document()
    new["header"]["environment"]["model_digest"] = "sha256:" + "0" * 64
    assert difference(make_document(), new, NAMES).notes[0].startswith("the golden model changed")
    new["header"]["level"] = "smoke"
    with pytest.raises(UnlikeReports, match="level"):
        difference(make_document(), new, NAMES)
    new = make_document()
    new["footer"]["status"] = "partial"
    with pytest.raises(PartialReport, match=r"new\.json"):
        difference(make_document(), new, NAMES)


def test_the_command_shows_the_page_of_what_is_new_and_only_that(tmp_path):
    paths = [tmp_path / name for name in NAMES]
    for path, document in zip(paths, (as_passing(make_document()), make_document()), strict=True):
        path.write_text(json.dumps(document))
    done = CliRunner().invoke(app, ["report", "diff", *map(str, paths)])
    assert done.exit_code == 1 and done.stdout.count("MISMATCH") == 3 and "faults" not in done.stdout
    assert "3 new, 0 lost, 0 fixed, 0 gained; 3 fail as before, 6 unchanged" in done.stdout
    done = CliRunner().invoke(app, ["report", "diff", *map(str, reversed(paths))])
    assert done.exit_code == 0 and "MISMATCH" not in done.stdout and done.stdout.count("fixed  ") == 3
