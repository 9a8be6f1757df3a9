import ml_dtypes
import numpy as np
import pytest

from refnum.conformance.cases.case import Case, variant
from refnum.conformance.cases.operation import OPERATIONS, outputs_of, run_golden, select
from refnum.errors import ArgumentError


def block(value=1.25, dtype=np.float32):
    x = np.zeros((1, 32), dtype)
    x[0, :2] = (6.0, value)
    return x


def quantise(x, **params):
    return Case("quantize_mxfp4", "HOPPER", {"input": x.dtype.name, **params}, {"x": x})


def test_a_digest_depends_on_everything_that_decides_the_result():
    case = quantise(block())
    assert case.digest() == quantise(block()).digest()
    others = [
        quantise(block(1.5)),
        quantise(block().reshape(1, 32).astype(ml_dtypes.bfloat16)),
        Case("quantize_mxfp4", "OCP", case.params, case.inputs),
        Case("quantize_mx", "HOPPER", case.params, case.inputs),
        Case("quantize_mxfp4", "HOPPER", {**case.params, "splits": [1]}, case.inputs),
        quantise(block().reshape(1, 32)[:, :].repeat(2, axis=0)),
    ]
    assert len({case.digest(), *(other.digest() for other in others)}) == len(others) + 1


def test_a_digest_does_not_depend_on_label_recipe_or_memory_order():
    x = np.asfortranarray(np.arange(64, dtype=np.float32).reshape(2, 32))
    one = Case("quantize_mxfp4", "HOPPER", {}, {"x": x}, label="a", domain="d")
    two = Case("quantize_mxfp4", "HOPPER", {}, {"x": np.ascontiguousarray(x)}, label="b")
    assert one.digest() == two.digest()


def test_descriptive_parameters_are_not_passed_on():
    case = Case("quantize_fp8_tiles", "HOPPER", {"tile": [1, 128], "input": "float32"}, {"x": block()})
    assert set(case.arguments()) == {"x", "tile"} and case.arguments()["tile"] == (1, 128)


def test_a_changed_case_loses_its_recipe_and_keeps_the_original():
    case = quantise(block())
    changed = case.with_inputs({"x": block(3.0)}, {"splits": [1]})
    assert changed.recipe is None and case.inputs["x"][0, 1] == 1.25 and "splits" not in case.params


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"scale": "max", "splits": [3, 0]}, "mxfp4_to_fp8_columns[HOPPER, scale=max]"),
        ({"tile": [128, 128]}, "mxfp4_to_fp8_columns[HOPPER, tile=128x128]"),
    ],
)
def test_variant_names(params, name):
    assert variant("mxfp4_to_fp8_columns", "HOPPER", params) == name


def test_golden_outputs_are_unsigned_integers_by_name():
    outputs = run_golden(quantise(block()))
    assert list(outputs) == ["packed", "scales"]
    assert outputs["packed"][0, 0] == 0x27 and outputs["scales"][0, 0] == 127
    values = run_golden(Case("decode_e2m1", "HOPPER", {"dtype": "bfloat16"}, {"codes": np.array([[9]], np.uint8)}))
    assert values["values"].dtype == np.uint16 and values["values"][0, 0] == 0xBF00


def test_a_golden_call_under_another_profile_leaves_the_case_alone():
    import refnum

    case = quantise(block(1.25))
    wrong = run_golden(case, refnum.HOPPER.replace(name="other", ties="away"))
    assert wrong["packed"][0, 0] == 0x37 and run_golden(case)["packed"][0, 0] == 0x27


def test_every_operation_is_selected_without_patterns_and_a_pattern_must_match():
    assert [operation.name for operation in select(None)] == list(OPERATIONS)
    assert [operation.name for operation in select(["quantize_mx*"])] == ["quantize_mxfp4", "quantize_mx"]
    with pytest.raises(ArgumentError, match="No operation is named 'quantise'"):
        select(["quantise"])


def test_every_variant_combines_every_choice_defaults_first():
    operation = OPERATIONS["quantize_mx"]
    variants = list(operation.variants())
    assert variants[0] == operation.defaults() == {"element": "E2M1", "input": "float32"}
    assert len(variants) == len({str(v) for v in variants}) == 6 * 3


def test_outputs_follow_the_parameters():
    x = np.zeros((1, 32), ml_dtypes.bfloat16)
    to_fp4 = Case("swiglu_quantize", "HOPPER", {"to": "mxfp4"}, {"gate": x, "up": x})
    assert [output.name for output in outputs_of(to_fp4)] == ["packed", "scales"]
    back = Case("swiglu_backward", "HOPPER", {}, {"grad": x, "gate": x, "up": x})
    assert [output.name for output in outputs_of(back)] == ["dgate", "dup"]
    assert len(outputs_of(back.with_inputs({"prob": np.ones(1, np.float32)}))) == 3
