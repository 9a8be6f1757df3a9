"""The host build: the kernels' arithmetic, compiled for this machine's processor, as twins of the golden operations.

Every function has the name, argument order and defaults of its twin in `refnum`, takes NumPy arrays (read-only and
non-contiguous ones too) and gives NumPy arrays. `out` is an array, or a tuple of arrays, of exactly the result's
shapes and dtypes that shares no memory with an input. Raises the named errors of `refnum.errors`;
UnsupportedError when there is no compiler here, or for a profile field that the kernels do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refnum.errors import DtypeError
from refnum.profiles import HOPPER, Profile, get_profile

from . import checks
from .checks import BLOCK, TILE, Outputs, tiles
from .host_library import available, describe, library

__all__ = [
    "available",
    "decode_e2m1",
    "decode_e4m3",
    "dequantize_fp8_tiles",
    "dequantize_mxfp4",
    "describe",
    "encode_e2m1",
    "encode_e4m3",
    "fp8_columns",
    "fp8_to_mxfp4",
    "mxfp4_columns",
    "mxfp4_to_fp8",
    "mxfp4_to_fp8_columns",
    "quantize_fp8_tiles",
    "quantize_mxfp4",
]

U8 = np.uint8
Array = np.ndarray[Any, Any]
Pair = tuple[Array, Array]


def _at(x: Array) -> int:
    return int(x.ctypes.data)


def quantize_mxfp4(
    x: Array, profile: Profile | str = HOPPER, *, rbits: Array | None = None, out: Pair | None = None
) -> Pair:
    """Quantise [M, K] floats to MXFP4 (N5) -> (packed u8 [M, K/2], scales u8 [M, K/32]).

    rbits: unsigned integers below 256, [M, K], for a profile with stochastic rounding of eight random bits.
    """
    m, k = checks.floats("x", x)
    chosen = get_profile(profile)
    checks.profile(chosen, stochastic=True)
    random = checks.random_bits(rbits, x, chosen)
    given = [x] if rbits is None else [x, rbits]
    results = Outputs(out, [((m, k // 2), U8), ((m, k // BLOCK), U8)], given)
    source, (packed, scales) = np.ascontiguousarray(x), results.arrays
    policy = (checks.RULES[chosen.scale_rule], int(chosen.nonfinite == "satfinite"), chosen.zero_scale)
    kind, blocks, to = checks.KINDS[x.dtype], m * k // BLOCK, (_at(packed), _at(scales))
    if random is None:
        library().refnum_quantize_mxfp4(kind, _at(source), blocks, *policy, *to)
    else:
        library().refnum_quantize_mxfp4_stochastic(kind, _at(source), _at(random), blocks, *policy, *to)
    return results.finish()


def dequantize_mxfp4(packed: Array, scales: Array, dtype: Any = "float32", *, out: Array | None = None) -> Array:
    """Dequantise MXFP4 (packed u8 [M, K/2], scales u8 [M, K/32]) to float32 or bfloat16 [M, K], exact (N5)."""
    m, k = checks.mxfp4(packed, scales)
    kind, numpy_dtype = checks.output_dtype(dtype)
    results = Outputs(out, [((m, k), numpy_dtype)], [packed, scales])
    codes, bytes_ = np.ascontiguousarray(packed), np.ascontiguousarray(scales)
    library().refnum_dequantize_mxfp4(_at(codes), _at(bytes_), m * k // BLOCK, kind, _at(results.arrays[0]))
    return results.finish()


def quantize_fp8_tiles(
    x: Array, tile: tuple[int, int] = (1, 128), profile: Profile | str = HOPPER, *, out: Pair | None = None
) -> Pair:
    """Quantise [M, K] floats to E4M3 (N6) -> (codes u8 [M, K], scales u8, one a 1x128 or 128x128 tile)."""
    m, k = checks.floats("x", x)
    tall = checks.tile_rows(tile)
    chosen = get_profile(profile)
    checks.profile(chosen)
    results = Outputs(out, [((m, k), U8), ((-(-m // tall), tiles(k)), U8)], [x])
    source, (codes, scales) = np.ascontiguousarray(x), results.arrays
    rule = checks.RULES[chosen.scale_rule]
    library().refnum_quantize_fp8_tiles(
        checks.KINDS[x.dtype], _at(source), m, k, tall, rule, _at(codes), _at(scales)
    )
    return results.finish()


def dequantize_fp8_tiles(
    codes: Array, scales: Array, tile: tuple[int, int] = (1, 128), dtype: Any = "float32", *, out: Array | None = None
) -> Array:
    """Dequantise E4M3 tiles (codes u8 [M, K]) to float32, exact, or bfloat16, nearest even (N6) -> [M, K]."""
    m, k = checks.codes("codes", codes, BLOCK)
    tall = checks.tile_rows(tile)
    checks.scales(scales, (-(-m // tall), tiles(k)))
    kind, numpy_dtype = checks.output_dtype(dtype)
    results = Outputs(out, [((m, k), numpy_dtype)], [codes, scales])
    source, bytes_ = np.ascontiguousarray(codes), np.ascontiguousarray(scales)
    library().refnum_dequantize_fp8_tiles(_at(source), _at(bytes_), m, k, tall, kind, _at(results.arrays[0]))
    return results.finish()


def fp8_to_mxfp4(codes: Array, scales: Array, profile: Profile | str = HOPPER, *, out: Pair | None = None) -> Pair:
    """Quantise E4M3 1x128 tiles to MXFP4 directly (N7) -> (packed u8 [M, K/2], scales u8 [M, K/32])."""
    m, k = checks.codes("codes", codes, BLOCK)
    checks.scales(scales, (m, tiles(k)))
    chosen = get_profile(profile)
    checks.profile(chosen)
    results = Outputs(out, [((m, k // 2), U8), ((m, k // BLOCK), U8)], [codes, scales])
    source, bytes_, (packed, block_scales) = np.ascontiguousarray(codes), np.ascontiguousarray(scales), results.arrays
    rule = checks.RULES[chosen.scale_rule]
    library().refnum_fp8_to_mxfp4(
        _at(source), _at(bytes_), m, k, rule, chosen.zero_scale, _at(packed), _at(block_scales)
    )
    return results.finish()


def mxfp4_to_fp8(packed: Array, scales: Array, scale: str = "max", *, out: Pair | None = None) -> Pair:
    """Turn MXFP4 into E4M3 1x128 tiles (N8) -> (codes u8 [M, K], scales u8 [M, ceil(K/128)])."""
    amax = checks.choice("scale", scale, ("max", "amax"))
    m, k = checks.mxfp4(packed, scales)
    results = Outputs(out, [((m, k), U8), ((m, tiles(k)), U8)], [packed, scales])
    source, bytes_, (codes, tile_scales) = np.ascontiguousarray(packed), np.ascontiguousarray(scales), results.arrays
    library().refnum_mxfp4_to_fp8(_at(source), _at(bytes_), m, k, amax, _at(codes), _at(tile_scales))
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
    source, bytes_, (first, second) = np.ascontiguousarray(codes), np.ascontiguousarray(scales), results.arrays
    getattr(library(), f"refnum_{name}")(
        _at(source), _at(bytes_), *shape, _at(rows), rows.size, mode, _at(first), _at(second)
    )
    return results.finish()


def _float_bits(x: Array) -> Array:
    """float32 bits of a float array of any shape, contiguous; widening is exact."""
    if not isinstance(x, np.ndarray) or x.dtype not in checks.KINDS:
        given = x.dtype if isinstance(x, np.ndarray) else type(x).__name__
        raise DtypeError(f"x has dtype {given}; allowed are float32, bfloat16, float16 and uint16 (bfloat16 bits)")
    if x.dtype == np.float32:
        return np.ascontiguousarray(x).view(np.uint32)
    if x.dtype == np.float16:
        return np.ascontiguousarray(x.astype(np.float32)).view(np.uint32)
    return np.ascontiguousarray(x).view(np.uint16).astype(np.uint32) << np.uint32(16)


def _byte(scale_byte: int) -> int:
    return checks.choice("scale_byte", scale_byte, range(255))


def encode_e4m3(x: Array, scale_byte: int = 127) -> Array:
    """E4M3 codes u8 of x / 2**(scale_byte - 127), the kernels' scalar function (N2); any shape; NaN gives 0x7F."""
    bits = _float_bits(x)
    codes = np.empty(x.shape, U8)
    library().refnum_encode_e4m3(_at(bits), _byte(scale_byte), _at(codes), codes.size)
    return codes


def encode_e2m1(x: Array, scale_byte: int = 127, *, rbits: Array | None = None) -> Array:
    """E2M1 codes u8 of x / 2**(scale_byte - 127), the kernels' scalar function (N2); any shape; NaN gives 7.

    rbits: uint8 of x's shape rounds stochastically with these eight bits an element (N13).
    """
    bits = _float_bits(x)
    codes, byte = np.empty(x.shape, U8), _byte(scale_byte)
    if rbits is None:
        library().refnum_encode_e2m1(_at(bits), byte, _at(codes), codes.size)
    else:
        random = checks.random_bits(rbits, x, get_profile("STOCHASTIC"))
        assert random is not None
        library().refnum_encode_e2m1_stochastic(_at(bits), _at(random), byte, _at(codes), codes.size)
    return codes


def decode_e4m3(codes: Array) -> Array:
    """Float32 values of E4M3 codes u8, exact (N1); any shape; NaN is the quiet NaN."""
    return _decode("decode_e4m3", codes)


def decode_e2m1(codes: Array) -> Array:
    """Float32 values of E2M1 codes u8 below 16, one a byte, exact (N1); any shape."""
    return _decode("decode_e2m1", codes)


def _decode(name: str, codes: Array) -> Array:
    if not isinstance(codes, np.ndarray) or codes.dtype != np.uint8:
        raise DtypeError(f"codes is {getattr(codes, 'dtype', type(codes).__name__)}; allowed is a uint8 array")
    source, values = np.ascontiguousarray(codes), np.empty(codes.shape, np.float32)
    getattr(library(), f"refnum_{name}")(_at(source), 127, _at(values), values.size)
    return values
