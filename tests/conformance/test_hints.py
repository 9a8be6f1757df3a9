"""Hints are right on a sample of what `hint_measure.py` measures whole, and the policies of libraries have entries."""

from __future__ import annotations

import numpy as np
import pytest
from hint_measure import LABELS, Met, measured

from refnum.arrays import pack_nibbles
from refnum.conformance.bugs.special_blocks import POLICIES
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.operation import outputs_of
from refnum.conformance.mismatches.diagnose import Seen, hints

SAMPLE = ("S04 reciprocal one ulp high", "S13 NaN ignored by max", "S21 floor(amax/6)", "S15 lane 7 left out",
          "E01 ties away", "E09 through bfloat16", "E03-E06 tie 2.5 wrong")  # fmt: skip
NO_RULE = ("last_element_wrong", "nan_payload")


def test_the_first_hint_is_right_and_what_no_rule_gives_has_none() -> None:
    found = {one.name: one for one in measured([*SAMPLE, *NO_RULE])}
    assert {name: found[name].verdict for name in SAMPLE} == dict.fromkeys(SAMPLE, "right")
    assert {name: found[name].hints for name in NO_RULE} == dict.fromkeys(NO_RULE, ())
    assert Met("", ("A",), ("B", "A")).verdict == "wrong" and set(LABELS) >= {name[:3] for name in SAMPLE}


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
