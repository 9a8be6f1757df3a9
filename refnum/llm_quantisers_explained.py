"""Explain one element of the quantisers of LLM-QAT and LLM-FP4, step by step of their float32 operations (N26)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from .arrays import float32_bits
from .float_steps import (
    Chain,
    Explained,
    Place,
    Room,
    agreed,
    bits_at,
    float_text,
    is_finite,
    is_nan,
    number,
    of,
    result_bits,
    taken,
)
from .llm_quantisers import _SMALL, _TINY, llm_fp4, llm_qat
from .logarithms import log2_bits, power_bits
from .softfloat import NAN

_MAGNITUDE, _SIGN, _ONE = 0x7FFFFFFF, 0x80000000, 0x3F800000


def _fp4(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "x maxval", "exponent_bits")
    codes, values = llm_fp4(**given)
    chain, own, width = Chain("N26.7"), bits_at(given["x"], at), int(given.get("exponent_bits", 2))
    top, mantissa = bits_at(given["maxval"], (0,) if given["maxval"].shape == (1,) else at[:1]), 3 - width
    chain.element(x=own, maxval=top)
    bias = chain.subtract("2^E - L(maxval)", _whole(1 << width), _logarithm(chain, "L(maxval)", top))
    two = _logarithm(chain, "L(2 - 2^-M)", _whole(2 - Fraction(1, 1 << mantissa)))
    bias = chain.subtract("b", chain.add("b + 1", bias, two), _ONE)
    golden = {"codes": int(codes[at]), "values": result_bits(values, at)}
    if is_nan(own):
        chain.say("codes", "NaN has the code 7")
        chain.say("values", float_text(int(NAN)))
        return chain.steps, agreed({"codes": 7, "values": int(NAN)}, **golden)
    sign, size = own & _SIGN, min(own & _MAGNITUDE, top)
    chain.say("y", f"within -maxval and maxval: {float_text(size | sign)}")
    exponent, words = 1, "1, since y is 0"
    if size:
        placed = chain.add("L(|y|) + b", _logarithm(chain, "L(|y|)", size), bias)
        floor = math.floor(number(placed))
        exponent, words = max(floor, 1), f"max({floor}, 1) = {max(floor, 1)}"
    chain.say("e", words)
    place = chain.subtract("u", _whole(exponent - mantissa), bias)
    scale = power_bits(place)
    chain.say("r", f"2^u, rounded once: {float_text(scale)}")
    whole = chain.whole("q", chain.divide("y / r", size | sign, scale))
    count = abs(int(number(whole)))
    code = min((exponent - 1 << mantissa) + count, 7)
    chain.say("codes", f"({exponent} - 1) * 2^{mantissa} + {count}, at most 7: {code}{' and the sign' if sign else ''}")
    value = chain.multiply("values", whole, scale)
    return chain.steps, agreed({"codes": code | sign >> 28, "values": value}, **golden)


def _whole(exact: int | Fraction) -> int:
    """float32 bits of a small number."""
    return int(np.float32(float(exact)).view(np.uint32))


def _logarithm(chain: Chain, name: str, bits: int) -> int:
    found = log2_bits(bits)
    chain.say(name, f"the base-2 logarithm of {float_text(bits)}, rounded once: {float_text(found)}")
    return found


def _qat(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "x", "bits symmetric layerwise")
    codes, values = llm_qat(**given)
    chain, own = Chain("N26.8"), bits_at(given["x"], at)
    chain.element(x=own)
    x = float32_bits(np.ascontiguousarray(given["x"]))
    vector = x.reshape(-1) if given.get("layerwise", False) else x[at[0]]
    count = int(given.get("bits", 4))
    nan = is_nan(int((vector & np.uint32(_MAGNITUDE)).max()))
    explained = _symmetric if given.get("symmetric", True) else _asymmetric
    placed, value = explained(chain, vector, nan, own, count)
    code = int(number(placed)) if is_finite(placed) else 0
    chain.say("codes", f"{code}" if is_finite(placed) else f"0 for {float_text(placed)}")
    golden = {"codes": result_bits(codes, at), "values": result_bits(values, at)}
    return chain.steps, agreed({"codes": code & 0xFFFFFFFF, "values": value}, **golden)


def _symmetric(chain: Chain, vector: np.ndarray, nan: bool, own: int, count: int) -> tuple[int, int]:
    top = int(NAN) if nan else int((vector & np.uint32(_MAGNITUDE)).max())
    chain.say("a", f"{'a NaN among' if nan else 'the largest magnitude of'} {len(vector)}: {float_text(top)}")
    most = _whole((1 << count - 1) - 1)
    scale = chain.divide("s", most, chain.add("a + 1e-6", top, int(_SMALL)))
    code = chain.whole("rounding", chain.multiply("x * s", own, scale))
    return code, chain.divide("values", code, chain.add("s + 1e-6", scale, int(_SMALL)))


def _asymmetric(chain: Chain, vector: np.ndarray, nan: bool, own: int, count: int) -> tuple[int, int]:
    ends = [int(NAN)] * 2
    if not nan:  # the complement of a negative number's bits is in order; -0 lies below +0
        order = np.where(vector & np.uint32(_SIGN), ~vector, vector | np.uint32(_SIGN))
        ends = [int(vector[place]) for place in (order.argmin(), order.argmax())]
    least, top = ends
    chain.say("ends", f"of {len(vector)}{' with a NaN' if nan else ''}: {float_text(least)} and {float_text(top)}")
    spread = chain.add("d", chain.subtract("v - u", top, least), int(_TINY))
    most = _whole((1 << count) - 1)
    part = chain.divide("(x - u) / d", chain.subtract("x - u", own, least), spread)
    code = chain.whole("rounding", chain.multiply("n (x - u) / d", part, most))
    back = chain.multiply("d code / n", chain.divide("code / n", code, most), spread)
    return code, chain.add("values", back, least)


LLM_QUANTISERS: Room = {
    "llm_qat": (of("x"), _qat),
    "llm_fp4": (of("x"), _fp4),
}
