"""Reports of `refnum check`, of runs that die too, and `refnum report` on saved ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import RIGHT, command, refnum

from refnum.conformance.commands.check import command as check_command
from refnum.conformance.reports import files
from refnum.conformance.reports import report as reports
from refnum.errors import FileError

pytestmark = pytest.mark.usefixtures("in_a_folder")


def test_a_wrong_kernel_exits_1_and_shows_the_page_and_the_replay_command(failed, tmp_path):
    assert failed.exit_code == 1 and "MISMATCH" in failed.stdout and "E2M1_TIES_UP" in failed.stdout
    assert "-> even (N2)" in failed.stdout
    document = reports.load(tmp_path / "r.json")
    record = document["results"][0]["failures"][0]
    assert record["command"] in failed.stdout and (tmp_path / record["replay"]).is_file()
    assert document["footer"]["exit"] == 1


def test_json_is_the_whole_report_and_nothing_else():
    result = refnum("check", "-s", "right.py", "-o", "quantize_mxfp4", "-p", "OCP", "--level", "smoke", "--json")
    document = json.loads(result.stdout)
    reports.check(document, "stdout")
    assert document["controls"]["wrong_caught"] >= 20 and document["header"]["subjects"][0]["name"] == "right"


def test_a_report_that_cannot_be_written_is_said_before_the_run(tmp_path, monkeypatch):
    for name in ("_work", "_layer_judge"):
        monkeypatch.setattr(check_command, name, lambda: pytest.fail("the harness was loaded"))
    (tmp_path / "blocked").write_text("")
    (tmp_path / "folder").mkdir()
    for operation in ("quantize_mxfp4", "moe_layer"):
        for place in ("blocked/r.json", "folder"):
            result = refnum("check", "-s", "right.py:f", "-o", operation, "--report", place)
            assert result.exit_code == 2 and f"Cannot write {place}" in result.stderr and result.stdout == ""


def test_a_report_is_never_written_over_a_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(check_command, "_work", lambda: pytest.fail("the harness was loaded"))
    before = (tmp_path / "right.py").read_bytes()
    result = refnum("check", "right.py", "--report", "right.py")
    assert result.exit_code == 2 and "right.py: it holds something else than a report" in result.stderr
    assert (tmp_path / "right.py").read_bytes() == before
    for text in ("", ' \n{"schema": "refnum"}'):
        (tmp_path / "r.json").write_text(text)
        files.require_place_of_report(tmp_path / "r.json")


def test_a_folder_that_may_not_be_written_is_named(monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(FileError, match=r"Cannot write a/r\.json: \. cannot be written"):
        files.require_place(None, Path("a/r.json"))


LITTLE = """
from refnum.conformance.cli import app
from refnum.conformance.commands.check import structure

structure.amount_for = lambda engine: "smoke"
app()
"""
"""The command with few structural cases."""
DIES = """
import ctypes
from refnum import encode_e2m1 as golden

def encode_e2m1(x):
    if x.dtype == "float16" and x.size > LARGEST:
        ctypes.CDLL(None)._exit(9)
    return golden(x)
"""


@pytest.mark.parametrize(("largest", "left"), [(1 << 14, ["float32", "bfloat16"]), (0, [])], ids=["corner", "vector"])
def test_a_run_that_dies_leaves_a_partial_report(tmp_path, largest, left):
    (tmp_path / "dies.py").write_text(DIES.replace("LARGEST", str(largest)))
    words = [sys.executable, "-c", LITTLE, "check", "-s", "dies.py", "--examples", "0", "--report", "r.json"]
    assert subprocess.run([*words, "--no-isolate", "--workers", "1"], check=False, cwd=tmp_path).returncode == 9
    document = reports.load(tmp_path / "r.json")
    assert document["footer"]["status"] == "partial" and document["footer"]["exit"] == 3
    assert [row["params"]["input"] for row in document["results"]] == left  # the vectors of all variants come first
    shown = refnum("report", "r.json")
    assert shown.exit_code == 3 and "run cut short" in shown.stdout


def test_what_a_kernel_prints_does_not_get_into_the_report(tmp_path):
    (tmp_path / "noisy.py").write_text(RIGHT.replace("return", "print('tuning...')\n    return"))
    words = ["check", "-s", "noisy.py", "-o", "quantize_mxfp4", "-p", "OCP", "--level", "smoke", "--json"]
    result = refnum(*words, "--no-isolate")
    assert json.loads(result.stdout)["footer"]["exit"] == 0 and "tuning..." in result.stderr
    done = command(*words, folder=tmp_path)
    assert json.loads(done.stdout)["footer"]["exit"] == 0 and "tuning..." in done.stderr


def test_a_saved_report_becomes_what_other_tools_read(failed, tmp_path):
    starts = {"html": "<!doctype html>", "junit": "<?xml", "sarif": '{"$schema"', "summary": "## refnum: WRONG"}
    for kind, start in starts.items():
        for option in ("--out", "--output", "-o"):
            assert refnum("report", kind, "r.json", option, f"out{option}.{kind}").exit_code == 0
            text = (tmp_path / f"out{option}.{kind}").read_text()
            assert text.startswith(start) and "E2M1_TIES_UP" in text
        assert refnum("report", kind, "r.json").stdout == text


def test_a_report_is_shown_with_and_without_the_word(failed):
    shown = refnum("report", "show", "r.json")
    assert shown.exit_code == 1 and "MISMATCH" in shown.stdout
    assert refnum("report", "r.json").stdout == shown.stdout
    assert "merge" in refnum("report", "--help").stdout
    missing = refnum("report", "absent.json")
    assert missing.exit_code == 2 and "absent.json" in missing.stderr
