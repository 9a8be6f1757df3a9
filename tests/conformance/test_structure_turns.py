"""Calls behind another variant: a kernel that takes another variant's plan is told, and each for its own variant."""

import numpy as np
import pytest
from structure_tools import engine_of

import refnum
from refnum.conformance.cases.case import FORM
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, call_golden
from refnum.conformance.cases.structure.build import build
from refnum.conformance.cases.structure.plan import base_beside
from refnum.conformance.cases.structure.turns import FORMED, another, cases_in_turn, far_from
from refnum.conformance.commands.check.journal import IN_TURN, again
from refnum.conformance.subjects.subject import Subject


def told(operation, run, params, profile="HOPPER", profiles=("HOPPER", "OCP")):
    engine = engine_of(Subject("k", {operation: run}, profiles=profiles), operation, params, profile, quick=False)
    engine.plan.profiles = list(profiles)
    engine.in_turn()
    return engine.tallies["k"]


def keeps(key):
    """Return a kernel that keeps a plan by `key` of a call, made for the dtype and profile of the first."""
    plans = {}

    def run(x, profile="HOPPER"):
        made_for = plans.setdefault(key(x, profile), (x.dtype.name, profile))
        packed, scales = refnum.quantize_mxfp4(x, profile)
        return packed ^ np.uint8(made_for != (x.dtype.name, profile)), scales

    return run


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        (lambda x, profile: (x.shape, profile), True),
        (lambda x, profile: (x.shape, x.dtype), True),
        (lambda x, profile: (x.shape, x.dtype, profile), False),
    ],
    ids=["without the dtype", "without the profile", "by all"],
)
def test_a_plan_that_is_kept_for_another_variant_is_told(key, wrong, dtype):
    assert told("quantize_mxfp4", keeps(key), {"input": dtype}).wrong is wrong


@pytest.mark.parametrize("layouts", [{}, {"layout_in": "float32"}, {"layout_in": "packed_ue8m0"}])
def test_a_plan_that_is_kept_for_another_layout_of_scales_is_told(layouts):
    """A plain call behind one in each layout, and a call in a layout behind a plain one."""
    plans = {}

    def run(packed, scales, dtype="float32", layout_in="bytes"):
        made_for = plans.setdefault((packed.shape, dtype), layout_in)
        values = refnum.dequantize_mxfp4(packed, scales, dtype, layout_in=layout_in)
        return values if made_for == layout_in else -values

    assert told("dequantize_mxfp4", run, {"dtype": "float32", **layouts}).wrong


@pytest.mark.parametrize("before", ["gemm_float32", "swizzled"])
def test_a_plan_that_is_kept_for_one_layout_and_taken_in_another_is_told(before):
    last = ["bytes"]

    def run(packed, scales, dtype="float32", layout_in="bytes"):
        behind, last[0] = last[0], layout_in
        values = refnum.dequantize_mxfp4(packed, scales, dtype, layout_in=layout_in)
        return -values if (behind, layout_in) == (before, "float32") else values

    assert told("dequantize_mxfp4", run, {"dtype": "float32", "layout_in": "float32"}).wrong


def test_a_plan_that_is_kept_for_random_bits_without_a_key_is_told():
    plans = {}

    def run(x, profile="STOCHASTIC", rbits=None, philox=None):
        made_for = plans.setdefault(x.shape, philox is None)
        packed, scales = refnum.quantize_mxfp4(x, profile, rbits, philox=philox)
        return packed ^ np.uint8(made_for != (philox is None)), scales

    params = {"input": "float32", "random": "keyed"}
    assert told("quantize_mxfp4", run, params, "STOCHASTIC", ("STOCHASTIC",)).wrong


def test_a_layout_that_a_kernel_does_not_name_is_not_asked_before():
    def run(packed, scales, dtype="float32"):
        return refnum.dequantize_mxfp4(packed, scales, dtype)

    tally = told("dequantize_mxfp4", run, {"dtype": "float32"})
    assert (
        tally.calls == 1 + FORMED + len(uniform("dequantize_mxfp4", {"dtype": "float32"}))
        and not tally.wrong
        and not tally.unsupported
    )


def test_the_call_before_is_not_judged_here():
    def run(x, profile="HOPPER"):
        packed, scales = refnum.quantize_mxfp4(x, profile)
        return packed ^ np.uint8(profile == "OCP"), scales

    assert not told("quantize_mxfp4", run, {"input": "float32"}).wrong


def wrong_at_an_address(refuses):
    """Return a kernel that is wrong behind another dtype if its input lies 8 bytes behind a multiple of 16."""
    last = [None]

    def run(x, profile="HOPPER"):
        place = x.__array_interface__["data"][0] % 16
        if refuses and not x.flags.c_contiguous:
            raise ValueError("contiguous arrays only")
        behind, last[0] = last[0], x.dtype.name
        packed, scales = refnum.quantize_mxfp4(x, profile)
        return packed ^ np.uint8(behind not in (None, x.dtype.name) and place == 8 and not refuses), scales

    return run


def test_calls_behind_another_variant_come_in_forms_too_which_may_be_refused():
    every = [told("quantize_mxfp4", wrong_at_an_address(False), {"input": name}) for name in ("float32", "bfloat16")]
    assert any(tally.wrong for tally in every)
    tally = told("quantize_mxfp4", wrong_at_an_address(True), {"input": "float32"})
    assert tally.close() is Outcome.PASS and tally.calls > 4


def test_a_variant_that_fails_is_called_once():
    calls = []

    def run(x, profile="HOPPER"):
        calls.append(x.dtype.name)
        if x.dtype.name == "float16":
            raise RuntimeError("no such instruction")
        return refnum.quantize_mxfp4(x, profile)

    engine = engine_of(Subject("k", {"quantize_mxfp4": run}), "quantize_mxfp4", {"input": "float32"}, quick=False)
    engine.in_turn()
    engine.in_turn()
    assert calls.count("float16") == 1 and not engine.tallies["k"].wrong
    assert engine.tallies["k"].outcome is not Outcome.FAULT


def test_one_that_takes_long_is_left_alone_and_that_is_noted(monkeypatch):
    calls = []

    def run(x, profile="HOPPER"):
        calls.append(x.shape)
        return refnum.quantize_mxfp4(x, profile)

    monkeypatch.setattr("refnum.conformance.commands.check.in_turn.SECONDS", 0)
    tally = told("quantize_mxfp4", run, {"input": "float32"})
    assert len(set(calls)) == 1 and tally.left_out[-1] == "calls behind another variant beyond 0 seconds"


def test_a_note_names_the_call_before_or_the_one_behind_it():
    note = {"operation": "quantize_mxfp4", "profile": "HOPPER", "params": {"input": "float32"}, "stream": IN_TURN}
    before, behind = (again({**note, "number": number}) for number in (0, 1))
    assert (before.params["input"], behind.params["input"]) == ("bfloat16", "float32")


@pytest.mark.parametrize("operation", ["quantize_nvfp4", "permute_pad", "decode_e8m0", "matmul_fp8", "fp8_to_mxfp4"])
def test_a_call_and_the_one_before_differ_in_one_thing(operation):
    params = next(OPERATIONS[operation].variants())
    pairs = [pair for pair in cases_in_turn(operation, "HOPPER", params) if "uniform" not in pair[1].label]
    row = OPERATIONS[operation]
    more = len(row.layouts) * (len(row.stored_as) - 1) + row.profiled * (len(refnum.PROFILES) - 1)
    alone = sum(len(levels) - 1 for levels in _alone(operation).values())
    assert len(pairs) == 2 * more + (1 + FORMED) * alone
    assert len({case.params[FORM].get(f"{row.inputs[0]}.address") for _, case in pairs if FORM in case.params}) > 1
    for other, case in pairs:
        apart = [name for name in (*params, *row.layouts) if other.params.get(name) != case.params.get(name)]
        assert len(apart) + (other.profile != case.profile) == 1 and "after" in case.label


def uniform(operation, params):
    return [pair for pair in cases_in_turn(operation, "HOPPER", params) if "uniform" in pair[1].label]


@pytest.mark.parametrize("operation", ["swiglu_quantize", "quantize_tetrajet", "dequantize_int4"])
def test_an_input_of_one_element_comes_behind_each_value_of_a_parameter_and_without_an_optional_one(operation):
    met, lacks = set(), set()
    for params in OPERATIONS[operation].variants():
        for before, case in uniform(operation, params):
            level = case.label.partition("uniform ")[2].partition(",")[0]
            met |= {(name, str(params[name]), str(before.params[name]), level)
                    for name in params if params[name] != before.params[name]}  # fmt: skip
            lacks |= {level} if before.inputs.keys() - case.inputs.keys() else set()
            assert call_golden(before) and call_golden(case)
    levels = {level for *_, level in met} | lacks
    assert len(levels) > 8 and (operation == "quantize_tetrajet" or len(lacks) > 8)
    for name, values in OPERATIONS[operation].params.items():
        if len(values) == 2 and name not in OPERATIONS[operation].read_under:
            assert {(name, str(a), str(b), level) for level in levels for a in values for b in values if a != b} <= met


@pytest.mark.parametrize("operation", OPERATIONS)
def test_few_variants_have_each_other_value_of_every_parameter(operation):
    every = list(OPERATIONS[operation].variants())
    for params in every:
        far = far_from(operation, "HOPPER", params, lambda *_: False)
        found = {(name, str(one[name])) for _, one in far for name in params}
        assert found >= {(name, str(one[name])) for one in every for name in one if one[name] != params[name]}
        assert all(profile != "HOPPER" or one != params for profile, one in far)


def test_each_pair_has_a_shape_of_its_own():
    params = next(OPERATIONS["quantize_mxfp4"].variants())
    pairs = list(cases_in_turn("quantize_mxfp4", "HOPPER", params))
    shapes = [case.inputs["x"].shape for _, case in pairs]
    assert len(set(shapes)) == len(shapes) > len(refnum.PROFILES)
    assert all(other.inputs["x"].shape == case.inputs["x"].shape for other, case in pairs)


def test_a_case_behind_one_without_a_layout_says_so():
    pairs = list(cases_in_turn("dequantize_mxfp4", "HOPPER", {"dtype": "float32", "layout_in": "swizzled"}))
    labels = [case.label.rpartition("after ")[2] for _, case in pairs]
    assert labels[0] == "no layout_in" and "layout_in float32" in labels and "layout_in swizzled" not in labels


def _alone(operation):
    """Return the values of each parameter that the first variant may have beside its others."""
    first, *rest = OPERATIONS[operation].variants()
    near = [other for other in rest if sum(first[name] != other[name] for name in first) == 1]
    return {name: {str(one[name]) for one in (first, *near)} for name in first}


def keeps_a_layout(key):
    """Return a kernel that keeps a plan by `key` of a call, made for the layout and the source of random bits of the
    first."""
    plans = {}

    def run(x, profile="HOPPER", *, rbits=None, philox=None, layout_out="bytes"):
        made_for = plans.setdefault(key(x, layout_out, philox), (layout_out, philox is None))
        packed, scales = refnum.quantize_mxfp4(x, profile, rbits=rbits, philox=philox, layout_out=layout_out)
        return packed ^ np.uint8(made_for != (layout_out, philox is None)), scales

    return run


@pytest.mark.parametrize(
    ("key", "wrong"),
    [(lambda x, layout, _: x.shape, True), (lambda x, layout, philox: (x.shape, layout, philox is None), False)],
    ids=["by the shape", "by all"],
)
@pytest.mark.parametrize(
    ("profile", "more"),
    [
        ("HOPPER", {"layout_out": "swizzled"}),
        ("HOPPER", {"layout_out": "float32"}),
        ("STOCHASTIC", {"random": "keyed"}),
    ],
)
def test_a_plan_that_is_kept_for_another_layout_or_key_is_told(key, wrong, profile, more):
    params = {"input": "float32", **more}
    assert told("quantize_mxfp4", keeps_a_layout(key), params, profile, (profile,)).wrong is wrong


@pytest.mark.parametrize("operation", [name for name, row in OPERATIONS.items() if row.layouts])
def test_a_layout_comes_behind_plain_bytes_and_each_other_layout(operation):
    row = OPERATIONS[operation]
    for name in row.layouts:
        for layout in row.stored_as[1:]:
            params = {**row.defaults(), name: layout}
            every = list(cases_in_turn(operation, "HOPPER", params))
            behind = [other.params.get(name, "plain") for other, _ in every]
            others = set(row.stored_as) - {layout, "bytes"}
            assert "plain" in behind and others <= set(behind)
            for cases in every:
                for case in cases:
                    call_golden(case)


@pytest.mark.parametrize("kept", [lambda x, profile: profile, lambda x, profile: x.shape], ids=["profile", "shape"])
@pytest.mark.parametrize("shared", [True, False])
def test_what_all_calls_keep_in_one_place_is_told_by_two_variants_at_once(kept, shared):
    """As constant memory that each launch sets does: right after any call, and beside one of the same variant."""
    constant = {}

    def run(x, profile="HOPPER"):
        name = getattr(profile, "name", profile)
        own = kept(x, name)
        constant[own if not shared else "all"] = own
        packed, scales = refnum.quantize_mxfp4(x, profile)
        return packed ^ np.uint8(constant[own if not shared else "all"] != own), scales

    engine = engine_of(Subject("k", {"quantize_mxfp4": run}, profiles=("HOPPER", "OCP")), "quantize_mxfp4", quick=False)
    engine.corners()
    tally = engine.tallies["k"]
    assert tally.wrong is shared and all(one.finding == Finding.NOT_THREAD_SAFE for one in tally.failures)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_call_beside_another_is_of_another_variant_and_shape(operation):
    for params in OPERATIONS[operation].variants():
        case = call_beside_of(operation, params)
        other = another(case, lambda *_: "")
        assert call_golden(other)
        shapes = [{name: array.shape for name, array in one.inputs.items()} for one in (case, other)]
        assert shapes[0] != shapes[1]
        several = len(list(OPERATIONS[operation].variants())) > 1 or OPERATIONS[operation].profiled
        assert not several or (case.profile, params) != (other.profile, {name: other.params[name] for name in params})
        assert another(case, lambda *_: "no").params.items() >= params.items()


def call_beside_of(operation, params):
    return build(operation, "HOPPER", params, base_beside(operation, params), 3)
