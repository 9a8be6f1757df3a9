"""PyTorch's own float8 dtypes on a GPU: the functions of `torch_dtypes`, where their kernels are others."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from . import torch_dtypes
from .difference import Difference
from .torch_peer import torch_subjects

NAME = "torch"


@functools.cache
def overflow() -> str:
    """Return what an overflow to float8_e4m3fn gives on the GPU: `saturate` or `nan`."""
    import torch

    code = int(torch.tensor([1e30], device="cuda").to(torch.float8_e4m3fn).view(torch.uint8)[0])
    return "saturate" if code == 0x7E else "nan"


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if operation == "encode_e4m3" and params.get("overflow") != overflow():
        return f"this torch's float8_e4m3fn cast does overflow={overflow()} on the GPU"
    if operation == "encode_e8m0" and (params.get("rounding") != "nearest" or params.get("saturate")):
        return "torch's float8_e8m0fnu rounds to nearest and does not saturate"
    return ""


def subjects() -> list[dict[str, Any]]:
    """Return the subject."""
    functions = (torch_dtypes.encode_e4m3, torch_dtypes.encode_e8m0, torch_dtypes.decode_e4m3, torch_dtypes.decode_e8m0)
    return torch_subjects(
        f"{NAME}/cuda", {f.__name__: f for f in functions}, ("HOPPER",), lambda: None, dict, _supports, ("cuda",)
    )


DIFFERENCES = (
    Difference(
        "torch/cuda",
        "decode_e4m3",
        "nan-payload",
        "NaN codes decode with all payload bits set",
        "N1",
        ((0x7F, 0x7F), (0xFF, 0xFF)),
        0x7F,
        0x7FC0,
        0x7FFF,
        of="codes",
        params={"dtype": "bfloat16"},
    ),
    Difference(
        "torch/cuda",
        "decode_e8m0",
        "nan-payload",
        "byte 255 decodes to 0x7FFF",
        "N1",
        ((0xFF, 0xFF),),
        0xFF,
        0x7FC0,
        0x7FFF,
        of="codes",
        params={"dtype": "bfloat16"},
    ),
)
"""Found in 2.11 on an H200, beside those of the CPU."""
