"""Logarithmic FP4 of gradients: LUQ and the two phases of radix 4, as [1,3,0] codes (clause N23)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from .arguments import require_choice, require_integer
from .arrays import (
    OUTPUTS,
    Array,
    contiguous,
    empty,
    output_dtype,
    own_bits,
    pack_nibbles,
    require_array,
    require_codes,
    require_float,
    require_random,
    row_chunks,
    table_like,
    unpack_nibbles,
    widen,
)  # fmt: skip
from .division import divide
from .errors import ArgumentError, DtypeError, ShapeError, shown
from .logarithmic_tables import LEAST_N0, MOST_N0, PHASES, THRESHOLDS, level_bits, threshold_bits
from .nvfp4 import _tensor_amax
from .softfloat import INF, multiply, to_bfloat16

DIVISORS = (64, 128, 16)
"""What the largest magnitude is divided by; under 64 it is the top level, which four bits hold."""
STEPS = ("real", "power_of_two")
UNDER_BITS, LOG_BITS = 24, 23
"""Random bits of an element: of the choice between zero and the least level, and of that between two levels."""
_MAGNITUDE, _FRACTION, _ONE = np.uint32(0x7FFFFFFF), np.uint32(0x7FFFFF), np.uint32(0x3F800000)
_DIVISOR_BITS = {64: np.uint32(0x42800000), 128: np.uint32(0x43000000), 16: np.uint32(0x41800000)}


def luq(
    x: Array,
    r_under: Array,
    r_log: Array,
    divisor: int = 64,
    tensor_amax: Array | None = None,
    step: str = "real",
) -> tuple[Array, Array]:
    """Quantise gradients to [1,3,0] codes without bias: logarithmic unbiased quantisation (clause N23.1 to N23.5).

    Args:
        x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits), K even.
        r_under: [M, K] unsigned integers below 2**24, which choose between zero and the least level.
        r_log: [M, K] unsigned integers below 2**23, which choose between two levels.
        divisor: 64, 128 or 16; the step is the maximum divided by it, in float32.
        tensor_amax: float32 [1], a maximum found before (`hindsight_amax`); that of x if left out, NaN not counting.
        step: `real`, or `power_of_two` for the least power of two that is not below the quotient.

    Returns:
        (packed u8 [M, K/2], even element in the low nibble; alpha float32 [1], the step). Code c of 1 to 7 is the level
        alpha * 2**(c - 1).

    Raises:
        DtypeError, ShapeError, ArgumentError.
    """
    require_float("x", x, 2)
    require_random("r_under", r_under, x, UNDER_BITS)
    require_random("r_log", r_log, x, LOG_BITS)
    require_choice("step", step, STEPS)
    alpha = _step(_tensor_amax(x, tensor_amax), _divisor(divisor), step)
    packed = empty((x.shape[0], x.shape[1] // 2), np.uint8, x)
    for rows in row_chunks(x, x.shape[1]):
        wide = widen(own_bits(contiguous(x[rows])))
        words = (r[rows].astype(np.uint32) for r in (r_under, r_log))
        packed[rows] = pack_nibbles(_luq_codes(wide, alpha, *words))
    return packed, alpha.view(np.float32)


def _divisor(divisor: object) -> int:
    number = require_integer("divisor", divisor, 1)
    if number not in DIVISORS:
        raise ArgumentError(f"divisor is {shown(divisor)}; allowed are {', '.join(map(str, DIVISORS))}")
    return number


def _step(amax: Array, divisor: int, step: str) -> Array:
    """Bits u32 [1] of the step (N23.2). amax: bits of the maximum, which is no NaN."""
    alpha = divide(amax, np.full_like(amax, _DIVISOR_BITS[divisor]))
    if step == "real":
        return alpha
    normal = (alpha + _FRACTION) & ~_FRACTION  # the next exponent unless the fraction is 0; infinity stays
    spread = alpha - np.minimum(alpha, np.uint32(1))  # of a subnormal: all bits below its highest are set, then one up
    for shift in (1, 2, 4, 8, 16):
        spread = spread | (spread >> np.uint32(shift))
    return np.where(alpha > _FRACTION, normal, np.where(alpha > 0, spread + np.uint32(1), alpha))


def _luq_codes(wide: Array, alpha: Array, r_under: Array, r_log: Array) -> Array:
    """Codes u8 of float32 bits (u32): the quotient by the step, then one of its two random words (N23.3)."""
    magnitude = wide & _MAGNITUDE
    level = _levels(_quotients(magnitude, alpha), r_under, r_log)
    level = np.where(magnitude >= INF, np.uint32(7), np.where(magnitude == np.uint32(0), np.uint32(0), level))
    negative = ((wide >> np.uint32(31)) != np.uint32(0)) & (level != np.uint32(0)) & (magnitude <= INF)
    return (level | (negative.astype(np.uint32) << np.uint32(3))).astype(np.uint8)


def _quotients(magnitude: Array, alpha: Array) -> Array:
    """float32 bits of fl(magnitude / alpha), where a magnitude is neither zero nor Inf nor NaN.

    Of normal numbers the quotient of the significands has 25 bits, and is no tie, since alpha has 24: half up is right.
    """
    lower = (magnitude & _FRACTION) < (alpha & _FRACTION)
    field = (magnitude >> np.uint32(23)).astype(np.int32) - (alpha >> np.uint32(23)).astype(np.int32) - lower
    special = (magnitude == np.uint32(0)) | (magnitude >= INF)
    plain = (magnitude > _FRACTION) & (field > np.int32(-127)) & (field < np.int32(128))
    if not bool(((alpha > _FRACTION) & (alpha < INF)).all() & (plain | special).all()):
        return divide(magnitude, np.broadcast_to(alpha, magnitude.shape))
    left = ((magnitude & _FRACTION) + np.uint32(1 << 23)).astype(np.uint64) << (np.uint64(24) + lower)
    rounded = (left // ((alpha & _FRACTION) + np.uint32(1 << 23)).astype(np.uint64) + np.uint64(1)) >> np.uint64(1)
    return ((field + np.int32(126)).astype(np.uint32) << np.uint32(23)) + rounded.astype(np.uint32)


def _levels(quotient: Array, r_under: Array, r_log: Array) -> Array:
    """Magnitude codes u32 of quotients, as float32 bits: pruned below 1 (N23.4), else of two powers one (N23.5)."""
    up = ((quotient & _FRACTION) + r_log) >> np.uint32(LOG_BITS)
    field = np.maximum(quotient >> np.uint32(LOG_BITS), np.uint32(127))
    level = np.minimum(field - np.uint32(126) + up, np.uint32(7))
    return np.where(quotient >= _ONE, level, (r_under < _least_dropped(quotient)).astype(np.uint32))


def _least_dropped(quotient: Array) -> Array:
    """The least 24-bit word r for which r / 2**24 is not below a quotient of less than 1: its upper end of 2**-24."""
    field = np.maximum(quotient >> np.uint32(23), np.uint32(1))
    hidden = (quotient > _FRACTION).astype(np.uint32) << np.uint32(23)
    shift = np.minimum(np.uint32(126) - np.minimum(field, np.uint32(126)), np.uint32(24))
    significand = (quotient & _FRACTION) | hidden
    return (significand + (np.uint32(1) << shift) - np.uint32(1)) >> shift


def dequantize_luq(packed: Array, alpha: Array, dtype: str = "float32") -> Array:
    """Dequantise the codes of `luq` (clause N23.6): each product is rounded to float32, then to dtype.

    packed: u8 [M, K/2]; alpha: float32 [1], the step; dtype: float32 | bfloat16. Returns [M, K].
    Raises DtypeError, ShapeError, ArgumentError.
    """
    require_codes("packed", packed)
    name = output_dtype(dtype)
    bits = _one_float("alpha", alpha)
    powers = np.where(_NUMBERS & 7, (126 + (_NUMBERS & 7)) << 23, 0) | (_NUMBERS >> 3) << 31
    values = multiply(np.asarray(powers.astype(np.uint32), like=packed), bits)
    return _decoded(packed, values, name)


_NUMBERS = np.arange(16, dtype=np.int64)


def _one_float(name: str, given: Array) -> Array:
    require_array(name, given)
    if given.dtype != np.float32:
        raise DtypeError(f"{name} has dtype {given.dtype}; allowed is float32")
    if tuple(given.shape) != (1,):
        raise ShapeError(f"{name} has shape {tuple(given.shape)}; allowed is (1,)")
    return contiguous(given).view(np.uint32)


def _decoded(packed: Array, values: Array, name: str) -> Array:
    """Look sixteen float32 values (bits) up for packed codes, in float32 or bfloat16."""
    held = values if name == "float32" else to_bfloat16(values)
    out = empty((packed.shape[0], packed.shape[1] * 2), held.dtype, packed)
    for rows in row_chunks(packed, packed.shape[1] * 2):
        out[rows] = np.take(held, unpack_nibbles(packed[rows]))
    return out.view(OUTPUTS[name])


def radix4(x: Array, n0: int, phase: str = "even", threshold: str = "midpoint") -> Array:
    """Quantise to a grid of powers of four, or of twice those, as [1,3,0] codes (clause N23.8).

    Args:
        x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits), K even.
        n0: -63 to 57; the levels are 4**n0 to 4**(n0 + 6), or twice those.
        phase: `even` for powers of four, `odd` for twice those.
        threshold: where a level begins as a part of it: `midpoint` (5/8), `0.4` (2/5) or `log` (1/2). A tie goes down.

    Returns:
        packed u8 [M, K/2], even element in the low nibble.

    Raises:
        DtypeError, ShapeError, ArgumentError.
    """
    require_float("x", x, 2)
    bounds = table_like(threshold_bits, x, *_grid(n0, phase), _threshold(threshold))
    packed = empty((x.shape[0], x.shape[1] // 2), np.uint8, x)
    for rows in row_chunks(x, x.shape[1]):
        packed[rows] = pack_nibbles(_radix4_codes(widen(own_bits(contiguous(x[rows]))), bounds))
    return packed


def tpr(x: Array, n0: int, threshold: str = "midpoint") -> tuple[Array, Array]:
    """Quantise in both phases of radix 4 (clause N23.10): (`radix4` in phase even, in phase odd), packed u8 [M, K/2].

    x, n0, threshold: as of `radix4`. The even phase is for the gradient of the inputs, the odd one for that of the
    weights. Raises DtypeError, ShapeError, ArgumentError.
    """
    even, odd = (radix4(x, n0, phase, threshold) for phase in PHASES)
    return even, odd


def _grid(n0: object, phase: object) -> tuple[int, str]:
    number = require_integer("n0", n0, LEAST_N0, MOST_N0)
    require_choice("phase", phase, PHASES)
    return number, str(phase)


def _threshold(threshold: object) -> Fraction:
    require_choice("threshold", threshold, tuple(THRESHOLDS))
    return THRESHOLDS[str(threshold)]


def _radix4_codes(wide: Array, bounds: Array) -> Array:
    """Codes u8 of float32 bits (u32). bounds: bits u32 [7], the largest float32 that are below each level."""
    magnitude = wide & _MAGNITUDE
    codes = np.zeros(wide.shape, dtype=np.uint8, like=wide)
    for bound in bounds:
        codes += magnitude > bound
    negative = (wide >> np.uint32(31)).astype(np.uint8) * (codes != np.uint8(0)).astype(np.uint8)
    return np.where(magnitude > INF, np.uint8(7), codes | (negative << np.uint8(3)))


def dequantize_radix4(packed: Array, n0: int, phase: str = "even", dtype: str = "float32") -> Array:
    """Dequantise the codes of `radix4` (clause N23.9): exact.

    packed: u8 [M, K/2]; n0, phase: as of `radix4`; dtype: float32 | bfloat16. Returns [M, K].
    Raises DtypeError, ShapeError, ArgumentError.
    """
    require_codes("packed", packed)
    return _decoded(packed, table_like(level_bits, packed, *_grid(n0, phase)), output_dtype(dtype))
