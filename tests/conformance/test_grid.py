"""The points of a picture are places of elements: inputs over the scale, values of both codes."""

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.operation import run_golden
from refnum.conformance.mismatches.grid import MOST_RIGHT, MOST_WRONG, grid


def case_of(values, operation="quantize_mxfp4", **params):
    x = np.zeros((1, 32 if operation == "quantize_mxfp4" else 128), np.float32)
    x[0, : len(values)] = values
    return Case(operation, "HOPPER", {"input": "float32", **params}, {"x": x})


def away(case):
    profile = refnum.get_profile("HOPPER").replace(name="w", ties="away")
    return run_golden(case, profile)


def test_ties_are_points_between_two_codes():
    case = case_of([12.0, 10.0, 2.5, -5.0])  # scale 2
    found = grid(case, run_golden(case), away(case), 4)
    assert found["element"] == "E2M1" and found["output"] == "packed"
    assert found["points"][:3] == [[5.0, 4.0, 6.0], [1.25, 1.0, 1.5], [-2.5, -2.0, -3.0]]
    assert all(expected == observed for _, expected, observed in found["points"][3:])


def test_another_scale_is_seen_in_the_unit_of_the_right_one():
    case = case_of([6.0, 1.0])
    golden = run_golden(case)
    found = grid(case, golden, {**golden, "scales": golden["scales"] + np.uint8(1)}, 4)
    assert [6.0, 6.0, 12.0] in found["points"] and [1.0, 1.0, 2.0] in found["points"]


def test_a_code_without_a_value_is_none_and_no_input_is_placed_at_infinity():
    case = case_of([448.0, 3.0, np.inf], "quantize_fp8_tiles", tile=[1, 128])
    golden = run_golden(case)
    codes = golden["codes"].copy()
    codes[0, 1:3] = 0x7F
    found = grid(case, golden, {**golden, "codes": codes}, 4)
    assert [3.0, 3.0, None] in found["points"]
    assert all(abs(x) < 1e6 for x, _, _ in found["points"])


def test_coded_input_is_read_with_its_own_scale():
    codes = np.full((1, 128), 0x38, np.uint8)  # 1.0
    codes[0, 0] = 0x4C  # 6 in steps: 3.0
    case = Case("fp8_to_mxfp4", "HOPPER", {}, {"codes": codes, "scales": np.full((1, 1), 130, np.uint8)})
    golden = run_golden(case)
    packed = golden["packed"].copy()
    packed[0, 0] ^= 1
    found = grid(case, golden, {**golden, "packed": packed}, 4)
    exact = float(refnum.dequantize_mxfp4(golden["packed"], golden["scales"])[0, 0]) / 2.0 ** (
        int(golden["scales"][0, 0]) - 127
    )
    assert found["points"][0][:2] == [exact, exact] and found["points"][0][2] != exact


def test_points_are_few_and_each_once():
    rng = np.random.default_rng(1)
    x = rng.integers(-24, 25, (64, 1024)).astype(np.float32) / 4
    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": x})
    found = grid(case, run_golden(case), away(case), 4)
    wrong = [point for point in found["points"] if point[1] != point[2]]
    assert 0 < len(wrong) <= MOST_WRONG and len(found["points"]) - len(wrong) <= MOST_RIGHT
    assert len({tuple(point) for point in found["points"]}) == len(found["points"])


@pytest.mark.parametrize("operation", ["pack_payload", "dequantize_mxfp4"])
def test_what_has_no_element_codes_has_no_picture(operation):
    packed, scales = np.zeros((1, 16), np.uint8), np.zeros((1, 1), np.uint8)
    case = Case(operation, "HOPPER", {}, {"packed": packed, "scales": scales})
    golden = run_golden(case)
    name = next(iter(golden))
    assert grid(case, golden, {**golden, name: golden[name] + 1}, 0) == {}


def test_right_results_have_no_picture():
    case = case_of([1.0])
    assert grid(case, run_golden(case), run_golden(case), 0) == {}
