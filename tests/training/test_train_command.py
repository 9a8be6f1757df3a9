"""`refnum train`: the same bits on each run and after kill -9, ranks that die, and wrong options in one sentence."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import refnum
from refnum.conformance.cli import app
from refnum.training import edges

COMMAND = [sys.executable, "-m", "refnum.conformance.cli", "train", "--device", "cpu", "--batch", "2"]
"""One sequence a rank on two ranks: about a second a step."""


pytestmark = pytest.mark.usefixtures("forked_ranks")


def invoked(*words):
    """Return the finished command, run in this process; its ranks are processes where there is more than one."""
    return CliRunner().invoke(app, [*COMMAND[3:], *map(str, words)])


def run(out, *words):
    """Return the finished command of a run of two ranks into a folder."""
    return invoked("--policy", "mxfp4", "--megabytes", "1", "--ranks", "2", "--out", out, *words)


def asked(*words):
    """Return the exit status and the errors of a command in this process."""
    done = invoked(*words)
    return done.exit_code, done.stderr


@pytest.fixture(autouse=True)
def torch_as_it_was():
    """Undo what a run in this process asks of torch."""
    threads = torch.get_num_threads()
    yield
    torch.set_deterministic_debug_mode("default")
    torch.set_num_threads(threads)


def losses(out):
    """Return what each step computed, without the times."""
    lines = [json.loads(line) for line in (Path(out) / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in ("seconds", "judged")} for line in lines]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, forked_ranks):
    """Return the folder of five steps on two ranks, and what the run printed."""
    out = tmp_path_factory.mktemp("train") / "whole"
    done = run(out, "--steps", "5", "--save", "2")
    assert done.exit_code == 0, done.stderr
    return out, done.stdout


@contextlib.contextmanager
def started(out, *words):
    """Start a run in a group of its own and give it when its folder has a checkpoint; nothing of it stays."""
    command = [*COMMAND, "--policy", "mxfp4", "--megabytes", "1", "--out", str(out), *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            end = time.monotonic() + 120
            while not any((out / "checkpoints").glob("step-*")):
                assert time.monotonic() < end and process.poll() is None
                time.sleep(0.05)
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def ranks_of(out):
    """Return the processes that rank runs of a folder are, by the text of their parents."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout.splitlines()[
        1:
    ]
    rows = [(int(pid), int(ppid), args) for pid, ppid, args in (line.split(None, 2) for line in listed)]
    family = {pid for pid, _, args in rows if str(out) in args}
    return sorted(pid for pid, ppid, args in rows if ppid in family and "spawn_main" in args)


def test_a_run_leaves_its_corpus_metrics_and_checkpoints(whole):
    out, text = whole
    assert [line["step"] for line in losses(out)] == list(range(5))
    assert losses(out)[-1]["loss"] < losses(out)[0]["loss"] and losses(out)[-1]["tokens"] == 5 * 2 * 64
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-000000004", "step-000000005"]
    assert "5 steps, 640 tokens: loss" in text
    last = text.splitlines()[-1]
    assert last.startswith("witness: ") and " 4 layer steps judged, 0 mismatches" in last


def test_a_run_killed_at_once_and_resumed_has_the_same_losses_to_the_bit(whole, tmp_path):
    out = tmp_path / "killed"
    with started(out, "--ranks", "2", "--steps", "5", "--save", "2"):
        pass
    done = run(out, "--steps", "5", "--save", "2", "--resume")
    assert done.exit_code == 0, done.stderr
    assert losses(out) == losses(whole[0])


def test_a_rank_that_dies_ends_the_run_in_one_sentence(tmp_path):
    out = tmp_path / "died"
    with started(out, "--ranks", "2", "--steps", "500", "--save", "1") as process:
        os.kill(ranks_of(out)[1], signal.SIGKILL)
        _, text = process.communicate(timeout=30)
        assert process.returncode == 2
        told = [line for line in text.splitlines() if line.startswith("refnum:")]
        assert len(told) == 1 and "was ended by SIGKILL, and the run with it; give --resume" in told[0], text
        assert ranks_of(out) == []


def test_a_finished_run_is_neither_overwritten_nor_another_run_resumed(whole):
    out, _ = whole
    before = losses(out)
    status, text = asked("--steps", "5", "--out", out)
    assert status == 2 and "holds a run; give --resume" in text
    status, text = asked("--steps", "5", "--out", out, "--resume", "--seed", "1")
    assert status == 2 and "is of a run with seed=0, this one has seed=1" in text
    assert losses(out) == before


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    status, text = asked("--out", tmp_path / "file" / "out", "--steps", "1")
    assert status == 2 and "cannot be made: Not a directory; give another --out" in text and text.count("\n") == 1


def test_a_corpus_may_stand_elsewhere(whole, tmp_path):
    out = tmp_path / "out"
    done = invoked("--out", out, "--steps", "1", "--model", "tiny", "--corpus", whole[0] / "corpus", "--policy", "bf16")
    assert done.exit_code == 0, done.stderr
    assert not (out / "corpus").exists() and len(losses(out)) == 1


def test_a_corrupt_checkpoint_is_one_sentence_from_any_rank(whole, tmp_path):
    out = tmp_path / "corrupt"
    subprocess.run(["cp", "-r", str(whole[0]), str(out)], check=True)
    path = out / "checkpoints" / "step-000000005" / "rank-1.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    command = [*COMMAND, "--megabytes", "1", "--out", str(out), "--ranks", "2", "--steps", "6", "--resume"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)  # what its ranks print, too
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "step-000000005 is corrupt: the digest of rank 1" in done.stderr


class Flipped:
    """The operations as the layer calls them, with one bit of each converted FP8 tensor turned over."""

    def __getattr__(self, name):
        return getattr(refnum, name)

    def mxfp4_to_fp8(self, *given):
        codes, scales = refnum.mxfp4_to_fp8(*given)
        return codes ^ (torch.arange(codes.numel()).view_as(codes) % 64 == 5).to(torch.uint8), scales


def test_a_bit_flipped_in_a_conversion_is_counted_saved_and_told(tmp_path, monkeypatch):
    monkeypatch.setattr(edges, "refnum", Flipped())
    words = ["--steps", "1", "--megabytes", "1", "--whole", "1", "--witness", "0"]
    done = invoked("--out", tmp_path / "out", *words)
    assert done.exit_code == 1 and re.search(r"layer steps judged, [1-9]\d* mismatches\n$", done.stdout)
    assert "witness: step 0, layer 0, expert" in done.stderr and "forward fc1_input.0" in done.stderr
    assert list((tmp_path / "out" / "witness").iterdir())


def test_a_policy_that_stops_at_a_mismatch_does(tmp_path, monkeypatch):
    monkeypatch.setattr(edges, "refnum", Flipped())
    words = ["--steps", "1", "--megabytes", "1", "--whole", "1", "--policy", "mxfp4+on_mismatch=stop"]
    done = invoked("--out", tmp_path / "out", *words)
    assert done.exit_code == 1 and "the run was told to stop at a mismatch" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out" / "checkpoints").exists()


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--ranks", "3"], "4 experts on 3 ranks; give a number of ranks that divides the experts"),
        (["--ranks", "4"], "2 sequences a step on 4 ranks; give a multiple of the ranks"),
        (["--policy", "mxfp4+saved_input=fp8"], "contradicts itself"),
        (["--model", "huge"], "model 'huge' is not known"),
        (["--model", "deepseek-v3"], "only: `tiny`, `small`, `medium`, `survey`"),
        (["--device", "tpu"], "device 'tpu' is not known"),
        (["--megabytes", "0"], "leave a split without text"),
    ],
)
def test_a_wrong_option_is_one_sentence(words, sentence, tmp_path):
    status, text = asked("--steps", "1", "--out", tmp_path / "out", *words)
    assert status == 2 and sentence in text
    assert text.startswith("refnum: ") and text.count("\n") == 1
    assert not list(tmp_path.glob("out/*.*"))
