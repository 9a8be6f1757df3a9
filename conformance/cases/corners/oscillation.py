"""Corners of what is done about oscillating weights (N24): quotients beside whole numbers, edges of bins, counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import refnum
from refnum.arrays import pack_nibbles
from refnum.codec import decode_table
from refnum.formats import E2M1

from ..draw.bits import as_float
from ..recipes.distributions import target_of
from . import tetrajet
from .nvfp4 import narrowed
from .tetrajet_v2 import stored
from .updates import KINDS, SHAPES, content

Corner = tuple[Any, ...]
Arrays = dict[str, np.ndarray]
SIGNED = np.concatenate([KINDS, KINDS | np.uint32(1 << 31)])
WHOLES = (1, 2, 3, 5, 7, 100, 4097, 1 << 21, 1 << 22, (1 << 31) // 5, (1 << 31) - 128, 1 << 31, 1 << 33)
"""Quotients: small ones, and some at which a product with 5, or an int32, ends."""
WALKED = np.array([0, 0x322BCC77, 0x33000001, 0x3A83126F, 0x3C23D70A, 0x3F800000, 0x40490FDB], np.uint32)
"""float32 bits of distances: none, 1e-8, and some to which 1e-8 adds a little or nothing."""
MOVES: tuple[dict[str, Any], ...] = ({"alpha": [1, 3]}, {"alpha": [3, 1], "beta": 1}, {"beta": 0}, {"most": 7},
                                     {"alpha": [1, 10], "beta": 1000, "most": 1 << 20})  # fmt: skip
WIDTHS = np.array([0.5, 0.5, 0.5, 0.5, 0.75, 1, 1.5, 2], np.float32)

CHANNELS = (1, 2, 127, 128, 129, 160, 255, 256, 257, 300, 383, 384, 385, 640, 1000, 1024, 1025, 1280, 1281, 1290, 2570)
"""Numbers of channels below, at and beside multiples of 128, and at and beside those of which a tenth is 128."""
PRODUCTS = ((540, 385, 540), (565, 385, 565), (531, 385, 531), (573, 385, 573), (1000, 129, 1000),
            (301, 128999999, 301000000), (769, 256999999, 769000000))  # fmt: skip
"""Channels, and the numerator and denominator of a share whose product with them floats have on the other side of one
more than a multiple of 128."""

SCALES = ((0x38, 1), (0x3B, 0.7), (0xB9, 3), (0x01, 2.0**-140), (0, 1), (0x7F, 1), (0x38, 0), (0x38, np.inf),
          (0x38, np.nan))  # fmt: skip
"""Inner and outer scales: ordinary ones, the least, and those under which no weight is a number."""


def beside(numbers: np.ndarray) -> np.ndarray:
    """float32 numbers, each with its two neighbours behind it, in columns."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)[..., None]
    return (bits.astype(np.int64) + np.array([-1, 0, 1])).astype(np.uint32).view(np.float32).reshape(len(numbers), -1)


def grid(first: str, second: str) -> Arrays:
    """Two arrays that hold all pairs of numbers of every kind."""
    pair = np.meshgrid(SIGNED, SIGNED, indexing="ij")
    return {n: np.ascontiguousarray(g).view(np.float32) for n, g in zip((first, second), pair, strict=True)}


def whole_quotients(alpha: float) -> Arrays:
    """Distances whose quotient lies at a whole number or beside it."""
    walked = WALKED.view(np.float32)
    with np.errstate(all="ignore"):
        below = walked + np.float32(1e-8)
        jumped = beside(np.float32(alpha) * (below[:, None] * np.array(WHOLES, np.float32)))
    return {"dist_w": np.repeat(walked[:, None], jumped.shape[1], axis=1), "dist_q": jumped}


def distances(shape: tuple[int, int], seed: int = 0) -> Arrays:
    """Distances of a shape, of codes some times those of the weights."""
    walked, jumped = (np.abs(content(shape, seed + place)) for place in range(2))
    return {"dist_w": walked * np.float32(0.01), "dist_q": jumped}


def threshold_quotients(threshold: float) -> Arrays:
    """Distances whose quotient lies at a threshold or beside it."""
    walked = np.abs(content((64, 1), 16))
    return {"dist_w": np.repeat(walked, 3, axis=1), "dist_q": beside(walked * np.float32(threshold))}


def q_ramping(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Numbers of every kind, quotients at and beside whole numbers, other scales and bounds, shapes."""
    yield "distances of every kind", grid("dist_w", "dist_q")
    yield "quotients beside whole numbers", whole_quotients(16)
    for more in MOVES:
        above, below = more.get("alpha", (16, 1))
        yield f"quotients beside whole numbers, {more}", whole_quotients(above / below), more
    for shape in SHAPES:
        yield f"shape {shape[0]}x{shape[1]}", distances(shape, 3)


def counted(shape: tuple[int, int], seed: int = 0) -> Arrays:
    """A step of a shape: counts below 32 and periods up to 8."""
    total, grad = (content(shape, seed + place) for place in range(2))
    place = np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape)
    return {"total": total, "count": place * 7 % 31, "grad": grad, "period": 1 + place * 5 % 8}


def ramping_step(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Sums of every kind, counts beside multiples of periods and those that float32 rounds, gradients not finite."""
    step = grid("total", "grad")
    step["grad"] = np.where(np.isfinite(step["grad"]), step["grad"], np.float32(-2.5))
    whole = counted(step["total"].shape)
    yield "sums of every kind", {**whole, **step}
    yield "sums of every kind, all due", {**whole, **step, "period": np.ones_like(whole["period"])}
    counts = np.array([0, 1, 2, 6, 7, 8, (1 << 24) - 1, 1 << 24, (1 << 24) + 2, (1 << 31) - 3, (1 << 31) - 2], np.int64)
    pairs = np.array([(count, period) for count in counts for period in (1, 2, 3, 7, 8, count, count + 1, count + 2)
                      if 0 < period < 1 << 31], np.int32).T  # fmt: skip
    for seed in range(2):
        yield f"counts beside periods {seed}", {**counted((1, pairs.shape[1]), seed), "count": pairs[:1].copy(),
                                                "period": pairs[1:].copy()}  # fmt: skip
    for pattern in (0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001):
        for place in (0, 500, 1023):
            step = counted((16, 64), 5)
            step["grad"].view(np.uint32).reshape(-1)[place] = pattern
            yield f"a gradient 0x{pattern:08X} at {place}", step
    for shape in SHAPES:
        yield f"shape {shape[0]}x{shape[1]}", counted(shape, 3)


def edges(threshold: float) -> np.ndarray:
    """Weights [16, 24] of a code a row: at and beside both edges of its bin, others, and numbers of every kind."""
    level = np.asarray(decode_table(E2M1), np.uint32).view(np.float32)
    reach = np.float32(threshold) * np.tile(WIDTHS, 2)
    near = beside(np.stack([level + reach, level - reach, level + 2 * reach, level * 1.25], axis=1))
    return np.concatenate([near, np.tile(KINDS[:12].view(np.float32), (16, 1))], axis=1)


def coded_edges(threshold: float, scale: int, outer: float) -> Arrays:
    """Edges under a scale and an outer scale, the codes and both scales beside them."""
    product = np.float32(outer) * refnum.decode_e4m3(np.array([scale], np.uint8))
    with np.errstate(all="ignore"):
        w = (edges(threshold) * product).reshape(3, 128)
    codes = np.repeat(np.arange(16, dtype=np.uint8), 24).reshape(3, 128)
    return {"w": w, "packed": pack_nibbles(codes), "scales": np.full((3, 8), scale, np.uint8),
            "outer": np.full((3, 1), outer, np.float32)}  # fmt: skip


def quantised(w: np.ndarray) -> Arrays:
    """Weights with the codes and scales that they have."""
    return dict(zip(("w", "packed", "scales", "outer"), (w, *refnum.quantize_tetrajet_v2(w)), strict=True))


def osci_reset(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Every code's edges under ordinary scales and scales that are none, quantised weights, others' codes, shapes."""
    fmt = target_of(operation, params).input
    for (scale, outer), (above, below) in itertools.product(SCALES, ((495, 1000), (1, 4), (5, 1))):
        made = coded_edges(above / below, scale, outer)
        made["w"] = as_float(narrowed(made["w"].view(np.uint32), fmt), fmt)
        more = {} if (above, below) == (495, 1000) else {"threshold": [above, below]}
        yield f"edges at {above}/{below} under scale {scale:02X} and {outer}", made, more
    for shape in ((0, 128), (1, 128), (3, 256), (33, 384)):
        w = as_float(tetrajet.content(shape, fmt), fmt)
        yield f"shape {shape[0]}x{shape[1]}", quantised(w)
        yield f"shape {shape[0]}x{shape[1]}, others' codes", {"w": w, **stored(shape, 9)}


def osci_reset_by_distance(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Numbers of every kind, quotients at and beside the threshold, other thresholds, shapes."""
    yield "distances of every kind", grid("dist_w", "dist_q")
    for above, below in ((16, 1), (3, 2), (1, 3)):
        near = threshold_quotients(above / below)
        more = {} if below == 1 else {"threshold": [above, below]}
        yield f"quotients beside {above}/{below}", near, more
        yield f"quotients that are negative, {above}/{below}", {**near, "dist_q": -near["dist_q"]}, more
    for shape in SHAPES:
        yield f"shape {shape[0]}x{shape[1]}", distances(shape, 3)


def pairs_at_the_end() -> Arrays:
    """Rows of 256 with all pairs of numbers of every kind, NaN above and -Inf below, one of them the 128th of a row."""
    first, second = (part.reshape(-1) for part in np.meshgrid(SIGNED, SIGNED, indexing="ij"))
    rows = np.tile(np.array([0x7FC00000, 0xFF800000], np.uint32), (first.size, 128))
    rows[:, 100], rows[:, 201] = first, second  # in the place of a NaN and of an Inf
    return {"norms": rows.view(np.float32)}


def norms(shape: tuple[int, int], seed: int, kept: int = 0xFFF00000) -> Arrays:
    """Norms of a shape of which many are equal; kept: the bits that they may have."""
    return {"norms": (content(shape, seed).view(np.uint32) & np.uint32(kept)).view(np.float32)}


def shares(k: int) -> Iterator[list[int]]:
    """Shares of k channels: none, all, next to none, and those at and beside a multiple of 128 and one more than it."""
    yield from ([0, 1], [1, 1], [1, (1 << 31) - 1], [1, 2])
    for whole in range(128, k + 1, 128 * max(1, k // 384)):
        thousandths = (1000 * whole + step for step in (-500, -1, 0, 1, 500, 999, 1000, 1001, 1500))
        yield from ([above, 1000 * k] for above in thousandths if above < 1000 * k)


def out_control(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Pairs of numbers of every kind at the end of the chosen, ties, numbers of channels, shares, shapes."""
    yield "pairs of numbers of every kind", pairs_at_the_end(), {"share": [1, 2]}
    kinds = SIGNED[content((28, 1290), 3).view(np.uint32) % np.uint32(SIGNED.size)].view(np.float32)
    yield "numbers of every kind", {"norms": kinds}
    for place, k in enumerate(CHANNELS):
        for kept in (0xFFF00000, 0x80000000, 0x7F800000, 0xFFFFFFFF):
            yield f"{k} channels, the bits {kept:08X} of their norms", norms((3, k), place, kept)
    for k in (1, 127, 128, 129, 300, 385, 640, 1025):
        for share in shares(k):
            yield f"a share {share[0]}/{share[1]} of {k} channels", norms((2, k), k), {"share": share}
    for k, above, below in PRODUCTS:
        yield f"a share {above}/{below} of {k} channels", norms((2, k), k), {"share": [above, below]}
    for shape in SHAPES:
        yield f"shape {shape[0]}x{shape[1]}", norms(shape, 3)
