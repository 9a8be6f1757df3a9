"""A legal call that meets some conditions, made to order; a trigger without one is not asked of anybody."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np

import refnum
from refnum.errors import RefnumError

from ....cases.case import Case
from ....cases.entry import Operation
from ....cases.operation import OPERATIONS
from ....cases.recipes.inputs import expand
from ....cases.recipes.random_bits import by_key
from ....cases.recipes.recipe import Recipe
from .call import named
from .condition import Facts
from .play import Play, Step, UnfitError, distribution, play_of
from .sizes import RAGGED, up
from .values import FLOATS, SCALES, Kind, format_of

LARGEST = 1 << 22
"""Elements of the largest call that is made to show that a trigger tells."""
JOINT = 1 << 17
"""The same, where two conditions must hold together: a judge on a CPU asks hundreds of pairs, and no larger ones."""
PROFILES = ("HOPPER", "OCP")
STOCHASTIC = "STOCHASTIC"


@functools.cache
def facts_of(name: str) -> Facts:
    """Return what an operation takes, asked of its golden function."""
    operation = OPERATIONS[name]
    parameters: dict[str, tuple[Any, ...]] = dict(operation.params)
    if operation.profiled:
        parameters["profile"] = PROFILES
    for layout in operation.layouts:
        parameters[layout] = operation.stored_as
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


def made(name: str, facts: Facts, wanted: Mapping[str, Any], dice: Random, largest: int = LARGEST) -> Play:
    """Return a play of at most so many elements that has all that is wanted, its other sides drawn; or UnfitError."""
    operation = OPERATIONS[name]
    params = {**operation.defaults(), **{key[6:]: value for key, value in wanted.items() if key.startswith("param:")}}
    profile = STOCHASTIC if "rbits" in wanted else params.pop("profile", PROFILES[0])
    params.pop("profile", None)
    rows, columns, splits = _shape(operation, facts, wanted, dice)
    if splits is not None:
        params["splits"] = splits
    if "rbits" in wanted and not wanted["rbits"].startswith("uint"):
        params["random"] = "keyed"
    shape = (_tokens(wanted, rows, dice), columns) if operation.routed else (rows, columns)
    optional = any(value for key, value in wanted.items() if key.startswith("given:"))
    if max(math.prod(shape), rows * columns) > largest:
        raise UnfitError
    recipe = Recipe(name, profile, params, shape, dice.getrandbits(63), *distribution(operation, dice), (),
                    optional, wanted.get(f"form:{operation.inputs[0]}") == "float32")  # fmt: skip
    case = _formed(by_key(expand(recipe), dice.getrandbits(8)), wanted, dice)
    play = play_of(operation, _planted(case, wanted, dice), wanted, dice)
    play.unit = facts.columns
    for step in wanted.get("before", ()):
        play.before.append(_step(name, facts, step, dice, largest))
    return play


def _step(name: str, facts: Facts, wanted: str | int | Mapping[str, Any], dice: Random, largest: int) -> Step:
    """Return a step by its words, of so many calls, or of another call that has what is wanted of it."""
    if isinstance(wanted, str):
        return Step(wanted)
    if isinstance(wanted, int):
        return Step(f"{wanted} calls", times=wanted)
    words = ", ".join(f"{key.partition(':')[2]} {named(value)}" for key, value in wanted.items())
    return Step(words, made(name, facts, wanted, dice, largest).arguments)


def _shape(
    operation: Operation, facts: Facts, wanted: Mapping[str, Any], dice: Random
) -> tuple[int, int, list[int] | None]:
    """Return (rows, columns, splits)."""
    splits = wanted.get("splits")
    rows = wanted.get("rows", None if splits is None else sum(splits))
    columns = wanted.get("columns") or up(dice.randint(1, 64 if rows and rows > 1 << 9 else 300), facts.columns)
    columns = max(columns, wanted.get("least columns", 0))
    if rows is None:
        rows = up(dice.randint(1, 3 if columns > 1 << 12 else 40), facts.rows)
        rows = max(rows, wanted.get("least rows", 0))
    routed = operation.routed
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
        if kind == "all":
            _fill(case, inputs, name, plants, dice)
    for byte, row, column in wanted.get("scales", ()):
        scales = inputs["scales"]
        if row >= scales.shape[0] or column >= scales.shape[1]:
            raise UnfitError
        every = np.arange(256)
        scales[row, column] = dice.choice(every[SCALES[byte](every)].tolist())
    return case.with_inputs(inputs)


def _fill(case: Case, inputs: dict[str, np.ndarray], name: str, kind: Kind, dice: Random) -> None:
    """Write one pattern of a class into every element of an input."""
    array = inputs.get(name)
    pattern = None if array is None else kind.pattern(*_format(case, name, array), dice)
    if array is None or pattern is None:
        raise UnfitError
    array.view(f"u{array.itemsize}")[...] = 0x11 * pattern if name == "packed" else pattern


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
