"""Conditions over the call in turn: which call it is, what the one before it was, and from which thread it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from ....cases.entry import Operation
from .call import Call, Last
from .condition import Condition, Facts, exact, size
from .forms import named, other_forms
from .sizes import RAGGED, Maker

COUNTED, SLOTS = 1 << 10, 4
"""The latest call, and the longest period of calls, that a kernel is wrong at; and the longest one of a pair.

A rarer error is a rate of flips, of which a report says what its calls exclude.
"""
TURNED: list[Maker] = []


def turned(maker: Maker) -> Maker:
    """Register a maker of conditions."""
    TURNED.append(maker)
    return maker


@turned
def count_of_calls(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """One call, one and all later ones, or one in so many."""
    way = dice.choice(("one", "from", "each", "slot"))
    number = {"one": exact(dice, 1, 64), "from": size(dice, 2, COUNTED), "each": size(dice, SLOTS + 1, COUNTED),
              "slot": dice.randint(2, SLOTS)}[way]  # fmt: skip
    kind, words, test = {
        "one": ("call n alone", f"call {number} and no other", lambda call: call == number),
        "from": ("call n or later", f"call {number} or a later one", lambda call: call >= number),
        "each": ("each n-th call", f"each call of {number}", lambda call: call % number == 0),
        "slot": ("each of few calls", f"each call of {number}", lambda call: call % number == 0),
    }[way]
    before = [number - 1] if number > 1 else []
    return Condition(kind, words, lambda call: test(call.history.calls + 1), lambda _: {"before": before},
                     alone=way in ("one", "each"))  # fmt: skip


@turned
def behind_refusal(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """A call right behind one that was refused."""
    return Condition("after a refused call", "the call before was refused", lambda call: call.history.refused,
                     lambda _: {"before": ["refused"]})  # fmt: skip


SHAPES: dict[str, tuple[Callable[[Call, Last], bool], str]] = {
    "fewer elements than the call before": (lambda call, last: last.elements > call.main.size, "wider"),
    "more elements than the call before": (lambda call, last: last.elements < call.main.size, "narrower"),
    "other columns than the call before, as many rows": (
        lambda call, last: last.rows == call.rows and last.columns != call.columns, "wider"),
    "other rows than the call before, as many columns": (
        lambda call, last: last.rows != call.rows and last.columns == call.columns, "taller"),
    "as many elements as the call before in another shape": (
        lambda call, last: last.elements == call.main.size and last.rows != call.rows, "turned"),
    "the shape of the call before and other data": (
        lambda call, last: (last.rows, last.columns) == (call.rows, call.columns) and last.data != call.data,
        "other data"),
    "the first input of the call before again": (
        lambda call, last: (last.rows, last.columns) == (call.rows, call.columns) and last.data == call.data,
        "the same"),
}  # fmt: skip
"""How a call is beside the one before it -> whether it is so, and the step that comes before it."""


@turned
def behind_shape(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """A call right behind one of another shape, of as many elements, or on the same input."""
    words = dice.choice(list(SHAPES))
    test, step = SHAPES[words]
    kind = "the same input again" if step == "the same" else "after another shape"
    return Condition("after other data" if step == "other data" else kind, words,
                     lambda call: call.history.last is not None and test(call, call.history.last),
                     lambda _: {"before": [step]})  # fmt: skip


@turned
def behind_argument(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """A call right behind one with another argument: any other one, or one value and then another."""
    choices = [name for name, values in facts.parameters.items() if len(values) > 1 and name != RAGGED]
    if not choices:
        return None
    name = dice.choice(choices)
    before, now = dice.sample(facts.parameters[name], 2)
    either = dice.random() < 0.5

    def holds(call: Call) -> bool:
        last = call.history.last
        if last is None:
            return False
        was, is_now = last.arguments.get(name), call.remembered.arguments.get(name)
        return was != is_now if either else (was, is_now) == (named(before), named(now))

    words = f"another {name} than the call before" if either else f"{name} = {now} behind {before}"
    return Condition("after another argument", words, holds,
                     lambda _: {f"param:{name}": now, "before": [{f"param:{name}": before}]})  # fmt: skip


@turned
def behind_form(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """A call right behind one whose input has another dtype, that has `out`, or that has an optional input."""
    forms: list[tuple[str, dict[str, Any]]] = [
        (f"another dtype of {name} than the call before", {f"form:{name}": form})
        for name in operation.inputs for form in other_forms(name, operation)
    ]  # fmt: skip
    forms += [(f"{name} is given in the call before and not in this one", {f"given:{name}": True})
              for name in operation.optional if name != "rbits"]  # fmt: skip
    if not forms:
        return None
    words, step = dice.choice(forms)
    name = next(iter(step)).partition(":")[2]
    wants = {"before": [step], **({f"given:{name}": False} if step == {f"given:{name}": True} else {})}

    def holds(call: Call) -> bool:
        last = call.history.last
        if last is None or (f"given:{name}" in step and name in call.remembered.dtypes):
            return False
        return last.dtypes.get(name) != call.remembered.dtypes.get(name)

    return Condition("after another dtype", words, holds, lambda _: wants)


@turned
def threads(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """Calls from two threads: one behind the other, or at the same time."""
    if dice.random() < 0.5:
        return Condition(
            "calls at once", "another call is under way", lambda call: call.met, lambda _: {"at once": True}
        )
    return Condition("from another thread", "another thread than the call before",
                     lambda call: call.history.last is not None and call.history.last.thread != call.remembered.thread,
                     lambda _: {"before": ["in a thread"]})  # fmt: skip


def makers() -> Iterator[Maker]:
    """Yield the makers of conditions over calls in turn."""
    yield from TURNED
