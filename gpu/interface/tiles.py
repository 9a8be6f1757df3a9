"""FP8 tiles of 1x128 or 128x128 elements (clause N6)."""

from __future__ import annotations

from typing import Any

from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from .call import U8, A, Call, Rows


def quantize_fp8_tiles(
    call: Call[A],
    x: Any,
    tile: tuple[int, int] = (1, 128),
    profile: Profile | str = HOPPER,
    *,
    layout_out: str = "bytes",
    out: Any = None,
) -> Rows[A]:
    """Quantise floats to E4M3 with a scale for each tile (N6).

    Args:
        x: float32, bfloat16, float16 or uint16 (bfloat16 bits) [M, K], K a multiple of 32.
        tile: (1, 128) or (128, 128); the last tile of a row or column may be short.
        profile: a profile or its name.
        layout_out: the storage layout of the scales (N6.5).
        out: the arrays to write.

    Returns:
        (codes u8 [M, K], scales of [ceil(M / tile[0]), ceil(K / 128)] in `layout_out`).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit or that the kernels do not have.
    """
    view = call.floats("x", x)
    (m, k), tall, rules = view.shape, checks.tile_rows(tile), checks.rules(get_profile(profile))
    wanted = [((m, k), U8), checks.written(-(-m // tall), checks.tiles(k), layout_out)]
    call.outputs(out, wanted, [view])
    return Rows(view, k, rules=rules, tall=tall, layouts=("bytes", layout_out))


def dequantize_fp8_tiles(
    call: Call[A],
    codes: Any,
    scales: Any,
    tile: tuple[int, int] = (1, 128),
    dtype: Any = "float32",
    *,
    layout_in: str = "bytes",
    out: Any = None,
) -> Rows[A]:
    """Dequantise E4M3 tiles to float32, exact, or to bfloat16, nearest even (N6).

    Args:
        codes: u8 [M, K], K a multiple of 32.
        scales: E8M0 scales of [ceil(M / tile[0]), ceil(K / 128)] in `layout_in`.
        tile: (1, 128) or (128, 128).
        dtype: float32 or bfloat16, by name or as a dtype of NumPy, ml_dtypes or torch.
        layout_in: the storage layout of the scales (N6.5).
        out: the array to write.

    Returns:
        The values [M, K].

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    tall = checks.tile_rows(tile)
    view, beside, m, k = call.tiles(codes, scales, tall, layout_in)
    kind, result = checks.output_dtype(dtype)
    call.outputs(out, [((m, k), result)], [view, beside])
    return Rows(view, k, beside, tall=tall, kind=kind, layouts=(layout_in, "bytes"))
