"""The kernels' launchers: twins of the golden operations, on device arrays.

Each has the name, argument order and defaults of its twin in `refnum`. Inputs are CuPy arrays, torch tensors or
anything else that speaks DLPack or `__cuda_array_interface__`; results are arrays of the same library, written on
that library's current stream. `out` is an array, or a tuple of arrays, of exactly the results' shapes and dtypes,
contiguous and apart from the inputs. Rows may have any stride. Errors of `refnum.errors` come before any launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refnum.profiles import HOPPER, Profile, get_profile

from . import checks, columns, launch
from .checks import BLOCK, TILE, tiles
from .driver import available
from .launch import U8, Outputs
from .plans import planned

__all__ = [
    "available",
    "dequantize_fp8_tiles",
    "dequantize_mxfp4",
    "fp8_columns",
    "fp8_to_mxfp4",
    "mxfp4_to_fp8",
    "mxfp4_to_fp8_columns",
    "quantize_fp8_tiles",
    "quantize_mxfp4",
]

NAMES = ("float32", "bfloat16", "float16")
"""`FloatKind` of the headers -> the word for it in a kernel's name."""


def _profile(profile: Profile | str) -> tuple[int, int, int]:
    chosen = get_profile(profile)
    checks.profile(chosen)
    return launch.policy(chosen)


@planned(1)
def quantize_mxfp4(x: Any, profile: Profile | str = HOPPER, *, out: Any = None) -> Any:
    """Quantise [M, K] floats to MXFP4 (N5) -> (packed u8 [M, K/2], scales u8 [M, K/32])."""
    view = launch.floats("x", x)
    (m, k), rules = view.shape, _profile(profile)
    outputs = Outputs(out, [((m, k // 2), U8), ((m, k // BLOCK), U8)], [view])
    kind = checks.KINDS[view.dtype]
    name = f"quantize_mxfp4_{NAMES[kind]}"
    return launch.rowwise("quantize_mxfp4", name, [view], outputs, k, BLOCK, rules, rceil=True, halved=kind == 0)


@planned(2)
def dequantize_mxfp4(packed: Any, scales: Any, dtype: Any = "float32", *, out: Any = None) -> Any:
    """Dequantise MXFP4 (packed u8 [M, K/2], scales u8 [M, K/32]) to float32 or bfloat16 [M, K], exact (N5)."""
    view = launch.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    beside = launch.scales(scales, (m, k // BLOCK), view)
    kind, result = checks.output_dtype(dtype)
    outputs = Outputs(out, [((m, k), result)], [view, beside])
    name = f"dequantize_mxfp4_{NAMES[kind]}"
    return launch.rowwise("dequantize_mxfp4", name, [view, beside], outputs, k, BLOCK, halved=kind == 0)


@planned(1)
def quantize_fp8_tiles(
    x: Any, tile: tuple[int, int] = (1, 128), profile: Profile | str = HOPPER, *, out: Any = None
) -> Any:
    """Quantise [M, K] floats to E4M3 (N6) -> (codes u8 [M, K], scales u8, one a 1x128 or 128x128 tile)."""
    view = launch.floats("x", x)
    (m, k), tall, rules = view.shape, checks.tile_rows(tile), _profile(profile)
    outputs = Outputs(out, [((m, k), U8), ((-(-m // tall), tiles(k)), U8)], [view])
    kind = checks.KINDS[view.dtype]
    if tall > 1:
        return launch.squares(f"quantize_fp8_squares_{NAMES[kind]}", view, outputs, rules)
    name = f"quantize_fp8_tiles_{NAMES[kind]}"
    return launch.rowwise("quantize_fp8_tiles", name, [view], outputs, k, TILE, rules, rceil=True, halved=kind == 0)


@planned(2)
def dequantize_fp8_tiles(
    codes: Any, scales: Any, tile: tuple[int, int] = (1, 128), dtype: Any = "float32", *, out: Any = None
) -> Any:
    """Dequantise E4M3 tiles (codes u8 [M, K]) to float32, exact, or bfloat16, nearest even (N6) -> [M, K]."""
    view = launch.codes("codes", codes, BLOCK)
    (m, k), tall = view.shape, checks.tile_rows(tile)
    beside = launch.scales(scales, (-(-m // tall), tiles(k)), view)
    kind, result = checks.output_dtype(dtype)
    outputs = Outputs(out, [((m, k), result)], [view, beside])
    name = f"dequantize_fp8_tiles_{NAMES[kind]}"
    return launch.rowwise("dequantize_fp8_tiles", name, [view, beside], outputs, k, TILE, tall=tall, halved=kind == 0)


@planned(2)
def fp8_to_mxfp4(codes: Any, scales: Any, profile: Profile | str = HOPPER, *, out: Any = None) -> Any:
    """Quantise E4M3 1x128 tiles to MXFP4 directly (N7) -> (packed u8 [M, K/2], scales u8 [M, K/32])."""
    view = launch.codes("codes", codes, BLOCK)
    (m, k), rules = view.shape, _profile(profile)
    beside = launch.scales(scales, (m, tiles(k)), view)
    outputs = Outputs(out, [((m, k // 2), U8), ((m, k // BLOCK), U8)], [view, beside])
    return launch.rowwise("fp8_to_mxfp4", "fp8_to_mxfp4", [view, beside], outputs, k, TILE, rules, rceil=True)


@planned(2)
def mxfp4_to_fp8(packed: Any, scales: Any, scale: str = "max", *, out: Any = None) -> Any:
    """Turn MXFP4 into E4M3 1x128 tiles (N8) -> (codes u8 [M, K], scales u8 [M, ceil(K/128)])."""
    view = launch.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    checks.choice("scale", scale, ("max", "amax"))
    beside = launch.scales(scales, (m, k // BLOCK), view)
    outputs = Outputs(out, [((m, k), U8), ((m, tiles(k)), U8)], [view, beside])
    return launch.rowwise("mxfp4_to_fp8", f"mxfp4_to_fp8_{scale}", [view, beside], outputs, k, TILE)


@planned(2)
def mxfp4_to_fp8_columns(
    packed: Any, scales: Any, splits: Sequence[int] | None = None, scale: str = "max", *, out: Any = None
) -> Any:
    """Turn row-wise MXFP4 into column-wise E4M3 (N9) -> (codes u8 [K, M], scales u8 [sum_i ceil(m_i/128), K])."""
    view = launch.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    checks.choice("scale", scale, ("max", "amax"))
    beside = launch.scales(scales, (m, k // BLOCK), view)
    rows = checks.row_splits(splits, m)
    outputs = Outputs(out, [((k, m), U8), ((checks.segments(rows, TILE), k), U8)], [view, beside])
    name = f"mxfp4_to_fp8_columns_{scale}"
    return columns.columns("mxfp4_to_fp8_columns", name, view, beside, outputs, k, rows.tolist())


@planned(2)
def fp8_columns(
    codes: Any, scales: Any, splits: Sequence[int] | None = None, underflow: str = "rne", *, out: Any = None
) -> Any:
    """Turn E4M3 1x128 tiles into column tiles (N10) -> (codes u8 [K, M], scales u8 [sum_i ceil(m_i/128), K])."""
    view = launch.codes("codes", codes, BLOCK)
    m, k = view.shape
    checks.choice("underflow", underflow, ("rne", "te"))
    beside = launch.scales(scales, (m, tiles(k)), view)
    rows = checks.row_splits(splits, m)
    outputs = Outputs(out, [((k, m), U8), ((checks.segments(rows, TILE), k), U8)], [view, beside])
    return columns.columns("fp8_columns", f"fp8_columns_{underflow}", view, beside, outputs, k, rows.tolist())
