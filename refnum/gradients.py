"""Scalars beside the logarithmic quantisers: maxima in hindsight, averages of samples, scales of gradients (N23)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Array, contiguous, require_array
from .division import normalised
from .errors import ArgumentError, DtypeError, ShapeError, shown
from .softfloat import INF, SIGN, add, multiply

_MAGNITUDE, _FRACTION = np.uint32(0x7FFFFFFF), np.uint32(0x7FFFFF)
_ONE = np.uint32(0x3F800000)
_LEAST, _MOST = np.uint32(0x00800000), np.uint32(0x7F000000)
"""2**-126 and 2**127, between which a scale stays."""


def hindsight_amax(amax: Array, previous: Array, eta: float = 0.1) -> Array:
    """Return the maximum that the next step takes for its own: fl(fl(fl(1 - eta) amax) + fl(eta previous)) (N23.11).

    amax, previous: float32, of equal shape: the maxima just seen and those that were taken. eta: a number of 0 to 1,
    rounded once to float32. Returns float32 of that shape. Raises DtypeError, ShapeError, ArgumentError.
    """
    first, second = _floats("amax", amax), _floats("previous", previous)
    _require_shape("previous", second, "amax", first)
    old = np.asarray(_part(eta), like=first)
    new = add(np.full_like(old, _ONE), old ^ SIGN)
    return add(multiply(first, new), multiply(second, old)).view(np.float32)


def _part(eta: Any) -> np.ndarray:
    """Bits u32 [] of a number of 0 to 1."""
    number = isinstance(eta, (int, float, np.floating)) and not isinstance(eta, bool)
    if not number or not 0 <= eta <= 1:
        raise ArgumentError(f"eta is {shown(eta)}; allowed are numbers of 0 to 1")
    return np.asarray(eta, np.float32).view(np.uint32) & _MAGNITUDE


def smp_average(samples: Array) -> Array:
    """Return the average of samples of a gradient: their float32 sum in order, times fl(1 / N) (N23.12).

    samples: float32 [N, ...], N at least 1, for example a weight gradient from N samples of `luq`. Returns float32
    [...]. Raises DtypeError, ShapeError.
    """
    bits = _floats("samples", samples)
    if not bits.ndim or not len(bits):
        raise ShapeError(f"samples has shape {tuple(bits.shape)}; allowed is [N, ...], N at least 1")
    total = bits[0]
    for sample in bits[1:]:
        total = add(total, sample)
    part = np.asarray(np.float32(1) / np.float32(len(bits)), np.float32).view(np.uint32)
    return multiply(total, np.asarray(part, like=bits)).view(np.float32)


def grad_scale(scale: Array, amax: Array, top: Array) -> Array:
    """Return the next power of two that gradients are multiplied by before they are quantised (N23.13).

    scale: float32, powers of two of 2**-126 to 2**127. amax: float32 of that shape, the largest magnitudes of the
    gradients without the scale. top: float32 of that shape, positive and finite: the top levels of the format. A scale
    is halved where amax * scale is above top, doubled where that is below half of top, and kept elsewhere, where amax
    is 0 or NaN too. Returns float32 of that shape. Raises DtypeError, ShapeError, ArgumentError.
    """
    given, maxima, tops = _floats("scale", scale), _floats("amax", amax), _floats("top", top)
    _require_shape("amax", maxima, "scale", given)
    _require_shape("top", tops, "scale", given)
    if bool(((given & _FRACTION) != 0).any()) or bool(((given < _LEAST) | (given > _MOST)).any()):
        raise ArgumentError("scale holds a number that is no power of two of 2**-126 to 2**127; allowed are only those")
    if bool(((tops == 0) | (tops >= INF)).any()):
        raise ArgumentError("top holds a number that is not positive and finite; allowed are the top levels of formats")
    magnitude = maxima & _MAGNITUDE
    counts = (magnitude != 0) & (magnitude <= INF)
    above = (_compared(magnitude, given, tops) > 0) | (magnitude == INF)
    below = _compared(magnitude, given, tops, doubled=True) < 0
    down, up = np.maximum(given - _LEAST, _LEAST), np.minimum(given + _LEAST, _MOST)
    return np.where(counts & above, down, np.where(counts & ~above & below, up, given)).view(np.float32)


def _compared(magnitude: Array, scale: Array, top: Array, doubled: bool = False) -> Array:
    """The sign, i64, of magnitude * scale - top, exact, or of twice that product; scale: bits of powers of two."""
    power = (scale >> np.uint32(23)).astype(np.int64) - np.int64(127) + np.int64(doubled)
    return np.sign(_place(magnitude) + (power << np.int64(24)) - _place(top))


def _place(bits: Array) -> Array:
    """A number i64 in the order of magnitudes, which rises by 2**24 where a magnitude is doubled."""
    significand, exponent = normalised(bits)
    return (exponent.astype(np.int64) << np.int64(24)) + significand.astype(np.int64)


def _floats(name: str, x: Array) -> Array:
    """Bits of a float32 array."""
    require_array(name, x)
    if x.dtype != np.float32:
        raise DtypeError(f"{name} has dtype {x.dtype}; allowed is float32")
    return contiguous(x).reshape(x.shape).view(np.uint32)


def _require_shape(name: str, bits: Array, other: str, like: Array) -> None:
    if bits.shape != like.shape:
        raise ShapeError(f"{name} has shape {tuple(bits.shape)}; allowed is that of {other}, {tuple(like.shape)}")
