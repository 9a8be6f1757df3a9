"""Judge one structural case of a campaign: in its form, once more as its levels say, and in every way of a probe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ..cases.case import FORM, Case, plain
from ..cases.contracts import brought_inside
from ..cases.findings import Finding
from ..cases.layouts import IN, OUT
from ..cases.levels import NO_LEVEL
from ..cases.operation import OPERATIONS, plain_like
from ..cases.structure.byte_order import swapped
from ..cases.structure.covering import Row
from ..cases.structure.cutting import (
    ANOTHER_SHAPE,
    ANOTHER_THREAD,
    BEHIND,
    OTHER_COLUMNS,
    OTHER_DATA,
    UNCUT,
    Part,
    one_shape,
)
from ..cases.structure.factors import GROUPED
from ..cases.structure.illegal import illegal_cases
from ..cases.structure.levels import Levels, case_of
from ..subjects.arrays import IMMUTABLE
from ..subjects.calls.at_once import call_twice_at_once
from ..subjects.calls.call import Called, call, other_data
from ..subjects.calls.forms import form_of
from ..subjects.calls.parts import call_parts
from ..subjects.subject import Subject, takes, takes_out
from .blame import compared, mostly, right, to_blame, wrong
from .judge import call_behind, called_with_room, record
from .outside import Outside
from .probes import AT_ONCE, probe
from .refusals import refusal
from .tally import Failure, Tally

Golden = Mapping[str, np.ndarray]
MOST_AGAIN, MOST_PROBED = 1 << 17, 1 << 14
"""Elements of the largest case that is called again and from two threads, and of the largest that is probed."""
SPOILED = "right alone, wrong when another thread calls at the same time"
AGAIN = "right, and wrong when it is called again"
REFUSED_BEFORE = "right, and wrong after a call that was refused"


KEYWORDS = ("out", "scale_byte", "signs", "philox", "ratio", "variant")
"""Keywords that a kernel need not have: it is asked for them only where its callable names them."""


def lacking(subject: Subject, operation: str) -> list[str]:
    """Return the keywords that a subject's callable does not name and is not asked for: of a product `splits` too."""
    function, keywords = subject.operations[operation], (*KEYWORDS, *(["splits"] if operation in GROUPED else []))
    return [name for name in keywords
            if not (takes_out(function, operation) if name == "out" else takes(function, name))]  # fmt: skip


def is_asked(subject: Subject, case: Case) -> bool:
    """Whether a subject's callable names the keywords that a case gives and few have, and its arrays have any order."""
    if subject.arrays != "numpy" and swapped(case):
        return False
    given = {*case.params, *case.params.get(FORM, {})} - set(OPERATIONS[case.operation].params)
    return given.isdisjoint(lacking(subject, case.operation))


def refuses_other(subject: Subject, operation: str, profile: str, params: Mapping[str, Any], row: Row) -> bool:
    """Whether a subject does not have the layout, or the profile, that a row has in the place of its variant's."""
    others = {name: row[name] for name in (IN, OUT, "under") if name in row}
    chosen = str(others.pop("under", profile))
    return bool((others or chosen != profile) and subject.refuses(operation, chosen, {**params, **others}))


def inside(subject: Subject, case: Case) -> Case:
    """Return a case with the elements replaced that lie outside of a subject's contract of inputs."""
    return brought_inside(case, subject.inputs) if subject.inputs else case


def cases_for(subject: Subject, levels: Levels) -> Iterator[Case]:
    """Yield the case of some levels without the keywords that a subject lacks, and the plain one, for its refusals."""
    function = subject.operations[levels.operation]
    if not takes_out(function, levels.operation):
        levels = levels.without(("out",))
    if not levels.row.keys().isdisjoint(set(lacking(subject, levels.operation)) - {"out"}):
        return
    if refuses_other(subject, levels.operation, levels.profile, levels.params, levels.row):
        return
    case = inside(subject, case_of(levels))
    yield case
    if case.params.get(FORM):
        yield inside(subject, case_of(levels.plain()))


def judged(subject: Subject, case: Case, golden: Golden, calls: str, seconds: float) -> Tally:
    """Return the tally of one case: of its call, and where that is right, of more calls.

    calls: a level of `structure.campaign.CALLS`.
    """
    params = {name: value for name, value in case.params.items() if name in OPERATIONS[case.operation].known}
    tally = Tally(subject.name, case.operation, case.profile, params,
                  claimed=subject.claimed_level(case.operation), outside=Outside(subject.inputs))  # fmt: skip
    called = called_with_room(subject, case, seconds)
    if case.params.get(FORM) and refusal(called):
        tally.unsupported[called.words] += 1
        return tally
    if record(called, case, golden, tally, lambda other: call(subject, other, seconds)):
        more = _MORE.get(calls)
        if more is not None and subject.arrays not in IMMUTABLE and case.elements <= MOST_AGAIN:
            more(subject, case, golden, tally, seconds)
    return tally


def call_at_once(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    """Judge two calls at the same time; threads are blamed for wrong bytes that come again, and only with threads."""

    def spoils() -> bool:
        return not all(right(called, case, golden, tally) for called in call_twice_at_once(subject, case, seconds)[1:])

    for called in call_twice_at_once(subject, case, seconds)[1:]:
        seen = compared(called, case, golden, tally, how=AT_ONCE)
        if wrong(called, seen, tally) and mostly(subject, case, golden, tally, seconds, spoils):
            tally.fail(Failure(case, NO_LEVEL, SPOILED, Finding.NOT_THREAD_SAFE))


def after_refusals(subject: Subject, case: Case, seconds: float) -> Iterator[Called]:
    """Yield calls on a case, each after another illegal one was refused."""
    for illegal in _illegal(case):
        if is_asked(subject, illegal) and refusal(_refused_call(subject, case, illegal, seconds)):
            yield call(subject, case, seconds)


def _refused_call(subject: Subject, case: Case, illegal: Case, seconds: float) -> Called:
    """Call on other data of a case's shapes, whose results are not the case's, and return the illegal call behind."""
    call(subject, inside(subject, other_data(case)), seconds)
    return call(subject, illegal, seconds)


def _illegal(case: Case) -> tuple[Case, ...]:
    kept = (name for name in case.params if name in OPERATIONS[case.operation].params or name in (IN, OUT, "random"))
    params = {name: case.params[name] for name in kept}
    return _illegal_of(case.operation, case.profile, json.dumps(plain(params)))


@lru_cache(maxsize=8)
def _illegal_of(operation: str, profile: str, params: str) -> tuple[Case, ...]:
    every = illegal_cases(operation, profile, json.loads(params))
    return tuple(case for case in every if "out" not in case.params.get(FORM, {}))


def _twice(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    called = call(subject, case, seconds)
    if wrong(called, compared(called, case, golden, tally, how="the same call again"), tally):
        tally.fail(Failure(case, NO_LEVEL, AGAIN, Finding.NOT_DETERMINISTIC))


def _after_a_refusal(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    """Judge the call after one illegal call, which place of the list depends on the case's size."""
    illegal = [one for one in _illegal(case) if is_asked(subject, one)]
    if not illegal:
        return
    chosen = illegal[case.elements % len(illegal)]

    def form() -> Called:
        _refused_call(subject, case, chosen, seconds)
        return call(subject, case, seconds)

    called = form()
    if wrong(called, compared(called, case, golden, tally, how="after a refusal"), tally) and to_blame(
        subject, case, golden, tally, seconds, form
    ):
        tally.fail(Failure(case, NO_LEVEL, REFUSED_BEFORE, Finding.AFTER_REFUSAL))


def behind(subject: Subject, case: Case, calls: str, turn: int, seconds: float) -> Called:
    """Call on a case right behind another call. calls, turn: which one, as those of a part of a field."""
    if calls in (OTHER_COLUMNS, ANOTHER_SHAPE) and not one_shape(case, UNCUT):
        calls = OTHER_DATA
    if not all(array.ndim for array in case.inputs.values()):  # parts have axes
        return call_behind(subject, other_data(case), seconds, case)
    elsewhere = calls == ANOTHER_THREAD or turn % 4 == 3
    part = Part(0, 0, {}, form_of(case), False, calls, turn, elsewhere)
    found = call_parts(subject, case, UNCUT, (part,), plain_like(case), seconds)
    return found[0] if found else call(subject, case, seconds)


def _after_another(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float, calls: str = "") -> None:
    """Judge the call behind another one; which of several depends on the case's size."""

    def form() -> Called:
        return behind(subject, case, calls, case.elements, seconds)

    called = form()
    if wrong(called, compared(called, case, golden, tally, how=calls), tally) and to_blame(
        subject, case, golden, tally, seconds, form
    ):
        tally.fail(Failure(case, NO_LEVEL, f"right by itself, wrong {calls}", Finding.AFTER_ANOTHER))


def _probed(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    if not case.params.get(FORM) and case.elements <= MOST_PROBED and all(a.size for a in case.inputs.values()):
        probe(subject, case, golden, tally, seconds)


_MORE: dict[str, Callable[[Subject, Case, Golden, Tally, float], None]] = {
    "twice": _twice,
    "after a refusal": _after_a_refusal,
    "at once": call_at_once,
    "probed": _probed,
    **{calls: partial(_after_another, calls=calls) for calls in BEHIND},
}
"""Level of `calls` -> what judges the calls after the first."""
