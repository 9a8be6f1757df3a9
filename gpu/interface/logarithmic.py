"""Logarithmic FP4 (clause N23): LUQ and radix 4."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

from refnum.errors import ArgumentError, DtypeError, shown

from .. import checks
from ..checks import KINDS
from .call import F32, FLOATS, U8, A, Call, Wanted

DIVISORS = (64, 128, 16)
STEPS = ("real", "power_of_two")
PHASES = ("even", "odd")
THRESHOLDS = ("midpoint", "0.4", "log")
"""In the order of `RadixThreshold` of the headers."""
LEAST_N0, MOST_N0 = -63, 57


class Luq(NamedTuple, Generic[A]):
    """The checked arguments of LUQ, or of its inverse.

    x: floats, or packed codes. kind: the `FloatKind` of the floats. r_under, r_log: random words, None for codes.
    number: the tensor's maximum, None for that of x, or the step of codes. divisor: of the maximum. power: whether the
    step is a power of two.
    """

    x: A
    kind: int
    r_under: A | None = None
    r_log: A | None = None
    number: A | None = None
    divisor: int = 64
    power: bool = False


class Radix4(NamedTuple, Generic[A]):
    """The checked arguments of radix 4, or of its inverse.

    x: floats, or packed codes. kind: the `FloatKind` of the floats. exponent: that of two of the first level.
    threshold: number of the bound between two levels.
    """

    x: A
    kind: int
    exponent: int
    threshold: int = 0


def luq(
    call: Call[A],
    x: Any,
    r_under: Any,
    r_log: Any,
    divisor: int = 64,
    tensor_amax: Any = None,
    step: str = "real",
    *,
    out: Any = None,
) -> Luq[A]:
    """Quantise gradients to [1,3,0] codes without bias (N23.1 to N23.5).

    Args:
        x: float32, bfloat16, float16 or uint16 (bfloat16 bits) [M, K], K even.
        r_under: random words below 2**24 [M, K]: uint32 for a kernel, any unsigned integers for the host build.
        r_log: random words below 2**23 [M, K], likewise.
        divisor: 64, 128 or 16.
        tensor_amax: the tensor's maximum, float32 [1]; that of x if None, found by a pass of its own.
        step: "real" or "power_of_two".
        out: the arrays to write.

    Returns:
        (packed codes u8 [M, K/2], the step float32 [1]).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view = _floats(call, x)
    under = call.random_bits(r_under, view, "r_under", 24)
    log = call.random_bits(r_log, view, "r_log", 23)
    number = checks.count("divisor", divisor, min(DIVISORS), max(DIVISORS))
    if number not in DIVISORS:
        raise ArgumentError(f"divisor is {shown(divisor)}; allowed are {', '.join(map(str, DIVISORS))}")
    power = bool(checks.choice("step", step, STEPS))
    amax = None if tensor_amax is None else call.weights("tensor_amax", tensor_amax, view, 1, "a tensor has one")
    wanted: Wanted = [(_packed(view), U8), ((1,), F32)]
    call.outputs(out, wanted, [view, under, log] if amax is None else [view, under, log, amax])
    return Luq(view, KINDS[view.dtype], under, log, amax, number, power)


def dequantize_luq(call: Call[A], packed: Any, alpha: Any, dtype: Any = "float32", *, out: Any = None) -> Luq[A]:
    """Dequantise the codes of LUQ: one float32 product an element (N23.6).

    Args:
        packed: codes u8 [M, K/2], two in a byte.
        alpha: the step, float32 [1].
        dtype: float32 or bfloat16, by name or as a dtype of NumPy, ml_dtypes or torch.
        out: the array to write.

    Returns:
        The values [M, K].

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view = call.codes("packed", packed, 1)
    step = call.weights("alpha", alpha, view, 1, "a tensor has one")
    kind, result = checks.output_dtype(dtype)
    call.outputs(out, [(_values(view), result)], [view, step])
    return Luq(view, kind, number=step)


def radix4(
    call: Call[A], x: Any, n0: int, phase: str = "even", threshold: str = "midpoint", *, out: Any = None
) -> Radix4[A]:
    """Quantise to powers of four, or to twice those, as [1,3,0] codes (N23.8).

    Args:
        x: float32, bfloat16, float16 or uint16 (bfloat16 bits) [M, K], K even.
        n0: -63 to 57, the exponent of four of the first level.
        phase: "even" for powers of four, "odd" for twice those.
        threshold: "midpoint", "0.4" or "log".
        out: the array to write.

    Returns:
        The packed codes u8 [M, K/2].

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view, exponent = _floats(call, x), _exponent(n0, phase)
    bound = checks.choice("threshold", threshold, THRESHOLDS)
    call.outputs(out, [(_packed(view), U8)], [view])
    return Radix4(view, KINDS[view.dtype], exponent, bound)


def dequantize_radix4(
    call: Call[A], packed: Any, n0: int, phase: str = "even", dtype: Any = "float32", *, out: Any = None
) -> Radix4[A]:
    """Dequantise the codes of radix 4, exact (N23.9).

    Args:
        packed: codes u8 [M, K/2], two in a byte.
        n0: -63 to 57, the exponent of four of the first level.
        phase: "even" for powers of four, "odd" for twice those.
        dtype: float32 or bfloat16, by name or as a dtype of NumPy, ml_dtypes or torch.
        out: the array to write.

    Returns:
        The values [M, K].

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view, exponent = call.codes("packed", packed, 1), _exponent(n0, phase)
    kind, result = checks.output_dtype(dtype)
    call.outputs(out, [(_values(view), result)], [view])
    return Radix4(view, kind, exponent)


def _floats(call: Call[A], x: Any) -> A:
    view = call.matrix("x", x, 2)
    if view.dtype not in KINDS:
        raise DtypeError(f"x has dtype {view.dtype}; allowed are {FLOATS}")
    return view


def _exponent(n0: Any, phase: Any) -> int:
    """Return the exponent of two of the first level."""
    number = checks.count("n0", n0, LEAST_N0, MOST_N0)
    return 2 * number + checks.choice("phase", phase, PHASES)


def _packed(x: A) -> tuple[int, int]:
    return x.shape[0], x.shape[1] // 2


def _values(packed: A) -> tuple[int, int]:
    return packed.shape[0], packed.shape[1] * 2
