"""The run: every line at every shape, the subject first, then its peers; times, bytes, agreement, host overhead."""

from __future__ import annotations

import math
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from refnum.arrays import Array
from refnum.errors import RefnumError, UnsupportedError

from ...cases.case import Case
from ...subjects.subject import Subject, arguments_for, takes
from . import inputs
from .agree import Agreement, Golden
from .clock import COPY_BYTES, Call, Times, sets_for
from .contender import Contender, Prepared, as_tuple, as_written, nbytes, to_torch
from .lines import Line
from .shapes import Shape

POISON = 0xA5
ROUNDS = 3
"""Times that a contender's buffers are made anew: where they come to lie moves a time by several per cent."""
LONGEST = 0.25
"""Seconds that the timed calls of a contender may take in a round: of a slow one fewer calls are timed."""
SMALL = Shape(32, 1, 1024, 1, 1024)
"""The shape of the calls whose host time is taken: the device is done before the host is."""

COMPILER = re.compile(r"\berror\s*:\s*\S", re.IGNORECASE)
"""A line of a compiler that names a fault."""


class Device(Protocol):
    """What a run needs of a device; `clock.Clock` is the one."""

    xp: Any

    def synchronize(self) -> None:
        """Wait until the device is done."""

    def free(self) -> None:
        """Give unused memory back."""

    def time(self, calls: Sequence[Call], repeat: int) -> Times:
        """Return the device's time of `repeat` calls, taking the calls in turn."""

    def host_time(self, call: Call, repeat: int = 1000) -> float:
        """Return microseconds of host time a call."""

    def copy(self, nbytes: int, repeat: int) -> float:
        """Return bytes a second of a copy that moves this many bytes, read plus written."""


@dataclass(frozen=True)
class Plan:
    """What to run.

    peer_shapes: names of the shapes at which the peers run too, None for all. peer_seconds: seconds from the start of
    the run after which no peer begins, so that the subject comes to its end; None for no limit.
    """

    subject: Contender
    peers: Sequence[Contender]
    lines: Sequence[Line]
    shapes: Sequence[Shape]
    peer_shapes: frozenset[str] | None = None
    repeat: int = 30
    peer_seconds: float | None = None
    told: Callable[[str], None] = field(default=lambda words: None)


def run(plan: Plan, device: Device) -> Iterator[dict[str, Any]]:
    """Yield one record a contender, line and shape; a contender or a line that fails is a record that says so.

    Where the device fails behind a line that was timed, the line has such a record beside those of its times.
    """
    end = math.inf if plan.peer_seconds is None else time.perf_counter() + plan.peer_seconds
    copy = device.copy(2 * COPY_BYTES, plan.repeat)
    for shape in plan.shapes:
        for line in plan.lines:
            if line.once and shape is not plan.shapes[0]:
                continue
            reason = plan.subject.offers(line)
            if reason:
                yield _record(line, shape, plan.subject, "not offered", reason)
                continue
            try:
                yield from _line(plan, device, line, shape, end, copy)
                device.free()
            except Exception as error:  # no inputs, no golden results, or a device that is lost: the others go on
                yield _record(line, shape, plan.subject, "failed", _words(error))


def _left_out(contenders: Sequence[Contender], plan: Plan, line: Line, shape: Shape) -> dict[str, dict[str, Any]]:
    """Return the records of the contenders that a line is not for, by name: why not."""
    found: dict[str, dict[str, Any]] = {}
    for one in contenders:
        words = one.offers(line)
        if not words and one.slow and shape is not plan.shapes[0]:
            words = f"it is slow: timed at {plan.shapes[0].name} only"
        if words:
            found[one.name] = _record(line, shape, one, "not offered", words)
    return found


def _line(plan: Plan, device: Device, line: Line, shape: Shape, end: float, copy: float) -> Iterator[dict[str, Any]]:
    here = plan.peer_shapes is None or shape.name in plan.peer_shapes
    peers = [one for one in plan.peers if not one.tuning or not one.offers(line)]
    contenders = [plan.subject, *(peers if here else ())]
    case = inputs.make(device.xp, line, shape)
    golden = Golden(case)
    records = _left_out(contenders, plan, line, shape)
    samples: dict[str, tuple[float, ...]] = {}
    # the contenders by turns, so that none has the better half of a run; slow ones once, when the others are done
    quick, slow = ([one for one in contenders if one.slow is is_slow] for is_slow in (False, True))
    rounds = [*((f"{number + 1} of {ROUNDS}", quick) for number in range(ROUNDS)), ("1 of 1, slow", slow)]
    for words, turns in rounds:
        for contender in turns:
            name = contender.name
            if name in records and records[name]["status"] != "timed":
                continue
            first = name not in records
            if first and not contender.is_subject and time.perf_counter() > end:
                records[name] = _record(line, shape, contender, "failed", "the seconds given to peers were over")
                continue
            plan.told(f"{shape.name}  {line.label}  {name}  {words}")
            records.setdefault(name, _record(line, shape, contender, "timed", ""))
            try:
                with contender.within():
                    found, times = _measure(plan, device, line, contender, case, golden if first else None)
            except UnsupportedError as error:  # its declaration or its contract excludes what the line asks
                records[name] = _record(line, shape, contender, "not offered", str(error))
                device.free()
                continue
            except Exception as error:  # a peer may fail in any way; the others go on
                reason = str(error) if isinstance(error, RefnumError) else _words(error)
                records[name] = _record(line, shape, contender, "failed", reason)
                device.free()
                continue
            records[name] |= found
            samples[name] = samples.get(name, ()) + times.us
        device.free()
    for contender in contenders:
        record = records[contender.name]
        if record["status"] == "timed":
            try:
                record = _with_shares(record, samples[contender.name], device, copy, plan.repeat)
            except Exception as error:  # a device that is lost
                record = _record(line, shape, contender, "failed", _words(error))
        yield record


def _with_shares(
    record: dict[str, Any], us: tuple[float, ...], device: Device, copy: float, repeat: int
) -> dict[str, Any]:
    """Return a record with its times, and its rate: a product's, or beside the run's copy and a copy of its bytes."""
    summary = Times(us).summary()
    if "terms" in record:
        work = math.prod(record["matrix"]) * record["terms"]
        return {**record, "us": summary, "tma_s": float(f"{work / summary['median'] / 1e6:.4g}")}
    same = device.copy(record["bytes"], repeat)
    rate = record["bytes"] / (summary["median"] * 1e-6)
    shares = {"of_copy": _rounded(rate / copy), "of_same": _rounded(rate / same)}
    return {**record, "us": summary, "tb_s": round(rate / 1e12, 3), **shares}


def _rounded(share: float) -> float:
    """Return a share to four places, or to two digits that say something."""
    return round(share, 4) or float(f"{share:.2g}")


def _measure(
    plan: Plan, device: Device, line: Line, contender: Contender, case: Case, golden: Golden | None
) -> tuple[dict[str, Any], Times]:
    """Return the facts of a contender, compared when `golden` is given, and the times of one round."""
    first = contender.prepare(line, case)
    facts: dict[str, Any] = {}
    moved = 0
    if golden is not None:
        agreement, moved = _check(first, contender, golden)
        facts = {
            "bytes": moved,
            "sets": sets_for(moved),
            "agreement": agreement.verdict,
            "compared": agreement.compared,
            "differing": agreement.differing,
            "values_differing": agreement.values_differing,
        }
    else:
        moved = nbytes(first.inputs) + nbytes(as_tuple(first.call()))
    device.synchronize()
    prepared = [first, *(contender.prepare(line, other) for other in inputs.copies(case, sets_for(moved))[1:])]
    device.synchronize()
    start = time.perf_counter()
    first.call()
    device.synchronize()
    bearable = int(LONGEST / max(time.perf_counter() - start, 1e-9))
    return facts, device.time([one.call for one in prepared], max(2, min(-(-plan.repeat // ROUNDS), bearable)))


def _check(prepared: Prepared, contender: Contender, golden: Golden) -> tuple[Agreement, int]:
    """Return the agreement with the golden model, and the bytes read and written, of one call."""
    found = prepared.call()
    if contender.is_subject:  # what a kernel leaves unwritten must not look right
        for x in prepared.canonical(found):
            _bytes_of(x)[...] = POISON
        found = prepared.call()
    return golden.compare(prepared.canonical(found)), nbytes(prepared.inputs) + nbytes(as_tuple(found))


def _bytes_of(x: Array) -> Array:
    return x.reshape(-1).view(np.uint8)


def _words(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = next(filter(COMPILER.search, str(error).splitlines()), str(error))  # which comes after all of the source
    text = " ".join(said.split())[:300]
    return f"{type(error).__name__} in {last.name}: {text}"


def _record(line: Line, shape: Shape, contender: Contender, status: str, words: str) -> dict[str, Any]:
    rows, columns = shape.matrix(line.at)
    return {
        "shape": shape.name,
        "line": line.label,
        "operation": line.operation,
        "profile": line.profile,
        "params": dict(line.params),
        "experts": shape.experts if line.experts else 1,
        "matrix": [rows, columns],
        "contender": contender.name,
        "is_subject": contender.is_subject,
        "status": status,
        "words": words,
        **({"terms": shape.product[2]} if line.at == "product" else {}),
    }


def overheads(
    subject: Subject, contender: Contender, lines: Sequence[Line], device: Device
) -> Iterator[dict[str, Any]]:
    """Yield host microseconds of a call of each operation on a small matrix, fresh outputs and given ones.

    Both are None, and `words` says why, where they cannot be had.
    """
    seen: set[str] = set()
    for line in lines:
        if line.operation in seen or contender.offers(line):
            continue
        seen.add(line.operation)
        try:
            fresh, given = _host_times(subject, line, device)
        except Exception as error:  # the other operations go on
            yield {"operation": line.operation, "fresh_us": None, "out_us": None, "words": _words(error)}
            continue
        yield {"operation": line.operation, "fresh_us": round(fresh, 2), "out_us": given and round(given, 2)}


def _host_times(subject: Subject, line: Line, device: Device) -> tuple[float, float | None]:
    case = inputs.make(device.xp, line, SMALL)
    arrays = {name: to_torch(x) if subject.arrays.startswith("torch") else x for name, x in case.inputs.items()}
    function = subject.operations[line.operation]
    call = as_written(function, line.operation, arguments_for(subject, case, arrays))
    out = call()
    again = as_written(function, line.operation, {**arguments_for(subject, case, arrays), "out": out})
    given = device.host_time(again) if takes(function, "out") else None
    return device.host_time(call), given
