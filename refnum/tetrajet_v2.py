"""TetraJet-v2: E2M1 under an E4M3 scale a 16 elements and a float32 scale a 128, with its own noise (clause N24)."""

from __future__ import annotations

import numpy as np

from .arguments import require_integer, require_sequence
from .arrays import (
    OUTPUTS,
    TILE,
    Array,
    contiguous,
    empty,
    float32_bits,
    group_max,
    output_dtype,
    pack_nibbles,
    require_array,
    require_codes,
    require_float,
    row_chunks,
    spread,
    unpack_nibbles,
)  # fmt: skip
from .codec import decode_table, encode_bits
from .division import divide
from .errors import DtypeError, ShapeError, shown
from .formats import E2M1, E4M3
from .profiles import HOPPER
from .softfloat import INF, NAN, add, multiply, to_bfloat16

BLOCK_V2 = 16
"""Elements under one E4M3 scale; `TILE`, 128, are under one float32 scale."""
_MAGNITUDE, _SIGN = np.uint32(0x7FFFFFFF), np.uint32(0x80000000)
_ONE, _SIX, _MOST = np.uint32(0x3F800000), np.uint32(0x40C00000), np.uint32(0x43E00000)
_LEAST = np.uint32(0x3B000000)
"""2**-9, the least scale of a block of zeros."""
_TWO, _FOUR = np.uint32(0x40000000), np.uint32(0x40800000)


def quantize_tetrajet_v2(x: Array, seed: int | None = None) -> tuple[Array, Array, Array]:
    """Quantise to E2M1 under two scales, as TetraJet-v2 does (clause N24.11).

    x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits), K % 128 == 0. seed: a 32-bit number, with which the
    elements are rounded stochastically by the noise of `tetrajet_v2_noise`; to nearest, ties to even, without it.
    Returns (packed u8 [M, K/2], even element in the low nibble; scales u8 [M, K/16], E4M3 codes; outer float32
    [M, K/128]). Raises DtypeError, ShapeError, ArgumentError.
    """
    require_float("x", x, TILE)
    key = None if seed is None else require_integer("seed", seed, 0, (1 << 32) - 1)
    m, k = x.shape
    packed, scales = empty((m, k // 2), np.uint8, x), empty((m, k // BLOCK_V2), np.uint8, x)
    outer = empty((m, k // TILE), np.uint32, x)
    for rows in row_chunks(x, k):
        bits = float32_bits(contiguous(x[rows]))
        scales[rows], outer[rows] = _scales(bits)
        product = scale_products(scales[rows], outer[rows])
        inverse = np.where(product == np.uint32(0), product, divide(np.full_like(product, _ONE), product))
        scaled = multiply(bits, spread(inverse, BLOCK_V2, axis=1))
        if key is not None:
            scaled = _with_noise(scaled, noise_bits(bits.shape, key, rows.start * k, like=bits))
        packed[rows] = pack_nibbles(encode_bits(E2M1, scaled, 0, HOPPER))
    return packed, scales, outer.view(np.float32)


def dequantize_tetrajet_v2(packed: Array, scales: Array, outer: Array, dtype: str = "float32") -> Array:
    """Dequantise E2M1 under two scales (clause N24.11): fl(code * fl(outer * scale)), rounded once more to bfloat16.

    packed: u8 [M, K/2]; scales: E4M3 codes u8 [M, K/16]; outer: float32 [M, K/128]; dtype: float32 | bfloat16.
    Returns [M, K]. Raises DtypeError, ShapeError, ArgumentError.
    """
    name = output_dtype(dtype)
    product = spread(scale_products(*_require_scales(packed, scales, outer)), BLOCK_V2, axis=1)
    codes = unpack_nibbles(packed)
    wide = multiply(np.take(np.asarray(decode_table(E2M1), like=packed), codes), product)
    return (wide if name == "float32" else to_bfloat16(wide)).view(OUTPUTS[name])


def scale_products(scales: Array, outer: Array) -> Array:
    """Float32 bits u32 [M, K/16] of fl(outer * scale); scales: E4M3 codes, outer: float32 bits u32 [M, K/128]."""
    wide = spread(outer, TILE // BLOCK_V2, axis=1)
    return multiply(wide, np.take(np.asarray(decode_table(E4M3), like=scales), scales))


def _require_scales(packed: Array, scales: Array, outer: Array) -> tuple[Array, Array]:
    """Return the E4M3 codes and the bits of the float32 scales; raise unless they fit the codes."""
    require_codes("packed", packed, TILE // 2)
    m, k = packed.shape[0], packed.shape[1] * 2
    require_codes("scales", scales)
    require_array("outer", outer)
    if outer.dtype != np.float32:
        raise DtypeError(f"outer has dtype {outer.dtype}; allowed is float32")
    for name, part, shape in (("scales", scales, (m, k // BLOCK_V2)), ("outer", outer, (m, k // TILE))):
        if tuple(part.shape) != shape:
            raise ShapeError(
                f"{name} has shape {tuple(part.shape)}; packed of shape {tuple(packed.shape)} needs {shape}"
            )
    return scales, contiguous(outer).view(np.uint32)


def _scales(bits: Array) -> tuple[Array, Array]:
    """E4M3 codes u8 [M, K/16] and float32 bits u32 [M, K/128] of the scales of float32 bits."""
    magnitude = bits & _MAGNITUDE
    block = group_max(np.where(magnitude > INF, np.uint32(0), magnitude), BLOCK_V2)
    outer = _sixth(divide(group_max(block, TILE // BLOCK_V2), np.array(_MOST, like=bits)))
    outer = np.where(outer == np.uint32(0), _ONE, outer)
    inner = _sixth(divide(block, spread(outer, TILE // BLOCK_V2, axis=1)))
    return encode_bits(E4M3, np.where(inner == np.uint32(0), _LEAST, inner), 0, HOPPER), outer


def _sixth(bits: Array) -> Array:
    return divide(bits, np.full_like(bits, _SIX))


def noise_words(shape: tuple[int, int], seed: int, offset: int = 0, like: Array | None = None) -> Array:
    """Words u32 [M, K] of the generator, K % 4 == 0: elements in groups of four, each with a state of its own."""
    m, k = shape
    place = np.arange(m * k // 4, dtype=np.uint64, like=like) * np.uint64(4) + np.uint64(offset)
    state = (place & np.uint64(0xFFFFFFFF)).astype(np.uint32) * np.uint32(0x9E3779B1) + np.uint32(seed)
    state = state * np.uint32(747796405) + np.uint32(2891336453)
    out = empty((m * k // 4, 4), np.uint32, place)
    for lane in range(4):
        state = state * np.uint32(1664525) + np.uint32(1013904223)
        out[:, lane] = state
    return out.reshape(m, k)


def noise_bits(shape: tuple[int, int], seed: int, offset: int = 0, like: Array | None = None) -> Array:
    """Float32 bits u32 [M, K] of the noise: a multiple of 2**-23 from -1/2 on and below 1/2."""
    words = noise_words(shape, seed, offset, like) >> np.uint32(9)
    return add(words | _ONE, np.full_like(words, np.uint32(0xBFC00000)))


def tetrajet_v2_noise(shape: tuple[int, int], seed: int) -> Array:
    """Return the noise of TetraJet-v2's stochastic rounding (clause N24.12).

    shape: (M, K), K a multiple of 4; seed: a 32-bit number. Returns float32 [M, K], at least -1/2 and below 1/2.
    Raises ShapeError, ArgumentError.
    """
    sides = [require_integer("a dimension of shape", n, 0, (1 << 31) - 1) for n in require_sequence("shape", shape)]
    if len(sides) != 2 or sides[1] % 4:
        raise ShapeError(f"shape is {shown(shape)}; allowed is (M, K), K a multiple of 4: four elements share a state")
    m, k = sides
    bits = noise_bits((m, k), require_integer("seed", seed, 0, (1 << 32) - 1))
    return np.asarray(bits.view(np.float32))


def _with_noise(scaled: Array, noise: Array) -> Array:
    """Float32 bits of the numbers with noise in units of their step, kept within the region of that step."""
    magnitude = scaled & _MAGNITUDE
    low, middle = magnitude <= _TWO, magnitude <= _FOUR
    step = np.where(low, np.uint32(0x3F000000), np.where(middle, _ONE, _TWO))
    least = np.where(low, np.uint32(0), np.where(middle, _TWO, _FOUR))
    most = np.where(low, _TWO, np.where(middle, _FOUR, _SIX))
    moved = add(magnitude, multiply(noise, step))
    moved = np.where(moved >= _SIGN, np.uint32(0), moved)
    kept = np.minimum(np.maximum(moved, least), most) | (scaled & _SIGN)
    return np.where(magnitude > INF, NAN, kept)


def tetrajet_v2_signs(seed: int) -> int:
    """Return the 16 signs of TetraJet-v2's rotation as a mask for `hadamard16` (clause N24.13).

    seed: a 32-bit number. Bit i, the least significant first, is set where element i is negated. Raises ArgumentError.
    """
    seed, mask = require_integer("seed", seed, 0, (1 << 32) - 1), 0
    for group in range(4):
        word = (seed ^ group * 7919) * 2654435761 & 0xFFFFFFFF
        mask |= ((word ^ word >> 16) & 15) << 4 * group
    return mask
