"""Questions about rotations (N22): known answers, masks, sums that cancel, ties, specials, groups along M."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from refnum.arrays import BFLOAT16
from refnum.formats import BF16, FP32
from refnum.hadamard import AXES, ORDERS

from ...cases.corners.hadamard import cancelling_blocks, laid, spread_blocks
from ...cases.corners.nvfp4 import AMAX, one
from ..draft import DTYPES, INF, NAN, SIGN, Draft, bits, float32, plain

FLAGS = ("ROTATION_OTHER_SIGNS", "ROTATION_OTHER_ORDER", "ROTATION_OTHER_ROWS", "ROTATION_ROUNDED_TWICE",
         "ROTATION_NOT_ROUNDED", "ROTATION_MAXIMUM_BEFORE")  # fmt: skip
COUNTED = np.arange(1, 17, dtype=np.float32)[None]


def _narrow(x: np.ndarray) -> np.ndarray:
    """The upper halves of float32 numbers, as bfloat16."""
    return (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(BFLOAT16)


def _draft(comment: str, x: np.ndarray, axis: int, order: str, **more: Any) -> Draft:
    clause = "N22" if x.size else "N0"
    params: dict[str, Any] = {
        "axis": axis,
        "order": order,
        **{name: more[name] for name in ("dtype", "signs") if name in more},
    }
    inputs: dict[str, Any] = {"x": x, **{name: more[name] for name in ("tensor_amax", "rbits") if name in more}}
    return Draft(inputs, params, FLAGS, comment, clause)


def _groups() -> Iterator[tuple[str, np.ndarray]]:
    """Yield (comment, groups [n, 16]) in float32."""
    yield "the numbers 1 to 16", COUNTED
    yield "one element each", np.eye(16, dtype=np.float32)
    yield "ties beside something small, under terms that cancel", cancelling_blocks(FP32)[::3].view(np.float32)
    for binades in (6, 30):
        yield f"groups of {binades + 1} binades", spread_blocks(FP32, binades, 4).view(np.float32)
    small = [[1 << 16] * 16, [SIGN | 1, *[0] * 15], [1, SIGN | 1, *[0] * 14], [3 << 16, 1 << 16, *[SIGN] * 14]]
    yield "the smallest numbers, and sums of zero", float32(small)
    largest = [[0x7F7F0000] * 16, [0x7F7FFFFF, *[0] * 15], [0x7F000000, 0xFF000000] * 8, [0x7F7FFFFF, SIGN | 1] * 8]
    yield "the largest numbers", float32(largest)
    special = [[NAN, *[bits(1)] * 15], [bits(1)] * 5 + [INF] + [bits(2)] * 10, [SIGN | INF, INF, *[0] * 14],
               [INF, INF, *[bits(3)] * 14], [SIGN | NAN, INF, *[0] * 14]]  # fmt: skip
    yield "NaN and Inf", float32(special)


def hadamard16_drafts() -> Iterator[Draft]:
    """Every kind of group in both orders, dtypes and axes; masks; a last group along M."""
    for order, dtype in itertools.product(ORDERS, DTYPES):
        for number, (comment, groups) in enumerate(_groups()):
            axis = AXES[number % 2]
            x = np.ascontiguousarray(laid(groups, axis, 16))
            yield _draft(comment, x, axis, order, dtype=dtype)
            if number in (2, 3, 4, 6):
                yield _draft(f"{comment}, bfloat16", _narrow(x), axis, order, dtype=dtype)
    for signs in (0, 0xFFFF, 1, 1 << 15, 0x1234):
        yield _draft(f"signs {signs:#06x}", COUNTED, -1, "exact", dtype="float32", signs=signs)
    for rows in (1, 15, 17):
        x = spread_blocks(BF16, 9, 18).view(BFLOAT16)[:rows, :3]
        yield _draft(f"{rows} rows, the last group along M completed", x, 0, "exact", dtype="bfloat16")
    for axis in AXES:
        yield _draft("no rows", np.zeros((0, 32), np.float32), axis, "exact", dtype="bfloat16")


def hadamard_quantize_drafts() -> Iterator[Draft]:
    """Groups of every kind, tensor maxima, random bytes, masks, a last group along M."""
    for order, (number, (comment, groups)) in itertools.product(ORDERS, enumerate(_groups())):
        axis = AXES[(number + len(order)) % 2]
        x = np.ascontiguousarray(laid(groups, axis, 16))
        yield _draft(comment, x, axis, order)
        yield _draft(f"{comment}, bfloat16, a given maximum", _narrow(x), axis, order, tensor_amax=one(bits(9)))
    x = spread_blocks(FP32, 4, 24).view(np.float32)
    for axis, amax in itertools.product(AXES, AMAX[1:10:3]):
        yield _draft(f"tensor maximum {amax:#010x}", laid(x[-9:], axis, 16), axis, "exact", tensor_amax=one(amax))
    for axis, rows in ((-1, 8), (0, 16), (0, 18)):
        part = np.ascontiguousarray(x[:rows] if axis else x[:rows, :5])
        shape = part.shape if axis else (part.shape[1], -(-rows // 16) * 16)
        place = np.arange(shape[0] * shape[1], dtype=np.uint32).reshape(shape)
        rbits = (place * np.uint32(2654435761) >> np.uint32(24)).astype(np.uint8)
        yield _draft(f"random bytes, {rows} rows", part, axis, "exact", rbits=rbits)
        yield _draft(f"signs, {rows} rows", part, axis, "exact", signs=0x0F35)
    for axis in AXES:
        yield _draft("no rows", np.zeros((0, 32), np.float32), axis, "exact")


hadamard16 = plain(hadamard16_drafts)
hadamard_quantize_nvfp4 = plain(hadamard_quantize_drafts)
