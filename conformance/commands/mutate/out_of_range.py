"""Questions on what our kernels take and the golden model refuses: items of a row map that are no row, and splits on
the device that do not fit the rows or the result. The launchers' docstrings say what holds then
(`gpu/interface/payload.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import refnum

from ...cases.case import Case
from ...cases.operation import OPERATIONS
from .corpus import DEFAULT, Question

TOKENS, WIDTH, SPLITS = 20, 119, (0, 37, 4)
OUTSIDE = (-1, TOKENS, 2**31 - 1, -(2**31))
"""Items that are no row of 20, in a map of signed integers."""


def questions(operation: str) -> Iterator[Question]:
    """Yield the questions on an operation, none for most."""
    if operation not in OPERATIONS:
        return
    row = OPERATIONS[operation]
    if row.routed and not row.moves_only:
        yield from _sums()
        yield from _sums_cut()
    if row.routed and row.moves_only:
        yield from _gathers(operation)
        yield from _cut(operation)


def _maps() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (row map with such items, the same with 20 in their place)."""
    row_map = np.arange(sum(SPLITS)) * 7 % TOKENS
    for dtype in (np.int64, np.int32):
        given: np.ndarray = row_map.astype(dtype)
        given[2::9] = np.resize(np.array(OUTSIDE, dtype), given[2::9].size)
        yield given, np.where((given < 0) | (given >= TOKENS), TOKENS, given)


def _question(operation: str, inputs: dict[str, np.ndarray], params: dict[str, Any], golden: Any, label: str,
              **given: Any) -> Question:  # fmt: skip
    case = Case(operation, DEFAULT, {"splits": list(SPLITS), **params}, inputs, label=label)
    return Question(case, golden if isinstance(golden, tuple) else (golden,), "stray", given)


def _sums() -> Iterator[Question]:
    rng = np.random.default_rng(4)
    rows, weights = rng.standard_normal((64 + 32, 65)).astype(np.float32), np.ones(sum(SPLITS), np.float32)
    for row_map, kept in _maps():
        golden = refnum.unpermute(rows, kept, SPLITS, weights, TOKENS + 1)[:TOKENS]
        inputs = {"rows": rows, "row_map": row_map, "weights": weights}
        yield _question("unpermute", inputs, {"tokens": TOKENS}, golden, f"rows of no token, {row_map.dtype}")


def _sums_cut() -> Iterator[Question]:
    """Counts on the device below zero and above all rows, which are none; fewer rows than the row map has, and expert
    rows that are not there, which are left out.
    """
    rng = np.random.default_rng(6)
    rows, weights = rng.standard_normal((96, 65)).astype(np.float32), rng.standard_normal(41).astype(np.float32)
    row_map = (np.arange(41) * 7 % TOKENS).astype(np.int32)
    row_map[:36] = 3  # more than a list holds
    for counts, there, kept in (([-1, 37, 1000, 4, 3], 96, [37, 4]), ([37, 2], 96, [37, 2]), ([37, 4], 66, [37, 2])):
        golden = refnum.unpermute(rows, row_map[: sum(kept)], kept, weights[: sum(kept)], TOKENS)
        inputs = {"rows": rows[:there], "row_map": row_map, "weights": weights}
        yield _question("unpermute", inputs, {"tokens": TOKENS}, golden,
                        f"splits on the device, {counts} of {there} rows", splits=np.array(counts))  # fmt: skip


def _payload() -> np.ndarray:
    return np.random.default_rng(5).integers(1, 256, (TOKENS, WIDTH)).astype(np.uint8)


def _gathers(operation: str) -> Iterator[Question]:
    payload = _payload()
    longer = np.concatenate([payload, np.zeros((1, WIDTH), np.uint8)])
    for row_map, kept in _maps():
        golden = getattr(refnum, operation)(longer, kept, SPLITS)
        yield _question(operation, {"payload": payload, "row_map": row_map}, {}, golden,
                        f"places of no row, {row_map.dtype}")  # fmt: skip


def _cut(operation: str) -> Iterator[Question]:
    """Counts on the device below zero and above all rows, which are none; experts cut off, and rows behind the last;
    more rows than the map has, which are zero.
    """
    payload, counts = _payload(), np.array([-1, 37, 1000, 4, 3], np.int64)
    row_map = (np.arange(sum(SPLITS)) * 7 % TOKENS).astype(np.int32)
    longer, beyond = np.concatenate([payload, np.zeros((1, WIDTH), np.uint8)]), np.full(3, TOKENS, np.int32)
    whole = getattr(refnum, operation)(longer, np.concatenate([row_map, beyond]), [0, 37, 0, 4, 3])
    for rows in (33, 128, 130):
        parts = [_rows_of(part, rows) for part in whole[:-1]]
        out = tuple(np.full_like(part, 0xCD) for part in (*parts, whole[-1]))
        yield _question(operation, {"payload": payload, "row_map": row_map}, {}, (*parts, whole[-1]),
                        f"splits on the device, {rows} rows", splits=counts, out=out)  # fmt: skip
    fewer = getattr(refnum, operation)(payload, row_map[:39], [37, 2])
    out = tuple(np.full_like(part, 0xCD) for part in fewer)
    yield _question(operation, {"payload": payload, "row_map": row_map}, {}, fewer,
                    "splits on the device, fewer rows than the row map", splits=np.array([37, 2]), out=out)  # fmt: skip


def _rows_of(part: np.ndarray, rows: int) -> np.ndarray:
    found = np.zeros((rows, *part.shape[1:]), part.dtype)
    found[: len(part)] = part[:rows]
    return found
