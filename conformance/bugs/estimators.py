"""Wrong rules of DGE and OCC (N25): other edges, no cap, other intervals; indices in float64, one side alone."""

from __future__ import annotations

import numpy as np

import refnum
from refnum.arrays import float32_bits

from ..cases.case import Case
from .tools import MAGNITUDE, Outputs, changed, to_bfloat16


def other_edges(case: Case, golden: Outputs) -> Outputs | None:
    """The released code's edges for the paper's, and the other way round."""
    if "compat" not in case.params:
        return None
    return changed(case, compat="paper" if case.params["compat"] == "ms-amp" else "ms-amp")


def without_cap(case: Case, golden: Outputs) -> Outputs | None:
    """The slope is not cut; in the middle of an interval it is infinite."""
    if "cap" not in case.params:
        return None
    found = changed(case, cap=2.0**126)["values"]
    return {"values": np.where(found == found.dtype.type(2.0**126), found.dtype.type(np.inf), found)}


def _as_float32(case: Case, bits: np.ndarray) -> Outputs:
    return changed(case, x=np.ascontiguousarray(bits.astype(np.uint32)).view(np.float32), input="float32")


def narrowed(case: Case, golden: Outputs) -> Outputs | None:
    """x is rounded to bfloat16 before its place is found."""
    return _as_float32(case, to_bfloat16(float32_bits(case.inputs["x"]))) if "compat" in case.params else None


def even_intervals(case: Case, golden: Outputs) -> Outputs | None:
    """Every interval is taken for one of width 1/2, as below 2: from 2 on the place is that of x mod 1/2."""
    if "compat" not in case.params:
        return None
    bits = float32_bits(case.inputs["x"])
    magnitude = bits & MAGNITUDE
    inside = (magnitude >= np.uint32(0x40000000)) & (magnitude <= np.uint32(0x40C00000))
    value = np.where(inside, magnitude, np.uint32(0)).astype(np.uint32).view(np.float32)
    rest = (value - np.floor(value * np.float32(2)) / np.float32(2)).astype(np.float32)
    sign = bits & np.uint32(1 << 31)
    return _as_float32(case, np.where(inside, np.ascontiguousarray(rest).view(np.uint32) | sign, bits))


_EDGES = np.array([-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def power_rounded(case: Case, golden: Outputs) -> Outputs | None:
    """The released code's roundings: 1 / k - 1, the power and the quotient by k are float32 numbers."""
    if case.params.get("compat") != "ms-amp":
        return None
    x, k = float32_bits(case.inputs["x"]).view(np.float32), np.float32(case.params["k"])
    at = np.searchsorted(_EDGES[1:-1], x, side="right")
    place = np.abs(np.float32(2) * (x - _EDGES[at]) / np.diff(_EDGES)[at] - np.float32(1))
    power = (place.astype(np.float64) ** np.float64(np.float32(1) / k - np.float32(1))).astype(np.float32)
    slope = np.minimum(power / k, np.float32(case.params["cap"]))
    return {"values": np.where(x <= 6, slope, np.float32(0)).astype(golden["values"].dtype)}


def slope_of_nan(case: Case, golden: Outputs) -> Outputs | None:
    """A NaN keeps its sign, or falls through the comparisons to the last interval."""
    if "compat" not in case.params:
        return None
    bits = float32_bits(case.inputs["x"])
    nan = (bits & MAGNITUDE) > np.uint32(0x7F800000)
    other = np.float32(0) if case.params["compat"] == "paper" else np.float32(np.nan)
    return {"values": np.where(nan, other.astype(golden["values"].dtype), golden["values"])}


def _clamped(case: Case, low: np.ndarray, high: np.ndarray) -> Outputs:
    """The outputs under other thresholds, which broadcast with x."""
    x = case.inputs["x"]
    wide = x.astype(np.float32)
    clamped = np.minimum(np.maximum(wide, low.astype(np.float32)), high.astype(np.float32))
    axis = case.params["axis"]
    limits = np.stack([np.broadcast_to(t, _shape(x, axis)).reshape(-1) for t in (low, high)])
    return {"clamped": clamped.astype(x.dtype), "residual": (wide - clamped).astype(x.dtype), "thresholds": limits}


def _shape(x: np.ndarray, axis: str) -> tuple[int, int]:
    return {"tensor": (1, 1), "token": (x.shape[0], 1), "channel": (1, x.shape[1])}[axis]


def _laid(case: Case, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shape = _shape(case.inputs["x"], case.params["axis"])
    return limits[0].reshape(shape), limits[1].reshape(shape)


def index_in_float64(case: Case, golden: Outputs) -> Outputs | None:
    """Indices are int((1 - alpha) * n) and int(alpha * n) in float64."""
    if "alpha" not in case.params or not case.inputs["x"].size:
        return None
    x = case.inputs["x"]
    vectors = {"tensor": x.reshape(1, -1), "token": x, "channel": x.T}[case.params["axis"]]
    alpha = case.params["alpha"][0] / case.params["alpha"][1]
    count = vectors.shape[1]
    sort = np.sort(vectors.astype(np.float32), axis=1).astype(x.dtype)
    low, high = int((1 - alpha) * count), min(int(alpha * count), count - 1)
    return _clamped(case, *_laid(case, np.stack([sort[:, low], sort[:, high]])))


def upper_alone(case: Case, golden: Outputs) -> Outputs | None:
    """Only what is above the upper threshold is cut off."""
    if "alpha" not in case.params:
        return None
    low, high = _laid(case, golden["thresholds"])
    return _clamped(case, np.full_like(low, -np.inf), high) | {"thresholds": golden["thresholds"]}


def by_magnitude(case: Case, golden: Outputs) -> Outputs | None:
    """The upper threshold holds for both signs."""
    if "alpha" not in case.params:
        return None
    high = _laid(case, golden["thresholds"])[1]
    return _clamped(case, -high, high)


def residual_left_out(case: Case, golden: Outputs) -> Outputs | None:
    """The residual is zero, as in layers that clamp and do not compensate."""
    if "alpha" not in case.params:
        return None
    return {**golden, "residual": np.zeros_like(golden["residual"])}


def other_axis(case: Case, golden: Outputs) -> Outputs | None:
    """The whole tensor has one pair of thresholds, where each token or channel has its own."""
    if case.params.get("axis") not in ("token", "channel") or not case.inputs["x"].size:
        return None
    limits = refnum.occ(case.inputs["x"], case.params["alpha"])[2]
    return _clamped(case, *(np.full(_shape(case.inputs["x"], case.params["axis"]), limit) for limit in limits))
