"""Questions about the scalar conversions: code to value tables, value to code at every decision (N1, N2)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from refnum.formats import E2M1, E4M3, E8M0, FORMATS, Format, get_format

from ...cases.primitives import DECODED, ENCODED
from ..draft import DTYPES, INF, LARGEST, NAN, SIGN, SNAN, Draft, bfloat16, both_signs, each, float16, plain, power
from . import grids, stochastic

SMALL = tuple(name for name in ENCODED if FORMATS[name].bits <= 8)
SPECIAL = (0, SIGN, 1, SIGN | 1, 0x00400000, 0x007FFFFF, 0x00800000, LARGEST, SIGN | LARGEST, INF, SIGN | INF)
NANS = (NAN, SIGN | NAN, SNAN, SIGN | 0x7FFFFFFF)


def _flat(patterns: list[int]) -> np.ndarray:
    return np.asarray(patterns, np.uint32).view(np.float32)


def _beside(fmt: Format) -> list[int]:
    """float32 bits of every midpoint, one step below and one above, in both signs."""
    return both_signs(p + step for m in grids.midpoints(fmt) for p in [power(0, m)] for step in (-1, 0, 1))


def _beyond(fmt: Format) -> list[int]:
    """Around the overflow threshold and far beyond it."""
    m, step = fmt.max_value, fmt.max_value - grids.values(fmt)[-2]
    edge = power(0, m + step / 2)
    far = [power(0, v) for v in (m + step, 2 * m, 4 * m)]  # Inf where float32 has no such value
    return both_signs([power(0, m), edge - 1, edge, edge + 1, *far])


def _encode_e2m1() -> Iterator[Draft]:
    """E2M1 by its own name: what hardware calls cvt.rn.satfinite.e2m1x2."""
    x = _flat(_beside(E2M1))
    yield Draft(
        {"x": x},
        flags=(
            "E2M1_TIES_UP",
            "E2M1_TIES_TO_ZERO",
            "E2M1_STICKY_LOST",
            "DOUBLE_ROUNDING_BF16",
            "DOUBLE_ROUNDING_FP16",
            "ELEMENT_TRUNCATED",
        ),
        comment="every midpoint, one float32 step below and above, both signs",
    )
    yield Draft(
        {"x": _flat(both_signs(power(0, v) for v in grids.values(E2M1)))},
        flags=("TOP_VALUE_UNREACHABLE",),
        comment="every value",
    )
    yield Draft({"x": _flat(_beyond(E2M1))}, flags=("OVERFLOW_WRAPS",), comment="around and beyond the largest value")
    yield Draft({"x": _flat(list(SPECIAL))}, flags=("SIGN_OF_ZERO_LOST",), comment="zeros, subnormals, Inf")
    yield Draft(
        {"x": _flat(list(NANS))},
        flags=("SPECIAL_INPUT_UNDEFINED",),
        comment="NaN: no code exists, the largest positive value stands for it",
    )
    yield Draft(
        {"x": bfloat16([[0x3E80, 0x3F40, 0x3FA0, 0x3FE0, 0x4020, 0x4060, 0x40A0, 0x8000, 0xBE80, 0x40C0]])},
        flags=("E2M1_TIES_UP", "E2M1_TIES_TO_ZERO"),
        comment="bfloat16: every midpoint",
    )
    yield Draft(
        {"x": float16([[0x3400, 0x3401, 0x33FF, 0x4500, 0x4501, 0xC500, 0x8001, 0x7BFF]])},
        flags=("E2M1_TIES_UP", "DOUBLE_ROUNDING_BF16"),
        comment="float16: midpoints and one step beside them",
    )


def _encode_e4m3() -> Iterator[Draft]:
    """E4M3 by its own name, saturating and not."""
    for overflow in ("saturate", "nan"):
        params = {"overflow": overflow}
        yield Draft(
            {"x": _flat(_beside(E4M3))},
            params,
            comment="every midpoint and one float32 step beside it",
            flags=(
                "E4M3_TIES_UP",
                "DOUBLE_ROUNDING_BF16",
                "DOUBLE_ROUNDING_FP16",
                "ELEMENT_TRUNCATED",
                "E4M3_CARRY_LOST",
            ),
        )
        yield Draft(
            {"x": _flat(both_signs(power(0, v) for v in grids.values(E4M3)))},
            params,
            flags=("E4M3_SATURATES_EARLY", "E4M3_SUBNORMAL_SCALE"),
            comment="every value in both signs",
        )
        yield Draft(
            {"x": _flat(_beyond(E4M3))},
            params,
            flags=("E4M3_OVERFLOW_POLICY",),
            comment="around 464, the overflow threshold, and beyond",
        )
        yield Draft(
            {"x": _flat(list(SPECIAL))},
            params,
            flags=("E4M3_NEG_ZERO", "E4M3_OVERFLOW_POLICY"),
            comment="zeros, subnormals, the largest float32, Inf",
        )
        yield Draft(
            {"x": _flat(list(NANS))}, params, flags=("E4M3_NAN_SIGN",), comment="NaN of either sign and payload: 0x7F"
        )
    yield Draft(
        {"x": bfloat16([[0x43E0, 0x43E8, 0x43E9, 0xC3E8, 0x3A80, 0x3B00, 0x3B40, 0x8000, 0x7F80, 0xFFC0]])},
        {"overflow": "saturate"},
        flags=("E4M3_NEG_ZERO", "E4M3_NAN_SIGN"),
        comment="bfloat16: edges",
    )
    yield Draft(
        {"x": float16([[0x5F00, 0x5F40, 0x5F41, 0x1400, 0x1401, 0x13FF, 0x1800, 0x8001, 0xFC00, 0x7E00]])},
        {"overflow": "saturate"},
        flags=("E4M3_TIES_UP", "DOUBLE_ROUNDING_BF16"),
        comment="float16: edges",
    )


def _encode_e8m0() -> Iterator[Draft]:
    """float32 to a scale byte in every rounding, saturating and not."""
    steps = [power(k) + d for k in (-126, -100, -1, 0, 1, 100, 126, 127) for d in (-1, 0, 1)]
    halves = [power(k, Fraction(3, 2)) + d for k in (-126, -3, 0, 5, 126) for d in (-1, 0, 1)]
    subnormal = [
        1,
        2,
        0x001FFFFF,
        0x00200000,
        0x00200001,
        0x003FFFFF,
        0x00400000,
        0x00400001,
        0x005FFFFF,
        0x00600000,
        0x00600001,
        0x007FFFFF,
    ]
    top = [power(127), power(127) + 1, power(127, Fraction(3, 2)) - 1, power(127, Fraction(3, 2)), LARGEST]
    for rounding in ("up", "down", "nearest"):
        for saturate in (False, True):
            params = {"rounding": rounding, "saturate": saturate}
            yield Draft(
                {"x": _flat(steps + halves)},
                params,
                flags=("E8M0_ENCODE_ROUNDING",),
                clause="N1",
                comment="powers of two and their midpoints, one float32 step below, at and above",
            )
            yield Draft(
                {"x": _flat(subnormal)},
                params,
                flags=("E8M0_SUBNORMAL_IN",),
                clause="N1",
                comment="float32 subnormals: 2^-127 is byte 0, and what lies between it and 2^-126",
            )
            yield Draft(
                {"x": _flat(top)},
                params,
                clause="N1",
                comment="the last binade",
                flags=("E8M0_OVERFLOW_POLICY",) if rounding != "down" else (),
            )
            yield Draft(
                {"x": _flat([0, SIGN, INF, SIGN | INF, *NANS, SIGN | power(3)])},
                params,
                clause="N1",
                flags=("E8M0_OVERFLOW_POLICY", "E8M0_FF_NOT_NAN"),
                comment="zeros, Inf, NaN, a negative number",
            )


def _decode_table(fmt: Format, dtype: str) -> Iterator[Draft]:
    """Every code of one format as one vector."""
    flags: tuple[str, ...] = ()
    if fmt is E4M3:
        flags = ("E4M3_SUBNORMAL_SCALE", "E4M3_NEG_ZERO", "E4M3_TOP_IS_NAN")
    elif fmt is E8M0:
        flags = ("E8M0_ZERO_IS_TINY", "E8M0_FF_NOT_NAN", "FTZ_SILENT")
    elif fmt is E2M1:
        flags = ("E4M3_NEG_ZERO",)
    codes = np.arange(1 << fmt.bits, dtype=np.uint8).reshape(1, -1)
    yield Draft({"codes": codes}, {"dtype": dtype}, flags=flags, clause="N1", comment=f"every code of {fmt.name}")


def _encode_element() -> Iterator[Draft]:
    """Every format of eight bits or fewer under every choice of clause N2; BF16 and FP16 at their edges."""
    for name in SMALL:
        fmt = get_format(name)
        yield from _element_drafts(fmt)
    for name, drop, low in (("BF16", 16, 0x00000000), ("FP16", 13, 0x387FC000)):
        half = 1 << (drop - 1)
        x = [
            base + step
            for base in (0x3F800000 + half, 0x3F800000 + 3 * half, low + half, low + 3 * half, 0x477FE000 + half)
            for step in (-1, 0, 1)
        ]
        yield Draft(
            {"x": _flat(both_signs(x) + list(SPECIAL[:2]) + [INF, NAN])},
            _choices(name),
            flags=("ELEMENT_TIES_UP", "ELEMENT_TRUNCATED"),
            comment="ties, subnormals and overflow",
        )
        yield Draft(
            {"x": _flat(both_signs([*_beyond(get_format(name)), LARGEST, INF]) + list(NANS))},
            _choices(name, overflow="nan"),
            flags=("E4M3_OVERFLOW_POLICY",),
            comment="around the overflow threshold: the format's own Inf",
        )


def _element_drafts(fmt: Format) -> Iterator[Draft]:
    radix4 = fmt.radix == 4
    beside = (
        _beside(fmt) if not radix4 else both_signs(power(0, m) + d for m in grids.midpoints(fmt) for d in (-1, 0, 1))
    )
    up, sign = grids.ties_up(fmt), () if fmt.kind == "integer" else ("SIGN_OF_ZERO_LOST",)
    yield Draft(
        {"x": _flat(beside)},
        _choices(fmt.name),
        comment="every midpoint and one float32 step beside it",
        flags=("DOUBLE_ROUNDING_BF16",) if radix4 else (up, "DOUBLE_ROUNDING_BF16", "ELEMENT_TRUNCATED"),
    )
    yield Draft(
        {"x": _flat([*SPECIAL, *NANS, *_beyond(fmt)])},
        _choices(fmt.name),
        flags=sign,
        comment="zeros, subnormals, NaN, Inf and overflow",
    )
    if radix4:
        return
    ties = both_signs(power(0, m) for m in grids.midpoints(fmt))
    for choice in ("away", "up", "down", "zero"):
        yield Draft(
            {"x": _flat(ties)},
            _choices(fmt.name, ties=choice),
            comment="every midpoint, another tie rule",
            flags=("TIE_RULE",),
        )
    yield Draft(
        {"x": _flat(beside)}, _choices(fmt.name, rounding="toward_zero"), flags=("TIE_RULE",), comment="truncation"
    )
    if fmt.kind != "integer":
        yield Draft(
            {"x": _flat([SIGN, *ties[:4]])},
            _choices(fmt.name, negative_zero="drop"),
            flags=("NEGATIVE_ZERO_POLICY",),
            comment="negative zero dropped",
        )
    if fmt.name in ("E4M3", "E5M2"):
        yield Draft(
            {"x": _flat([*_beyond(fmt), INF, SIGN | INF, *NANS])},
            _choices(fmt.name, overflow="nan"),
            flags=("E4M3_OVERFLOW_POLICY",),
            comment="overflow gives the format's own Inf or NaN",
        )


def _choices(element: str, **changed: str) -> dict[str, Any]:
    return {
        "element": element,
        "rounding": "nearest",
        "ties": "even",
        "overflow": "saturate",
        "negative_zero": "keep",
    } | changed


def _decode_element() -> Iterator[Draft]:
    """Every code of every format of eight bits or fewer."""
    for name in DECODED:
        flags = {"E4M3": ("E4M3_SUBNORMAL_SCALE", "E4M3_TOP_IS_NAN"), "E8M0": ("E8M0_ZERO_IS_TINY", "E8M0_FF_NOT_NAN")}
        codes = np.arange(1 << FORMATS[name].bits, dtype=np.uint8).reshape(1, -1)
        yield Draft({"codes": codes}, {"element": name}, flags=flags.get(name, ()), comment=f"every code of {name}")


encode_e2m1, encode_e4m3, encode_e8m0 = plain(_encode_e2m1), plain(_encode_e4m3), plain(_encode_e8m0)
decode_e2m1 = each(DTYPES, lambda dtype: _decode_table(E2M1, dtype))
decode_e4m3 = each(DTYPES, lambda dtype: _decode_table(E4M3, dtype))
decode_e8m0 = each(DTYPES, lambda dtype: _decode_table(E8M0, dtype))
encode_element = plain(_encode_element, stochastic.encode_element)
decode_element = plain(_decode_element)
