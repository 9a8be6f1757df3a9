"""What a subject must refuse: illegal calls, each followed by a legal one, which must still be right.

Whole numbers in the other byte order are legal: a subject refuses them or reads them by their value.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from refnum.errors import RefnumError

from ...cases.case import FORM, Case
from ...cases.crop import of_experts
from ...cases.layouts import IN, OUT
from ...cases.levels import Outcome
from ...cases.operation import OPERATIONS, call_golden, run_golden
from ...cases.structure import byte_order
from ...cases.structure.illegal import READABLE, illegal_cases, legal_beside, readable_cases
from ...subjects.calls.call import call
from ...subjects.subject import Subject, takes
from ...verdicts.judge import record
from ...verdicts.refusals import refusal
from ...verdicts.structural import is_asked
from .asking import Asking

DEVICES, ON_DEVICE = ("cupy", "torch-cuda", "jax"), (
    "illegal: a row index", "illegal: a code beyond", "illegal: r_under beyond", "illegal: r_log beyond",
)  # fmt: skip
"""Libraries whose kernels cannot refuse a value that lies on the device (N0), and illegal calls by such values."""


def ask(engine: Asking, key: tuple[str, str, dict[str, Any]], names: set[str]) -> None:
    """Make every illegal call of a variant to the subjects of these names, and the legal one after each."""
    if OPERATIONS[key[0]].undefined(key[1]):
        return
    engine.book.enter(key, "illegal")
    legal: dict[bool, tuple[Case, dict[str, Any] | None]] = {}
    for engine.number, case in enumerate(illegal_cases(*key)):
        subjects = [one for one in engine.active() if one.name in names and _is_asked(one, case)]
        if not subjects or not _refused_by_model(engine, case):
            continue
        experts = of_experts(case)
        if experts not in legal:
            beside = legal_beside(*key, experts)
            legal[experts] = beside, engine.golden(beside)
        beside, golden = legal[experts]
        if golden is None:
            continue
        for subject in subjects:
            engine.book.note(subject.name, engine.number)
            if _judge(engine, subject, case):
                engine.one(subject, beside, golden)
    engine.book.enter(key, READABLE)
    for engine.number, case in enumerate(readable_cases(*key)):
        _ask_readable(engine, names, case)


def _ask_readable(engine: Asking, names: set[str], case: Case) -> None:
    """Make a call that subjects may refuse, and judge those that answer."""
    subjects = [one for one in engine.active() if one.name in names and is_asked(one, case)]
    golden = engine.golden(case) if subjects else None
    if golden is None:
        return
    for subject in subjects:
        inside, seconds = engine.inside(subject, case, golden), engine.plan.seconds
        if inside is None:
            continue
        engine.book.note(subject.name, engine.number)
        called = engine.watched(subject, partial(call, subject, inside[0], seconds))
        if not refusal(called):
            record(called, *inside, engine.tallies[subject.name], partial(call, subject, seconds=seconds))
        engine.lost(subject, engine.tallies[subject.name])


def _is_asked(subject: Subject, case: Case) -> bool:
    """Whether a subject names the keywords of an illegal call and could see what is wrong with it."""
    if case.label.startswith(ON_DEVICE) and subject.arrays in DEVICES:
        return False
    if case.params.get(FORM) == {"out": "read-only"} and subject.arrays != "numpy":
        return False  # no other library has arrays that cannot be written
    if any(name in case.params and not takes(subject.operations[case.operation], name) for name in (IN, OUT)):
        return False
    return is_asked(subject, case)


def _refused_by_model(engine: Asking, case: Case) -> bool:
    """Whether the golden model refuses a case; one that it takes is the harness's own fault, forms of calls apart."""
    if case.params.get(FORM) and ("out" in case.params[FORM] or not byte_order.swapped(case)):
        return True
    as_stored = byte_order.swapped(case) or (OUT in case.params and IN not in case.params)
    try:
        (call_golden if as_stored else run_golden)(case)
    except RefnumError:
        return True
    except Exception as error:
        engine.report.harness.append(f"the golden model failed on {case.label}: {type(error).__name__}: {error}")
        return False
    engine.report.harness.append(f"the golden model takes {case} ({case.label})")
    return False


def _judge(engine: Asking, subject: Subject, case: Case) -> bool:
    """Make an illegal call; return whether it was refused, else note what became of it."""
    tally = engine.tallies[subject.name]
    called = engine.watched(subject, partial(call, subject, case, engine.plan.seconds))
    if refusal(called):
        tally.coverage.illegal += 1
        return True
    if called.returned or called.outcome in (Outcome.PASS, Outcome.MISMATCH):
        tally.accepted.append((case.label.removeprefix("illegal: "), case))
    else:
        words = f"{called.words} ({case.label}; it must be refused with {_refusal_of(subject)})"
        tally.faults.append((called.outcome, words, case))
    engine.lost(subject, tally)
    return False


def _refusal_of(subject: Subject) -> str:
    return "the line `unsupported REASON`" if subject.origin.startswith("exec:") else "an error"
