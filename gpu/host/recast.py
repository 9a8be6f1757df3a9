"""The host build of the conversions between FP8 tiles and MXFP4 along rows (clauses N7 and N8)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BLOCK, tiles
from .build import address, library
from .layouts import Laid, read, read_mxfp4

__all__ = ["fp8_to_mxfp4", "mxfp4_to_fp8"]

Array = np.ndarray[Any, Any]
Pair = tuple[Array, Array]
U8 = np.uint8


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
    given, scales = scales, read(scales, (m, tiles(k)), layout_in)
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
    given, scales = scales, read_mxfp4(packed, scales, layout_in)
    m, k = checks.mxfp4(packed, scales)
    results = Laid(out, ((m, k), U8), (m, tiles(k)), layout_out, [packed, given])
    source, bytes_, (codes, tile_scales) = np.ascontiguousarray(packed), np.ascontiguousarray(scales), results.arrays
    library().refnum_mxfp4_to_fp8(address(source), address(bytes_), m, k, amax, address(codes), address(tile_scales))
    return results.finish()
