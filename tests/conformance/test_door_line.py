"""The line to a subject's process: whole messages by a deadline in both directions, and the end of all it started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from refnum.conformance.subjects.choose import choose
from refnum.conformance.subjects.isolation import die_with_parent, process_tree
from refnum.conformance.subjects.isolation.channel import Channel, LateError
from refnum.conformance.subjects.isolation.parent import IsolatedProcess
from refnum.conformance.subjects.isolation.wire import MessageError, receive, send
from refnum.conformance.subjects.loading.executable import _Process
from refnum.conformance.subjects.subject import Broken
from refnum.errors import ArgumentError, FileError

BEGIN = b"refnum\xff\x01"


@pytest.fixture
def ends():
    one, other = (Channel(end) for end in socket.socketpair())
    yield one, other
    one.close()
    other.close()


def message(text, length=None):
    return BEGIN + (len(text) if length is None else length).to_bytes(8, "little") + text


def specs(*arrays):
    return message(json.dumps({"head": {}, "arrays": arrays}).encode())


def soon(seconds=0.1):
    return time.monotonic() + seconds


def test_what_is_sent_is_received(ends):
    one, other = ends
    arrays = [np.zeros((2, 0), np.float32), np.array(3, np.uint8), np.arange(6, dtype="u2").reshape(2, 3).T]
    send(one, {"a": 1}, arrays, soon())
    head, got = receive(other, soon())
    assert head == {"a": 1} and [(array.dtype, array.shape) for array in got] == [
        (array.dtype, array.shape) for array in arrays
    ]
    assert all(np.array_equal(a, b) for a, b in zip(got, arrays, strict=True))


@pytest.mark.parametrize(
    "broken",
    [
        bytes(16),
        b"\xff" * 40,
        b"\xff" * 8 + (9).to_bytes(8, "little"),  # said at once, though the length that it names may still come
        message(b"", 1 << 40),
        message(b"[]"),
        message(b"\xff\xfe"),
        message(b"[" * 99999),
        specs([]),
        specs(["uint8", [1 << 34]]),
        specs(["uint8", [-1]]),
        specs(["uint8", [True]]),
        specs(["uint8", "1"]),
        specs(["uint8", [0, 1 << 70]]),
        specs(["object", [1]]),
        specs(["finfo", [1]]),
        specs([">f4", [1]]),
        specs(["U4", [1]]),
        specs([[["a", "u1"]], [1]]),
    ],
)
def test_what_is_no_message_is_said_so(ends, broken):
    one, other = ends
    one.send(broken, soon())
    with pytest.raises(MessageError, match="no message"):
        receive(other, soon())


@pytest.mark.parametrize("array", [np.array([None]), np.array(["a"]), np.zeros(1, ">f4")])
def test_what_is_no_array_of_numbers_is_not_sent(ends, array):
    with pytest.raises(TypeError, match="a result is an array of"):
        send(ends[0], {}, [array], soon())
    send(ends[0], {"after": 1}, [], soon())
    assert receive(ends[1], soon())[0] == {"after": 1}


def test_a_message_that_stops_in_the_middle_is_late_in_both_directions(ends):
    one, other = ends
    start = time.monotonic()
    for part in (b"", BEGIN, message(b"{", 9), specs(["uint8", [9]]) + b"1234"):
        other.send(part)
        with pytest.raises(LateError):
            receive(one, soon(0.03))
    with pytest.raises(LateError):
        send(one, {}, [np.zeros(1 << 22, np.uint8)], soon(0.03))
    assert time.monotonic() - start < 2


def test_a_line_whose_process_has_ended_is_at_its_end_though_a_child_holds_it():
    one, other = socket.socketpair()
    line, held = Channel(one, lambda: True), Channel(other)
    send(held, {"last": 1})
    assert receive(line, soon(9))[0] == {"last": 1}
    with pytest.raises(EOFError):
        receive(line, soon(9))
    line.close()
    held.close()


def test_want_of_memory_for_a_message_leaves_the_next_one_whole(ends, monkeypatch):
    one, other = ends
    send(one, {"first": 1}, [np.ones(9)])
    send(one, {"second": 1})
    with monkeypatch.context() as short:
        short.setattr(
            "refnum.conformance.subjects.isolation.wire.np.empty", lambda *_: (_ for _ in ()).throw(MemoryError)
        )
        with pytest.raises(MemoryError):
            receive(other, soon())
    assert receive(other, soon())[0] == {"second": 1}


def alive(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(number):
    until = soon(5)
    while alive(number) and time.monotonic() < until:
        time.sleep(0.01)
    return not alive(number)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="sessions of their own are found in /proc")
def test_whoever_a_process_has_started_ends_with_it():
    code = (
        "import os, signal, time\nif not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
        "    print(os.getpid(), flush=True)\n    time.sleep(60)\ntime.sleep(60)"
    )
    mark, environment = process_tree.marked()
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code], env=environment, stdout=subprocess.PIPE, start_new_session=True
    )
    orphan = int(process.stdout.readline())
    assert os.getsid(orphan) != os.getsid(process.pid) and alive(orphan)
    os.kill(process.pid, signal.SIGSTOP)
    process_tree.end(process, mark)
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL and gone(orphan)


def test_the_children_of_an_executable_end_with_it(tmp_path):
    path = tmp_path / "waits.sh"
    path.write_text(f"#!/bin/sh\nsleep 61 &\necho $! > {tmp_path}/child\nwait\n")
    path.chmod(0o755)
    process = _Process(path)
    process._started()
    until = soon(5)
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text().strip():
        assert time.monotonic() < until
        time.sleep(0.01)
    child = int((tmp_path / "child").read_text())
    assert alive(child)
    process.stop()
    assert gone(child)


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="a process is told to end with its parent on Linux only")


def script(path, lines):
    path.write_text("#!/bin/sh\n" + lines)
    path.chmod(0o755)
    return path


@LINUX
def test_an_executable_ends_with_the_process_that_asks_it_however_that_ends(tmp_path):
    path = script(tmp_path / "sleeps.sh", "exec sleep 61\n")
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from refnum.conformance.subjects.loading.executable import _Process\n"
        "one = _Process(Path(sys.argv[1]))\nprint(one._started().pid, flush=True)\ntime.sleep(60)"
    )
    asks = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    number = int(asks.stdout.readline())
    assert alive(number)
    asks.kill()
    asks.wait()
    asks.stdout.close()
    assert gone(number)


def ignored_here():
    """The signals that this process ignores, as a mask: a child inherits them, Python's own two are restored."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))


def mask(*signals):
    return sum(1 << number - 1 for number in signals)


def test_an_executable_is_started_as_if_by_itself(tmp_path, monkeypatch):
    """Its own name, two pipes, no signal ignored that this process does not inherit, and its environment."""
    path = script(
        tmp_path / "says.sh",
        f"echo $0 $# $ASKED $REFNUM_HOUSEHOLD\nls -l /proc/$$/fd > {tmp_path}/files\n"
        "grep SigIgn /proc/$$/status || echo none\necho end\n",
    )
    monkeypatch.setenv("ASKED", "by refnum")
    process = _Process(path)
    name, ignored = process.ask("")
    process.stop()
    assert name == f"{path} 0 by refnum {process.mark}"
    if sys.platform == "linux":
        assert int(ignored.split()[1], 16) == ignored_here() & ~mask(signal.SIGPIPE, signal.SIGXFSZ)
        assert (tmp_path / "files").read_text().count("pipe:") == 2


def test_an_executable_that_cannot_be_executed_is_named(tmp_path):
    path = tmp_path / "text"
    path.write_text("no program\n")
    path.chmod(0o755)
    with pytest.raises(OSError, match=r"Exec format error.*text"):
        _Process(path)._started()


@LINUX
def test_nothing_is_executed_for_a_parent_that_has_ended(tmp_path):
    path = script(tmp_path / "touches.sh", f"touch {tmp_path}/ran\n")
    done = subprocess.run(
        [sys.executable, "-I", "-S", die_with_parent.__file__, "1", "2", str(path)], stderr=subprocess.PIPE
    )
    assert done.returncode != 0 and not (tmp_path / "ran").exists() and b"Traceback" not in done.stderr


FORGED = "import os, sys\nos.write(int(sys.argv[1]), {})\ndef quantize_mxfp4(x): ...\n"


@pytest.mark.parametrize(
    ("body", "isolate", "error", "words"),
    [
        (FORGED.format(specs()), True, FileError, "describes no subjects"),
        (
            FORGED.format(b"\0\0\0\5hello world, hello"),
            True,
            FileError,
            "cannot be loaded: what came back is no message",
        ),
        ("def subjects(): 1 / 0\n", False, FileError, r"its subjects\(\) failed: ZeroDivisionError: division by zero"),
        ("def subjects(): return [3]\n", False, ArgumentError, "is int; give a dict"),
    ],
)
def test_a_file_that_says_nonsense_of_itself_cannot_be_judged(tmp_path, body, isolate, error, words):
    path = tmp_path / "nonsense.py"
    path.write_text(body)
    with pytest.raises(error, match=words):
        choose([str(path)], isolate)


def test_supports_that_fails_there_is_a_fault_of_its_own(tmp_path):
    path = tmp_path / "asks.py"
    path.write_text(
        "def q(x): ...\n\nSUBJECT = {'name': 's', 'operations': {'quantize_mxfp4': q}, "
        "'supports': lambda operation, profile, params: params['absent']}\n"
    )
    (subject,) = choose([f"{path}:SUBJECT"], None).usable
    refusal = subject.refuses("quantize_mxfp4", "OCP", {})
    assert isinstance(refusal, Broken) and refusal == "its `supports` failed: KeyError: 'absent'"


def test_a_question_that_was_not_answered_in_time_is_not_asked_again(monkeypatch):
    home, asked = IsolatedProcess("nobody"), []

    def late(head, _arrays, limit):
        from refnum.conformance.subjects.isolation.parent import _Lost

        asked.append(head)
        raise _Lost(f"no answer within {limit:g} s", hung=True)

    monkeypatch.setattr(home, "_up", lambda: None)
    monkeypatch.setattr(home, "_exchange", late)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="no answer within 120 s"):
            home.ask("k", "supports")
    assert len(asked) == 1


def test_one_who_is_silent_does_not_answer_for_the_others_of_its_file(monkeypatch):
    """By subject and question: one whose `supports` hangs says nothing of another, or of its own `trace`."""
    home = IsolatedProcess("nobody")

    def partly(head, _arrays, limit):
        from refnum.conformance.subjects.isolation.parent import _Lost

        if (head["subject"], head["ask"]) == ("hangs", "supports"):
            raise _Lost(f"no answer within {limit:g} s", hung=True)
        return {"said": ""}, []

    monkeypatch.setattr(home, "_up", lambda: None)
    monkeypatch.setattr(home, "_exchange", partly)
    with pytest.raises(RuntimeError, match="no answer"):
        home.ask("hangs", "supports")
    assert home.ask("innocent", "supports") == home.ask("hangs", "trace") == ""


def test_a_process_that_ends_while_it_is_looked_at_is_not_stopped():
    """The system has no answer about a process that has ended and is not waited for yet."""
    home = IsolatedProcess("nobody")
    home.process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, home.process.pid, os.WEXITED | os.WNOWAIT)
    assert home.process.returncode is None and not home._stopped() and not home._running()
