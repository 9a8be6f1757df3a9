"""MX blocks, 1x32 along K: quantise and dequantise for every MX element format (clauses N3, N4, N5)."""

from __future__ import annotations

import functools

import numpy as np

from .arrays import (
    BLOCK,
    OUTPUTS,
    Array,
    contiguous,
    empty,
    group_amax,
    grouped,
    output_dtype,
    own_bits,
    pack_nibbles,
    require_below,
    require_codes,
    require_float,
    require_random,
    require_scales,
    row_chunks,
    table_like,
    widen,
)  # fmt: skip
from .codec import INF32, NAN32, decode_table, encode_bits
from .errors import ArgumentError
from .formats import E2M1, MX_ELEMENTS, Format, get_format
from .layouts import scales_from_layout, scales_to_layout
from .narrow import encode_scaled
from .philox import as_key, random_bits
from .profiles import HOPPER, Profile, get_profile
from .rounding import require_rounding
from .scales import NAN_BYTE, ONE_BYTE, block_scale


def quantize_mxfp4(
    x: Array,
    profile: Profile | str = HOPPER,
    *,
    rbits: Array | None = None,
    philox: tuple[int, ...] | None = None,
    layout_out: str = "bytes",
) -> tuple[Array, Array]:
    """Quantise to MXFP4 (clause N5).

    x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits), K % 32 == 0. A stochastic profile takes either
    rbits, [M, K] unsigned integers below 2**profile.random_bits, or philox, (seed, stream, step) or
    (seed, stream, step, offset): then x's element i has the random bits of element offset + i of the stream (N13.5).
    Returns (packed u8 [M, K/2], even element in the low nibble; scales of [M, K/32] E8M0 bytes in the storage
    layout `layout_out` of N6.5). Raises DtypeError, ShapeError, ProfileError, ArgumentError.
    """
    codes, scales = _quantize(x, E2M1, get_profile(profile), rbits, philox, pack=True)
    return codes, scales_to_layout(scales, layout_out)


def quantize_mx(
    x: Array,
    element: Format | str = E2M1,
    profile: Profile | str = HOPPER,
    *,
    rbits: Array | None = None,
    philox: tuple[int, ...] | None = None,
) -> tuple[Array, Array]:
    """Quantise to an MX format with one element a byte (clause N5, generic form).

    x, rbits, philox: as `quantize_mxfp4`. element: E2M1 (MXFP4), E2M3 or E3M2 (MXFP6), E4M3 or E5M2 (MXFP8), MXINT8.
    Returns (codes u8 [M, K], scales u8 [M, K/32]). Raises as `quantize_mxfp4`.
    """
    return _quantize(x, get_format(element, MX_ELEMENTS), get_profile(profile), rbits, philox, pack=False)


def _quantize(
    x: Array, fmt: Format, profile: Profile, rbits: Array | None, philox: tuple[int, ...] | None, pack: bool
) -> tuple[Array, Array]:
    require_float("x", x, BLOCK)
    if rbits is not None and philox is not None:
        raise ArgumentError("rbits and philox were both given; allowed is one of them")
    if rbits is not None:
        require_random("rbits", rbits, x, profile.random_bits)
    key = None if philox is None else as_key(philox)
    require_rounding(fmt, profile, "rbits" if rbits is not None else "philox" if key is not None else None)
    m, k = x.shape
    codes = empty((m, k // 2 if pack else k), np.uint8, x)
    scales = empty((m, k // BLOCK), np.uint8, x)
    for rows in row_chunks(x, k):
        bits = own_bits(contiguous(x[rows]))
        random = None if rbits is None else rbits[rows]
        if key is not None:
            at = key._replace(offset=key.offset + rows.start * k)._asdict()
            random = random_bits(bits.shape, profile.random_bits, **at, like=x)
        part, scales[rows] = quantize_block_bits(bits, fmt, profile, random)
        codes[rows] = pack_nibbles(part) if pack else part
    return codes, scales


def quantize_block_bits(bits: Array, fmt: Format, profile: Profile, rbits: Array | None = None) -> tuple[Array, Array]:
    """Quantise bits [M, K] (`own_bits`) -> (codes u8 [M, K], scales u8 [M, K/32]); the heart of N5."""
    m, k = bits.shape
    blocks = grouped(bits, BLOCK)
    amax = group_amax(bits, BLOCK)
    scales = block_scale(amax, fmt, profile)
    finite = not bool((amax >= np.uint32(INF32)).any())
    if finite and rbits is None:
        quick = encode_scaled(fmt, blocks, np.where(amax == np.uint32(0), ONE_BYTE, scales), profile)
        if quick is not None:
            return quick.reshape(m, k), scales
    exponent = (scales.astype(np.int32) - np.int32(127))[..., None]
    random = None if rbits is None else rbits.reshape(blocks.shape)
    codes = encode_bits(fmt, widen(blocks), exponent, profile, rbits=random, finite=finite)
    if not finite:
        codes = np.where(scales[..., None] == NAN_BYTE, np.uint8(0), codes)
    return codes.reshape(m, k), scales


@functools.cache
def _scaled_table(fmt: Format, dtype: str) -> np.ndarray:
    """Row s, column c: bits of value(c) * 2**(s - 127) in float32 or bfloat16; row 255 is NaN (clause N5)."""
    rows = [decode_table(fmt, s - 127) for s in range(255)]
    table = np.stack([*rows, np.full(1 << fmt.bits, NAN32, np.uint32)])
    if dtype == "bfloat16":
        table = round_to_bfloat16(table)
    table = table.ravel()
    table.flags.writeable = False
    return table


def round_to_bfloat16(bits: np.ndarray) -> np.ndarray:
    """float32 bits (NaN only as 0x7FC00000) to bfloat16 bits, to nearest even; exact but for tiny FP8 results."""
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return np.where(bits == NAN32, NAN32 >> 16, rounded).astype(np.uint16)


def dequantize_mxfp4(packed: Array, scales: Array, dtype: str = "float32", *, layout_in: str = "bytes") -> Array:
    """Dequantise MXFP4 (clause N5): exact, subnormal results included.

    packed: u8 [M, K/2]; scales: [M, K/32] E8M0 bytes in the storage layout `layout_in` of N6.5; dtype: "float32" or
    "bfloat16".
    Returns [M, K]. A magnitude of 2**128 or more is Inf; a block of byte 255 is NaN (0x7FC00000 or 0x7FC0).
    Raises DtypeError, ShapeError, ScaleError, ArgumentError.
    """
    require_codes("packed", packed, BLOCK // 2)
    m, k = packed.shape[0], packed.shape[1] * 2
    scales = scales_from_layout(scales, layout_in, m, k // BLOCK)
    name = output_dtype(dtype)
    table = table_like(_pair_table, packed, name)
    out = empty((m, k // 2), table.dtype, packed)
    for rows in row_chunks(packed, k):
        index = grouped(packed[rows], BLOCK // 2).astype(np.int32)
        index |= scales[rows].astype(np.int32)[..., None] << np.int32(8)
        out[rows] = np.take(table, index).reshape(out[rows].shape)
    return out.view(OUTPUTS[name])


@functools.cache
def _pair_table(dtype: str) -> np.ndarray:
    """Both decoded elements of a packed byte under a scale byte, as one word: index scale << 8 | byte."""
    table = _scaled_table(E2M1, dtype).reshape(256, 16)
    pair = np.stack([np.tile(table, (1, 16)), np.repeat(table, 16, axis=1)], axis=-1)
    pair = np.ascontiguousarray(pair).view(np.uint64 if dtype == "float32" else np.uint32).ravel()
    pair.flags.writeable = False
    return pair


def dequantize_mx(codes: Array, scales: Array, element: Format | str = E2M1, dtype: str = "float32") -> Array:
    """Dequantise an MX format with one element a byte (clause N5, generic form).

    codes: u8 [M, K] below 2**bits of the element; scales: u8 [M, K/32]; dtype: "float32" or "bfloat16".
    Returns [M, K], as `dequantize_mxfp4`; MXFP8 results below bfloat16's normal range are rounded to nearest even.
    Raises as it, and ProfileError for the element, ArgumentError for a code out of range.
    """
    fmt = get_format(element, MX_ELEMENTS)
    require_codes("codes", codes, BLOCK)
    m, k = codes.shape
    require_scales(scales, (m, k // BLOCK), f"codes of shape {tuple(codes.shape)}")
    require_below("codes", codes, fmt.bits, f"{fmt.name} codes")
    name = output_dtype(dtype)
    table = table_like(_scaled_table, codes, fmt, name)
    out = empty((m, k), table.dtype, codes)
    for rows in row_chunks(codes, k):
        index = grouped(codes[rows], BLOCK).astype(np.int32)
        index |= scales[rows].astype(np.int32)[..., None] << np.int32(fmt.bits)
        out[rows] = np.take(table, index).reshape(out[rows].shape)
    return out.view(OUTPUTS[name])


def block_class(x: Array) -> Array:
    """Input class of each MX block (clause N17): one byte of b"FTHZIN" a block, u8 [M, K/32].

    F finite with 2**-124 <= amax < 2**126, T smaller, H larger, Z zero, I holds Inf, N holds NaN.
    Raises DtypeError, ShapeError.
    """
    require_float("x", x, BLOCK)
    amax = group_amax(own_bits(contiguous(x)), BLOCK)
    names = [ord(c) for c in "ZTFHIN"]
    edges = [1, (127 - 124) << 23, (127 + 126) << 23, INF32, INF32 + 1]
    out = np.zeros(amax.shape, dtype=np.uint8, like=amax) + np.uint8(names[0])
    for edge, name in zip(edges, names[1:], strict=True):
        out = np.where(amax >= np.uint32(edge), np.uint8(name), out)
    return out
