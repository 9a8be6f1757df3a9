"""A report is valid or it is refused by name."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.operation import select
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.check.run import Plan, run
from refnum.conformance.reports import gpus
from refnum.conformance.reports import report as reports
from refnum.conformance.reports.environment import VARIABLES, command_line, environment
from refnum.conformance.subjects.subject import Subject
from refnum.errors import FileError


def wrong(x, profile):
    packed, scales = refnum.quantize_mxfp4(x, profile)
    return packed ^ np.uint8(x.dtype.name == "float16"), scales


@functools.cache
def judged():
    """Return a report of a kernel that is wrong on one variant of three: every test writes it, most then spoil it."""
    plan = Plan(
        [Subject("k", {"quantize_mxfp4": wrong})],
        select(["quantize_mxfp4"]),
        ["HOPPER"],
        save=False,
        shown=1,
        cases=control_cases,
    )
    return run(plan, reports.Report(reports.header("standard", 5, ["check"], [], [("x", "boom")])))


def written(tmp_path):
    path = tmp_path / "report.json"
    reports.write(judged(), path)
    return path


def test_a_report_says_who_where_with_what_and_how_much(tmp_path):
    document = reports.load(written(tmp_path))
    header, footer = document["header"], document["footer"]
    assert header["seed"] == 5 and header["argv"] == ["check"] and header["level"] == "standard"
    assert header["environment"]["model_digest"].startswith("sha256:")
    assert header["environment"]["versions"]["numpy"] == np.__version__
    assert header["broken_subjects"] == [{"name": "x", "reason": "boom"}]
    assert footer["status"] == "complete" and footer["exit"] == 1
    assert footer["verdict"].startswith("WRONG at level standard")
    assert footer["totals"]["outcomes"] == {"mismatch": 1, "pass": 2}
    assert footer["totals"]["compared"] == sum(row["compared"] for row in document["results"]) > 0


def test_a_record_names_the_variables_that_matter_and_no_folder_or_gpu_of_the_machine(monkeypatch):
    given = {"CXX": "/opt/tools/bin/g++", "CXXFLAGS": "-O1 -I/home/me/include", "OMP_NUM_THREADS": "1",
             "CUDA_VISIBLE_DEVICES": "GPU-12345678", "CUPY_CACHE_DIR": "/home/me", "API_TOKEN": "hush"}  # fmt: skip
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert environment()["variables"] == {"CXX": "g++", "CXXFLAGS": "-O1 include", "OMP_NUM_THREADS": "1"}
    script = Path(refnum.__file__).resolve().parents[1] / "benchmarks" / "convergence.py"
    monkeypatch.setattr(
        "sys.argv", [str(script), "/home/me/runs", "--out=/home/me/out", "docs/results", "--seeds", "5"]
    )
    assert command_line() == ["benchmarks/convergence.py", "runs", "--out=out", "docs/results", "--seeds", "5"]
    monkeypatch.setattr(gpus, "smi", lambda: [{"uuid": "GPU-12345678", "name": "NVIDIA H200"}])
    assert gpus.published() == [{"name": "NVIDIA H200"}]


def result_of(document, outcome):
    return next(row for row in document["results"] if row["outcome"] == outcome)


def duplicate(d):
    d["results"].append(d["results"][0])
    d["footer"]["totals"] = reports.totals(d["results"])


def empty_pass(d):
    result_of(d, "pass")["compared"] = 0


def hide_failure(d):
    result_of(d, "mismatch")["failures"] = []


def failing_pass(d):
    result_of(d, "pass")["failures"] = result_of(d, "mismatch")["failures"]


def called_verified(d):
    d["footer"]["exit"] = 0


def in_other_words(d):
    d["footer"]["verdict"] = d["footer"]["verdict"].replace("WRONG", "verified")


def passes_cut_short(d):
    d["results"] = [row for row in d["results"] if row["outcome"] == "pass"]
    d["footer"].update(reports.concluded(d))
    assert d["footer"]["exit"] == 0
    d["footer"]["status"] = "partial"


def beyond_every_level(d):
    result_of(d, "pass")["level"]["claimed"] = "none"


def false_proof(d):
    result_of(d, "pass")["domains"] = [{"name": "x", "size": 9, "how": "", "points": 8, "verdict": "proved"}]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda d: d.pop("footer"), reports.MissingFooter),
        (duplicate, reports.DuplicateResult),
        (empty_pass, reports.NothingCompared),
        (hide_failure, reports.MissingFailure),
        (failing_pass, reports.UnexpectedFailure),
        (false_proof, reports.ProofWithoutCases),
        (called_verified, reports.VerdictDiffers),
        (in_other_words, reports.VerdictDiffers),
        (passes_cut_short, reports.VerdictDiffers),
        (beyond_every_level, FileError),
        (lambda d: d["footer"]["totals"].update(cases=0), reports.TotalsDiffer),
        (lambda d: d["results"].pop(), reports.TotalsDiffer),
        (lambda d: result_of(d, "pass").update(outcome="ok"), FileError),
        (lambda d: result_of(d, "pass").update(comment=""), FileError),
        (lambda d: d.update(schema="refnum.report/9"), FileError),
        (lambda d: d["header"].pop("environment"), FileError),
    ],
)
def test_an_invalid_report_is_refused_by_name(tmp_path, change, error):
    path = written(tmp_path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(error) as caught:
        reports.load(path)
    assert type(caught.value) is error


def test_a_report_whose_writer_counted_less_is_valid(tmp_path):
    """Reports of an earlier version, whose words had no count of what was refused."""
    path = written(tmp_path)
    document = json.loads(path.read_text())
    result_of(document, "pass").update(refused=7, compared=15444110476)
    document["footer"].update(reports.concluded(document))
    said = document["footer"]["verdict"]
    assert ", 7 cases refused, flips above 1 in " in said and ", 15,444,1" in said and "elements compared" in said
    for words, valid in (
        (said, True),
        (said.replace(", 7 cases refused", ""), True),
        (re.sub(r"(?<=\d),(?=\d)", "", said), True),
        (said.replace(" 7 cases", " 8 cases"), False),
    ):
        document["footer"]["verdict"] = words
        path.write_text(json.dumps(document))
        if valid:
            assert reports.load(path)["footer"]["verdict"] == words
        else:
            with pytest.raises(reports.VerdictDiffers):
                reports.load(path)


def test_what_is_no_report_is_a_file_error(tmp_path):
    path = tmp_path / "r.json"
    for text in ("", "[]", "{}"):
        path.write_text(text)
        with pytest.raises(FileError):
            reports.load(path)
    with pytest.raises(FileError):
        reports.load(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("outcome", "compared", "status", "code"),
    [
        ("pass", 5, "complete", 0),
        ("pass", 5, "partial", 3),
        ("mismatch", 5, "complete", 1),
        ("flaky", 5, "complete", 1),
        ("fault", 0, "complete", 1),
        ("timeout", 0, "complete", 1),
        ("compile-error", 0, "complete", 1),
        ("unsupported", 0, "complete", 3),
        ("not-run", 0, "complete", 3),
        ("not-verified", 5, "complete", 3),
        ("mismatch", 5, "partial", 1),
    ],
)
def test_exit_status(outcome, compared, status, code):
    document = reports.Report(
        {"level": "standard"}, [{"outcome": outcome, "compared": compared, "cases": 1, "refused": 0}], status=status
    )
    assert document.exit_status() == code


def test_a_written_file_has_the_permissions_of_any_new_file(tmp_path):
    from refnum.conformance.reports import files

    (tmp_path / "plain").touch()
    files.write_text(tmp_path / "ours", "text")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize(
    ("said", "follows"), [("1 variants, 1 case", True), ("1 variant, 1 cases", True), ("2,001 variants, 1 case", False)]
)
def test_one_is_counted_in_the_singular_and_earlier_reports_in_the_plural_are_valid(said, follows):
    assert reports._follows(f"WRONG at level smoke ({said})", "WRONG at level smoke (1 variant, 1 case)") is follows
    assert reports._singular("2,001 variants, 1 variants, 21 cases, 1 cases") == (
        "2,001 variants, 1 variant, 21 cases, 1 case"
    )
