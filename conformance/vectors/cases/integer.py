"""Questions about the integer quantisers: ties, bounds of scales and zero points, numbers that are not finite (N26)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from ..draft import INF, LARGEST, NAN, SIGN, SNAN, Draft, float32, plain
from .estimators import _laid, _noise

ROUNDED = ("INT4_TIES_AWAY", "INT4_TRUNCATED")
SAWB = (*ROUNDED, "INT4_SYMMETRIC", "SAWB_CLIP_UNGUARDED", "SAWB_NONFINITE_COUNTED", "SAWB_SEVENTEEN_LEVELS")
AFFINE = (*ROUNDED, "AFFINE_BY_RECIPROCAL", "AFFINE_OTHER_BOUNDS", "AFFINE_ROUNDED_AFTER_ZERO", "AFFINE_SIGNED_CLAMP",
          "AFFINE_ZERO_IN_RANGE", "AFFINE_ZERO_POINT_LOST")  # fmt: skip
KEPT = (*ROUNDED, "INT4_SYMMETRIC", "KEPT_IN_SCALE", "KEPT_LATER_FIRST", "KEPT_ONE", "KEPT_QUOTIENT_FIRST")
QAT = (*ROUNDED, "QAT_NAN_DROPPED", "QAT_OTHER_RULE", "QAT_OTHER_VECTOR", "QAT_WITHOUT_EPSILON")
READ = ("INT4_UNSIGNED", "INT4_ZERO_ADDED", "INT4_ZERO_SCALED_ALONE", "INT4_SCALE_OF_NEIGHBOUR", "INT4_ZERO_SIGNED")
FP4 = ("FP4_TIES_AWAY", "FP4_TRUNCATED", "FP4_BY_SCALE", "FP4_ZERO_SIGN_LOST", "FP4_NAN_AS_ZERO", "FP4_OTHER_WIDTH",
       "FP4_NOT_CLIPPED", "FP4_FIRST_MAXVAL")  # fmt: skip
DTYPES = ("float32", "bfloat16", "float16")
BELL = tuple(np.round(np.linspace(-2.5, 2.5, 48) * abs(np.linspace(-2.5, 2.5, 48)) * 64) / 64)
SPECIAL = (0, SIGN, 1, SIGN | 1, 0x00800000, 0x3F800000, 0xBF000000, LARGEST, SIGN | LARGEST, INF, SIGN | INF, NAN,
           SIGN | NAN, SNAN)  # fmt: skip


def _cast(numbers: Any, dtype: str = "float32") -> np.ndarray:
    """Numbers that any of the three dtypes holds, or nearly."""
    wide = np.asarray(numbers, np.float32)
    with np.errstate(over="ignore"):
        return wide.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


ODD = _cast([[-5 * s, 10 * s, *((step - 10) / 2 * s for step in range(30))] for s in (3, 5, 7, 11, 13, 41, 49)])
"""Half steps of scales that are no powers of two, with both ends of fifteen steps."""


def _beside(numbers: Any, steps: tuple[int, ...] = (-1, 0, 1)) -> list[int]:
    """float32 bits of numbers and of their neighbours."""
    bits = np.asarray(numbers, np.float32).view(np.uint32)
    return [int(one) + (step if one & 0x7FFFFFFF else 0) for one in bits.reshape(-1) for step in steps]


def _rows(patterns: Any, columns: int) -> np.ndarray:
    """float32 of patterns in rows, filled up with the last one."""
    flat = [int(one) for one in patterns]
    flat += flat[-1:] * (-len(flat) % columns)
    return float32(np.array(flat, np.uint32).reshape(-1, columns).tolist())


def _sawb() -> Iterator[Draft]:
    for dtype in DTYPES:
        yield Draft({"x": _cast([BELL[:24], BELL[24:]], dtype)}, {}, SAWB, "a bell")
        yield Draft({"x": _cast([[0, -0.0, 1.5, -3, 0.25, 9]], dtype)}, {}, SAWB, "zeros and a far number")
        yield Draft({"x": _cast([[3, -3], [3, 3]], dtype)}, {}, SAWB, "one magnitude: the formula gives no clip")
        strange = [[1, -2, 0.5, np.nan], [np.inf, -np.inf, -0.75, 3]]
        yield Draft({"x": _cast(strange, dtype)}, {}, SAWB, "NaN and infinities have no part in the clip")
    for place in range(3):
        yield Draft({"x": _laid(_noise((6, 10), 20 + place), "float32")}, {}, SAWB, "sixty numbers of twelve binades")
        yield Draft({"x": _laid(_noise((5, 7), 30 + place), "bfloat16")}, {}, SAWB, "35 numbers of twelve binades")
    for power in (-75, -70, -40, 62, 66, 100):
        comment = f"numbers of about 2^{power}: squares that are lost, subnormal, or beyond float32"
        yield Draft({"x": np.ldexp(_cast([BELL[::3]]), power).astype(np.float32)}, {}, SAWB, comment)
    yield Draft({"x": _cast([[8] + [0] * 31])}, {}, SAWB, "one number beside zeros")
    yield Draft({"x": float32([[0, SIGN, 0, SIGN]])}, {}, SAWB, "zeros")
    yield Draft({"x": float32([[NAN, INF, SIGN | INF, SNAN]])}, {}, SAWB, "no finite number")
    yield Draft({"x": float32([[1, SIGN | 2, 3, 0]])}, {}, SAWB, "the scale is subnormal")
    yield Draft({"x": float32([[SPECIAL[place] for place in range(14)]])}, {}, SAWB, "special numbers")
    yield Draft({"x": float32([[LARGEST, SIGN | LARGEST, LARGEST, 0x7F000000]])}, {}, SAWB, "the scale is infinite")
    tied = _cast([[7.5] * 51 + [one] for one in (0.5, -1.5, 2.5, -7.5)])
    comment = "ties under the scale of the largest magnitude, which is 1"
    yield Draft({"x": _cast(tied, "bfloat16")}, {}, SAWB, comment)
    yield Draft({"x": _cast([[1.5] * 8 + [-0.75] * 24])}, {}, SAWB, "two magnitudes")
    ties = [1, *(step / 2 * np.float32(2 / 15) for step in range(-17, 17))]
    yield Draft({"x": _rows(_beside(ties), 3)}, {}, SAWB, "a grid of numbers")
    yield Draft({"x": np.zeros((3, 0), np.float32)}, {}, SAWB, "no numbers")


def _tied(least: float, power: int) -> np.ndarray:
    """A group of 32 whose scale is a power of two, with every half step and some neighbours, from its least on."""
    steps = np.arange(0, 31) / 2 + least
    return np.ldexp(np.concatenate([[steps[-1]], steps]), power).astype(np.float32)


def _affine(spreads: tuple[int, ...], unit: int) -> Iterator[Draft]:
    """Drafts of both affine quantisers. spreads: float32 bits of those at which a scale meets its bounds."""

    def draft(x: np.ndarray, group: int, comment: str) -> Draft:
        return Draft({"x": x}, {"group": group}, AFFINE, comment)

    for dtype in DTYPES:
        yield draft(_cast([BELL[:24], BELL[24:]], dtype), 8, "a bell")
        yield draft(_cast([[-4, 11, 0.5, 1.5, 2.5, -0.5, -1.5, 7.5]], dtype), 8, "ties under the scale 1")
        strange = [[1, -2, np.nan, 3], [np.inf, 1, -2, 0], [-np.inf, 1, 2, 3], [np.inf, -np.inf, 1, np.nan]]
        yield draft(_cast(strange, dtype), 4, "NaN and infinities")
        yield draft(_cast([[np.nan] * 4, [np.inf] * 4, [-np.inf] * 4], dtype), 4, "nothing is finite")
        yield draft(_cast([[3, 3.5, 5, 4], [-3, -3.5, -5, -4], [0, -0.0, 0, 0], [2, 2, 2, 2]], dtype), 2, "one sign")
    for least in (-7.5, -5, -3, -0.5, 0, 0.5, -14.5, -20, 6):
        x = np.stack([_tied(least, power) for power in (unit, 0, 7)])
        yield draft(x, 32, f"half steps from {least:g} steps on")
    near = [[0, base + step] for base in spreads for step in (-2, -1, 0, 1, 2)]
    yield draft(float32(near), 2, "spreads beside the bounds of a scale")
    yield draft(float32([[SIGN | two, 0x3F000000] for _, two in near]), 2, "the same below a larger number")
    for group in (1, 3, 16):
        x = _laid(_noise((4, 48), 40 + group), "float32")
        yield draft(x, group, f"groups of {group}, numbers of twelve binades")
    yield draft(_laid(_noise((3, 64), 50), "bfloat16"), 64, "groups of 64")
    yield draft(_laid(_noise((1, 256), 51), "float32"), 256, "a group of 256")
    yield draft(float32([SPECIAL, [LARGEST, SIGN | LARGEST] * 7]), 7, "special numbers, and a spread that is infinite")
    far = _cast([[1e6, 1e6 + 1, 1e6 + 0.5, 1e6 + 2], [-3e8, -3e8, -3e8, -2.9e8], [1e-7, 2e-7, 3e-7, 4e-7]])
    yield draft(far, 4, "least elements many steps from zero")
    thirds = _cast(np.arange(-8, 24)[None] * np.float32(0.1))
    yield draft(float32([[SIGN, 0x3F800000], [0x40000000, SIGN]]), 2, "a least element of -0")
    yield draft(ODD, 32, "ties under scales of 3 to 49, which a reciprocal misses")
    yield draft(thirds, 16, "multiples of 0.1, whose quotients by a reciprocal differ")
    yield draft(np.zeros((0, 4), np.float32), 4, "no rows")


def _affine_drafts() -> Iterator[Draft]:
    yield from _affine((0x3727C5AC,), -3)


def _efficient_drafts() -> Iterator[Draft]:
    yield from _affine((0x3AC49BA6, 0x48127C00), -3)


def _kept() -> Iterator[Draft]:
    def draft(x: np.ndarray, group: int, comment: str) -> Draft:
        return Draft({"x": x}, {"group": group}, KEPT, comment)

    for dtype in DTYPES:
        yield draft(_cast([BELL[:24], BELL[24:]], dtype), 8, "a bell")
        yield draft(_cast([[30, -40, 7, 0.5, 1.5, -2.5, -3.5, 6.5]], dtype), 8, "ties under the scale 7")
        yield draft(_cast([[2, 2, 2, 2], [-2, 2, -3, 1], [1, 3, 2, -3]], dtype), 4, "equal magnitudes")
        yield draft(_cast([[1, -2, np.nan, 3], [np.inf, 1, -2, 0], [-np.inf, 1, np.inf, 3]], dtype), 4, "not finite")
        yield draft(_cast([[np.nan] * 3, [np.inf] * 3, [0, -0.0, 0]], dtype), 3, "alike")
    for power in (-149, -126, -30, -21, -20, 0, 60, 125):
        x = np.ldexp(_cast([[7.5, -7.5, 7, 3.5, -3.5, 0.5, -0.5, 6.5, -6.5, 1.5, -7]]), power).astype(np.float32)
        yield draft(x, 11, f"ties at a scale of 7 2^{power}")
    small = _beside([1e-6, -1e-6, 9e-7], (-2, -1, 0, 1, 2))
    yield draft(_rows([part for one in small for part in (0x3F800000, 0x40000000, one, 0x34000000)], 4), 4,
                "thirds beside the least scale")  # fmt: skip
    for group in (3, 6, 16, 48):
        yield draft(_laid(_noise((4, 48), 60 + group), "float32"), group, f"groups of {group}, twelve binades")
    yield draft(_laid(_noise((2, 128), 70), "bfloat16"), 64, "groups of 64")
    yield draft(float32([SPECIAL, SPECIAL[::-1]]), 7, "special numbers")
    yield draft(float32([[LARGEST, LARGEST, LARGEST, SIGN | LARGEST, 0x7D000000]]), 5, "products that overflow")
    yield draft(_cast([[9, 9, 1, *(k / 70 for k in range(-30, 31))]]), 64, "products and quotients that round")
    yield draft(np.zeros((0, 3), np.float32), 3, "no rows")


def _qat() -> Iterator[Draft]:
    for symmetric in (True, False):
        for layerwise in (False, True):
            params = {"symmetric": symmetric, "layerwise": layerwise}

            def draft(x: np.ndarray, comment: str, bits: int = 4, params: dict[str, Any] = params) -> Draft:
                return Draft({"x": x}, {**params, "bits": bits}, QAT, comment)

            for dtype in DTYPES:
                yield draft(_cast([BELL[:24], BELL[24:]], dtype), "a bell")
                strange = [[1, -2, 0.5, 3], [np.inf, 1, -2, 0], [1, np.nan, 2, 0.5]]
                yield draft(_cast(strange, dtype), "a row of numbers, one with Inf, one with NaN")
            yield draft(_cast([[0, -0.0, 0], [3, 3, 3], [-2, -2, -1], [1e-7, -1e-6, 3e-7]]), "alike, small")
            for bits in (2, 3, 8):
                yield draft(_laid(_noise((3, 12), bits), "float32"), f"{bits} bits, twelve binades", bits)
            near = _beside([7, -7, 0.5, 1.5, 2.5, -3.5, 6.5], (-1, 0, 1, 2))
            yield draft(float32([near]), "beside ties under a largest magnitude of 7")
            yield draft(float32([[LARGEST, SIGN | LARGEST, 1], [1, SIGN | 1, 0]]), "ends of float32")
            yield draft(ODD, "half steps of no power of two")
            yield draft(_cast([[224, -16, 48, -80, 112], [0, 15, 0.5, 1.5, 2.5]]), "ties")
            yield draft(_cast([[7, -3.5, 0.5, 2.25], [0.7, 0.1, -0.3, 0.05]]), "rows of two sizes")
    yield Draft({"x": np.zeros((0, 4), np.float32)}, {"symmetric": True, "layerwise": False, "bits": 4}, QAT, "no rows")


def _read_drafts() -> Iterator[Draft]:
    """Every code under scales that round, overflow or are special; zero points of both dtypes; groupings."""
    codes: np.ndarray = np.tile(np.arange(16, dtype=np.uint8), (1, 4))
    zeros: np.ndarray = np.array([[0, 8, 15, 3]], np.uint8)
    far = np.array([[0.5, -7, 1e9, 16777217], [np.nan, np.inf, -0.0, 1e-40], [3.25, -np.inf, 15, 100]], np.float32)
    sizes = [[0x3F800000, 0x3E4CCCCD, 0xBF99999A, 0x3DAAAAAB], [1, 0x00400001, 0x7E000000, LARGEST],
             [0, SIGN, INF, NAN]]  # fmt: skip
    for line, whole in zip(sizes, far, strict=True):
        inputs = {"codes": codes, "scales": float32([line])}
        yield Draft(inputs, {}, READ, "every code, no zero points")
        yield Draft({**inputs, "zeros": zeros}, {}, READ, "every code, zero points")
        yield Draft({**inputs, "zeros": whole[None]}, {}, READ, "every code, zero points that are no codes")
    mixed = (np.arange(3 * 12) * 7 % 16).astype(np.uint8).reshape(3, 12)
    for groups in (1, 2, 3, 12):
        part = _laid(_noise((3, groups), 80 + groups), "float32")
        yield Draft({"codes": mixed, "scales": part}, {}, READ, f"{groups} groups of a row")
        placed = {"codes": mixed, "scales": part, "zeros": mixed[:, :groups].copy()}
        yield Draft(placed, {}, READ, f"{groups} groups of a row, zero points")
    one = np.array([0.3], np.float32)
    yield Draft({"codes": mixed, "scales": one}, {}, READ, "one scale")
    yield Draft({"codes": mixed, "scales": one, "zeros": np.array([5], np.uint8)}, {}, READ, "one scale and zero point")
    yield Draft({"codes": mixed[:0], "scales": np.zeros((0, 3), np.float32)}, {}, READ, "no rows")


def _fp4() -> Iterator[Draft]:
    """Numbers beside each middle of two values and each binade, largest numbers of many sizes, one for each row."""
    for width in (2, 1):

        def draft(x: np.ndarray, tops: Any, comment: str, width: int = width) -> Draft:
            return Draft({"x": x, "maxval": np.array(tops, np.float32)}, {"exponent_bits": width}, FP4, comment)

        parts = np.array([step / 48 for step in range(1, 49)] if width == 2 else [step / 14 for step in range(1, 16)])
        for top in (6.0, 5.0, 1.75, 0.1, 2.0**-100, 2.0**100, 1.9999999, 3.4567e9):
            near = _beside((top * parts).astype(np.float32), (-1, 0, 1) if top in (6.0, 5.0) else (0,))
            yield draft(_rows(near, 12), [top], f"parts of {top:g}")
        for dtype in DTYPES:
            yield draft(_cast([BELL[:24], BELL[24:]], dtype), [5.5], "a bell")
            yield draft(_cast([[np.nan, np.inf, -np.inf, 0, -0.0, 9, -9, 1e-7]], dtype), [6], "special numbers")
        yield draft(float32([SPECIAL]), [6], "special numbers of float32")
        yield draft(_cast([BELL[:12], BELL[12:24], BELL[24:36]]), [6, 0.7, 3.3], "a number for each row")
        yield draft(_cast([[-6, 2.4, -0.3, 0.6]]), [2.4], "below the least")
        yield draft(
            _rows(_beside(STARTS[width], (-2, -1, 0, 1, 2)), 5), [7], "beside the beginnings of binades under 7"
        )
        yield draft(np.zeros((0, 4), np.float32), [6], "no rows")


STARTS = {2: (7 / 3, 14 / 3), 1: (2, 4)}
"""Width -> where binades of the format begin whose largest number is 7."""


sawb, int4_affine, efficient_qat = plain(_sawb), plain(_affine_drafts), plain(_efficient_drafts)
int4_keep_two, llm_qat = plain(_kept), plain(_qat)
dequantize_int4, llm_fp4 = plain(_read_drafts), plain(_fp4)
