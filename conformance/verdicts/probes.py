"""The calling contract, probed: one function a habit of callers that a kernel may not have been written for.

Each probe is tried on a few corner cases of every variant. A probe that a subject refuses with an error is reported
as refused, which is no failure; one that it takes must give the golden bytes. Breaches have names, see `Called`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..cases.case import Case
from ..cases.levels import NO_LEVEL, Outcome
from ..cases.operation import call_golden, run_golden
from ..cases.same_bytes import same
from ..subjects.arrays import IMMUTABLE
from ..subjects.calls.at_once import call_at_once
from ..subjects.calls.call import POISONS, Called, call, has_out, hold_results, into_guarded, raw, replay_in_place
from ..subjects.calls.forced_paths import (
    call_with_array_splits,
    has_ways,
    named,
    on_way,
    takes_arrays,
    with_empty_experts,
)
from ..subjects.calls.moved import call_at_offset, call_with_gaps, call_with_odd_rows, call_with_padded_rows
from ..subjects.calls.streams import STREAMED, on_side_stream, under_graph
from ..subjects.layout_variants import KEYWORDS
from ..subjects.subject import Subject
from .compare import compare
from .judge import Again, record
from .tally import Failure, Tally

REPEATS = 10
IN_PLACE, GRAPH = "new data in place", "graph capture"
"""Names of the probes that call twice, on a case and on other data."""
AT_ONCE = "two threads at once"
OUT, WAYS = "poisoned out with guard zones", "ways by size"
LAUNCHED = frozenset(
    {"DriverError", "EmulationError", "CUDARuntimeError", "CUDADriverError", "CudaAPIError", "AcceleratorError"}
)
DEVICE_WORDS = (
    "cuda error",
    "cuda_error",
    "cudaerror",
    "illegal memory access",
    "misaligned address",
    "device-side assert",
)
"""Errors of a device, by name and by what libraries say of them: a kernel ran and did what is forbidden, which is no
refusal. Under capture of a graph they may be: what cannot be captured ends so."""
Golden = Mapping[str, np.ndarray]
Judging = Callable[[Subject, Case, Golden, Tally, float], None]


@dataclass(frozen=True)
class Probe:
    """A habit of callers. name: as it stands in reports. run: judges it. applies: whether a subject can be asked.

    once: it costs many calls, and one case of a variant is enough.
    ordinary: it asks about buffers, which are the same in the variants with scale layouts and keyed random bits.
    """

    name: str
    run: Judging
    applies: Callable[[Subject, str], bool] = lambda _subject, _operation: True
    once: bool = False
    ordinary: bool = False


@dataclass(frozen=True)
class Elsewhere:
    """The same data in other storage or on another stream: how to call, and what a wrong result is called.

    refusable: whether a subject may refuse it; nobody may refuse a stream.
    """

    name: str
    call: Callable[[Subject, Case, float], Called]
    finding: str
    words: str
    refusable: bool = True


def probe(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    """Try every probe that applies to a subject; what it refuses is noted in the tally."""
    for one in PROBES:
        done = (one.once and one.name in tally.probes) or (one.ordinary and not KEYWORDS.keys().isdisjoint(case.params))
        if one.applies(subject, case.operation) and not tally.stopped and not done:
            tally.probes.setdefault(one.name, "")
            one.run(subject, case, golden, tally, seconds)


def _breach(tally: Tally, case: Case, finding: str, words: str) -> None:
    tally.fail(Failure(case, NO_LEVEL, words, finding))


def _refused(called: Called, tally: Tally, name: str, capturing: bool = False) -> bool:
    """Whether a subject said no, which is noted."""
    if refusal(called, capturing):
        tally.probes[name] = called.words
        return True
    return False


def refusal(called: Called, capturing: bool = False) -> bool:
    """Whether a call was refused: with an error of its own. A crash, a hang or a device's error is none."""
    error = called.words.partition(":")[0]
    if called.outcome is Outcome.PASS or called.finding or called.outcome is Outcome.TIMEOUT:
        return False
    if called.outcome is Outcome.FAULT:
        launched = error in LAUNCHED or any(words in called.words.lower() for words in DEVICE_WORDS)
        if not error.isidentifier() or (launched and not capturing):
            return False
    return True


def _right(subject: Subject, case: Case, golden: Golden, seconds: float) -> bool:
    """Whether a plain call on the same data is right: only then is the habit to blame."""
    return compare(case, golden, call(subject, case, seconds).results).level == 0


def _in_place(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    second_case, first, second = replay_in_place(subject, case, seconds)
    if first is second:  # the first call already failed; there is no second one
        record(first, case, golden, tally)
        return
    right = record(first, case, golden, tally) and compare(case, golden, first.results).level == 0
    held = record(second, second_case, run_golden(second_case), tally)
    if right and held is False and not second.finding and _same(second, first):
        words = (
            "the second call, with new data in the same storage, gave the first call's result again: results are "
            "cached by address"
        )
        _breach(tally, second_case, "stale-output", words)


def _elsewhere(storage: Elsewhere) -> Judging:
    """Return the probe of a call on the same data elsewhere; where a plain call is right, that place is to blame."""

    def run(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
        called = storage.call(subject, case, seconds)
        if storage.refusable and _refused(called, tally, storage.name):
            return
        if called.outcome in (Outcome.FAULT, Outcome.TIMEOUT):
            called = replace(called, words=f"{called.words} ({storage.name}; to say no, raise an error)")

        def again(other: Case) -> Called:
            return storage.call(subject, other, seconds)

        wrong = record(called, case, golden, tally, again, storage.name) is False and not called.finding
        if wrong and _right(subject, case, golden, seconds):
            _breach(tally, case, storage.finding, storage.words)

    return run


def _repeats(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    first: Called | None = None
    for number in range(1, REPEATS + 1):
        again = call(subject, case, seconds)
        if again.outcome is not Outcome.PASS:
            record(again, case, golden, tally)
            return
        first = first or again
        if not _same(again, first):
            words = f"call {number} on the same inputs gave other bytes than the first: the result is not determined"
            _breach(tally, case, "not-deterministic", words)
            return


def _held(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    other_case, first, last = hold_results(subject, case, seconds)
    if first is last:
        record(first, case, golden, tally)
    else:
        record(last, other_case, run_golden(other_case), tally)


def _at_once(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    other_case, first, second = call_at_once(subject, case, seconds)
    record(first, case, golden, tally)
    if second is not first:
        record(second, other_case, run_golden(other_case), tally)


def _out(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    like = call_golden(case)
    for poison in POISONS:
        called = into_guarded(subject, case, like, poison, seconds)
        held = record(called, case, golden, tally, _guarded(subject, poison, seconds), OUT)
        if held is False and called.outcome is Outcome.PASS and _holds_poison(called, like, poison):
            words = f"bytes of `out` still hold the poison 0x{poison:02X}: they were never written"
            _breach(tally, case, "output-not-written", words)


def _graph(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    second_case, first, second = under_graph(subject, case, seconds)
    if _refused(first, tally, GRAPH, capturing=True):
        return
    right = record(first, case, golden, tally) and compare(case, golden, first.results).level == 0
    wrong = record(second, second_case, run_golden(second_case), tally) is False and not second.finding
    if right and wrong:
        words = "right when captured, wrong when the graph is launched again with new data in the same storage"
        _breach(tally, second_case, "graph-replay-stale", words)


def _ways(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    for way in subject.forced_paths[case.operation]:
        large = on_way(subject, case.operation, way)
        called = named(call(large, case, seconds), way)
        if called.outcome is Outcome.UNSUPPORTED:
            tally.probes[WAYS] = called.words
        wrong = record(called, case, golden, tally, _on(large, way, seconds), f"{WAYS}: {way}") is False
        wrong = wrong and not called.finding
        if wrong and _right(subject, case, golden, seconds):
            _by_size(tally, case, way)
        elif called.outcome is Outcome.PASS and not wrong and has_out(subject, case.operation):
            _way_into_out(subject, case, golden, tally, seconds, way)


def _on(large: Subject, way: str, seconds: float) -> Again:
    """Return the call on a way, for other data."""
    return lambda other: named(call(large, other, seconds), way)


def _guarded(subject: Subject, poison: int, seconds: float) -> Again:
    """Return the call into poisoned `out`, for other data."""
    return lambda other: into_guarded(subject, other, call_golden(other), poison, seconds)


def _way_into_out(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float, way: str) -> None:
    like, large = call_golden(case), on_way(subject, case.operation, way)
    called = named(into_guarded(large, case, like, POISONS[0], seconds), way)
    again = _guarded(large, POISONS[0], seconds)
    if record(called, case, golden, tally, again, f"{OUT}, {WAYS}: {way}") is not False or called.finding:
        return
    if _holds_poison(called, like, POISONS[0]):
        words = f"bytes of `out` still hold the poison 0x{POISONS[0]:02X} on the way that larger data takes: {way}"
        _breach(tally, case, "output-not-written", words)
    usual = into_guarded(subject, case, like, POISONS[0], seconds)
    if compare(case, golden, usual.results).level == 0:
        _by_size(tally, case, way)


def _by_size(tally: Tally, case: Case, way: str) -> None:
    words = f"right on the way that this size takes, wrong on another that larger data takes: {way}"
    _breach(tally, case, "way-by-size", words)


def _array_splits(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    for one in (case, with_empty_experts(case)):
        called = call_with_array_splits(subject, one, seconds)
        if _refused(called, tally, "splits as an array"):
            return
        want = golden if one is case else run_golden(one)
        wrong = record(called, one, want, tally) is False and not called.finding
        if wrong and _right(subject, one, want, seconds):
            words = "right by splits in a list, wrong by the same splits in an array"
            _breach(tally, one, "splits-as-array", words)


def _streamed(subject: Subject, _operation: str) -> bool:
    return subject.arrays in STREAMED


def _placed(subject: Subject, _operation: str) -> bool:
    return subject.arrays not in IMMUTABLE


def _on_host(subject: Subject, _operation: str) -> bool:
    return subject.arrays in ("numpy", "torch")


def _viewed(subject: Subject, _operation: str) -> bool:
    return subject.arrays in ("numpy", "cupy")


GAPS, PADDED, ODD, OFFSET, SIDE_STREAM = (
    Elsewhere(
        "views with gaps",
        call_with_gaps,
        "strides-ignored",
        "right on contiguous inputs, wrong on the same inputs with gaps between the elements: strides are ignored",
    ),
    Elsewhere(
        "padded rows",
        call_with_padded_rows,
        "row-stride-ignored",
        "right on contiguous inputs, wrong where padding lies behind every row: a row's stride is taken for its length",
    ),
    Elsewhere(
        "rows one element apart",
        call_with_odd_rows,
        "row-alignment-assumed",
        "right on contiguous inputs, wrong where one element lies behind every row: the alignment of rows is assumed",
    ),
    Elsewhere(
        "views at an odd address",
        call_at_offset,
        "alignment-assumed",
        "right on inputs at the start of an allocation, wrong on the same inputs one element further: the alignment of "
        "the address is assumed",
    ),
    Elsewhere(
        "side stream",
        on_side_stream,
        "stream-ignored",
        "wrong when the caller's current stream is not the default one: it launches on another stream",
        refusable=False,
    ),
)

MOVED = (GAPS, PADDED, ODD, OFFSET, SIDE_STREAM)
"""Calls on the same data elsewhere."""

PROBES: tuple[Probe, ...] = (
    Probe(IN_PLACE, _in_place, _placed),
    Probe(GAPS.name, _elsewhere(GAPS), _viewed),
    Probe(PADDED.name, _elsewhere(PADDED), _placed),
    Probe(ODD.name, _elsewhere(ODD), _placed),
    Probe(OFFSET.name, _elsewhere(OFFSET), _placed),
    Probe("ten repeats", _repeats, once=True),
    Probe("earlier results held", _held, once=True, ordinary=True),
    Probe(AT_ONCE, _at_once, _on_host, once=True, ordinary=True),
    Probe(OUT, _out, has_out),
    Probe(SIDE_STREAM.name, _elsewhere(SIDE_STREAM), _streamed),
    Probe(GRAPH, _graph, _streamed),
    Probe(WAYS, _ways, has_ways),
    Probe("splits as an array", _array_splits, takes_arrays),
)
"""In the order they are tried; adding one is one entry."""


def _same(one: Called, other: Called) -> bool:
    pairs = zip(one.results, other.results, strict=False)
    return len(one.results) == len(other.results) and all(same(raw(a), raw(b)) for a, b in pairs)


def _holds_poison(called: Called, like: tuple[np.ndarray, ...], poison: int) -> bool:
    for result, want in zip(called.results, like, strict=False):
        if result.nbytes == want.nbytes:
            got, right = result.reshape(-1).view(np.uint8), np.ascontiguousarray(want).reshape(-1).view(np.uint8)
            if ((got == poison) & (right != poison)).any():
                return True
    return False
