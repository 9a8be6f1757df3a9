"""Checkpoints: whole or not there, corrupt ones told in one sentence, killed writers leave the last one."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from refnum.errors import ArgumentError, FileError
from refnum.training import checkpoint
from refnum.training.dispatch import Ranks

STATE = {"policy": "bf16", "seed": 3}


def tensors(value):
    return {"0.master": torch.full((3, 5), value), "0.step": torch.tensor(value)}


def save(folder, step, value):
    found = checkpoint.Checkpoint(step, tensors(value), {"products": step})
    checkpoint.save_checkpoint(folder, found, STATE, Ranks())


@pytest.fixture
def folder(tmp_path):
    for step in (10, 20, 30):
        save(tmp_path / "c", step, float(step))
    return tmp_path / "c"


def test_the_last_one_comes_back_to_the_bit(folder):
    found = checkpoint.load_checkpoint(folder, STATE, Ranks())
    assert (found.step, found.counts, found.tensors.keys()) == (30, {"products": 30}, tensors(0.0).keys())
    assert all(torch.equal(found.tensors[name], one) for name, one in tensors(30.0).items())


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.load_checkpoint(tmp_path / "c", STATE, Ranks()) is None


def test_old_ones_go_and_the_same_step_is_written_over(folder):
    assert [one.name for one in sorted(folder.iterdir())] == ["step-000000020", "step-000000030"]
    save(folder, 30, 7.0)
    assert float(checkpoint.load_checkpoint(folder, STATE, Ranks()).tensors["0.step"]) == 7.0


@pytest.mark.parametrize("name", ["rank-0.safetensors", "state.json"])
@pytest.mark.parametrize(
    "change", [lambda text: text[:-9], lambda text: b"", lambda text: text[:20] + b"\xff" + text[21:]]
)
def test_a_corrupt_one_is_one_sentence_and_the_one_before_is_there(folder, name, change):
    path = folder / "step-000000030" / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(
        FileError, match=r"step-000000030 is corrupt: .*; delete it to resume from the one before"
    ) as told:
        checkpoint.load_checkpoint(folder, STATE, Ranks())
    assert "\n" not in str(told.value)
    path.unlink()
    with pytest.raises(FileError, match="is corrupt"):
        checkpoint.load_checkpoint(folder, STATE, Ranks())


def test_a_flipped_bit_of_a_tensor_is_found(folder):
    path = folder / "step-000000030" / "rank-0.safetensors"
    text = bytearray(path.read_bytes())
    text[-1] ^= 1
    path.write_bytes(text)
    with pytest.raises(FileError, match="is corrupt: the digest of rank 0's tensors"):
        checkpoint.load_checkpoint(folder, STATE, Ranks())


def test_another_run_s_checkpoint_is_refused(folder):
    with pytest.raises(ArgumentError, match="is of a run with seed=3, this one has seed=4"):
        checkpoint.load_checkpoint(folder, STATE | {"seed": 4}, Ranks())


WRITER = """
import os, signal, sys, torch
from pathlib import Path
from refnum.training import checkpoint
from refnum.training.dispatch import Ranks
place = getattr(checkpoint, sys.argv[2])
calls = 0
def last(*given):
    global calls
    calls += 1
    if calls == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return place(*given)
setattr(checkpoint, sys.argv[2], last)
found = checkpoint.Checkpoint(40, {"0.step": torch.tensor(1.0)}, {})
checkpoint.save_checkpoint(Path(sys.argv[1]), found, {"policy": "bf16", "seed": 3}, Ranks())
"""


@pytest.mark.parametrize("function, call", [("write_whole", 1), ("write_whole", 2), ("write_whole", 3), ("_rename", 1)])
def test_a_writer_that_is_killed_leaves_the_last_one(folder, function, call):
    words = [sys.executable, "-c", WRITER, str(folder), function, str(call)]
    assert subprocess.run(words, env=os.environ, timeout=120).returncode == -signal.SIGKILL
    assert checkpoint.load_checkpoint(folder, STATE, Ranks()).step == 30
    save(folder, 40, 40.0)
    assert checkpoint.load_checkpoint(folder, STATE, Ranks()).step == 40
