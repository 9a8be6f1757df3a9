"""The child process that holds foreign subjects: it loads, describes and calls them on request.

Started by `parent.IsolatedProcess` as `python -m refnum.conformance.subjects.isolation.child FD`. The output of a
subject goes to the standard error of the harness. A process that a subject forks never answers. This process ends
when its parent ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
from typing import Any

import numpy as np

from refnum.errors import RefnumError

from ...cases.levels import Outcome
from ..arrays import alive
from ..calls import at_once, call, in_turn, moved, streams
from ..calls import forced_paths as ways
from ..calls import parts as parts_of
from ..choose import resolve
from ..subject import Subject, accepts, words_of
from .channel import Channel
from .die_with_parent import DIE_WITH_PARENT
from .wire import case_from, cut_from, receive, send

CALLS = {
    name: getattr(room, name)
    for room, names in (
        (call, ("call", "into_guarded")),
        (in_turn, ("replay_in_place", "hold_results")),
        (
            moved,
            (
                "call_with_gaps",
                "call_with_padded_rows",
                "call_with_odd_rows",
                "call_with_rows_far_apart",
                "call_at_offset",
                "call_at_end",
                "call_on_columns_in_turn",
                "call_on_one_array",
                "call_on_same_array",
            ),
        ),
        (at_once, ("call_at_once", "call_beside", "call_on_two_streams", "call_twice_at_once")),
        (streams, ("on_another_device", "on_side_stream", "under_graph", "with_late_splits")),
        (ways, ("call_with_array_splits",)),
        (parts_of, ("call_parts",)),
    )
    for name in names
}
"""The watched calls that the parent may request."""


def main() -> None:
    """Serve the parent until it closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process itself
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    line = Channel(socket.socket(fileno=int(sys.argv[1])))
    first, _ = receive(line)
    try:
        subjects = {subject.name: subject for subject in resolve(first["load"])}
        said = [described(subject) for subject in subjects.values()]
    except BaseException as error:  # the parent must learn of every failure to load
        own = isinstance(error, RefnumError)
        words = str(error) if own else f"{first['load']} cannot be loaded: {words_of(error)}."
        send(line, {"unable": words, "type": type(error).__name__})
        return
    send(line, {"subjects": said})
    process = os.getpid()
    while True:
        try:
            head, arrays = receive(line)
        except (EOFError, OSError):
            return
        except MemoryError:  # within a message: its rest cannot be told from the next message
            send(line, {"calls": [_no_room()], "same": True})
            return
        answer, results = _answer(subjects[head["subject"]], head, arrays)
        if os.getpid() != process:
            os._exit(1)
        try:
            send(line, answer, results)
        except TypeError as error:
            send(line, {"calls": [_fault(str(error))], "same": True})
        except MemoryError:
            send(line, {"calls": [_no_room()], "same": True})
        if answer.get("dead"):
            os._exit(0)  # the device no longer responds; the parent starts another process


def described(subject: Subject) -> dict[str, Any]:
    """Return a subject's fields and facts as JSON values."""
    try:
        usable, reason = subject.available()
    except Exception as error:  # a foreign probe may fail in any way
        usable, reason = False, f"its availability probe failed: {type(error).__name__}: {error}"
    try:
        facts = {str(k): str(v) for k, v in subject.describe().items()} if usable else {}
    except Exception as error:
        facts = {"describe": f"failed: {type(error).__name__}: {error}"}
    operations = {}
    for name, function in subject.operations.items():
        keywords, anything = accepts(function) or (set(), True)
        operations[name] = {"keywords": sorted(keywords), "anything": anything}
    return {
        "name": subject.name,
        "kind": subject.kind,
        "profiles": None if subject.profiles is None else list(subject.profiles),
        "further": {name: list(profiles) for name, profiles in subject.further.items()},
        "level": subject.level,
        "inputs": list(subject.inputs),
        "levels": dict(subject.levels),
        "forced_paths": {operation: list(ways) for operation, ways in subject.forced_paths.items()},
        "arrays": subject.arrays,
        "on_request": subject.on_request,
        "available": [bool(usable), str(reason)],
        "describe": facts,
        "operations": operations,
        "supports": subject.supports is not None,
        "trace": subject.trace is not None,
    }


def _answer(
    subject: Subject, head: dict[str, Any], arrays: list[np.ndarray]
) -> tuple[dict[str, Any], list[np.ndarray]]:
    if head["ask"] not in CALLS:
        return _said(subject, head), []
    case = case_from(head["case"], arrays)
    more = dict(head["more"])
    if head["ask"] in ("into_guarded", "call_parts"):
        more["like"] = tuple(arrays[len(case.inputs) :])
    if "cut" in more:
        more["cutting"], more["parts"] = cut_from(more.pop("cut"))
    try:
        if head["way"] is not None:
            subject = ways.on_way(subject, case.operation, head["way"])
        back = CALLS[head["ask"]](subject, case, seconds=head["seconds"], **more)
    except MemoryError:  # outside the subject's own code, so not its fault
        return {"calls": [_no_room()], "same": True}, []
    except BaseException as error:  # a watched call catches a subject's exceptions; any other is a fault too
        return {"calls": [_fault(f"{type(error).__name__}: {error}")], "same": True}, []
    parts = (case, *back) if isinstance(back, list) else back if isinstance(back, tuple) else (case, back)
    calls, results = [], []
    for called in parts[1:]:
        calls.append(
            {
                "outcome": called.outcome.value,
                "words": called.words,
                "finding": called.finding,
                "no_room": called.no_room,
                "declared": called.declared,
                "returned": called.returned,
                "results": len(called.results),
            }
        )
        results += called.results
    failed = any(one["outcome"] not in ("pass", "mismatch", "unsupported") for one in calls)
    return {"calls": calls, "same": parts[0] is case, "dead": failed and not alive(subject.arrays)}, results


def _said(subject: Subject, head: dict[str, Any]) -> dict[str, Any]:
    try:
        if head["ask"] == "supports" and subject.supports is not None:
            return {"said": str(subject.supports(head["operation"], head["profile"], head["params"]) or "")}
        if head["ask"] == "trace" and subject.trace is not None:
            return {"said": {str(k): str(v) for k, v in subject.trace(head["operation"]).items()}}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"failed": f"{head['ask']!r} is not a question that it answers"}


def _fault(words: str) -> dict[str, Any]:
    return {"outcome": Outcome.FAULT.value, "words": words[:300], "finding": "", "results": 0}


def _no_room() -> dict[str, Any]:
    return {"outcome": Outcome.UNSUPPORTED.value, "words": call.NO_ROOM, "finding": "", "no_room": True, "results": 0}


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent has ended: nobody is left to tell
        main()
