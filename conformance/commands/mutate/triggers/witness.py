"""A legal call that meets some conditions, made to order; a trigger without one is not asked of anybody."""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

import refnum
from refnum.errors import RefnumError

from ....cases.case import Case
from ....cases.layouts import OTHERS, PLAIN
from ....cases.operation import OPERATIONS, Operation, arguments_of
from ....cases.recipes.distributions import FLOATING, ROUTED
from ....cases.recipes.inputs import expand
from ....cases.recipes.random_bits import by_key
from ....cases.recipes.recipe import Recipe
from ....subjects.calls.call import other_data
from .call import PAYLOAD, address
from .condition import Facts
from .sizes import RAGGED, up
from .values import FLOATS, SCALES, Kind, format_of

LARGEST = 1 << 22
"""Elements of the largest call that is made to show that a trigger tells."""
PROFILES = ("HOPPER", "OCP")
STOCHASTIC = "STOCHASTIC"
MARGIN = 256


class UnfitError(Exception):
    """No legal call has all that is wanted of it."""


@dataclass
class Play:
    """A call and what goes before it. case: its data. arguments: its keywords. out: how `out` is given, or nothing.

    before: calls made first. at_once: whether two threads make it at a time.
    """

    case: Case
    arguments: dict[str, Any]
    out: str = ""
    before: list[str] = field(default_factory=list)
    at_once: bool = False


@functools.cache
def facts_of(name: str) -> Facts:
    """Return what an operation takes, asked of its golden function."""
    operation = OPERATIONS[name]
    parameters: dict[str, tuple[Any, ...]] = dict(operation.params)
    if operation.profiled:
        parameters["profile"] = PROFILES
    for layout in operation.layouts:
        parameters[layout] = (PLAIN, *OTHERS)
    signature = inspect.signature(getattr(refnum, name)).parameters
    if RAGGED in signature:
        parameters[RAGGED] = ()
    for key, parameter in signature.items():
        if key not in parameters and type(parameter.default) is int:
            parameters[key] = (parameter.default, 0, 1, parameter.default - 1, parameter.default + 1, 254)
    columns = 1 if _legal(name, 3, 33, parameters) else 32
    return Facts(1 if _legal(name, 3, 4 * columns, parameters) else 2, columns, parameters)


def _legal(name: str, rows: int, columns: int, parameters: Mapping[str, Any]) -> bool:
    wanted = {"rows": rows, "columns": columns}
    try:
        play = made(name, Facts(1, 1, parameters), wanted, Random(0))
        getattr(refnum, name)(**play.arguments)
    except (RefnumError, UnfitError, ValueError):
        return False
    return True


def made(name: str, facts: Facts, wanted: Mapping[str, Any], dice: Random) -> Play:
    """Return a play that has all that is wanted, its other sides drawn. Raises UnfitError."""
    operation = OPERATIONS[name]
    params = {**operation.defaults(), **{key[6:]: value for key, value in wanted.items() if key.startswith("param:")}}
    profile = STOCHASTIC if "rbits" in wanted else params.pop("profile", PROFILES[0])
    params.pop("profile", None)
    rows, columns, splits = _shape(operation, facts, wanted, dice)
    if splits is not None:
        params["splits"] = splits
    if "rbits" in wanted and not wanted["rbits"].startswith("uint"):
        params["random"] = "keyed"
    shape = (_tokens(wanted, rows, dice), columns) if name in ROUTED else (rows, columns)
    optional = any(value for key, value in wanted.items() if key.startswith("given:"))
    if math.prod(shape) > LARGEST or rows * columns > LARGEST:
        raise UnfitError
    recipe = Recipe(name, profile, params, shape, dice.getrandbits(63), *_distribution(operation, dice), (),
                    optional, wanted.get(f"form:{operation.inputs[0]}") == "float32")  # fmt: skip
    case = _formed(by_key(expand(recipe), dice.getrandbits(8)), wanted, dice)
    return _played(operation, _planted(case, wanted, dice), wanted, dice)


def _shape(
    operation: Operation, facts: Facts, wanted: Mapping[str, Any], dice: Random
) -> tuple[int, int, list[int] | None]:
    """Return (rows, columns, splits)."""
    splits = wanted.get("splits")
    rows = wanted.get("rows", None if splits is None else sum(splits))
    few = rows is not None and rows > 1 << 10
    columns = wanted.get("columns") or up(dice.randint(1, 64 if few else 300), facts.columns)
    columns = max(columns, wanted.get("least columns", 0))
    if rows is None:
        rows = up(dice.randint(1, 3 if columns > 1 << 12 else 40), facts.rows)
        rows = max(rows, wanted.get("least rows", 0))
    routed = operation.name in ROUTED
    if splits is None and (routed or wanted.get("splits form", "None") != "None"):
        cuts = sorted(up(dice.randint(0, rows), facts.rows) for _ in range(dice.randint(0, 3)))
        cuts = [min(cut, rows) for cut in cuts]
        splits = [end - start for start, end in zip([0, *cuts], [*cuts, rows], strict=True)]
    if splits is not None and sum(splits) != rows:
        if sum(splits) > rows:
            raise UnfitError
        splits = [*splits[:-1], splits[-1] + rows - sum(splits)]
    if splits is not None and wanted.get("splits form") == "None":
        raise UnfitError
    return rows, columns, splits


def _tokens(wanted: Mapping[str, Any], rows: int, dice: Random) -> int:
    return int(wanted.get("tokens") or dice.randint(1, max(1, min(rows, 64))))


def _distribution(operation: Operation, dice: Random) -> tuple[str, dict[str, int]]:
    if operation.inputs[0] in FLOATING:
        return dice.choice((("normal", {"exponent": 0}), ("distances", {"spread": 8, "empty": 0, "exponent": 0})))
    return "apart", {"base": 127, "spread": 8, "empty": 8, "nan": 0}


def _formed(case: Case, wanted: Mapping[str, Any], dice: Random) -> Case:
    """Return the case with its arrays in the dtypes that are wanted, and optional inputs present or absent."""
    inputs = dict(case.inputs)
    for key, form in wanted.items():
        kind, _, name = key.partition(":")
        if kind == "form" and name in inputs and inputs[name].dtype.name != form:
            array = inputs[name]
            inputs[name] = _cast(array, form)
        if kind == "given" and (name in inputs) != form:
            if form:
                raise UnfitError
            del inputs[name]
    params = dict(case.params)
    random = wanted.get("rbits", "")
    if "rbits" in inputs and random.startswith("uint"):
        inputs["rbits"] = inputs["rbits"].astype(random)
    if "philox" in params:
        params["philox"] = {
            "offset": lambda key: [*key[:3], key[3] or 32],
            "high seed": lambda key: [key[0] | 1 << 40, *key[1:]],
            "three": lambda key: key[:3],
        }.get(random, lambda key: key)(params["philox"])
    return Case(case.operation, case.profile, params, inputs, None, case.label)


def _cast(array: np.ndarray, form: str) -> np.ndarray:
    if form == "uint16" and array.dtype.name == "bfloat16":
        return array.view(np.uint16)
    if form.startswith("int") and array.dtype.kind == "i":
        return array.astype(form)
    raise UnfitError


def _planted(case: Case, wanted: Mapping[str, Any], dice: Random) -> Case:
    """Return the case with elements, weights and scale bytes of the wanted classes at their places."""
    inputs = {name: array.copy() for name, array in case.inputs.items()}
    for key, plants in wanted.items():
        kind, _, name = key.partition(":")
        for class_, row, column in plants if kind == "values" else ():
            _plant(case, inputs, name, class_, row, column, dice)
    for byte, row, column in wanted.get("scales", ()):
        scales = inputs["scales"]
        if row >= scales.shape[0] or column >= scales.shape[1]:
            raise UnfitError
        every = np.arange(256)
        scales[row, column] = dice.choice(every[SCALES[byte](every)].tolist())
    return case.with_inputs(inputs)


def _plant(
    case: Case, inputs: dict[str, np.ndarray], name: str, kind: Kind, row: int, column: int, dice: Random
) -> None:
    """Write a pattern of a class into an input, at a row and column, packed or not."""
    array = inputs.get(name)
    if array is None or not array.size:
        raise UnfitError
    fmt, kept = _format(case, name, array)
    pattern = kind.pattern(fmt, kept, dice)
    if pattern is None:
        raise UnfitError
    if array.ndim == 1:
        bits = array.view(f"u{array.itemsize}")
        bits[row] = pattern
        return
    per = 2 if name == "packed" else 1
    if row >= array.shape[0] or column >= array.shape[1] * per:
        raise UnfitError
    if name == "packed":
        low = array[row, column // 2]
        shift = 4 * (column % 2)
        array[row, column // 2] = (int(low) & ~(15 << shift) & 255) | pattern << shift
    else:
        array.view(f"u{array.itemsize}")[row, column] = pattern


def _format(case: Case, name: str, array: np.ndarray) -> tuple[Any, int]:
    if array.ndim == 1:
        return FLOATS[array.dtype.name], 0
    return format_of(OPERATIONS[case.operation], name, array, case.params.get("element", "E2M1"))


def _played(operation: Operation, case: Case, wanted: Mapping[str, Any], dice: Random) -> Play:
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
    return Play(case, arguments, wanted.get("out", ""), list(wanted.get("before", ())), bool(wanted.get("at once")))


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
        arrays = [one for one in (right if isinstance(right, tuple) else (right,)) if one is not None]
        outs = outs_for(arrays, play.out)
        keywords["out"] = tuple(outs) if len(outs) > 1 else outs[0]
    if not play.at_once:
        return run(**keywords), outs
    other = threading.Thread(target=run, kwargs=dict(play.arguments))
    other.start()
    try:
        return run(**keywords), outs
    finally:
        other.join()


def _step(play: Play, step: str, run: Callable[..., Any]) -> None:
    arguments = dict(play.arguments)
    name = OPERATIONS[play.case.operation].inputs[0]
    if step == "refused":
        try:
            run(**{**arguments, name: np.zeros((2, 2, 2))})
        except Exception:
            return
        raise UnfitError
    if step in ("larger", "smaller"):
        arguments = other_size(play, step == "larger")
    run(**arguments)


def other_size(play: Play, larger: bool) -> dict[str, Any]:
    """Return the arguments of a call with twice or half the columns."""
    case = play.case
    params = {name: value for name, value in case.params.items() if name != "philox"}
    recipe = Recipe(case.operation, case.profile, params, _scaled(play, larger), 7,
                    *_distribution(OPERATIONS[case.operation], Random(0)))  # fmt: skip
    optional = "prob" in case.inputs or "weights" in case.inputs
    other = by_key(expand(replace(recipe, optional=optional)), 3)
    arguments = dict(arguments_of(other))
    if "profile" in play.arguments:
        arguments["profile"] = play.arguments["profile"]
    return arguments


def _scaled(play: Play, larger: bool) -> tuple[int, int]:
    name = OPERATIONS[play.case.operation].inputs[0]
    array = play.case.inputs[name]
    columns = int(array.shape[1]) * (2 if name == "packed" else 1)
    columns = columns // PAYLOAD * 32 if name == "payload" else columns
    rows = int(play.case.params.get("tokens", array.shape[0]))
    if not larger and columns < 64:
        raise UnfitError
    return rows, columns * 2 if larger else columns // 2 // 32 * 32


def other_arguments(play: Play) -> dict[str, Any]:
    """Return the arguments of a play with other data of the same shapes."""
    arguments = dict(arguments_of(other_data(play.case)))
    return {**play.arguments, **{name: arguments[name] for name in play.case.inputs}}
