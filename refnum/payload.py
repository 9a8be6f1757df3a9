"""Dispatch payload, permutation by expert with padding, and the weighted way back (clause N12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import softfloat
from .arguments import MOST_ROWS, require_integer, row_counts
from .arrays import BFLOAT16, BLOCK, Array, contiguous, float32_bits, require_array, require_codes, require_matrix
from .blocks import quantize_mxfp4
from .errors import ArgumentError, DtypeError, ShapeError
from .profiles import HOPPER, Profile, deterministic
from .recast import fp8_to_mxfp4

_UNIT = BLOCK // 2 + 1
"""Payload bytes of one MX block: 16 of codes and one of scale."""


def pack_payload(packed: Array, scales: Array) -> Array:
    """Join MXFP4 codes and scales row by row (clause N12).

    packed: u8 [T, K/2], K % 32 == 0; scales: u8 [T, K/32]. Returns u8 [T, K/2 + K/32]: the codes of a row,
    then its scale bytes. Raises DtypeError, ShapeError.
    """
    require_codes("packed", packed, BLOCK // 2)
    require_codes("scales", scales)
    shape = (packed.shape[0], packed.shape[1] * 2 // BLOCK)
    if tuple(scales.shape) != shape:
        raise ShapeError(f"scales has shape {tuple(scales.shape)}; packed of {tuple(packed.shape)} needs {shape}")
    return contiguous(np.concatenate([packed, scales], axis=1))  # transposed inputs give a transposed whole


def unpack_payload(payload: Array) -> tuple[Array, Array]:
    """Split a payload into (packed u8 [T, K/2], scales u8 [T, K/32]), both copies; undoes `pack_payload`.

    payload: u8 [T, 17 * K/32]. Raises DtypeError, ShapeError.
    """
    require_codes("payload", payload, _UNIT)
    codes = payload.shape[1] // _UNIT * (_UNIT - 1)
    return payload[:, :codes].copy(), payload[:, codes:].copy()


def quantize_payload(x: Array, profile: Profile | str = HOPPER) -> Array:
    """Quantise to MXFP4 and join codes and scales, the sender's side of a dispatch (clause N12).

    x: float32, bfloat16, float16 (or uint16 bfloat16 bits) [T, K], K % 32 == 0. Returns u8 [T, K/2 + K/32]:
    `pack_payload` of what `quantize_mxfp4` gives. Raises DtypeError, ShapeError, ProfileError, also for a stochastic
    profile.
    """
    return pack_payload(*quantize_mxfp4(x, deterministic(profile, "quantize_payload")))


def fp8_to_payload(codes: Array, scales: Array, profile: Profile | str = HOPPER) -> Array:
    """Quantise E4M3 1x128 tiles to MXFP4 directly and join codes and scales (clause N12).

    codes: u8 [T, K], K % 32 == 0; scales: u8 [T, ceil(K/128)]. Returns u8 [T, K/2 + K/32]: `pack_payload` of what
    `fp8_to_mxfp4` gives. Raises DtypeError, ScaleError, ShapeError, ProfileError.
    """
    return pack_payload(*fp8_to_mxfp4(codes, scales, profile))


def permute_pad(payload: Array, row_map: Array, splits: Any, align: int = 32) -> tuple[Array, Array]:
    """Gather rows by expert and pad each expert's rows to a multiple of `align` (clause N12).

    payload: u8 [T, W]. splits: rows m_i of each expert, zeros allowed. row_map: integers [sum m_i]; row j of
    the expert order (expert 0's rows, then expert 1's, ...) is row row_map[j] of the payload; a row may be
    taken several times, or never.
    Returns (out u8 [sum_i roundup(m_i, align), W], offsets int64 [experts]); expert i starts at row offsets[i]
    of `out`. Padding rows hold zero codes and zero scale bytes.
    Raises DtypeError, ShapeError, and ArgumentError for a row out of range, a split or `align`.
    """
    require_codes("payload", payload)
    align, lengths = require_integer("align", align, 1, MOST_ROWS), row_counts(splits)
    row_map = _row_map(row_map, sum(lengths), payload.shape[0], "payload rows", payload)
    rows, offsets, total = _placement(lengths, align)
    out = np.zeros((total, payload.shape[1]), dtype=np.uint8, like=payload)
    out[np.asarray(rows, like=payload)] = np.take(payload, row_map, axis=0)
    return out, np.asarray(offsets, like=payload)


def permute_unpack(payload: Array, row_map: Array, splits: Any, align: int = 32) -> tuple[Array, Array, Array]:
    """Gather rows by expert, padded, and split them, the receiver's side of a dispatch (clause N12).

    payload: u8 [T, 17 * K/32]; row_map, splits, align: as in `permute_pad`. Returns (packed u8 [R, K/2], scales
    u8 [R, K/32], offsets int64 [experts]), R = sum_i roundup(m_i, align): `unpack_payload` of what `permute_pad`
    gives, and its offsets. Raises DtypeError, ShapeError, ArgumentError.
    """
    require_codes("payload", payload, _UNIT)
    rows, offsets = permute_pad(payload, row_map, splits, align)
    return (*unpack_payload(rows), offsets)


def unpermute(rows: Array, row_map: Array, splits: Any, weights: Array | None, tokens: int, align: int = 32) -> Array:
    """Sum each token's expert rows back, weighted, in float32 and in a stated order (clause N12).

    rows: float32 or bfloat16 (or its uint16 bits) [sum_i roundup(m_i, align), H], laid out by `permute_pad`
    (padding rows are not read); row_map, splits, align: as there; weights: float32 [sum m_i] in expert order,
    or None for 1; tokens: T, every row_map item is below it.
    Returns float32 [T, H]. A token's rows x, weights w are taken in ascending expert order: the sum is RN(w * x)
    of the first, then RN(sum + RN(w * x)) for each other, RN being one rounding to float32, to nearest even. A
    token without rows gives +0. Every NaN is 0x7FC00000.
    Raises DtypeError, ShapeError, and ArgumentError for a row out of range, a split, `tokens` or `align`.
    """
    require_matrix("rows", rows)
    if rows.dtype not in (np.float32, BFLOAT16, np.uint16):
        raise DtypeError(f"rows has dtype {rows.dtype}; allowed are float32, bfloat16 (or its uint16 bits)")
    tokens, align = require_integer("tokens", tokens, 0, MOST_ROWS), require_integer("align", align, 1, MOST_ROWS)
    lengths = row_counts(splits)
    total = sum(-(-m // align) * align for m in lengths)
    if rows.shape[0] != total:
        raise ShapeError(f"rows has shape {tuple(rows.shape)}; splits at align={align} need {total} rows")
    row_map = _row_map(row_map, sum(lengths), tokens, "tokens", rows)
    place, *_ = _placement(lengths, align)
    factors = _weights(weights, place.size, rows)
    place = np.asarray(place, like=rows)
    # positions in expert order, sorted by token and then by position
    span = np.int64(place.size)
    order = np.sort(row_map * span + np.arange(place.size, dtype=np.int64, like=rows)) % span
    counts = np.bincount(row_map, minlength=tokens)
    starts = np.cumsum(counts) - counts
    ranked = np.argsort(-counts)
    fewer = np.bincount(counts, minlength=1)
    out = np.zeros((tokens, rows.shape[1]), dtype=np.uint32, like=rows)
    terms = softfloat.multiply(factors[order][:, None], float32_bits(rows[place[order]]))
    left = tokens
    for turn, ended in enumerate(fewer.tolist()[:-1]):
        left -= ended
        token = ranked[:left]  # those with more than `turn` rows
        term = terms[starts[token] + np.int64(turn)]
        out[token] = term if turn == 0 else softfloat.add(out[token], term)
    return out.view(np.float32)


def _placement(rows_of_each: list[int], align: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Host arrays: padded row of each row in expert order, start of each expert, and the padded row count."""
    lengths = np.array(rows_of_each, np.int64)
    padded = -(-lengths // align) * align
    offsets = np.cumsum(padded) - padded
    shift = offsets - (np.cumsum(lengths) - lengths)
    rows = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(shift, lengths)
    return rows, offsets, int(padded.sum())


def _row_map(row_map: Any, count: int, limit: int, what: str, like: Array) -> Array:
    """Check a row map and return it as int64 in the library of `like`."""
    require_array("row_map", row_map)
    if row_map.dtype.kind not in "iu":
        raise DtypeError(f"row_map has dtype {row_map.dtype}; allowed are integers")
    if tuple(row_map.shape) != (count,):
        raise ShapeError(f"row_map has shape {tuple(row_map.shape)}; splits sum to {count}, so it must be ({count},)")
    given = np.asarray(row_map, like=like)
    row_map = given.astype(np.int64)  # uint64 of 2**63 and more wraps below 0
    bad = (row_map < np.int64(0)) | (row_map >= np.int64(limit))
    if bool(np.any(bad)):
        at = int(np.argmax(bad))
        allowed = f"0..{limit - 1}" if limit else "none"
        raise ArgumentError(f"row_map[{at}] is {int(given[at])}; allowed are {allowed}, there are {limit} {what}")
    return row_map


def _weights(weights: Array | None, count: int, like: Array) -> Array:
    if weights is None:
        return np.zeros((count,), dtype=np.uint32, like=like) + np.uint32(0x3F800000)
    require_array("weights", weights)
    if weights.dtype != np.float32:
        raise DtypeError(f"weights has dtype {weights.dtype}; allowed is float32")
    if tuple(weights.shape) != (count,):
        raise ShapeError(f"weights has shape {tuple(weights.shape)}; splits sum to {count}, so it must be ({count},)")
    return weights.view(np.uint32)
