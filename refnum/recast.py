"""Direct FP8 <-> MXFP4 conversion, row-wise, never through BF16 (clauses N7 and N8).

Both are one idea: a scale rule on integer maxima, then `recode`, the code of value(c) * 2**shift in another
format. Every (shift, code) pair is a table entry made by the generic codec from exact values.
"""

from __future__ import annotations

import functools

import numpy as np

from .arguments import require_choice
from .arrays import (
    BLOCK,
    TILE,
    Array,
    empty,
    group_max,
    grouped,
    pack_nibbles,
    require_codes,
    row_chunks,
    spread,
    table_like,
    unpack_nibbles,
)  # fmt: skip
from .codec import NAN32, apply_sign, decode_table
from .errors import ProfileError
from .formats import E2M1, E4M3, Format
from .layouts import scales_from_layout, scales_to_layout
from .profiles import HOPPER, Profile, deterministic
from .rounding import require_rounding, round_magnitude, split_float32
from .scales import NAN_BYTE, ONE_BYTE, exponent_byte, scale_exponent
from .tiles import tile_count

SHIFT_BIAS = 256
"""Row of `recode_table` that holds shift 0."""
SCALE_MODES = ("max", "amax")


def _magnitudes(fmt: Format) -> np.ndarray:
    """float32 bits of each code's magnitude, u32."""
    return decode_table(fmt) & np.uint32(0x7FFFFFFF)


@functools.cache
def magnitude_table(fmt: Format) -> np.ndarray:
    """Sort key of each code's magnitude: exponent << 23 | fraction23, i32; those of zero and NaN are not used.

    Keys order as magnitudes do and take a power of two by adding exponent << 23.
    """
    keys = _magnitudes(fmt).astype(np.int32) - np.int32(127 << 23)
    keys.flags.writeable = False
    return keys


@functools.cache
def recode_table(source: Format, target: Format, profile: Profile) -> np.ndarray:
    """u8 table, index (shift + 256) << bits | code: code in `target` of value(code) * 2**shift (N2).

    Shifts -256..255 cover every pair of E8M0 bytes. A NaN source code gives the target's NaN code; formats
    without one never receive it (their block is a NaN block).
    """
    codes = np.arange(1 << source.bits)
    exponent, significand = split_float32(_magnitudes(source))  # a zero's exponent is so low that no shift lifts it
    shifts = np.arange(-SHIFT_BIAS, SHIFT_BIAS, dtype=np.int32)[:, None]
    wide = np.broadcast_to(significand, (shifts.size, codes.size))
    negative = np.broadcast_to((codes & source.sign_mask) != 0, wide.shape)
    out = round_magnitude(target, exponent + shifts, wide, profile, negative=negative)
    out = apply_sign(target, out, negative, profile)
    if target.nan_code is not None:
        out = np.where(decode_table(source) == NAN32, np.uint8(target.nan_code), out)
    out = out.ravel()
    out.flags.writeable = False
    return out


def recode(source: Format, target: Format, codes: Array, shift: Array, profile: Profile = HOPPER) -> Array:
    """Code in `target` of value(code) * 2**shift for u8 codes and i32 shifts in -256..255, broadcast together."""
    table = table_like(recode_table, codes, source, target, profile)
    return np.take(table, ((shift + np.int32(SHIFT_BIAS)) << np.int32(source.bits)) | codes)


def fp8_to_mxfp4(
    codes: Array,
    scales: Array,
    profile: Profile | str = HOPPER,
    *,
    layout_in: str = "bytes",
    layout_out: str = "bytes",
) -> tuple[Array, Array]:
    """Quantise an FP8 tensor to MXFP4 directly (clause N7): N5 applied to the exact FP8 values.

    codes: u8 [M, K] E4M3, K % 32 == 0; scales: [M, ceil(K/128)], one E8M0 byte a 1x128 tile, in the storage layout
    `layout_in` of N6.5. Returns (packed u8 [M, K/2], scales of [M, K/32] bytes in `layout_out`). A NaN code or a scale
    byte of 255 makes NaN blocks (byte 255, codes 0).
    Raises DtypeError, ShapeError, ScaleError, ArgumentError, ProfileError.
    """
    profile = deterministic(profile, "fp8_to_mxfp4")
    require_rounding(E2M1, profile)
    require_codes("codes", codes, BLOCK)
    m, k = codes.shape
    scales = scales_from_layout(scales, layout_in, m, tile_count(k))
    floor = _floor_key(profile)
    packed = empty((m, k // 2), np.uint8, codes)
    out_scales = empty((m, k // BLOCK), np.uint8, codes)
    for rows in row_chunks(codes, k):
        tile = spread(scales[rows], TILE // BLOCK, axis=1)[:, : k // BLOCK]
        amax = group_max(codes[rows] & np.uint8(0x7F), BLOCK)
        byte = _fp8_block_scale(amax, tile, floor, profile)
        shift = tile.astype(np.int32) - byte.astype(np.int32)
        out = recode(E4M3, E2M1, grouped(codes[rows], BLOCK), shift[..., None], profile)
        if bool((byte == NAN_BYTE).any()):
            out = np.where((byte == NAN_BYTE)[..., None], np.uint8(0), out)
        packed[rows] = pack_nibbles(out).reshape(packed[rows].shape)
        out_scales[rows] = byte
    return packed, scales_to_layout(out_scales, layout_out)


def _fp8_block_scale(amax: Array, tile: Array, floor: int, profile: Profile) -> Array:
    """E8M0 byte of blocks whose largest magnitude code is `amax` (u8) under the tile byte (u8)."""
    key = np.take(table_like(magnitude_table, amax, E4M3), amax)
    key = key + ((tile.astype(np.int32) - np.int32(127)) << np.int32(23))
    key = np.maximum(key, np.int32(floor))
    byte = key_scale(profile.scale_rule, E2M1, key)
    byte = np.where(amax == np.uint8(0), np.uint8(profile.zero_scale), byte)
    return np.where((amax == np.uint8(0x7F)) | (tile == NAN_BYTE), NAN_BYTE, byte)


def _floor_key(profile: Profile) -> int:
    """Sort key of the profile's amax floor, ABSENT without one; ProfileError for a subnormal floor (N14.4)."""
    if profile.amax_floor is None:
        return ABSENT
    if profile.amax_floor < 1 << 23:
        raise ProfileError(
            f"profile {profile.name}: amax_floor is a subnormal float32; fp8_to_mxfp4 takes a normal one"
        )
    return profile.amax_floor - (127 << 23)


def key_scale(rule: str, fmt: Format, key: Array) -> Array:
    """E8M0 byte of a maximum given as a sort key of `magnitude_table` plus exponent << 23 (clause N3)."""
    exponent = key >> np.int32(23)
    fraction = (key & np.int32(0x7FFFFF)).astype(np.uint32)
    return exponent_byte(scale_exponent(rule, fmt, exponent, fraction))


def block_maxima(packed: Array) -> Array:
    """Largest magnitude code of each MXFP4 block: u8 [M, K/2] -> u8 [M, K/32]; 0 marks an empty block (N8)."""
    both = np.maximum(packed & np.uint8(7), (packed >> np.uint8(4)) & np.uint8(7))
    return group_max(both, BLOCK // 2)


ABSENT = np.iinfo(np.int32).min
"""Stands for a block that takes no part in a maximum: empty (all zeros) or NaN. Below every byte and sort key."""


def participating(largest: Array, scales: Array, mode: str) -> Array:
    """What each block brings to the shared scale, i32: its byte (`max`) or its amax as a sort key (`amax`)."""
    if mode == "max":
        part = scales.astype(np.int32)
    else:
        key = np.take(table_like(magnitude_table, largest, E2M1), largest)
        part = key + ((scales.astype(np.int32) - np.int32(127)) << np.int32(23))
    return np.where((largest == np.uint8(0)) | (scales == NAN_BYTE), np.int32(ABSENT), part)


def shared_fp8_scale(part: Array, mode: str) -> Array:
    """Tile byte from the maximum of `participating`: max(emax - 6, 0), or N3 rceil with m = 448; 127 if none."""
    if mode == "max":
        byte = (np.maximum(part, np.int32(6)) - np.int32(6)).astype(np.uint8)
    else:
        byte = key_scale("rceil", E4M3, part)
    return np.where(part == np.int32(ABSENT), ONE_BYTE, byte)


def mxfp4_to_fp8(
    packed: Array, scales: Array, scale: str = "max", *, layout_in: str = "bytes", layout_out: str = "bytes"
) -> tuple[Array, Array]:
    """Turn MXFP4 into FP8 1x128 tiles directly (clause N8).

    packed: u8 [M, K/2]; scales: [M, K/32] E8M0 bytes in the storage layout `layout_in` of N6.5; scale: "max" (largest
    block byte - 6) or "amax" (N3 rceil). Returns (codes u8 [M, K] E4M3, scales of [M, ceil(K/128)] bytes in
    `layout_out`). Exact while the tile's largest byte is at most 14 above the block's. Zeros keep their sign at every
    distance; a NaN block gives 0x7F and takes no part.
    Raises DtypeError, ShapeError, ScaleError, ArgumentError.
    """
    require_choice("scale", scale, SCALE_MODES)
    require_codes("packed", packed, BLOCK // 2)
    m, k = packed.shape[0], packed.shape[1] * 2
    scales = scales_from_layout(scales, layout_in, m, k // BLOCK)
    codes = empty((m, k), np.uint8, packed)
    out_scales = empty((m, tile_count(k)), np.uint8, packed)
    for rows in row_chunks(packed, k):
        part = participating(block_maxima(packed[rows]), scales[rows], scale)
        byte = shared_fp8_scale(_tile_maxima(part), scale)
        tile = spread(byte, TILE // BLOCK, axis=1)[:, : k // BLOCK]
        nibbles = grouped(unpack_nibbles(packed[rows]), BLOCK)
        codes[rows] = recode_blocks(nibbles, scales[rows], tile).reshape(codes[rows].shape)
        out_scales[rows] = byte
    return codes, scales_to_layout(out_scales, layout_out)


def recode_blocks(nibbles: Array, scales: Array, tile: Array) -> Array:
    """E4M3 codes of MXFP4 blocks u8 [..., n, 32] with block bytes [..., n] under tile bytes [..., n]; NaN 0x7F."""
    shift = scales.astype(np.int32) - tile.astype(np.int32)
    out = recode(E2M1, E4M3, nibbles, shift[..., None])
    if bool((scales == NAN_BYTE).any()):
        out = np.where((scales == NAN_BYTE)[..., None], np.uint8(0x7F), out)
    return out


def _tile_maxima(part: Array) -> Array:
    """Maximum over the four blocks of each tile, fewer in a short last one: i32 [M, K/32] -> [M, ceil(K/128)]."""
    m, blocks = part.shape
    missing = -blocks % (TILE // BLOCK)
    if missing:
        absent = np.zeros((m, missing), dtype=np.int32, like=part) + np.int32(ABSENT)  # np.full takes no CuPy `like`
        part = np.concatenate([part, absent], axis=1)
    return group_max(part, TILE // BLOCK)
