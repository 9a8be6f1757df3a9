"""The structural cases of a variant, each judged for every subject: shapes, counts, and forms of the call.

A form that a subject refuses with an error of its own is no failure; then the rest of the row is asked without it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import refnum

from ...cases.case import FORM, Case
from ...cases.findings import Finding
from ...cases.levels import NO_LEVEL
from ...cases.structure import Asked, build, structure_cases
from ...cases.structure.build import form_of
from ...cases.structure.covering import Row
from ...cases.structure.cutting import ANOTHER_VARIANT, REFUSED
from ...cases.structure.illegal import illegal_cases
from ...cases.structure.plan import CALLS, structure_rows
from ...subjects.arrays import IMMUTABLE
from ...subjects.calls.call import Called, call, one_changed
from ...subjects.calls.company import other_variants
from ...subjects.subject import Subject, declines
from ...verdicts.judge import behind_of, record
from ...verdicts.probes import probe
from ...verdicts.refusals import refusal
from ...verdicts.structural import call_at_once, is_asked, lacking, refuses_other
from ...verdicts.tally import Failure, Tally
from . import sweep
from .asking import Asking

PROBED, LEAST_PROBED, MOST_PROBED = 5, 1 << 8, 1 << 14
"""Structural cases on which the calling contract is probed too, and their elements; no two have columns alike."""
WHOLE_SHAPES = ("64x128", "128x512")
"""Shapes of whole tiles."""
MOST_AGAIN = 1 << 16
"""Elements of the largest case that is called again, or from two threads."""
SECONDS, BRIEF_SECONDS, MINUTE = 600.0, 120.0, 60.0
"""Seconds of one subject's calls after which no further structural case is asked, so that nothing is verified: of its
first variants, and of others. A time limit of a call above a minute makes both longer in proportion, none endless."""
FIRST = {"storage": "contiguous", "address": 0, "dtype": None, "sequence": "tuple", "out": "contiguous",
         "splits": "list", "profile": "object", "scalars": "plain", "padding": "zero"}  # fmt: skip
"""The end of a factor of form -> its plain level; None where the plain one has no name."""


def amount_for(engine: Asking) -> str:
    """Return how much is asked of a variant: all on a subject's first one, levels alone on the others."""
    if engine.plan.level == "smoke":
        return "smoke"
    if not new_to(engine, engine.active()):
        return "brief"
    return "exhaustive" if engine.plan.level == "exhaustive" else "full"


def new_to(engine: Asking, subjects: list[Subject]) -> list[Subject]:
    """Return those of some subjects that were asked all structure of no variant of this kind; none at level smoke."""
    if engine.plan.level == "smoke":
        return []
    return [subject for subject in subjects if (subject.name, engine.item.kind) not in engine.plan.structured]


def ask(engine: Asking, key: tuple[str, str, dict[str, Any]]) -> set[str]:
    """Judge every subject of a variant on its structural cases; return the names of those that were asked in full."""
    amount, profile = amount_for(engine), refnum.get_profile(engine.item.profile)
    subjects = [subject for subject in engine.active() if not _decided(engine, subject, amount, profile.rounding)]
    names = {subject.name for subject in subjects}
    if not subjects:
        return set()
    rows = structure_rows(*key, amount)
    wanted = {subject.name: partial(_has, subject, key, frozenset(lacking(subject, key[0]))) for subject in subjects}
    for subject in subjects:
        engine.tallies[subject.name].coverage.expect(filter(wanted[subject.name], rows))
        if amount in ("full", "exhaustive"):
            engine.plan.structured.add((subject.name, engine.item.kind))
    engine.book.enter(key, f"structure {amount}")
    seen: dict[int, int] = {}
    illegal = [case for case in illegal_cases(*key) if "out" not in case.params.get(FORM, {})]
    before = {
        subject.name: {
            REFUSED: [case for case in illegal if is_asked(subject, case)],
            ANOTHER_VARIANT: other_variants(subject, *key),
        }
        for subject in subjects
    }
    for asked in structure_cases(*key, amount, lambda row: any(one(row) for one in wanted.values())):
        engine.number = asked.number
        if not any(subject.name in names for subject in engine.active()):
            break
        golden = engine.golden(asked.case)
        if golden is None:
            continue
        for subject in engine.cover(asked.case, golden, False, {s.name for s in engine.judged} - names):
            if not (wanted[subject.name](asked.row) and is_asked(subject, asked.case)):
                continue
            if _too_slow(engine, subject, amount):
                continue
            spent = engine.tallies[subject.name].seconds
            calls = str(asked.row.get("calls"))
            if first := before[subject.name].get(calls):  # it must leave nothing behind
                call(subject, first[asked.number // 3 % len(first)], engine.plan.seconds)
            if _judge(engine, subject, asked, golden) and engine.judged_as:
                _call_more(engine, subject, replace(asked, case=engine.judged_as[0]), engine.judged_as[1])
            engine.tallies[subject.name].coverage.seconds += engine.tallies[subject.name].seconds - spent
            if amount != "brief" and engine.was_compared and engine.judged_as and _worth_probing(asked, seen):
                probe(subject, *engine.judged_as, engine.tallies[subject.name], engine.plan.seconds)
    sweep.ask(engine, key, amount, names, lambda one, field: not is_asked(one, field) or _too_slow(engine, one, amount),
              partial(_judge, engine))  # fmt: skip
    ordinary = not engine.item.special  # the storage of a layout has legal shapes of its own
    return names if ordinary and amount in ("full", "exhaustive") else set()


def _has(subject: Subject, key: tuple[str, str, dict[str, Any]], unnamed: frozenset[str], row: Row) -> bool:
    """Whether a subject has the keywords and the layouts of a row. unnamed: keywords that it does not name."""
    return unnamed.isdisjoint(row) and not refuses_other(subject, *key, row)


def _worth_probing(asked: Asked, seen: dict[int, int]) -> bool:
    """Whether the calling contract is probed on a case too: one of each residue of the columns, some in all."""
    array = next(iter(asked.case.inputs.values()))
    if asked.case.params.get(FORM) or not LEAST_PROBED <= asked.case.elements <= MOST_PROBED or array.ndim < 2:
        return False
    place = seen.setdefault(array.shape[-1] % 128, asked.number)
    return place == asked.number and len(seen) <= PROBED


def _decided(engine: Asking, subject: Subject, amount: str, rounding: str) -> bool:
    """Whether another profile of the same code was asked the structure of these parameters; noted."""
    if engine.plan.level == "exhaustive" or not subject.one_code or rounding == "stochastic":
        return False
    before = _before(engine, subject)
    before.append(engine.item.profile)
    return len(before) > 1


def _before(engine: Asking, subject: Subject) -> list[str]:
    """Return the profiles under which a subject was asked the structure of a variant's parameters."""
    place = (subject.name, engine.item.operation.name, repr(engine.item.params))
    return engine.plan.decided.setdefault(("structure", *place), [])


def known_code(engine: Asking, subject: Subject) -> bool:
    """Whether the same code was asked the structure of a variant's parameters before, under other profiles."""
    stochastic = refnum.get_profile(engine.item.profile).rounding == "stochastic"
    alike = subject.one_code and not stochastic and engine.plan.level != "exhaustive"
    return alike and bool(_before(engine, subject))


def _too_slow(engine: Asking, subject: Subject, amount: str) -> bool:
    """Whether a subject has used up its time, as one that compiles anew for every shape does; noted."""
    coverage, limit = engine.tallies[subject.name].coverage, engine.plan.seconds
    most = (SECONDS if amount in ("full", "exhaustive") else BRIEF_SECONDS) * max(1.0, limit / MINUTE)
    if limit and coverage.seconds > most and not coverage.cut:
        coverage.cut = f"structural cases beyond {most:.0f} seconds were not asked; a longer --timeout allows more"
    return bool(coverage.cut)


def _judge(engine: Asking, subject: Subject, asked: Asked, golden: dict[str, Any]) -> bool:
    """Judge a subject on one case and count it; a form that is refused is asked again without what was refused.

    Returns whether it held.
    """
    tally = engine.tallies[subject.name]
    if not asked.case.params.get(FORM):
        held = engine.one(subject, asked.case, golden)
        tally.structural += held is not None
        if held is not None or not tally.stopped:
            tally.coverage.add(asked.row, asked.case, held is not None)
        return bool(held)
    called, held = called_in_form(engine, subject, asked.case, golden)
    if called is None:
        tally.coverage.add(asked.row, asked.case, True)
        return bool(held)
    tally.coverage.add(asked.row, asked.case, False)
    case = engine.judged_as[0] if engine.judged_as else asked.case
    if not called.declared and not refusal(call(subject, case, engine.plan.seconds)):
        tally.fail(Failure(case, NO_LEVEL, f"{sweep.WAVERS}: {called.words}", Finding.NOT_DETERMINISTIC))
    elif called.declared:
        if not declines(subject, replace(case, params={**case.params, FORM: {}})):  # else no shape helps
            _in_other_shapes(engine, subject, asked, tally)
    else:
        _pin_down(engine, subject, asked, tally, called)
    return False


def _call_more(engine: Asking, subject: Subject, asked: Asked, golden: dict[str, Any]) -> None:
    """Call a subject that was right once more, or twice at the same time, as the row says, and judge it.

    Every other call once more has data that differ in one element: a kernel may know its input by its ends.
    """
    tally, level = engine.tallies[subject.name], asked.row.get("calls")
    if subject.arrays in IMMUTABLE or asked.case.elements > MOST_AGAIN or level not in ("twice", "at once"):
        return
    start = time.perf_counter()
    seconds = engine.plan.seconds
    if level == "twice":
        case = one_changed(asked.case) if asked.number // len(CALLS) % 2 else asked.case
        found = golden if case is asked.case else engine.golden(case)
        inside = None if found is None else engine.inside(subject, case, found)
        if inside is not None:
            called = call(subject, inside[0], seconds)
            again = partial(call, subject, seconds=seconds) if called.answered else None
            record(called, *inside, tally, again, how="the same call again")
    elif level == "at once":
        call_at_once(subject, asked.case, golden, tally, seconds)
    tally.seconds += time.perf_counter() - start
    engine.lost(subject, tally)


def called_in_form(
    engine: Asking, subject: Subject, case: Case, golden: Any, before: Case | None = None
) -> tuple[Called | None, bool | None]:
    """Judge a call in its form; return the call if it was refused, else None, and whether it held.

    before: as in `Engine.one`.
    """
    tally = engine.tallies[subject.name]
    inside = engine.inside(subject, case, golden)
    engine.judged_as = inside
    if inside is None:
        return None, None
    case, golden = inside
    called = engine.watched(subject, partial(call, subject, case, engine.plan.seconds))
    if refusal(called):
        return called, None
    again = partial(call, subject, seconds=engine.plan.seconds)
    held = record(called, case, golden, tally, again, behind=behind_of(subject, before, engine.plan.seconds))
    tally.structural += held is not None
    engine.lost(subject, tally)
    return None, held


def _in_other_shapes(engine: Asking, subject: Subject, asked: Asked, tally: Tally) -> None:
    """Ask a form in shapes of whole tiles, for its own may be outside of what is declared.

    Where none of them is taken even in the plain form, nothing more is known of it than that it was refused.
    """
    plain = {name: _plain(name, level, form_of(asked.row)) for name, level in asked.row.items()}
    for shape in WHOLE_SHAPES:
        if _ask(engine, subject, asked, {**asked.row, "form shape": shape}, tally, ""):
            return
        if _ask(engine, subject, asked, {**plain, "form shape": shape}, tally, ""):
            whole = replace(asked, row={**asked.row, "form shape": shape})
            _pin_down(engine, subject, whole, tally, Called(words="refused in this form alone"))
            return


def _pin_down(engine: Asking, subject: Subject, asked: Asked, tally: Tally, called: Called) -> None:
    """Ask a refused form without levels that are known to be refused; where that, or no such level, is no answer,
    every level alone, once, and then all of them that are answered together."""
    row, form = asked.row, form_of(asked.row)
    if len(form) == 1:
        tally.coverage.forms.setdefault(_words(form), called.words)
        return
    plain = {name: _plain(name, level, form) for name, level in row.items()}
    out = {name: level for name, level in form.items() if name == "out"}
    known = {name for name, level in form.items() if _words({name: level}) in tally.coverage.forms}
    rest = {name: level for name, level in form.items() if name not in known}
    words = _words(rest) if len(rest) == 1 else ""
    if known and (not rest or _ask(engine, subject, asked, {**plain, **rest}, tally, words)):
        return
    answered = dict(out)
    for name, level in form.items():
        one = {name: level}
        if name in out or _words(one) in tally.coverage.forms:
            continue
        if _ask(engine, subject, asked, {**plain, **out, **one}, tally, _words(one)):
            answered[name] = level
    if answered and len(answered) < len(form):
        _ask(engine, subject, asked, {**plain, **answered}, tally, "")


def _plain(name: str, level: Any, form: dict[str, Any]) -> Any:
    return FIRST[name.rpartition(".")[2]] if name in form else level


def _ask(engine: Asking, subject: Subject, asked: Asked, row: Row, tally: Tally, words: str) -> bool:
    """Judge a subject on a row made simpler; note it as refused in these words; return whether it was answered."""
    kept = {name: level for name, level in row.items() if level is not None}
    case = build(asked.case.operation, asked.case.profile, engine.item.params, kept, asked.number)
    golden = engine.golden(case)
    if golden is None:
        return False
    called, _ = called_in_form(engine, subject, case, golden)
    tally.coverage.add(kept, case, called is None)
    if called is not None and words:
        tally.coverage.forms.setdefault(words, called.words)
    return called is None


def _words(form: dict[str, Any]) -> str:
    return ", ".join(f"{name} {level}" for name, level in form.items())
