"""INT4 quantisers of training methods: SAWB, and affine ones by groups along K (clause N26)."""

from __future__ import annotations

import numpy as np

from .arguments import require_integer
from .arrays import Array, contiguous, float32_bits, grouped, require_float
from .codec import encode_bits
from .division import divide
from .errors import ShapeError
from .exact_means import clip_bits
from .formats import INT4
from .integer_steps import larger, largest, restored, rounded, smallest
from .llm_quantisers import llm_fp4 as llm_fp4  # of this family
from .llm_quantisers import llm_qat as llm_qat
from .profiles import HOPPER
from .softfloat import INF, SIGN, add, multiply, subtract

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_FIFTEEN, _TWO = np.uint32(0x41700000), np.uint32(0x40000000)
_SEVEN, _LEAST_KEPT = np.uint32(0x40E00000), np.uint32(0x358637BD)
"""7 and fl(1e-6)."""
_LEAST_SPREAD, _LEAST_SCALE, _MOST_SCALE = np.uint32(0x3727C5AC), np.uint32(0x38D1B717), np.uint32(0x461C4000)
"""fl(1e-5), fl(1e-4) and 1e4."""


def sawb(x: Array) -> tuple[Array, Array]:
    """Quantise to INT4 by statistics-aware weight binning: one scale from the mean square and magnitude (clause N26.1).

    x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits). Returns (codes u8 [M, K], INT4 in the low four bits;
    scale float32 [1]). Raises DtypeError, ShapeError.
    """
    require_float("x", x)
    bits = float32_bits(contiguous(x))
    clip = np.asarray(np.array([clip_bits(bits)], np.uint32), like=bits)
    scale = divide(multiply(clip, np.full_like(clip, _TWO)), np.full_like(clip, _FIFTEEN))
    quotient = divide(bits, np.broadcast_to(scale, bits.shape))
    zero = (bits & _MAGNITUDE) == np.uint32(0)  # 0 / 0 where all elements are zero
    return np.where(zero, np.uint8(0), encode_bits(INT4, quotient, 0, HOPPER)), scale.view(np.float32)


def int4_affine(x: Array, group: int) -> tuple[Array, Array, Array]:
    """Quantise groups along K to 0..15 with a scale and a zero point (clause N26.2), as Stable-SPAM does weights.

    x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits), K a multiple of `group`, which is 256 there. Returns
    (codes u8 [M, K], scales float32 [M, K/group], zero points u8 [M, K/group]). Raises DtypeError, ShapeError,
    ArgumentError.
    """
    bits, least, spread = _groups(x, group)
    scale = divide(larger(spread, _LEAST_SPREAD), np.full_like(spread, _FIFTEEN))
    zero = _within(rounded(divide(least, scale)) ^ SIGN)
    codes = _affine_codes(bits, scale, zero)
    return codes, scale.view(np.float32), _integers(zero)


def efficient_qat(x: Array, group: int) -> tuple[Array, Array, Array]:
    """Quantise groups along K to 0..15 with a scale and an unlimited zero point (clause N26.3), as EfficientQAT does.

    x, group: as of `int4_affine`, 64 or 128 there. Returns (codes u8 [M, K], scales float32 [M, K/group], zero points
    float32 [M, K/group]). Raises DtypeError, ShapeError, ArgumentError.
    """
    bits, least, spread = _groups(x, group)
    scale = np.minimum(larger(divide(spread, np.full_like(spread, _FIFTEEN)), _LEAST_SCALE), _MOST_SCALE)
    zero = rounded(divide(least ^ SIGN, scale))
    return _affine_codes(bits, scale, zero), scale.view(np.float32), zero.view(np.float32)


def _groups(x: Array, group: int) -> tuple[Array, Array, Array]:
    """Bits u32 [M, G, group] of x; of each group the least element, and fl(largest - least), u32 [M, G]."""
    size = require_integer("group", group, 1)
    require_float("x", x)
    if x.shape[1] % size:
        raise ShapeError(f"x has shape {tuple(x.shape)}; its last axis must be a multiple of {size}: pad it")
    bits = grouped(float32_bits(contiguous(x)), size)
    least = smallest(bits)
    return bits, least, subtract(largest(bits), least)


def _affine_codes(bits: Array, scale: Array, zero: Array) -> Array:
    """Codes u8 [M, K]: fl(R(fl(x / scale)) + zero) within 0..15; NaN gives 15."""
    placed = add(rounded(divide(bits, scale[..., None])), zero[..., None])
    nan = (placed & _MAGNITUDE) > INF
    codes = np.where(nan, np.uint8(15), _integers(_within(np.where(nan, np.uint32(0), placed))))
    return codes.reshape(bits.shape[0], bits.shape[1] * bits.shape[2])


def _within(bits: Array) -> Array:
    """float32 bits clamped to 0..15."""
    return np.where(bits >= SIGN, np.uint32(0), np.minimum(bits, _FIFTEEN))


def _integers(bits: Array) -> Array:
    """Whole float32 numbers of 0 to 15 (bits) as u8."""
    shift = np.clip(np.int32(150) - (bits >> np.uint32(23)).astype(np.int32), np.int32(0), np.int32(31))
    whole = ((bits & np.uint32(0x7FFFFF)) | np.uint32(0x800000)) >> shift.astype(np.uint32)
    return np.where(bits == np.uint32(0), np.uint32(0), whole).astype(np.uint8)


def int4_keep_two(x: Array, group: int) -> tuple[Array, Array, Array]:
    """Quantise groups along K to INT4 without their two largest elements, which are kept (clause N26.5).

    x: as of `int4_affine`; group: 3 or more, a divisor of K. Returns (codes u8 [M, K], INT4 in the low four bits, 0
    where an element is kept; scales float32 [M, K/group]; kept int32 [M, K/group, 2], places in a group, the larger
    first). Raises DtypeError, ShapeError, ArgumentError.
    """
    require_integer("group", group, 3)
    bits = _groups(x, group)[0]
    magnitude = bits & _MAGNITUDE
    magnitude = np.where(magnitude > INF, np.uint32(0), magnitude)
    lane = np.arange(bits.shape[-1], dtype=np.int32, like=bits)
    order = magnitude.astype(np.int64) + np.int64(1)
    first = order.argmax(axis=-1).astype(np.int32)
    left = np.where(lane == first[..., None], np.int64(0), order)
    second = left.argmax(axis=-1).astype(np.int32)
    held = (lane == first[..., None]) | (lane == second[..., None])
    scale = larger(np.where(held, np.uint32(0), magnitude).max(axis=-1), _LEAST_KEPT)
    placed = divide(multiply(bits, np.full_like(bits, _SEVEN)), np.broadcast_to(scale[..., None], bits.shape))
    codes = np.where(held, np.uint8(0), encode_bits(INT4, placed, 0, HOPPER))
    kept = np.stack([first, second], axis=-1)
    return codes.reshape(x.shape), scale.view(np.float32), kept


def dequantize_int4(codes: Array, scales: Array, zeros: Array | None = None) -> Array:
    """Dequantise INT4 codes, or codes of 0..15 with zero points (clause N26.4): fl(fl(q - z) scale).

    codes: u8 [M, K] below 16; scales: float32 [1] or [M, G], G a divisor of K; zeros: u8 or float32 of the shape of the
    scales, or None for two's complement. Returns float32 [M, K]. Raises DtypeError, ShapeError, ArgumentError.
    """
    return restored(codes, scales, zeros)
