"""Kernels wrong in what no shape says: arrays of no axes, inputs that are one array, numbers that are arguments."""

import functools
import itertools

import numpy as np
import pytest
from structure_tools import engine_of, golden, verdict

from refnum.conformance.cases.case import Case
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cases.structure import plan, structure_cases
from refnum.conformance.cases.structure.build import build
from refnum.conformance.cases.structure.cutting import UNCUT, Part
from refnum.conformance.cases.structure.factors import STORAGES
from refnum.conformance.cases.structure.fields import fields
from refnum.conformance.cases.structure.uniform import levels, uniform
from refnum.conformance.subjects.calls.call import call, other_data
from refnum.conformance.subjects.calls.moved import call_with_gaps, call_with_odd_rows, call_with_padded_rows
from refnum.conformance.subjects.calls.parts import call_parts
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.probes import probe


def flipped(result):
    first = np.array(result[0] if isinstance(result, tuple) else result, order="C")
    first.reshape(-1).view(np.uint8)[-1] ^= 1
    return (first, *result[1:]) if isinstance(result, tuple) else first


def test_a_kernel_that_is_wrong_on_an_array_of_no_axes_is_told_and_the_run_goes_on():
    def kernel(x, overflow="saturate"):
        right = golden("encode_e4m3")(x, overflow)
        return flipped(right) if x.ndim == 0 else right

    tally = verdict("encode_e4m3", kernel)
    assert tally.outcome is Outcome.MISMATCH
    assert any(failure.case.inputs["x"].ndim == 0 for failure in tally.failures)


@pytest.mark.parametrize("operation", ["swiglu_quantize", "q_ema", "swiglu_backward", "matmul_fp8", "matmul_bf16"])
def test_inputs_that_are_one_array_are_told(operation):
    names = OPERATIONS[operation].inputs

    def kernel(**keywords):
        right = golden(operation)(**keywords)
        return flipped(right) if np.may_share_memory(keywords[names[0]], keywords[names[1]]) else right

    assert Finding.ONE_ARRAY in {failure.finding for failure in probed(operation, kernel).failures}
    assert not probed(operation, lambda **keywords: golden(operation)(**keywords)).wrong


@pytest.mark.parametrize("operation", ["swiglu_quantize", "q_ema"])
def test_inputs_whose_columns_stand_in_one_array_in_turn_are_told(operation):
    names = OPERATIONS[operation].inputs

    def kernel(**keywords):
        right = golden(operation)(**keywords)
        one, other = (keywords[name] for name in names)
        apart = other.__array_interface__["data"][0] - one.__array_interface__["data"][0]
        return flipped(right) if one.strides[1] == 2 * one.itemsize and apart == one.itemsize else right

    assert Finding.ONE_ARRAY in {failure.finding for failure in probed(operation, kernel).failures}


def probed(operation, kernel):
    """Return the tally of a kernel that was probed on one structural case."""
    subject = Subject("k", {operation: kernel})
    engine = engine_of(subject, operation, quick=False)
    every = structure_cases(operation, "HOPPER", OPERATIONS[operation].defaults(), "smoke")
    products = OPERATIONS[operation].family == "product"  # of which one has operands of two shapes
    asked = next(one for one in every if not products or one.case.inputs["a"].shape != one.case.inputs["b"].shape)
    probe(subject, asked.case, run_golden(asked.case), engine.tallies["k"], 60.0)
    return engine.tallies["k"]


SCALARS = [name for name, row in OPERATIONS.items() if row.scalar]


@pytest.mark.parametrize("operation", SCALARS)
def test_a_right_kernel_keeps_the_contract_on_an_array_of_no_axes(operation):
    name, params = OPERATIONS[operation].inputs[0], OPERATIONS[operation].defaults()
    case = build(operation, "HOPPER", params, {"form of the array": "scalar"}, 5)
    assert case.inputs[name].shape == () == other_data(case).inputs[name].shape
    subject = Subject("k", {operation: lambda **keywords: golden(operation)(**keywords)})
    tally = engine_of(subject, operation, quick=False).tallies["k"]
    probe(subject, case, run_golden(case), tally, 60.0)
    assert not tally.wrong and not tally.failures and not any(tally.probes.values())


@pytest.mark.parametrize("operation", SCALARS)
def test_a_right_kernel_keeps_the_contract_on_arrays_of_four_axes_in_every_storage(operation):
    name, subject = OPERATIONS[operation].inputs[0], Subject("k", {operation: golden(operation)})
    for params, storage in itertools.product(OPERATIONS[operation].variants(), STORAGES):
        row = {"form of the array": "four axes", "elements": 40, f"{name}.storage": storage, f"{name}.address": 12}
        case = build(operation, "HOPPER", params, row, 3)
        called = call(subject, case)
        assert case.inputs[name].ndim == 4 and called.outcome is Outcome.PASS, (params, storage, called.words)


@pytest.mark.parametrize("operation", ["decode_e4m3", "dge", "out_control", "adam_apply"])
@pytest.mark.parametrize("axes", [1, 3, 4])
def test_a_kernel_that_takes_arrays_of_so_many_axes_for_contiguous_is_told(operation, axes):
    def dense(array):
        if np.ndim(array) != axes:
            return array
        steps = array.itemsize * np.cumprod((1, *array.shape[:0:-1]))[::-1]
        return np.lib.stride_tricks.as_strided(array, array.shape, steps)

    def kernel(**keywords):
        read = {name: dense(keywords[name]) for name in OPERATIONS[operation].inputs if name != "factors"}
        return golden(operation)(**{**keywords, **read})

    assert verdict(operation, kernel, rows=lambda row: "form of the array" in row).outcome is Outcome.MISMATCH


@pytest.mark.parametrize("moved", [call_with_gaps, call_with_odd_rows, call_with_padded_rows])
@pytest.mark.parametrize("shape", [(), (5,)])
def test_a_kernel_that_writes_an_input_without_rows_is_told_and_the_case_keeps_its_data(moved, shape):
    def kernel(codes, dtype="float32"):
        result = golden("decode_e4m3")(codes, dtype)
        codes[...] = 3
        return result

    case = Case("decode_e4m3", "HOPPER", {"dtype": "float32"}, {"codes": np.zeros(shape, np.uint8)})
    assert moved(Subject("k", {"decode_e4m3": kernel}), case).finding == Finding.INPUT_MUTATED
    assert not case.inputs["codes"].any()


def test_a_product_is_asked_in_more_columns_than_a_tile_has():
    cases = structure_cases("matmul_fp8", "HOPPER", OPERATIONS["matmul_fp8"].defaults(), "full")
    wide = {len(asked.case.inputs["b"]) for asked in cases}
    assert {17, 33, 64, 65, 129, 257} <= wide


@functools.cache
def asked_with(operation):
    """Return the parameters of every field of an operation."""
    every = fields(operation, "HOPPER", OPERATIONS[operation].defaults(), "full")
    return [field.case.params for field in every]


@pytest.mark.parametrize(("operation", "name"), [("radix4", "n0"), ("dge", "k"), ("dge", "cap")])
def test_numbers_that_are_arguments_stand_beside_many_rows(operation, name):
    row = OPERATIONS[operation]
    assert len({params[name] for params in asked_with(operation)} - {row.params[name][0]}) > 1


def test_a_breach_after_a_refusal_alone_is_told():
    """The call of a part is watched once more where the quick way saw a breach: after a refusal, as it was made."""
    last = [0]

    def kernel(codes, dtype="float32"):
        broken, last[0] = last[0] == 3, codes.ndim
        right = golden("decode_e4m3")(codes, dtype)
        right.flags.writeable = not broken
        return right

    case = Case("decode_e4m3", "HOPPER", {"dtype": "float32"}, {"codes": np.zeros((3, 5), np.uint8)})
    part = Part(0, 0, {"columns": 5}, {}, calls="after a refusal")
    subject = Subject("k", {"decode_e4m3": kernel})
    (called,) = call_parts(subject, case, UNCUT, [part], (np.zeros((3, 5), np.float32),))
    assert called.finding == Finding.READ_ONLY


def test_every_length_of_an_expert_stands_in_one_case_of_every_variant():
    for params in OPERATIONS["fp8_columns"].variants():
        asked = fields("fp8_columns", "HOPPER", params, "brief")
        assert any({1, 65, 129, 513, 1025} <= set(field.case.params.get("splits") or []) for field in asked)


def test_rows_of_zeros_decide_scales_of_columns():
    """They take no part in the scale of their tile (N10), though their own is the largest."""
    asked = fields("fp8_columns", "HOPPER", OPERATIONS["fp8_columns"].defaults(), "full")
    found = [one.case for one in asked if one.parts[0].row["classes"] == "special"][:200]
    decided = 0
    for case in found:
        codes = case.inputs["codes"]
        ones = case.with_inputs({"codes": codes | np.uint8(codes == 0)})
        decided += not np.array_equal(run_golden(ones)["scales"], run_golden(case)["scales"])
    assert decided > len(found) // 4


@pytest.mark.parametrize("name", ["a_scales", "b_scales"])
def test_scales_of_a_product_without_a_bit_are_asked(name):
    """A float32 scale is then +0, an E8M0 byte 2^-127; the other inputs are what they were."""
    params = OPERATIONS["matmul_fp8"].defaults()
    case = build("matmul_fp8", "HOPPER", params, plan.base_row("matmul_fp8"), 0)
    assert f"{name} no bit" in levels("matmul_fp8", params, case.inputs)
    found = uniform("matmul_fp8", params, case.inputs, f"{name} no bit")
    assert not found[name].view(np.uint8).any()
    assert all(found[other] is array for other, array in case.inputs.items() if other != name)
    assert run_golden(case.with_inputs(found))["values"].shape == run_golden(case)["values"].shape


def test_a_product_that_loses_the_sign_of_scales_by_block_is_told():
    def kernel(**keywords):
        for name in ("a_scales", "b_scales"):
            scales = keywords.get(name)
            if scales is not None and scales.dtype == np.float32 and scales.shape[-1] > 1:
                keywords[name] = np.abs(scales)
        return golden("matmul_fp8")(**keywords)

    assert verdict("matmul_fp8", kernel, rows=lambda row: "scales as" in row).outcome is Outcome.MISMATCH
