"""TetraJet: MXFP4 along rows or columns with three scale rules, and the choice between neighbours by an average (N24).

Codes stay where their elements are: a block of the axis 1 is 32 neighbours of a row, one of the axis 0 is 32 neighbours
of a column.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arguments import require_choice, require_integer
from .arrays import (
    BLOCK,
    OUTPUTS,
    Array,
    contiguous,
    empty,
    group_max,
    output_dtype,
    own_bits,
    pack_nibbles,
    require_codes,
    require_float,
    require_scales,
    row_chunks,
    spread,
    table_like,
    unpack_nibbles,
    widen,
)  # fmt: skip
from .blocks import _scaled_table
from .codec import encode_bits
from .division import divide
from .errors import ShapeError
from .formats import E2M1
from .nvfp4 import _randomness
from .profiles import HOPPER, PROFILES
from .rounding import split_float32
from .scales import NAN_BYTE, exponent_byte, scale_exponent
from .softfloat import INF, to_bfloat16
from .tiles import _fold_rows

RULES = ("truncation_free", "exact", "microscaling")
TIES = ("even", "away")
RATIOS = ("bfloat16", "float32")
ZERO_BYTE = np.uint8(98)
"""Byte of a block of zeros, 2**-29: what every rule gives for the released code's least maximum, 1e-8."""
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_SIX = np.uint32(0x40C00000)
_CUT = HOPPER.replace(name="TETRAJET_CUT", rounding="toward_zero")
_NEAREST = {ties: HOPPER.replace(name=f"TETRAJET_{ties.upper()}", ties=ties) for ties in TIES}


def quantize_tetrajet(
    x: Array,
    axis: int = 1,
    rule: str = "truncation_free",
    ties: str = "even",
    ratio: str = "bfloat16",
    *,
    rbits: Array | None = None,
    philox: tuple[int, ...] | None = None,
) -> tuple[Array, Array]:
    """Quantise to MXFP4 as TetraJet does (clause N24).

    x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits), K % 32 == 0. axis: 1 for blocks of 32 along a row,
    0 for blocks of 32 along a column, the last of which may be short. rule: how a block's scale follows from its
    largest magnitude, `truncation_free`, `exact` or `microscaling`; ratio: the format in which `truncation_free` takes
    a sixth of it, `bfloat16` or `float32`. ties: `even` or `away`. rbits, [M, K] unsigned integers below 256, or philox
    (N13.5) round the elements stochastically; ties are then not read.
    Returns (packed u8 [M, K/2], even element in the low nibble; scales u8 [M, K/32] or [ceil(M/32), K], E8M0 bytes).
    Raises DtypeError, ShapeError, ArgumentError.
    """
    require_float("x", x, BLOCK)
    axis = _axis(axis)
    _require_choices(rule, ratio)
    require_choice("ties", ties, TIES)
    random = _randomness(x, rbits, philox)
    packed, scales = _outputs(x, axis)
    for rows in row_chunks(x, x.shape[1], multiple=BLOCK):
        bits = widen(own_bits(contiguous(x[rows])))
        byte = block_bytes(bits, axis, rule, ratio)
        drawn = random(rows)
        profile = _NEAREST[ties] if drawn is None else PROFILES["STOCHASTIC"]
        each = _each(byte, axis, bits)
        codes = encode_bits(E2M1, bits, each.astype(np.int32) - np.int32(127), profile, rbits=drawn)
        packed[rows] = pack_nibbles(np.where(each == NAN_BYTE, np.uint8(0), codes))
        scales[_scale_rows(rows, axis)] = byte
    return packed, scales


def q_ema(
    w: Array, ema: Array, axis: int = 1, rule: str = "truncation_free", ratio: str = "bfloat16"
) -> tuple[Array, Array]:
    """Quantise weights to the neighbour that their running average is nearer to, Q-EMA (clause N24.7).

    w: as x of `quantize_tetrajet`, which gives the scales; ema: its running average, [M, K] of any of these dtypes.
    Each code is one of the two neighbours of the scaled weight: the one above in magnitude where the average, under the
    same scale and with the weight's sign, reaches the middle between them. Returns as `quantize_tetrajet`.
    Raises DtypeError, ShapeError, ArgumentError.
    """
    require_float("w", w, BLOCK)
    require_float("ema", ema, BLOCK)
    if tuple(ema.shape) != tuple(w.shape):
        raise ShapeError(f"ema has shape {tuple(ema.shape)}; allowed is that of w, {tuple(w.shape)}")
    axis = _axis(axis)
    _require_choices(rule, ratio)
    packed, scales = _outputs(w, axis)
    for rows in row_chunks(w, w.shape[1], multiple=BLOCK):
        bits, average = (widen(own_bits(contiguous(part[rows]))) for part in (w, ema))
        byte = block_bytes(bits, axis, rule, ratio)
        each = _each(byte, axis, bits)
        codes = neighbour_codes(bits, average, each.astype(np.int32) - np.int32(127))
        packed[rows] = pack_nibbles(np.where(each == NAN_BYTE, np.uint8(0), codes))
        scales[_scale_rows(rows, axis)] = byte
    return packed, scales


def neighbour_codes(bits: Array, average: Array, exponent: Array) -> Array:
    """Codes u8 of the neighbours that the averages choose; float32 bits u32 and the scales' exponents i32, one each."""
    below = encode_bits(E2M1, bits, exponent, _CUT)
    # ties away from zero: the code nearest to the average is above the lower neighbour's where it reaches the middle
    nearest = encode_bits(E2M1, average & _MAGNITUDE, exponent, _NEAREST["away"])
    same = ((bits ^ average) >> np.uint32(31)) == np.uint32(0)
    number = ((average & _MAGNITUDE) <= INF) & ((bits & _MAGNITUDE) != np.uint32(0))
    up = same & number & (nearest > (below & np.uint8(7)))
    return below + up.astype(np.uint8)


def dequantize_tetrajet(packed: Array, scales: Array, axis: int = 1, dtype: str = "float32") -> Array:
    """Dequantise MXFP4 whose blocks lie along either axis (clause N24.6): exact, as `dequantize_mxfp4`.

    packed: u8 [M, K/2]; scales: u8 [M, K/32] for axis 1, [ceil(M/32), K] for axis 0; dtype: float32 | bfloat16.
    Returns [M, K]. Raises DtypeError, ShapeError, ScaleError, ArgumentError.
    """
    axis, name = _axis(axis), output_dtype(dtype)
    require_codes("packed", packed, BLOCK // 2)
    m, k = packed.shape[0], packed.shape[1] * 2
    require_scales(scales, _grid(m, k, axis), f"packed of shape {tuple(packed.shape)} with blocks along axis {axis}")
    table = table_like(_scaled_table, packed, E2M1, name)
    out = empty((m, k), table.dtype, packed)
    for rows in row_chunks(packed, k, multiple=BLOCK):
        codes = unpack_nibbles(packed[rows])
        each = _each(scales[_scale_rows(rows, axis)], axis, codes)
        out[rows] = np.take(table, (each.astype(np.int32) << np.int32(4)) | codes)
    return out.view(OUTPUTS[name])


def double_quantise(
    packed: Array,
    scales: Array,
    axis: int = 0,
    rule: str = "truncation_free",
    ties: str = "even",
    ratio: str = "bfloat16",
    *,
    rbits: Array | None = None,
    philox: tuple[int, ...] | None = None,
) -> tuple[Array, Array]:
    """Quantise a quantised tensor along its other axis, double quantisation (clause N24.6).

    packed, scales: MXFP4 whose blocks lie along the other axis than `axis`, as `quantize_tetrajet` gives it; the other
    arguments and the result are those of `quantize_tetrajet` for the dequantised tensor.
    Raises DtypeError, ShapeError, ScaleError, ArgumentError.
    """
    return quantize_tetrajet(
        dequantize_tetrajet(packed, scales, 1 - _axis(axis)), axis, rule, ties, ratio, rbits=rbits, philox=philox
    )


def block_bytes(bits: Array, axis: int, rule: str, ratio: str) -> Array:
    """E8M0 bytes u8 of the blocks of float32 bits u32 [M, K] (clause N24.2)."""
    magnitude = bits & _MAGNITUDE
    amax = group_max(magnitude, BLOCK) if axis else _fold_rows(magnitude, BLOCK)
    byte = np.where(amax == np.uint32(0), ZERO_BYTE, exponent_byte(_exponents(amax, rule, ratio)))
    return np.where(amax >= INF, NAN_BYTE, byte)


def _exponents(amax: Array, rule: str, ratio: str) -> Array:
    """Exponents i32 of the scales of float32 magnitudes u32, before any clamp."""
    if rule != "truncation_free":
        exponent, significand = split_float32(amax)
        known = "rceil" if rule == "exact" else "floor"
        return scale_exponent(known, E2M1, exponent, significand & np.uint32(0x7FFFFF))
    sixth = divide(amax, np.full_like(amax, _SIX))
    if ratio == "bfloat16":
        sixth = to_bfloat16(sixth).astype(np.uint32) << np.uint32(16)
    exponent, significand = split_float32(sixth)
    return exponent + ((significand & np.uint32(0x7FFFFF)) != np.uint32(0)).astype(np.int32)


def _axis(axis: Any) -> int:
    return require_integer("axis", axis, 0, 1)


def _require_choices(rule: str, ratio: str) -> None:
    require_choice("rule", rule, RULES)
    require_choice("ratio", ratio, RATIOS)


def _grid(m: int, k: int, axis: int) -> tuple[int, int]:
    """Shape of the scales."""
    return (m, k // BLOCK) if axis else (-(-m // BLOCK), k)


def _outputs(x: Array, axis: int) -> tuple[Array, Array]:
    m, k = x.shape
    return empty((m, k // 2), np.uint8, x), empty(_grid(m, k, axis), np.uint8, x)


def _scale_rows(rows: slice, axis: int) -> slice:
    return rows if axis else slice(rows.start // BLOCK, -(-rows.stop // BLOCK))


def _each(byte: Array, axis: int, like: Array) -> Array:
    """The scale byte of every element of [M, K]."""
    return spread(byte, BLOCK, axis)[: like.shape[0]]
