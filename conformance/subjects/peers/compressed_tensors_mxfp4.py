"""compressed-tensors: the scales of `generate_mx_scales` and the E2M1 of `cast_to_fp4`, as in vLLM's checkpoints.

Only these functions are run: the package itself needs transformers. The scale byte is what a cast of the exponent to
uint8 gives.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from . import foreign
from .difference import INF32, Difference, minus_zero_lost, special_exponent_wraps
from .torch_peer import float32_only, torch_subjects

NAME = "compressed-tensors"
CHECKOUTS = ("", "compressed-tensors/src", "ct")
_DATA = (
    "FloatArgs",
    "FP4_E2M1_DATA",
    "FP6_E2M3_DATA",
    "FP8_E4M3_DATA",
    "BFLOAT16_DATA",
    "FLOAT16_DATA",
    "FLOAT32_DATA",
    "FLOAT64_DATA",
)


@functools.cache
def functions() -> dict[str, Any]:
    """Return generate_mx_scales and cast_to_fp4."""
    import torch

    given: dict[str, Any] = {"torch": torch, "math": math, "dataclass": lambda cls: cls}
    data = foreign.excerpt(foreign.source("compressed_tensors/quantization/quant_args.py", CHECKOUTS), _DATA, given)
    scales = foreign.excerpt(
        foreign.source("compressed_tensors/quantization/utils/mxfp_utils.py", CHECKOUTS),
        ("_MX_ELEM_OFFSET", "round_to_power_2", "generate_mx_scales"),
        {**given, **data},
    )
    cast = foreign.excerpt(
        foreign.source("compressed_tensors/quantization/utils/fp4_utils.py", CHECKOUTS), ("cast_to_fp4",), given
    )
    return {**scales, **cast}


def quantize_mxfp4(x: Any) -> tuple[Any, Any]:
    """generate_mx_scales(amax), x / 2^(byte - 127), cast_to_fp4, two codes a byte."""
    import torch

    blocks = x.float().reshape(x.shape[0], -1, 32)
    exponent = functions()["generate_mx_scales"](blocks.abs().amax(-1))
    scales = exponent.to(torch.int64).to(torch.uint8)
    scale = 2.0 ** (scales.to(torch.int32) - 127).to(torch.float)
    values = functions()["cast_to_fp4"]((blocks / scale[..., None]).clone()).reshape(x.shape)
    return codes_of(values), scales


def codes_of(values: Any) -> Any:
    """Return values that E2M1 has as packed codes; the sign of zero is kept, anything else is code 0."""
    import torch

    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], device=values.device)
    code = (values.abs()[..., None] == table).to(torch.uint8).argmax(-1).to(torch.uint8)
    code = code | (torch.signbit(values).to(torch.uint8) << 3)
    return code[:, 0::2] | (code[:, 1::2] << 4)


def subjects() -> list[dict[str, Any]]:
    """Return the subject."""
    described = lambda: {"compressed-tensors": foreign.version("compressed-tensors")}  # noqa: E731
    return torch_subjects(
        NAME, {"quantize_mxfp4": quantize_mxfp4}, ("EVEN",), functions, described, float32_only, ("cpu",)
    )


DIFFERENCES = (
    minus_zero_lost(NAME, "-0 becomes code 0"),
    Difference(
        NAME,
        "quantize_mxfp4",
        "exponent-wraps",
        "the exponent is not clamped: where it is -1 the cast to uint8 gives byte 255, a NaN block",
        "N3",
        ((0x00600000, 0x00DFFFFF),),
        0x00600000,
        0,
        255,
        of="amax",
    ),
    Difference(
        NAME,
        "quantize_mxfp4",
        "even-overflows",
        "amax is rounded to 2^128; the exponent Inf becomes byte 0 on x86-64",
        "N3",
        ((0x7F600000, INF32 - 1),),
        0x7F600000,
        253,
        0,
        of="amax",
    ),
    *special_exponent_wraps(NAME, "the exponent is Inf or NaN and its cast to uint8 gives byte 0 on x86-64"),
)
"""Found in 0.20.0."""
