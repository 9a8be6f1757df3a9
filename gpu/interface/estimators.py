"""DGE and OCC (clause N25): what the kernels have of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Generic, NamedTuple

import numpy as np

from refnum.errors import ArgumentError, DtypeError, ShapeError, shown

from .. import checks
from ..checks import KINDS
from .call import FLOATS, A, Call

TARGETS = ("bfloat16", "float32")
COMPATS = ("paper", "ms-amp")
AXES = ("tensor", "token", "channel")
"""These two in the order of `DgeCompat` and `OccAxis` of the headers."""
MOST_K = 16
PART = (1 << 63) - 1
"""The largest numerator and denominator."""


class Slopes(NamedTuple, Generic[A]):
    """The checked arguments of DGE. cap: its bits in the target. wide: whether that is float32. compat: its number."""

    x: A
    k: int
    cap: int
    wide: bool
    compat: int


class Clamp(NamedTuple, Generic[A]):
    """The checked arguments of OCC. axis: its number. lower, upper: the indices of the order statistics."""

    x: A
    axis: int
    lower: int
    upper: int


def dge(
    call: Call[A],
    x: Any,
    k: int = 5,
    cap: float = 3,
    target: str = "bfloat16",
    compat: str = "paper",
    *,
    out: Any = None,
) -> Slopes[A]:
    """Return the derivative of the differentiable gradient estimator of E2M1 (N25.1 to N25.3).

    Args:
        x: scaled weights, float32, bfloat16, float16 or uint16 (bfloat16 bits) of any shape, contiguous on a device.
        k: the sharpness, an integer from 1 to 16; 1 gives the straight-through estimator.
        cap: the largest result, a positive number that bfloat16 holds.
        target: "bfloat16" or "float32", the format that the exact result is rounded to, once.
        compat: "paper", symmetric and 0 beyond 6, NaN for NaN; or "ms-amp", the released code's edges.
        out: the array to write.

    Returns:
        The slopes, in the shape of x and the format `target`.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view = call.look("x", x)
    if view.dtype not in KINDS:
        raise DtypeError(f"x has dtype {view.dtype}; allowed are {FLOATS}")
    call.check_elements(view)
    power, most = checks.count("k", k, 1, MOST_K), _cap(cap)
    wide = checks.choice("target", target, TARGETS) == 1
    edges = checks.choice("compat", compat, COMPATS)
    call.outputs(out, [(view.shape, checks.OUTPUTS[target][1])], [view])
    return Slopes(view, power, most if wide else most >> 16, wide, edges)


def _cap(cap: Any) -> int:
    """Return the float32 bits of a positive number that bfloat16 holds."""
    if isinstance(cap, int | float | np.integer | np.floating) and not isinstance(cap, bool) and 0 < cap < 1 << 128:
        single = np.float32(float(cap))
        bits = int(single.view(np.uint32))
        if bits and bits & 0xFFFF == 0 and Fraction(float(single)) == Fraction(float(cap)):
            return bits
    raise ArgumentError(f"cap is {shown(cap)}; allowed is a positive number that bfloat16 holds")


def occ(call: Call[A], x: Any, alpha: Any = (99, 100), axis: str = "tensor", *, out: Any = None) -> Clamp[A]:
    """Clamp outliers between two order statistics and return what was cut off (N25.4).

    Args:
        x: float32, bfloat16 or uint16 (bfloat16 bits) [M, K].
        alpha: the upper quantile from 1/2 to 1, a Fraction or its (numerator, denominator).
        axis: what is sorted together: the whole "tensor", each "token" (row) or each "channel" (column).
        out: the arrays to write.

    Returns:
        (clamped [M, K], residual [M, K], thresholds [2, 1], [2, M] or [2, K]) in the format of x.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view = call.matrix("x", x, 1)
    kind = KINDS.get(view.dtype, 2)
    if kind == 2:
        raise DtypeError(f"x has dtype {view.dtype}; allowed are float32, bfloat16 and uint16 (bfloat16 bits)")
    number = checks.choice("axis", axis, AXES)
    above, below = _alpha(alpha)
    m, k = view.shape
    vectors, count = ((1, m * k), (m, k), (k, m))[number]
    if count >> 32:
        raise ShapeError(f"{view.shape} by {axis} has vectors of {count} numbers; allowed are fewer than 2**32")
    made = checks.OUTPUTS[("float32", "bfloat16")[kind]][1]
    call.outputs(out, [((m, k), made), ((m, k), made), ((2, vectors), made)], [view])
    return Clamp(view, number, (below - above) * count // below, max(0, min(above * count // below, count - 1)))


def _alpha(alpha: Any) -> tuple[int, int]:
    """Return numerator and denominator of a rational from 1/2 to 1."""
    if isinstance(alpha, Fraction):
        parts = [alpha.numerator, alpha.denominator]
    else:
        listed = isinstance(alpha, list | tuple | range) or (isinstance(alpha, np.ndarray) and alpha.ndim == 1)
        if not listed or len(alpha) != 2:
            raise ArgumentError(f"alpha is {shown(alpha)}; allowed are two integers, numerator and denominator")
        parts = [checks.count("a part of alpha", part, 1, PART) for part in alpha]
    if not parts[1] <= 2 * parts[0] <= 2 * parts[1]:
        raise ArgumentError(f"alpha is {shown(alpha)}; allowed are rationals from 1/2 to 1")
    return parts[0], parts[1]
