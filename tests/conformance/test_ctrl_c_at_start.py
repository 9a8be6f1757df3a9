"""Ctrl-C in a terminal reaches every process; one that is still importing must not answer with a traceback."""

import os
import socket
import subprocess
import sys

import pytest

from refnum.conformance.subjects.isolation.channel import Channel
from refnum.conformance.subjects.isolation.wire import send

PROGRAM = """
import os, signal, sys, time
from pathlib import Path

here = Path(__file__).parent
if __name__ == "__mp_main__":  # a process that starts, where its imports are
    (here / str(os.getpid())).touch()
    time.sleep(1.0)

def work(given):
    os.write(1, b"worked\\n")

def interrupt():
    while len(found := list(here.glob("[0-9]*"))) < 2:
        time.sleep(0.01)
    for one in found:
        os.kill(int(one.name), signal.SIGINT)

if __name__ == "__main__":
    {body}
"""
SHARES = """from refnum.conformance.commands.check.shares import Request, processes
    request = Request(("model",), None, ("decode_e2m1",), frozenset(), ("HOPPER",), (), "smoke", 0, 0, 5.0)
    with processes(request, 2) as started:
        interrupt()
        print(started.executor.submit(os.getpid).result() > 1)
    print(signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set())"""
HURRY = """import time
    from refnum.conformance.commands.check.shares import Request, processes
    request, begun = Request(("model",), None, ("decode_e2m1",), frozenset(), ("HOPPER",), (), "smoke", 0, 0, 5.0), []
    try:
        with processes(request, 2):
            interrupt()
            begun.append(time.monotonic())
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        print(time.monotonic() - begun[0] < 0.6)"""
RANKS = """import threading
    from refnum.training.spawn import run_ranks
    threading.Thread(target=interrupt).start()
    run_ranks(work, None, 2, "cpu", 30.0)
    print(signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set())"""


@pytest.mark.parametrize(
    ("body", "said"), [(SHARES, ["True"] * 2), (HURRY, ["True"]), (RANKS, ["worked"] * 2 + ["True"])]
)
def test_ctrl_c_while_processes_start_leaves_no_traceback(tmp_path, body, said):
    if "training" in body:
        pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(PROGRAM.format(body=body))
    path = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (ended.stderr, sorted(ended.stdout.split())) == ("", sorted(said))


def test_the_process_of_a_subject_whose_parent_has_ended_says_nothing(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.5)\ndef encode_e2m1(x): return x\n")
    ours, theirs = socket.socketpair()
    words = [sys.executable, "-m", "refnum.conformance.subjects.isolation.child", str(theirs.fileno())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True
    ) as process:
        theirs.close()
        send(Channel(ours), {"load": "slow.py"})
        ours.close()
        assert process.stderr.read() == ""
