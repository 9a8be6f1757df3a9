"""Cut a case down and write elements in it: what shrinking needs to know about the shapes of inputs.

Everything here keeps a case legal: scale arrays, splits and row-wise vectors follow the elements they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from refnum.arrays import TILE, contiguous, unpack_nibbles

from .case import Case
from .draw.bits import float_bits
from .geometry import splits_of
from .operation import OPERATIONS

WHOLE = frozenset({"tensor_amax", "alpha", "maxval", "factors"})
"""Inputs that belong to the whole tensor, which no cut touches."""
ELEMENTS = ("x", "gate", "up", "grad", "rbits", "r_under", "r_log", "codes", "packed", "a", "b", "w", "ema",
            "gradient", "weight", "m", "v", "dist_w", "dist_q", "total", "norms")  # fmt: skip
COUNTED = frozenset({"count", "period"})
"""Inputs of whole numbers beside the elements: they are cut with them, and no element of theirs is written."""


def of_experts(case: Case) -> bool:
    """Whether a case is a product of experts (N19.8): `b` and its scales have one more axis."""
    return OPERATIONS[case.operation].grouped and case.params.get("splits") is not None


def experts_of(case: Case) -> Iterator[tuple[slice, Case]]:
    """Yield the rows and the product of each expert that has rows; of a case without experts all rows and the case."""
    if not of_experts(case):
        yield slice(0, shape(case)[0]), case
        return
    params, first = {name: value for name, value in case.params.items() if name != "splits"}, 0
    for expert, count in enumerate(splits_of(case, 0)):
        rows = slice(first, first + count)
        inputs = {name: array[rows if name[0] == "a" else expert] if name in ("a", "b") or array.size > 1 else array
                  for name, array in case.inputs.items()}  # fmt: skip
        first += count
        if count:
            yield rows, replace(case, params=params, inputs=inputs, recipe=None)


def expert_at(case: Case, row: int) -> tuple[Case, int]:
    """Return the product of the expert whose row of the result this is, and its row of it; others as they are."""
    return next((one, row - rows.start) for rows, one in experts_of(case) if rows.start <= row < rows.stop)


def croppable(case: Case) -> bool:
    """Whether rows and columns of this case's inputs can be dropped by what is known here."""
    operation = OPERATIONS[case.operation]
    return not (operation.moves_only or operation.routed)


def shape(case: Case) -> tuple[int, int]:
    """Return (rows, elements along the last axis) of the case's element inputs."""
    name = main_input(case)
    array = case.inputs[name]
    rows, last = (1, array.size) if array.ndim != 2 else array.shape
    return int(rows), int(last) * (2 if name == "packed" else 1)


def main_input(case: Case) -> str:
    """Return the name of the input that holds the elements."""
    return next((name for name in ELEMENTS if name in case.inputs), next(iter(case.inputs)))


def column_unit(case: Case) -> int:
    """Return the number of columns at whose multiples a cut keeps every block and tile, or step of a product, whole."""
    if OPERATIONS[case.operation].family == "product" and not by_block(case):
        return 32
    return OPERATIONS[case.operation].block


def _scale_unit(case: Case) -> tuple[int, int]:
    """Return (rows, columns) that one byte of the input scales covers."""
    rows, columns = case.params.get("tile", (1, OPERATIONS[case.operation].reads.width))
    return int(rows), int(columns)


def row_unit(case: Case) -> int:
    """Return the number of rows at whose multiples a cut keeps every tile of the input scales whole."""
    return _scale_unit(case)[0] if "scales" in case.inputs else 1


def by_block(case: Case) -> bool:
    """Whether a product's scales belong to blocks of K."""
    scales = [case.inputs[name] for name in ("a_scales", "b_scales") if name in case.inputs]
    return any(one.size > 1 and one.shape[-1] > 1 for one in scales)


def take_others(case: Case, start: int, stop: int) -> Case:
    """Return a product with rows start..stop of `b` only."""
    return _product_cut(case, slice(0, len(case.inputs["a"])), slice(0, shape(case)[1]), slice(start, stop))


def take_terms(case: Case, terms: np.ndarray) -> Case:
    """Return a product with these terms of K only; no operand has scales by block."""
    return case.with_inputs({name: contiguous(case.inputs[name][..., terms]) for name in ("a", "b")})


def _product_cut(case: Case, rows: slice, columns: slice, others: slice | None = None) -> Case:
    """Return a product of some rows of `a` and of `b` and some terms of K; whole blocks of scales go with them.

    Experts that lose all of their rows go too.
    """
    params, kept = _experts_cut(case, rows)
    others = others or slice(0, case.inputs["b"].shape[-2])
    inputs = {"a": case.inputs["a"][rows, columns], "b": case.inputs["b"][kept][..., others, columns]}
    for name, lines in (("a_scales", rows), ("b_scales", others)):
        if name in case.inputs and case.inputs[name].size > 1:
            scales = case.inputs[name] if name[0] == "a" else case.inputs[name][kept]
            tall = 1 if scales.shape[-2] == case.inputs[name[0]].shape[-2] else TILE
            scales = scales[..., lines.start // tall : -(-lines.stop // tall), :]
            if scales.shape[-1] > 1:
                scales = scales[..., columns.start // TILE : -(-columns.stop // TILE)]
            inputs[name] = scales
    return case.with_inputs({name: contiguous(array) for name, array in inputs.items()}, params)


def _experts_cut(case: Case, rows: slice) -> tuple[dict[str, list[int]], Any]:
    """Return the splits of some rows of a product, and what cuts its experts out of the first axis of `b`."""
    if not of_experts(case):
        return {}, ...
    counts = splits_of(case, 0)
    left = _cut(counts, rows.start, rows.stop)
    kept = [expert for expert, count in enumerate(counts) if left[expert] or not count]
    return {"splits": [left[expert] for expert in kept]}, kept


def take_experts(case: Case, kept: list[int]) -> Case:
    """Return a product of experts without some that have no rows."""
    counts = splits_of(case, 0)
    inputs = {name: contiguous(array[kept]) for name, array in case.inputs.items()
              if name == "b" or (name == "b_scales" and array.size > 1)}  # fmt: skip
    return case.with_inputs(inputs, {"splits": [counts[expert] for expert in kept]})


def take_rows(case: Case, start: int, stop: int) -> Case:
    """Return the case with rows start..stop only; cuts inside a 128-row tile move out to its border."""
    if "a" in case.inputs:
        return _product_cut(case, slice(start, stop), slice(0, shape(case)[1]))
    tall = row_unit(case)
    start -= start % tall
    inputs = {}
    for name, array in case.inputs.items():
        step = tall if name == "scales" else 1
        inputs[name] = (
            array
            if name in WHOLE and (name != "maxval" or array.size == 1)
            else array[start // step : -(-stop // step)]
        )
    params = {}
    if case.params.get("splits") is not None:
        params["splits"] = _cut_splits(splits_of(case, shape(case)[0]), start, stop)
    return case.with_inputs({name: contiguous(array) for name, array in inputs.items()}, params)


def _cut_splits(splits: list[int], start: int, stop: int) -> list[int]:
    return [count for count in _cut(splits, start, stop) if count] or [0]


def _cut(splits: list[int], start: int, stop: int) -> list[int]:
    """Return how many rows of each expert lie in start..stop."""
    kept, first = [], 0
    for count in splits:
        kept.append(max(0, min(stop, first + count) - max(start, first)))
        first += count
    return kept


def take_columns(case: Case, start: int, stop: int) -> Case:
    """Return the case with columns start..stop only; start is a multiple of `column_unit`."""
    if "a" in case.inputs:
        return _product_cut(case, slice(0, shape(case)[0]), slice(start, stop))
    inputs = {}
    wide = _scale_unit(case)[1]
    for name, array in case.inputs.items():
        if name in ("scales", "zeros") and array.ndim == 2:
            inputs[name] = array[:, start // wide : -(-stop // wide)]
        elif name == "outer":
            inputs[name] = array[:, start // TILE : -(-stop // TILE)]
        elif name in ELEMENTS or name in COUNTED:
            per = 2 if name == "packed" else 1
            inputs[name] = array[..., start // per : stop // per]
        else:
            inputs[name] = array
    return case.with_inputs({name: contiguous(array) for name, array in inputs.items()})


def patterns(case: Case, name: str) -> np.ndarray:
    """Return an input's elements as a flat array of unsigned integers, packed codes one an item (a copy)."""
    array = case.inputs[name]
    return (unpack_nibbles(array) if name == "packed" else float_bits(np.ascontiguousarray(array))).reshape(-1).copy()


def with_patterns(case: Case, name: str, flat: np.ndarray) -> Case:
    """Return the case with an input's elements replaced; the inverse of `draw`."""
    array = case.inputs[name]
    if name == "packed":
        pairs = flat.reshape(*array.shape, 2)
        return case.with_inputs({name: np.ascontiguousarray(pairs[..., 0] | (pairs[..., 1] << 4))})
    return case.with_inputs({name: flat.reshape(array.shape).view(array.dtype)})
