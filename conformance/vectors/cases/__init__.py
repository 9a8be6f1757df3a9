"""What the vectors ask, operation by operation: one literal table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from refnum.formats import E2M1, E4M3, E8M0, MX_ELEMENTS
from refnum.profiles import HOPPER, PROFILES, Profile

from ..draft import Draft
from . import columns, dequantise, mixed, movement, narrow, quantise, recast, scalars, steps, stochastic, swiglu, tiles

Drafts = Iterator[Draft]
DTYPES = ("float32", "bfloat16")
MODES = ("max", "amax")
FIVE = ("HOPPER", "OCP", "CEIL", "EVEN", "TE")


def _quantize_mxfp4(profile: Profile) -> Drafts:
    if profile.rounding == "stochastic":
        yield from stochastic.drafts()
        yield from mixed.stochastic()
        return
    if profile.name not in PROFILES:
        yield from quantise.zero_drafts()
        return
    yield from quantise.quantiser_drafts(E2M1)
    yield from narrow.narrow_drafts()
    if profile.name in FIVE:
        yield from mixed.quantizer(11, bfloat=profile is not HOPPER)
    if profile is HOPPER:
        yield from mixed.every_pattern()


def _quantize_mx(profile: Profile) -> Drafts:
    for name, fmt in MX_ELEMENTS.items():
        if fmt is E2M1 and profile is not HOPPER:
            continue  # `quantize_mxfp4` asks the same
        if profile.overflow == "nan":
            asked = list(steps.overflow_drafts(fmt)) if fmt.nan_code is not None else []
        else:
            asked = [*quantise.quantiser_drafts(fmt), *steps.even_drafts(fmt)]
            asked += list(mixed.quantizer(12)) if profile is HOPPER else []
        yield from (replace(draft, params={"element": name}) for draft in asked)


def _quantize_fp8_tiles(profile: Profile) -> Drafts:
    if profile.overflow == "nan":
        yield from tiles.overflow_drafts()
        return
    yield from tiles.tile_drafts()
    if profile is HOPPER:
        yield from mixed.tiles()


def _swiglu_quantize(profile: Profile) -> Drafts:
    for to in ("fp8", "mxfp4"):
        yield from swiglu.swiglu_quantize(to)
        yield from swiglu.on_the_edge(to)
        yield from swiglu.in_order(to)
        if profile is HOPPER:
            yield from mixed.swiglu(to)


def _dequantize_mx(_: Profile) -> Drafts:
    for fmt in MX_ELEMENTS.values():
        for dtype in DTYPES:
            yield from dequantise.mx_drafts(fmt, dtype)


def _each(function: Callable[[str], Drafts], choices: tuple[str, ...]) -> Callable[[Profile], Drafts]:
    return lambda _: (draft for choice in choices for draft in function(choice))


def _plain(*functions: Callable[[], Drafts]) -> Callable[[Profile], Drafts]:
    return lambda _: (draft for function in functions for draft in function())


def _two(first: Callable[[str], Drafts], second: Callable[[str], Drafts]) -> Callable[[str], Drafts]:
    return lambda choice: (draft for function in (first, second) for draft in function(choice))


def _moe(*recipe: str) -> Callable[[str], Drafts]:
    return lambda mode: mixed.mxfp4_moe(mode, recipe)


CASES: dict[str, Callable[[Profile], Drafts]] = {
    "quantize_mxfp4": _quantize_mxfp4,
    "dequantize_mxfp4": _each(dequantise.mxfp4_drafts, DTYPES),
    "quantize_mx": _quantize_mx,
    "dequantize_mx": _dequantize_mx,
    "quantize_fp8_tiles": _quantize_fp8_tiles,
    "dequantize_fp8_tiles": _each(dequantise.fp8_drafts, DTYPES),
    "fp8_to_mxfp4": _plain(recast.fp8_to_mxfp4, mixed.fp8_rows),
    "mxfp4_to_fp8": _each(_two(recast.mxfp4_to_fp8, mixed.mxfp4_rows), MODES),
    "mxfp4_to_fp8_columns": _each(_two(columns.mxfp4_to_fp8_columns, _moe("RECIPE_SIGN_LOST")), MODES),
    "mxfp4_to_fp8_rows_columns": _each(columns.mxfp4_to_fp8_rows_columns, MODES),
    "mxfp4_columns": _each(_two(columns.mxfp4_columns, _moe()), MODES),
    "fp8_columns": _each(_two(columns.fp8_columns, mixed.fp8_moe), ("rne", "te")),
    "swiglu_quantize": _swiglu_quantize,
    "swiglu_backward": _plain(swiglu.swiglu_backward, mixed.swiglu_back),
    "pack_payload": _plain(movement.pack_payload),
    "unpack_payload": _plain(movement.unpack_payload),
    "quantize_payload": _plain(movement.quantize_payload),
    "fp8_to_payload": _plain(movement.fp8_to_payload),
    "permute_unpack": _plain(movement.permute_unpack),
    "permute_pad": _plain(movement.permute_pad, mixed.moe_rows),
    "unpermute": _plain(movement.unpermute, mixed.moe_combine),
    "encode_e2m1": _plain(scalars.encode_e2m1),
    "encode_e4m3": _plain(scalars.encode_e4m3),
    "encode_e8m0": _plain(scalars.encode_e8m0),
    "decode_e2m1": _each(lambda dtype: scalars.decode_table(E2M1, dtype), DTYPES),
    "decode_e4m3": _each(lambda dtype: scalars.decode_table(E4M3, dtype), DTYPES),
    "decode_e8m0": _each(lambda dtype: scalars.decode_table(E8M0, dtype), DTYPES),
    "encode_element": _plain(scalars.encode_element, stochastic.encode_element),
    "decode_element": _plain(scalars.decode_element),
    "scales_to_gemm_float32": _plain(movement.scales_to_gemm_float32),
    "scales_to_packed_ue8m0": _plain(movement.scales_to_packed_ue8m0),
    "scales_to_swizzled": _plain(movement.scales_to_swizzled),
    "scales_from_layout": _plain(movement.scales_from_layout),
    "codes_to_packed": _plain(movement.codes_to_packed),
    "philox4x32": _plain(movement.philox4x32),
    "random_bits": _plain(stochastic.random_bits),
}
PROFILED: dict[str, tuple[str, ...]] = {
    "quantize_mxfp4": (
        *FIVE,
        "TE_PYTHON",
        "RECIPE",
        "DEEPGEMM",
        "MICROXCALING",
        "MICROXCALING_EVEN",
        "TRITON_GEN1",
        "MODELOPT",
        "MLX",
        "STOCHASTIC",
        "RECIPE+zero_scale=3",
    ),
    "quantize_mx": (*FIVE, "OCP+overflow=nan+nonfinite=satfinite"),
    "quantize_fp8_tiles": ("HOPPER", "OCP", "CEIL", "EVEN", "OCP+overflow=nan"),
    "fp8_to_mxfp4": ("HOPPER", "OCP", "CEIL", "EVEN", "RECIPE", "DEEPGEMM", "MICROXCALING", "TRITON_GEN1", "MODELOPT"),
    "swiglu_quantize": ("HOPPER", "OCP"),
}
"""Profiles of an operation; an operation that is not here has HOPPER alone."""
WHOLE: dict[str, tuple[str, ...]] = {
    "quantize_mxfp4": (*FIVE, "STOCHASTIC"),
    "quantize_mx": ("HOPPER", "OCP"),
    "quantize_fp8_tiles": ("HOPPER", "OCP"),
    "fp8_to_mxfp4": ("HOPPER", "OCP", "CEIL", "EVEN"),
}
"""Profiles that get every vector of an operation; the others get those whose answer differs from HOPPER's."""
