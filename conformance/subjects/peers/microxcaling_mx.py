"""microxcaling, the emulation library that came with the standard: `_quantize_mx`, by both of its roundings.

It quantises and gives back values, never bytes. So values are judged: against the golden codes and scales decoded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import foreign
from .difference import LOG2_SLACK, Difference
from .torch_peer import float32_only, torch_subjects

CHECKOUTS = ("microxcaling",)
ROUNDS = {"nearest": ("microxcaling", "MICROXCALING"), "even": ("microxcaling-even", "MICROXCALING_EVEN")}


@functools.cache
def quantise() -> Any:
    """Return `_quantize_mx`."""
    return foreign.load("mx.mx_ops", CHECKOUTS)._quantize_mx


def quantiser(rounding: str) -> Callable[..., Any]:
    """Return `_quantize_mx` to MXFP4 by a key of `ROUNDS`."""

    def quantize_mxfp4(x: Any) -> Any:
        return quantise()(x.float(), 8, "fp4_e2m1", axes=[-1], block_size=32, round=rounding).contiguous()

    quantize_mxfp4.gives_values = True  # type: ignore[attr-defined]
    return quantize_mxfp4


def subjects() -> list[dict[str, Any]]:
    """Return a subject for each rounding."""
    return [
        subject
        for rounding, (name, profile) in ROUNDS.items()
        for subject in torch_subjects(
            name,
            {"quantize_mxfp4": quantiser(rounding)},
            (profile,),
            quantise,
            lambda: {"microxcaling": "checkout"},
            float32_only,
        )
    ]


_UNDERFLOW = {"nearest": 0xBE7FFFFF, "even": 0xBE800000}
"""The largest negative quotient that becomes zero."""

DIFFERENCES = tuple(
    difference
    for rounding, (name, _) in ROUNDS.items()
    for difference in (
        Difference(
            name,
            "quantize_mxfp4",
            "underflow-keeps-sign",
            "a negative number that becomes zero keeps its sign; only -0 itself loses it",
            "N2",
            ((0x80000001, _UNDERFLOW[rounding]),),
            0x80000001,
            0,
            0x80000000,
            of="quotient",
            output="codes",
            exact=False,
        ),
        Difference(
            name,
            "quantize_mxfp4",
            "half-added-in-float32",
            "floor(x + 0.5) in float32 takes the number just below a midpoint for the midpoint",
            "N2",
            ((0x3E7FFFFF,) * 2, (0xBE7FFFFF,) * 2),
            0x3E7FFFFF,
            0,
            0x3F000000,
            of="quotient",
            output="codes",
            exact=False,
        ),
        Difference(
            name,
            "quantize_mxfp4",
            "log2-below-power-of-two",
            "floor(log2(amax)) in float32 is one too large just below a power of two",
            "N3",
            tuple(((field << 23) - LOG2_SLACK, (field << 23) - 1) for field in range(1, 256)),
            0x0D7FFFFF,
            0x0D400000,
            0x0D800000,
            of="amax",
            output="codes",
            exact=False,
        ),
    )
)
"""Found in the checkout of 2024-08-19. Values are compared: golden and peer are the bits of the value."""
