"""Wrong rules of TetraJet-v2 (N24): scales in other operations, noise of another place, step or range."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

import refnum
from refnum.arrays import float32_bits, pack_nibbles, unpack_nibbles
from refnum.codec import decode_table, encode_bits
from refnum.formats import E2M1, E4M3
from refnum.tetrajet_v2 import noise_words

from ..cases.case import Case
from .tools import INF, MAGNITUDE, Outputs, Rule, changed

AWAY = refnum.HOPPER.replace(name="wrong", ties="away")
E2M1_VALUES, E4M3_VALUES = (np.asarray(decode_table(fmt), np.uint32).view(np.float32) for fmt in (E2M1, E4M3))
_HALF, _ONE, _TWO = np.float32(0.5), np.float32(1), np.float32(2)


def _x(case: Case) -> np.ndarray:
    return float32_bits(np.ascontiguousarray(case.inputs["x"])).view(np.float32)


def _spread(part: np.ndarray, width: int) -> np.ndarray:
    return np.repeat(part, width, axis=1)


def _outer(golden: Outputs) -> np.ndarray:
    """Outer scales, float32 [M, K/16]."""
    return _spread(golden["outer"].view(np.float32), 8)


def _inverse(golden: Outputs) -> np.ndarray:
    """Reciprocals of the products of both scales, float32 [M, K]."""
    product = E4M3_VALUES[golden["scales"]] * _outer(golden)
    return _spread(np.where(product == 0, np.float32(0), _ONE / product).astype(np.float32), 16)


def _packed(golden: Outputs, scaled: np.ndarray, profile: refnum.Profile = refnum.HOPPER) -> Outputs:
    codes = encode_bits(E2M1, np.ascontiguousarray(scaled, np.float32).view(np.uint32), 0, profile)
    return {**golden, "packed": pack_nibbles(codes)}


def _requantised(case: Case, outer: np.ndarray, inner: np.ndarray) -> Outputs:
    """The answer under other scales: outer float32 [M, K/128], inner float32 [M, K/16] before its rounding."""
    scales = encode_bits(E4M3, np.ascontiguousarray(inner, np.float32).view(np.uint32), 0, refnum.HOPPER)
    found = {"packed": np.zeros(0, np.uint8), "scales": scales, "outer": outer.astype(np.float32)}
    return _rounded(case, found, _x(case) * _inverse(found))


def _rounded(case: Case, golden: Outputs, scaled: np.ndarray) -> Outputs:
    """Codes of scaled numbers: to nearest, or with the noise of the seed."""
    return _packed(golden, scaled if case.params["seed"] is None else noisy(scaled, _noise(case)))


def _noise(case: Case) -> np.ndarray:
    return refnum.tetrajet_v2_noise(case.inputs["x"].shape, case.params["seed"])


def _region(size: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Step and bounds of the region of magnitudes."""
    low, middle = size <= 2, size <= 4
    step = np.where(low, _HALF, np.where(middle, _ONE, _TWO))
    return step, np.where(low, 0, np.where(middle, 2, 4)), np.where(low, 2, np.where(middle, 4, 6))


def noisy(scaled: np.ndarray, noise: np.ndarray, bound: bool = True, stepped: bool = True) -> np.ndarray:
    """Scaled numbers with noise; bound: kept in their region; stepped: noise in units of its step."""
    size = np.abs(scaled)
    step, least, most = _region(size)
    moved = size + (noise * step if stepped else noise)
    kept = np.clip(moved, least, most) if bound else np.maximum(moved, 0)
    return np.where(np.isnan(scaled), scaled, np.copysign(kept, scaled)).astype(np.float32)


def _maxima(x: np.ndarray, nan: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Maxima of 16 and of 128, both float32 [M, .]; nan: a NaN makes its maxima NaN."""
    size = np.abs(x) if nan else np.where(np.isnan(x), np.float32(0), np.abs(x))
    inner = size.reshape(x.shape[0], x.shape[1] // 16, 16).max(axis=2)
    return inner, inner.reshape(x.shape[0], x.shape[1] // 128, 8).max(axis=2)


def _scales(case: Case, outer: Callable[[np.ndarray], np.ndarray], nan: bool = False) -> Outputs:
    inner, top = _maxima(_x(case), nan)
    wide = outer(top).astype(np.float32)
    wide = np.where(wide == 0, _ONE, wide)
    sixth = inner / _spread(wide, 8) / np.float32(6)
    return _requantised(case, wide, np.where(sixth == 0, np.float32(2**-9), sixth))


def one_division(case: Case, golden: Outputs) -> Outputs | None:
    """The outer scale is the maximum divided by 2688 at once."""
    return _scales(case, lambda top: top / np.float32(2688))


def nan_in_maximum(case: Case, golden: Outputs) -> Outputs | None:
    """A NaN makes the maxima above it NaN."""
    if not np.isnan(_x(case)).any():
        return golden
    return _scales(case, lambda top: top / np.float32(448) / np.float32(6), nan=True)


def divided(case: Case, golden: Outputs) -> Outputs | None:
    """Elements are divided by the product of the scales, not multiplied by its reciprocal."""
    product = _spread(E4M3_VALUES[golden["scales"]] * _outer(golden), 16)
    return _rounded(case, golden, np.where(product == 0, np.float32(0) * _x(case), _x(case) / product))


def scales_in_turn(case: Case, golden: Outputs) -> Outputs | None:
    """Elements are divided by the outer scale, then by the inner one."""
    inner = _spread(E4M3_VALUES[golden["scales"]], 16)
    wide = _x(case) / _spread(_outer(golden), 16)
    return _rounded(case, golden, np.where(inner == 0, np.float32(0) * wide, wide / inner))


def zero_scale(case: Case, golden: Outputs) -> Outputs | None:
    """A block of zeros has the inner scale 0."""
    inner, _ = _maxima(_x(case))
    return {**golden, "scales": np.where(inner == 0, np.uint8(0), golden["scales"])}


def scale_not_zero(case: Case, golden: Outputs) -> Outputs | None:
    """An inner scale is at least 2^-9: one that would be rounded to 0 too."""
    scales = np.maximum(golden["scales"], np.uint8(1))
    found = {**golden, "scales": scales}
    return _rounded(case, found, _x(case) * _inverse(found))


def ties_away(case: Case, golden: Outputs) -> Outputs | None:
    """Ties of elements go away from zero."""
    return _packed(golden, _x(case) * _inverse(golden), AWAY) if case.params["seed"] is None else None


def with_noise(change: Callable[[Case, np.ndarray], np.ndarray]) -> Rule:
    """Return the rule of a kernel whose scaled numbers move otherwise; change: (case, scaled) -> moved."""

    def rule(case: Case, golden: Outputs) -> Outputs | None:
        return None if case.params["seed"] is None else _packed(golden, change(case, _x(case) * _inverse(golden)))

    return rule


def _of_rows(case: Case) -> np.ndarray:
    """The noise of each row as if it were the first."""
    m, k = case.inputs["x"].shape
    return np.broadcast_to(refnum.tetrajet_v2_noise((1, k), case.params["seed"]), (m, k))


def _of_words(words: np.ndarray) -> np.ndarray:
    return ((words >> np.uint32(9)) / 2.0**23 - 0.5).astype(np.float32)


def _of_each(case: Case) -> np.ndarray:
    """The noise where each element has the first word of a state of its own."""
    m, k = case.inputs["x"].shape
    place = np.arange(m * k, dtype=np.uint32)
    state = (place * np.uint32(0x9E3779B1) + np.uint32(case.params["seed"])) * np.uint32(747796405)
    state = (state + np.uint32(2891336453)) * np.uint32(1664525) + np.uint32(1013904223)
    return _of_words(state).reshape(m, k)


def _low_bits(case: Case) -> np.ndarray:
    """The noise of the lower 23 bits of the words."""
    return _of_words(noise_words(case.inputs["x"].shape, case.params["seed"]) << np.uint32(9))


ignored = with_noise(lambda case, scaled: scaled)
of_rows = with_noise(lambda case, scaled: noisy(scaled, _of_rows(case)))
of_each = with_noise(lambda case, scaled: noisy(scaled, _of_each(case)))
low_bits = with_noise(lambda case, scaled: noisy(scaled, _low_bits(case)))
unbounded = with_noise(lambda case, scaled: noisy(scaled, _noise(case), bound=False))
without_step = with_noise(lambda case, scaled: noisy(scaled, _noise(case), stepped=False))


def product_in_turn(case: Case, golden: Outputs) -> Outputs | None:
    """A code is multiplied by its inner scale, then by the outer one."""
    inner, outer = _spread(E4M3_VALUES[case.inputs["scales"]], 16), _spread(case.inputs["outer"], 128)
    return _values(case, E2M1_VALUES[unpack_nibbles(case.inputs["packed"])] * inner * outer)


def scale_of_group(case: Case, golden: Outputs) -> Outputs | None:
    """All eight blocks of a group have the inner scale of its first one."""
    scales = case.inputs["scales"]
    return changed(case, scales=_spread(np.ascontiguousarray(scales[:, ::8]), 8))


def _values(case: Case, wide: np.ndarray) -> Outputs:
    bits = np.ascontiguousarray(wide, np.float32).view(np.uint32)
    plain = np.where((bits & MAGNITUDE) > INF, np.uint32(0x7FC00000), bits).view(np.float32)
    if case.params["dtype"] == "float32":
        return {"values": plain}
    return {"values": plain.astype(ml_dtypes.bfloat16)}
