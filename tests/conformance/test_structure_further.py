"""Levels beyond the tables of factors: each row is legal, and wrong kernels that are right on every table are told."""

import inspect
import itertools

import numpy as np
import pytest
from structure_tools import engine_of, golden

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
from refnum.conformance.subjects.layout_variants import special_params
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.structural import is_asked
from refnum.profiles import PROFILES

RANDOM = ("quantize_nvfp4", "hadamard_quantize_nvfp4", "quantize_tetrajet")
WRONG = []


def wrong(operations, *levels):
    """Keep a condition under which a kernel of some operations is wrong; levels: of the rows that it is asked."""

    def keep(holds):
        WRONG.extend(pytest.param(name, holds, levels, id=f"{name}: {holds.__name__}") for name in operations.split())
        return holds

    return keep


def sides(a, b, **_):
    return len(a), b.shape[-2], a.shape[-1]


def kind_of(scales, side):
    return "row" if scales.shape[-1] == 1 else "block" if len(scales) == side else "square"


@wrong("matmul_fp8 matmul_bf16", "columns of the product")
def both_sides_end_within_a_tile(splits=None, **given):
    rows, columns, _ = sides(**given)
    return splits is None and rows > 128 and columns > 128 and rows % 128 > 0 and columns % 128 > 0


@wrong("matmul_fp8 matmul_bf16", "columns of the product")
def more_tiles_than_processors(**given):
    rows, columns, _ = sides(**given)
    return rows > 128 and columns > 128 and -(-rows // 128) * -(-columns // 128) > 132


@wrong("matmul_fp8 matmul_bf16", "columns of the product")
def more_columns_than_a_grid(**given):
    return sides(**given)[1] > 65_535


@wrong("matmul_fp8", "columns of the product")
def blocks_times_squares_of_several_tiles(a, b, a_scales=None, b_scales=None, splits=None, **_):
    if splits is not None or a_scales is None or b_scales is None or min(len(a), len(b)) <= 128:
        return False
    return (kind_of(a_scales, len(a)), kind_of(b_scales, len(b))) == ("block", "square")


@wrong("matmul_fp8", "scales as")
def scales_of_two_dtypes(a_scales=None, b_scales=None, **_):
    return a_scales is not None and b_scales is not None and a_scales.dtype != b_scales.dtype


@wrong("matmul_fp8 matmul_bf16", "experts")
def more_than_256_experts(splits=None, **_):
    return splits is not None and len(splits) > 256


@wrong("matmul_fp8 matmul_bf16", "experts")
def long_experts_of_wide_products(splits=None, **given):
    return splits is not None and len(splits) > 1 and max(splits) > 128 and sides(**given)[1] > 64


@wrong("matmul_fp8 matmul_bf16", "experts")
def many_terms_of_experts(splits=None, **given):
    return splits is not None and len(splits) > 2 and sides(**given)[2] > 1024


@wrong("matmul_fp8 matmul_bf16", "rows of each")
def whole_tiles_for_every_expert(splits=None, **_):
    return splits is not None and len(splits) > 2 and all(count % 64 == 0 for count in splits) and sum(splits) > 128


@wrong("matmul_fp8", "experts")
def nan_in_an_expert(b, splits=None, **_):
    return splits is not None and bool((b & 0x7F == 0x7F).any())


@wrong("matmul_bf16", "columns of the product")
def nan_beside_many_columns(a, b, **_):
    return b.shape[-2] > 32 and bool((b.view(np.uint16) & 0x7FFF > 0x7F80).any())


@wrong(" ".join(RANDOM), "philox")
def any_key(philox=None, **_):
    return philox is not None


@wrong(" ".join(RANDOM), "rbits")
def random_bytes_of_many_rows(x, rbits=None, **_):
    return rbits is not None and len(x) > 128


@wrong(" ".join(RANDOM), "rbits")
def random_bytes_in_wide_words(rbits=None, **_):
    return rbits is not None and rbits.dtype == np.uint32


@wrong("adam_apply spam_apply stable_spam_apply", "form of the array")
def one_axis(gradient, **_):
    return gradient.ndim == 1 and gradient.size > 1000


@wrong("adam_apply spam_apply stable_spam_apply", "form of the array")
def three_axes(gradient, **_):
    return gradient.ndim == 3


@wrong("decode_e4m3 encode_e4m3 dge", "form of the array")
def three_axes_and_many_elements(**given):
    array = next(iter(given.values()))
    return array.ndim == 3 and array.size > 20_000


@wrong("quantize_nvfp4 dequantize_nvfp4 hadamard16", "rows")
def an_odd_number_of_blocks_of_16(**given):
    name, array = next(iter(given.items()))
    columns = array.shape[1] * (2 if name == "packed" else 1)
    return columns % 32 == 16 and columns > 64 and len(array) > 64


@wrong("luq radix4", "rows")
def columns_of_no_block(x, **_):
    return x.shape[1] % 32 > 0 and x.shape[1] > 32 and len(x) > 64


@wrong("permute_pad permute_unpack", "taken")
def all_tokens_to_all_experts(payload, row_map, splits, **_):
    times = np.bincount(row_map, minlength=len(payload))
    return len(splits) > 1 and len(payload) > 4 and bool((times == len(splits)).all())


@wrong("permute_unpack unpermute", "taken")
def each_token_once_in_any_order(row_map, splits, tokens=None, payload=None, **_):
    count = len(payload) if tokens is None else tokens
    once = sorted(row_map.tolist()) == list(range(count))
    return count > 64 and once and len(splits) > 4 and set(np.abs(np.diff(row_map)).tolist()) != {1}


@wrong("unpermute permute_pad permute_unpack", "tokens")
def a_token_beyond_65535(row_map, **_):
    return row_map.size > 0 and int(row_map.max()) > 65_535


@wrong("permute_pad unpermute", "taken")
def tokens_in_order_some_of_which_no_expert_takes(row_map, splits, **_):
    return len(splits) > 4 and row_map.size > 64 and bool((np.diff(row_map.astype(np.int64)) > 1).all())


@wrong("int4_affine efficient_qat int4_keep_two", "group")
def another_group_of_many_rows(x, group, **_):
    return group == 256 and len(x) > 16


@wrong("occ", "alpha")
def the_whole_tensor_is_kept(x, alpha, **_):
    return list(alpha) == [1, 1] and len(x) > 100


@wrong("llm_fp4", "maxval")
def many_rows_with_numbers_of_their_own(maxval, **_):
    return len(maxval) > 32


@wrong("dequantize_int4", "group")
def one_scale_of_many_rows(codes, scales, **_):
    return scales.ndim == 1 and len(codes) > 32


@wrong("q_ema", "average")
def an_average_of_another_dtype(w, ema, **_):
    return w.dtype != ema.dtype and len(w) > 16


@wrong("q_ema", "ratio")
def another_ratio(ratio="bfloat16", **_):
    return ratio != "bfloat16"


@wrong("hadamard_quantize_nvfp4", "variant")
def another_variant_of_many_rows(x, variant="TE", **_):
    return variant != "TE" and len(x) > 16


def of_a_number(x, tensor_amax=None, **_):
    return tensor_amax is None and bool(np.isfinite(x).all()) and np.abs(x)


@wrong("quantize_nvfp4 hadamard_quantize_nvfp4 luq", "largest")
def the_maximum_is_in_the_last_row(x, **more):
    found = of_a_number(x, **more)
    return found is not False and len(x) > 256 and found[:-1].max() < found[-1].max()


@wrong("quantize_nvfp4 hadamard_quantize_nvfp4 luq sawb llm_qat", "largest")
def the_maximum_is_the_last_element(x, **more):
    found = of_a_number(x, **more)
    return found is not False and x.size > 4096 and found.argmax() == x.size - 1


@wrong("luq", "r_under.dtype")
def words_in_64_bits(r_under, **_):
    return r_under.dtype == np.uint64


def first_of(given):
    return next(iter(given.values()))


@wrong(
    "quantize_mxfp4 dequantize_nvfp4 hadamard16 luq sawb int4_affine dequantize_tetrajet_v2 pack_payload dge occ",
    "rows", "columns",
)  # fmt: skip
def no_columns(**given):
    return first_of(given).shape[-1] == 0 < first_of(given).size + len(first_of(given))


@wrong("mxfp4_columns fp8_columns permute_pad unpermute", "columns")
def no_columns_of_experts(splits=None, **given):
    return splits is not None and len(splits) > 1 and first_of(given).shape[-1] == 0


@wrong("quantize_mxfp4 dequantize_mxfp4 fp8_to_payload matmul_bf16 swiglu_backward", "rows", "columns")
def the_call_before_had_no_rows(**given):
    array = first_of(given)
    before, BEFORE[:] = BEFORE[:], [len(array)]
    return before == [0] and array.size > 0


BEFORE = []


@wrong("matmul_bf16 matmul_fp8", "columns of the product")
def no_columns_of_a_product(b, **_):
    return len(b) == 0


def zero_tiles(array):
    bits = array.view(f"u{array.itemsize}") << np.uint8(1)
    wide = 64 if array.shape[1] % 128 == 16 else 128
    return ~bits[:, : bits.shape[1] // wide * wide].reshape(len(array), -1, wide).any(axis=2)


@wrong("quantize_mxfp4 quantize_fp8_tiles fp8_to_mxfp4 swiglu_quantize quantize_nvfp4", "blank")
def a_tile_of_zeros_between_others(**given):
    array = first_of(given)
    if not 1 << 13 < array.size < 1 << 17 or array.shape[1] < 512:
        return False
    tiles = zero_tiles(array)
    return bool((~tiles[:, :-2] & tiles[:, 1:-1] & ~tiles[:, 2:]).any())


@wrong("quantize_mxfp4 radix4 quantize_tetrajet llm_qat occ sawb adam_apply fp8_columns fp8_to_payload", "blank")
def nothing_but_the_last_element(**given):
    bits = first_of(given).view(f"u{first_of(given).itemsize}") << np.uint8(1)
    return bits.size > 4096 and bool(bits.reshape(-1)[-1]) and not bits.reshape(-1)[:-1].any()


@wrong("quantize_mxfp4 quantize_nvfp4 luq sawb hadamard16 q_ema", "blank")
def one_nan_at_the_end(**given):
    found = np.isnan(first_of(given).astype(np.float32)) if first_of(given).size < 1 << 17 else np.zeros(1, bool)
    return found.size > 4096 and found.reshape(-1)[-1] and found.sum() == 1


@wrong("mxfp4_columns fp8_columns permute_pad unpermute", "empty experts", "experts")
def odd_experts_are_empty(splits=None, **_):
    return splits is not None and len(splits) > 32 and all(splits[::2]) and not any(splits[1::2])


@wrong("mxfp4_to_fp8_columns fp8_columns permute_unpack", "empty experts", "experts")
def many_rows_beyond_1024_experts(splits=None, **_):
    return splits is not None and len(splits) > 1024 and max(splits[1024:]) > 32


@wrong("mxfp4_columns fp8_columns permute_pad", "rows of each")
def hundreds_of_experts_with_as_many_rows(splits=None, **_):
    return splits is not None and len(splits) > 128 and len(set(splits)) == 1


@pytest.mark.parametrize(("operation", "holds", "levels"), WRONG)
def test_a_kernel_that_is_wrong_beyond_the_tables_is_told(operation, holds, levels):
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
    assert {layout for _, layout, _ in seen} == {"packed_ue8m0", "float32", "gemm_float32"}


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
    assert {key[1] for key in small} == {0} and {key[2] for key in small} == {0, 1, 2, 3}
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
