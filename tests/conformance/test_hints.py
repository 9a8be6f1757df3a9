"""Hints are right on a sample of what `hint_measure.py` measures whole, and the policies of libraries have entries."""

from __future__ import annotations

import numpy as np
import pytest
from hint_measure import LABELS, Met, measured

import refnum
from refnum.arrays import pack_nibbles
from refnum.conformance.bugs.special_blocks import POLICIES
from refnum.conformance.bugs.suspects import SUSPECTS
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import P1
from refnum.conformance.cases.operation import outputs_of, run_golden
from refnum.conformance.mismatches.diagnose import Seen, explains, hints
from refnum.conformance.mismatches.hints import hints_for
from refnum.conformance.subjects.subject import Subject

SAMPLE = ("S04 reciprocal one ulp high", "S13 NaN ignored by max", "S21 floor(amax/6)", "S15 lane 7 left out",
          "E01 ties away", "E09 through bfloat16", "E03-E06 tie 2.5 wrong")  # fmt: skip
NO_RULE = ("last_element_wrong", "nan_payload")


def test_the_first_hint_is_right_and_what_no_rule_gives_has_none() -> None:
    found = {one.name: one for one in measured([*SAMPLE, *NO_RULE])}
    assert {name: found[name].verdict for name in SAMPLE} == dict.fromkeys(SAMPLE, "right")
    assert {name: found[name].hints for name in NO_RULE} == dict.fromkeys(NO_RULE, ())
    assert Met("", ("A",), ("B", "A")).verdict == "wrong" and set(LABELS) >= {name[:3] for name in SAMPLE}


def test_a_sign_of_zero_tells_rules_apart_though_values_are_equal() -> None:
    """A mutant of encode_e2m1 gives zeros that keep their sign: its output was written."""

    def encode_e2m1(x: np.ndarray) -> np.ndarray:
        return refnum.encode_e2m1(x) & np.uint8(8)

    subject = Subject("signed zeros", {"encode_e2m1": encode_e2m1})
    for x in (np.float32([1, 2, 3]), np.float32([-1, 2, -3])):
        case = Case("encode_e2m1", "HOPPER", {"input": "float32"}, {"x": x})
        kept = [Seen(case, {"codes": encode_e2m1(x)}, P1 - 1)]
        assert any(explains(one, kept[0]) for one in SUSPECTS if one.id == "OUTPUT_NOT_WRITTEN") is bool(x[0] > 0)
        assert hints_for(subject, kept, 60.0) == []


def test_a_subject_that_is_right_to_the_bit_refutes_a_rule_whose_values_are_right() -> None:
    """A mutant of mxfp4_to_fp8 takes blocks of negative zeros for numbers; those of positive zeros join nothing."""
    rule = next(one for one in SUSPECTS if one.id == "EMPTY_BLOCK_JOINS_MAX")

    def mxfp4_to_fp8(packed: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, ...]:
        given = {"packed": packed, "scales": scales}
        golden = run_golden(Case("mxfp4_to_fp8", "HOPPER", {"scale": "max"}, given))
        blocks = packed.reshape(*scales.shape, 16)
        empty, positive = (((blocks & mask) == 0).all(axis=-1) & (scales != 255) for mask in (0x77, 0xFF))
        lowered = {**given, "scales": np.where(positive, np.uint8(0), scales)}
        joined = rule.wrong(Case("mxfp4_to_fp8", "HOPPER", {"scale": "max"}, lowered), golden)
        return tuple((joined if joined and (empty & ~positive).any() else golden).values())

    packed, scales = np.full((1, 64), 0x11, np.uint8), np.array([[120, 140, 120, 120]], np.uint8)
    packed[0, 16:32] = 0x88
    case = Case("mxfp4_to_fp8", "HOPPER", {"scale": "max"}, {"packed": packed, "scales": scales})
    kept = [Seen(case, dict(zip(run_golden(case), mxfp4_to_fp8(packed, scales), strict=True)), P1 - 1)]
    subject = Subject("negative zeros", {"mxfp4_to_fp8": mxfp4_to_fp8})
    assert explains(rule, kept[0]) and hints_for(subject, kept, 60.0) == []


def bits(*words: int) -> np.ndarray:
    return np.array(words, np.uint32).view(np.float32)


X = np.zeros((5, 32), np.float32)
X[0, :6] = np.inf, 1, -2, 3e38, -3e38, -0.0
X[1, :6] = -np.inf, 1, -2, 3e38, -3e38, -0.0
X[2, :6] = *bits(0x7FC00000), 1, -2, 3e38, -3e38, -0.0
X[3, :6] = *bits(0xFFC00000), 1, -2, 3e38, -3e38, -0.0
X[4, :5] = *bits(0x7FC00000), np.inf, -np.inf, 1, -0.0
RELEASED = {
    ("the plain formula in torch", "quantize_mxfp4", "HOPPER", "E2M1"): (
        (253, (7, 0, 8, 6, 14, 8)), (253, (15, 0, 8, 6, 14, 8)), (253, (0, 0, 8, 6, 14, 8)),
        (253, (8, 0, 8, 6, 14, 8)), (253, (0, 7, 15, 0, 8))),
    ("torchao 0.18, floor", "quantize_mxfp4", "OCP", "E2M1"): (
        (253, (7, 0, 8, 6, 14, 8)), (253, (15, 0, 8, 6, 14, 8)), (255, (3, 0, 8, 0, 8, 8)),
        (255, (11, 0, 8, 0, 8, 8)), (255, (3, 11, 11, 0, 8))),
    ("torchao 0.18, rceil", "quantize_mxfp4", "HOPPER", "E2M1"): (
        (254, (7, 0, 8, 4, 12, 8)), (254, (15, 0, 8, 4, 12, 8)), (255, (3,) * 32), (255, (3,) * 32), (255, (3,) * 32)),
    ("torchao 0.18, even", "quantize_mx", "EVEN", "E4M3"): (
        (247, (126, 0, 128, 118, 246, 128)), (247, (254, 0, 128, 118, 246, 128)), (255, (127, 0, 128, 0, 128, 128)),
        (255, (255, 0, 128, 0, 128, 128)), (255, (127, 255, 255, 0, 128))),
    ("gfloat", "quantize_mx", "OCP", "E5M2"): (
        (254, (123, 0, 128, 63, 191, 128)), (254, (251, 0, 128, 63, 191, 128)), (255, (255,) * 32), (255, (255,) * 32),
        (255, (255,) * 32)),
    ("the CUDA headers", "quantize_mx", "HOPPER", "E2M3"): ((255, (31,) * 32),) * 5,
}  # fmt: skip
"""Library, operation, profile, element -> scale byte and first codes of each row of X, as the release gave them."""


@pytest.mark.parametrize(("library", "given"), RELEASED.items(), ids=lambda one: one[0] if len(one) == 4 else "")
def test_the_policies_of_libraries_for_inf_and_nan_are_named(library: tuple[str, ...], given: tuple) -> None:
    _, operation, profile, element = library
    params = {"input": "float32", **({"element": element} if operation == "quantize_mx" else {})}
    case = Case(operation, profile, params, {"x": X})
    codes = np.zeros(X.shape, np.uint8)
    for row, (_, first) in enumerate(given):
        codes[row, : len(first)] = first
    name = outputs_of(case)[0].name
    scales = np.array([[byte] for byte, _ in given], np.uint8)
    observed = {name: pack_nibbles(codes) if name == "packed" else codes, "scales": scales}
    found = hints([Seen(case, observed)])
    assert found and found[0]["words"] in {policy.words for policy in POLICIES}
    assert found[0]["id"] in ("INF_BLOCK_POLICY", "SPECIAL_INPUT_UNDEFINED")
