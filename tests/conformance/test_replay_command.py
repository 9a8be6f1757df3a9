"""`refnum replay`, `explain` and `shrink` on replay files, those of a machine with a GPU among them."""

import numpy as np
import pytest
from cli_tools import refnum

from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import NO_LEVEL
from refnum.conformance.mismatches import replay
from refnum.conformance.subjects.loading.discover import from_file
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.tally import Failure

pytestmark = pytest.mark.usefixtures("in_a_folder")


def test_the_replay_command_replays_with_and_without_the_kernel(failed, tmp_path):
    path, *_ = sorted((tmp_path / ".refnum" / "cases").glob("*.json"))
    with_kernel = refnum("replay", path, "-s", "wrong.py")
    assert with_kernel.exit_code == 1 and "MISMATCH" in with_kernel.stdout
    assert "the file's expectation is reproduced, every byte" in with_kernel.stdout
    unaccompanied = refnum("replay", path)
    assert unaccompanied.exit_code == 0 and "-> even (N2)" in unaccompanied.stdout
    assert "as saved in the file" in unaccompanied.stdout
    fixed = refnum("replay", path, "-s", "right.py")
    assert fixed.exit_code == 0 and "the saved failure is gone" in fixed.stdout


def test_a_replay_file_is_explained(failed, tmp_path):
    path, *_ = sorted((tmp_path / ".refnum" / "cases").glob("*.json"))
    result = refnum("explain", path, "--index", "0,3")
    assert result.exit_code == 0 and "scale exponent" in result.stdout


def test_a_replay_file_is_shrunk_further(tmp_path):
    x = np.tile(np.array([6, 1.25, 0.3, -2], np.float32), (4, 16))
    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": x})
    (subject,) = from_file("wrong.py")
    assert isinstance(subject, Subject)
    body = replay.document(case, replay.run_golden(case), {}, subject, Failure(case, NO_LEVEL))
    path = replay.save(body, tmp_path)
    result = refnum("shrink", path, "-s", "wrong.py")
    assert result.exit_code == 0 and "shrunk    256 to 32 elements" in result.stdout
    written = [p for p in tmp_path.glob("*.json") if p != path]
    assert np.count_nonzero(replay.load(written[0]).case.inputs["x"]) <= 2
    no_longer = refnum("shrink", path, "-s", "right.py")
    assert no_longer.exit_code == 2 and "nothing to shrink" in no_longer.stderr


def stored(tmp_path, kind, **body_changes):

    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.full((1, 32), 1.25, np.float32)})
    expected = replay.run_golden(case)
    observed = {**expected, "packed": expected["packed"] ^ 1}
    subject = Subject("fast", {"quantize_mxfp4": print}, kind=kind)
    body = replay.document(case, {**expected, **body_changes}, observed, subject, Failure(case, NO_LEVEL))
    return replay.save(body, tmp_path)


def test_a_gpu_s_replay_file_is_read_on_a_machine_without_one(tmp_path):
    path = stored(tmp_path, "gpu")
    result = refnum("replay", path)
    assert result.exit_code == 0 and "fast was not called" in result.stdout and "--trust" in result.stdout
    assert "reproduced, every byte" in result.stdout and "as saved in the file" in result.stdout
    trusted = refnum("replay", path, "--trust")
    assert trusted.exit_code == 0 and "fast is not here" in trusted.stdout


def test_a_model_that_has_changed_is_said_and_exits_1(tmp_path):
    changed = stored(tmp_path, "gpu", scales=np.array([[9]], np.uint8))
    result = refnum("replay", changed)
    assert result.exit_code == 1 and "EXPECTATION CHANGED" in result.stdout and "other scales" in result.stdout
