"""Questions about logarithmic FP4: levels and their bounds, words on both sides, maxima of all sizes (N23)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...cases.corners.logarithmic import AMAX, BYTES, LEVELS, _near_bounds, aimed, beside_levels, step_of
from ...cases.corners.nvfp4 import one
from ..draft import DTYPES, INF, NAN, SIGN, Draft, bfloat16, bits, each, float16, float32, plain

LUQ_FLAGS = ("FTZ_SILENT", "LOG_NAN_AS_ZERO", "LOG_PRUNED_SIGN", "LUQ_BY_RECIPROCAL", "LUQ_EIGHTH_LEVEL",
             "LUQ_KEEPS_ON_EQUAL", "LUQ_MAXIMUM_IGNORED", "LUQ_NAN_IN_MAXIMUM", "LUQ_NOT_PRUNED", "LUQ_ONE_WORD",
             "LUQ_OTHER_STEP", "LUQ_SIGNED_MAXIMUM", "LUQ_WORDS_IGNORED", "LUQ_WORD_REVERSED",
             "NIBBLE_ORDER")  # fmt: skip
RADIX4_FLAGS = ("LOG_NAN_AS_ZERO", "LOG_PRUNED_SIGN", "NIBBLE_ORDER", "RADIX4_ODD_IS_HALF", "RADIX4_OTHER_THRESHOLD",
                "RADIX4_PHASES_SWAPPED", "RADIX4_TIE_UP", "RADIX4_ZERO_AT_HALF")  # fmt: skip
READ_FLAGS = ("LOG_ONE_LEVEL_UP", "NIBBLE_ORDER", "RADIX4_ODD_IS_HALF", "RADIX4_PHASES_SWAPPED")
KNOWN = np.array([[64, -1, 0.5, -0.25, 3, -6, 40, 0, 24, -1.5, 1.49, -0.0]], np.float32)
UNIFORMS = ((0.3, 0.3, 0.4, 0.4, *[0.1] * 8), (0.9, 0.1, 0.5, 0.5, 0.49, 0.51, 0.6, 0.5, 0.2, 0.499, 0.5, 0))
AROUND = (1.25, 1.375, 2.5, 2.625, 5, 5.125, 10, 10.5, 4000, 4096, 9000)
RADIX4_KNOWN = (0x3F200000, 0x3F200001, *map(bits, AROUND), bits(5000) | SIGN)
ODD = [NAN, SIGN | NAN, INF, SIGN | INF, 0, SIGN, 1, SIGN | 1, bits(3), SIGN | bits(3), 0x3DCCCCCD, 0x7F7FFFFF]


def _draft(
    comment: str, x: np.ndarray, words: dict[str, np.ndarray], params: dict[str, Any], amax: int | None
) -> Draft:
    given = {} if amax is None else {"tensor_amax": one(amax)}
    return Draft({"x": x, **words, **given}, params, LUQ_FLAGS, comment)


def _noise(shape: tuple[int, int], seed: int, spread: int) -> np.ndarray:
    """float32 bits of many sizes and both signs, by integer arithmetic."""
    place = np.arange(shape[0] * shape[1], dtype=np.uint32).reshape(shape) + np.uint32(seed * 7919)
    mixed = (place * np.uint32(2654435761)) ^ ((place * np.uint32(40503)) >> np.uint32(7))
    exponent = np.uint32(127 - spread // 2) + (mixed >> np.uint32(11)) % np.uint32(spread)
    return mixed & np.uint32(0x807FFFFF) | exponent << np.uint32(23)


def _drawn(shape: tuple[int, int], seed: int) -> dict[str, np.ndarray]:
    first, second = _noise(shape, seed, 8), _noise(shape, seed + 1, 8)
    return {"r_under": first & np.uint32((1 << 24) - 1), "r_log": second & np.uint32((1 << 23) - 1)}


def _luq(divisor: int, step: str) -> Iterator[Draft]:
    """The known answers, both sides of every word under every maximum, data, dtypes, the ends."""
    params = {"divisor": divisor, "step": step}
    parts = (1 << 24, 1 << 23)
    known = [(np.array([u]) * part).astype(np.uint32) for u, part in zip(UNIFORMS, parts, strict=True)]
    yield _draft("the known tensor", KNOWN, dict(zip(("r_under", "r_log"), known, strict=True)), params, None)
    plain_step = (divisor, step) == (64, "real")
    for amax in AMAX if plain_step else AMAX[:2]:
        alpha = step_of(params, amax)
        x = np.ascontiguousarray(beside_levels(int(alpha[0]))[:, :: 1 if plain_step and amax in AMAX[:2] else 7])
        x = x[:, : x.shape[1] & ~1]
        comment = f"beside the levels, words on both sides, maximum {amax:#010x}"
        yield _draft(comment, x.view(np.float32), aimed(x, alpha), params, amax)
    x = _noise((4, 32), 3, 14)
    yield _draft("numbers of 14 binades, their own maximum", x.view(np.float32), _drawn(x.shape, 5), params, None)
    negative = x | np.uint32(SIGN)
    yield _draft("negative numbers alone", negative.view(np.float32), _drawn(x.shape, 9), params, None)
    words = _drawn((1, len(ODD)), 11)
    yield _draft("NaN, Inf and zeros under a maximum", float32([ODD]), words, params, bits(6))
    yield _draft("Inf, the maximum itself", float32([ODD]), words, params, None)
    finite = [NAN, SIGN | NAN, *ODD[4:11], bits(2)]
    yield _draft("NaN beside the maximum", float32([finite]), _drawn((1, len(finite)), 12), params, None)


def _ends() -> Iterator[Draft]:
    params = {"divisor": 64, "step": "real"}
    halves = _noise((2, 16), 21, 4) >> np.uint32(16)
    yield _draft("bfloat16", bfloat16(halves.tolist()), _drawn((2, 16), 22), params, None)
    small = halves & np.uint32(0x83FF) | np.uint32(13 << 10) + (halves << np.uint32(6) & np.uint32(0x1C00))
    yield _draft("float16", float16(small.tolist()), _drawn((2, 16), 23), params, bits(4))
    for shape in ((0, 4), (1, 2), (3, 6)):
        x = _noise(shape, 24, 6).view(np.float32)
        yield _draft(f"shape {shape[0]}x{shape[1]}", x, _drawn(shape, 25), params, None)
    zeros = np.zeros((1, 6), np.float32)
    yield _draft("zeros", zeros, _drawn((1, 6), 26), params, None)
    ends = {
        "r_under": np.array([[0, (1 << 24) - 1] * 4], np.uint32),
        "r_log": np.array([[(1 << 23) - 1, 0] * 4], np.uint32),
    }
    x = float32([[bits(64), bits(1), bits(1.5), bits(1.5), 0x3F7FFFFF, 0x3F7FFFFF, 1, 1]])
    yield _draft("words at both ends", x, ends, params, None)
    tiny = float32([[1, SIGN | 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0]])
    vast = {"r_under": np.zeros((1, 6), np.uint32), "r_log": np.zeros((1, 6), np.uint32)}
    yield _draft("quotients that underflow, word 0", tiny, vast, params, 0x7F7FFFFF)
    yield _draft("quotients that are infinite", tiny, vast, params, 65)


def _dequantize_luq(dtype: str) -> Iterator[Draft]:
    """Every code under steps of every kind."""
    for alpha in (*AMAX[:3], 0, INF, NAN, 0x3F800000, 0xBF800001, 0x7E000001, 0x80000003, 0x00018000, 0x0000C000):
        inputs = {"packed": BYTES[:, ::5].copy(), "alpha": one(alpha)}
        yield Draft(inputs, {"dtype": dtype}, READ_FLAGS, f"codes under a step of {alpha:#010x}")
    empty = {"packed": np.zeros((0, 3), np.uint8), "alpha": one(0x3F800000)}
    yield Draft(empty, {"dtype": dtype}, READ_FLAGS, "no rows")


def _radix4() -> Iterator[Draft]:
    """The known answers, numbers beside every bound at several levels, specials, dtypes."""
    for phase in ("even", "odd"):
        for threshold in ("midpoint", "0.4", "log"):
            params: dict[str, Any] = {"phase": phase, "threshold": threshold}
            known = {**params, "n0": 0}
            yield Draft({"x": float32([RADIX4_KNOWN])}, known, RADIX4_FLAGS, "the known tensor")
            for n0 in LEVELS if threshold == "midpoint" else LEVELS[1::3]:
                x = _near_bounds(n0, phase, threshold).view(np.float32)
                yield Draft({"x": x}, {**params, "n0": n0}, RADIX4_FLAGS, "beside every bound")
            yield Draft({"x": float32([ODD])}, {**params, "n0": -1}, RADIX4_FLAGS, "NaN, Inf, zeros, subnormals")
        params = {"phase": phase, "threshold": "midpoint", "n0": -3}
        words = _noise((3, 22), 31, 18)
        yield Draft({"x": words.view(np.float32)}, params, RADIX4_FLAGS, "numbers of 18 binades")
        yield Draft({"x": bfloat16((words >> np.uint32(16)).tolist())}, params, RADIX4_FLAGS, "bfloat16")
        yield Draft({"x": float16((words & np.uint32(0xBFFF)).tolist())}, params, RADIX4_FLAGS, "float16")
        yield Draft({"x": np.zeros((0, 4), np.float32)}, params, RADIX4_FLAGS, "no rows")


def _dequantize_radix4(dtype: str) -> Iterator[Draft]:
    """Every code at several levels."""
    for phase in ("even", "odd"):
        for n0 in LEVELS[::2]:
            params = {"n0": n0, "phase": phase, "dtype": dtype}
            yield Draft({"packed": BYTES[:, ::5].copy()}, params, READ_FLAGS, "codes of every kind")


luq = plain(lambda: (draft for divisor in (64, 128, 16) for step in ("real", "power_of_two")
                     for draft in _luq(divisor, step)), _ends)  # fmt: skip
dequantize_luq = each(DTYPES, _dequantize_luq)
radix4 = plain(_radix4)
dequantize_radix4 = each(DTYPES, _dequantize_radix4)
