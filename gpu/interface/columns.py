"""Conversions from rows to columns, dense and over the rows of experts (clauses N9 and N10).

A kernel also takes `splits` as an array of integers on the device, which the host does not wait for; then `out` is
required, and the rows of its scales say how many blocks there is room for (N0.10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple

import numpy as np

from .. import checks
from ..checks import BLOCK, TILE, segments
from .call import U8, A, Call
from .recast import MODES

UNDERFLOWS = ("rne", "te")
"""How a code that falls below the subnormals of its new scale is rounded (N10)."""


class Columns(NamedTuple, Generic[A]):
    """The checked arguments: codes, their scales, elements of a row, int64 rows of each expert, and the mode."""

    x: A
    scales: A
    k: int
    splits: np.ndarray[Any, Any]
    mode: str


def mxfp4_to_fp8_columns(
    call: Call[A], packed: Any, scales: Any, splits: Sequence[int] | None = None, scale: str = "max", *, out: Any = None
) -> Columns[A]:
    """Turn MXFP4 along rows into E4M3 tiles of 128x1 along columns (N9).

    Args:
        packed: codes u8 [M, K/2], two in a byte.
        scales: E8M0 bytes u8 [M, K/32].
        splits: the rows m_i of each expert, None for one expert; tiles restart at every expert.
        scale: `max` or `amax`, the rule for the scale of a tile.
        out: the arrays to write.

    Returns:
        (codes u8 [K, M], scales u8 [sum_i ceil(m_i / 128), K]).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    given, m = _mxfp4(call, packed, scales, splits, scale)
    call.outputs(out, _tiles(given, m), [given.x, given.scales])
    return given


def mxfp4_to_fp8_rows_columns(
    call: Call[A], packed: Any, scales: Any, splits: Sequence[int] | None = None, scale: str = "max", *, out: Any = None
) -> Columns[A]:
    """Turn MXFP4 along rows into E4M3 tiles along rows and along columns in one pass (N9).

    Args:
        packed: codes u8 [M, K/2], two in a byte.
        scales: E8M0 bytes u8 [M, K/32].
        splits: the rows m_i of each expert, None for one expert; tiles of columns restart at every expert.
        scale: `max` or `amax`, the rule for the scale of a tile.
        out: the arrays to write.

    Returns:
        (row codes u8 [M, K], row scales u8 [M, ceil(K / 128)], column codes u8 [K, M], column scales u8
        [sum_i ceil(m_i / 128), K]): the results of `mxfp4_to_fp8`, then those of `mxfp4_to_fp8_columns`.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    given, m = _mxfp4(call, packed, scales, splits, scale)
    rows = [((m, given.k), U8), ((m, checks.tiles(given.k)), U8)]
    call.outputs(out, [*rows, *_tiles(given, m)], [given.x, given.scales])
    return given


def mxfp4_columns(
    call: Call[A],
    packed: Any,
    scales: Any,
    splits: Sequence[int] | None = None,
    scale: str = "amax",
    *,
    out: Any = None,
) -> Columns[A]:
    """Turn MXFP4 along rows into MXFP4 blocks of 32x1 along columns (N9).

    Args:
        packed: codes u8 [M, K/2], two in a byte.
        scales: E8M0 bytes u8 [M, K/32].
        splits: the rows m_i of each expert, all even, None for one expert; blocks restart at every expert.
        scale: `max` or `amax`, the rule for the scale of a block.
        out: the arrays to write.

    Returns:
        (packed codes u8 [K, M/2], scales u8 [sum_i ceil(m_i / 32), K]).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    given, m = _mxfp4(call, packed, scales, splits, scale, even=True)
    wanted = [((given.k, m // 2), U8), ((segments(given.splits, BLOCK), given.k), U8)]
    call.outputs(out, wanted, [given.x, given.scales])
    return given


def fp8_columns(
    call: Call[A],
    codes: Any,
    scales: Any,
    splits: Sequence[int] | None = None,
    underflow: str = "rne",
    *,
    out: Any = None,
) -> Columns[A]:
    """Turn E4M3 tiles of 1x128 along rows into tiles of 128x1 along columns (N10).

    Args:
        codes: u8 [M, K], K a multiple of 32.
        scales: E8M0 bytes u8 [M, ceil(K / 128)].
        splits: the rows m_i of each expert, None for one expert; tiles restart at every expert.
        underflow: `rne` or `te`, the rounding of codes below the subnormals of their new scale.
        out: the arrays to write.

    Returns:
        (codes u8 [K, M], scales u8 [sum_i ceil(m_i / 128), K]).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    checks.choice("underflow", underflow, UNDERFLOWS)
    view, beside, m, k = call.tiles(codes, scales)
    given = Columns(view, beside, k, checks.row_splits(splits, m), underflow)
    call.outputs(out, _tiles(given, m), [view, beside])
    return given


def _mxfp4(
    call: Call[A], packed: Any, scales: Any, splits: Any, scale: str, even: bool = False
) -> tuple[Columns[A], int]:
    checks.choice("scale", scale, MODES)
    view, beside, m, k = call.mxfp4(packed, scales)
    return Columns(view, beside, k, checks.row_splits(splits, m, even=even), scale), m


def _tiles(given: Columns[A], m: int) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return shapes and dtypes of E4M3 tiles along columns."""
    return [((given.k, m), U8), ((segments(given.splits, TILE), given.k), U8)]
