"""Wrong rules of the integer quantisers (N26): other roundings, ranges, scales and zero points, other elements kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from refnum.arrays import float32_bits
from refnum.codec import decode_table, encode_bits
from refnum.formats import E2M1
from refnum.llm_quantisers import _binades
from refnum.profiles import HOPPER

from ..cases.case import Case
from .tools import Outputs, Rule, changed

Round = Callable[[np.ndarray], np.ndarray]
FIFTEEN = np.float32(15)


def _x(case: Case) -> np.ndarray:
    return float32_bits(np.ascontiguousarray(case.inputs["x"])).view(np.float32)


def away(q: np.ndarray) -> np.ndarray:
    """To nearest, ties away from zero."""
    return np.copysign(np.floor(np.abs(q).astype(np.float64) + 0.5), q).astype(np.float32)


def _int4(q: np.ndarray, rounded: Round = np.rint, least: int = -8) -> np.ndarray:
    """Codes of INT4: within `least` to 7, NaN as 7."""
    codes = np.where(np.isnan(q), 7, np.clip(rounded(q), least, 7)).astype(np.int64)
    return (codes & 15).astype(np.uint8)


def _groups(case: Case, per_group: np.ndarray) -> np.ndarray:
    """Numbers of groups for each of their elements, [M, K]."""
    return np.repeat(per_group, case.params["group"], axis=1).astype(np.float32)


def _fifteen(placed: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(placed), FIFTEEN, np.clip(placed, 0, 15)).astype(np.uint8)


def _placed(case: Case, golden: Outputs, rounded: Round = np.rint) -> Outputs:
    """Affine codes under the golden scales and zero points with another rounding."""
    scales, zeros = (_groups(case, golden[name]) for name in ("scales", "zeros"))
    return {**golden, "codes": _fifteen(rounded(_x(case) / scales) + zeros)}


def rounding(rounded: Round) -> Rule:
    """Return the rule of a kernel that rounds to whole numbers otherwise."""

    def rule(case: Case, golden: Outputs) -> Outputs | None:
        if "zeros" in golden:
            return _placed(case, golden, rounded)
        if "symmetric" in case.params:
            return _qat(case, rounded)
        return {**golden, "codes": _codes(case, golden, _quotients(case, golden), rounded)}

    return rule


def _quotients(case: Case, golden: Outputs) -> np.ndarray:
    x = _x(case)
    if "scale" in golden:
        return np.where(x == 0, np.float32(0), x / golden["scale"])
    return x * np.float32(7) / _groups(case, golden["scales"])


def _codes(case: Case, golden: Outputs, q: np.ndarray, rounded: Round = np.rint, least: int = -8) -> np.ndarray:
    codes = _int4(q, rounded, least)
    if "kept" in golden and codes.size:
        groups = codes.reshape(*golden["kept"].shape[:2], -1)
        np.put_along_axis(groups, golden["kept"].astype(np.int64), 0, axis=2)
    return codes


def symmetric(case: Case, golden: Outputs) -> Outputs | None:
    """Codes end at -7."""
    return {**golden, "codes": _codes(case, golden, _quotients(case, golden), least=-7)}


def _scaled(case: Case, clip: np.ndarray, levels: int) -> Outputs:
    scale = (np.float32(2) * clip / np.float32(levels)).astype(np.float32).reshape(1)
    x = _x(case)
    return {"codes": _int4(np.where(x == 0, np.float32(0), x / scale)), "scale": scale}


def _formula(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    root = np.sqrt(np.mean(wide * wide, dtype=np.float64).astype(np.float32))
    mean = np.mean(np.abs(wide)).astype(np.float32)
    return np.float32(12.1) * root - np.float32(12.2) * mean


def seventeen_levels(case: Case, golden: Outputs) -> Outputs | None:
    """The scale is 2 c / 16, as for codes from -8 to 8."""
    clip = golden["scale"].astype(np.float64) * 7.5
    return _scaled(case, clip.astype(np.float32), 16)


def unguarded(case: Case, golden: Outputs) -> Outputs | None:
    """The clip is what the formula gives, whatever its sign."""
    x = _x(case)
    finite = x[np.isfinite(x)]
    clip = np.asarray(_formula(finite) if finite.size else np.nan, np.float32)
    return golden if np.isfinite(clip) and clip > 0 else _scaled(case, clip, 15)


def nonfinite_counted(case: Case, golden: Outputs) -> Outputs | None:
    """NaN and infinities take part in the means."""
    x = _x(case)
    return golden if np.isfinite(x).all() else _scaled(case, _formula(x), 15)


def _affine(case: Case, x: np.ndarray, least: np.ndarray, most: np.ndarray, other: bool) -> Outputs:
    """Codes of groups between given extremes. other: whether the bounds are those of the other quantiser."""
    spread = most - least
    if (case.operation == "int4_affine") != other:
        scales = np.fmax(spread, np.float32(1e-5)) / FIFTEEN
        zeros = np.nan_to_num(np.clip(-np.rint(least / scales), 0, 15))
    else:
        scales = np.fmin(np.fmax(spread / FIFTEEN, np.float32(1e-4)), np.float32(1e4))
        zeros = np.rint(-least / scales)
    placed = np.rint(x / _groups(case, scales)) + _groups(case, zeros)
    if case.operation == "int4_affine":
        zeros = np.nan_to_num(np.clip(zeros, 0, 15)).astype(np.uint8)
    return {"codes": _fifteen(placed), "scales": scales.astype(np.float32), "zeros": zeros}


def _extremes(case: Case) -> tuple[np.ndarray, np.ndarray]:
    x = _x(case)
    groups = x.reshape(x.shape[0], -1, case.params["group"]) if x.size else np.zeros((0, x.shape[1], 1), np.float32)
    counted = ~np.isnan(groups).all(axis=2)
    least, most = np.fmin.reduce(groups, axis=2, initial=np.inf), np.fmax.reduce(groups, axis=2, initial=-np.inf)
    return np.where(counted, least, 0).astype(np.float32), np.where(counted, most, 0).astype(np.float32)


def zero_in_range(case: Case, golden: Outputs) -> Outputs | None:
    """The range of a group is made to hold zero, as observers of frameworks do."""
    least, most = _extremes(case)
    if not case.inputs["x"].size or not ((least > 0) | (most < 0)).any():
        return golden
    return _affine(case, _x(case), np.minimum(least, np.float32(0)), np.maximum(most, np.float32(0)), False)


def other_bounds(case: Case, golden: Outputs) -> Outputs | None:
    """Bounds of scale and zero point are those of the other affine quantiser."""
    if not case.inputs["x"].size:
        return golden
    return _affine(case, _x(case), *_extremes(case), True)


def after_zero(case: Case, golden: Outputs) -> Outputs | None:
    """The sum with the zero point is rounded, and not the quotient."""
    scales, zeros = (_groups(case, golden[name]) for name in ("scales", "zeros"))
    return {**golden, "codes": _fifteen(np.rint(_x(case) / scales + zeros))}


def by_reciprocal(case: Case, golden: Outputs) -> Outputs | None:
    """Numbers are multiplied by fl(1 / s)."""
    scales, zeros = (_groups(case, golden[name]) for name in ("scales", "zeros"))
    return {**golden, "codes": _fifteen(np.rint(_x(case) * (np.float32(1) / scales)) + zeros)}


def zero_point_lost(case: Case, golden: Outputs) -> Outputs | None:
    """Codes are those of the quotient alone."""
    return {**golden, "codes": _fifteen(np.rint(_x(case) / _groups(case, golden["scales"])))}


def signed_clamp(case: Case, golden: Outputs) -> Outputs | None:
    """Codes are clamped to the range of signed ones after the zero point was added."""
    return {**golden, "codes": np.minimum(golden["codes"], np.uint8(7))}


def _with_kept(case: Case, order: np.ndarray, count: int, whole: bool = False) -> Outputs:
    """Groups of which the first of an order are kept; `whole`: the scale is that of all elements."""
    x = _x(case).reshape(*order.shape)
    kept = order[:, :, :2]
    held = np.zeros(x.shape, bool)
    np.put_along_axis(held, kept[:, :, :count], True, axis=2)
    magnitude = np.nan_to_num(np.abs(x), posinf=np.inf)
    rest = np.where(held & (not whole), np.float32(0), magnitude)
    scales = np.maximum(rest.max(axis=2), np.float32(1e-6))
    codes = np.where(held, 0, _int4(x * np.float32(7) / scales[:, :, None]))
    return {"codes": codes.reshape(case.inputs["x"].shape).astype(np.uint8), "scales": scales,
            "kept": kept.astype(np.int32)}  # fmt: skip


def _order(case: Case, later: bool = False) -> np.ndarray:
    """Places of each group by magnitude, the largest first, of equal ones the lower or the higher first."""
    x = _x(case).reshape(case.inputs["x"].shape[0], -1, case.params["group"])
    magnitude = np.nan_to_num(np.abs(x), posinf=np.inf)
    if not later:
        return np.argsort(-magnitude, axis=2, kind="stable")
    return magnitude.shape[2] - 1 - np.argsort(-magnitude[:, :, ::-1], axis=2, kind="stable")


def later_first(case: Case, golden: Outputs) -> Outputs | None:
    """Of equal magnitudes that with the higher place is kept."""
    return _with_kept(case, _order(case, later=True), 2) if case.inputs["x"].size else golden


def kept_in_scale(case: Case, golden: Outputs) -> Outputs | None:
    """The scale is the largest magnitude of all elements."""
    return _with_kept(case, _order(case), 2, whole=True) if case.inputs["x"].size else golden


def kept_one(case: Case, golden: Outputs) -> Outputs | None:
    """Only the largest element has no part in the scale."""
    return _with_kept(case, _order(case), 1) if case.inputs["x"].size else golden


def quotient_first(case: Case, golden: Outputs) -> Outputs | None:
    """Numbers are multiplied by fl(7 / s)."""
    q = _x(case) * (np.float32(7) / _groups(case, golden["scales"]))
    return {**golden, "codes": _codes(case, golden, q)}


def _qat(case: Case, rounded: Round, small: float = 1e-6, tiny: float = 1e-8, drop: bool = False) -> Outputs:
    """LLM-QAT with another rounding, other constants, or NaN without a part in the extremes."""
    x, bits = _x(case), case.params["bits"]
    vectors = x.reshape(1, -1) if case.params["layerwise"] else x
    low, high = (np.fmin, np.fmax) if drop else (np.minimum, np.maximum)
    least, most = low.reduce(vectors, axis=1, initial=np.inf), high.reduce(vectors, axis=1, initial=-np.inf)
    if case.params["symmetric"]:
        top = np.maximum(np.abs(least), np.abs(most))[:, None]
        scale = np.float32(2 ** (bits - 1) - 1) / (top + np.float32(small))
        whole = rounded(vectors * scale)
        values = whole / (scale + np.float32(small))
    else:
        spread, count = (most - least + np.float32(tiny))[:, None], np.float32(2**bits - 1)
        whole = rounded((vectors - least[:, None]) / spread * count)
        values = whole / count * spread + least[:, None]
    codes = np.where(np.isfinite(whole), whole, 0).astype(np.int32)
    plain = np.where(np.isnan(values), np.float32(np.nan), values)  # NumPy's may have a sign
    return {"codes": codes.reshape(x.shape), "values": plain.astype(np.float32).reshape(x.shape)}


def without_epsilon(case: Case, golden: Outputs) -> Outputs | None:
    """Nothing is added to a scale."""
    return _qat(case, np.rint, 0, 0)


def nan_dropped(case: Case, golden: Outputs) -> Outputs | None:
    """A NaN has no part in the extremes of its vector."""
    return _qat(case, np.rint, drop=True) if np.isnan(_x(case)).any() else golden


def other_vector(case: Case, golden: Outputs) -> Outputs | None:
    """A row has the scale of the tensor, or the tensor the scales of rows."""
    return changed(case, layerwise=not case.params["layerwise"])


def other_rule(case: Case, golden: Outputs) -> Outputs | None:
    """The symmetric quantiser for the other one, and the other way round."""
    return changed(case, symmetric=not case.params["symmetric"])


def _wide(case: Case, part: np.ndarray) -> np.ndarray:
    """Numbers of groups, of the tensor where there is one, for each element, float32 [M, K]."""
    m, k = case.inputs["codes"].shape
    grid = part.reshape(1, 1) if part.ndim == 1 else part
    return np.broadcast_to(np.repeat(grid.astype(np.float32), k // max(1, grid.shape[1]), axis=1), (m, k))


def _restored(case: Case, codes: np.ndarray, scales: np.ndarray | None = None) -> Outputs:
    scale = _wide(case, case.inputs["scales"] if scales is None else scales)
    values = (codes.astype(np.float32) * scale).astype(np.float32)
    return {"values": np.where(np.isnan(values), np.float32(np.nan), values)}


def _zeros(case: Case) -> np.ndarray:
    return _wide(case, case.inputs["zeros"])


def unsigned(case: Case, golden: Outputs) -> Outputs | None:
    """Codes without zero points are read as 0 to 15."""
    return None if "zeros" in case.inputs else _restored(case, case.inputs["codes"])


def zero_added(case: Case, golden: Outputs) -> Outputs | None:
    """The zero point is added."""
    return _restored(case, case.inputs["codes"].astype(np.float32) + _zeros(case)) if "zeros" in case.inputs else None


def zero_scaled_alone(case: Case, golden: Outputs) -> Outputs | None:
    """The scaled zero point is taken from the scaled code: two products, and a difference that is rounded last."""
    if "zeros" not in case.inputs:
        return None
    scale = _wide(case, case.inputs["scales"])
    values = (case.inputs["codes"].astype(np.float32) * scale - _zeros(case) * scale).astype(np.float32)
    return {"values": np.where(np.isnan(values), np.float32(np.nan), values)}


def zero_signed(case: Case, golden: Outputs) -> Outputs | None:
    """Codes beside zero points are read in two's complement."""
    if "zeros" not in case.inputs:
        return None
    codes = case.inputs["codes"].astype(np.float32)
    return _restored(case, np.where(codes > 7, codes - 16, codes) - _zeros(case))


def scale_of_neighbour(case: Case, golden: Outputs) -> Outputs | None:
    """Each group has the scale of the next one."""
    scales = case.inputs["scales"]
    return changed(case, scales=np.ascontiguousarray(np.roll(scales, -1, axis=-1)))


def _fp4(case: Case, round_: Round = np.rint, clip: bool = True) -> Outputs:
    """LLM-FP4 with another rounding, or without the clip: each row under its largest number."""
    x, width = _x(case), int(case.params["exponent_bits"])
    count, scale, binade = (np.zeros(x.shape, np.float32) for _ in range(3))
    for row, top in enumerate(np.broadcast_to(case.inputs["maxval"], len(x))):
        starts, scales = (np.array(part, np.uint32) for part in _binades(int(top.view(np.uint32)), width))
        size = np.minimum(np.abs(x[row]), top) if clip else np.abs(x[row])
        binade[row] = np.searchsorted(starts, size.view(np.uint32), side="right")
        scale[row] = scales.view(np.float32)[binade[row].astype(np.int64)]
        count[row] = round_(size / scale[row])
    return _fp4_coded(x, count + binade * (1 << 3 - width), count * scale)


def _fp4_coded(x: np.ndarray, codes: np.ndarray, values: np.ndarray) -> Outputs:
    nan, sign = np.isnan(x), np.signbit(x).astype(np.uint8) << np.uint8(3)
    whole = np.minimum(np.where(nan, 7, codes), 7).astype(np.uint8)
    signed = np.copysign(values, x).astype(np.float32)
    return {"codes": np.where(nan, whole, whole | sign), "values": np.where(nan, np.float32(np.nan), signed)}


def fp4_rounding(rounded: Round) -> Rule:
    """Return the rule of a kernel that rounds a quotient otherwise."""
    return lambda case, golden: _fp4(case, rounded)


def not_clipped(case: Case, golden: Outputs) -> Outputs | None:
    """A number above the largest one keeps its value; its code is the largest."""
    return _fp4(case, clip=False) if np.isfinite(_x(case)).all() else None


def by_scale(case: Case, golden: Outputs) -> Outputs | None:
    """Numbers are rounded to whole or E2M1 numbers of the scale that makes the largest one maxval."""
    x = _x(case)
    tops = np.broadcast_to(case.inputs["maxval"], len(x))[:, None]
    two = case.params["exponent_bits"] == 2
    scale = (tops / np.float32(6 if two else 7)).astype(np.float32)
    size = np.minimum(np.abs(x), tops) / scale
    if not two:
        return _fp4_coded(x, np.rint(size), np.rint(size) * scale)
    codes = encode_bits(E2M1, np.ascontiguousarray(size, np.float32).view(np.uint32), 0, HOPPER)
    return _fp4_coded(x, codes, np.asarray(decode_table(E2M1), np.uint32).view(np.float32)[codes] * scale)


def zero_sign_lost(case: Case, golden: Outputs) -> Outputs | None:
    """A value of 0 has no sign."""
    values = golden["values"]
    return {**golden, "values": np.where(values == 0, np.float32(0), values)}


def nan_as_zero(case: Case, golden: Outputs) -> Outputs | None:
    """A NaN has the code 0 and the value 0."""
    nan = np.isnan(_x(case))
    codes, values = np.where(nan, np.uint8(0), golden["codes"]), np.where(nan, np.float32(0), golden["values"])
    return {"codes": codes, "values": values}


def other_width(case: Case, golden: Outputs) -> Outputs | None:
    """The other number of exponent bits."""
    return changed(case, exponent_bits=3 - int(case.params["exponent_bits"]))


def first_maxval(case: Case, golden: Outputs) -> Outputs | None:
    """Every row has the largest number of the first one."""
    return changed(case, maxval=case.inputs["maxval"][:1].copy()) if len(case.inputs["maxval"]) > 1 else None
