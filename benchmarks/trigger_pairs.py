"""Which pairs of conditions the questions of structure meet, without running a kernel or the model on them.

    python benchmarks/trigger_pairs.py [OPERATION ...] [--seed 1] [--conditions 110]

The generator of `refnum mutate triggers` draws so many conditions of each operation. The planned calls of all its
variants at level standard are made on a function that only notes which conditions hold. Of all pairs of conditions
that the generator could draw together those are printed that no call meets, by the classes of both, next to all pairs
of the classes. Some of them no legal call can meet. Conditions on values, which are dear to tell, are few.
"""

import argparse
import itertools
import threading
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np

import refnum
from refnum.conformance.cases.operation import OPERATIONS, outputs_of, select
from refnum.conformance.cases.structure import structure_cases
from refnum.conformance.cases.structure.cutting import AT_ONCE, REFUSED, ROWS
from refnum.conformance.cases.structure.fields import fields
from refnum.conformance.cases.structure.turns import cases_in_turn
from refnum.conformance.commands.check.plan import Plan, variants
from refnum.conformance.commands.mutate.triggers.call import Call, History
from refnum.conformance.commands.mutate.triggers.condition import Condition
from refnum.conformance.commands.mutate.triggers.draw import MAKERS
from refnum.conformance.commands.mutate.triggers.kernel import kernel
from refnum.conformance.commands.mutate.triggers.values import VALUED
from refnum.conformance.commands.mutate.triggers.witness import PROFILES, facts_of
from refnum.conformance.subjects.calls import parts
from refnum.conformance.subjects.calls.call import call
from refnum.conformance.subjects.subject import Subject
from refnum.errors import ArgumentError, RefnumError

FEW = 12
"""Conditions on values."""


def drawn(name: str, seed: int, count: int) -> list[Condition]:
    """Return so many conditions of an operation, and few on values."""
    dice, found, valued = Random(f"pairs {name} {seed}"), list[Condition](), 0
    while len(found) < count + min(valued, FEW):
        maker = dice.choice(MAKERS)
        condition = maker(dice, OPERATIONS[name], facts_of(name))
        valued += maker in VALUED and condition is not None
        if condition is not None and not condition.alone and not (maker in VALUED and valued > FEW):
            found.append(condition)
    return found


class Notes:
    """A function that gives nothing and notes which conditions its calls meet; `quiet` ones are not noted."""

    def __init__(self, name: str, conditions: list[Condition]) -> None:
        self.operation, self.conditions, self.history = OPERATIONS[name], conditions, History()
        self.met: list[list[bool]] = []
        self.quiet, self.at_once = False, False

    def called(self, arguments: dict[str, Any], out: Any) -> tuple[()]:
        """Note a call; a refused one is known by its shape."""
        if np.shape(arguments[self.operation.inputs[0]]) == (2, 2, 2):
            self.history.refused = True
            raise ArgumentError("refused")
        one = Call(self.operation, arguments, out, self.history, self.at_once)
        if not self.quiet:
            self.met.append([condition.holds(one) for condition in self.conditions])
        self.history.last, self.history.refused = one.remembered, False
        self.history.calls += one.main.size > 0
        return ()


def noted(name: str, conditions: list[Condition]) -> np.ndarray:
    """Return bool [calls, conditions]: which conditions hold on each planned call that is judged."""
    notes = Notes(name, conditions)
    signature, own = kernel(name, getattr(refnum, name), None).__signature__, "out" in OPERATIONS[name].params  # type: ignore[attr-defined]

    def run(*positional: Any, **keywords: Any) -> tuple[()]:
        bound = signature.bind(*positional, **keywords)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        return notes.called(arguments, None if own else arguments.pop("out"))

    run.__signature__ = signature  # type: ignore[attr-defined]
    subject = Subject("notes", {name: run}, profiles=(*PROFILES, *(["STOCHASTIC"] if OPERATIONS[name].keyed else [])))
    _watch(notes)
    plan, seen = Plan([subject], select([name]), named=frozenset([name]), special=True, save=False), set[str]()
    for item in variants(plan):
        key = name, item.profile, item.params
        if not subject.refuses(*key):
            _asked(notes, subject, key, "brief" if item.kind in seen else "full")
            seen.add(item.kind)
    return np.array(notes.met, bool)


def _watch(notes: Notes) -> None:
    """Note no calls that only go before others; of calls at once the first one, then one behind another thread's."""

    def quietly(function: Any, keywords: Any, errors: Any = Exception) -> None:
        notes.quiet = True
        with suppress(Exception):
            function(**keywords)
        notes.quiet = False

    def at_once(sweep: Any, alone: Any, asked: Any) -> tuple[()]:
        notes.at_once = True
        sweep.function(**alone)
        thread = threading.Thread(target=quietly, args=(sweep.function, alone))
        thread.start()
        thread.join()
        sweep.function(**asked)
        notes.at_once = False
        return ()

    parts._quietly, parts.Sweep._at_once = quietly, at_once  # type: ignore[method-assign]


def _asked(notes: Notes, subject: Subject, key: tuple[str, str, dict[str, Any]], amount: str) -> None:
    """Make the calls that are planned for a variant; those on parts of fields as a check makes them."""
    for before, case in cases_in_turn(*key):
        notes.quiet = True
        call(subject, before)
        notes.quiet = False
        call(subject, case)
    for one in structure_cases(*key, amount):
        notes.history.refused = one.row.get("calls") == REFUSED
        notes.at_once = one.row.get("calls") == AT_ONCE
        call(subject, one.case)
        notes.at_once = False
    for field in fields(*key, amount):
        cut, like = field.cutting, []
        most = max(part.first + part.count for part in field.parts) if field.cutting.axis == ROWS else 64
        for output in outputs_of(field.case):
            axis, step = cut.outputs.get(output.name, (0, 1))
            like.append(np.zeros((most * step, 32) if axis == 0 else (32, most * step), np.uint8))
        with suppress(RefnumError):  # scales of another shape have no layout
            sweep = parts.Sweep(subject, field.case, cut, like)
            for part in field.parts:
                sweep.called(part)


def main() -> None:
    """Print the shares, and the classes of most pairs that are not asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", default=list(OPERATIONS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--conditions", type=int, default=110)
    given = parser.parse_args()
    every, missed = Counter[str](), Counter[str]()
    for name in given.operations:
        conditions = drawn(name, given.seed, given.conditions)
        met = noted(name, conditions).astype(np.float32)
        together, here = met.T @ met, Counter[bool]()
        for (a, one), (b, other) in itertools.combinations(enumerate(conditions), 2):
            if one.kind != other.kind and not one.keys & other.keys and not (one.places and other.places):
                classes, asked = " + ".join(sorted((one.kind, other.kind))), bool(together[a, b])
                here[asked] += 1
                every[classes] += 1
                missed[classes] += not asked
        print(f"{name:28s} {len(met):6d} calls, {100 * here[False] / here.total():5.1f} % of the pairs not asked")
    for classes, count in missed.most_common(40):
        print(f"{count:6d} of {every[classes]:6d}  {classes}")


if __name__ == "__main__":
    main()
