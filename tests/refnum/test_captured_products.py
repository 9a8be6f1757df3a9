"""What a device gave, frozen: the model and the oracle give the same bits, and each wrong reading of the step does not.

A wrong reading is one changed rule of N19.2 or N19.3 in a step over exact rationals that is written for this file.
"""

import dataclasses
import functools
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from refnum import softfloat
from refnum.codec import decode
from refnum.oracle import product as exact
from refnum.oracle.values import float_bits, float_value, floor_log2
from refnum.product import matmul_fp8
from refnum.tensor_core import tensor_core_step

CAPTURED = Path(__file__).parents[2] / "vectors" / "captured"
FORMATS = {"e4m3": "E4M3", "e5m2": "E5M2", "bf16": "BF16", "fp16": "FP16"}
SHAPES = {"E4M3": (3, -6), "E5M2": (2, -14), "BF16": (7, -126), "FP16": (10, -14), "FP32": (23, -126)}
"""Format -> fraction bits, exponent of the smallest normal numbers."""


@functools.cache
def document(name):
    return json.loads((CAPTURED / f"{name}-h200.json").read_text())


def array(record):
    return np.frombuffer(bytes.fromhex(record["hex"]), record["dtype"]).reshape(record["shape"])


def steps(kind):
    """(name, formats, a codes, b codes, c bits, device's bits) of the captured steps of an instruction's family."""
    for one in document("tensor_core_step")["steps"]:
        family, left, right = one["instruction"].split("_")
        wide = left in ("bf16", "fp16")
        name = family if not wide and family == "mma" else f"{family}_{left if wide else 'fp8'}"
        if name == kind:
            codes = [np.frombuffer(bytes.fromhex(one[x]), np.uint16 if wide else np.uint8) for x in "ab"]
            yield (FORMATS[left], FORMATS[right]), *codes, int(one["c"], 16), int(one["out"], 16)


@pytest.mark.parametrize("name", ["tensor_core_step", "matmul_fp8"])
def test_a_file_says_where_it_comes_from(name):
    found = document(name)
    assert {"device", "driver", "torch", "cuda", "cublasLt", "date"} <= set(found["environment"])
    assert found["operation"] == name and found["count"] == len(found["steps" if "steps" in found else "products"]) > 10


@pytest.mark.parametrize("kind", ["wgmma_fp8", "wgmma_bf16", "wgmma_fp16", "mma_bf16", "mma_fp16"])
def test_steps_of_a_device(kind):
    count = 0
    for formats, a, b, c, out in steps(kind):
        accumulator = np.array([[c]], np.uint32).view(np.float32)
        assert tensor_core_step(a[None], b[None], accumulator, kind, *formats).view(np.uint32)[0, 0] == out
        assert exact.dot_step(a.tolist(), b.tolist(), c, kind, *formats) == out
        count += 1
    assert count >= 64


def as_binary16(codes, fmt):
    return decode(fmt, codes).astype(np.float16).view(np.uint16)[None]


def test_fp8_of_mma_sync_is_two_steps_of_binary16_and_an_addition():
    count = 0
    for formats, a, b, c, out in steps("mma"):
        if any(np.isnan(decode(fmt, x)).any() for fmt, x in zip(formats, (a, b), strict=True)):
            continue
        a, b = (as_binary16(x, fmt) for x, fmt in zip((a, b), formats, strict=True))
        first = np.arange(32) % 4 < 2
        total = tensor_core_step(a[:, first], b[:, first], None, "mma_fp16", "FP16", "FP16")
        total = tensor_core_step(a[:, ~first], b[:, ~first], total, "mma_fp16", "FP16", "FP16")
        got = softfloat.add(np.array([[c]], np.uint32), total.view(np.uint32))[0, 0]
        if float_value(c) != "nan":
            assert got == out, (formats, hex(c))
            count += 1
    assert count > 80


def test_products_of_a_library():
    for one in document("matmul_fp8")["products"]:
        given = {name: array(record) for name, record in one["inputs"].items()}
        assert np.array_equal(matmul_fp8(**given, **one["params"]).view(np.uint32), array(one["output"])), one["call"]


# --- wrong readings


@dataclasses.dataclass(frozen=True)
class Rule:
    """N19.2 with its numbers; every other field is a wrong reading unless it has its default."""

    terms: int
    fraction: int
    result: int
    cut: str = "zero"
    result_cut: str = "zero"
    normalised: bool = False
    own_exponents: bool = False
    zero_counts: bool = False
    accumulator_counts: bool = True
    accumulator_last: bool = False
    cut_terms: bool = True
    least: int = -133
    signed_zero: bool = False


RULES = {"wgmma_fp8": Rule(32, 13, 13), "wgmma_bf16": Rule(16, 25, 23)}
WRONG = {
    "wgmma_fp8": {
        "12 bits of a term": {"fraction": 12}, "14 bits of a term": {"fraction": 14}, "25 bits": {"fraction": 25},
        "12 bits of a result": {"result": 12}, "14 bits of a result": {"result": 14}, "float32": {"result": 23},
        "terms to nearest": {"cut": "nearest"}, "terms down": {"cut": "down"},
        "result to nearest": {"result_cut": "nearest"}, "result down": {"result_cut": "down"},
        "normalised products": {"normalised": True}, "exponents of values": {"own_exponents": True},
        "zero takes part": {"zero_counts": True}, "accumulator not in the maximum": {"accumulator_counts": False},
        "accumulator added last": {"accumulator_last": True}, "terms not cut": {"cut_terms": False},
        "steps of 16": {"terms": 16},
    },
    "wgmma_bf16": {
        "24 bits of a term": {"fraction": 24}, "26 bits of a term": {"fraction": 26},
        "terms to nearest": {"cut": "nearest"}, "terms down": {"cut": "down"},
        "result to nearest": {"result_cut": "nearest"}, "normalised products": {"normalised": True},
        "accumulator added last": {"accumulator_last": True}, "steps of 8": {"terms": 8},
        "no least exponent": {"least": -(10**6)}, "another least exponent": {"least": -132},
        "yet another": {"least": -134}, "a cut sum keeps its sign": {"signed_zero": True},
    },
}  # fmt: skip


def number(fmt, code):
    """(significand, written exponent) of a finite code; the significand of a subnormal is below 1."""
    bits, least = SHAPES[fmt]
    width = {"E4M3": 8, "E5M2": 8, "BF16": 16, "FP16": 16, "FP32": 32}[fmt]
    sign, magnitude = code >> (width - 1), code & ((1 << (width - 1)) - 1)
    field, fraction = magnitude >> bits, magnitude & ((1 << bits) - 1)
    significand = Fraction(fraction + (1 << bits if field else 0), 1 << bits)
    return (-significand if sign else significand), max(field - 1, 0) + least


def rounded(value, unit, how):
    units = value / unit
    whole = units.numerator // units.denominator
    if how == "nearest":
        return round(units) * unit
    return (whole + (how == "zero" and units < 0 and units != whole)) * unit


def reading(rule, formats, a, b, c):
    """The bits of a step by a rule, right or wrong."""
    if rule.terms < len(a):
        half = reading(rule, formats, a[: rule.terms], b[: rule.terms], c)
        return reading(rule, formats, a[rule.terms :], b[rule.terms :], half)
    terms = []
    for x, y in zip(a, b, strict=True):
        (s, e), (t, f) = number(formats[0], x), number(formats[1], y)
        exponent = e + f
        if s * t and (rule.own_exponents or rule.normalised):
            steep = floor_log2(abs(s * t))
            exponent += steep if rule.own_exponents else max(steep, 0)
        terms.append((s * t * Fraction(2) ** (e + f), exponent if s * t or rule.zero_counts else -(10**6)))
    significand, place = number("FP32", c)
    start = (significand * Fraction(2) ** place, place if significand else -(10**6))
    counted = [e for _, e in (terms if rule.accumulator_last or not rule.accumulator_counts else [*terms, start])]
    top = max([rule.least, *counted])
    summed = [v for v, _ in (terms if rule.accumulator_last else [*terms, start])]
    if rule.cut_terms:
        summed = [rounded(v, Fraction(2) ** (top - rule.fraction), rule.cut) for v in summed]
    total = sum(summed, Fraction(0))
    if rule.accumulator_last:
        return float_bits(total + start[0])
    if total == 0:
        return 0
    total = rounded(total, Fraction(2) ** (max(floor_log2(abs(total)), -126) - rule.result), rule.result_cut)
    minus = total < 0 or (total == 0 and rule.signed_zero and sum(summed) < 0)
    return min(float_bits(abs(total)), 0x7F800000) | (0x80000000 if minus else 0)


def finite(kind):
    """Captured steps without NaN, infinities and overflow."""
    for formats, a, b, c, out in steps(kind):
        codes = [(fmt, int(code)) for fmt, x in zip(formats, (a, b), strict=True) for code in x]
        limits = {"E4M3": 0x7E, "E5M2": 0x7B, "BF16": 0x7F7F}
        plain = all(code & (0x7F if fmt[0] == "E" else 0x7FFF) <= limits[fmt] for fmt, code in codes)
        if plain and c & 0x7FFFFFFF < 0x7F800000 and out & 0x7FFFFFFF < 0x7F800000:
            yield formats, a.tolist(), b.tolist(), c, out


@pytest.mark.parametrize("kind", RULES)
def test_the_rule_gives_every_captured_step(kind):
    found = list(finite(kind))
    assert len(found) > 40
    assert all(reading(RULES[kind], *given) == out for *given, out in found)


@pytest.mark.parametrize("kind, name", [(kind, name) for kind in WRONG for name in WRONG[kind]])
def test_every_wrong_reading_is_seen(kind, name):
    rule = dataclasses.replace(RULES[kind], **WRONG[kind][name])
    assert any(reading(rule, *given) != out for *given, out in finite(kind)), name
