"""Corners of payload, permutation and the weighted way back (N12): empty experts, repeated rows, dirty padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles
from refnum.formats import BF16, E2M1, E4M3, FP32

from ..draw import CODED, VALUES, Draw
from ..draw.bits import as_float
from ..draw.coded import Layout
from ..draw.values import Target
from .floats import SPECIALS, quantizer_corners
from .recast import fp8_to_mxfp4

quantize_payload = quantizer_corners
fp8_to_payload = fp8_to_mxfp4

Corner = tuple[str, dict[str, np.ndarray], dict[str, Any]]

SHAPES = ((0, 32), (1, 32), (3, 96), (257, 160), (64, 512), (2, 7168), (5, 480), (4, 608))
SPLITS: tuple[list[int], ...] = (
    [], [0], [0, 0, 0], [1], [32], [31, 0, 33], [0, 5, 0, 0, 64, 1, 0], [16, 17, 15, 128, 127, 129], [0, 3],
)  # fmt: skip
"""No expert, empty experts, one row, exact multiples of 16, 32 and 128, one above and one below."""


def _bytes(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    codes, scales = CODED["uniform"].make(Draw(rows * 8192 + columns), Layout(E2M1, 1, 32), (rows, columns),
                                          base=127, spread=127)  # fmt: skip
    return pack_nibbles(codes), scales


def pack_payload(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Every byte value at every shape: moving bytes knows no numbers."""
    every = np.arange(256, dtype=np.uint8)
    yield ("every byte value", {"packed": np.broadcast_to(every, (256, 256)).copy(),
                                "scales": np.repeat(every[::-1, None], 16, axis=1)}, {})  # fmt: skip
    for shape in SHAPES:
        packed, scales = _bytes(*shape)
        yield f"shape {shape[0]}x{shape[1]}", {"packed": packed, "scales": scales}, {}


def unpack_payload(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """The payloads of the pack corners."""
    for label, inputs, extra in pack_payload(operation, params):
        yield label, {"payload": np.concatenate([inputs["packed"], inputs["scales"]], axis=1)}, extra


TAKEN = (30, 33, 2, 32, 1)
"""How often a token is taken: more often than a list of 32 holds, as often, seldom; all others never."""


def _crowded() -> np.ndarray:
    """A row map of 98 rows in which the last of 20 tokens are taken as often as `TAKEN` says, in no order.

    The last row is of the one that is taken most often.
    """
    return np.repeat(19 - np.arange(len(TAKEN)), TAKEN)[np.arange(sum(TAKEN)) * 37 % sum(TAKEN)]


def _maps(tokens: int, rows: int) -> Iterator[tuple[str, np.ndarray]]:
    number = np.arange(rows)
    yield "rows in order", (number % tokens).astype(np.int32)
    yield "rows scattered", ((number * 7919 + 13) % tokens).astype(np.int32)
    yield "one row taken again and again", np.full(rows, tokens - 1, np.int32)


def _payload(tokens: int, columns: int) -> np.ndarray:
    """Payload rows without a zero byte: padding must be told from data."""
    return np.concatenate(_bytes(tokens, columns), axis=1) | np.uint8(1)


def permute_pad(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Empty experts, experts of one row, repeated and unused rows; a payload whose every byte is non-zero."""
    for blocks, splits, dtype in ((7, [0, 5, 0, 0, 92, 1, 0], np.int32), (8, [33, 0, 65], np.int64),
                                  (15, [3, 95], np.int32), (19, [98], np.int64)):  # fmt: skip
        inputs = {"payload": _payload(20, 32 * blocks), "row_map": _crowded().astype(dtype)}
        yield f"tokens taken often, seldom and never, of 20x{32 * blocks}, splits {splits}", inputs, {"splits": splits}
    if params.get("align") == 16:  # whoever is judged on this takes any
        for align, splits in ((1, [0, 33, 4]), (7, [3, 8])):
            inputs = {"payload": _payload(20, 512), "row_map": _crowded()[: sum(splits)].astype(np.int32)}
            yield f"rows padded to {align}, splits {splits}", inputs, {"splits": splits, "align": align}
    for tokens, columns in ((1, 32), (50, 96), (300, 512)):
        payload = _payload(tokens, columns)
        for splits in SPLITS:
            for label, row_map in _maps(tokens, sum(splits)):
                yield (f"{label} of {tokens}x{columns}, splits {splits}", {"payload": payload, "row_map": row_map},
                       {"splits": splits})  # fmt: skip
    none = np.zeros((0, 34), np.uint8)
    yield "no tokens, no rows", {"payload": none, "row_map": np.zeros(0, np.int32)}, {"splits": [0, 0]}


permute_unpack = permute_pad


def unpermute(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Tokens with no row, one and many; cancellation, NaN, Inf, subnormal and overflowing sums; NaN in the padding."""
    align = int(params.get("align", 32))
    yield from _uneven_sums(align)
    for number, splits in enumerate(SPLITS):
        for tokens in (1, 7, 200):
            for label, row_map in _maps(tokens, sum(splits)):
                rows = _expert_rows(splits, align, 96, number)
                inputs = {"rows": as_float(rows, FP32), "row_map": row_map, "weights": _weights(sum(splits), number)}
                yield (f"{label} to {tokens} tokens, splits {splits}", inputs, {"splits": splits, "tokens": tokens})
    splits = [40, 0, 24, 65]
    rows = _expert_rows(splits, align, 160, 77)
    row_map = next(_maps(30, sum(splits)))[1]
    bfloat16 = {"rows": as_float(rows >> np.uint32(16), BF16), "row_map": row_map}
    yield "bfloat16 rows", {**bfloat16, "weights": _weights(129, 5)}, {"splits": splits, "tokens": 30}
    yield "no weights", bfloat16, {"splits": splits, "tokens": 33}
    special = np.array(SPECIALS[FP32], np.uint32)
    special_rows = np.resize(special, (-(-64 // align) * align, 96))
    inputs = {"rows": as_float(special_rows, FP32), "row_map": (np.arange(64) % 9).astype(np.int32),
              "weights": as_float(np.resize(special[::-1], 64), FP32)}  # fmt: skip
    yield "special values and weights", inputs, {"splits": [64], "tokens": 9}
    inputs = {"rows": as_float(_expert_rows([128], align, 96, 78), FP32), "row_map": np.arange(128, dtype=np.int32)}
    yield "rows that are the sums, with no padding", inputs, {"splits": [128], "tokens": 128}


def _uneven_sums(align: int) -> Iterator[Corner]:
    """Tokens with many rows and with few, widths that end one column into a step, maps too long for one look."""
    splits, weights = [92, 6], _weights(98, 9)
    weights[np.arange(98) % 4 > 0] = 0  # a weight of zero is a row all the same
    rows, row_map = _expert_rows(splits, align, 65, 9), _crowded().astype(np.int32)
    inputs = {"rows": as_float(rows, FP32), "row_map": row_map, "weights": weights}
    yield "tokens of 33, 32 and fewer rows of 65 columns", inputs, {"splits": splits, "tokens": 20}
    number = np.arange(1000)
    for columns, dtype in ((4, np.int64), (3, np.int32)):
        rows = _expert_rows([990, 10], align, columns, columns)
        given = {"row_map": (number * 7919 % 37).astype(dtype), "weights": _weights(1000, columns)}
        kind = {4: as_float(rows, FP32), 3: as_float(rows >> np.uint32(16), BF16)}[columns]
        yield f"1000 rows of {columns} columns", {"rows": kind, **given}, {"splits": [990, 10], "tokens": 39}
    rows, number = _expert_rows([5, 55], align, 100, 11), np.arange(60)
    row_map = np.where(number % 3 == 0, number % 9, 4).astype(np.int16)
    inputs = {"rows": as_float(rows >> np.uint32(16), BF16), "row_map": row_map}
    yield "bfloat16 rows in fours, 40 of one token", inputs, {"splits": [5, 55], "tokens": 9}
    rows = _expert_rows([9], align, 2100, 12)
    yield ("rows of 2100 columns", {"rows": as_float(rows, FP32), "row_map": (np.arange(9) % 2).astype(np.int32),
                                    "weights": _weights(9, 12)}, {"splits": [9], "tokens": 2})  # fmt: skip


def _expert_rows(splits: list[int], align: int, columns: int, seed: int) -> np.ndarray:
    """float32 patterns of padded expert rows; the padding is NaN, which a sum that reads it would show."""
    padded = [-(-count // align) * align for count in splits]
    rows = VALUES["heavy"].make(Draw(seed), Target(FP32, E4M3, 128), (sum(padded), columns), tail=1, exponent=0)
    start = 0
    for count, whole in zip(splits, padded, strict=True):
        rows[start + count : start + whole] = 0x7FC00000
        start += whole
    return rows


def _weights(count: int, seed: int) -> np.ndarray:
    return as_float(VALUES["normal"].make(Draw(seed, 3), Target(FP32, E4M3, 128), (1, count), exponent=-1)[0], FP32)
