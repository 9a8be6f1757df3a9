"""The calling contract, probed: one function a habit of callers that a kernel may not have been written for.

Each probe is tried on a few corner cases of every variant, or one where the same code was probed before. A probe that
a subject refuses with an error is reported as refused, which is no failure; one that it takes must give the golden
bytes. Breaches have names, see `Called`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..cases.case import Case
from ..cases.findings import Finding
from ..cases.levels import Outcome
from ..cases.operation import OPERATIONS, call_golden, run_golden
from ..cases.structure.turns import another
from ..subjects.arrays import IMMUTABLE
from ..subjects.calls.at_once import call_at_once, call_beside, call_on_two_streams
from ..subjects.calls.call import POISONS, Called, call, has_out, into_guarded, raw
from ..subjects.calls.forced_paths import (
    call_with_array_splits,
    has_ways,
    in_two_experts,
    named,
    on_way,
    takes_arrays,
    with_empty_experts,
)
from ..subjects.calls.in_turn import CALLS_KEPT, hold_results, replay_in_place
from ..subjects.calls.streams import STREAMED, under_graph
from ..subjects.layout_variants import KEYWORDS
from ..subjects.subject import Subject
from .blame import Golden, breach, compared, mostly, repeated, right, to_blame, wrong
from .compare import Comparison
from .elsewhere import (
    ANOTHER_DEVICE,
    END,
    FAR,
    GAPS,
    LATE_SPLITS,
    ODD,
    OFFSET,
    PADDED,
    SIDE_STREAM,
    Judging,
    elsewhere,
    one_array,
)
from .judge import Again, record
from .refusals import refused
from .repeats import odd_ones, same_results
from .tally import Tally

IN_PLACE, GRAPH = "new data in place", "graph capture"
"""Names of the probes that call twice, on a case and on other data."""
AT_ONCE, BESIDE, ON_STREAMS = "two threads at once", "two variants at once", "two streams at once"
OUT, WAYS, ARRAY_SPLITS = "poisoned out with guard zones", "ways by size", "splits as an array"
Likes = tuple[np.ndarray, ...]
GRAPHS = 3
"""Times that a graph is captured before it is blamed."""


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


def probe(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    """Try every probe that applies to a subject; what it refuses is noted in the tally."""
    for one in PROBES:
        done = (one.once and one.name in tally.probes) or (one.ordinary and not KEYWORDS.keys().isdisjoint(case.params))
        if one.applies(subject, case.operation) and not tally.stopped and not done:
            tally.probes.setdefault(one.name, "")
            one.run(subject, case, golden, tally, seconds)


def _plain(subject: Subject, seconds: float) -> Again:
    """Return the plain call, for any data."""
    return lambda case: call(subject, case, seconds)


def _in_place(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    other, first, second = replay_in_place(subject, case, seconds)
    if not record(first, case, golden, tally, _plain(subject, seconds)):  # there is no second call to judge by it
        return
    want = run_golden(other)
    seen = compared(second, other, want, tally)
    if not wrong(second, seen, tally):
        return
    if to_blame(subject, other, want, tally, seconds, lambda: replay_in_place(subject, case, seconds)[2]):
        cached = "gave the first call's result again: results are cached by address"
        words = cached if same_results(second, first) else "is wrong, though right in storage of its own"
        breach(tally, other, "stale-output", f"the second call, with new data in the same storage, {words}")


def _repeats(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    first = call(subject, case, seconds)
    calls = repeated(subject, case, tally, seconds) if first.answered else []
    flips = odd_ones([first, *calls])
    tally.repeat(case, len(calls), flips)
    if not flips:
        record(first, case, golden, tally)


def _held(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    other_case, first, last = hold_results(subject, case, seconds)
    if first is last:
        record(first, case, golden, tally, _plain(subject, seconds))
    elif last.finding == Finding.NOT_DETERMINISTIC:
        tally.repeat(other_case, CALLS_KEPT - 2, 1)
    else:
        record(last, other_case, run_golden(other_case), tally, _plain(subject, seconds))


def _at_once(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    _together(call_at_once, subject, case, golden, tally, seconds)


def _on_streams(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    _together(call_on_two_streams, subject, case, golden, tally, seconds)


def _together(
    calls: Callable[[Subject, Case, float], tuple[Case, Called, Called]],
    subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float,
) -> None:  # fmt: skip
    """Judge calls on a case and on other data at the same time."""
    other_case, first, second = calls(subject, case, seconds)
    pairs = [(case, first)] if second is first else [(case, first), (other_case, second)]
    for one, called in pairs:
        want = golden if one is case else run_golden(one)
        if called.finding != Finding.NOT_THREAD_SAFE:
            record(called, one, want, tally, _plain(subject, seconds))
        elif mostly(subject, one, want, tally, seconds, lambda: _spoiled(calls(subject, case, seconds))):
            compared(called, one, want, tally)


def _beside(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    """Judge a call beside one of another variant; a call of it that fails alone is for that variant's run to judge."""
    calls = call_beside(subject, case, seconds)
    if not _spoiled(calls):
        return
    for one, called in zip((case, another(case, subject.refuses)), calls[1:], strict=True):
        want = golden if one is case else run_golden(one)
        if called.finding == Finding.NOT_THREAD_SAFE and mostly(
            subject, one, want, tally, seconds, lambda: _spoiled(call_beside(subject, case, seconds))
        ):
            compared(called, one, want, tally)


def _spoiled(calls: tuple[Case, Called, Called]) -> bool:
    return any(one.finding == Finding.NOT_THREAD_SAFE for one in calls[1:])


def _out(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    like = call_golden(case)
    for poison in POISONS:
        _into_out(subject, case, golden, tally, seconds, poison, like)


def _into_out(
    subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float, poison: int, like: Likes, way: str = ""
) -> None:
    """Judge a call into poisoned `out`, on a way of larger data if one is named. like: the model's own outputs."""
    asked = on_way(subject, case.operation, way) if way else subject
    again = _guarded(asked, poison, seconds, case, like)
    called = named(again(case), way) if way else again(case)
    seen = compared(called, case, golden, tally, again, f"{OUT}, {WAYS}: {way}" if way else OUT)
    if not wrong(called, seen, tally) or not to_blame(asked, case, golden, tally, seconds, lambda: again(case)):
        return
    where = f" on the way that larger data takes: {way}" if way else ""
    by_size = bool(way) and right(_guarded(subject, poison, seconds, case, like)(case), case, golden, tally)
    other = POISONS[poison == POISONS[0]]
    if _hold_poison((called, _guarded(asked, other, seconds, case, like)(case)), like, (poison, other)):
        words = f"bytes of `out` still hold the poison 0x{poison:02X}{where}: they were never written"
        breach(tally, case, "output-not-written", words, seen)
    elif not by_size:
        words = f"right in arrays of its own, wrong in those that are given as `out`{where}"
        breach(tally, case, "wrong-into-out", words, seen)
    if by_size:
        _by_size(tally, case, way, seen)


def _graph(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    other, first, second = under_graph(subject, case, seconds)
    if refused(first, tally.probes, GRAPH, capturing=True):
        return
    if not record(first, case, golden, tally, _plain(subject, seconds)):
        return
    want = run_golden(other)
    seen = compared(second, other, want, tally)
    if wrong(second, seen, tally) and to_blame(
        subject, other, want, tally, seconds, lambda: under_graph(subject, case, seconds)[2], GRAPHS
    ):
        words = "right when captured, wrong when the graph is launched again with new data in the same storage"
        breach(tally, other, "graph-replay-stale", words)


def _ways(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    for way in subject.forced_paths[case.operation]:
        large = on_way(subject, case.operation, way)
        again = _on(large, way, seconds)
        called = again(case)
        if called.outcome is Outcome.UNSUPPORTED:
            tally.probes[WAYS] = called.words
        seen = compared(called, case, golden, tally, again, f"{WAYS}: {way}")
        if wrong(called, seen, tally):
            if to_blame(subject, case, golden, tally, seconds, lambda again=again: again(case)):  # type: ignore[misc]
                _by_size(tally, case, way, seen)
        elif called.outcome is Outcome.PASS and has_out(subject, case.operation):
            _into_out(subject, case, golden, tally, seconds, POISONS[0], call_golden(case), way)


def _on(large: Subject, way: str, seconds: float) -> Again:
    """Return the call on a way, for other data."""
    return lambda other: named(call(large, other, seconds), way)


def _guarded(subject: Subject, poison: int, seconds: float, case: Case, like: Likes) -> Again:
    """Return the call into poisoned `out`, for a case whose outputs are `like`, and for other data."""
    return lambda one: into_guarded(subject, one, like if one is case else call_golden(one), poison, seconds)


def _by_size(tally: Tally, case: Case, way: str, seen: Comparison | None) -> None:
    words = f"right on the way that this size takes, wrong on another that larger data takes: {way}"
    breach(tally, case, "way-by-size", words, seen)


def _array_splits(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    if case.params.get("splits") is None:
        case = in_two_experts(case)
        golden = run_golden(case)
    if not _by_array(subject, case, golden, tally, seconds):
        return
    if subject.arrays in STREAMED and any(case.params["splits"][1:]):
        elsewhere(LATE_SPLITS)(subject, case, golden, tally, seconds)
    more = with_empty_experts(case)
    _by_array(subject, more, run_golden(more), tally, seconds)


def _by_array(subject: Subject, case: Case, want: Golden, tally: Tally, seconds: float) -> bool:
    """Judge a call by splits in an array; return whether the subject takes them."""
    called = call_with_array_splits(subject, case, seconds)
    if refused(called, tally.probes, ARRAY_SPLITS):
        return False
    seen = compared(called, case, want, tally)
    if wrong(called, seen, tally) and to_blame(
        subject, case, want, tally, seconds, lambda: call_with_array_splits(subject, case, seconds)
    ):
        words = "right by splits in a list, wrong by the same splits in an array"
        breach(tally, case, "splits-as-array", words, seen)
    return True


def _several(_subject: Subject, operation: str) -> bool:
    row = OPERATIONS[operation]
    return _placed(_subject, operation) and len(row.inputs) + len(row.optional) > 1


def _streamed(subject: Subject, _operation: str) -> bool:
    return subject.arrays in STREAMED


def _placed(subject: Subject, _operation: str) -> bool:
    return subject.arrays not in IMMUTABLE


def _of_numpy(subject: Subject, _operation: str) -> bool:
    return subject.arrays == "numpy"


def _at_the_end(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    """Judge inputs at the end of memory; not counted, for counts are the same in whichever process a subject lives."""
    counts = tally.compared, tally.calls
    elsewhere(END)(subject, case, golden, tally, seconds)
    tally.compared, tally.calls = counts


def _on_the_host(subject: Subject, _operation: str) -> bool:
    """Whether a subject reads memory of the host, in a process of its own: the call may end it."""
    return subject.remote is not None and subject.arrays in ("numpy", "torch")


def _on_devices(subject: Subject, _operation: str) -> bool:
    return subject.arrays in STREAMED and STREAMED[subject.arrays].devices() > 1


def _viewed(subject: Subject, _operation: str) -> bool:
    return subject.arrays in ("numpy", "cupy")


PROBES: tuple[Probe, ...] = (
    Probe("ten repeats", _repeats, once=True),
    Probe(IN_PLACE, _in_place, _placed),
    Probe(GAPS.name, elsewhere(GAPS), _viewed),
    Probe(PADDED.name, elsewhere(PADDED), _placed),
    Probe(ODD.name, elsewhere(ODD), _placed),
    Probe(FAR.name, elsewhere(FAR), _of_numpy),
    Probe(OFFSET.name, elsewhere(OFFSET), _placed),
    Probe(END.name, _at_the_end, _on_the_host),
    Probe("inputs of one array", one_array, _several),
    Probe("earlier results held", _held, once=True, ordinary=True),
    Probe(AT_ONCE, _at_once, _placed, once=True, ordinary=True),
    Probe(BESIDE, _beside, _placed, once=True, ordinary=True),
    Probe(ON_STREAMS, _on_streams, _streamed, once=True, ordinary=True),
    Probe(OUT, _out, has_out),
    Probe(SIDE_STREAM.name, elsewhere(SIDE_STREAM), _streamed),
    Probe(ANOTHER_DEVICE.name, elsewhere(ANOTHER_DEVICE), _on_devices, once=True, ordinary=True),
    Probe(GRAPH, _graph, _streamed),
    Probe(WAYS, _ways, has_ways),
    Probe(ARRAY_SPLITS, _array_splits, takes_arrays),
)
"""In the order they are tried; adding one is one entry."""


def _hold_poison(calls: tuple[Called, Called], like: tuple[np.ndarray, ...], poisons: tuple[int, int]) -> bool:
    """Whether a byte that is to be another one holds the poison of each of two calls: one alone may be what it gave."""
    for first, second, want in zip(calls[0].results, calls[1].results, like, strict=False):
        if first.nbytes == second.nbytes == want.nbytes:
            held = (raw(first) == poisons[0]) & (raw(second) == poisons[1])
            if (held & (raw(want) != poisons[0])).any():
                return True
    return False
