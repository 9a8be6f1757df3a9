"""Triton's own MX code: `triton_kernels` (its torch reference, its kernels on a GPU) and the helpers in `triton.tools`.

`triton_kernels` is not on PyPI (a package of that name there is something else). What is judged is the copy of it that
Hugging Face's kernels-community hands out.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from typing import Any

from . import foreign
from .difference import INF32, LOG2_SLACK, NEGATIVE_NAN, Difference, nan_block_is_zero_scale, nan_scale_codes
from .torch_peer import Operations, torch_subjects

CHECKOUTS = ("triton-kernels/torch-ext", "kernels-community/triton-kernels/torch-ext", "triton/python/triton_kernels")
_NEAR_MIDPOINTS = tuple(
    (int.from_bytes(struct.pack(">f", middle - 1e-6)), int.from_bytes(struct.pack(">f", middle + 1e-6)))
    for middle in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
)
TORCH, KERNELS, TOOLS = "triton_kernels-torch", "triton_kernels", "triton.tools"


@functools.cache
def module() -> Any:
    """Return `triton_kernels.numerics_details.mxfp`."""
    return foreign.load("triton_kernels.numerics_details.mxfp", CHECKOUTS)


@functools.cache
def tools() -> Any:
    """Return `triton.tools.mxfp`."""
    return foreign.load("triton.tools.mxfp")


def _target(element: str) -> Any:
    import torch

    return {"E2M1": torch.uint8, "E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2}[element]


def quantize_mxfp4_torch(x: Any) -> tuple[Any, Any]:
    """downcast_to_mxfp_torch, scales rounded up."""
    return _downcast(module().downcast_to_mxfp_torch, x, "E2M1")


def quantize_mx_torch(x: Any, element: str = "E2M1") -> tuple[Any, Any]:
    """downcast_to_mxfp_torch to E4M3 or E5M2."""
    return _downcast(module().downcast_to_mxfp_torch, x, element)


def quantize_mxfp4(x: Any) -> tuple[Any, Any]:
    """downcast_to_mxfp, the kernel."""
    return _downcast(module().downcast_to_mxfp, x, "E2M1")


def quantize_mx(x: Any, element: str = "E2M1") -> tuple[Any, Any]:
    """downcast_to_mxfp to E4M3 or E5M2, the kernel."""
    return _downcast(module().downcast_to_mxfp, x, element)


def _downcast(function: Any, x: Any, element: str) -> tuple[Any, Any]:
    import torch

    codes, scales = function(x.contiguous(), _target(element), axis=1)
    return codes.contiguous().view(torch.uint8), scales.contiguous()


def dequantize_mxfp4_torch(packed: Any, scales: Any, dtype: str = "float32") -> Any:
    """upcast_from_mxfp_torch."""
    import torch

    return module().upcast_from_mxfp_torch(packed, scales, getattr(torch, dtype), axis=1).contiguous()


def dequantize_mxfp4(packed: Any, scales: Any, dtype: str = "float32") -> Any:
    """upcast_from_mxfp, the kernel."""
    import torch

    return module().upcast_from_mxfp(packed, scales, getattr(torch, dtype), axis=1).contiguous()


def encode_e2m1(x: Any) -> Any:
    """MXFP4Tensor(data=x)."""
    return tools().MXFP4Tensor(data=x.float().clone()).data


def encode_e8m0(x: Any, rounding: str = "down", saturate: bool = False) -> Any:
    """MXScaleTensor(data=x): floor(log2(x))."""
    return tools().MXScaleTensor(data=x.float()).data


def decode_e2m1(codes: Any, dtype: str = "float32") -> Any:
    """MXFP4Tensor to float32."""
    import torch

    held = tools().MXFP4Tensor(size=tuple(codes.shape))
    held.data = codes
    return held.to(torch.float32)


def decode_e8m0(codes: Any, dtype: str = "float32") -> Any:
    """MXScaleTensor to float32."""
    import torch

    held = tools().MXScaleTensor(size=tuple(codes.shape))
    held.data = codes
    return held.to(torch.float32)


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    return _elements(operation, params)


def _elements(operation: str, params: Mapping[str, Any]) -> str:
    if operation == "quantize_mx" and params.get("element") not in ("E4M3", "E5M2"):
        return "judged through quantize_mxfp4" if params.get("element") == "E2M1" else "it has FP4 and FP8 only"
    return ""


def _supports_kernels(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if params.get("input") == "float32" or params.get("dtype") == "float32":
        return "the kernels take and give bfloat16 and float16"
    return _elements(operation, params)


def _supports_tools(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if params.get("dtype") == "bfloat16" or params.get("input", "float32") != "float32":
        return "the helpers take and give float32"
    if operation == "encode_e8m0" and (params.get("rounding") != "down" or params.get("saturate")):
        return "MXScaleTensor rounds down and does not saturate"
    return ""


def subjects() -> list[dict[str, Any]]:
    """Return the torch reference and the kernels, FP4 (ties up) and FP8 apart, and the helpers."""
    described = lambda: {"triton": foreign.version("triton"), "triton_kernels": "checkout"}  # noqa: E731
    reference: Operations = {"quantize_mxfp4": quantize_mxfp4_torch, "dequantize_mxfp4": dequantize_mxfp4_torch}
    kernels: Operations = {"quantize_mxfp4": quantize_mxfp4, "dequantize_mxfp4": dequantize_mxfp4}
    reference_fp8: Operations = {"quantize_mx": quantize_mx_torch}
    kernels_fp8: Operations = {"quantize_mx": quantize_mx}
    fp4, fp8, cuda = ("TRITON_GEN1",), ("HOPPER",), ("cuda",)
    helpers = {f.__name__: f for f in (encode_e2m1, encode_e8m0, decode_e2m1, decode_e8m0)}
    return [
        *torch_subjects(f"{TORCH}-fp4", reference, fp4, module, described, _supports),
        *torch_subjects(f"{TORCH}-fp8", reference_fp8, fp8, module, described, _supports),
        *torch_subjects(f"{KERNELS}-fp4", kernels, fp4, module, described, _supports_kernels, cuda),
        *torch_subjects(f"{KERNELS}-fp8", kernels_fp8, fp8, module, described, _supports_kernels, cuda),
        *torch_subjects(TOOLS, helpers, ("HOPPER",), tools, described, _supports_tools),
    ]


_SCALE_ENDS = (
    "decode-scale-shifted",
    "a scale byte is shifted by 23: byte 0 is 0, not 2^-127, and byte 255 is Inf, not NaN",
    "N1",
    ((0, 0), (255, 255)),
)


_BUMPED = {"E2M1": (4, 0x01400000), "E4M3": (0xE1, 0x04600000), "E5M2": (0x7001, 0x07E00000)}
"""Element -> amax whose quotient by the largest value is subnormal and not zero, first and last."""


def _of_downcast(name: str, operation: str, params: Mapping[str, Any]) -> list[Difference]:
    """Return what the torch reference and the kernel share, for one target."""
    tiny = _BUMPED[params.get("element", "E2M1")]
    return [
        Difference(
            name,
            operation,
            "subnormal-quotient-bumps",
            "every subnormal quotient that is not zero goes up to byte 1, and a block of byte 0 is all zeros",
            "N3",
            (tiny,),
            tiny[0],
            0,
            1,
            of="amax",
            exact=False,
            params=params,
        ),
        nan_scale_codes(name, operation, 8 if not params else 128, **params),
        nan_block_is_zero_scale(
            name, operation, "NaN plus the rounding constant wraps around: byte 0, not 255", **params
        ),
    ]


_TORCH_FP4, _TORCH_FP8 = f"{TORCH}-fp4", f"{TORCH}-fp8"
DIFFERENCES = (
    *(entry for name in (_TORCH_FP4, f"{KERNELS}-fp4") for entry in _of_downcast(name, "quantize_mxfp4", {})),
    *(
        entry
        for name in (_TORCH_FP8, f"{KERNELS}-fp8")
        for element in ("E4M3", "E5M2")
        for entry in _of_downcast(name, "quantize_mx", {"element": element})
    ),
    Difference(_TORCH_FP4, "dequantize_mxfp4", *_SCALE_ENDS, 0, 0x00200000, 0, of="scales"),
    Difference(
        TOOLS,
        "encode_e2m1",
        "tie-by-epsilon",
        "the nearest code is found by comparing distances in float32, less "
        "1e-6 for even codes: numbers within 5e-7 of a midpoint go to the even code",
        "N2",
        tuple((sign | low, sign | high) for sign in (0, 1 << 31) for low, high in _NEAR_MIDPOINTS),
        0x3FA00001,
        3,
        2,
        exact=False,
    ),
    Difference(
        TOOLS,
        "encode_e2m1",
        "large-becomes-zero",
        "from 2^25 on the float32 distances to several codes are equal and the first one wins: 2^28 becomes 0",
        "N2",
        ((0x4C000001, INF32 - 1), (0xCC000001, 0xFF7FFFFF)),
        0x4C000003,
        7,
        4,
        exact=False,
    ),
    Difference(
        TOOLS,
        "encode_e2m1",
        "e2m1-nan-sign",
        "a NaN keeps its sign: -6; in PTX and the model 6",
        "N2",
        (NEGATIVE_NAN,),
        0xFF800001,
        7,
        15,
    ),
    Difference(
        TOOLS, "encode_e8m0", "e8m0-zero-is-nan", "zero is NaN; the model gives 2^-127", "N1", ((0, 0),), 0, 0, 255
    ),
    Difference(
        TOOLS,
        "encode_e8m0",
        "e8m0-negative-is-nan",
        "a negative number is NaN; the model takes |x|",
        "N1",
        ((0x80000000, 0xFF7FFFFF),),
        0x80000000,
        0,
        255,
    ),
    Difference(
        TOOLS,
        "encode_e8m0",
        "log2-below-power-of-two",
        "floor(log2(x)) in float32 is one too large just below a power of two",
        "N1",
        tuple(((field << 23) - LOG2_SLACK, (field << 23) - 1) for field in range(1, 256)),
        0x007FFFFD,
        0,
        1,
        exact=False,
    ),
    Difference(
        f"{KERNELS}-fp4",
        "dequantize_mxfp4",
        "decode-scale-shifted",
        "byte 0 is 0, not 2^-127",
        "N1",
        ((0, 0),),
        0,
        0x0020,
        0,
        of="scales",
    ),
    Difference(
        f"{_TORCH_FP4}/cuda",
        "quantize_mxfp4",
        "division-by-reciprocal-on-cuda",
        "3 * 2^-149 / 6 is a tie to 0; on the GPU the constant's reciprocal is multiplied, and it is not",
        "N3",
        ((3, 3),),
        3,
        0,
        1,
        of="amax",
        exact=False,
    ),
)
"""Found in triton 3.9.0 and in the copy of triton_kernels of 2026-08-21."""
