"""The kernels' launchers: twins of the golden operations, on device arrays.

Each has the name, argument order and defaults of its twin in `refnum`. Inputs are CuPy arrays, torch tensors or
anything else that speaks DLPack or `__cuda_array_interface__`, all of one library. Results of CuPy arrays and torch
tensors are arrays of their library, written on its current stream. What is neither is read, and worked on, on CuPy's
current stream, and the call ends when its kernels have. Its results are arrays of its library where its arrays name
one with a `from_dlpack` (`__array_namespace__`; JAX), else CuPy's.

Rows of a matrix may have any stride; the elements of a row are neighbours. What the scalar conversions `encode_*` take
is contiguous, and so are scales in a layout other than bytes. Items of a vector lie at multiples of their size. `out`
is an array, or a tuple of arrays, of exactly the results' shapes and dtypes, contiguous and apart from the inputs,
of their library; beside what is neither CuPy's nor torch's it may be CuPy's. Errors of `refnum.errors` come before any
launch.

Row-wise conversions and those between rows and columns are here; scalars, payloads, permutations and SwiGLU are in the
rooms that they are imported from. Small results of one call on CuPy arrays may be parts of one allocation.

Calls, first ones too, can be captured into graphs of CuPy and torch. A graph has addresses, not arrays: keep what a
captured call was given, `row_map` and device splits too, and with CuPy what it returned. Scratch memory of a call that
CuPy captures (`unpermute` unless rows and tokens are few, gathers by splits on the device, large gathers that read
every row once) is kept for the process; once none of its graphs is left, `captured.clear()` gives it back.

The host's splits are read at every call; only lists and tuples of Python's integers take the short way of a call whose
kind is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BLOCK, TILE, tiles
from ..device.driver import available
from ..device.outputs import U8, Outputs
from ..device.plans import captured as captured
from ..device.plans import planned
from . import columns, launch, stochastic
from .casts import encode_e2m1, encode_e4m3, encode_e8m0
from .payload import fp8_to_payload, pack_payload, quantize_payload, unpack_payload
from .permute import permute_pad, permute_unpack
from .permute_sum import unpermute
from .product import matmul_fp8
from .swiglu import swiglu_backward, swiglu_quantize

__all__ = [
    "available",
    "dequantize_fp8_tiles",
    "dequantize_mxfp4",
    "encode_e2m1",
    "encode_e4m3",
    "encode_e8m0",
    "fp8_columns",
    "fp8_to_mxfp4",
    "fp8_to_payload",
    "matmul_fp8",
    "mxfp4_columns",
    "mxfp4_to_fp8",
    "mxfp4_to_fp8_columns",
    "mxfp4_to_fp8_rows_columns",
    "pack_payload",
    "permute_pad",
    "permute_unpack",
    "quantize_fp8_tiles",
    "quantize_mxfp4",
    "quantize_payload",
    "swiglu_backward",
    "swiglu_quantize",
    "unpack_payload",
    "unpermute",
]


@planned(1, "rbits", "philox")
def quantize_mxfp4(
    x: Any,
    profile: Profile | str = HOPPER,
    *,
    rbits: Any = None,
    philox: tuple[int, ...] | None = None,
    layout_out: str = "bytes",
    out: Any = None,
) -> Any:
    """Quantise [M, K] floats to MXFP4 (N5) -> (packed u8 [M, K/2], scales of [M, K/32] in `layout_out` of N6.5).

    A profile with stochastic rounding of eight bits takes rbits, u8 [M, K], or philox, the key of a stream (N13.5),
    whose bits are then made in the kernel.
    """
    view, chosen = launch.floats("x", x), get_profile(profile)
    checks.profile(chosen, stochastic=True)
    (m, k), rules = view.shape, launch.policy(chosen)
    key = checks.randomness(rbits, philox, chosen)
    random = None if rbits is None else stochastic.drawn(rbits, view)
    wanted = [((m, k // 2), U8), launch.written(m, k // BLOCK, layout_out)]
    outputs = Outputs(out, wanted, [view] if random is None else [view, random])
    kind, layouts = checks.KINDS[view.dtype], ("bytes", layout_out)
    name = f"quantize_mxfp4_{launch.NAMES[kind]}"
    if key or random:
        return stochastic.quantize_mxfp4(name, view, random, key, outputs, rules, layouts)
    return launch.rowwise(
        "quantize_mxfp4", name, [view], outputs, k, BLOCK, rules, rceil=True, halved=kind == 0, layouts=layouts
    )


@planned(2)
def dequantize_mxfp4(
    packed: Any, scales: Any, dtype: Any = "float32", *, layout_in: str = "bytes", out: Any = None
) -> Any:
    """Dequantise MXFP4 (packed u8 [M, K/2], scales of [M, K/32] in `layout_in`) to float32 or bfloat16, exact (N5)."""
    view = launch.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    beside = launch.scales(scales, (m, k // BLOCK), view, layout_in)
    kind, result = checks.output_dtype(dtype)
    outputs = Outputs(out, [((m, k), result)], [view, beside])
    name = f"dequantize_mxfp4_{launch.NAMES[kind]}"
    layouts = (layout_in, "bytes")
    return launch.rowwise(
        "dequantize_mxfp4", name, [view, beside], outputs, k, BLOCK, halved=kind == 0, layouts=layouts
    )


@planned(1)
def quantize_fp8_tiles(
    x: Any,
    tile: tuple[int, int] = (1, 128),
    profile: Profile | str = HOPPER,
    *,
    layout_out: str = "bytes",
    out: Any = None,
) -> Any:
    """Quantise [M, K] floats to E4M3 (N6) -> (codes u8 [M, K], scales a 1x128 or 128x128 tile, in `layout_out`)."""
    view = launch.floats("x", x)
    (m, k), tall, rules = view.shape, checks.tile_rows(tile), launch.rules(profile)
    outputs = Outputs(out, [((m, k), U8), launch.written(-(-m // tall), tiles(k), layout_out)], [view])
    kind = checks.KINDS[view.dtype]
    if tall > 1:
        return launch.squares(f"quantize_fp8_squares_{launch.NAMES[kind]}", view, outputs, rules, layout_out)
    name, layouts = f"quantize_fp8_tiles_{launch.NAMES[kind]}", ("bytes", layout_out)
    return launch.rowwise(
        "quantize_fp8_tiles", name, [view], outputs, k, TILE, rules, halved=kind == 0, layouts=layouts
    )


@planned(2)
def dequantize_fp8_tiles(
    codes: Any,
    scales: Any,
    tile: tuple[int, int] = (1, 128),
    dtype: Any = "float32",
    *,
    layout_in: str = "bytes",
    out: Any = None,
) -> Any:
    """Dequantise E4M3 tiles (codes u8 [M, K]) to float32, exact, or bfloat16, nearest even (N6) -> [M, K]."""
    view = launch.codes("codes", codes, BLOCK)
    (m, k), tall = view.shape, checks.tile_rows(tile)
    beside = launch.scales(scales, (-(-m // tall), tiles(k)), view, layout_in)
    kind, result = checks.output_dtype(dtype)
    outputs = Outputs(out, [((m, k), result)], [view, beside])
    name = f"dequantize_fp8_tiles_{launch.NAMES[kind]}"
    layouts = (layout_in, "bytes")
    return launch.rowwise(
        "dequantize_fp8_tiles", name, [view, beside], outputs, k, TILE, tall=tall, halved=kind == 0, layouts=layouts
    )


@planned(2)
def fp8_to_mxfp4(
    codes: Any,
    scales: Any,
    profile: Profile | str = HOPPER,
    *,
    layout_in: str = "bytes",
    layout_out: str = "bytes",
    out: Any = None,
) -> Any:
    """Quantise E4M3 1x128 tiles to MXFP4 directly (N7) -> (packed u8 [M, K/2], scales of [M, K/32] in `layout_out`)."""
    view = launch.codes("codes", codes, BLOCK)
    (m, k), rules, layouts = view.shape, launch.rules(profile), (layout_in, layout_out)
    beside = launch.scales(scales, (m, tiles(k)), view, layout_in)
    outputs = Outputs(out, [((m, k // 2), U8), launch.written(m, k // BLOCK, layout_out)], [view, beside])
    return launch.rowwise(
        "fp8_to_mxfp4", "fp8_to_mxfp4", [view, beside], outputs, k, TILE, rules, rceil=True, layouts=layouts
    )


@planned(2)
def mxfp4_to_fp8(
    packed: Any,
    scales: Any,
    scale: str = "max",
    *,
    layout_in: str = "bytes",
    layout_out: str = "bytes",
    out: Any = None,
) -> Any:
    """Turn MXFP4 into E4M3 1x128 tiles (N8) -> (codes u8 [M, K], scales of [M, ceil(K/128)] in `layout_out`)."""
    view = launch.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    checks.choice("scale", scale, ("max", "amax"))
    beside = launch.scales(scales, (m, k // BLOCK), view, layout_in)
    outputs = Outputs(out, [((m, k), U8), launch.written(m, tiles(k), layout_out)], [view, beside])
    name, layouts = f"mxfp4_to_fp8_{scale}", (layout_in, layout_out)
    return launch.rowwise("mxfp4_to_fp8", name, [view, beside], outputs, k, TILE, layouts=layouts)


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
def mxfp4_to_fp8_rows_columns(
    packed: Any, scales: Any, splits: Sequence[int] | None = None, scale: str = "max", *, out: Any = None
) -> Any:
    """Turn row-wise MXFP4 into E4M3 rows and columns in one pass (N9).

    Returns (row codes u8 [M, K], row scales u8 [M, ceil(K/128)], column codes u8 [K, M], column scales u8
    [sum_i ceil(m_i/128), K]).
    """
    view = launch.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    checks.choice("scale", scale, ("max", "amax"))
    beside = launch.scales(scales, (m, k // BLOCK), view)
    rows = checks.row_splits(splits, m)
    wanted = [((m, k), U8), ((m, tiles(k)), U8), ((k, m), U8), ((checks.segments(rows, TILE), k), U8)]
    outputs = Outputs(out, wanted, [view, beside])
    name = f"mxfp4_to_fp8_rows_columns_{scale}"
    return columns.columns("mxfp4_to_fp8_rows_columns", name, view, beside, outputs, k, rows.tolist())


@planned(2)
def mxfp4_columns(
    packed: Any, scales: Any, splits: Sequence[int] | None = None, scale: str = "amax", *, out: Any = None
) -> Any:
    """Turn row-wise MXFP4 into 32x1 blocks (N9) -> (packed u8 [K, M/2], scales u8 [sum_i ceil(m_i/32), K])."""
    view = launch.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    checks.choice("scale", scale, ("max", "amax"))
    beside = launch.scales(scales, (m, k // BLOCK), view)
    rows = checks.row_splits(splits, m, even=True)
    outputs = Outputs(out, [((k, m // 2), U8), ((checks.segments(rows, BLOCK), k), U8)], [view, beside])
    return columns.columns("mxfp4_columns", f"mxfp4_columns_{scale}", view, beside, outputs, k, rows.tolist())


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
