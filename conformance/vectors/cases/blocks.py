"""Questions about the MX block formats (N5), put together from the questions by theme."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refnum.formats import E2M1, MX_ELEMENTS
from refnum.profiles import HOPPER, PROFILES, Profile

from ..draft import DTYPES, FIVE, Draft, Questions, each
from . import dequantise, mixed, narrow, quantise, steps, stochastic


def _quantize_mxfp4(profile: Profile) -> Iterator[Draft]:
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


def _quantize_mx(profile: Profile) -> Iterator[Draft]:
    for name, fmt in MX_ELEMENTS.items():
        if fmt is E2M1 and profile is not HOPPER:
            continue  # `quantize_mxfp4` asks the same
        if profile.overflow == "nan":
            asked = list(steps.overflow_drafts(fmt)) if fmt.nan_code is not None else []
        else:
            asked = [*quantise.quantiser_drafts(fmt), *steps.even_drafts(fmt)]
            asked += list(mixed.quantizer(12)) if profile is HOPPER else []
        yield from (replace(draft, params={"element": name}) for draft in asked)


def _dequantize_mx(_: Profile) -> Iterator[Draft]:
    for fmt in MX_ELEMENTS.values():
        for dtype in DTYPES:
            yield from dequantise.mx_drafts(fmt, dtype)


quantize_mxfp4 = Questions(
    _quantize_mxfp4,
    profiles=(*FIVE, "TE_PYTHON", "RECIPE", "DEEPGEMM", "MICROXCALING", "MICROXCALING_EVEN", "TRITON_GEN1", "MODELOPT",
              "MLX", "STOCHASTIC", "RECIPE+zero_scale=3"),
    whole=(*FIVE, "STOCHASTIC"),
)  # fmt: skip
dequantize_mxfp4 = each(DTYPES, dequantise.mxfp4_drafts)
quantize_mx = Questions(_quantize_mx, profiles=(*FIVE, "OCP+overflow=nan+nonfinite=satfinite"), whole=("HOPPER", "OCP"))
dequantize_mx = Questions(_dequantize_mx)
