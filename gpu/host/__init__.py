"""The host build: the kernels' arithmetic, compiled for this machine's processor, as twins of the golden operations.

Every function has the name, argument order and defaults of its twin in `refnum`, takes NumPy arrays (read-only and
non-contiguous ones too) and gives NumPy arrays. `out` is an array, or a tuple of arrays, of exactly the result's
shapes and dtypes that shares no memory with an input. Raises the named errors of `refnum.errors`;
UnsupportedError when there is no compiler here, or for a profile field that the kernels do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BLOCK, TILE, Outputs, tiles
from .build import address, available, describe, library
from .casts import decode_e2m1, decode_e4m3, decode_e8m0, encode_e2m1, encode_e4m3, encode_e8m0
from .layouts import Laid
from .layouts import read as _bytes
from .payload import (
    fp8_to_payload,
    pack_payload,
    permute_pad,
    permute_unpack,
    quantize_payload,
    unpack_payload,
    unpermute,
)
from .product import matmul_fp8
from .swiglu import swiglu_backward, swiglu_quantize

__all__ = [
    "available",
    "decode_e2m1",
    "decode_e4m3",
    "decode_e8m0",
    "dequantize_fp8_tiles",
    "dequantize_mxfp4",
    "describe",
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

U8 = np.uint8


def _mxfp4_scales(packed: Array, scales: Array, layout: str) -> Array:
    """Return E8M0 bytes of MXFP4 codes from their layout."""
    m, half = checks.codes("packed", packed, BLOCK // 2)
    return _bytes(scales, (m, 2 * half // BLOCK), layout)


Array = np.ndarray[Any, Any]
Pair = tuple[Array, Array]


def quantize_mxfp4(
    x: Array,
    profile: Profile | str = HOPPER,
    *,
    rbits: Array | None = None,
    philox: tuple[int, ...] | None = None,
    layout_out: str = "bytes",
    out: Pair | None = None,
) -> Pair:
    """Quantise [M, K] floats to MXFP4 (N5) -> (packed u8 [M, K/2], scales of [M, K/32] in `layout_out` of N6.5).

    A profile with stochastic rounding of eight random bits takes rbits, unsigned integers below 256, [M, K], or philox,
    the key of a stream (N13.5).
    """
    m, k = checks.floats("x", x)
    chosen = get_profile(profile)
    checks.profile(chosen, stochastic=True)
    key = checks.randomness(rbits, philox, chosen)
    random = None if key else checks.random_bits(rbits, x, chosen)
    given = [x] if rbits is None else [x, rbits]
    results = Laid(out, ((m, k // 2), U8), (m, k // BLOCK), layout_out, given)
    source, (packed, scales) = np.ascontiguousarray(x), results.arrays
    policy = (checks.RULES[chosen.scale_rule], int(chosen.nonfinite == "satfinite"), chosen.zero_scale)
    kind, blocks, to = checks.KINDS[x.dtype], m * k // BLOCK, (address(packed), address(scales))
    if key:
        library().refnum_quantize_mxfp4_keyed(kind, address(source), *key, blocks, *policy, *to)
    elif random is None:
        library().refnum_quantize_mxfp4(kind, address(source), blocks, *policy, *to)
    else:
        library().refnum_quantize_mxfp4_stochastic(kind, address(source), address(random), blocks, *policy, *to)
    return results.finish()


def dequantize_mxfp4(
    packed: Array, scales: Array, dtype: Any = "float32", *, layout_in: str = "bytes", out: Array | None = None
) -> Array:
    """Dequantise MXFP4 (packed u8 [M, K/2], scales of [M, K/32] in `layout_in`) to float32 or bfloat16, exact (N5)."""
    given, scales = scales, _mxfp4_scales(packed, scales, layout_in)
    m, k = checks.mxfp4(packed, scales)
    kind, numpy_dtype = checks.output_dtype(dtype)
    results = Outputs(out, [((m, k), numpy_dtype)], [packed, given])
    codes, bytes_ = np.ascontiguousarray(packed), np.ascontiguousarray(scales)
    library().refnum_dequantize_mxfp4(address(codes), address(bytes_), m * k // BLOCK, kind, address(results.arrays[0]))
    return results.finish()


def quantize_fp8_tiles(
    x: Array,
    tile: tuple[int, int] = (1, 128),
    profile: Profile | str = HOPPER,
    *,
    layout_out: str = "bytes",
    out: Pair | None = None,
) -> Pair:
    """Quantise [M, K] floats to E4M3 (N6) -> (codes u8 [M, K], scales a 1x128 or 128x128 tile, in `layout_out`)."""
    m, k = checks.floats("x", x)
    tall = checks.tile_rows(tile)
    chosen = get_profile(profile)
    checks.profile(chosen)
    results = Laid(out, ((m, k), U8), (-(-m // tall), tiles(k)), layout_out, [x])
    source, (codes, scales) = np.ascontiguousarray(x), results.arrays
    rule = checks.RULES[chosen.scale_rule]
    library().refnum_quantize_fp8_tiles(
        checks.KINDS[x.dtype], address(source), m, k, tall, rule, address(codes), address(scales)
    )
    return results.finish()


def dequantize_fp8_tiles(
    codes: Array,
    scales: Array,
    tile: tuple[int, int] = (1, 128),
    dtype: Any = "float32",
    *,
    layout_in: str = "bytes",
    out: Array | None = None,
) -> Array:
    """Dequantise E4M3 tiles (codes u8 [M, K]) to float32, exact, or bfloat16, nearest even (N6) -> [M, K]."""
    m, k = checks.codes("codes", codes, BLOCK)
    tall = checks.tile_rows(tile)
    given, scales = scales, _bytes(scales, (-(-m // tall), tiles(k)), layout_in)
    kind, numpy_dtype = checks.output_dtype(dtype)
    results = Outputs(out, [((m, k), numpy_dtype)], [codes, given])
    source, bytes_, values = np.ascontiguousarray(codes), np.ascontiguousarray(scales), results.arrays[0]
    library().refnum_dequantize_fp8_tiles(address(source), address(bytes_), m, k, tall, kind, address(values))
    return results.finish()


def fp8_to_mxfp4(
    codes: Array,
    scales: Array,
    profile: Profile | str = HOPPER,
    *,
    layout_in: str = "bytes",
    layout_out: str = "bytes",
    out: Pair | None = None,
) -> Pair:
    """Quantise E4M3 1x128 tiles to MXFP4 directly (N7) -> (packed u8 [M, K/2], scales of [M, K/32] in `layout_out`)."""
    m, k = checks.codes("codes", codes, BLOCK)
    given, scales = scales, _bytes(scales, (m, tiles(k)), layout_in)
    chosen = get_profile(profile)
    checks.profile(chosen)
    results = Laid(out, ((m, k // 2), U8), (m, k // BLOCK), layout_out, [codes, given])
    source, bytes_, (packed, block_scales) = np.ascontiguousarray(codes), np.ascontiguousarray(scales), results.arrays
    rule = checks.RULES[chosen.scale_rule]
    library().refnum_fp8_to_mxfp4(
        address(source), address(bytes_), m, k, rule, chosen.zero_scale, address(packed), address(block_scales)
    )
    return results.finish()


def mxfp4_to_fp8(
    packed: Array,
    scales: Array,
    scale: str = "max",
    *,
    layout_in: str = "bytes",
    layout_out: str = "bytes",
    out: Pair | None = None,
) -> Pair:
    """Turn MXFP4 into E4M3 1x128 tiles (N8) -> (codes u8 [M, K], scales of [M, ceil(K/128)] in `layout_out`)."""
    amax = checks.choice("scale", scale, ("max", "amax"))
    given, scales = scales, _mxfp4_scales(packed, scales, layout_in)
    m, k = checks.mxfp4(packed, scales)
    results = Laid(out, ((m, k), U8), (m, tiles(k)), layout_out, [packed, given])
    source, bytes_, (codes, tile_scales) = np.ascontiguousarray(packed), np.ascontiguousarray(scales), results.arrays
    library().refnum_mxfp4_to_fp8(address(source), address(bytes_), m, k, amax, address(codes), address(tile_scales))
    return results.finish()


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
