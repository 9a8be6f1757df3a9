"""Questions about FP8 tiles: both tile shapes, the scale at 448, zero and special tiles, every code (N4, N6)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from refnum.formats import E4M3
from refnum.profiles import HOPPER, Profile

from ..draft import (
    DTYPES,
    INF,
    LARGEST,
    NAN,
    SIGN,
    Draft,
    Questions,
    bfloat16,
    bits,
    each,
    float16,
    float32,
    power,
    row,
)
from . import grids, mixed

ROWS, WEIGHTS = {"tile": [1, 128]}, {"tile": [128, 128]}
FACTORS = (Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(7, 4), Fraction(15, 8), Fraction(63, 32))


def _overflow_drafts() -> Iterator[Draft]:
    """Tiles under a profile whose overflow is NaN: beside NaN and Inf, and where the scale leaves room to overflow."""
    beyond = [448, 449, 464, 465, 479, 480, 496, 511]
    for params in (ROWS, WEIGHTS):
        for name, pattern in (("NaN", NAN), ("Inf", INF), ("-Inf", SIGN | INF)):
            lanes = [pattern, *(bits(v) | s for v in (*beyond, 1000) for s in (0, SIGN)), LARGEST]
            yield Draft(
                {"x": float32([row(lanes, 160), row([bits(1)], 160)])},
                params,
                clause="N4",
                flags=("OVERFLOW_SATURATES",),
                comment=f"{name} in the tile: finite values beyond 464 overflow at scale 1",
            )
        yield Draft(
            {"x": float32([row([bits(v) | s for v in beyond for s in (0, SIGN)], 160)])},
            params,
            clause="N2",
            flags=("OVERFLOW_SATURATES",),
            comment="a scale rule that rounds down: 464 is the last value that is no overflow",
        )


def _tile_drafts() -> Iterator[Draft]:
    """Yield every draft for the two tile shapes."""
    yield from _rounding()
    yield from _scales()
    yield from _special()
    yield from _geometry()
    yield from _narrow()


def _rounding() -> Iterator[Draft]:
    middle = grids.midpoints(E4M3)
    yield Draft(
        {"x": float32(grids.pinned(E4M3, 0, middle, width=128))},
        ROWS,
        clause="N2",
        flags=("E4M3_TIES_UP",),
        comment="every midpoint in both signs, scale 2^0",
    )
    for nudge, word in ((1, "above"), (-1, "below")):
        yield Draft(
            {"x": float32(grids.pinned(E4M3, 0, middle, nudge, width=128))},
            ROWS,
            clause="N2",
            flags=("DOUBLE_ROUNDING_BF16", "DOUBLE_ROUNDING_FP16"),
            comment=f"one float32 step {word} every midpoint",
        )
    exact = [Fraction(0), *grids.values(E4M3)]
    yield Draft(
        {"x": float32(grids.pinned(E4M3, -20, exact, width=128))},
        ROWS,
        clause="N2",
        flags=("E4M3_NEG_ZERO", "E4M3_SATURATES_EARLY"),
        comment="every value in both signs, scale 2^-20",
    )


def _scales() -> Iterator[Draft]:
    for exponent in (-126, -110, -40, 0, 8, 60, 127):
        factors = [f for f in FACTORS if exponent < 127 or f < 2]
        rows = []
        for factor in factors:
            at = power(exponent, factor)
            steps = [(-1, 0, 1), (0, 1)][exponent == -126 and factor == 1]
            rows += [row([at + s, SIGN | power(exponent, Fraction(1, 2)) if exponent > -126 else 0], 32) for s in steps]
        flags = (
            "E8M0_MODE",
            "SCALE_BOUNDARY_INCLUSIVE",
            "AMAX_NARROWED",
            "DIV_BY_RECIPROCAL",
            "SCALE_LOG2_OF_QUOTIENT",
        )
        yield Draft(
            {"x": float32(rows)},
            ROWS,
            clause="N3",
            flags=flags if exponent > -110 else flags[:1] * (exponent > -119),
            comment=f"tile maxima around significands {', '.join(map(str, factors))} * 2^{exponent}",
        )
    tiny = (0x00000001, 0x00000007, 0x00400000, 0x00700000, 0x00700001, 0x00800000, 0x03E00000, 0x03E00001, 0x04600000)
    yield Draft(
        {"x": float32([row([m, m >> 1, SIGN | m >> 3], 32) for m in tiny])},
        ROWS,
        clause="N3",
        flags=("FTZ_SILENT", "TILE_RECIPROCAL_OVERFLOW", "AMAX_CLAMP"),
        comment="maxima so small that 448/amax overflows float32, or that the scale is clamped at byte 0",
    )


def _special() -> Iterator[Draft]:
    yield Draft(
        {"x": float32([row([], 32), row([], 32, SIGN)])},
        ROWS,
        clause="N4",
        flags=("TILE_ZERO_BYTE", "E4M3_NEG_ZERO"),
        comment="zero tiles of either sign: byte 127",
    )
    rest = [bits(1), SIGN | bits(447), bits(464), bits(465), SIGN | LARGEST, SIGN, bits(2.0**-9), bits(2.0**-10)]
    for name, pattern in (("NaN", NAN), ("-NaN", SIGN | NAN), ("Inf", INF), ("-Inf", SIGN | INF)):
        flags = ("TILE_NONFINITE", "AMAX_DROPS_NAN") if "NaN" in name else ("TILE_NONFINITE",)
        yield Draft(
            {"x": float32([row([*rest, pattern], 128)])},
            ROWS,
            clause="N4",
            flags=(*flags, "E4M3_NAN_SIGN") if name == "-NaN" else flags,
            comment=f"{name} in the tile: byte 127, finite values at scale 1",
        )
    yield Draft(
        {"x": float32([row([NAN, INF], 128) + row([bits(1)], 32)])},
        ROWS,
        clause="N4",
        flags=("TILE_NONFINITE",),
        comment="NaN and Inf in one tile, an ordinary short tile beside it",
    )


def _geometry() -> Iterator[Draft]:
    lanes = [[bits(900) if k == at else bits(3) for k in range(128)] for at in (0, 31, 32, 127)]
    yield Draft(
        {"x": float32(lanes)},
        ROWS,
        flags=("AMAX_LANE_LEFT_OUT", "TAIL_OR_LATER_BATCH"),
        comment="which lane holds the maximum",
    )
    ramp = [bits(Fraction(k % 29 + 1, 8) * 2 ** (k // 128 * 6)) | (SIGN if k % 5 == 0 else 0) for k in range(288)]
    for params, flags in ((ROWS, ("SCALE_OF_NEIGHBOUR", "PAD_STRIDE")), (WEIGHTS, ("TILE_GEOMETRY",))):
        yield Draft(
            {"x": float32([ramp, [p if p & 0x7FFFFFFF == 0 else p + (9 << 23) for p in ramp]])},
            params,
            flags=flags,
            comment="K = 288: two whole tiles and one of a single block, two rows 2^9 apart",
        )
    tall = [row([bits(Fraction(r + 1, 2))], 32, bits(0.25)) for r in range(130)]
    yield Draft(
        {"x": float32(tall)},
        WEIGHTS,
        flags=("TILE_GEOMETRY", "TAIL_OR_LATER_BATCH"),
        comment="130 rows: the second 128x128 tile has two",
    )
    yield Draft(
        {"x": float32([row([NAN], 32), row([bits(500)], 32), row([], 32)])},
        WEIGHTS,
        clause="N4",
        flags=("TILE_GEOMETRY", "TILE_NONFINITE"),
        comment="NaN in one row makes the whole 128x128 tile special",
    )
    yield Draft({"x": float32([]).reshape(0, 32)}, ROWS, clause="N0", comment="no rows")
    yield Draft({"x": float32([]).reshape(0, 32)}, WEIGHTS, clause="N0", comment="no rows, 128x128 tiles")


def _narrow() -> Iterator[Draft]:
    yield Draft(
        {"x": bfloat16([row([0x3F80 + f, 0x3E11, 0xBD93], 32) for f in range(128)])},
        ROWS,
        clause="N3",
        flags=("E8M0_MODE",),
        comment="bfloat16: every significand as the maximum",
    )
    yield Draft(
        {
            "x": float16(
                [row([0x7BFF, 0x0001, 0x8001, 0x3C01], 32), row([0x0001, 0x8003], 32), row([0xFC00, 0x3C00], 32)]
            )
        },
        ROWS,
        clause="N4",
        flags=("TILE_NONFINITE", "FTZ_HALF_INPUT"),
        comment="float16: the largest, subnormals, -Inf",
    )


def _fp8_drafts(dtype: str) -> Iterator[Draft]:
    """FP8 tiles of either shape: every code under the bytes, short tiles, all bytes as a tensor (N6)."""
    codes = np.arange(256, dtype=np.uint8)[None, :]
    rows = {"tile": [1, 128], "dtype": dtype}
    for byte in (0, 1, 119, 127, 128, 245, 246, 247, 254, 255):
        flags = {
            0: ("FTZ_SILENT", "E8M0_ZERO_IS_TINY"),
            127: ("E4M3_SUBNORMAL_SCALE", "E4M3_NEG_ZERO", "E4M3_TOP_IS_NAN"),
            247: ("DEQUANTISED_OVERFLOW_CLAMPED",),
            255: ("E8M0_FF_NOT_NAN",),
        }.get(byte, ())
        yield Draft(
            {"codes": codes, "scales": np.full((1, 2), byte, np.uint8)},
            rows,
            flags=flags,
            comment=f"every code under scale byte {byte}",
        )
    yield Draft(
        {"codes": np.resize(codes, (2, 160)), "scales": np.asarray([[125, 130], [121, 127]], np.uint8)},
        rows,
        flags=("PAD_STRIDE", "SCALE_OF_NEIGHBOUR"),
        comment="the second tile of each row is short",
    )
    yield Draft(
        {"codes": np.resize(codes, (3, 160)), "scales": np.asarray([[125, 130]], np.uint8)},
        {"tile": [128, 128], "dtype": dtype},
        flags=("SCALE_OF_NEIGHBOUR",),
        comment="128x128 tiles, short in both axes: one byte for all three rows",
    )
    if dtype != "float32":
        return
    yield Draft(
        {
            "codes": np.resize(codes, (256, 256)),
            "scales": np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2, axis=1),
        },
        rows,
        flags=("E4M3_SUBNORMAL_SCALE", "E8M0_FF_NOT_NAN"),
        tensor=True,
        comment="every code under every scale byte",
    )


def _quantise(profile: Profile) -> Iterator[Draft]:
    if profile.overflow == "nan":
        yield from _overflow_drafts()
        return
    yield from _tile_drafts()
    if profile is HOPPER:
        yield from mixed.tiles()


quantize_fp8_tiles = Questions(
    _quantise, profiles=("HOPPER", "OCP", "CEIL", "EVEN", "OCP+overflow=nan"), whole=("HOPPER", "OCP")
)
dequantize_fp8_tiles = each(DTYPES, _fp8_drafts)
