"""The host build of payloads, of their permutation by expert, and of the weighted way back (clause N12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BFLOAT16, BLOCK, Outputs
from .build import address, library

__all__ = [
    "fp8_to_payload",
    "pack_payload",
    "permute_pad",
    "permute_unpack",
    "quantize_payload",
    "unpack_payload",
    "unpermute",
]

Array = np.ndarray[Any, Any]
Pair = tuple[Array, Array]
UNIT = BLOCK // 2 + 1
"""Payload bytes of one MX block: 16 of codes and one of scale."""


def pack_payload(packed: Array, scales: Array, *, out: Array | None = None) -> Array:
    """Join MXFP4 codes u8 [T, K/2] and scales u8 [T, K/32] row by row (N12) -> u8 [T, 17 * K/32]."""
    rows, half = checks.codes("packed", packed, BLOCK // 2)
    blocks = 2 * half // BLOCK
    if checks.codes("scales", scales, 1) != (rows, blocks):
        raise ShapeError(f"scales has shape {scales.shape}; packed of {packed.shape} needs {(rows, blocks)}")
    results = Outputs(out, [((rows, UNIT * blocks), np.uint8)], [packed, scales])
    codes, bytes_ = np.ascontiguousarray(packed), np.ascontiguousarray(scales)
    library().refnum_pack_payload(address(codes), address(bytes_), rows, blocks, address(results.arrays[0]))
    return results.finish()


def unpack_payload(payload: Array, *, out: Pair | None = None) -> Pair:
    """Split a payload u8 [T, 17 * K/32] into (packed u8 [T, K/2], scales u8 [T, K/32]) (N12)."""
    rows, width = checks.codes("payload", payload, UNIT)
    blocks = width // UNIT
    wanted = [((rows, blocks * (UNIT - 1)), np.uint8), ((rows, blocks), np.uint8)]
    results = Outputs(out, wanted, [payload])
    source = np.ascontiguousarray(payload)
    library().refnum_unpack_payload(address(source), rows, blocks, *map(address, results.arrays))
    return results.finish()


def quantize_payload(x: Array, profile: Profile | str = HOPPER, *, out: Array | None = None) -> Array:
    """Quantise [T, K] floats straight into MXFP4 payload rows (N12) -> u8 [T, 17 * K/32]."""
    rows, k = checks.floats("x", x)
    chosen = get_profile(profile)
    checks.profile(chosen)
    results = Outputs(out, [((rows, UNIT * k // BLOCK), np.uint8)], [x])
    policy = (checks.RULES[chosen.scale_rule], int(chosen.nonfinite == "satfinite"), chosen.zero_scale)
    source, kind = np.ascontiguousarray(x), checks.KINDS[x.dtype]
    library().refnum_quantize_payload(kind, address(source), rows, k // BLOCK, *policy, address(results.arrays[0]))
    return results.finish()


def fp8_to_payload(codes: Array, scales: Array, profile: Profile | str = HOPPER, *, out: Array | None = None) -> Array:
    """Quantise E4M3 1x128 tiles [T, K] straight into MXFP4 payload rows (N12) -> u8 [T, 17 * K/32]."""
    rows, k = checks.codes("codes", codes, BLOCK)
    checks.scales(scales, (rows, checks.tiles(k)))
    chosen = get_profile(profile)
    checks.profile(chosen)
    results = Outputs(out, [((rows, UNIT * k // BLOCK), np.uint8)], [codes, scales])
    source, bytes_ = np.ascontiguousarray(codes), np.ascontiguousarray(scales)
    policy = (checks.RULES[chosen.scale_rule], chosen.zero_scale)
    library().refnum_fp8_to_payload(
        address(source), address(bytes_), rows, k // BLOCK, *policy, address(results.arrays[0])
    )
    return results.finish()


def permute_pad(payload: Array, row_map: Array, splits: Any, align: int = 32, *, out: Pair | None = None) -> Pair:
    """Gather payload rows u8 [T, W] by expert, each expert padded with zero rows to `align` (N12).

    row_map: integers [sum m_i], the payload row of each row in expert order; splits: rows m_i of each expert.
    Returns (rows u8 [sum_i roundup(m_i, align), W], offsets int64 [experts], each expert's first row).
    """
    tokens, width = checks.codes("payload", payload, 1)
    align = checks.count("align", align, 1)
    experts, total = _experts(splits, align)
    place = _row_map(row_map, int(experts.sum()), tokens, "payload rows")
    results = Outputs(out, [((total, width), np.uint8), ((experts.size,), np.int64)], [payload, row_map])
    source = np.ascontiguousarray(payload)
    library().refnum_permute_pad(
        address(source), width, address(place), address(experts), experts.size, align, *map(address, results.arrays)
    )
    return results.finish()


def permute_unpack(
    payload: Array, row_map: Array, splits: Any, align: int = 32, *, out: tuple[Array, Array, Array] | None = None
) -> tuple[Array, Array, Array]:
    """Gather payload rows as `permute_pad` does and split them as `unpack_payload` does, in one pass (N12).

    Returns (packed u8 [R, K/2], scales u8 [R, K/32], offsets int64 [experts]), R = sum_i roundup(m_i, align).
    """
    tokens, width = checks.codes("payload", payload, UNIT)
    align, blocks = checks.count("align", align, 1), width // UNIT
    experts, total = _experts(splits, align)
    place = _row_map(row_map, int(experts.sum()), tokens, "payload rows")
    wanted = [((total, blocks * (UNIT - 1)), np.uint8), ((total, blocks), np.uint8), ((experts.size,), np.int64)]
    results = Outputs(out, wanted, [payload, row_map])
    source = np.ascontiguousarray(payload)
    library().refnum_permute_unpack(
        address(source), blocks, address(place), address(experts), experts.size, align, *map(address, results.arrays)
    )
    return results.finish()


def unpermute(
    rows: Array, row_map: Array, splits: Any, weights: Array | None, tokens: int, align: int = 32,
    *, out: Array | None = None,
) -> Array:  # fmt: skip
    """Sum each token's expert rows back, weighted, in float32 and in ascending expert order (N12).

    rows: float32 or bfloat16 (or its uint16 bits) [sum_i roundup(m_i, align), H]; weights: float32 [sum m_i] in
    expert order, or None for 1. Returns float32 [tokens, H]; a token without rows gives +0.
    """
    height, width = checks.matrix("rows", rows, 1)
    if rows.dtype not in (np.dtype(np.float32), BFLOAT16, np.dtype(np.uint16)):
        raise DtypeError(f"rows has dtype {rows.dtype}; allowed are float32, bfloat16 and uint16 (bfloat16 bits)")
    tokens, align = checks.count("tokens", tokens, 0), checks.count("align", align, 1)
    experts, total = _experts(splits, align)
    if height != total:
        raise ShapeError(f"rows has shape {rows.shape}; splits at align={align} need {total} rows")
    place = _row_map(row_map, int(experts.sum()), tokens, "tokens")
    factors = _weights(weights, place.size)
    given = [rows, row_map] if weights is None else [rows, row_map, weights]
    results = Outputs(out, [((tokens, width), np.float32)], given)
    source, sums, seen = np.ascontiguousarray(rows), results.arrays[0], np.zeros(tokens, np.uint8)
    sums[...] = 0
    library().refnum_unpermute(
        checks.KINDS[rows.dtype], address(source), width, address(place), address(experts), experts.size, align,
        None if factors is None else address(factors), tokens, address(seen), address(sums),
    )  # fmt: skip
    return results.finish()


def _experts(splits: Any, align: int) -> tuple[Array, int]:
    """Rows of each expert as int64, and how many rows they take when padded."""
    rows = checks.row_counts(splits)
    return np.array(rows, np.int64), sum(-(-m // align) * align for m in rows)


def _row_map(row_map: Any, count: int, limit: int, what: str) -> Array:
    if not checks.plain(row_map) or row_map.dtype.kind not in "iu":
        raise DtypeError(f"row_map is {checks.called(row_map)}; allowed are integer arrays")
    if row_map.shape != (count,):
        raise ShapeError(f"row_map has shape {row_map.shape}; splits sum to {count}, so it must be ({count},)")
    bad = np.flatnonzero((row_map < 0) | (row_map >= limit))
    if bad.size:
        raise ArgumentError(
            f"row_map[{bad[0]}] is {row_map[bad[0]]}; allowed are 0..{limit - 1}, there are {limit} {what}"
        )
    return np.ascontiguousarray(row_map, np.int64)


def _weights(weights: Any, count: int) -> Array | None:
    if weights is None:
        return None
    if not checks.plain(weights) or weights.dtype != np.float32:
        raise DtypeError(f"weights is {checks.called(weights)}; allowed is a float32 array")
    if weights.shape != (count,):
        raise ShapeError(f"weights has shape {weights.shape}; splits sum to {count}, so it must be ({count},)")
    return np.ascontiguousarray(weights)
