"""The driver of compute-sanitizer reads what the tool prints, ends what is late, and trusts no tool that is blind."""

import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

driver = pytest.importorskip("device_sanitizer")

MEMCHECK = "========= ERROR SUMMARY: {} errors"
RACECHECK = "========= RACECHECK SUMMARY: {0} hazards displayed ({0} errors, 0 warnings)"
TOLD = '{{"asked": 7, "left": 0, "elements": 64, "wrong": {}, "seconds": 0.1}}'


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Return a function that writes the script which stands for compute-sanitizer."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def write(script):
        path = tmp_path / "compute-sanitizer"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


def given(*words):
    return driver.arguments_of(["--largest", "64", "--seconds", "1", *words])


@pytest.mark.parametrize(
    ("name", "lines", "status", "errors", "clean"),
    [
        ("memcheck", (TOLD.format("{}"), MEMCHECK.format(0)), 0, 0, True),
        ("memcheck", (TOLD.format("{}"), MEMCHECK.format(3)), driver.FOUND, 3, False),
        ("racecheck", (TOLD.format("{}"), RACECHECK.format(0)), 0, 0, True),
        ("racecheck", (TOLD.format("{}"), RACECHECK.format(12)), driver.FOUND, 12, False),
        ("memcheck", (TOLD.format('{"how": "other bytes"}'), MEMCHECK.format(0)), 1, 0, False),
        ("memcheck", (TOLD.format("{}"),), 0, None, False),
        ("memcheck", (MEMCHECK.format(0),), 0, 0, False),
    ],
    ids=["clean", "errors", "no hazards", "hazards", "a wrong answer", "no summary", "no counts"],
)
def test_a_run_is_clean_with_a_summary_of_nothing_and_right_answers(tool, name, lines, status, errors, clean):
    tool("\n".join([*(f"echo '{line}'" for line in lines), f"exit {status}"]))
    row = driver.under(name, "fp8_to_mxfp4", given())
    assert (row["tool"], row["status"], row["errors"], "end" not in row) == (name, status, errors, clean)
    assert row.get("asked", 7) == 7 and ("asked" in row) is any("asked" in line for line in lines)


def test_the_tool_is_given_its_options_and_the_question(tool):
    tool('echo "$@" >&2')
    status, errors, text = driver._run("memcheck", ["--operation", "x"], 60)
    wanted = ["--tool", "memcheck", *driver.TOOLS["memcheck"], "--error-exitcode", str(driver.FOUND), sys.executable]
    assert (status, errors, text.split()) == (0, None, [*wanted, driver.__file__, "--operation", "x"])


def test_one_that_is_late_is_ended_with_its_children_and_what_it_said_is_kept(tool, tmp_path):
    child = tmp_path / "child"
    tool(f"sleep 60 &\necho $! > {child}.part; mv {child}.part {child}\necho begun\nwait")
    start = time.monotonic()
    assert driver._run("memcheck", [], 2) == (-1, None, "begun\n")
    assert time.monotonic() - start < 30
    stat = Path(f"/proc/{int(child.read_text())}/stat")
    end = time.monotonic() + 10
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":  # nobody waits for it but init
        assert time.monotonic() < end, "the child lives on"
        time.sleep(0.01)


@pytest.mark.parametrize(("seen", "code", "asked"), [(0, 1, False), (1, 0, True)], ids=["blind", "sees"])
def test_a_tool_that_does_not_find_the_fault_of_its_control_judges_nothing(tool, capsys, seen, code, asked):
    pytest.importorskip("refnum.gpu.subjects")
    control = f"echo '{MEMCHECK.format(seen)}'"
    clean = f"echo '{TOLD.format('{}')}'; echo '{MEMCHECK.format(0)}'"
    tool(f'case "$*" in *--control*) {control};; *) {clean};; esac')
    assert driver.main(["--tool", "memcheck", "--workers", "2"]) == code
    out, err = capsys.readouterr()
    assert ("memcheck found nothing wrong with a kernel that has a fault: it judges nothing." in err) is not asked
    assert ("0 errors, 0 runs not clean" in out) is asked
