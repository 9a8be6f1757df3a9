"""fouroversix's reference in torch: MXFP4 by its static rule of 6, NVFP4 by that rule and by both adaptive ones.

The package imports transformers; what is judged are the functions of its reference file, run by themselves in the
order of its `quantize`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from . import foreign
from .difference import (
    INF32,
    POSITIVE_NAN,
    TINY,
    Difference,
    Range,
    minus_zero_lost,
    nan_scale_codes,
    nvfp4_minus_zero,
    nvfp4_nan_block,
)
from .torch_peer import float32_only, torch_subjects

NAME = "fouroversix"
CHECKOUTS = ("fouroversix/src",)
_STEPS = (
    "quantize_to_mxfp4",
    "fake_quantize_to_e2m1",
    "quantize_bf16_to_unpacked_fp4",
    "pack_unpacked_fp4",
    "compute_nv_scale_factors",
    "quantize_to_nvfp4",
    "select_fouroversix",
    "nvfp4_fouroversix_block_scaled_quantization",
    "E2M1_MAX_VALUE",
    "E4M3_MAX_FOUROVERSIX",
)
RULES = {"TE_2_8": "static_6", "FOUR_OVER_SIX": "mae", "FOUR_OVER_SIX_MSE": "mse"}
"""Variant of N21.3 -> scale rule."""
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


def quantize_nvfp4(x: Any, tensor_amax: Any, variant: str = "FOUR_OVER_SIX_MSE") -> tuple[Any, Any, Any]:
    """quantize(fp4_format=nvfp4, round_style=nearest) by the scale rule of a variant."""
    import torch

    f = functions()
    rule, nearest = getattr(f["ScaleRule"], RULES[variant]), f["RoundStyle"].nearest
    blocks, amax = x.float().reshape(-1, 16), tensor_amax.reshape(())
    if variant == "TE_2_8":
        scaled, scales = f["quantize_to_nvfp4"](blocks, amax, scale_rule=rule, round_style=nearest)
        values = f["fake_quantize_to_e2m1"](scaled, round_style=nearest)
    else:
        step = f["nvfp4_fouroversix_block_scaled_quantization"]
        values, scales = step(blocks, amax, scale_rule=rule, round_style=nearest)
    codes = f["quantize_bf16_to_unpacked_fp4"](values.bfloat16().reshape_as(x))
    return f["pack_unpacked_fp4"](codes), scales.view(torch.uint8).reshape(x.shape[0], -1), tensor_amax


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if operation == "quantize_nvfp4" and (params.get("variant") not in RULES or params.get("tile", (1,))[0] != 1):
        return f"its rules are those of {', '.join(RULES)}, judged in blocks of one row"
    return float32_only(operation, profile, params)


def subjects() -> list[dict[str, Any]]:
    """Return the subject on both devices."""
    return torch_subjects(
        NAME,
        {"quantize_mxfp4": quantize_mxfp4, "quantize_nvfp4": quantize_nvfp4},
        ("HOPPER",),
        functions,
        lambda: {"fouroversix": "checkout"},
        _supports,
    )


_TENSOR = 0x447A0000
"""The tensor maximum of the rows that NVFP4 is compared on."""


def _nvfp4(note: str, words: str, where: tuple[Range, ...], example: int, golden: int, peer: int) -> Difference:
    return Difference(NAME, "quantize_nvfp4", note, words, "N21", where, example, golden, peer, of="amax",
                      output="codes", exact=False)  # fmt: skip


DIFFERENCES = (
    nvfp4_nan_block(NAME, 0x3B, 0x7F, "a NaN is the maximum of its block: the scale is NaN, and every code is 11"),
    nvfp4_minus_zero(NAME, "-0 becomes code 0: the sign comes from sign(x)"),
    _nvfp4(
        "zero-scale-gives-zeros",
        "a block whose scale is code 0 is zeros; in the model its factor is the largest number",
        ((1, 0x3B200003),),
        0x01800000,
        7,
        0,
    ),
    _nvfp4(
        "above-six-wraps",
        "nothing is clamped to 6: where a small scale was rounded down, x / scale from 7 on becomes 8, "
        "whose code is that of -0",
        ((0x3BA00000, 0x3C990000),),
        0x3BA7FFFD,
        7,
        8,
    ),
    _nvfp4(
        "beyond-the-tensor-maximum",
        "nothing is clamped to 6: a block above the tensor maximum has other codes",
        ((_TENSOR + 1, INF32),),
        0x45000000,
        7,
        12,
    ),
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
