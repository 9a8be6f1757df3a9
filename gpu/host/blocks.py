"""The host build of MXFP4 blocks (clauses N5 and N13)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BLOCK, Outputs
from .build import address, library
from .layouts import Laid, read_mxfp4

__all__ = ["dequantize_mxfp4", "quantize_mxfp4"]

Array = np.ndarray[Any, Any]
Pair = tuple[Array, Array]
U8 = np.uint8


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
    given, scales = scales, read_mxfp4(packed, scales, layout_in)
    m, k = checks.mxfp4(packed, scales)
    kind, numpy_dtype = checks.output_dtype(dtype)
    results = Outputs(out, [((m, k), numpy_dtype)], [packed, given])
    codes, bytes_ = np.ascontiguousarray(packed), np.ascontiguousarray(scales)
    library().refnum_dequantize_mxfp4(address(codes), address(bytes_), m * k // BLOCK, kind, address(results.arrays[0]))
    return results.finish()
