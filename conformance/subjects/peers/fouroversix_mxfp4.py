"""fouroversix's reference in torch: MXFP4 by its static rule of 6. Its functions are run by themselves.

The package imports transformers; what is judged are the functions of its reference file, called in the order of its
`quantize`.
"""

from __future__ import annotations

import functools
from typing import Any

from . import foreign
from .difference import POSITIVE_NAN, TINY, Difference, minus_zero_lost, nan_scale_codes
from .torch_peer import float32_only, torch_subjects

NAME = "fouroversix"
CHECKOUTS = ("fouroversix/src",)
_STEPS = (
    "quantize_to_mxfp4",
    "fake_quantize_to_e2m1",
    "quantize_bf16_to_unpacked_fp4",
    "pack_unpacked_fp4",
    "E2M1_MAX_VALUE",
)
_TYPES = ("DataType", "QuantizedValueType", "ScaleType", "ScaleRule", "RoundStyle")


@functools.cache
def functions() -> dict[str, Any]:
    """Return the steps and the types that they take."""
    from enum import Enum

    import torch

    types = foreign.excerpt(foreign.source("fouroversix/utils.py", CHECKOUTS), _TYPES, {"torch": torch, "Enum": Enum})
    steps = foreign.excerpt(
        foreign.source("fouroversix/quantize/pytorch/reference.py", CHECKOUTS), _STEPS, {"torch": torch, **types}
    )
    return {**types, **steps}


def quantize_mxfp4(x: Any) -> tuple[Any, Any]:
    """quantize(fp4_format=mxfp4, scale_rule=static_6, round_style=nearest)."""
    import torch

    f = functions()
    scaled, scales = f["quantize_to_mxfp4"](x.float().reshape(-1, 32), scale_rule=f["ScaleRule"].static_6)
    values = f["fake_quantize_to_e2m1"](scaled, round_style=f["RoundStyle"].nearest)
    codes = f["quantize_bf16_to_unpacked_fp4"](values.bfloat16().reshape_as(x))
    return f["pack_unpacked_fp4"](codes), scales.view(torch.uint8).reshape(x.shape[0], -1)


def subjects() -> list[dict[str, Any]]:
    """Return the subject on both devices."""
    return torch_subjects(
        NAME,
        {"quantize_mxfp4": quantize_mxfp4},
        ("HOPPER",),
        functions,
        lambda: {"fouroversix": "checkout"},
        float32_only,
    )


DIFFERENCES = (
    minus_zero_lost(NAME, "-0 becomes code 0: the sign comes from sign(x)"),
    Difference(
        NAME,
        "quantize_mxfp4",
        "subnormal-quotient-bumps",
        "every subnormal quotient that is not zero goes up to byte 1",
        "N3",
        ((4, TINY[1]),),
        4,
        0,
        1,
        of="amax",
        exact=False,
    ),
    nan_scale_codes(NAME, "quantize_mxfp4", 11),
    Difference(
        NAME,
        "quantize_mxfp4",
        "nan-block-wraps",
        "255 plus 1 in uint8: a NaN block has byte 0",
        "N4",
        (POSITIVE_NAN,),
        POSITIVE_NAN[0],
        255,
        0,
        of="amax",
    ),
)
"""Found in the checkout of 2026-04-21."""
