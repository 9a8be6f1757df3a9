"""A subject that ends the process of the run: whatever the command and wherever the subject lives, never exit 0."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_tools import apart, command

from refnum.conformance.commands.fuzz.context import WorkerContext
from refnum.conformance.commands.fuzz.spec import make_spec
from refnum.conformance.subjects.calls import exits

ROOT = Path(__file__).parents[2]
KERNEL = """
import ctypes, os, signal, sys
from os import _exit
import refnum

def decode_e2m1(codes, dtype=None):
    {body}
    return refnum.decode_e2m1(codes) if dtype is None else refnum.decode_e2m1(codes, dtype)

{more}
"""
ENDINGS = {
    "os._exit": "os._exit(0)",
    "the builtin": "_exit(0)",
    "C": "ctypes.CDLL(None)._exit(0)",
    "C's exit": "ctypes.CDLL(None).exit(0)",
    "SystemExit": "sys.exit(0)",
    "a thread": "import threading; t = threading.Thread(target=os._exit, args=(0,)); t.start(); t.join()",
}


def written(folder, body, more=""):
    path = folder / "kernel.py"
    path.write_text(KERNEL.format(body=body, more=more))
    return path


def judged(folder, *options):
    words = ("check", "-s", folder / "kernel.py", "-o", "decode_e2m1", "--level", "smoke", "--examples", 1)
    return command(*words, *options, folder=folder)


@pytest.mark.parametrize("how", ["os._exit", "C", "a thread"])
def test_check_in_the_run_s_own_process(tmp_path, how):
    written(tmp_path, ENDINGS[how])
    ended = judged(tmp_path, "--no-isolate")
    assert ended.returncode == 1, ended.stderr
    assert "vanished" in ended.stderr or "FAULT" in ended.stdout


def test_check_in_a_process_of_its_own(tmp_path):
    written(tmp_path, ENDINGS["the builtin"])
    ended = judged(tmp_path)
    assert ended.returncode == 1 and "exit status 0" in ended.stdout


@pytest.mark.parametrize(("part", "how"), [("available", "SystemExit"), ("supports", "the builtin")])
def test_what_a_subject_is_asked_before_its_first_call(tmp_path, part, how):
    more = f"def subjects():\n    return [dict(name='s', operations=dict(decode_e2m1=decode_e2m1), {part}=ask)]\n"
    written(tmp_path, "pass", f"def ask(*_):\n    {ENDINGS[how]}\n\n{more}")
    ended = judged(tmp_path, "--no-isolate")
    assert ended.returncode not in (0, None) and "Traceback" not in ended.stderr


def test_a_subject_that_stops_its_own_process_is_no_long_wait(tmp_path):
    written(tmp_path, "os.kill(os.getpid(), signal.SIGSTOP)")
    start = time.monotonic()
    ended = judged(tmp_path)
    assert ended.returncode == 1 and "stopped itself" in ended.stdout and time.monotonic() - start < 50


def test_a_run_that_its_subject_stops_goes_on(tmp_path):
    written(tmp_path, "not stops or os.kill(os.getpid(), stops.pop())", "stops = [signal.SIGSTOP]")
    assert judged(tmp_path, "--no-isolate").returncode == 0  # its answers are right


def test_a_file_that_stops_its_process_while_it_is_loaded(tmp_path):
    written(tmp_path, "pass", "os.kill(os.getpid(), signal.SIGSTOP)")
    start = time.monotonic()
    ended = judged(tmp_path)
    assert ended.returncode == 2 and "stopped itself" in ended.stderr and time.monotonic() - start < 30


@pytest.mark.parametrize("how", ["C's exit"])
def test_a_campaign(tmp_path, how):
    written(tmp_path, ENDINGS[how])
    words = ("fuzz", "run", tmp_path / "camp", "-s", tmp_path / "kernel.py", "-o", "decode_e2m1", "--cases", 5)
    ended = command(*words, "--workers", 1, "--shard", 5, "--elements", 256, "--timeout", 1, folder=tmp_path)
    assert ended.returncode == 1, ended.stderr
    assert "exit status 0" in ended.stdout


@pytest.mark.parametrize("how", ["the builtin"])
def test_a_campaign_whose_subject_ends_when_it_is_imported(tmp_path, how):
    written(tmp_path, "pass", ENDINGS[how])
    ended = command("fuzz", "run", tmp_path / "camp", "-s", tmp_path / "kernel.py", "--cases", 5, folder=tmp_path)
    assert (ended.returncode == 2 and "cannot be loaded" in ended.stderr) or "failed to import" in ended.stderr


def test_a_campaign_never_imports_a_file_where_it_compares(tmp_path):
    told = tmp_path / "imported"
    path = written(tmp_path, "pass", f"open({str(told)!r}, 'a').write(f'{{os.getpid()}}\\n')")
    spec = make_spec([str(path)], ["decode_e2m1"])
    context = WorkerContext(spec)
    subject = context.subject(spec.targets[0].name)
    assert subject.remote is not None
    assert str(os.getpid()) not in told.read_text().split()


PYTEST = """
import os, sys
from os import _exit
import pytest
import refnum

@pytest.mark.conforms("decode_e2m1")
@pytest.mark.parametrize("end", [os._exit, _exit, sys.exit])
def test_kernel(end):
    def decode_e2m1(codes, dtype=None):
        end(0)
    return decode_e2m1
"""


def test_pytest(tmp_path):
    (tmp_path / "test_it.py").write_text(PYTEST)
    words = ["-p", "no:refnum", "-p", "refnum.conformance.plugin", "-q", "-p", "no:cacheprovider"]
    ended = apart("pytest", *words, "--refnum-level=smoke", folder=tmp_path)
    assert ended.returncode == 1 and "3 failed" in ended.stdout, ended.stdout


# --- the supervisor ---------------------------------------------------------------------------------------------------

SUPERVISED = """
import os, signal, sys, time
from refnum.conformance.subjects.isolation.supervisor import supervised

def work():
    {body}

supervised(work)
"""


def ended_by(body, **more):
    command = [sys.executable, "-c", SUPERVISED.format(body=body)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("pass", 0),
        ("sys.exit(0)", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('words')", 1),
        ("raise ValueError", 1),
        ("os._exit(0)", 1),
        ("os._exit(7)", 7),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGSTOP)", 0),
        ("import atexit; atexit.register(os._exit, 0); sys.exit(1)", 1),
        ("os.closerange(3, 99)", 1),
        ("os.fork() or time.sleep(3)", 0),
    ],
)
def test_the_status_of_supervised_work(body, status):
    process = ended_by(body)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == status, said


def test_a_signal_reaches_the_work_and_the_work_ends_with_its_supervisor():
    body = "print(os.getpid(), flush=True); time.sleep(60)"
    process = ended_by(body)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    process = ended_by(body)
    number = int(process.stdout.readline())
    process.kill()
    process.wait(10)
    for _ in range(100):
        if not Path(f"/proc/{number}").exists() or "Z" in Path(f"/proc/{number}/stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    pytest.fail("the work outlived its supervisor")


def test_only_a_judged_call_is_kept_from_ending_its_process():
    with exits.caught(), pytest.raises(exits.ProcessExit):
        os._exit(0)
    child = os.fork()
    if not child:
        os._exit(5)
    assert os.waitpid(child, 0)[1] >> 8 == 5
    with exits.caught():
        child = os.fork()
        if not child:
            os._exit(6)
    assert os.waitpid(child, 0)[1] >> 8 == 6
