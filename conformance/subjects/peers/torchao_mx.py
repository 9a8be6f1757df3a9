"""torchao's MX formats: `to_mx` and `to_dtype` in torch, the four scale rules; its Triton cast to MXFP8 on a GPU.

What happens to Inf, and to blocks whose scale is 2^-127, changed after release 0.18 (pytorch/ao#4725), so there are two
sets of subjects; which one the installed torchao is, is asked of it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from refnum.errors import UnsupportedError

from . import foreign
from .difference import INF32, LOG2_SLACK, POSITIVE_NAN, Difference, nvfp4_nan_block
from .torch_peer import Operations, torch_subjects

CHECKOUTS = ("", "ao", "torchao")
RULES = {"FLOOR": "OCP", "CEIL": "CEIL", "EVEN": "EVEN", "RCEIL": "HOPPER"}
"""ScaleCalculationMode -> the profile that it is judged as."""

_DTYPES = {"E2M1": "float4_e2m1fn_x2", "E4M3": "float8_e4m3fn", "E5M2": "float8_e5m2",
           "E2M3": "fp6_e2m3", "E3M2": "fp6_e3m2"}  # fmt: skip
NVFP4_VARIANT = "TORCHAO"
ELEMENTS = ("E2M1", "E4M3", "E5M2", "E2M3", "E3M2")


def _name(rule: str, old: bool = False) -> str:
    return f"torchao{'-0.18' if old else ''}-{rule.lower()}"


@functools.cache
def module() -> Any:
    """Return torchao's MX module, imported quietly: it complains of GPU extensions that a CPU does not need."""
    logging.disable(logging.WARNING)
    try:
        return foreign.load("torchao.prototype.mx_formats.mx_tensor", CHECKOUTS)
    finally:
        logging.disable(logging.NOTSET)


def nvfp4_module() -> Any:
    """Return torchao's NVFP4 module."""
    module()
    return foreign.load("torchao.prototype.mx_formats.nvfp4_tensor", CHECKOUTS)


@functools.cache
def is_old() -> bool:
    """Whether an Inf in a block still gives a finite scale, as up to release 0.18."""
    import torch

    mx = module()
    scale, _ = mx.to_mx(torch.full((1, 32), torch.inf), torch.float8_e4m3fn, 32, mx.ScaleCalculationMode.FLOOR)
    return int(scale.view(torch.uint8)[0]) != 255


def _element(name: str) -> Any:
    import torch

    return getattr(torch, _DTYPES[name], _DTYPES[name])


def quantisers(rule: str) -> dict[str, Callable[..., Any]]:
    """Return `to_mx` by a key of `RULES`, as the operations that it implements."""

    def quantize(x: Any, element: str) -> tuple[Any, Any]:
        import torch

        if x.ndim != 2:
            raise ValueError("the operation takes two axes; to_mx takes others too")
        mx = module()
        scales, data = mx.to_mx(x, _element(element), 32, getattr(mx.ScaleCalculationMode, rule))
        return data.view(torch.uint8), scales.view(torch.uint8)

    def quantize_mxfp4(x: Any) -> tuple[Any, Any]:
        return quantize(x, "E2M1")

    def quantize_mx(x: Any, element: str = "E2M1") -> tuple[Any, Any]:
        codes, scales = quantize(x, element)
        if element != "E2M1":
            return codes, scales
        import torch

        return torch.stack((codes & 15, codes >> 4), -1).reshape(x.shape), scales

    return {"quantize_mxfp4": quantize_mxfp4, "quantize_mx": quantize_mx}


def dequantize_mxfp4(packed: Any, scales: Any, dtype: str = "float32") -> Any:
    """to_dtype."""
    import torch

    return (
        module()
        .to_dtype(packed, scales.view(torch.float8_e8m0fnu), _element("E2M1"), 32, getattr(torch, dtype))
        .contiguous()
    )


def dequantize_mx(codes: Any, scales: Any, element: str = "E2M1", dtype: str = "float32") -> Any:
    """to_dtype of E4M3 or E5M2 codes."""
    import torch

    kind = _element(element)
    data = codes.view(kind) if element in ("E4M3", "E5M2") else codes
    return module().to_dtype(data, scales.view(torch.float8_e8m0fnu), kind, 32, getattr(torch, dtype)).contiguous()


def quantize_nvfp4(x: Any, tensor_amax: Any, variant: str = NVFP4_VARIANT) -> tuple[Any, Any, Any]:
    """nvfp4_quantize with the tensor scale of per_tensor_amax_to_scale."""
    import torch

    nvfp4 = nvfp4_module()
    scales, packed = nvfp4.nvfp4_quantize(x.contiguous(), 16, nvfp4.per_tensor_amax_to_scale(tensor_amax))
    return packed, scales.view(torch.uint8), tensor_amax


def _triton(x: Any, element: str = "E4M3") -> tuple[Any, Any]:
    """triton_to_mxfp8_dim0 with rounding up: bfloat16 in, E4M3 out."""
    import torch

    kernels = foreign.load("torchao.prototype.mx_formats.kernels", CHECKOUTS)
    codes, scales = kernels.triton_to_mxfp8_dim0(x.contiguous(), 32, "rceil")
    return codes.view(torch.uint8), scales.view(torch.uint8)


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if params.get("input") == "float16":
        return "to_mx takes float32 and bfloat16"
    if params.get("element") == "MXINT8":
        return "torchao has no MXINT8"
    if operation == "dequantize_mx" and params.get("element") not in ("E4M3", "E5M2"):
        return "judged through dequantize_mxfp4" if params.get("element") == "E2M1" else "6-bit codes come back packed"
    return ""


def _supports_nvfp4(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if params.get("variant") != NVFP4_VARIANT or params.get("tile", (1,))[0] != 1:
        return f"nvfp4_quantize is {NVFP4_VARIANT} in blocks of one row"
    return "nvfp4_quantize takes float32 and bfloat16" if params.get("input") == "float16" else ""


def _supports_triton(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if params.get("input") != "bfloat16" or params.get("element") != "E4M3":
        return "the Triton cast takes bfloat16 and gives E4M3"
    return ""


def _probe(old: bool) -> Callable[[], None]:
    def probe() -> None:
        module()
        if is_old() != old:
            raise UnsupportedError(
                "this torchao is newer than 0.18" if old else "this torchao is a release up to 0.18, see torchao-0.18-*"
            )

    return probe


def _probe_triton() -> None:
    if not hasattr(foreign.load("torchao.prototype.mx_formats.kernels", CHECKOUTS), "triton_to_mxfp8_dim0"):
        raise UnsupportedError("this torchao has no triton_to_mxfp8_dim0")


def subjects() -> list[dict[str, Any]]:
    """Return a subject for each scale rule, for both generations, on both devices, and the Triton cast."""
    decoders: Operations = {"dequantize_mxfp4": dequantize_mxfp4, "dequantize_mx": dequantize_mx}
    described = lambda: {"torchao": foreign.version("torchao")}  # noqa: E731
    found: list[dict[str, Any]] = []
    for old in (False, True):
        for rule, profile in RULES.items():
            operations: Operations = {**quantisers(rule), **(decoders if rule == "RCEIL" else {})}
            found += torch_subjects(_name(rule, old), operations, (profile,), _probe(old), described, _supports)
    found += torch_subjects(
        "torchao-nvfp4", {"quantize_nvfp4": quantize_nvfp4}, (), nvfp4_module, described, _supports_nvfp4
    )
    return found + torch_subjects(
        "torchao-triton", {"quantize_mx": _triton}, ("HOPPER",), _probe_triton, described, _supports_triton, ("cuda",)
    )


_LOST = {"E2M1": 0x01400001, "E2M3": 0x01700001, "E3M2": 0x02600001, "E4M3": 0x04600001, "E5M2": 0x07E00001}
"""As for the CUDA headers: the one amax whose product with the reciprocal is subnormal and rounds to a power of two."""
_TO_INF = {"E2M1": 0x7F600000, "E2M3": 0x7F780000, "E3M2": 0x7F700000, "E4M3": 0x7F780000, "E5M2": 0x7F700000}
"""From here on EVEN rounds amax to 2^128."""
_NAN_CODES = {"E2M1": (3, 3), "E2M3": (12, 12), "E3M2": (14, 14), "E4M3": (127, 127), "E5M2": (127, 127)}
"""First code of a block with an Inf, with a NaN, in its first place."""

_VARIANTS = (("quantize_mxfp4", "E2M1", {}), *(("quantize_mx", name, {"element": name}) for name in ELEMENTS))


def _known(rule: str) -> list[Difference]:
    """Return the differences of one rule of the newer generation."""
    found = []
    for operation, element, params in _VARIANTS:
        words = "element codes under byte 255 are those of the numbers divided by NaN; the model writes zeros"
        for (low, high), code in zip(((INF32, INF32), POSITIVE_NAN), _NAN_CODES[element], strict=True):
            found.append(
                Difference(
                    _name(rule),
                    operation,
                    "nan-scale-codes",
                    words,
                    "N4",
                    ((low, high),),
                    low,
                    0,
                    code,
                    of="amax",
                    output="codes",
                    params=params,
                )
            )
        if rule == "EVEN":
            top = _TO_INF[element]
            found.append(
                Difference(
                    _name(rule),
                    operation,
                    "even-overflows-to-nan",
                    "amax is rounded to 2^128, taken for Inf, and a finite block becomes NaN",
                    "N3",
                    ((top, INF32 - 1),),
                    top,
                    {"E2M1": 253, "E2M3": 253, "E3M2": 251, "E4M3": 247, "E5M2": 240}[element],
                    255,
                    of="amax",
                    params=params,
                )
            )
        if rule == "RCEIL":
            lost = _LOST[element]
            found.append(
                Difference(
                    _name(rule),
                    operation,
                    "rceil-subnormal-quotient",
                    "amax times 1/m in float32 is subnormal and drops the last bit: the scale is 2^-127, not 2^-126",
                    "N3",
                    ((lost, lost),),
                    lost,
                    1,
                    0,
                    of="amax",
                    params=params,
                )
            )
    return found


_OLD_INF = {"E2M1": 253, "E2M3": 253, "E3M2": 251, "E4M3": 247, "E5M2": 240}
_LARGEST = {"E2M1": 0x400000, "E2M3": 0x700000, "E3M2": 0x600000, "E4M3": 0x600000, "E5M2": 0x600000}
"""Fraction bits of the element's largest value: amax just above it, times a power of two, takes the next scale."""


_FIRST_ABOVE = {"E2M1": 0x01C00001, "E2M3": 0x01F00001, "E3M2": 0x02E00001, "E4M3": 0x04E00001, "E5M2": 0x08600001}
"""The next float32 after m * 2^-126, whose scale is byte 2."""


def _known_old(rule: str) -> list[Difference]:
    """Return the differences of one rule of release 0.18."""
    name, found = _name(rule, old=True), []
    for operation, element, params in _VARIANTS:
        code, inf = _NAN_CODES[element][1], 254 if rule == "RCEIL" else _OLD_INF[element]
        applied = "1" if rule == "RCEIL" else "2^-126"
        found += [
            Difference(
                name,
                operation,
                "inf-block-clips",
                "an Inf gives a finite scale; in the model the block is NaN",
                "N4",
                ((INF32, INF32),),
                INF32,
                255,
                inf,
                of="amax",
                params=params,
            ),
            Difference(
                name,
                operation,
                "nan-scale-codes",
                "element codes under byte 255 are those of the numbers divided by NaN; the model writes zeros",
                "N4",
                (POSITIVE_NAN,),
                POSITIVE_NAN[0],
                0,
                code,
                of="amax",
                output="codes",
                params=params,
            ),
            Difference(
                name,
                operation,
                "byte-0-applied-wrong",
                f"a block of byte 0, 2^-127, is divided by {applied}",
                "N5",
                ((0, 0),),
                0,
                24 if element == "E5M2" else 1,
                20 if element == "E5M2" and rule != "RCEIL" else 0,
                of="byte",
                output="codes",
                exact=False,
                params=params,
            ),
        ]
        if rule == "RCEIL":
            top = _LARGEST[element]
            found.append(
                Difference(
                    name,
                    operation,
                    "log2-above-power-of-two",
                    "ceil(log2(amax / m)) in float32 is one too small just above m * 2^k",
                    "N3",
                    tuple((field << 23 | top | 1, (field << 23 | top) + LOG2_SLACK) for field in range(255)),
                    _FIRST_ABOVE[element],
                    2,
                    1,
                    of="amax",
                    exact=False,
                    params=params,
                )
            )
    return found


DIFFERENCES = (
    *(difference for rule in RULES for difference in (*_known(rule), *_known_old(rule))),
    nvfp4_nan_block(
        "torchao-nvfp4", 0x3B, 0x7F, "a NaN is the maximum of its block: the scale is NaN, and every code is that of 2"
    ),
)
"""Found in the checkout of 2026-08-21 and in release 0.18.0."""
