"""Payloads of MXFP4 rows, their permutation by expert, and the weighted way back (clause N12)."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

from refnum.errors import DtypeError, ShapeError
from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BLOCK, UNIT
from .call import F32, HALF_BITS, I64, U8, A, Call, Rows, Wanted


class Packed(NamedTuple, Generic[A]):
    """The checked arguments of `pack_payload`: codes and scales, each [T, n]."""

    codes: A
    scales: A


class Gather(NamedTuple, Generic[A]):
    """The checked arguments of a gather by expert. total: rows of the result. splits: rows of each expert."""

    payload: A
    row_map: A
    splits: list[int]
    total: int
    align: int


class Sum(NamedTuple, Generic[A]):
    """The checked arguments of `unpermute`."""

    rows: A
    row_map: A
    weights: A | None
    splits: list[int]
    tokens: int
    align: int


def pack_payload(call: Call[A], packed: Any, scales: Any, *, out: Any = None) -> Packed[A]:
    """Join the codes and the scales of every row (N12).

    Args:
        packed: MXFP4 codes u8 [T, K/2].
        scales: their E8M0 bytes u8 [T, K/32].
        out: the array to write.

    Returns:
        The payload u8 [T, 17 * K/32].

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view = call.codes("packed", packed, BLOCK // 2)
    beside = call.codes("scales", scales, 1, view)
    (rows, half), blocks = view.shape, view.shape[1] * 2 // BLOCK
    if beside.shape != (rows, blocks):
        raise ShapeError(f"scales has shape {beside.shape}; packed of {view.shape} needs {(rows, blocks)}")
    call.outputs(out, [((rows, half + blocks), U8)], [view, beside])
    return Packed(view, beside)


def unpack_payload(call: Call[A], payload: Any, *, out: Any = None) -> A:
    """Split a payload into codes and scales (N12).

    Args:
        payload: u8 [T, 17 * K/32].
        out: the arrays to write.

    Returns:
        (packed codes u8 [T, K/2], scales u8 [T, K/32]).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view = call.codes("payload", payload, UNIT)
    call.outputs(out, _split(view, view.shape[0]), [view])
    return view


def quantize_payload(call: Call[A], x: Any, profile: Profile | str = HOPPER, *, out: Any = None) -> Rows[A]:
    """Quantise floats straight into the rows of an MXFP4 payload (N12).

    Args:
        x: float32, bfloat16, float16 or uint16 (bfloat16 bits) [T, K], K a multiple of 32.
        profile: a profile or its name.
        out: the array to write.

    Returns:
        The payload u8 [T, 17 * K/32].

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit or that the kernels do not have.
    """
    view = call.floats("x", x)
    (rows, k), rules = view.shape, checks.rules(get_profile(profile))
    call.outputs(out, [((rows, k // BLOCK * UNIT), U8)], [view])
    return Rows(view, k, rules=rules)


def fp8_to_payload(
    call: Call[A], codes: Any, scales: Any, profile: Profile | str = HOPPER, *, out: Any = None
) -> Rows[A]:
    """Quantise E4M3 tiles of 1x128 straight into the rows of an MXFP4 payload (N12).

    Args:
        codes: u8 [T, K], K a multiple of 32.
        scales: E8M0 bytes u8 [T, ceil(K / 128)].
        profile: a profile or its name.
        out: the array to write.

    Returns:
        The payload u8 [T, 17 * K/32].

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit or that the kernels do not have.
    """
    view, beside, rows, k = call.tiles(codes, scales)
    rules = checks.rules(get_profile(profile))
    call.outputs(out, [((rows, k // BLOCK * UNIT), U8)], [view, beside])
    return Rows(view, k, beside, rules)


def permute_pad(
    call: Call[A], payload: Any, row_map: Any, splits: Any, align: int = 32, *, out: Any = None
) -> Gather[A]:
    """Gather the rows of a payload by expert, each expert padded with zero rows to a multiple of `align` (N12).

    Nothing on a device is read before the launch: there a row_map item that is no row of the payload gives a zero row,
    and the host build raises ArgumentError.

    Args:
        payload: u8 [T, W].
        row_map: integers [sum_i m_i], in expert order the payload's row of each row.
        splits: the rows m_i of each expert, which decide the result's shape. A kernel also takes an array of integers
            on the device, for any number of experts: then `out` must be given, experts beyond its rows are cut off,
            rows behind the last expert, or beyond the row_map, are zero, and a count that is negative or above the
            row_map's is 0.
        align: a positive integer.
        out: the arrays to write.

    Returns:
        (rows u8 [R, W], offsets int64 [experts], the first row of each expert), R = sum_i roundup(m_i, align).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    return _gather(call, payload, row_map, splits, align, out, parted=False)


def permute_unpack(
    call: Call[A], payload: Any, row_map: Any, splits: Any, align: int = 32, *, out: Any = None
) -> Gather[A]:
    """Gather the rows of a payload as `permute_pad` and split them as `unpack_payload`, in one pass (N12).

    Args:
        payload: u8 [T, 17 * K/32].
        row_map: as for `permute_pad`.
        splits: as for `permute_pad`.
        align: a positive integer.
        out: the arrays to write.

    Returns:
        (packed codes u8 [R, K/2], scales u8 [R, K/32], offsets int64 [experts]), R = sum_i roundup(m_i, align).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    return _gather(call, payload, row_map, splits, align, out, parted=True)


def unpermute(
    call: Call[A], rows: Any, row_map: Any, splits: Any, weights: Any, tokens: int, align: int = 32, *, out: Any = None
) -> Sum[A]:
    """Sum the expert rows of each token, weighted, in float32 and in ascending expert order (N12).

    Nothing on a device is read before the launch: there a row whose row_map item is no token is left out, and the host
    build raises ArgumentError.

    Args:
        rows: float32 or bfloat16 (or its uint16 bits) [sum_i roundup(m_i, align), H].
        row_map: integers [sum_i m_i], in expert order the token of each row.
        splits: the rows m_i of each expert. A kernel also takes an array of integers on the device, for any number of
            experts: then the counts need not fit, entries of the row_map behind the last expert's and rows that `rows`
            does not have are left out, and a count that is negative or above the row_map's is 0.
        weights: float32 [sum_i m_i] in expert order, or None for 1.
        tokens: rows of the result.
        align: a positive integer.
        out: the array to write.

    Returns:
        Sums float32 [tokens, H]; a token without rows gives +0.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view = summed_rows(call, rows)
    tokens, align = checks.count("tokens", tokens, 0), checks.count("align", align, 1)
    counts = checks.row_counts(splits)
    call.check_experts(counts, align)
    taken, total = sum(counts), checks.padded(counts, align)
    if view.shape[0] != total:
        raise ShapeError(f"rows has shape {view.shape}; splits at align={align} need {total} rows")
    why = f"splits sum to {taken}"
    index = call.indices("row_map", row_map, view, taken, why, tokens, "tokens")
    factors = [] if weights is None else [row_weights(call, weights, view, taken, why)]
    call.outputs(out, [((tokens, view.shape[1]), F32)], [view, index, *factors])
    return Sum(view, index, factors[0] if factors else None, counts, tokens, align)


def summed_rows(call: Call[A], rows: Any) -> A:
    """Return the expert rows of a sum."""
    view = call.matrix("rows", rows, 1)
    if view.dtype != F32 and view.dtype not in HALF_BITS:
        raise DtypeError(f"rows has dtype {view.dtype}; allowed are float32, bfloat16 and uint16 (bfloat16 bits)")
    return view


def row_weights(call: Call[A], weights: Any, beside: A, taken: int, why: str) -> A:
    """Return the weights of `taken` rows in expert order; `why` tells the reason of their number."""
    factors = call.weights("weights", weights, beside, taken, why)
    call.check_items("weights", factors)
    return factors


def gathered(view: A, parted: bool, total: int, experts: int) -> Wanted:
    """Return shapes and dtypes of the results of a gather of `total` rows."""
    rows = _split(view, total) if parted else [((total, view.shape[1]), U8)]
    return [*rows, ((experts,), I64)]


def _gather(call: Call[A], payload: Any, row_map: Any, splits: Any, align: Any, out: Any, parted: bool) -> Gather[A]:
    view = call.codes("payload", payload, UNIT if parted else 1)
    align, counts = checks.count("align", align, 1), checks.row_counts(splits)
    call.check_experts(counts, align)
    taken, total = sum(counts), checks.padded(counts, align)
    why = f"splits sum to {taken}"
    index = call.indices("row_map", row_map, view, taken, why, view.shape[0], "payload rows")
    call.outputs(out, gathered(view, parted, total, len(counts)), [view, index])
    return Gather(view, index, counts, total, align)


def _split(payload: A, rows: int) -> Wanted:
    """Return shapes and dtypes of the codes and scales of a payload's rows."""
    width = payload.shape[1]
    codes = width // UNIT * (UNIT - 1)
    return [((rows, codes), U8), ((rows, width - codes), U8)]
