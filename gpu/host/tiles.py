"""The host build of FP8 tiles (clause N6)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BLOCK, Outputs, tiles
from .build import address, library
from .layouts import Laid, read

__all__ = ["dequantize_fp8_tiles", "quantize_fp8_tiles"]

Array = np.ndarray[Any, Any]
Pair = tuple[Array, Array]
U8 = np.uint8


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
    given, scales = scales, read(scales, (-(-m // tall), tiles(k)), layout_in)
    kind, numpy_dtype = checks.output_dtype(dtype)
    results = Outputs(out, [((m, k), numpy_dtype)], [codes, given])
    source, bytes_, values = np.ascontiguousarray(codes), np.ascontiguousarray(scales), results.arrays[0]
    library().refnum_dequantize_fp8_tiles(address(source), address(bytes_), m, k, tall, kind, address(values))
    return results.finish()
