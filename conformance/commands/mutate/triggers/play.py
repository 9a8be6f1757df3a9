"""A call as it is made: how arrays are stored, what `out` is, what goes before, and what comes of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

import refnum

from ....cases.case import Case
from ....cases.entry import Operation
from ....cases.operation import OPERATIONS, arguments_of, without_bools
from ....cases.recipes.inputs import expand
from ....cases.recipes.random_bits import by_key
from ....cases.recipes.recipe import Recipe
from ....subjects.calls.call import other_data
from .call import PAYLOAD, address
from .sizes import RAGGED

MARGIN = 256


class UnfitError(Exception):
    """No legal call has all that is wanted of it."""


@dataclass(frozen=True)
class Step:
    """A call that goes before another one. words: what it is beside it. arguments: its keywords if they are its own.

    times: how often it is made; all but the last time are only counted.
    """

    words: str
    arguments: Mapping[str, Any] | None = None
    times: int = 1


@dataclass
class Play:
    """A call and what goes before it. case: its data. arguments: its keywords. out: how `out` is given, or nothing.

    before: calls made first. at_once: whether two threads make it at a time. unit: of which columns are a multiple.
    """

    case: Case
    arguments: dict[str, Any]
    out: str = ""
    before: list[Step] = field(default_factory=list)
    at_once: bool = False
    unit: int = 1


def play_of(operation: Operation, case: Case, wanted: Mapping[str, Any], dice: Random) -> Play:
    """Return the play of a case: its arrays stored as wanted, its splits in their form."""
    arguments = dict(arguments_of(case))
    if operation.profiled:
        arguments["profile"] = refnum.get_profile(case.profile)
    form = wanted.get("splits form", "a list")
    if arguments.get(RAGGED) is not None:
        arguments[RAGGED] = SPLITS[form](arguments[RAGGED])
    for key, value in wanted.items():
        kind, _, name = key.partition(":")
        if kind in STORED:
            if arguments.get(name) is None:
                raise UnfitError
            arguments[name] = STORED[kind](arguments[name], value)
    return Play(case, arguments, wanted.get("out", ""), [], bool(wanted.get("at once")))


def distribution(operation: Operation, dice: Random) -> tuple[str, dict[str, int]]:
    """Return the name and parameters of a distribution of ordinary values."""
    if operation.main == "values":
        return dice.choice((("normal", {"exponent": 0}), ("distances", {"spread": 8, "empty": 0, "exponent": 0})))
    return "apart", {"base": 127, "spread": 8, "empty": 8, "nan": 0}


SPLITS: dict[str, Callable[[list[int]], Any]] = {
    "None": lambda splits: None,
    "a list": list,
    "a tuple": tuple,
    "an int32 array": lambda splits: np.array(splits, np.int32),
    "an int64 array": lambda splits: np.array(splits, np.int64),
}


def stored(array: np.ndarray, kind: str) -> np.ndarray:
    """Return an array's data in storage of a kind; a broadcast one repeats its first row or element."""
    if not array.size or (array.ndim < 2 and kind in ("row gap", "transposed")):
        raise UnfitError
    if kind == "transposed":
        return np.array(array.T, order="C").T
    if kind == "negative":
        return np.array(array[::-1], order="C")[::-1]
    if kind == "broadcast":
        return np.broadcast_to(array[:1], array.shape)
    gap = (0,) * (array.ndim - 1) + (array.shape[-1] if kind == "element gap" else 8,)
    wide = np.full([side + more for side, more in zip(array.shape, gap, strict=True)], 1, array.dtype)
    view = wide[..., ::2] if kind == "element gap" else wide[..., : array.shape[-1]]
    view[...] = array
    return view


def addressed(array: np.ndarray, at: tuple[int, int]) -> np.ndarray:
    """Return a contiguous copy whose address leaves a remainder. at: (modulus, remainder)."""
    modulus, rest = at
    if rest % array.itemsize:
        raise UnfitError
    room = np.zeros(array.nbytes + 2 * MARGIN, np.uint8)
    start = (rest - address(room)) % modulus
    place = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


STORED: dict[str, Callable[[np.ndarray, Any], np.ndarray]] = {"storage": stored, "address": addressed}


def outs_for(results: list[np.ndarray], how: str) -> list[np.ndarray]:
    """Return arrays for `out`, filled with what no result is: plain, with padded rows, or at an odd address."""
    found = []
    for array in results:
        if how == "padded":
            wide = np.full((*array.shape[:-1], array.shape[-1] + 16), 77, array.dtype)
            found.append(wide[..., : array.shape[-1]])
        else:
            like = np.full(array.shape, 77, array.dtype)
            found.append(addressed(like, (16, like.itemsize)) if how == "odd" else like)
    return found


def played(play: Play, run: Callable[..., Any], base: Callable[..., Any]) -> tuple[Any, list[np.ndarray]]:
    """Make the calls of a play; return what the last one gives, and the arrays of `out`."""
    for step in play.before:
        _step(play, step, run)
    keywords = dict(play.arguments)
    outs: list[np.ndarray] = []
    if play.out:
        right = base(**play.arguments)
        arrays = [without_bools(one) for one in (right if isinstance(right, tuple) else (right,)) if one is not None]
        outs = outs_for(arrays, play.out)
        keywords["out"] = tuple(outs) if len(outs) > 1 else outs[0]
    if not play.at_once:
        return run(**keywords), outs
    other = threading.Thread(target=_quietly, args=(run, dict(play.arguments)))
    other.start()
    try:
        return run(**keywords), outs
    finally:
        other.join()


def _quietly(run: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Make a call whose error is nobody's: that of the call at the same time is the one that is looked at."""
    with contextlib.suppress(RuntimeError, NotImplementedError):
        run(**arguments)


def _step(play: Play, step: Step, run: Callable[..., Any]) -> None:
    arguments = dict(play.arguments if step.arguments is None else step.arguments)
    name = OPERATIONS[play.case.operation].inputs[0]
    if step.words == "refused":
        try:
            run(**{**arguments, name: np.zeros((2, 2, 2))})
        except Exception:
            return
        raise UnfitError
    if step.words == "other data":
        arguments = other_arguments(play)
    if step.words in SIDES:
        arguments = other_size(play, *SIDES[step.words])
    if step.words == "in a thread":
        other = threading.Thread(target=_quietly, args=(run, arguments))
        other.start()
        other.join()
    else:
        run.history.calls += step.times - 1  # type: ignore[attr-defined]
        run(**arguments)


SIDES = {"wider": (1, 2), "narrower": (1, 0.5), "taller": (2, 1), "turned": (2, 0.5)}
"""Steps of another shape: by what their rows and their columns are more than those of the call."""


def other_size(play: Play, tall: int, wide: float) -> dict[str, Any]:
    """Return the arguments of a call with so many times the rows and the columns."""
    case = play.case
    params = {name: value for name, value in case.params.items() if name != "philox"}
    if params.get(RAGGED) is not None:
        params[RAGGED] = [tall * count for count in params[RAGGED]]
    recipe = Recipe(case.operation, case.profile, params, _scaled(play, tall, wide), 7,
                    *distribution(OPERATIONS[case.operation], Random(0)))  # fmt: skip
    optional = "prob" in case.inputs or "weights" in case.inputs
    other = by_key(expand(replace(recipe, optional=optional)), 3)
    arguments = dict(arguments_of(other))
    if "profile" in play.arguments:
        arguments["profile"] = play.arguments["profile"]
    return arguments


def _scaled(play: Play, tall: int, wide: float) -> tuple[int, int]:
    name = OPERATIONS[play.case.operation].inputs[0]
    array = play.case.inputs[name]
    columns = int(array.shape[1]) * (2 if name == "packed" else 1)
    columns = columns // PAYLOAD * 32 if name == "payload" else columns
    routed = OPERATIONS[play.case.operation].routed
    rows = int(play.case.params.get("tokens", array.shape[0])) * (1 if routed else tall)
    scaled = int(columns * wide) // play.unit * play.unit
    if not scaled or (tall > 1 and scaled != columns * wide):
        raise UnfitError
    return rows, scaled


def other_arguments(play: Play) -> dict[str, Any]:
    """Return the arguments of a play with other data of the same shapes."""
    arguments = dict(arguments_of(other_data(play.case)))
    return {**play.arguments, **{name: arguments[name] for name in play.case.inputs}}
