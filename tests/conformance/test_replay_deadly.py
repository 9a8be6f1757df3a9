"""Replaying a case that has killed a process: a verdict, exit status 1, and no traceback, whatever its end prints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from refnum.conformance.cases.levels import NO_LEVEL
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.mismatches import replay
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.tally import Failure

SOURCE = """
import atexit

def complain():
    raise RuntimeError("the context is dead")

def dequantize_mxfp4(packed, scales):
    if not hasattr(dequantize_mxfp4, "dead"):
        dequantize_mxfp4.dead = atexit.register(complain)
        raise RuntimeError("an illegal memory access was encountered")
    complain()
"""


@pytest.mark.parametrize("finding", ["process-died", "raised"])
def test_the_replay_of_a_fault_ends_in_order(tmp_path, finding):
    source = tmp_path / "dying.py"
    source.write_text(SOURCE)
    (case,) = control_cases("dequantize_mxfp4", "HOPPER", OPERATIONS["dequantize_mxfp4"].defaults())
    subject = Subject("dying", {}, origin=str(source))
    path = replay.save(
        replay.document(case, run_golden(case), {}, subject, Failure(case, NO_LEVEL, "", finding)), tmp_path
    )
    done = subprocess.run(
        [sys.executable, "-m", "refnum.conformance.cli", "replay", str(path), "-s", f"{source}:dequantize_mxfp4"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 1 and "FAULT" in done.stdout and "illegal memory access" in done.stdout
    if finding == "process-died":
        assert "Traceback" not in done.stdout + done.stderr
