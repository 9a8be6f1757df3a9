"""Subjects in processes of their own: protection against crashes, hangs, exits, wild writes and replaced functions.

The judging process never runs a line of a subject's file. Results come back as bytes and are compared in the judging
process, so nothing that a subject does to its own memory, modules, float modes or signals changes a verdict or reaches
another subject. Messages of the child are checked and have a deadline, and all processes that it has started are killed
with it.

This is no sandbox. The child has the rights of the user: it can signal the judging process, write its files or fill the
disk. A run that is ended that way has no verdict, and no report that says verified. A subject that calls `refnum`
passes by construction: the judge sees bytes, not their origin. Judge subjects that you do not trust on another machine.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import math
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from refnum.errors import ArgumentError, FileError, RefnumError

from ...cases.case import Case
from ...cases.findings import NAMED_BY_CALLS, Finding
from ...cases.levels import Outcome
from ...cases.structure.cutting import Cutting, Part
from ..calls.call import NO_ROOM, Called, other_data
from ..calls.in_turn import CALLS_KEPT
from ..subject import KINDS, Broken, Subject, from_dict
from . import process_tree
from .channel import NEVER, Channel, LateError
from .wire import MessageError, case_head, cut_head, receive, send

START = 120.0
"""Seconds that a process may take to start: imports, and a CUDA context."""
GRACE = 3.0
"""Seconds beyond a call's limit before the process is killed: at most the limit itself, but at least LEAST."""
LEAST = 0.5
STOPPED = 1.0
"""Seconds after which a stopped process is killed: a process that leads its own session can only stop itself."""
_CALLS = {"replay_in_place": 3, "hold_results": CALLS_KEPT, "under_graph": 4, "call_at_once": 12,
          "call_beside": 12, "call_on_two_streams": 12, "call_twice_at_once": 2}  # fmt: skip


def isolated(text: str) -> list[Subject]:
    """Return the subjects of a file, a declared library or a name, loaded in one process of their own.

    Args:
        text: the words that `--subject` takes.

    Returns:
        The subjects, whose watched calls run in that process.

    Raises:
        FileError: the process cannot load them.
        ArgumentError: there is no such subject.
    """
    home = IsolatedProcess(text)
    try:
        subjects = [_subject(home, said, text) for said in home.start()]
    except RefnumError:
        home.stop()
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        home.stop()
        raise FileError(f"{text} cannot be loaded: what came back describes no subjects.") from error
    if not subjects:
        raise ArgumentError(f"{text} has no subject.")
    return subjects


def _subject(home: IsolatedProcess, said: Mapping[str, Any], text: str) -> Subject:
    name = str(said["name"])
    usable, reason = said["available"]
    facts = {**said["describe"], "process": "its own"}

    def supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
        try:
            return str(home.ask(name, "supports", operation=operation, profile=profile, params=dict(params)))
        except RuntimeError as error:
            return Broken(f"its `supports` failed: {error}")

    def trace(operation: str) -> dict[str, str]:
        return dict(home.ask(name, "trace", operation=operation))

    def carried_out(which: str, case: Case, *arguments: Any, **keywords: Any) -> Any:
        return home.carry_out(name, which, case, *arguments, **keywords)

    entry = {
        "name": name,
        "operations": {operation: _stub(**how) for operation, how in said["operations"].items()},
        "kind": said["kind"] if said["kind"] in KINDS else "user",
        "profiles": said["profiles"],
        "further": said["further"],
        "level": said["level"],
        "inputs": said["inputs"],
        "levels": said["levels"],
        "forced_paths": {operation: dict.fromkeys(ways, _way) for operation, ways in said["forced_paths"].items()},
        "arrays": said["arrays"],
        "on_request": said["on_request"],
        "available": lambda: (bool(usable), str(reason)),
        "describe": lambda: facts,
        "supports": supports if said["supports"] else None,
        "trace": trace if said["trace"] else None,
        "remote": carried_out,
        "origin": text,
    }
    return from_dict(entry, text)


def _stub(keywords: list[str], anything: bool) -> Callable[..., Any]:
    """Return a placeholder with the signature of a callable in another process."""

    def elsewhere(**_: Any) -> Any:
        raise NotImplementedError("this subject runs in a process of its own; call it by `call.call`")

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in keywords]
    if anything:
        parameters.append(inspect.Parameter("anything", inspect.Parameter.VAR_KEYWORD))
    elsewhere.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return elsewhere


def _way() -> contextlib.AbstractContextManager[None]:
    raise NotImplementedError("this subject runs in a process of its own; force its paths by `forced_paths.on_way`")


class _Lost(Exception):
    """The process ended or was killed, for the reason in the message. hung: whether it ran past its limit."""

    def __init__(self, words: str, hung: bool = False) -> None:
        super().__init__(words)
        self.hung = hung


_homes: weakref.WeakSet[IsolatedProcess] = weakref.WeakSet()


def stop_all() -> None:
    """End the processes of all subjects; the next call of a subject starts a new one."""
    for home in list(_homes):
        home.stop()


class IsolatedProcess:
    """Starts, queries, kills and restarts the process of some subjects. Not thread-safe.

    Attributes:
        silent: (subject, question without arrays) -> the error of a question that timed out; it is not asked again.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.process: subprocess.Popen[bytes] | None = None
        self.line: Channel | None = None
        self.mark = ""
        self.stopped = math.inf
        self.silent: dict[tuple[str, str], str] = {}
        _homes.add(self)
        atexit.register(self.stop)

    def start(self) -> list[dict[str, Any]]:
        """Start the process and return the descriptions of its subjects; FileError when they cannot be loaded."""
        ours, theirs = socket.socketpair()
        self.mark, environment = process_tree.marked()
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "refnum.conformance.subjects.isolation.child", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__.fileno() if sys.__stderr__ is not None else subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self.process, self.line = process, Channel(ours, lambda: process.poll() is not None or self._stopped())
        try:
            head, _ = self._exchange({"load": self.text}, [], START)
        except (_Lost, MessageError) as error:
            self.stop()
            raise FileError(f"{self.text} cannot be loaded: {error}.") from error
        if "unable" in head:
            self.stop()
            own = head.get("type") == "ArgumentError"
            raise (ArgumentError if own else FileError)(str(head["unable"]))
        return list(head["subjects"])

    def stop(self) -> None:
        """Kill the process and every process that it started."""
        if self.process is not None:
            process_tree.end(self.process, self.mark)
        if self.line is not None:
            self.line.close()
        self.process = self.line = None
        self.stopped = math.inf

    def _running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _stopped(self) -> bool:
        """Return whether a signal stopped the process more than STOPPED seconds ago."""
        assert self.process is not None
        try:
            held = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # it has ended since it was last seen running
            held = False
        self.stopped = min(self.stopped, time.monotonic()) if held else math.inf
        return time.monotonic() - self.stopped > STOPPED

    def ask(self, name: str, what: str, **more: Any) -> Any:
        """Return a subject's answer to a question without arrays; RuntimeError when there is none."""
        if (name, what) in self.silent:
            raise RuntimeError(self.silent[name, what])
        try:
            self._up()
            head, _ = self._exchange({"subject": name, "ask": what, **more}, [], START)
            if "said" not in head and "failed" not in head:
                raise MessageError("what came back is no answer")
        except (_Lost, MessageError, RefnumError) as error:
            self.stop()
            if isinstance(error, _Lost) and error.hung:
                self.silent[name, what] = str(error)
            raise RuntimeError(str(error)) from error
        if "failed" in head:
            raise RuntimeError(str(head["failed"]))
        return head["said"]

    def carry_out(
        self,
        name: str,
        which: str,
        case: Case,
        *arguments: Any,
        seconds: float = 60.0,
        like: tuple[np.ndarray, ...] = (),
        poison: int | None = None,
        way: str | None = None,
        cut: tuple[Cutting, Sequence[Part]] | None = None,
    ) -> Any:
        """Run a watched call of `subjects.calls` in the process, on a forced path if one is named.

        cut: how a case is cut and into which parts, for calls on each of them.
        """
        if which == "into_guarded":
            like, poison, *rest = arguments if arguments else (like, poison)
            seconds = rest[0] if rest else seconds
        elif arguments:
            (seconds,) = arguments
        more: dict[str, Any] = {} if poison is None else {"poison": poison}
        more |= {} if cut is None else {"cut": cut_head(*cut)}
        head = {"subject": name, "ask": which, "case": case_head(case), "seconds": seconds, "way": way, "more": more}
        limit = _CALLS.get(which, 1) * seconds + max(LEAST, min(GRACE, seconds)) if seconds > 0 else 0.0
        try:
            self._up()
            answer, results = self._exchange(head, [*case.inputs.values(), *like], limit)
            calls = _calls(answer, results)
        except MemoryError:  # in this process, the judge's
            self.stop()
            calls, answer = [Called(outcome=Outcome.UNSUPPORTED, words=NO_ROOM, no_room=True)], {"same": True}
        except (_Lost, MessageError, RefnumError) as error:
            self.stop()
            hung = isinstance(error, _Lost) and error.hung
            calls = [Called(outcome=Outcome.TIMEOUT if hung else Outcome.FAULT, words=str(error), lost=True)]
            answer = {"same": True}
        if answer.get("dead"):
            self.stop()
        if which == "call_parts":
            return calls
        if which not in _CALLS:
            return calls[0]
        second_case = case if answer.get("same") and which == "replay_in_place" else other_data(case)
        if len(calls) == 1 or calls[0].outcome is not Outcome.PASS:
            return second_case, calls[0], calls[0]
        return second_case, calls[0], calls[1]

    def _up(self) -> None:
        if not self._running():
            self.stop()
            self.start()

    def _exchange(
        self, head: dict[str, Any], arrays: list[np.ndarray], limit: float
    ) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Send a question and return the answer; _Lost when the process ends or runs past the limit (0: no limit).

        One limit covers both messages: the process may stop reading or writing in the middle of either.
        """
        assert self.line is not None and self.process is not None
        until = time.monotonic() + limit if limit else NEVER
        try:
            send(self.line, head, arrays, until)
            return receive(self.line, until)
        except LateError as error:
            self.stop()
            raise _Lost(f"no answer within {limit:g} s; its process was killed", hung=True) from error
        except (EOFError, OSError) as error:
            if self._running() and self._stopped():
                self.stop()
                raise _Lost("its process stopped itself and was killed", hung=True) from error
            raise _Lost(self._death()) from error
        except KeyboardInterrupt:
            self.stop()
            raise

    def _death(self) -> str:
        """Stop the process and return in words how it ended."""
        assert self.process is not None
        try:
            code = self.process.wait(1.0)
            words = f"its process ended with {signal.Signals(-code).name if code < 0 else f'exit status {code}'}"
        except subprocess.TimeoutExpired:
            words = "its process closed the connection to the harness"
        self.stop()
        return words


def _calls(answer: dict[str, Any], results: list[np.ndarray]) -> list[Called]:
    """Return the calls of an answer; MessageError when it is malformed: a subject may have written it."""
    try:
        calls, rest = [], list(results)
        for one in answer["calls"]:
            outcome, count = Outcome(one["outcome"]), int(one["results"])
            own, rest = tuple(rest[:count]), rest[count:]
            finding = one["finding"] if one["finding"] in ("", *NAMED_BY_CALLS) else Finding.INPUT_MUTATED
            said = {name: one.get(name) is True for name in ("no_room", "declared", "returned")}
            calls.append(Called(own, own, outcome, str(one["words"])[:1000], finding, **said))
        if not calls or rest:
            raise ValueError("it has no calls, or more results than calls")
    except (KeyError, TypeError, ValueError) as error:
        raise MessageError(f"what came back is no answer: {error}") from error
    return calls
