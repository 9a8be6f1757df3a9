"""Special elements amid ordinary ones: zeros, subnormals, ties, the largest, Inf and NaN of either sign.

Some blocks of 32 elements keep their data, some get a few special elements, some are half made of them: with a few
thousand elements every two classes stand beside each other, at every distance up to that of two tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.formats import FP32, Format, get_format
from refnum.softfloat import choose

from ..draw.bits import float_bits
from ..operation import OPERATIONS
from ..recipes.distributions import layout_of, target_of
from . import values
from .factors import RAGGED

DENSITY = np.array([0] * 7 + [1] * 3 + [8] * 6, np.uint32)
"""Sixteenths of the elements of a block that are special, one for each of sixteen kinds of block."""
CLASSES, FEW = 6, 8
"""Classes of elements, the last two Inf and NaN, and patterns of each."""
ALLOWED = CLASSES - 2 * np.array([0] * 8 + [1, 0, 0] + [1] * 3 + [0] * 2, np.uint32)
"""How many classes those are of: without Inf and NaN, which decide everything else in their block, or all."""
SCALES = np.array([[0] * 8, [*range(1, 9)], [*range(247, 255)], [255] * 8], np.uint8)
"""Scale bytes: zero, the smallest, the largest, NaN."""
ZERO_ROWS, LARGER = 16, 249
"""Of so many rows one is zero, in each tile another one; and scale bytes from which on none is made larger."""
ELEMENTS = ("x", "gate", "up", "grad", "rows", "codes", "w", "ema", "gradient", "weight", "m", "v",
            "dist_w", "dist_q", "total", "norms")  # fmt: skip


def planted(
    operation: str, params: Mapping[str, Any], inputs: Mapping[str, np.ndarray], seed: int
) -> dict[str, np.ndarray]:
    """Return inputs with special elements, scales, weights and probabilities; the same for the same seed."""
    found = dict(inputs)
    for place, (name, array) in enumerate(inputs.items()):
        own = seed + 31 * place
        if name in ELEMENTS and array.size:
            found[name] = _elements(operation, params, name, array, own)
        elif name == "scales" and array.dtype == np.uint8:
            found[name] = _scales(array, own)
        elif name == "scales" and array.size:
            found[name] = _written(array, _table(FP32, 0), own)
        elif name in ("prob", "weights") and array.size:
            found[name] = _written(array.reshape(1, -1), _table(FP32, 0), own).reshape(array.shape)
    return _with_zero_rows(found, seed) if operation in RAGGED else found


def _with_zero_rows(inputs: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Return codes of which one row of sixteen is zero in each tile, with a larger scale, which takes no part there."""
    name = next(iter(inputs))
    codes, scales = inputs[name], inputs["scales"]
    if not codes.size:
        return dict(inputs)
    rows, tiles = np.arange(len(codes))[:, None], np.arange(scales.shape[1])[None, :]
    zero = (rows - 1 - (5 * tiles + seed) % 8) % ZERO_ROWS == 0
    wide = -(-codes.shape[1] // scales.shape[1])
    wide = 1 << (wide - 1).bit_length()  # columns, or bytes, of a tile; the last one may be a part
    spread = np.repeat(zero, wide, axis=1)[:, : codes.shape[1]]
    larger = np.where(zero & (scales < LARGER), scales + np.uint8(6), scales)
    return {**inputs, name: np.where(spread, codes & np.uint8(0), codes), "scales": larger}


def _elements(operation: str, params: Mapping[str, Any], name: str, array: np.ndarray, seed: int) -> np.ndarray:
    if name == "codes":
        fmt = (OPERATIONS[operation].scalar and _scalar(operation)) or layout_of(operation, params).element
        kept = max(fmt.mantissa_bits - 1, 0)
    else:
        fmt = values.FORMATS[array.dtype.name]
        kept = 3 if OPERATIONS[operation].scalar else target_of(operation, params).element.mantissa_bits
    matrix = array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array.reshape(1, -1)
    return _written(matrix, _table(fmt, kept), seed).reshape(array.shape)


def _scalar(operation: str) -> Format:
    """Return the format that a scalar cast reads."""
    return get_format(operation.partition("_")[2].upper())


def _written(array: np.ndarray, table: np.ndarray, seed: int) -> np.ndarray:
    """Return a matrix with patterns of a table, u32 [class, pattern, sign], written into some of its blocks."""
    rows, columns = array.shape
    kind = (values.noise(rows, -(-columns // 32), seed + 7) >> np.uint32(9)) & np.uint32(15)
    dice = values.noise(rows, columns, seed + 8)
    struck = np.flatnonzero((dice & np.uint32(15)) < np.repeat(DENSITY.take(kind), 32, axis=1)[:, :columns])
    dice = dice.reshape(-1).take(struck)
    row = struck // columns if columns % 32 else 0
    block = (struck + row * (32 * kind.shape[1] - columns)) >> 5
    one = _below(dice >> np.uint32(4) & np.uint32(0xFFF), ALLOWED.take(kind).reshape(-1).take(block))
    place = (one * np.uint32(FEW) + (dice >> np.uint32(17) & np.uint32(FEW - 1))) * np.uint32(2) + (
        dice >> np.uint32(31)
    )
    bits = float_bits(array).copy()
    bits.reshape(-1)[struck] = table.reshape(-1).astype(bits.dtype).take(place)
    return bits.view(array.dtype)


def _below(words: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return words modulo a count of classes: all, or those without Inf and NaN; division by a constant is fast."""
    least, most = np.uint32(CLASSES - 2), np.uint32(CLASSES)
    return words - choose(count == most, words // most * most, words // least * least)


def _scales(array: np.ndarray, seed: int) -> np.ndarray:
    """Return scale bytes half of whose rows are half of special ones."""
    rows, columns = array.shape
    dice = values.noise(rows, columns, seed + 9)
    struck = (dice & np.uint32(1) > 0) & (values.noise(rows, 1, seed + 10) & np.uint32(64) > 0)
    return np.where(struck, SCALES[dice >> np.uint32(3) & np.uint32(3), dice >> np.uint32(7) & np.uint32(7)], array)


@functools.lru_cache(maxsize=32)
def _table(fmt: Format, kept: int) -> np.ndarray:
    """Return patterns of every class, u32 [class, pattern, sign]; a class that a format lacks is zero."""
    number = np.arange(FEW, dtype=np.uint32)
    smallest = 1 << fmt.mantissa_bits
    low = fmt.mantissa_bits - kept - 1
    tie = np.uint32(0) * number
    if low >= 0 and fmt.kind != "integer":
        fields = fmt.bias - FEW // 2 + number if fmt.bias > FEW // 2 else 1 + number % max(1, fmt.bias)
        odd = number.astype(np.uint32) % np.uint32(1 << kept) << np.uint32(low + 1) if kept else number * 0
        tie = fields.astype(np.uint32) << np.uint32(fmt.mantissa_bits) | odd | np.uint32(1 << low)
    top = fmt.inf_code if fmt.inf_code is not None else fmt.max_code
    every = (fmt.sign_mask or 1 << fmt.bits) - 1
    nan = np.minimum(top + 1 + number * max(1, (every - top) // FEW), every) if every > top else number * 0
    one_up = 1 + number % max(1, smallest - 1)
    magnitudes = np.stack([number * 0, one_up, tie, number * 0 + fmt.max_code, number * 0 + (fmt.inf_code or 0), nan])
    magnitudes = magnitudes.astype(np.uint32)
    if fmt.kind == "integer":
        return np.stack([magnitudes, -magnitudes.astype(np.int64) & (1 << fmt.bits) - 1], axis=-1).astype(np.uint32)
    return np.stack([magnitudes, magnitudes | np.uint32(fmt.sign_mask)], axis=-1)


def planted_terms(params: Mapping[str, Any], inputs: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Return operands of a product with rows of zeros, and rows with one special term each, which decides a whole row.

    The term stands anywhere, half of them in the last part of the terms; rows of ordinary terms are left beside them.
    """
    found = dict(inputs)
    for place, name in enumerate(("a", "b")):
        array = inputs[name]
        fmt = values.FORMATS["bfloat16"] if array.dtype.kind != "u" else get_format(str(params[f"{name}_format"]))
        bits = float_bits(array).copy().reshape(-1, array.shape[-1])
        rows, terms = bits.shape
        dice = values.noise(1, rows, seed + 12 + place)[0]
        bits[dice % np.uint32(11) == 5] = 0
        struck = np.flatnonzero(dice % np.uint32(7) == 2 * place)
        dice, tail = dice[struck] >> np.uint32(3), min(terms, 1 + (terms - 1) % 32)
        column = np.where(dice & 1, terms - 1 - dice % np.uint32(tail), dice % np.uint32(terms))
        table = _table(fmt, 3).reshape(-1)
        bits[struck, column] = table[(dice >> np.uint32(9)) % np.uint32(table.size)].astype(bits.dtype)
        found[name] = bits.reshape(array.shape).view(array.dtype)
    return found
