"""Hostile subjects: whatever they do, the run goes on, and none of them gets a pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from refnum.conformance.cases.case import Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import select
from refnum.conformance.commands.check.engine import MOST_PROBED
from refnum.conformance.commands.check.plan import Plan
from refnum.conformance.commands.check.run import run
from refnum.conformance.reports.report import Report
from refnum.conformance.subjects.calls.call import call
from refnum.conformance.subjects.calls.float_mode import float_mode
from refnum.conformance.subjects.choose import choose
from refnum.conformance.subjects.loading.discover import from_file
from refnum.errors import FileError

RIGHT = "result = refnum.quantize_mxfp4(x, 'OCP')"
ZEROS = "np.zeros((x.shape[0], x.shape[1] // 2), 'u1'), np.zeros((x.shape[0], x.shape[1] // 32), 'u1')"
HEAD = "import ctypes, os, signal, sys, threading, time\nimport numpy as np\nimport refnum\n"

# name -> (what it does around a right answer, the outcome it must get, words of it)
HOSTILE = {
    "raises": ("raise ValueError('no')", "fault", "ValueError: no"),
    "raises_a_base_exception": ("raise GeneratorExit('no')", "fault", "GeneratorExit"),
    "exits": ("sys.exit(0)", "fault", "SystemExit"),
    "exits_for_good": ("os._exit(0)", "fault", "ProcessExit(os._exit(0))"),
    "exits_from_c": ("ctypes.CDLL(None)._exit(0)", "fault", "exit status 0"),
    "stops": ("os.kill(os.getpid(), signal.SIGSTOP)", "timeout", "killed"),
    "interrupts": ("raise KeyboardInterrupt", "fault", "KeyboardInterrupt"),
    "kills_itself": ("os.kill(os.getpid(), signal.SIGKILL)", "fault", "SIGKILL"),
    "segfaults": ("ctypes.string_at(8)", "fault", "SIGSEGV"),
    "never_returns": ("while True: time.sleep(0.1)", "timeout", "no answer within"),
    "swallows_its_timeout": (
        "\n    while True:\n        try:\n            time.sleep(9)\n        except BaseException:\n            pass",
        "timeout",
        "killed",
    ),
    "never_returns_from_c": ("ctypes.PyDLL(None).pause()", "timeout", ""),
    "forks": ("os.fork(); " + RIGHT, "pass", ""),
    "forks_and_answers_in_the_child": (
        "\n    if os.fork(): raise ValueError('no')\n    " + RIGHT, "fault", "ValueError",
    ),
    "mutates_its_input": (RIGHT + "; x[0, 0] += 1", "mismatch", "input-mutated"),
    "returns_a_view": (
        f"a, b = {ZEROS}; result = (x.view(np.uint8)[:, : a.shape[1]], b)", "mismatch", "output-aliases-input",
    ),
    "wrong_dtype": (RIGHT + "; result = (result[0].astype(np.int64), result[1])", "malformed", "wrong-shape-or-dtype"),
    "wrong_shape": (RIGHT + "; result = (result[0].reshape(-1), result[1])", "malformed", "wrong-shape-or-dtype"),
    "too_few": (RIGHT + "; result = result[0]", "malformed", "wrong-shape-or-dtype"),
    "nothing": ("result = None", "malformed", "wrong-shape-or-dtype"),
    "no_array": ("result = ('a', 'b')", "fault", "a result is str"),
    "objects": (RIGHT + "; result = (result[0].astype(object), result[1])", "fault", "object"),
    "lying_subclass": (
        "\n    class Lies(np.ndarray):\n        def __eq__(self, other): return np.ones(self.shape, bool)\n"
        f"    a, b = {ZEROS}; result = (a.view(Lies), b)",
        "mismatch",
        "",
    ),
    "flushes": ("torch.set_flush_denormal(True); " + RIGHT, "mismatch", "float-mode-changed"),
    "rounds_up": ("ctypes.CDLL('libm.so.6').fesetround(0x800); " + RIGHT, "mismatch", "float-mode-changed"),
    "seeds_what_others_draw_from": ("np.random.seed(0); " + RIGHT, "mismatch", "process-state-changed"),
    "prints": ("os.write(1, b'{}' * 99); print('verified'); " + RIGHT, "pass", ""),
    "writes_before_its_input": (
        "ctypes.memset(x.ctypes.data - 4, 0, 4); " + RIGHT, "mismatch", "guard-overwritten",
    ),
    "writes_after_its_input": (
        "ctypes.memset(x.ctypes.data + x.nbytes, 0, 4); " + RIGHT, "mismatch", "guard-overwritten",
    ),
    "closes_every_file": ("os.closerange(0, 4096); " + RIGHT, "fault", "its process"),
    "answers_for_the_harness": (
        "\n    for fd in range(3, 4096):\n        try: os.write(fd, b'\\0\\0\\0\\5hello')\n"
        "        except OSError: pass\n    " + RIGHT,
        "fault",
        "no message",
    ),
    "stops_in_the_middle_of_its_answer": (
        "os.write(int(sys.argv[1]), b'refnum\\xff\\x01\\x63' + bytes(7) + b'{'); os.kill(os.getpid(), signal.SIGSTOP)",
        "timeout",
        "killed",
    ),
    "holds_the_interpreter_after_its_answer": (
        "\n    def later():\n        time.sleep(0.01)\n        ctypes.PyDLL(None).pause()\n"
        "    threading.Thread(target=later, daemon=True).start()\n    " + RIGHT,
        "timeout",
        "killed",
    ),
    "tampers_with_the_judge": (
        "import refnum.conformance.verdicts.compare as c; c.equal_at = lambda *_: True; "
        "np.array_equal = lambda *_, **__: True; "
        f"result = {ZEROS}",
        "mismatch",
        "",
    ),
    "stops_the_clock": ("signal.signal(signal.SIGALRM, signal.SIG_IGN); time.sleep(99)", "timeout", "killed"),
}  # fmt: skip


def cases(operation, profile, params):
    yield next(case for case in corner_cases(operation, profile, params) if 0 < case.elements <= MOST_PROBED)


def judged(subjects):
    plan = Plan(subjects, select(["quantize_mxfp4"]), ["OCP"], "smoke", 0, 0, 0.3, shown=0, save=False, cases=cases)
    (row,) = run(plan, Report({"level": "smoke"})).results
    return row


def words_of(row):
    return " ".join([row["words"], *row["findings"]])


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr("refnum.conformance.subjects.isolation.parent.GRACE", 0.5)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_subject_gets_its_outcome_and_the_run_goes_on(tmp_path, name):
    body, outcome, words = HOSTILE[name]
    if name == "flushes":
        pytest.importorskip("torch")
    path = tmp_path / "hostile.py"
    head = HEAD + "import torch\n" if name == "flushes" else HEAD
    path.write_text(f"{head}\ndef quantize_mxfp4(x):\n    {body}\n    return result\n")
    mode, pid = float_mode(), os.getpid()
    row = judged(choose([str(path)], None).usable)
    assert row["outcome"] == outcome, row["words"]
    assert words in words_of(row), row["words"]
    assert float_mode() == mode and os.getpid() == pid


@pytest.mark.parametrize("name", ["exits", "rounds_up", "forks_and_answers_in_the_child", "writes_after_its_input"])
def test_without_a_process_of_its_own_it_gets_no_pass_either(tmp_path, name):
    body, outcome, _ = HOSTILE[name]
    path = tmp_path / "hostile.py"
    path.write_text(f"{HEAD}\ndef quantize_mxfp4(x):\n    {body}\n    return result\n")
    mode = float_mode()
    assert judged(from_file(str(path)))["outcome"] == outcome
    assert float_mode() == mode


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize(
    ("flag", "outcome", "words"),
    [
        ("HANGS", "timeout", "killed"),
        ("SEGFAULTS", "fault", "SIGSEGV"),
        ("EXITS", "fault", "exit status 0"),
        ("WRITES_AFTER", "fault", "after the output packed"),
        ("WRITES_BEFORE_INPUT", "mismatch", "guard-overwritten"),
    ],
)
def test_a_hostile_library(tmp_path, flag, outcome, words):
    source = Path(__file__).parent / "kernels" / "hostile.c"
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", f"-D{flag}", source, "-o", tmp_path / "libhostile.so"], check=True
    )
    (tmp_path / "libhostile.toml").write_text(
        'profiles = ["OCP"]\n[operations.quantize_mxfp4]\nsymbol = "quantize"\n'
        'arguments = ["x", "rows(x)", "columns(x)", "packed", "scales"]\n'
    )
    row = judged(choose([str(tmp_path / "libhostile.so")], None).usable)
    assert row["outcome"] == outcome and words in words_of(row), row["words"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import sys; sys.exit(0)", "SystemExit"),
        ("import os; os._exit(0)", "exit status 0"),
        ("import ctypes; ctypes.string_at(8)", "SIGSEGV"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_file_that_dies_when_it_is_loaded_is_named(tmp_path, body, words):
    path = tmp_path / "deadly.py"
    path.write_text(body)
    with pytest.raises(FileError, match=words):
        choose([str(path)], None)


def test_the_command_line_is_not_ended_by_a_subject(tmp_path):
    path = tmp_path / "leaves.py"
    path.write_text("import os\n\ndef encode_e2m1(x):\n    os.write(1, b'x' * 99)\n    os._exit(0)\n")
    command = [sys.executable, "-m", "refnum.conformance.cli", "check", "-s", str(path), "--level", "smoke", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.startswith("{") and '"fault"' in done.stdout, done.stderr


def test_the_results_are_those_of_the_same_file_in_this_process(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        HEAD + "\ndef quantize_mxfp4(x, profile, out=None):\n    result = refnum.quantize_mxfp4(x, profile)\n"
        "    if out is None: return result\n    for o, r in zip(out, result): o[...] = r\n    return out\n"
    )
    here, there = (judged(choose([str(path)], isolate).usable) for isolate in (False, None))
    for row in (here, there):
        row.pop("seconds")
    assert there["probes"].pop("inputs at the end of memory") == ""  # it may end the process: asked in its own alone
    assert here == there and here["outcome"] == "pass" and "poisoned out with guard zones" in here["probes"]


def test_a_breach_of_a_second_call_is_found_in_its_process(tmp_path):
    path = tmp_path / "cached.py"
    path.write_text(
        HEAD + "KEPT = {}\n\ndef quantize_mxfp4(x):\n    key = x.ctypes.data\n"
        "    if key not in KEPT: KEPT[key] = (x, refnum.quantize_mxfp4(x, 'OCP'))\n    return KEPT[key][1]\n"
    )
    row = judged(choose([str(path)], None).usable)
    assert row["outcome"] == "mismatch" and {"stale-output", "earlier-result-changed"} & set(row["findings"])


@pytest.mark.parametrize(
    "where",
    ["refnum.conformance.subjects.isolation.parent.receive", "refnum.conformance.subjects.isolation.parent.send"],
)
def test_want_of_memory_of_the_harness_is_no_verdict(monkeypatch, tmp_path, where):
    def exhausted(*_, **__):
        raise MemoryError

    path = tmp_path / "right.py"
    path.write_text("import refnum\n\ndef quantize_mxfp4(x, profile):\n    return refnum.quantize_mxfp4(x, profile)\n")
    (subject,) = choose([f"{path}:quantize_mxfp4"], isolate=True).usable
    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.ones((1, 32), np.float32)})
    assert call(subject, case).outcome is Outcome.PASS
    with monkeypatch.context() as short:
        short.setattr(where, exhausted)
        called = call(subject, case)
        assert called.outcome is Outcome.UNSUPPORTED and called.no_room
    assert call(subject, case).outcome is Outcome.PASS


def test_want_of_memory_in_its_process_is_told_from_words_about_it(tmp_path):
    path = tmp_path / "short.py"
    path.write_text(
        "from refnum.conformance.subjects.calls.call import NO_ROOM\n\ndef quantize_mxfp4(x):\n"
        "    raise (MemoryError if len(x) > 8192 else NotImplementedError)(NO_ROOM)\n"
    )
    (subject,) = choose([f"{path}:quantize_mxfp4"], isolate=True).usable
    for rows in (8193, 1):
        case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.ones((rows, 32), np.float32)})
        called = call(subject, case)
        assert called.outcome is Outcome.UNSUPPORTED and called.no_room is (rows == 8193)
