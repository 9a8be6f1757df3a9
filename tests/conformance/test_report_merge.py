"""Merged reports: the sum of like runs, and a refusal by name for everything else."""

import json

import pytest
from report_documents import document as make_document
from report_documents import faults, made, refuses, right, wrong
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.reports import report as reports
from refnum.conformance.reports.merge import PartialReport, UnlikeReports, merge


@pytest.fixture(scope="module")
def parts():
    return made(right, wrong), made(refuses, faults)


def copied(document):
    return json.loads(json.dumps(document))


def test_two_parts_are_the_whole(parts):
    joined, whole = merge(parts, ("a.json", "b.json")), make_document()
    assert joined["footer"]["totals"] == whole["footer"]["totals"]
    assert joined["footer"]["exit"] == 1 and joined["footer"]["verdict"] == whole["footer"]["verdict"]
    rows = [sorted((r["subject"], r["variant"], r["outcome"]) for r in d["results"]) for d in (joined, whole)]
    assert rows[0] == rows[1] and len(rows[0]) == 12
    assert [s["name"] for s in joined["header"]["subjects"]] == ["right", "wrong", "refuses", "faults"]
    assert [part["file"] for part in joined["header"]["merged"]] == ["a.json", "b.json"]
    assert joined["footer"]["seconds"] == pytest.approx(sum(part["footer"]["seconds"] for part in parts), abs=0.002)


def test_what_the_machines_do_not_share_stands_with_each_of_them(parts):
    one, other = copied(parts[0]), copied(parts[1])
    one["header"]["environment"]["versions"]["torch"] = "2.7"
    other["header"]["environment"]["versions"]["torch"] = "2.8"
    header = merge((one, other), ("a", "b"))["header"]
    assert "torch" not in header["environment"]["versions"] and "numpy" in header["environment"]["versions"]
    assert [part["environment"]["versions"]["torch"] for part in header["merged"]] == ["2.7", "2.8"]


def cut_short(document):
    document["footer"]["status"] = "partial"


def other_level(document):
    document["header"]["level"] = "exhaustive"


def other_seed(document):
    document["header"]["seed"] = 7


def other_examples(document):
    document["header"]["examples"] = 7


def other_model(document):
    document["header"]["environment"]["model_digest"] = "sha256:" + "0" * 64


def tensors(document):
    document["data"] = [{"tensor": "t"}]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (cut_short, PartialReport, "b.json is the report of a run that was cut short"),
        (other_level, UnlikeReports, "differ in their level: standard and exhaustive"),
        (other_seed, UnlikeReports, "seed: 0 and 7"),
        (other_examples, UnlikeReports, "number of examples: None and 7"),
        (other_model, UnlikeReports, "golden model"),
        (tensors, UnlikeReports, "kind of input: made and tensors"),
    ],
)
def test_partial_and_unlike_reports_are_refused(parts, change, error, words):
    other = copied(parts[1])
    change(other)
    with pytest.raises(error, match=words):
        merge((parts[0], other), ("a.json", "b.json"))


def test_one_variant_in_two_reports_is_refused(parts):
    with pytest.raises(reports.DuplicateResult):
        merge((parts[0], parts[0]), ("a", "b"))


def test_two_states_of_a_subject_are_refused(parts):
    other = copied(parts[1])
    other["header"]["subjects"].append({**parts[0]["header"]["subjects"][0], "describe": {"commit": "later"}})
    with pytest.raises(UnlikeReports, match=r"subject right is not the same in a and b"):
        merge((parts[0], other), ("a", "b"))


def test_a_subject_that_only_one_machine_has_counts_as_available(parts):
    other = copied(parts[1])
    absent = {**parts[0]["header"]["subjects"][0], "available": False, "reason": "no CUDA device"}
    other["header"]["subjects"].append(absent)
    for order in ((parts[0], other), (other, parts[0])):
        kept = {s["name"]: s["available"] for s in merge(order, ("a", "b"))["header"]["subjects"]}
        assert kept == {"right": True, "wrong": True, "refuses": True, "faults": True}


def test_the_command_writes_a_report_or_says_why_not(parts, tmp_path):
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, part in zip(paths, parts, strict=True):
        path.write_text(json.dumps(part))
    done = CliRunner().invoke(app, ["report", "merge", *map(str, paths), "-o", str(tmp_path / "c.json")])
    assert done.exit_code == 0 and done.stdout.startswith("WRONG at level standard (12 variants")
    assert reports.load(tmp_path / "c.json")["footer"]["totals"]["variants"] == 12
    changed = copied(parts[1])
    other_seed(changed)
    paths[1].write_text(json.dumps(changed))
    done = CliRunner().invoke(app, ["report", "merge", *map(str, paths), "-o", str(tmp_path / "d.json")])
    assert done.exit_code == 2 and "differ in their seed" in done.stderr and not (tmp_path / "d.json").exists()
