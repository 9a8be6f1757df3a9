"""Grouped products (N19.8): a kernel that takes `splits` is asked for them, one that does not is not."""

import numpy as np
import pytest
from structure_tools import engine_of, verdict

import refnum
from refnum.conformance.cases import crop
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import NO_LEVEL, P1, Outcome
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cases.structure import grouped, structure_cases
from refnum.conformance.cases.structure.factors import SPLITS
from refnum.conformance.cases.structure.plan import structure_rows
from refnum.conformance.commands.check import structure
from refnum.conformance.commands.check.plan import Plan
from refnum.conformance.mismatches.failures import Presenter
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.bounds import beyond_bounds
from refnum.conformance.verdicts.structural import judged
from refnum.conformance.verdicts.tally import Failure

BF16 = {"order": "chain", "out": "float32"}
DEFAULT = {"order": "promote128", "out": "float32", "a_format": "E4M3", "b_format": "E4M3"}
WRONG = {}


def wrong(function):
    WRONG[function.__name__] = function
    return function


def flipped(values, *place):
    values = values.copy()
    values.view(np.uint32 if values.itemsize == 4 else np.uint16)[place] ^= 1
    return values


def ends(splits):
    return np.cumsum([0, *(int(count) for count in splits)])


def fp8(a, b, a_scales=None, b_scales=None, splits=None, **rest):
    return refnum.matmul_fp8(a, b, a_scales, b_scales, splits=splits, **rest)


@wrong
def beyond_two_experts(a, b, a_scales=None, b_scales=None, splits=None, **rest):
    if splits is not None and len(splits) > 2:
        b = np.concatenate([b[:2], np.roll(b[2:], 1, axis=0)]) if len(splits) > 3 else b[[0, 1, 1]]
    return fp8(a, b, a_scales, b_scales, splits, **rest)


@wrong
def last_row_of_an_expert_of_33(a, b, a_scales=None, b_scales=None, splits=None, **rest):
    values = fp8(a, b, a_scales, b_scales, splits, **rest)
    if splits is not None:
        for start, stop in zip(ends(splits), ends(splits)[1:], strict=False):
            values = flipped(values, stop - 1) if stop - start == 33 else values
    return values


@wrong
def an_empty_expert_in_the_middle_moves_b(a, b, a_scales=None, b_scales=None, splits=None, **rest):
    if splits is not None and b.ndim == 3:
        full = [int(count) > 0 for count in splits]
        for place in range(1, len(full) - 1):
            if not full[place] and any(full[:place]) and any(full[place:]):
                b = np.concatenate([b[:place], b[place : place + 1], b[place:-1]])
                break
    return fp8(a, b, a_scales, b_scales, splits, **rest)


@wrong
def an_array_of_splits_is_one_expert(a, b, a_scales=None, b_scales=None, splits=None, **rest):
    if isinstance(splits, np.ndarray) and b.ndim == 3 and len(b) == len(splits) and splits.sum() == len(a):
        b = np.repeat(b[:1], len(b), axis=0)
    return fp8(a, b, a_scales, b_scales, splits, **rest)


@wrong
def scales_of_the_first_expert_for_all(a, b, a_scales=None, b_scales=None, splits=None, **rest):
    if splits is not None and b_scales is not None and b_scales.ndim == 3 and len(b_scales) == len(splits):
        b_scales = np.repeat(b_scales[:1], len(b_scales), axis=0)
    return fp8(a, b, a_scales, b_scales, splits, **rest)


@wrong
def squares_of_the_first_expert_for_all(a, b, a_scales=None, b_scales=None, splits=None, **rest):
    if splits is not None and b_scales is not None and b_scales.ndim == 3 and b_scales.shape[1] < b.shape[1]:
        b_scales = np.repeat(b_scales[:1], len(splits), axis=0) if len(b_scales) == len(splits) else b_scales
    return fp8(a, b, a_scales, b_scales, splits, **rest)


@wrong
def a_boundary_at_an_odd_row_is_rounded(a, b, a_scales=None, b_scales=None, splits=None, **rest):
    values = fp8(a, b, a_scales, b_scales, splits, **rest)
    odd = [] if splits is None else [end for end in ends(splits)[1:-1] if end % 2 and 0 < end < len(a)]
    return flipped(values, odd[0]) if odd else values


@wrong
def a_tail_of_k_is_dropped(a, b, a_scales=None, b_scales=None, splits=None, **rest):
    values = fp8(a, b, a_scales, b_scales, splits, **rest)
    return flipped(values, 0) if splits is not None and len(values) and a.shape[1] % 32 == 1 else values


@wrong
def splits_that_sum_to_less_are_taken(a, b, a_scales=None, b_scales=None, splits=None, **rest):
    if splits is not None and np.asarray(splits).dtype.kind in "iu" and 0 < sum(splits) < len(a):
        splits = [*list(splits)[:-1], len(a) - sum(list(splits)[:-1])]
    return fp8(a, b, a_scales, b_scales, splits, **rest)


@wrong
def one_scale_of_the_rows_of_a_for_every_expert(a, b, a_scales=None, b_scales=None, splits=None, **rest):
    if splits is not None and a_scales is not None and a_scales.size > 1 and len(a_scales) == len(a):
        a_scales = a_scales.copy()
        a_scales[-1] = a_scales[0]
    return fp8(a, b, a_scales, b_scales, splits, **rest)


def experts_alone(row):
    return "splits" in row


def first_wrong(operation, function, params=DEFAULT):
    """Return the tally of the first product of experts on which a function is wrong, or None."""
    subject = Subject("k", {operation: function})
    for asked in structure_cases(operation, "HOPPER", params, "full", experts_alone):
        tally = judged(subject, asked.case, run_golden(asked.case), "once", 60.0)
        if tally.failures or tally.faults:
            return tally
    return None


@pytest.mark.parametrize("name", [name for name in WRONG if not name.startswith("splits")])
def test_a_wrong_grouped_product_is_found(name):
    assert first_wrong("matmul_fp8", WRONG[name]) is not None


def test_a_wrong_grouped_product_of_bfloat16_is_found():
    def beyond_two(a, b, order="chain", out="float32", splits=None):
        values = refnum.matmul_bf16(a, b, order, out, splits)
        return flipped(values, -1) if splits is not None and len(splits) > 2 and len(values) else values

    assert first_wrong("matmul_bf16", beyond_two, BF16) is not None
    assert first_wrong("matmul_bf16", refnum.matmul_bf16, BF16) is None


def test_wrong_grouped_products_are_not_verified():
    assert verdict("matmul_fp8", WRONG["beyond_two_experts"]).outcome is Outcome.MISMATCH
    assert "splits that sum to less" in verdict("matmul_fp8", WRONG["splits_that_sum_to_less_are_taken"]).words


@pytest.mark.parametrize("named", [True, False])
def test_only_a_kernel_that_names_splits_is_asked_for_them(named, monkeypatch):
    """The model is not run for others either."""
    monkeypatch.setattr(structure, "amount_for", lambda engine: "smoke")
    plain = lambda a, b, order="chain", out="float32": refnum.matmul_bf16(a, b, order, out)  # noqa: E731
    engine = engine_of(
        Subject("k", {"matmul_bf16": refnum.matmul_bf16 if named else plain}), "matmul_bf16", quick=False
    )
    golden, seen = engine.golden, []
    engine.golden = lambda case: (seen.append(crop.of_experts(case)), golden(case))[1]
    engine.structural()
    engine.refusals({"k"})
    engine.finish()
    tally = engine.tallies["k"]
    assert tally.close() is Outcome.PASS, tally.words
    assert not tally.coverage.never() and not tally.coverage.refused and not engine.report.harness
    assert any(seen) == ("splits" in tally.coverage.factors) == named
    assert (tally.coverage.illegal > 30) == named


def test_every_level_is_asked():
    rows = [row for row in structure_rows("matmul_fp8", "HOPPER", DEFAULT, "full") if experts_alone(row)]
    levels = {name: {row[name] for row in rows if name in row} for name in rows[0]}
    assert {1, 2, 3, 8, 9, 33, 129} <= levels["experts"] and set(SPLITS) == levels["splits"]
    assert {1, 31, 32, 33, 64, 65, 127, 128, 129} <= levels["rows of an expert"]
    assert {"none", "first", "last", "middle", "two in a row", "every other", "all but one", "all"} == levels[
        "empty experts"
    ]


def test_scales_of_every_kind_that_an_order_takes_are_asked():
    for order, kinds in (("promote128", {"none", "tensor", "row", "block", "square"}),
                         ("chain", {"none", "tensor", "row"})):  # fmt: skip
        rows = [row for row in structure_rows("matmul_fp8", "HOPPER", {**DEFAULT, "order": order}, "full")
                if experts_alone(row)]  # fmt: skip
        assert {row["scales of b"] for row in rows} == kinds
        assert {row["scales of a"] for row in rows} == kinds - {"square"}
        assert {row["columns of the product"] for row in rows if "columns of the product" in row} >= {1, 3, 130}


@pytest.mark.parametrize("operation", ["matmul_fp8", "matmul_bf16"])
def test_every_variant_is_asked_some_and_most_are_small(operation):
    counts = []
    for params in OPERATIONS[operation].variants():
        every = list(structure_cases(operation, "HOPPER", params, "brief", experts_alone))
        counts.append(len(every))
    assert sum(counts) > 2 * len(structure_rows(operation, "HOPPER", BF16 if "bf16" in operation else DEFAULT, "smoke"))
    full = structure_cases(operation, "HOPPER", OPERATIONS[operation].defaults(), "full", experts_alone)
    sizes = sorted(len(one.case.inputs["a"]) * one.case.inputs["b"].shape[1] for one in full)
    assert sizes[len(sizes) // 2] < 2000


def record(kernel, case, level=P1):
    """Return the record of a failure on a case, with its page."""
    plan = Plan([], [], shown=1, save=False)
    return Presenter(plan).record(Subject("k", {case.operation: kernel}), Failure(case, level))


def case_of_experts(scales="block", counts=(5, 0, 3, 33), k=160, wide=6):
    row = {"drawn": "cut", "drawn rows": 1, "columns": k, "columns of the product": wide, "splits": "list",
           "scales of a": scales, "scales of b": scales}  # fmt: skip
    inputs, _ = grouped.inputs("matmul_fp8", DEFAULT, {**row, "form shape": f"{sum(counts)}x{k}"}, 3)
    experts = [0, 1, 2, 1][: len(counts)]
    inputs = {name: array[experts] if array.ndim == 3 else array for name, array in inputs.items()}
    return Case("matmul_fp8", "HOPPER", {**DEFAULT, "splits": list(counts)}, inputs)


@pytest.mark.parametrize("scales", ["none", "tensor", "row", "block"])
def test_the_page_of_a_grouped_product_is_small_and_shows_the_step(scales):
    def first_for_last(a, b, a_scales=None, b_scales=None, splits=None, **rest):
        b = np.concatenate([b[:-1], b[:1]]) if len(splits) > 1 and b.ndim == 3 else b
        return refnum.matmul_fp8(a, b, a_scales, b_scales, splits=splits, **rest)

    found = record(first_for_last, case_of_experts(scales), NO_LEVEL - 1)
    assert found["shrunk"] and len(found["params"]["splits"]) == 2 and found["case"].startswith("a [1, ")
    assert any(step["name"].startswith("term ") for step in found["page"]["steps"])
    assert "failed" not in str(found["page"]["steps"])


def test_an_order_is_named_for_grouped_products():
    def chained(a, b, a_scales=None, b_scales=None, order="promote128", splits=None, **rest):
        return refnum.matmul_fp8(a, b, a_scales, b_scales, order="chain", splits=splits, **rest)

    found = record(chained, case_of_experts("row", k=300))
    assert found["words"].startswith("these are the bits of order=chain")
    assert "the sides part in step" in found["page"]["parts"]


def test_bounds_of_grouped_products_are_those_of_their_experts():
    case = case_of_experts("block")
    right = run_golden(case)["values"]
    every = np.ones(right.shape, bool)
    assert not beyond_bounds(case, right, every).any()
    far = right.copy()
    far[7] ^= np.uint32(1 << 31)
    assert beyond_bounds(case, far, every)[7].any() and not np.delete(beyond_bounds(case, far, every), 7, 0).any()


def test_cuts_of_grouped_products_are_parts_of_the_product():
    for scales in ("none", "tensor", "row", "block"):
        case = case_of_experts(scales, wide=6)
        whole = run_golden(case)["values"]
        cut = crop.take_rows(case, 3, 20)
        assert cut.params["splits"] == [2, 0, 3, 12]
        assert np.array_equal(run_golden(cut)["values"], whole[3:20])
        assert crop.take_rows(case, 0, 4).params["splits"] == [4, 0]
        assert np.array_equal(run_golden(crop.take_others(case, 2, 4))["values"], whole[:, 2:4])
        assert np.array_equal(run_golden(crop.take_experts(case, [0, 2, 3]))["values"], whole)
        rows, one = list(crop.experts_of(case))[2]
        assert np.array_equal(run_golden(one)["values"], whole[rows]) and one.params == DEFAULT
