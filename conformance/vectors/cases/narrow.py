"""Questions about the quantisers with narrow inputs: bfloat16 and float16 are widened exactly (N0, N2 to N4)."""

from __future__ import annotations

from collections.abc import Iterator

from ..draft import Draft, bfloat16, float16, row


def narrow_drafts() -> Iterator[Draft]:
    """Yield the drafts of both types, for E2M1."""
    yield from _bfloat16()
    yield from _float16()


def _bfloat16() -> Iterator[Draft]:
    ties16 = [0x3E80, 0x3F40, 0x3FA0, 0x3FE0, 0x4020, 0x4060, 0x40A0]
    yield Draft(
        {"x": bfloat16([row([0x40C0, *(t | s for t in ties16 for s in (0, 0x8000))])])},
        clause="N2",
        flags=("E2M1_TIES_UP", "E2M1_TIES_TO_ZERO"),
        comment="bfloat16: every midpoint in both signs",
    )
    yield Draft(
        {"x": bfloat16([row([0x3F80 + f, 0x3E00, 0xBE80]) for f in range(128)])},
        clause="N3",
        flags=("E8M0_MODE", "SCALE_FLOOR_OF_QUOTIENT"),
        comment="bfloat16: every significand as the maximum",
    )
    yield Draft(
        {
            "x": bfloat16(
                [
                    row([0x0001, 0x8001]),
                    row([0x007F, 0x0040, 0x8020]),
                    row([0x0080, 0x0001]),
                    row([0x7F7F, 0x7E80]),
                    row([0x7FC0, 0x3F80]),
                    row([0xFF80, 0x3F80]),
                    row([0x8000, 0x8000]),
                ]
            )
        },
        clause="N4",
        flags=("FTZ_SILENT", "AMAX_DROPS_NAN", "INF_BLOCK_POLICY"),
        comment="bfloat16: subnormals, the largest, NaN, -Inf and -0",
    )


def _float16() -> Iterator[Draft]:
    half = [0x3400, 0x3A00, 0x3D00, 0x3F00, 0x4100, 0x4300, 0x4500]
    yield Draft(
        {"x": float16([row([0x4600, *(t | s for t in half for s in (0, 0x8000))])])},
        clause="N2",
        flags=("E2M1_TIES_UP", "E2M1_TIES_TO_ZERO"),
        comment="float16: every midpoint in both signs",
    )
    yield Draft(
        {"x": float16([row([0x4600, *(t + s for t in half for s in (1, -1))])])},
        clause="N2",
        flags=("DOUBLE_ROUNDING_BF16",),
        comment="float16: one step beside every midpoint",
    )
    yield Draft(
        {
            "x": float16(
                [
                    row([0x0001, 0x8001]),
                    row([0x03FF, 0x0200, 0x8100]),
                    row([0x0400, 0x0001]),
                    row([0x7BFF, 0x7800]),
                    row([0x7E00, 0x3C00]),
                    row([0xFC00, 0x3C00]),
                ]
            )
        },
        clause="N4",
        flags=("FTZ_HALF_INPUT", "AMAX_DROPS_NAN", "INF_BLOCK_POLICY"),
        comment="float16: subnormals, the largest, NaN and -Inf",
    )
