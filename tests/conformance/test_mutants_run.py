"""A bounded sample of mutants of the host build: each is told apart, and the tellings are right."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from refnum.conformance.commands.mutate import command
from refnum.conformance.commands.mutate.corpus import wrong
from refnum.conformance.commands.mutate.enumerate import enumerated
from refnum.conformance.commands.mutate.forked import LATE, call_forked
from refnum.conformance.commands.mutate.library import Library, ask
from refnum.conformance.commands.mutate.operators import Mutant
from refnum.conformance.commands.mutate.run import judge
from refnum.conformance.commands.mutate.score import by_operator, document
from refnum.conformance.commands.mutate.verdict import (
    ENUMERATED,
    EQUIVALENT,
    KILLED,
    OUTSIDE,
    REFUSED,
    SURVIVED,
    Verdict,
)
from refnum.conformance.subjects.subject import Subject
from refnum.errors import ArgumentError, UnsupportedError

mutants_tools = pytest.importorskip("mutants_tools")
host = pytest.importorskip("refnum.gpu.host")

if not host.available()[0]:
    pytest.skip(host.available()[1], allow_module_level=True)

QUICK = ("fp8_to_mxfp4", "fp8_to_payload", "decode_e4m3", "encode_e2m1")
UNITS = ("recast.cpp", "casts.cpp", "blocks.cpp", "instructions.cpp")
"""Units of these operations, of one that uses their headers and has the same code, and one of no operation asked."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """A host workshop whose questions are those of a few quick operations, and in whose units alone headers change."""
    opened = Library.open(mutants_tools.sources_of(*UNITS), tmp_path_factory.mktemp("library"))
    every = opened.questions
    opened.questions = lambda name: every(name) if name in QUICK else ()  # type: ignore[method-assign]
    yield opened


def change(library: Library, file: str, old: str, new: str) -> Mutant:
    text = library.text(file)
    assert text.count(old) == 1
    return Mutant(file, 1, "test", 1, text.index(old), text.index(old) + len(old), old, new)


LIFT = "    const int32_t lift = amax < 8"
CHANGES = {
    "killed": ("fp8_to_mxfp4.cuh", "0x07070707u; }", "0x08080808u; }", KILLED),
    "the same code": ("fp8_to_mxfp4.cuh", LIFT, "    int idle = 0;\n    idle += 1;\n" + LIFT, EQUIVALENT),
    "survived": ("e4m3.cuh", "if (magnitude < 8) {", "if (magnitude <= 8) {", SURVIVED),
    "outside": ("column_halves.cuh", "// Column bytes 0..3 and 4..7.", "// Other words.", OUTSIDE),
    "does not compile": ("fp8_to_mxfp4.cuh", "return x + (x >> 4", "return y + (x >> 4", REFUSED),
    "crashed": ("fp8_to_mxfp4.cuh", LIFT, "    __builtin_trap();\n" + LIFT, KILLED),
}


@pytest.mark.parametrize("name", CHANGES)
def test_mutants_are_told_apart(library: Library, name: str) -> None:
    file, old, new, status = CHANGES[name]
    verdict = judge(library, change(library, file, old, new))
    assert verdict.status == status, verdict
    if name == "killed":
        assert verdict.operation in QUICK and verdict.case and "fp8_to_mxfp4" in verdict.changed
        assert "dequantize_mxfp4" not in verdict.changed
    if name == "crashed":
        assert verdict.how == "its process died"


def test_one_that_does_not_come_back_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refnum.conformance.commands.mutate.forked.PATIENCE", 60)  # this host may be crowded

    def never() -> Any:
        while True:
            pass

    start = time.process_time()
    assert call_forked(never, 1) == {"status": KILLED, "how": LATE} and time.process_time() - start < 1
    assert call_forked(lambda: os.kill(os.getpid(), signal.SIGSEGV), 5) == {"status": KILLED, "how": "its process died"}
    assert call_forked(lambda: None, 5) is None


def test_one_that_is_late_without_its_cpu_time_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowded host, or one that kills what takes memory, says nothing about a mutant."""
    monkeypatch.setattr("refnum.conformance.commands.mutate.forked.PATIENCE", 0.5)
    late = call_forked(lambda: time.sleep(60), 1)
    assert late["status"] == SURVIVED and late["how"].startswith("not judged: no answer within 0.5 s, in which it had")
    shot = call_forked(lambda: os.kill(os.getpid(), signal.SIGKILL), 5)
    assert shot["status"] == SURVIVED and shot["how"].startswith("not judged: something killed its process")


def test_one_that_ignores_the_end_of_its_cpu_time_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refnum.conformance.commands.mutate.forked.PATIENCE", 60)

    def deaf() -> None:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        while True:
            pass

    assert call_forked(deaf, 1) == {"status": KILLED, "how": LATE}


def test_one_that_wants_more_memory_than_it_may_take_is_killed_by_the_limit() -> None:
    def take(count: int) -> int:
        return len(bytearray(count))

    assert call_forked(lambda: take(1 << 28), 20, 1 << 29) == 1 << 28
    assert call_forked(lambda: take(1 << 30), 20, 1 << 29) == {
        "status": KILLED, "how": "by limit of memory: more than 0.5 GiB"
    }  # fmt: skip
    assert call_forked(lambda: take(1 << 30), 20) == 1 << 30


def test_one_that_raises_is_killed_unless_what_judges_is_broken() -> None:
    assert (
        call_forked(lambda: 1 // 0, 5)["status"] == KILLED
        and "ZeroDivisionError" in call_forked(lambda: 1 // 0, 5)["how"]
    )
    broken = call_forked(lambda: __import__("no_such_module"), 5)
    assert broken["status"] == SURVIVED and broken["how"].startswith("not judged: ModuleNotFoundError")


def test_what_an_operation_does_not_have_kills_no_mutant(library: Library) -> None:
    def refuses(error: type[Exception]) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            raise error("the kernels do not have it")

        return call

    question = library.questions("decode_e4m3")[0]
    assert wrong({"decode_e4m3": refuses(UnsupportedError)}, question) == ""
    assert wrong({"decode_e4m3": refuses(ArgumentError)}, question).startswith("ArgumentError")


def test_the_sources_as_they_are_answer_everything(library: Library, tmp_path: Path) -> None:
    built = library.sources.build({}, tmp_path, library.folder)
    assert built.code == library.code
    questions = [question for name in QUICK for question in library.questions(name)]
    assert len(questions) > 300 and ask(built.operations, questions) == {"vectors": 0, "only": ""}


def test_what_does_not_compile_is_not_counted() -> None:
    one = Verdict(Mutant("a.cuh", 1, "mask", 1, 0, 1, "x", "y"), KILLED)
    many = [one, replace(one, status=REFUSED), replace(one, status=OUTSIDE), replace(one, status=EQUIVALENT)]
    counts = by_operator(many)
    assert counts["mask"].judged == 1 and counts["all"].score == 1.0
    assert by_operator([*many, replace(one, status=SURVIVED)])["all"].score == 0.5
    assert document(many, subject="host")["operators"]["all"][REFUSED] == 1


def test_a_subject_that_dies_when_it_is_asked_whether_it_is_there_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = Subject("dead", {}, mutable=object, available=lambda: os._exit(3))
    monkeypatch.setattr(command, "installed", lambda: ([dead], []))
    with pytest.raises(ArgumentError, match="dead cannot be built from changed sources: its process died"):
        command._sources("dead")


def test_survivors_are_settled_by_every_point_of_their_domains(library: Library, tmp_path: Path) -> None:
    """One that is right at every point is proved; one that the first questions missed is killed."""
    right = change(library, *CHANGES["survived"][:3])
    wrong = replace(right, n=2, new="if (magnitude < 7) {")
    verdicts = [Verdict(one, SURVIVED, changed=("decode_e4m3",)) for one in (right, wrong)]
    verdicts.append(Verdict(replace(right, n=3), KILLED))
    found = enumerated(library, verdicts, tmp_path, 1, 600)
    assert [one.status for one in found] == [ENUMERATED, KILLED, KILLED]
    assert found[0].how.startswith("right in ") and found[1].operation == "decode_e4m3" and found[1].case
    assert (
        enumerated(library, verdicts[:1], tmp_path / "late", 1, 0)[0].how == "not every point was asked of decode_e4m3"
    )
