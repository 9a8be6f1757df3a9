"""Corner sets: deterministic, accepted by the golden model, and they find every known defect."""

from fractions import Fraction

import numpy as np
import pytest
from defects import DEFECTS, RIGHT

import refnum
from refnum.conformance.cases.corners import corner_cases, estimators
from refnum.conformance.cases.corners.arrange import fill, lanes, matrix, rotate
from refnum.conformance.cases.corners.floats import maximum_blocks
from refnum.conformance.cases.draw.values import Target
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.operation import OPERATIONS, arguments_of, as_bits, run_golden
from refnum.conformance.subjects.calls.call import call
from refnum.conformance.subjects.subject import Subject
from refnum.errors import ArgumentError
from refnum.formats import BF16, E2M1, FP32
from refnum.hadamard import SIGNS
from refnum.nvfp4_scales import VARIANTS as VARIANTS_OF_NVFP4

F32 = np.float32
VARIANTS = [(name, params) for name, operation in OPERATIONS.items() for params in list(operation.variants())[:2]]


def test_an_unknown_operation_has_no_corners():
    with pytest.raises(ArgumentError, match="no corner set"):
        next(corner_cases("nothing", "HOPPER", {}))


@pytest.mark.parametrize(("name", "params"), VARIANTS, ids=str)
def test_the_golden_model_takes_every_corner_and_none_comes_twice(name, params):
    labels, empty, elements = [], 0, 0
    for case in corner_cases(name, "HOPPER", {**params, "splits": [7]}):
        outputs = run_golden(case)
        assert outputs
        labels.append(case.label)
        empty += not next(iter(case.inputs.values())).size
        elements += case.elements
        assert case.params.get("splits") != [7]
    assert len(set(labels)) == len(labels)
    assert empty, "no case without rows"
    assert 0 < elements < 1.3e7


def test_corners_are_the_same_every_time():
    for name in ("quantize_mxfp4", "fp8_columns", "unpermute"):
        params = OPERATIONS[name].defaults()
        first, second = ([case.digest() for case in corner_cases(name, "HOPPER", params)] for _ in range(2))
        assert first == second


def test_stochastic_profiles_get_random_bits():
    params = {"input": "bfloat16"}
    cases = list(corner_cases("quantize_mxfp4", "STOCHASTIC", params))
    assert all(case.inputs["rbits"].shape == case.inputs["x"].shape for case in cases)
    run_golden(cases[-1])


def test_every_pattern_is_a_block_maximum_and_every_lane_is_met():
    blocks = maximum_blocks(Target(BF16, E2M1, 32))
    magnitude = blocks & 0x7FFF
    top = magnitude.max(axis=1)
    assert (np.bincount(top, minlength=1 << 15) == 2).all()
    lane = magnitude.argmax(axis=1)
    for binade in range(1, 255):  # every lane in every binade
        assert len(set(lane[(top >> 7) == binade].tolist())) == 32
    tail = blocks[0x3F80 + 0x20]
    assert len(set(tail.tolist())) > 16


def blocks_of(case):
    return case.inputs["x"].view(np.uint32).reshape(-1, 32)


@pytest.fixture(scope="module")
def corners():
    """float32 corners as blocks with golden results, the small cases first."""
    found = []
    for case in corner_cases("quantize_mxfp4", "HOPPER", {"input": "float32"}):
        if case.elements:
            golden = run_golden(case)
            packed = golden["packed"].reshape(-1, 16)
            codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1, 32)
            found.append((blocks_of(case), codes, golden["scales"].reshape(-1)))
    return sorted(found, key=lambda item: len(item[0]))


def test_the_plain_quantiser_without_defect_agrees(corners):
    for bits, codes, scales in corners:
        got_codes, got_scales = RIGHT(bits)
        assert (got_scales == scales).all() and (got_codes == codes).all()


@pytest.mark.parametrize("name", DEFECTS)
def test_the_corner_set_finds_the_defect(name, corners):
    for bits, codes, scales in corners:
        got_codes, got_scales = DEFECTS[name](bits)
        if (got_scales != scales).any() or (got_codes != codes).any():
            return
    pytest.fail(f"{name} survives the corner set")


def test_decode_corners_find_the_scale_defects():
    case = next(corner_cases("dequantize_mxfp4", "HOPPER", {"dtype": "float32"}))
    assert {(int(s), int(b)) for s, b in zip(np.repeat(case.inputs["scales"], 16, axis=1).reshape(-1),
                                             case.inputs["packed"].reshape(-1), strict=True)} == {
        (s, b) for s in range(256) for b in range(256)}  # fmt: skip


def test_tiles_at_every_distance_hold_every_code():
    cases = {case.label: case for case in corner_cases("mxfp4_to_fp8", "HOPPER", {"scale": "max"})}
    case = cases["corner: all codes at distances 0..40 from every largest byte"]
    scales = case.inputs["scales"].reshape(-1, 4).astype(int)
    packed = case.inputs["packed"].reshape(-1, 4, 16)
    full = (packed != 0).sum(axis=2) > 10
    top = np.where(full, scales, -1).max(axis=1)
    met = {
        (int(t), int(t - s))
        for t, row, holds in zip(top, scales, full, strict=True)
        for s, h in zip(row, holds, strict=True)
        if h
    }
    assert {(t, d) for t in range(255) for d in range(min(t, 40) + 1)} <= met


def test_ragged_corners_have_empty_experts_tails_and_whole_blocks():
    for name in ("mxfp4_to_fp8_columns", "mxfp4_columns", "fp8_columns"):
        splits = [case.params["splits"] for case in corner_cases(name, "HOPPER", {}) if "splits" in case.params]
        assert [] in splits and [0] in splits
        assert any(0 in counts and sum(counts) for counts in splits)
        assert any(count % 32 for counts in splits for count in counts)
        assert any(count and count % 128 == 0 for counts in splits for count in counts)
        if name == "mxfp4_columns":
            assert all(count % 2 == 0 for counts in splits for count in counts)


def test_float32_corners_hold_values_that_are_no_bfloat16():
    blocks = maximum_blocks(Target(FP32, E2M1, 32))
    assert ((blocks & 0xFFFF) == 1).any() and ((blocks & 0xFFFF) == 0xFFFF).any()


def test_arrangements():
    blocks = np.arange(12).reshape(3, 4)
    assert rotate(blocks, np.array([0, 1, 3])).tolist() == [[0, 1, 2, 3], [7, 4, 5, 6], [9, 10, 11, 8]]
    assert set(lanes(64, 32).tolist()) == set(range(32))
    assert matrix(blocks, 8).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 0, 0, 0, 0]]
    filled = fill(np.array([[1, 2, 3, 4]]), np.array([9]), 4)
    assert filled.tolist() == [[9, 1, 2, 3], [9, 4, 0, 0]]


def test_hard_slopes_lie_on_both_sides_of_the_middle():
    x = np.array(estimators.HARD, np.uint32).view(np.float32)
    slopes = refnum.dge(x, target="float32")
    sides = []
    for place, slope in zip(x, slopes, strict=True):
        t = abs(4 * Fraction(float(place)) - 1)  # all lie below 0.5
        assert place < 0.5
        ends = [Fraction(float(np.nextafter(slope, np.float32(end)))) for end in (0, 4)]
        excess = [(5 * (Fraction(float(slope)) + end) / 2) ** 5 * t**4 - 1 for end in ends]
        nearest = min(excess, key=abs)
        assert abs(nearest) < Fraction(1, 1 << 40)
        sides.append(nearest < 0)
    assert sides == [True] * 8 + [False] * 8


@pytest.mark.parametrize("operation", ["dequantize_nvfp4", "dequantize_tetrajet_v2"])
def test_corners_tell_a_bfloat16_number_that_is_rounded_once(operation):
    """In both directions: three times a scale is beside the middle that its float32 product is."""
    for params in OPERATIONS[operation].variants():
        if params["dtype"] != "bfloat16":
            continue
        signs = set()
        for case in corner_cases(operation, "HOPPER", params):
            given = arguments_of(case) | {"dtype": "float32"}
            scale = getattr(refnum, operation)(**given | {"packed": np.full_like(given["packed"], 0x22)})
            single = getattr(refnum, operation)(**given)
            codes = np.stack([given["packed"] & 15, given["packed"] >> 4], axis=-1).reshape(scale.shape)
            with np.errstate(invalid="ignore"):
                exact = refnum.decode_e2m1(codes).astype(np.float64) * scale
                off = abs(exact) - abs(single)
            bits = single.view(np.uint32)
            middle = (bits & 0xFFFF == 0x8000) & np.isfinite(off) & (abs(single) > 2.0**-100)
            odd = (bits >> 16 & 1) == 1
            signs |= set(np.sign(off[middle & np.where(off > 0, ~odd, odd) & (off != 0)]))
        assert signs == {-1.0, 1.0}, params


@pytest.mark.parametrize("operation", ["adam_apply", "spam_apply", "stable_spam_apply"])
def test_a_step_that_changes_nothing_and_hands_its_inputs_back_is_found(operation):
    names = ("weight", "m", "v")

    def idle(**given):
        results = getattr(refnum, operation)(**given)
        same = all(given[name].tobytes() == one.tobytes() for name, one in zip(names, results, strict=True))
        return tuple(given[name] for name in names) if same and given["weight"].any() else results

    found = set()
    for params in OPERATIONS[operation].variants():
        subject = Subject("idle", {operation: idle})
        for case in corner_cases(operation, "HOPPER", params):
            called = call(subject, case)
            found |= {called.finding}
    assert Finding.ALIASES_INPUT in found


@pytest.mark.parametrize("align", [16, 32, 128])
def test_rows_that_are_their_own_sums_and_are_handed_back_are_found(align):
    def idle(rows, row_map, splits, weights, tokens, align=32):
        results = refnum.unpermute(rows, row_map, splits, weights, tokens, align)
        return rows if rows.tobytes() == results.tobytes() and rows.size else results

    called = [call(Subject("idle", {"unpermute": idle}), case)
              for case in corner_cases("unpermute", "HOPPER", {"align": align})]  # fmt: skip
    assert Finding.ALIASES_INPUT in {one.finding for one in called}


@pytest.mark.parametrize("operation", ["matmul_fp8", "matmul_bf16"])
@pytest.mark.parametrize("side", ["a", "b"])
def test_corners_of_products_tell_a_block_of_zeros_that_is_left_out(operation, side):
    """Of NaN and Inf on the other side nothing is left then."""
    other = "b" if side == "a" else "a"
    for params in OPERATIONS[operation].variants():
        told = False
        for case in corner_cases(operation, "HOPPER", params):
            given = {name: array.copy() for name, array in arguments_of(case).items() if name in "ab"}
            for first in range(0, given[side].shape[1], 128):
                part = given[side][:, first : first + 128]
                if part.size and (part.astype(np.float32) == 0).all():
                    given[other][:, first : first + 128] = 0
            told |= (run_golden(case)["values"] != run_golden(case.with_inputs(given))["values"]).any()
        assert told, params


def test_corners_tell_a_norm_that_is_compared_with_zero_alone():
    """`q != 0` in place of `q > 0` (N27.4)."""
    told = False
    for case in corner_cases("stable_spam_apply", "HOPPER", OPERATIONS["stable_spam_apply"].defaults()):
        scalars = case.inputs["factors"].copy()
        if scalars[3] < 0:
            scalars[3:5] *= -1
            right, wrong = run_golden(case), run_golden(case.with_inputs({"factors": scalars}))
            told |= any((right[name] != wrong[name]).any() for name in right)
    assert told


def told_by_corners(operation, kernel, params, profile="HOPPER"):
    """Whether a kernel, given a case's arguments, differs from the golden model on a corner case."""
    subject = Subject("k", {operation: kernel})
    cases = corner_cases(operation, profile, params)
    return any(
        not np.array_equal(want, as_bits(got))
        for case in cases
        for want, got in zip(run_golden(case).values(), call(subject, case).results, strict=True)
    )


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("order", ["exact", "sequential"])
def test_corners_of_rotations_tell_a_sum_that_begins_with_its_first_term(axis, order):
    def kernel(x, signs=SIGNS, axis=-1, order="exact", dtype="bfloat16"):
        y = refnum.hadamard16(x, signs, axis, order, dtype)
        groups = np.signbit(x.astype(np.float32)) if axis else np.signbit(x.astype(np.float32)).T
        zeros = (x == 0) if axis else (x == 0).T
        if groups.shape[1] % 16 or not x.size:
            return y
        lane = np.arange(16)
        minus = (np.bitwise_count(lane[:, None] & lane) + (signs >> lane & 1)[:, None]) % 2
        every = (groups.reshape(len(groups), -1, 16, 1) ^ minus.astype(bool)).all(2)
        every &= zeros.reshape(len(groups), -1, 16).all(2)[..., None]
        every = every.reshape(len(groups), -1)
        y[every if axis else every.T] = -0.0
        return y

    params = {"axis": axis, "order": order, "dtype": "float32", "input": "float32"}
    assert told_by_corners("hadamard16", kernel, params)


@pytest.mark.parametrize("variant", list(VARIANTS_OF_NVFP4)[1:])
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("order", ["exact", "sequential"])
def test_corners_of_rotations_tell_a_variant_that_is_ignored(variant, axis, order):
    def kernel(**keywords):
        taken = keywords.pop("variant", "TE")
        return refnum.hadamard_quantize_nvfp4(**keywords, variant="TE" if taken == variant else taken)

    params = {"axis": axis, "order": order, "input": "bfloat16"}
    assert told_by_corners("hadamard_quantize_nvfp4", kernel, params)


@pytest.mark.parametrize("k", [1, 2, 16])
def test_corners_of_slopes_tell_a_cap_that_is_left_out_below_the_least_slope(k):
    def kernel(**keywords):
        slope = 1 / keywords["k"]
        keywords["cap"] = keywords["cap"] if keywords["k"] != k or keywords["cap"] >= slope else 2.0**100
        return refnum.dge(**keywords)

    defaults = OPERATIONS["dge"].defaults()
    assert told_by_corners("dge", kernel, defaults)


@pytest.mark.parametrize("side", ["a", "b"])
def test_corners_of_products_tell_subnormal_scales_that_are_flushed(side):
    def kernel(a, b, **keywords):
        name = f"{side}_scales"
        scales = keywords.get(name)
        if scales is not None and scales.dtype == np.float32:
            keywords[name] = np.where(np.abs(scales) < np.float32(2.0**-126), np.float32(0), scales)
        return refnum.matmul_fp8(a, b, **keywords)

    assert told_by_corners("matmul_fp8", kernel, OPERATIONS["matmul_fp8"].defaults())


WRONG_KEYS = {
    "32 bits with a sign": lambda seed, *rest: (seed - (1 << 32) & (1 << 64) - 1 if seed >> 31 == 1 else seed, *rest),
    "the first stream at step 0": lambda seed, stream, step, *rest: (seed, stream if step else 0, step, *rest),
}


@pytest.mark.parametrize("words", WRONG_KEYS)
def test_corners_tell_a_key_that_is_read_wrong(words):
    def kernel(x, profile, philox):
        return refnum.quantize_mxfp4(x, profile, philox=WRONG_KEYS[words](*philox))

    assert told_by_corners("quantize_mxfp4", kernel, {"input": "float32", "random": "keyed"}, "STOCHASTIC")


ORDERS_OF_V = {
    "as it is": lambda code, s, t: code * s * t / F32(1536),
    "the code by the rest": lambda code, s, t: code * (s * t / F32(1536)),
    "by a reciprocal": lambda code, s, t: code * s * t * (1 / F32(1536)),
    "the maximum by 1536 first": lambda code, s, t: code * s * (t / F32(1536)),
}


def four_over_six_scales(blocks, t, squares, order):
    """Return the scales that N21.5 chooses for blocks [n, 16], with the factors of v in an order of their own."""
    p = np.abs(blocks).max(axis=1) / F32(6) * (F32(1536) / t)
    found = []
    for scale in (p, F32(1.5) * p):
        codes = refnum.encode_e4m3(np.minimum(scale, F32(448)))
        s = refnum.decode_e4m3(codes)[:, None]
        value = refnum.decode_e2m1(refnum.encode_e2m1(blocks * (1 / (s * (1 / (F32(1536) / t))))))
        d = ORDERS_OF_V[order](value, s, t) - blocks
        found.append((codes, np.cumsum(d * d if squares else np.abs(d), axis=1)[:, -1]))
    (six, more), (four, less) = found
    return np.where(less < more, four, six)


@pytest.mark.parametrize("variant", ["FOUR_OVER_SIX", "FOUR_OVER_SIX_MSE"])
@pytest.mark.parametrize("order", list(ORDERS_OF_V)[1:])
@np.errstate(all="ignore")
def test_corners_of_four_over_six_tell_numbers_of_another_order(variant, order):
    def kernel(x, tensor_amax=None, rbits=None, **keywords):
        packed, scales, amax = refnum.quantize_nvfp4(x, tensor_amax=tensor_amax, rbits=rbits, **keywords)
        if rbits is None and x.size:
            given = x.reshape(-1, 16), amax[0], variant.endswith("MSE")
            right = four_over_six_scales(*given, "as it is").reshape(scales.shape)
            other = four_over_six_scales(*given, order).reshape(scales.shape)
            scales = np.where(right == scales, other, scales)
        return packed, scales, amax

    assert told_by_corners("quantize_nvfp4", kernel, {"variant": variant, "tile": [1, 16], "input": "float32"})


@pytest.mark.parametrize("operation", ["matmul_fp8", "matmul_bf16"])
@pytest.mark.parametrize("order", ["promote32", "promote64", "split3", "split2-chain"])
def test_corners_of_products_tell_an_order_that_is_taken_for_another(operation, order):
    def kernel(**keywords):
        defaults = OPERATIONS[operation].defaults()
        keywords["order"] = defaults["order"] if keywords["order"] == order else keywords["order"]
        return getattr(refnum, operation)(**keywords)

    assert told_by_corners(operation, kernel, OPERATIONS[operation].defaults())
