"""NVIDIA ModelOpt's `MXFP4QTensor` and `NVFP4QTensor`, its packers in PyTorch.

Their files are read by themselves: the package needs much more.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from . import foreign
from .difference import Difference, log2_above_power_of_two, nvfp4_minus_zero, nvfp4_nan_block, special_exponent_wraps
from .torch_peer import float32_only, torch_subjects

NAME = "ModelOpt"
CHECKOUTS = ("", "modelopt", "Model-Optimizer")
_FOLDER = "modelopt/torch/quantization"
_FILE = f"{_FOLDER}/qtensor/mxfp4_tensor.py"
_REDUCTIONS = ("reduce_block_amax", "reduce_block_padding", "reduce_amax")


class _Held:
    """What MXFP4QTensor needs of its base class: it keeps shape, dtype and data."""

    def __init__(self, shape: Any, dtype: Any, data: Any) -> None:
        self.metadata = {"shape": shape, "dtype": dtype}
        self._quantized_data = data


@functools.cache
def tensor_class() -> Any:
    """Return MXFP4QTensor."""
    import torch

    given = {"torch": torch, "BaseQuantizedTensor": _Held}
    return foreign.excerpt(foreign.source(_FILE, CHECKOUTS), ("MXFP4QTensor",), given)["MXFP4QTensor"]


def quantize_mxfp4(x: Any) -> tuple[Any, Any]:
    """MXFP4QTensor.quantize(x, 32)."""
    held, scales = tensor_class().quantize(x.float(), 32)
    return held._quantized_data, scales.reshape(x.shape[0], -1)


def dequantize_mxfp4(packed: Any, scales: Any, dtype: str = "float32") -> Any:
    """MXFP4QTensor.dequantize."""
    import torch

    held = tensor_class()(packed.shape, torch.float32, packed)
    return held.dequantize(getattr(torch, dtype), scale=scales, block_sizes={-1: 32})


@functools.cache
def nvfp4_class() -> Any:
    """Return NVFP4QTensor."""
    import torch

    tools = foreign.excerpt(foreign.source(f"{_FOLDER}/utils/core_utils.py", CHECKOUTS), _REDUCTIONS,
                            {"torch": torch, "F": torch.nn.functional, "_FP8_DTYPES": ()})  # fmt: skip
    given = {"torch": torch, "BaseQuantizedTensor": _Held, "E2M1_MAX": 6.0, "E4M3_MAX": 448.0, **tools}
    names = ("NVFP4QTensor", "_cast_per_block_scale_to_fp8", "e2m1_bounds", "e2m1_values")
    return foreign.excerpt(foreign.source(f"{_FOLDER}/qtensor/nvfp4_tensor.py", CHECKOUTS), names, given)[names[0]]


def quantize_nvfp4(x: Any, tensor_amax: Any, variant: str = "MODELOPT") -> tuple[Any, Any, Any]:
    """NVFP4QTensor.quantize(x, 16) with the tensor scale of get_weights_scaling_factor_2, amax / (6 * 448)."""
    import torch

    held, scales, _ = nvfp4_class().quantize(x, 16, weights_scaling_factor_2=tensor_amax.float() / (6.0 * 448.0))
    return held._quantized_data, scales.view(torch.uint8), tensor_amax


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if operation == "quantize_nvfp4" and (params.get("variant") != "MODELOPT" or params.get("tile", (1,))[0] != 1):
        return "NVFP4QTensor is MODELOPT in blocks of one row"
    return float32_only(operation, profile, params)


def subjects() -> list[dict[str, Any]]:
    """Return the subject on both devices."""
    operations = {f.__name__: f for f in (quantize_mxfp4, dequantize_mxfp4, quantize_nvfp4)}
    described = lambda: {"nvidia-modelopt": foreign.version("nvidia-modelopt")}  # noqa: E731
    return torch_subjects(NAME, operations, ("MODELOPT",), tensor_class, described, _supports)


DIFFERENCES = (
    nvfp4_nan_block(
        NAME, 0x3B, 0xFF, "a NaN is the maximum of its block: the scale is NaN, and every code is that of 6"
    ),
    nvfp4_minus_zero(NAME, "the sign comes from x < 0: -0 becomes code 0"),
    Difference(
        NAME,
        "quantize_mxfp4",
        "plus-zero-is-minus-zero",
        "the sign bit is (2 - sign) // 2, which is 1 for a zero: +0 becomes code 8",
        "N2",
        ((0, 0),),
        0,
        0,
        8,
        of="quotient",
        output="codes",
    ),
    log2_above_power_of_two(NAME),
    *special_exponent_wraps(
        NAME, "the exponent is Inf or NaN and its cast to uint8 gives byte 0 on x86-64 and other bytes elsewhere"
    ),
    Difference(
        NAME,
        "dequantize_mxfp4",
        "decode-scale-255",
        "byte 255 is 2^128, Inf, not NaN",
        "N1",
        ((255, 255),),
        255,
        0x7FC00000,
        0x7F800000,
        of="scales",
    ),
    Difference(
        "ModelOpt/cuda",
        "quantize_mxfp4",
        "exp2-of-127-on-cuda",
        "a block of byte 0, 2^-127, is divided by another number: exp2(-127) on the GPU",
        "N5",
        ((0, 0),),
        0,
        0,
        1,
        of="byte",
        output="codes",
        exact=False,
    ),
    Difference(
        "ModelOpt/cuda",
        "dequantize_mxfp4",
        "exp2-of-127-on-cuda",
        "byte 0: exp2(-127) is 0x003FFFFF on the GPU, one ulp below 2^-127",
        "N1",
        ((0, 0),),
        0,
        0x00400000,
        0x003FFFFF,
        of="scales",
        params={"dtype": "float32"},
    ),
)
"""Found in 0.47.0."""
