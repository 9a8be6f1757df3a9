"""A disk that is full and a reader that takes nothing: one sentence and exit status 2, which is no verdict."""

import os
import resource
import signal
import subprocess
import sys

import pytest

MAIN = [sys.executable, "-c", "from refnum.conformance.cli import app; app()"]


@pytest.mark.parametrize("words", ["--version", "operations", "docs c-abi"])
def test_an_output_that_takes_nothing_is_one_sentence_and_no_verdict(words):
    with open("/dev/full", "w") as full:
        ended = subprocess.run([*MAIN, *words.split()], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (2, "refnum: cannot write: No space left on device.\n")


def test_a_file_that_finds_no_room_is_one_sentence_and_leaves_nothing(tmp_path):
    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    words = ["vectors", "export", "--operation", "decode_e2m1", "--out", "v"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        [*MAIN, *words], cwd=tmp_path, env=environment, preexec_fn=little_room, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (2, "refnum: cannot write: File too large.\n")
    assert not list(tmp_path.iterdir())
