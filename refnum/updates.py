"""What a step of an optimiser does at each weight, its scalars known: Adam, SPAM, Stable-SPAM (N27.6, N27.7)."""

from __future__ import annotations

import numpy as np

from .arguments import require_flag
from .arrays import Array, require_array
from .errors import ArgumentError, DtypeError, ShapeError, shown
from .softfloat import INF, NAN

FORGETS = ("", "before", "after")
FACTORS = {"adam_apply": 8, "spam_apply": 8, "stable_spam_apply": 12}
"""Operation -> how many scalars it takes."""


def adam_apply(gradient: Array, weight: Array, m: Array, v: Array, factors: Array) -> tuple[Array, Array, Array]:
    """Return weight and moments after a step of Adam whose scalars are known (clause N27.7).

    Args:
        gradient, weight, m, v: float32 of one shape.
        factors: float32 [8], in the order of N27.7.

    Returns:
        (weight, m, v), float32 in the shape given.

    Raises:
        DtypeError, ShapeError.
    """
    _require(8, gradient, weight, m, v, factors)
    decay, beta1, rest1, beta2, rest2, root, eps, rate = (factors[place] for place in range(8))
    with np.errstate(all="ignore"):
        weight = weight * decay
        m, v = m * beta1 + gradient * rest1, v * beta2 + gradient * gradient * rest2
        weight = weight - rate * (m / (np.sqrt(v) / root + eps))
    return plain(weight), plain(m), plain(v)


def spam_apply(
    gradient: Array,
    weight: Array,
    m: Array,
    v: Array,
    factors: Array,
    clip: bool = True,
    reset: bool = False,
    decay: bool = False,
) -> tuple[Array, Array, Array]:
    """Return weight and moments after a step of SPAM whose scalars are known (clause N27.7).

    Args:
        gradient, weight, m, v: float32 of one shape.
        factors: float32 [8], in the order of N27.7.
        clip: whether spikes of the gradient are clipped.
        reset: whether the moments become zero first.
        decay: whether the weight decays at the end.

    Returns:
        (weight, m, v), float32 in the shape given.

    Raises:
        DtypeError, ShapeError, ArgumentError.
    """
    _require(8, gradient, weight, m, v, factors)
    spikes, anew, decays = (require_flag(n, x) for n, x in (("clip", clip), ("reset", reset), ("decay", decay)))
    threshold, beta1, rest1, beta2, rest2, eps, rate, rest = (factors[place] for place in range(8))
    with np.errstate(all="ignore"):
        if anew:
            m, v = np.zeros_like(m), np.zeros_like(v)
        if spikes:
            limit = v * threshold
            clipped = np.copysign(np.sqrt(limit), gradient)
            gradient = np.where(gradient * gradient > limit, clipped, gradient)
        m, v = m * beta1 + gradient * rest1, v * beta2 + gradient * gradient * rest2
        weight = weight - rate * (m / (np.sqrt(v) + eps))
        if decays:
            weight = weight - rest * weight
    return plain(weight), plain(m), plain(v)


def stable_spam_apply(
    gradient: Array, weight: Array, m: Array, v: Array, factors: Array, forget: str = ""
) -> tuple[Array, Array, Array]:
    """Return weight and moments after a step of Stable-SPAM whose scalars are known (clause N27.4).

    Args:
        gradient, weight, m, v: float32 of one shape.
        factors: float32 [12], `StableSpamFactors.array`.
        forget: "before" begins from zero moments, "after" gives zero moments, "" neither.

    Returns:
        (weight, m, v), float32 in the shape given.

    Raises:
        DtypeError, ShapeError, ArgumentError.
    """
    _require(12, gradient, weight, m, v, factors)
    if not isinstance(forget, str) or forget not in FORGETS:
        raise ArgumentError(f"forget={shown(forget)} is not one of {', '.join(map(repr, FORGETS))}")
    scalars = [factors[place] for place in range(12)]
    decay, limit, largest, norm, wanted_norm, beta1, rest1, beta2, rest2, root, eps, rate = scalars
    with np.errstate(all="ignore"):
        if forget == "before":
            m, v = np.zeros_like(m), np.zeros_like(v)
        gradient = np.where(np.abs(gradient) > limit, gradient / largest * limit, gradient)
        gradient = np.where(norm > 0, gradient / norm * wanted_norm, gradient)
        m, v = m * beta1 + gradient * rest1, v * beta2 + gradient * gradient * rest2
        weight = weight * decay - rate * (m / (np.sqrt(v) / root + eps))
    if forget == "after":
        m, v = np.zeros_like(m), np.zeros_like(v)
    return plain(weight), plain(m), plain(v)


def _require(count: int, gradient: Array, weight: Array, m: Array, v: Array, factors: Array) -> None:
    """Raise unless all arrays are float32, of one shape, and the scalars as many as they should be."""
    for name, array in (("gradient", gradient), ("weight", weight), ("m", m), ("v", v), ("factors", factors)):
        require_array(name, array)
        if array.dtype != np.float32:
            raise DtypeError(f"{name} has dtype {array.dtype}; allowed is float32")
        wanted = (count,) if name == "factors" else tuple(gradient.shape)
        if tuple(array.shape) != wanted:
            raise ShapeError(f"{name} has shape {tuple(array.shape)}; allowed is {wanted}")


def plain(x: Array) -> Array:
    """The same numbers with every NaN as 0x7FC00000."""
    bits = x.view(np.uint32)
    return np.where((bits & np.uint32(0x7FFFFFFF)) > INF, NAN, bits).view(np.float32)
