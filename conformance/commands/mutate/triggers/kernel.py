"""The wrong kernel: a base kernel, right but for a trigger, behind the base's own signature with `out=` beside it."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

from refnum.errors import ArgumentError

from ....cases.entry import Operation
from ....cases.operation import OPERATIONS, without_bools
from .call import Call, History
from .condition import Condition
from .effects import INTO_OUT, Effect, Results, applied

MEETING = 0.002
"""Seconds that a call takes when there are other threads: as long as a kernel, so that two calls can meet."""


@dataclass(frozen=True)
class Trigger:
    """Conditions, all of which a call must meet, and what becomes of its results then.

    number: the output that is struck. region: where in it, for conditions that name no places.
    """

    conditions: tuple[Condition, ...]
    effect: Effect
    number: int
    region: str

    def fires(self, call: Call) -> bool:
        """Whether a call meets every condition."""
        return all(condition.holds(call) for condition in self.conditions)

    def places(self, call: Call) -> np.ndarray | None:
        """Return the elements of the first input that a relation of values names, or None."""
        of = [condition.places for condition in self.conditions if condition.places is not None]
        return of[0](call) if of else None

    def of(self, operation: Operation) -> str:
        """Return the trigger in words."""
        where = " and ".join(condition.words for condition in self.conditions)
        if self.effect.change is None:
            return f"where {where}: {self.effect.words}"
        named = any(condition.places is not None for condition in self.conditions)
        part = "the element there" if named else self.region
        return f"where {where}: {part} of {operation.outputs[self.number].name} {self.effect.words}"


def kernel(name: str, base: Callable[..., Any], trigger: Trigger | None) -> Callable[..., Any]:
    """Return an operation's kernel with a trigger; without one it is right.

    base: a right kernel with the golden signature. The result remembers its calls.
    """
    operation, history = OPERATIONS[name], History()
    own = "out" in operation.params  # which is a dtype, and no array to fill
    signature = inspect.signature(base) if own else _with_out(inspect.signature(base))

    @wraps(base)
    def run(*positional: Any, **keywords: Any) -> Any:
        bound = signature.bind(*positional, **keywords)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        out = None if own else arguments.pop("out")
        return _called(operation, base, trigger, history, arguments, out)

    run.__signature__, run.history = signature, history  # type: ignore[attr-defined]
    return run


def _with_out(signature: inspect.Signature) -> inspect.Signature:
    if "out" in signature.parameters:
        return signature
    out = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)
    return signature.replace(parameters=[*signature.parameters.values(), out])


def _called(
    operation: Operation,
    base: Callable[..., Any],
    trigger: Trigger | None,
    history: History,
    arguments: dict[str, Any],
    out: Any,
) -> Any:
    number = _enter(history)
    try:
        right, absent = _results(base, arguments)
    except Exception:
        history.refused = True
        raise
    finally:
        met = _leave(history, number)
    call = Call(operation, arguments, out, history, met)
    _check(call.outs, right, out)
    remembered = None if trigger is None else call.remembered  # before an effect writes an input
    fired = trigger is not None and trigger.fires(call)
    results = right
    if fired and trigger is not None:
        again = lambda **keywords: _results(base, keywords)[0]  # noqa: E731
        where = trigger.region, trigger.places(call)
        results = applied(
            trigger.effect, trigger.number, [np.array(one, order="C", copy=True) for one in right], call, again, where
        )
    history.calls += call.main.size > 0
    history.refused = False
    history.last = remembered
    history.results = tuple(np.array(array, copy=True) for array in results) if trigger is not None else ()
    own = fired and trigger is not None and trigger.effect in INTO_OUT
    return _handed(results, absent, out, call, own)


def _enter(history: History) -> tuple[int, bool]:
    with history.lock:
        history.entered += 1
        history.inside += 1
        return history.entered, history.inside > 1


def _leave(history: History, entry: tuple[int, bool]) -> bool:
    """Return whether another call was under way since an entry."""
    if threading.active_count() > 1:
        time.sleep(MEETING)
    with history.lock:
        history.inside -= 1
        return entry[1] or history.entered > entry[0]


def _results(base: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Results, int | None]:
    """Return the arrays of a call, truth values as bytes; and how many None stand behind them.

    None in place of the number where the result is one array.
    """
    given = base(**arguments)
    if not isinstance(given, tuple):
        return [without_bools(given)], None
    arrays = [without_bools(array) for array in given if array is not None]
    return arrays, len(given) - len(arrays)


def _check(outs: tuple[Any, ...], results: Results, out: Any) -> None:
    """Raise ArgumentError unless the arrays of `out` are as the results are."""
    if out is None:
        return
    want = [(array.shape, array.dtype) for array in results]
    found = [(getattr(one, "shape", None), getattr(one, "dtype", None)) for one in outs]
    if found != want:
        raise ArgumentError(f"out is {found}; allowed is {want}")


def _handed(results: Results, absent: int | None, out: Any, call: Call, own: bool) -> Any:
    """Return what a caller gets: the results, or `out` filled with them."""
    if out is not None and not own:
        for array, result in zip(call.outs, results, strict=True):
            np.copyto(array, result, casting="unsafe")
        return out
    return results[0] if absent is None else (*results, *[None] * absent)
