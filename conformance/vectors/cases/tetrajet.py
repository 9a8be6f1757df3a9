"""Questions about TetraJet: maxima at the steps of its rules, ties, both axes, averages at the middles (N24)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from refnum.formats import BF16, FP32
from refnum.tetrajet import RATIOS, RULES, TIES

from ...cases.corners.tetrajet import content, edge_blocks, laid, near_middles
from ...cases.draw.bits import as_float
from ..draft import INF, NAN, SIGN, Draft, bits, float32, plain, rows_of

FLAGS = ("TETRAJET_OTHER_RULE", "TETRAJET_OTHER_RATIO", "TETRAJET_OTHER_TIES", "TETRAJET_ZERO_BYTE",
         "TETRAJET_OTHER_AXIS", "TETRAJET_BITS_IGNORED")  # fmt: skip
AVERAGED = ("TETRAJET_OTHER_RULE", "TETRAJET_ZERO_BYTE", "QEMA_IGNORED", "QEMA_AVERAGE_ROUNDED", "QEMA_TIE_DOWN",
            "QEMA_SIGN_LOST", "QEMA_ZERO_MOVES")  # fmt: skip
AXES = (1, 0)
TIE_LANES = [bits(n / 4) | s for n in (1, 3, 5, 7, 10, 14, 20) for s in (0, SIGN)]


def _draft(
    comment: str, x: np.ndarray, chosen: tuple[Any, ...], clause: str = "", rbits: np.ndarray | None = None
) -> Draft:
    axis, rule, ties, ratio = chosen
    random = {} if rbits is None else {"rbits": rbits}
    return Draft({"x": x, **random}, {"axis": axis, "rule": rule, "ties": ties, "ratio": ratio}, FLAGS, comment, clause)


def _turned(x: np.ndarray, axis: int) -> np.ndarray:
    return x if axis else np.ascontiguousarray(x.T)


def _maxima() -> Iterator[Draft]:
    """Maxima at each rule's steps in three binades, and the one where a float32 ratio is not exact."""
    tops = [bits(n) for n in (4, 6, 6.0234375, 8, 3, 1.5)]
    near = [t + d for t in tops for d in (-1, 0, 1)] + [0x01400000, 0x01400001, 0x01400002, 0x7F7FFFFF, 1, 0x00800000]
    rows = float32([[top, *TIE_LANES, *[0] * 17] for top in near])
    rows = np.where(np.abs(rows) > rows[:, :1], np.float32(0), rows)
    padded = np.zeros((32, 32), np.float32)
    padded[: len(rows)] = rows
    for axis, rule, ratio in itertools.product(AXES, RULES, RATIOS):
        if rule == "truncation_free" or ratio == "bfloat16":
            comment = "maxima beside every step, ties beside them"
            yield _draft(comment, _turned(padded, axis), (axis, rule, "even", ratio), "N24")
    for axis, ties in itertools.product(AXES, TIES):
        x = float32(rows_of([*TIE_LANES, *(t + 1 for t in TIE_LANES), *(t - 1 for t in TIE_LANES)], bits(6)))
        whole = np.zeros((32, 32), np.float32)
        whole[: len(x)] = x
        yield _draft("ties and one ulp beside", _turned(whole, axis), (axis, "exact", ties, "float32"), "N24")


def _special() -> Iterator[Draft]:
    """Zeros, NaN and Inf, short blocks, no rows, the other input format, random bytes."""
    x = np.zeros((34, 64), np.float32)
    x[3, 5], x[3, 40], x[9, 7], x[33, 2] = np.float32(-0.0), 1e-8, 3, -7
    x[5, 9] = np.uint32(NAN).view(np.float32)
    x[7, 33], x[33, 60] = np.uint32(INF).view(np.float32), np.uint32(SIGN | INF).view(np.float32)
    for axis, rule in itertools.product(AXES, RULES):
        yield _draft("zeros, NaN, Inf, a short last block", x, (axis, rule, "even", "bfloat16"), "N24")
    for axis in AXES:
        chosen = (axis, "truncation_free", "even", "bfloat16")
        yield _draft("no rows", np.zeros((0, 32), np.float32), chosen, "N0")
        for fmt in (FP32, BF16):
            yield _draft("numbers of many sizes", as_float(content((33, 64), fmt), fmt), chosen, "N24")
        ties = (axis, "truncation_free", "away", "bfloat16")
        yield _draft("bfloat16 beside steps", as_float(laid(edge_blocks(BF16)[1500:1532], axis, 32), BF16), ties)
        wide = as_float(content((33, 32), FP32, 4), FP32)
        rbits = (np.arange(wide.size, dtype=np.uint32).reshape(wide.shape) * np.uint32(2654435761) >> 24).astype(
            np.uint8
        )
        yield _draft("random bytes", wide, chosen, "N24", rbits)


def _averages() -> Iterator[Draft]:
    """Averages at the middles of neighbours, the known answers, zeros, NaN and Inf, weights of many sizes."""
    w, ema = near_middles(FP32)
    known = np.full((2, 1, 32), 6, np.float32)
    known[0, 0, 1:12] = [0.3, 0.3, 0.2, 1.3, 1.3, 2.6, -2.6, -2.6, 5.1, 5.1, 1.9]
    known[1, 0, 1:12] = [0.2, 0.25, 0.3, 1.2, 1.9, 2.4, -2.4, 2.4, 4.9, 9.0, 0.1]
    bad = np.zeros((2, 33, 32), np.float32)
    bad[0] = content((33, 32), FP32).view(np.float32)
    bad[1] = content((33, 32), FP32, 3).view(np.float32)
    bad[0, 4, 5], bad[0, 6, 6], bad[0, 8], bad[1, 9, 3], bad[1, 10, 4] = np.nan, -np.inf, 0, np.nan, np.inf
    for axis, rule in itertools.product(AXES, RULES):
        pairs = {
            "averages at the middles of neighbours": [laid(part, axis, 32).view(np.float32) for part in (w, ema)],
            "zeros, NaN and Inf, weights of many sizes": list(bad),
        }
        if axis:
            pairs["the known answers"] = list(known)
        for comment, (left, right) in pairs.items():
            yield Draft({"w": left, "ema": right}, {"axis": axis, "rule": rule}, AVERAGED, comment, "N24")
    narrow = {name: as_float(content((2, 32), BF16, seed), BF16) for seed, name in enumerate(("w", "ema"))}
    yield Draft(narrow, {"axis": 1, "rule": "exact"}, AVERAGED, "bfloat16", "N24")


quantize_tetrajet = plain(_maxima, _special)
q_ema = plain(_averages)
