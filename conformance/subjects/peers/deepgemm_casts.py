"""DeepGEMM's casts in torch (`deep_gemm/utils/math.py`): to FP4 in blocks of 32 and to FP8 in tiles of 1x128.

The file stands alone and is read by itself: importing the package needs its compiled part.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from . import foreign
from .difference import INF32, POSITIVE_NAN, Difference, zero_tile_scale
from .torch_peer import float32_only, scale_bytes, torch_subjects

FP4, FP8 = "DeepGEMM-fp4", "DeepGEMM-fp8"
FP8_PROFILE = f"HOPPER+amax_floor={0x38D1B717}+zero_scale=105"
"""The cast to FP8 is torch's, to nearest even, and keeps the sign of zero; amax is at least 1e-4."""
CHECKOUTS = ("DeepGEMM",)
_NAMES = (
    "ceil_div",
    "align",
    "ceil_to_ue8m0",
    "pack_ue8m0_to_int",
    "per_token_cast_to_fp8",
    "per_block_cast_to_fp8",
    "_quantize_to_fp4_e2m1",
    "per_token_cast_to_fp4",
    "_dequantize_from_fp4_e2m1",
    "unpack_ue8m0_from_int",
    "cast_back_from_fp4",
)


@functools.cache
def functions() -> dict[str, Any]:
    """Return the casts by name."""
    import typing

    import torch

    given = {"torch": torch, "Tuple": typing.Tuple}  # noqa: UP006  # the name that their annotations use
    return foreign.excerpt(foreign.source("deep_gemm/utils/math.py", CHECKOUTS), _NAMES, given)


def quantize_mxfp4(x: Any) -> tuple[Any, Any]:
    """per_token_cast_to_fp4(use_ue8m0=True, gran_k=32)."""
    import torch

    packed, scales = functions()["per_token_cast_to_fp4"](x, True, 32)
    return packed.view(torch.uint8), scale_bytes(scales)


def quantize_fp8_tiles(x: Any, tile: tuple[int, int] = (1, 128)) -> tuple[Any, Any]:
    """per_token_cast_to_fp8 or per_block_cast_to_fp8, use_ue8m0=True."""
    import torch

    cast = functions()["per_token_cast_to_fp8" if tuple(tile) == (1, 128) else "per_block_cast_to_fp8"]
    codes, scales = cast(x, True)
    return codes.view(torch.uint8), scale_bytes(scales)


def dequantize_mxfp4(packed: Any, scales: Any, dtype: str = "float32") -> Any:
    """cast_back_from_fp4 with the scales as the float32 that their bytes are when shifted by 23."""
    import torch

    sf = (scales.to(torch.int32) << 23).view(torch.float32)
    return functions()["cast_back_from_fp4"](packed.view(torch.int8), sf, 32)


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if params.get("dtype") == "bfloat16":
        return "cast_back_from_fp4 gives float32"
    return float32_only(operation, profile, params)


def subjects() -> list[dict[str, Any]]:
    """Return both casts on both devices."""
    fp4 = {f.__name__: f for f in (quantize_mxfp4, dequantize_mxfp4)}
    fp8 = {"quantize_fp8_tiles": quantize_fp8_tiles}
    described = lambda: {"DeepGEMM": "checkout"}  # noqa: E731
    return [
        *torch_subjects(FP4, fp4, ("DEEPGEMM",), functions, described, _supports),
        *torch_subjects(FP8, fp8, (FP8_PROFILE,), functions, described, _supports),
    ]


_UNREAD = "the exponent is clamped to 254, so Inf and NaN leave a finite scale, 2^127"

DIFFERENCES = (
    *(
        Difference(name, operation, note, _UNREAD, clause, (place,), place[0], golden, 254, of="amax")
        for name, operation, clause, golden in (
            (FP4, "quantize_mxfp4", "N4", 255),
            (FP8, "quantize_fp8_tiles", "N6", 127),
        )
        for note, place in (("inf-block-clips", (INF32, INF32)), ("nan-block-clips", POSITIVE_NAN))
    ),
    zero_tile_scale(FP8),
    Difference(
        FP4,
        "dequantize_mxfp4",
        "minus-zero-lost",
        "code 8, -0, decodes to +0",
        "N1",
        ((0, 255),),
        0,
        0x80000000,
        0,
        of="scales",
    ),
)
"""Found in the checkout of 2026-06-23."""
