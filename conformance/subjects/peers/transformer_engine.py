"""TransformerEngine's Python references: NVFP4, the E2M1 and E8M0 in it, and the reference of blockwise FP8.

Their files are read by themselves: importing the package needs its compiled part. MXFP4 is put together of the
reference's own two functions, as its recipe does it with power-of-two scales: scale = E8M0 of amax / 6, rounded up.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any, Optional, Union

from . import foreign
from .difference import (
    INF32,
    POSITIVE_NAN,
    Difference,
    log2_above_power_of_two,
    nvfp4_minus_zero,
    nvfp4_nan_block,
    tile_scale,
)
from .torch_peer import float32_only, scale_bytes, torch_subjects

FP4, FP8 = "TransformerEngine-fp4", "TransformerEngine-fp8"
ERRORS = {"FOUR_OVER_SIX": "MAE", "FOUR_OVER_SIX_MSE": "MSE"}
"""Variant of N21.3 -> error mode."""
CHECKOUTS = ("TransformerEngine", "TransformerEngine/tests/pytorch")


@functools.cache
def functions() -> dict[str, Any]:
    """Return cast_to_fp4x2, cast_from_fp4x2 and cast_to_e8."""
    import torch

    path = foreign.source("transformer_engine/pytorch/custom_recipes/reference_nvfp4.py", CHECKOUTS)
    given = {"torch": torch, "Quantizer": object, "QuantizedTensorStorage": object, "NVFP4TensorRef": object,
             "Optional": Optional, "Tuple": tuple, "Union": Union,
             "reference_utils": types.SimpleNamespace(Fp4Formats=object),
             "gemm": types.SimpleNamespace(GEMMType=types.SimpleNamespace(FPROP=None))}  # fmt: skip
    return foreign.excerpt(path, ("cast_to_fp4x2", "cast_from_fp4x2", "cast_to_e8", "NVFP4QuantizerRef"), given)


@functools.cache
def blockwise() -> Any:
    """Return the reference quantiser of blockwise FP8."""
    module = foreign.load("references.blockwise_quantizer_reference", CHECKOUTS)
    return module.BlockwiseQuantizerReference()


def quantize_mxfp4(x: Any) -> tuple[Any, Any]:
    """cast_to_e8(amax / 6), then cast_to_fp4x2(x / scale)."""
    import torch

    blocks = x.float().reshape(x.shape[0], -1, 32)
    six = torch.tensor(6.0, dtype=torch.float32, device=x.device)
    scale = functions()["cast_to_e8"](torch.div(blocks.abs().amax(-1), six))
    scaled = (blocks / scale[..., None]).reshape(x.shape)
    return functions()["cast_to_fp4x2"](scaled), scale_bytes(scale)


def quantize_nvfp4(x: Any, tensor_amax: Any, variant: str = "TE", tile: tuple[int, int] = (1, 16)) -> Any:
    """NVFP4QuantizerRef._quantize_blockwise_reference; for four over six with scales of at most 256 before the 1.5."""
    import torch

    adaptive = {} if variant == "TE" else {"nvfp4_use_4over6": True, "nvfp4_e4m3_max": 256,
                                           "nvfp4_4over6_err_mode": ERRORS[variant]}  # fmt: skip
    reference = functions()["NVFP4QuantizerRef"]._quantize_blockwise_reference
    packed, scales = reference(x.contiguous(), tensor_amax, tile[1], tile[0], pow_2_scales=False, eps=0.0, **adaptive)
    return packed, scales.view(torch.uint8)[:: tile[0]].contiguous(), tensor_amax


def quantize_fp8_tiles(x: Any, tile: tuple[int, int] = (1, 128)) -> tuple[Any, Any]:
    """BlockwiseQuantizerReference.quantize(pow_2_scales=True)."""
    import torch

    found = blockwise().quantize(
        x, torch.float8_e4m3fn, eps=0.0, pow_2_scales=True, quant_tile_shape=tuple(tile), munge_scale_shapes=False
    )
    return found.data.view(torch.uint8), scale_bytes(found.scale)


def dequantize_mxfp4(packed: Any, scales: Any, dtype: str = "float32") -> Any:
    """cast_from_fp4x2 times the scale."""
    import torch

    values = functions()["cast_from_fp4x2"](packed, torch.float32)
    sf = scales.view(torch.float8_e8m0fnu).float()
    return (values.reshape(*scales.shape, 32) * sf[..., None]).reshape(values.shape).to(getattr(torch, dtype))


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if operation == "quantize_nvfp4" and params.get("variant") not in ("TE", *ERRORS):
        return f"the reference is {', '.join(('TE', *ERRORS))}"
    return float32_only(operation, profile, params)


def subjects() -> list[dict[str, Any]]:
    """Return both references on both devices."""
    fp4 = {f.__name__: f for f in (quantize_mxfp4, dequantize_mxfp4, quantize_nvfp4)}
    described = lambda: {"TransformerEngine": "checkout"}  # noqa: E731
    return [
        *torch_subjects(FP4, fp4, ("TE_PYTHON",), functions, described, _supports),
        *torch_subjects(FP8, {"quantize_fp8_tiles": quantize_fp8_tiles}, ("HOPPER",), blockwise, described, _supports),
    ]


DIFFERENCES = (
    nvfp4_nan_block(FP4, 0x3B, 0xFF, "a NaN is the maximum of its block: the scale is NaN, and every code is 0"),
    nvfp4_minus_zero(FP4, "the sign comes from x < 0: -0 becomes code 0"),
    Difference(
        FP4,
        "quantize_mxfp4",
        "underflow-keeps-sign",
        "a negative number that becomes zero keeps its sign, code 8; only -0 itself loses it",
        "N2",
        ((0x80000001, 0xBE800000),),
        0x80000001,
        0,
        8,
        of="quotient",
        output="codes",
        exact=False,
    ),
    log2_above_power_of_two(FP4),
    tile_scale(
        FP8,
        "inf",
        "an Inf gives the scale 1 / 0, Inf; in the model a tile with Inf or NaN has scale 1",
        (INF32, INF32),
        255,
    ),
    tile_scale(FP8, "nan", "frexp of NaN: the scale is 2; in the model 1", POSITIVE_NAN, 128),
)
"""Found in the checkout of 2026-08-22."""
