"""Levels beyond the tables of factors: each row is legal, and wrong kernels that are right on every table are told."""

import functools
import inspect
import itertools

import numpy as np
import pytest
from structure_conditions import RANDOM, WRONG, first_of
from structure_tools import caught, engine_of, golden

import refnum
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cases.recipes.random_bits import ORDINARY, key_of
from refnum.conformance.cases.structure import build, structure_cases
from refnum.conformance.cases.structure.campaign import campaign_rows
from refnum.conformance.cases.structure.fields import fields
from refnum.conformance.cases.structure.further import beside_rows, of_layouts, random_inputs, rows
from refnum.conformance.cases.structure.levels import Levels, case_of
from refnum.conformance.cases.structure.plan import base_beside, structure_rows
from refnum.conformance.commands.mutate.triggers.base import memorised
from refnum.conformance.subjects.layout_variants import special_params
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.structural import is_asked
from refnum.profiles import PROFILES

remembering = functools.cache(lambda operation: memorised(golden(operation)))


@pytest.mark.parametrize(("operation", "holds", "levels"), sorted(WRONG, key=lambda row: row.values[0]))
def test_a_kernel_that_is_wrong_beyond_the_tables_is_told(operation, holds, levels, monkeypatch):
    """The judge and the kernels of an operation ask the model the same: it computes that once."""
    monkeypatch.setattr(refnum, operation, remembering(operation))

    def run(**given):
        right = golden(operation)(**given)
        if not holds(**given):
            return right
        if not first_of(given).size:
            raise ZeroDivisionError
        first = right[0] if isinstance(right, tuple) else right
        first.view(f"u{first.itemsize}").reshape(-1)[-1] ^= 1
        return right

    run.__signature__ = inspect.signature(golden(operation))
    subject = Subject("k", {operation: run})
    params = {**OPERATIONS[operation].defaults(), **({"input": "bfloat16"} if levels == ("average",) else {})}
    engine = engine_of(subject, operation, params, quick=False)
    further = [{**base_beside(operation, params), **row} for row in rows(operation, params)]
    wanted = [{*row.items()} for row in further if {*levels} <= {*row}]
    found = structure_cases(operation, "HOPPER", params, "full", lambda row: {*row.items()} - called(row) in wanted)
    for asked in found:
        if "out" in asked.row and not is_asked(subject, asked.case):
            continue
        assert is_asked(subject, asked.case)
        if not engine.one(subject, asked.case, run_golden(asked.case)):
            return
    raise AssertionError(f"no row of {operation} has this condition")


def called(row):
    return {("calls", row["calls"])} if "calls" in row else set()


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if not name.startswith("matmul")])
def test_the_model_takes_every_row(operation):
    for params in OPERATIONS[operation].variants():
        for number, row in enumerate(rows(operation, params)):
            case = build(operation, "HOPPER", params, {**base_beside(operation, params), **row}, number)
            if case.elements < 1 << (14 if params == OPERATIONS[operation].defaults() else 12):
                run_golden(case)


@pytest.mark.parametrize("operation", RANDOM)
def test_parts_of_fields_have_random_bits_of_every_kind(operation):
    params = OPERATIONS[operation].defaults()
    for name in random_inputs(operation):
        every = (one for one in fields(operation, "HOPPER", params, "full") if one.parts[0].row.get(name) == "given")
        for field in itertools.islice(every, 3):
            assert name in {**field.case.inputs, **field.case.params}
            whole = run_golden(field.case)
            part = field.parts[len(field.parts) // 2]
            got, want = run_golden(part.case(field.case, field.cutting)), part.of(whole, field.cutting.outputs)
            assert all(np.array_equal(got[one], array) for one, array in want.items())


@pytest.mark.parametrize("operation", ["luq", "dequantize_int4", "q_ema", "quantize_nvfp4", "dge"])
def test_levels_beyond_the_tables_stand_beside_many_rows(operation):
    params = OPERATIONS[operation].defaults()
    every = [part.row for field in fields(operation, "HOPPER", params, "full") for part in field.parts]
    for levels in beside_rows(operation, params):
        assert len({row["rows"] for row in every if levels.items() <= row.items()}) > 4


@pytest.mark.parametrize("operation", ["fp8_to_mxfp4", "mxfp4_to_fp8"])
def test_every_two_layouts_are_asked_together(operation):
    """Beside a part of a tile in both sides, and each of them beside many rows, no columns and every profile."""
    pairs, tall, bare, profiles = set(), set(), set(), set()
    for params in special_params("standard", OPERATIONS[operation], keyed=False):
        plain = structure_cases(operation, "HOPPER", params, "full", lambda row: {"classes", "padding"}.isdisjoint(row))
        for case in (asked.case for asked in plain):
            rows, columns = next(iter(case.inputs.values())).shape
            named = tuple(case.params.get(name, "bytes") for name in ("layout_in", "layout_out"))
            pairs.add(named)
            profiles.add(case.profile)
            tall.update(named if rows > 65_535 else ())
            bare.update(() if columns else named)
            if case.elements < 1 << 14:
                run_golden(case)
    layouts = {name for name, _ in pairs}
    assert pairs == {*itertools.product(layouts, layouts)} - {("bytes", "bytes")} and len(layouts) == 5
    assert tall == bare == layouts
    assert not OPERATIONS[operation].profiled or profiles == {*PROFILES} - {"STOCHASTIC"}


def test_every_two_layouts_meet_each_mode_beyond_a_tile_of_scales():
    asked = set()
    for params in special_params("standard", OPERATIONS["mxfp4_to_fp8"], False):
        for row in structure_rows("mxfp4_to_fp8", "HOPPER", params, "brief"):
            pair = tuple(row.get(name, params.get(name, "bytes")) for name in ("layout_in", "layout_out"))
            asked |= {(params["scale"], *pair)} if int(row.get("rows", 0)) > 128 else set()
    layouts = OPERATIONS["mxfp4_to_fp8"].stored_as
    assert asked >= {*itertools.product(("max", "amax"), layouts[1:], layouts[1:])}


def test_a_layout_or_profile_that_a_subject_lacks_is_not_asked_in_the_place_of_another():
    def without_swizzled(operation, profile, params):
        return "no swizzled scales" if "swizzled" in params.values() else ""

    seen = []

    def run(codes, scales, profile, layout_in="bytes", layout_out="bytes"):
        seen.append((profile.name, layout_in, layout_out))
        return refnum.fp8_to_mxfp4(codes, scales, profile, layout_in=layout_in, layout_out=layout_out)

    subject = Subject("k", {"fp8_to_mxfp4": run}, profiles=("HOPPER", "OCP"), supports=without_swizzled)
    engine = engine_of(subject, "fp8_to_mxfp4", {"layout_in": "packed_ue8m0"}, quick=False)
    engine.structural()
    engine.finish()
    assert engine.tallies["k"].close() is Outcome.PASS and not engine.report.harness
    assert {profile for profile, _, _ in seen} == {"HOPPER", "OCP"}
    assert {layout for _, layout, _ in seen} == {"packed_ue8m0", "float32", "gemm_float32", "bytes"}


@pytest.mark.parametrize("operation", ["matmul_fp8", "q_ema", "hadamard_quantize_nvfp4", "permute_pad", "fp8_columns"])
def test_campaigns_draw_the_levels_beyond_the_tables(operation):
    params, salts = OPERATIONS[operation].defaults(), range(12)
    drawn = [row for salt in salts for row in campaign_rows(operation, "HOPPER", params, str(salt), 240, 1 << 21)]
    further = {name for row in rows(operation, params) for name in row}
    found = [row for row in drawn if any(row.items() >= wanted.items() for wanted in rows(operation, params))]
    assert len(drawn) // 20 < len(found)
    assert {name for row in found for name in row} >= further
    for number, row in enumerate(found[::9]):
        made = Levels(operation, "HOPPER", params, row, number)
        assert run_golden(case_of(made)) and run_golden(case_of(made.plain()))


def test_one_key_in_four_is_as_training_has_it():
    keys = [key_of(seed, 8) for seed in range(400)]
    small = [key for key in keys if key[0] < 1 << 32]
    assert len(small) >= len(keys) // ORDINARY
    assert {key[1] for key in small} == {0, 1, 2} and {key[2] for key in small} == {0, 1, 2, 3}
    assert any(key[0] >> 31 for key in small) and any(key[1] and not key[2] for key in small)
    assert sum(key[0] == 0 for key in small) > len(small) // 4
    assert any(key[3] and key[3] & (key[3] - 1) and (key[3] + 32) & (key[3] + 31) for key in small)
    for key in (*keys, key_of((1 << 64) - 1, 8)):  # a recipe's seed has 64 bits
        refnum.philox.random_bits(32, 8, seed=key[0], stream=key[1], step=key[2], offset=key[3])


@pytest.mark.parametrize(
    ("operation", "changed", "condition"),
    [
        ("hadamard16", {"axis": 0}, lambda rows, columns: rows > 65_535),
        ("quantize_mx", {"element": "E3M2"}, lambda rows, columns: rows > 65_535),
        ("dequantize_nvfp4", {"dtype": "bfloat16"}, lambda rows, columns: rows > 0 == columns),
        ("quantize_mxfp4", {"input": "bfloat16"}, lambda rows, columns: rows > 256 and columns > 1024),
        ("mxfp4_to_fp8", {"scale": "amax"}, lambda rows, columns: rows > 65_535),
        ("quantize_fp8_tiles", {"tile": [128, 128]}, lambda rows, columns: rows > 65_535),
        ("encode_e4m3", {"overflow": "nan"}, lambda rows, columns: rows * columns > 1 << 17),
        ("fp8_columns", {"underflow": "te"}, lambda rows, columns: rows > 65_535),
        ("permute_unpack", {"align": 128}, lambda rows, columns: rows > 65_535),
    ],
)
def test_each_value_of_a_parameter_stands_beside_large_shapes(operation, changed, condition):
    params = {**OPERATIONS[operation].defaults(), **changed}
    shapes = []
    for asked in structure_cases(operation, "HOPPER", params, "brief", lambda row: "classes" not in row):
        case = asked.case
        array = case.inputs.get("row_map", next(iter(case.inputs.values())))
        columns = array.shape[-1] * (2 if "packed" in case.inputs else 1) if array.ndim else 1
        shapes.append((len(array) if array.ndim else 1, columns))
        assert case.params.get("align", 128) == params.get("align", 128)
    assert any(condition(*shape) for shape in shapes)


def test_a_profile_stands_beside_a_matrix_large_in_both_sides():
    found = structure_rows("quantize_mxfp4", "OCP", {"input": "float32"}, "brief")
    assert any(row.get("rows", 0) > 256 and row.get("columns", 0) > 1024 for row in found)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_variant_with_random_bits_is_asked_under_no_profile_that_has_no_use_for_them(keyed):
    """The golden model refuses random bits under a profile that rounds to nearest."""
    found = {
        PROFILES[row["under"]].rounding
        for params in special_params("standard", OPERATIONS["quantize_mxfp4"], keyed=True)
        if ("random" in params) == keyed and "layout_out" in params
        for row in of_layouts("quantize_mxfp4", params)
        if "under" in row
    }
    assert found == {"stochastic" if keyed else "nearest"}


def tall(row):
    return max(row.get("rows", 0), row.get("rows of an expert", 0)) > 4096 and row.get("columns", 0) > 64


@pytest.mark.parametrize(
    "operation",
    ["quantize_mxfp4", "mxfp4_to_fp8", "swiglu_quantize", "mxfp4_columns", "hadamard16",
     "quantize_nvfp4", "sawb", "permute_pad"],
)  # fmt: skip
def test_a_kernel_that_is_wrong_for_tall_matrices_of_several_tiles_of_columns_is_told(operation):
    """As where a tile's number has too few bits for a row's and a column's, or where a second wave of tiles is lost."""

    def run(**given):
        right = golden(operation)(**given)
        rows, columns = first_of(given).shape
        if rows > 4096 and columns > 64 and -(-rows // 128) * -(-columns // 64) > 132:
            first = right[0] if isinstance(right, tuple) else right
            first.view(f"u{first.itemsize}").reshape(-1)[-1] ^= 1
        return right

    run.__signature__ = inspect.signature(golden(operation))
    assert caught(operation, run, rows=tall)


@pytest.mark.parametrize("processors", [132, 148])
@pytest.mark.parametrize("operation", ["quantize_mxfp4", "dequantize_fp8_tiles", "luq", "pack_payload"])
def test_as_many_tiles_of_rows_as_processors_are_asked(operation, processors):
    rows = structure_rows(operation, "HOPPER", OPERATIONS[operation].defaults(), "full")
    assert any(row.get("rows", 0) == 128 * processors for row in rows)


@pytest.mark.parametrize("operation", ["quantize_mxfp4", "quantize_fp8_tiles", "radix4"])
def test_a_kernel_that_loses_nan_beyond_65536_rows_is_told(operation):
    def run(**given):
        right = golden(operation)(**given)
        x = first_of(given)
        if len(x) > 65_536 and np.isnan(x).any():
            first = right[0] if isinstance(right, tuple) else right
            first.reshape(-1)[0] ^= 1
        return right

    run.__signature__ = inspect.signature(golden(operation))
    assert caught(operation, run, rows=lambda row: row.get("rows", 0) > 65_536)
