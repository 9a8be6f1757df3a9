"""What a step of an optimiser does at each weight, its scalars known: Adam, SPAM, Stable-SPAM (N27.6, N27.7).

Every operation is one of float32 on bit patterns, in integers: CuPy's own float32 arithmetic flushes subnormal numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arguments import require_flag
from .arrays import Array, require_array
from .division import divide
from .errors import ArgumentError, DtypeError, ShapeError, shown
from .softfloat import INF, SIGN, add, multiply, subtract
from .square_roots import square_root

_MAGNITUDE = np.uint32(0x7FFFFFFF)
FORGETS = ("", "before", "after")


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
    shape, gradient, weight, m, v, *scalars = _bits(8, gradient, weight, m, v, factors)
    return _floats(shape, *_adam(gradient, weight, m, v, *scalars))


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
    shape, gradient, weight, m, v, *scalars = _bits(8, gradient, weight, m, v, factors)
    threshold, beta1, rest1, beta2, rest2, eps, rate, rest = scalars
    spikes, anew, decays = (require_flag(n, x) for n, x in (("clip", clip), ("reset", reset), ("decay", decay)))
    if anew:
        m, v = np.zeros_like(m), np.zeros_like(v)
    if spikes:
        limit = multiply(v, threshold)
        root = square_root(limit) & _MAGNITUDE | gradient & SIGN
        gradient = np.where(above(multiply(gradient, gradient), limit), root, gradient)
    m, v = averaged(m, beta1, gradient, rest1), averaged(v, beta2, multiply(gradient, gradient), rest2)
    weight = subtract(weight, multiply(rate, divide(m, add(square_root(v), eps))))
    return _floats(shape, subtract(weight, multiply(rest, weight)) if decays else weight, m, v)


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
    shape, gradient, weight, m, v, *scalars = _bits(12, gradient, weight, m, v, factors)
    if not isinstance(forget, str) or forget not in FORGETS:
        raise ArgumentError(f"forget={shown(forget)} is not one of {', '.join(map(repr, FORGETS))}")
    decay, limit, largest, norm, wanted_norm, *rates = scalars
    if forget == "before":
        m, v = np.zeros_like(m), np.zeros_like(v)
    gradient = clipped(gradient, limit, largest)
    gradient = np.where(above(norm, np.uint32(0)), multiply(divide(gradient, norm), wanted_norm), gradient)
    weight, m, v = _adam(gradient, weight, m, v, decay, *rates)
    if forget == "after":
        m, v = np.zeros_like(m), np.zeros_like(v)
    return _floats(shape, weight, m, v)


def averaged(old: Array, beta: Array, new: Array, rest: Array) -> Array:
    """Return fl(fl(beta old) + fl(rest new)), float32 bits in and out."""
    return add(multiply(old, beta), multiply(new, rest))


def clipped(gradient: Array, limit: Array, largest: Array) -> Array:
    """Return a gradient whose magnitudes above a limit are divided by the largest and multiplied by the limit, bits."""
    return np.where(above(gradient & _MAGNITUDE, limit), multiply(divide(gradient, largest), limit), gradient)


def above(a: Array, b: Array) -> Array:
    """Whether a > b, of float32 bits; NaN is above nothing, and nothing is above it."""
    (x, i), (y, j) = ((one & _MAGNITUDE, _place(one)) for one in (a, b))
    return (i > j) & (x <= INF) & (y <= INF)


def _place(bits: Array) -> Array:
    """A number i64 in the order of float32 numbers, the same for both zeros."""
    magnitude = (bits & _MAGNITUDE).astype(np.int64)
    return np.where(bits >= SIGN, -magnitude, magnitude)


def _adam(
    gradient: Array, weight: Array, m: Array, v: Array, decay: Array, beta1: Array, rest1: Array, beta2: Array,
    rest2: Array, root: Array, eps: Array, rate: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Clause N27.2 on bits."""
    m, v = averaged(m, beta1, gradient, rest1), averaged(v, beta2, multiply(gradient, gradient), rest2)
    step = multiply(rate, divide(m, add(divide(square_root(v), root), eps)))
    return subtract(multiply(weight, decay), step), m, v


def _floats(shape: tuple[int, ...], weight: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
    return tuple(bits.view(np.float32).reshape(shape) for bits in (weight, m, v))


def _bits(count: int, gradient: Array, weight: Array, m: Array, v: Array, factors: Array) -> tuple[Any, ...]:
    """Return the shape, the bits of the four arrays, with an axis at least, and of each scalar; raise unless all fit.

    Of arrays without axes NumPy makes numbers.
    """
    for name, array in (("gradient", gradient), ("weight", weight), ("m", m), ("v", v), ("factors", factors)):
        require_array(name, array)
        if array.dtype != np.float32:
            raise DtypeError(f"{name} has dtype {array.dtype}; allowed is float32")
        wanted = (count,) if name == "factors" else tuple(gradient.shape)
        if tuple(array.shape) != wanted:
            raise ShapeError(f"{name} has shape {tuple(array.shape)}; allowed is {wanted}")
    scalars = factors.view(np.uint32)
    shape = tuple(gradient.shape)
    arrays = (array.reshape(shape or (1,)).view(np.uint32) for array in (gradient, weight, m, v))
    return shape, *arrays, *(scalars[place] for place in range(count))
