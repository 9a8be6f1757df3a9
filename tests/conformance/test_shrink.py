"""Shrinking: the same failure, never larger, down to the lane and the bits that matter."""

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.conformance.cases import crop
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import NO_LEVEL
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cases.recipes import sampled_cases
from refnum.conformance.cases.structure.factors import GROUPED
from refnum.conformance.cases.structure.illegal import legal_beside
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.mismatches.failures import shows
from refnum.conformance.mismatches.shrink import SHRINKERS, Search, shrink, weight
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.tally import Failure


def quantise(x):
    return Case("quantize_mxfp4", "HOPPER", {"input": x.dtype.name}, {"x": x})


def big(dtype=np.float32, rows=6, k=256, seed=3):
    x = (np.random.default_rng(seed).standard_normal((rows, k)) * 40).astype(dtype)
    x[4, 131] = 1.25 * 2**5
    x[4, 128:160] = np.where(np.abs(x[4, 128:160]) > 190, 3, x[4, 128:160])
    x[4, 129] = 6 * 2**5
    return quantise(x)


def wrong_subject(**changes):
    def kernel(x):
        return refnum.quantize_mxfp4(x, refnum.HOPPER.replace(name="wrong", **changes))

    return Subject("k", {"quantize_mxfp4": kernel})


def shrunk(case, subject, **more):
    failure = Failure(case, NO_LEVEL)
    assert shows(subject, case, failure)
    return shrink(case, lambda smaller: shows(subject, smaller, failure), seconds=60, **more)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_a_tie_is_shrunk_to_one_block_with_one_or_two_plain_elements_at_scale_one(dtype):
    case = shrunk(big(dtype), wrong_subject(ties="away"))
    x = case.inputs["x"].astype(np.float32)
    assert x.shape == (1, 32) and 1 <= np.count_nonzero(x) <= 2 and (x >= 0).all()
    assert 126 <= run_golden(case)["scales"][0, 0] <= 128
    assert np.abs(x).max() < 8


def test_a_failure_of_the_scale_is_shrunk_to_a_maximum_and_a_witness():
    case = shrunk(big(), wrong_subject(scale_rule="floor"))
    assert case.inputs["x"].shape == (1, 32) and np.count_nonzero(case.inputs["x"]) <= 2


def test_the_end_of_the_range_is_kept_when_the_failure_needs_it():
    x = np.zeros((4, 64), np.float32)
    x.view(np.uint32)[2, 40] = 0x00400001

    def flushes(x):
        bits = x.view(np.uint32)
        return refnum.quantize_mxfp4(np.where(bits & 0x7F800000, bits, bits & 0x80000000).view(np.float32))

    case = shrunk(quantise(x), Subject("k", {"quantize_mxfp4": flushes}))
    bits = case.inputs["x"].view(np.uint32)
    assert bits.shape == (1, 32) and np.count_nonzero(bits) == 1 and 0 < bits.max() < 0x00800000
    assert bin(bits.max()).count("1") == 1


def test_a_last_row_failure_keeps_two_rows():
    def last_row(x):
        packed, scales = refnum.quantize_mxfp4(x)
        if len(packed) > 1:
            packed[-1] ^= 1
        return packed, scales

    case = shrunk(big(), Subject("k", {"quantize_mxfp4": last_row}))
    assert case.inputs["x"].shape == (2, 32) and not case.inputs["x"].view(np.uint32).any()


def test_column_operations_keep_their_splits_in_step():
    rng = np.random.default_rng(5)
    packed, scales = rng.integers(0, 256, (300, 128), np.uint8), rng.integers(100, 140, (300, 8), np.uint8)
    inputs = {"packed": packed, "scales": scales}
    given = Case("mxfp4_to_fp8_columns", "HOPPER", {"scale": "max", "splits": [7, 0, 293]}, inputs)

    def signless(packed, scales, splits, scale):
        codes, out = refnum.mxfp4_to_fp8_columns(packed, scales, splits, scale)
        return codes & 0x7F, out

    subject = Subject("k", {"mxfp4_to_fp8_columns": signless})
    case = shrunk(given, subject)
    assert case.inputs["packed"].shape == (1, 16) and case.params["splits"] == [1]
    assert np.count_nonzero(case.inputs["packed"]) == 1 and case.inputs["scales"].tolist() == [[127]]


def test_tiles_of_128_rows_are_cut_at_their_borders():
    codes = np.random.default_rng(2).integers(0, 127, (300, 256), np.uint8)
    scales = np.full((3, 2), 120, np.uint8)
    given = Case(
        "dequantize_fp8_tiles", "HOPPER", {"tile": [128, 128], "dtype": "float32"}, {"codes": codes, "scales": scales}
    )

    def wrong(codes, scales, tile, dtype):
        values = refnum.dequantize_fp8_tiles(codes, scales, tile, dtype)
        return np.where(codes == codes[-1, -1], -values, values)

    case = shrunk(given, Subject("k", {"dequantize_fp8_tiles": wrong}))
    assert case.inputs["codes"].shape == (1, 32)
    assert case.inputs["scales"].tolist() == [[127]]


def test_a_shrunk_case_still_fails_and_no_step_makes_it_heavier():
    case = big()
    subject = wrong_subject(ties="away")
    failure = Failure(case, NO_LEVEL)
    weights = []

    def fails(smaller):
        again = shows(subject, smaller, failure)
        if again:
            weights.append(weight(smaller))
        return again

    last = shrink(case, fails, seconds=60)
    assert shows(subject, last, failure) and weights == sorted(weights, reverse=True) and weights[0] < weight(case)


def test_the_budget_of_calls_is_kept():
    calls = []

    def fails(case):
        calls.append(case.digest())
        return True

    shrink(big(), fails, calls=4)
    assert len(calls) == 4 and len(set(calls)) == 4


def test_a_case_is_never_asked_twice_and_a_heavier_one_never():
    search = Search(big(), lambda case: False)
    smaller = crop.take_rows(search.best, 0, 1)
    assert not search.consider(smaller) and search.calls == 399
    assert not search.consider(smaller) and search.calls == 399
    assert not search.consider(search.best) and search.calls == 399


def test_what_does_not_fail_smaller_stays_as_it_is():
    case = big()
    assert shrink(case, lambda smaller: False, calls=100) is case


@pytest.mark.parametrize("shrinker", SHRINKERS, ids=lambda shrinker: type(shrinker).__name__)
def test_every_idea_proposes_legal_cases_for_every_operation(shrinker):
    """Each proposal must be a case that the golden model takes: an illegal one is a wasted call, or a crash."""
    tried = 0
    for operation, params in (
        ("quantize_mxfp4", {"input": "float32"}),
        ("fp8_columns", {"underflow": "te"}),
        ("quantize_fp8_tiles", {"tile": [128, 128], "input": "bfloat16"}),
        ("dequantize_fp8_tiles", {"tile": [128, 128], "dtype": "float32"}),
        ("mxfp4_to_fp8", {"scale": "max"}),
        ("encode_e4m3", {"overflow": "nan", "input": "float16"}),
        ("dequantize_mx", {"element": "E3M2", "dtype": "bfloat16"}),
        ("fp8_to_mxfp4", {}),
        ("matmul_fp8", {"order": "promote128", "out": "float32", "a_format": "E4M3", "b_format": "E5M2"}),
    ):
        experts = [legal_beside(operation, "HOPPER", params, experts=True)] if operation in GROUPED else []
        for case in (*sampled_cases(operation, "HOPPER", params, 1, 4), *experts):
            search = Search(case, lambda smaller: bool(run_golden(smaller)) and False, calls=40, seconds=30)
            shrinker.run(search)
            tried += 40 - search.calls
    assert tried


def test_recipes_are_shrunk_as_recipes():
    case = next(
        case
        for case in sampled_cases("quantize_mxfp4", "HOPPER", {"input": "float32"}, 5, 30)
        if case.recipe.shape[0] > 4
    )
    search = Search(case, lambda smaller: smaller.inputs["x"].shape[0] >= 2)
    SHRINKERS[0].run(search)
    assert search.best.recipe is not None and search.best.inputs["x"].shape[0] == 2


# --- crop -------------------------------------------------------------------------------------------------------


def test_taking_rows_keeps_rowwise_vectors_and_splits_in_step():
    x = np.arange(10 * 32, dtype=np.float32).reshape(10, 32).astype(ml_dtypes.bfloat16)
    case = Case(
        "swiglu_quantize",
        "HOPPER",
        {"to": "fp8", "splits": [4, 0, 6]},
        {"gate": x, "up": x, "prob": np.arange(10, dtype=np.float32)},
    )
    cut = crop.take_rows(case, 3, 6)
    assert cut.inputs["gate"].shape == (3, 32) and cut.inputs["prob"].tolist() == [3, 4, 5]
    assert cut.params["splits"] == [1, 2]


@pytest.mark.parametrize("operation", [name for name, row in OPERATIONS.items() if not (row.moves_only or row.routed)])
def test_columns_of_every_operation_are_cut_in_step(operation):
    (case,) = control_cases(operation, "HOPPER", OPERATIONS[operation].defaults())
    rows, unit = crop.shape(case)[0], crop.column_unit(case)
    cut = crop.take_columns(case, 0, unit)
    assert crop.shape(case)[1] > unit and crop.shape(cut) == (rows, unit)
    assert run_golden(cut)


def test_patterns_and_with_patterns_are_inverse():
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (3, 32), np.uint8)
    case = Case("dequantize_mxfp4", "HOPPER", {"dtype": "float32"}, {"packed": packed, "scales": packed[:, :2].copy()})
    flat = crop.patterns(case, "packed")
    assert flat.size == 3 * 64 and flat.max() < 16
    assert np.array_equal(crop.with_patterns(case, "packed", flat).inputs["packed"], packed)


@pytest.mark.parametrize(
    "operation",
    [
        "pack_payload",
        "quantize_payload",
        "fp8_to_payload",
        "permute_pad",
        "permute_unpack",
        "unpermute",
        "swiglu_quantize",
        "swiglu_backward",
        "mxfp4_columns",
        "quantize_mx",
        "dequantize_mx",
        "encode_e8m0",
        "decode_e4m3",
    ],
)
def test_a_wrong_bit_of_any_operation_is_shrunk_and_stays_wrong(operation):
    from refnum.conformance.cases.operation import OPERATIONS, call_golden
    from refnum.conformance.commands.check.control_cases import control_cases

    (case,) = control_cases(operation, "HOPPER", OPERATIONS[operation].defaults())

    def wrong(**keywords):
        profile = keywords.pop("profile", None)
        params = {**case.params, **{name: value for name, value in keywords.items() if name == "splits"}}
        arrays = {name: value for name, value in keywords.items() if isinstance(value, np.ndarray)}
        again = Case(operation, "HOPPER", params, arrays)
        assert profile is None or profile.name == "HOPPER"
        first, *rest = (array.copy() for array in call_golden(again))
        if first.size:
            first.reshape(-1).view(np.uint8)[0] ^= 1
        return (first, *rest)

    subject = Subject("k", {operation: wrong})
    failure = Failure(case, 1)
    assert shows(subject, case, failure)
    small = shrink(case, lambda smaller: shows(subject, smaller, failure), calls=150, seconds=60)
    assert shows(subject, small, failure) and weight(small) < weight(case)
