"""Questions about the MX quantisers: one MX element format, blocks of 32 float32 (clauses N2 to N5)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from refnum.formats import E2M1, Format

from ..draft import INF, LARGEST, NAN, SIGN, SNAN, Draft, bits, both_signs, float32, power, row
from . import grids

EXPONENTS = (-126, -100, -41, -3, 0, 1, 7, 100, 125)
"""Binades of the block maximum around which the scale rules are pinned."""
OTHER_EXPONENTS = (-126, -3, 0, 125)
FACTORS = (Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(13, 8), Fraction(7, 4), Fraction(31, 16))
"""Significands of the block maximum where one rule or another steps."""
SCALE_FLAGS = ("E8M0_MODE", "SCALE_BOUNDARY_INCLUSIVE", "AMAX_NARROWED")


def quantiser_drafts(fmt: Format) -> Iterator[Draft]:
    """Yield every draft of one element format: rounding, scale, tiny and special blocks, geometry."""
    yield from rounding_drafts(fmt)
    yield from scale_drafts(fmt)
    yield from tiny_drafts()
    yield from zero_drafts()
    yield from special_drafts()
    yield from lane_drafts()


def rounding_drafts(fmt: Format) -> Iterator[Draft]:
    """Ties, their neighbours and exact values, with the scale pinned by the largest value in lane 0."""
    up = grids.ties_up(fmt)
    zero = "E2M1_TIES_TO_ZERO" if fmt is E2M1 else "ELEMENT_TIES_TO_ZERO"
    middle = grids.midpoints(fmt)
    for exponent in (0, 3, -57) if fmt is E2M1 else (0,):
        yield Draft(
            {"x": float32(grids.pinned(fmt, exponent, middle))},
            flags=(up, zero, "E8M0_EXP2_INEXACT"),
            clause="N2",
            comment=f"every midpoint in both signs, scale 2^{exponent}",
        )
    for nudge, flags, word in (
        (1, ("E2M1_STICKY_LOST", "DOUBLE_ROUNDING_BF16", "DOUBLE_ROUNDING_FP16", "ELEMENT_TRUNCATED"), "above"),
        (-1, ("DOUBLE_ROUNDING_BF16", "DOUBLE_ROUNDING_FP16"), "below"),
    ):
        yield Draft(
            {"x": float32(grids.pinned(fmt, 0, middle, nudge))},
            flags=flags,
            clause="N2",
            comment=f"one float32 step {word} every midpoint, scale 2^0",
        )
    exact = [Fraction(0), *grids.values(fmt)]
    yield Draft(
        {"x": float32(grids.pinned(fmt, 0, exact))},
        flags=("SIGN_OF_ZERO_LOST", "TOP_VALUE_UNREACHABLE", "NIBBLE_ORDER", "SPLIT_HALF_ORDER", "SIGN_LOST"),
        clause="N2",
        comment="every value of the format in both signs, both zeros included: codes are exact",
    )
    room = Fraction(2) ** (fmt.emax + 1) - fmt.max_value
    beyond = [fmt.max_value + room * Fraction(n, 8) for n in (2, 4, 6)]
    top = power(0, Fraction(2) ** fmt.emax * Fraction(127, 64))
    yield Draft(
        {"x": float32([row([top, *both_signs(power(0, b) for b in beyond)])])},
        flags=("OVERFLOW_WRAPS",),
        clause="N3",
        comment="magnitudes between the largest value and the next power of two: a scale rule "
        "that rounds down saturates them",
    )


def scale_drafts(fmt: Format) -> Iterator[Draft]:
    """The block maximum one float32 step below, at and above every significand where a rule steps."""
    filler = (bits(1), SIGN | bits(0.75), bits(0.3125), SIGN | bits(0.0625))
    for exponent in EXPONENTS if fmt is E2M1 else OTHER_EXPONENTS:
        rows = []
        for factor in FACTORS:
            at = power(exponent, factor)
            rest = [_scaled(f, exponent) for f in filler]
            rows += [row([rest[0], at + step, *rest]) for step in (-1, 0, 1)]
        yield Draft(
            {"x": float32(rows)},
            clause="N3",
            flags=(
                *SCALE_FLAGS,
                "SCALE_LOG2_OF_QUOTIENT",
                "DIV_BY_RECIPROCAL",
                "SCALE_MANTISSA_MASK",
                "SCALE_FLOOR_OF_QUOTIENT",
                "SCALE_EMAX_NOT_SUBTRACTED",
            ),
            comment=f"block maxima {', '.join(map(str, FACTORS))} * 2^{exponent}, each one float32 step below, "
            "at and one step above",
        )
    yield Draft(
        {"x": float32([row([power(k) - 1, power(k - 3)]) for k in (-40, -9, -2, 2, 9, 40, 125)])},
        flags=("E8M0_EXP_BY_LOG2",),
        clause="N3",
        comment="block maxima one float32 step below a power of two: log2 in float32 rounds up to the integer",
    )
    yield Draft(
        {"x": float32([row([power(9), power(7, f)]) for f in (1, Fraction(3, 2), Fraction(5, 4))])},
        flags=("SCALE_ROUNDED_AFTER",),
        clause="N3",
        comment="elements that differ when they are divided by amax/m first and the scale is rounded later",
    )
    yield Draft(
        {
            "x": float32(
                [
                    row([LARGEST, power(126), SIGN | power(125, Fraction(5, 4)), power(124, 3)]),
                    row([0x7F600000, power(125)]),
                    row([0x7F5FFFFF, power(125)]),
                    row([0x7F400000, power(125)]),
                    row([0x7F400001, power(125)]),
                ]
            )
        },
        flags=("SCALE_OVERFLOW_TO_NAN",),
        clause="N3",
        comment="the largest float32, and maxima at the steps of the last binade: bytes stay finite",
    )


def tiny_drafts() -> Iterator[Draft]:
    """Maxima for which the scale meets its lower end, and subnormal inputs."""
    maxima = (
        0x00000001,
        0x00000002,
        0x00000003,
        0x00200000,
        0x00400000,
        0x00400001,
        0x00600000,
        0x007FFFFF,
        0x00800000,
        0x00800001,
        0x00C00000,
        0x01000000,
    )
    yield Draft(
        {"x": float32([row([m, m >> 1, SIGN | (m >> 2), SIGN | m]) for m in maxima])},
        flags=("FTZ_SILENT", "SCALE_EXPONENT_WRAPS", "AMAX_CLAMP", "SCALE_MIN_NORMAL"),
        clause="N3",
        comment="subnormal and smallest normal block maxima: byte 0 is 2^-127 and acts exactly",
    )
    yield from _clamped_drafts()


def _clamped_drafts() -> Iterator[Draft]:
    """Subnormal quotients, and scales that meet the clamp."""
    edges = (
        0x01400000,
        0x013FFFFF,
        0x01400001,
        0x01800000,
        0x01800001,
        0x01C00000,
        0x01C00001,
        0x01FFFFFF,
        0x02000000,
        0x02400000,
        0x02400001,
    )
    yield Draft(
        {"x": float32([row([m, m >> 1, SIGN | (m - 1), m - 0x00800000, 0x00400000]) for m in edges])},
        flags=("E8M0_SUBNORMAL_IN", "AMAX_CLAMP"),
        clause="N3",
        comment="maxima near 6 * 2^-127 and 6 * 2^-126, where amax/6 is subnormal in float32",
    )
    yield Draft(
        {
            "x": float32(
                [
                    row([0x00000007, 0x00000001, SIGN | 0x00000003, 0x00000005]),
                    row([0x00100000, 0x00080000, 0x00080001, SIGN | 0x00180000, 0x00040000]),
                ]
            )
        },
        flags=("FTZ_SILENT", "SCALE_CLAMP_IGNORED"),
        clause="N3",
        comment="the scale is clamped at 2^-127: elements are rounded at the clamped scale",
    )
    yield Draft(
        {
            "x": float32(
                [
                    row([bits(0.00006103515625), bits(0.000030517578125)]),
                    row([power(-40), power(-41)]),
                    row([power(-14) + 1, power(-15)]),
                ]
            )
        },
        flags=("AMAX_CLAMP",),
        clause="N3",
        comment="maxima below 1e-4: no clamp acts",
    )


def zero_drafts() -> Iterator[Draft]:
    """Zero blocks of either sign, and zeros beside numbers."""
    yield Draft({"x": float32([row([])])}, flags=("ZERO_BLOCK_BYTE",), clause="N4", comment="a block of +0")
    yield Draft(
        {"x": float32([row([], fill=SIGN)])},
        flags=("ZERO_BLOCK_BYTE", "SIGN_OF_ZERO_LOST"),
        clause="N4",
        comment="a block of -0",
    )
    yield Draft(
        {"x": float32([row([0, SIGN, 0, 0, SIGN]) + row([bits(1), 0, SIGN, SIGN | bits(2.0**-20), 1])])},
        flags=("ZERO_BLOCK_BYTE", "SIGN_OF_ZERO_LOST"),
        clause="N4",
        comment="a zero block of mixed signs beside a block whose negative elements underflow to zero",
    )


def special_drafts() -> Iterator[Draft]:
    """NaN and Inf in the first, a middle and the last lane, alone and together."""
    rest = [bits(1), SIGN | bits(3), bits(0.5), SIGN, power(125)]
    for lane in (0, 15, 31):
        for name, pattern in (("NaN", NAN), ("-NaN", SIGN | NAN), ("a signalling NaN", SNAN)):
            flags = ("AMAX_DROPS_NAN", "SPECIAL_INPUT_UNDEFINED") if name != "a signalling NaN" else ("AMAX_DROPS_NAN",)
            yield Draft(
                {"x": float32([_place(rest, lane, pattern)])},
                flags=flags,
                clause="N4",
                comment=f"{name} in lane {lane}",
            )
        for name, pattern in (("Inf", INF), ("-Inf", SIGN | INF)):
            yield Draft(
                {"x": float32([_place(rest, lane, pattern)])},
                flags=("INF_BLOCK_POLICY",),
                clause="N4",
                comment=f"{name} in lane {lane}",
            )
    yield Draft(
        {"x": float32([_place(_place(rest, 3, INF), 30, SIGN | NAN)])},
        flags=("AMAX_DROPS_NAN",),
        clause="N4",
        comment="Inf and NaN in one block",
    )
    yield Draft(
        {"x": float32([row([INF, LARGEST, SIGN | power(127), power(126), SIGN | power(125), power(124), 0, SIGN])])},
        flags=("INF_BLOCK_POLICY", "BYTE_254_RECIPROCAL"),
        clause="N4",
        comment="Inf beside large finite elements: under `satfinite` they are encoded at 2^127",
    )
    yield Draft(
        {"x": float32([row([NAN], 32) + row([bits(1), bits(2)]) + row([INF], 32) + row([bits(-0.5)])])},
        flags=("AMAX_DROPS_NAN", "INF_BLOCK_POLICY", "SCALE_OF_NEIGHBOUR"),
        clause="N4",
        comment="special blocks beside ordinary ones: nothing leaks",
    )


def lane_drafts() -> Iterator[Draft]:
    """Which lane holds the maximum, which block it belongs to, and empty tensors."""
    rows = [[bits(96) if lane == r else bits(1) for lane in range(32)] for r in range(32)]
    yield Draft(
        {"x": float32(rows)}, flags=("AMAX_LANE_LEFT_OUT",), clause="N5", comment="row r has its maximum in lane r"
    )
    rows = [[SIGN | bits(96) if lane == r else bits(1) for lane in range(32)] for r in (0, 1, 15, 16, 30, 31)]
    yield Draft(
        {"x": float32(rows)},
        flags=("AMAX_WITHOUT_ABS", "AMAX_LANE_LEFT_OUT"),
        clause="N5",
        comment="the maximum is negative",
    )
    ramp = [bits(Fraction(k % 13 + 1, 4) * 2 ** (k // 32 * 3)) | (SIGN if k % 3 == 0 else 0) for k in range(96)]
    yield Draft(
        {"x": float32([ramp, ramp[::-1]])},
        clause="N5",
        flags=("BLOCK_BOUNDARY_SHIFTED", "SCALE_OF_NEIGHBOUR", "TAIL_OR_LATER_BATCH", "NIBBLE_ORDER"),
        comment="three blocks a row with scales eight times apart, the second row reversed",
    )
    yield Draft({"x": float32([]).reshape(0, 64)}, clause="N0", comment="no rows: empty outputs of the right shape")


def _place(lanes: list[int], lane: int, pattern: int) -> list[int]:
    out = row(lanes)
    out[lane] = pattern
    return out


def _scaled(pattern: int, exponent: int) -> int:
    """Return pattern * 2**(exponent - 1), or a signed zero where that leaves the normal range."""
    field = ((pattern >> 23) & 255) + exponent - 1
    return (pattern & SIGN) | ((pattern & 0x7FFFFF) | field << 23 if 0 < field < 255 else 0)
