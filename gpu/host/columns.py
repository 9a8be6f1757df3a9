"""The host build of the conversions from rows to columns (clauses N9 and N10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from .. import checks
from ..checks import BLOCK, TILE, Outputs, tiles
from .build import address, library

__all__ = ["fp8_columns", "mxfp4_columns", "mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns"]

Array = np.ndarray[Any, Any]
Pair = tuple[Array, Array]
U8 = np.uint8


def mxfp4_to_fp8_columns(
    packed: Array, scales: Array, splits: Sequence[int] | None = None, scale: str = "max", *, out: Pair | None = None
) -> Pair:
    """Turn row-wise MXFP4 into column-wise E4M3 (N9) -> (codes u8 [K, M], scales u8 [sum ceil(m_i/128), K])."""
    amax = checks.choice("scale", scale, ("max", "amax"))
    m, k = checks.mxfp4(packed, scales)
    rows = checks.row_splits(splits, m)
    wanted = [((k, m), U8), ((checks.segments(rows, TILE), k), U8)]
    return _columns("mxfp4_to_fp8_columns", packed, scales, (m, k), rows, amax, wanted, out)


def mxfp4_to_fp8_rows_columns(
    packed: Array, scales: Array, splits: Sequence[int] | None = None, scale: str = "max", *, out: Any = None
) -> tuple[Array, Array, Array, Array]:
    """Turn row-wise MXFP4 into E4M3 rows and columns (N9): `mxfp4_to_fp8`'s results, `mxfp4_to_fp8_columns`'."""
    amax = checks.choice("scale", scale, ("max", "amax"))
    m, k = checks.mxfp4(packed, scales)
    rows = checks.row_splits(splits, m)
    wanted = [((m, k), U8), ((m, tiles(k)), U8), ((k, m), U8), ((checks.segments(rows, TILE), k), U8)]
    return cast(Any, _columns("mxfp4_to_fp8_rows_columns", packed, scales, (m, k), rows, amax, wanted, out))


def mxfp4_columns(
    packed: Array, scales: Array, splits: Sequence[int] | None = None, scale: str = "amax", *, out: Pair | None = None
) -> Pair:
    """Turn row-wise MXFP4 into 32x1 blocks (N9) -> (packed u8 [K, M/2], scales u8 [sum ceil(m_i/32), K])."""
    amax = checks.choice("scale", scale, ("max", "amax"))
    m, k = checks.mxfp4(packed, scales)
    rows = checks.row_splits(splits, m, even=True)
    wanted = [((k, m // 2), U8), ((checks.segments(rows, BLOCK), k), U8)]
    return _columns("mxfp4_columns", packed, scales, (m, k), rows, amax, wanted, out)


def fp8_columns(
    codes: Array, scales: Array, splits: Sequence[int] | None = None, underflow: str = "rne", *, out: Pair | None = None
) -> Pair:
    """Transpose E4M3 1x128 tiles scaling-aware (N10) -> (codes u8 [K, M], scales u8 [sum ceil(m_i/128), K])."""
    te = checks.choice("underflow", underflow, ("rne", "te"))
    m, k = checks.codes("codes", codes, BLOCK)
    checks.scales(scales, (m, tiles(k)))
    rows = checks.row_splits(splits, m)
    wanted = [((k, m), U8), ((checks.segments(rows, TILE), k), U8)]
    return _columns("fp8_columns", codes, scales, (m, k), rows, te, wanted, out)


def _columns(
    name: str, codes: Array, scales: Array, shape: tuple[int, int], rows: Array, mode: int, wanted: Any, out: Any
) -> Pair:
    results = Outputs(out, wanted, [codes, scales])
    source, bytes_ = np.ascontiguousarray(codes), np.ascontiguousarray(scales)
    getattr(library(), f"refnum_{name}")(
        address(source), address(bytes_), *shape, address(rows), rows.size, mode, *map(address, results.arrays)
    )
    return results.finish()
