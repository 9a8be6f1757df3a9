"""Scale layouts and keyed random bits as variants: what is asked of whom, and that wrong storage is caught."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from run_tools import results, right

import refnum
from refnum.conformance.cases import layouts as storage
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.domains import domains_for
from refnum.conformance.cases.levels import NO_LEVEL
from refnum.conformance.cases.operation import OPERATIONS, call_golden, outputs_of, run_golden, select
from refnum.conformance.cases.recipes import Recipe, expand, sampled_cases
from refnum.conformance.cases.recipes.random_bits import last_offset
from refnum.conformance.commands.check.plan import Plan, variants
from refnum.conformance.commands.check.run import run
from refnum.conformance.mismatches.diagnose import Seen, hints
from refnum.conformance.mismatches.replay import load
from refnum.conformance.reports.report import Report, header
from refnum.conformance.subjects.layout_variants import special_params
from refnum.conformance.subjects.subject import Subject, from_dict
from refnum.conformance.verdicts.compare import compare
from refnum.errors import ArgumentError
from refnum.layouts import LAYOUTS, scales_to_layout

N21 = ("nvfp4", "hadamard")  # whose scales have one layout beside bytes
LAID = [name for name, row in OPERATIONS.items() if row.layouts and row.family not in N21]


def few(operation, profile, params):
    """The first corner cases of a variant with more than one row of scales, and one without any."""
    cases = [case for case in corner_cases(operation, profile, params) if case.elements < 5000]
    yield from [
        *itertools.islice((case for case in cases if next(iter(case.inputs.values())).shape[0] > 1), 2),
        cases[0],
    ]


def judged(function, operation="quantize_mxfp4", profile="HOPPER", cases=few, special=True, save=False):
    subject = from_dict({"name": "k", "operations": {operation: function}, "profiles": [profile]}, "test")
    plan = Plan([subject], select([operation]), None, shown=1, special=special, cases=cases, save=save)
    return results(run(plan, Report(header("standard", 0, [], [], []))))


def test_buffers_are_asked_about_on_ordinary_variants_only():
    def quantize_mxfp4(x, profile, layout_out="bytes"):
        packed, scales = right(x, profile)
        return packed, scales_to_layout(scales, layout_out)

    rows = judged(quantize_mxfp4, cases=lambda *key: itertools.islice(few(*key), 1))
    laid = {variant: set(row["probes"]) for (_, variant), row in rows.items() if storage.OUT in row["params"]}
    plain = {variant: set(row["probes"]) for (_, variant), row in rows.items() if storage.OUT not in row["params"]}
    assert laid and plain and all({"ten repeats", "earlier results held"} <= asked for asked in plain.values())
    assert all("ten repeats" in asked and "earlier results held" not in asked for asked in laid.values())


@pytest.mark.parametrize("name", LAID)
def test_the_model_hands_out_the_storage_of_its_bytes(name):
    for params in special_params("exhaustive", OPERATIONS[name], keyed=False):
        for case in few(name, "HOPPER", params):
            golden = run_golden(case)
            for output, array in zip(outputs_of(case), call_golden(case), strict=True):
                want = golden[output.name]
                if output.kind == "scales" and storage.OUT in params:
                    want = scales_to_layout(want, params[storage.OUT])
                    found, problem = storage.bytes_of(case, golden[output.name], array)
                    assert not problem and np.array_equal(found, golden[output.name])
                assert array.shape == want.shape and array.tobytes() == want.tobytes()


@pytest.mark.parametrize("name", LAID)
def test_every_layout_meets_every_choice_of_a_parameter(name):
    operation = OPERATIONS[name]
    asked = list(special_params("standard", operation, keyed=False))
    for layout, (param, choices) in itertools.product(operation.layouts, operation.params.items()):
        met = {(params.get(layout, "bytes"), str(params[param])) for params in asked}
        assert met >= set(itertools.product(LAYOUTS[1:], map(str, choices)))
    every = list(special_params("exhaustive", operation, keyed=False))
    plain = int(np.prod([len(choices) for choices in operation.params.values()], dtype=int))
    assert len(every) == (len(LAYOUTS) ** len(operation.layouts) - 1) * plain
    assert all(params in every for params in asked)


def test_only_what_names_the_keyword_is_asked():
    def with_layouts(x, profile, *, layout_out="bytes"):
        return refnum.quantize_mxfp4(x, profile, layout_out=layout_out)

    def anything(**keywords):
        return refnum.quantize_mxfp4(keywords["x"], keywords["profile"])

    found = judged(with_layouts)
    assert len(found) == 15 and {row["outcome"] for row in found.values()} == {"pass"}
    for function in (right, anything):
        found = judged(function)
        assert len(found) == 3 and {row["outcome"] for row in found.values()} == {"pass"}
        assert all("left out scales in layouts other than bytes" in row["evidence"] for row in found.values())
    assert len(judged(with_layouts, special=False)) == 3


def padding(x, profile, *, layout_out="bytes"):
    packed, scales = refnum.quantize_mxfp4(x, profile, layout_out=layout_out)
    if layout_out in ("gemm_float32", "packed_ue8m0", "swizzled") and x.shape[0] % 4:
        scales = scales.copy()
        scales.reshape(-1).view(np.uint8)[-1] = 0x3F
    return packed, scales


def other_byte_order(x, profile, *, layout_out="bytes"):
    packed, scales = refnum.quantize_mxfp4(x, profile, layout_out=layout_out)
    return packed, scales.byteswap() if layout_out == "packed_ue8m0" else scales


def quiet_nan_lost(x, profile, *, layout_out="bytes"):
    packed, scales = refnum.quantize_mxfp4(x, profile, layout_out=layout_out)
    if layout_out == "float32":
        scales = np.where(np.isnan(scales), np.uint32(0x7FFFFFFF).view(np.float32), scales)
    return packed, scales


def rows_unpadded(x, profile, *, layout_out="bytes"):
    packed, scales = refnum.quantize_mxfp4(x, profile, layout_out=layout_out)
    return packed, scales[:, : x.shape[0]].copy() if layout_out == "gemm_float32" else scales


@pytest.mark.parametrize(
    ("function", "layouts", "finding", "words"),
    [
        (padding, {"gemm_float32", "packed_ue8m0", "swizzled"}, "wrong-padding", "is padding of the layout"),
        (other_byte_order, {"packed_ue8m0"}, "wrong-padding", ""),
        (quiet_nan_lost, {"float32"}, "scale-not-a-power-of-two", "0x7FFFFFFF"),
        (rows_unpadded, {"gemm_float32"}, "wrong-shape-or-dtype", "has shape"),
    ],
)
def test_wrong_storage_is_a_mismatch(function, layouts, finding, words):
    def cases(operation, profile, params):
        x = np.linspace(-9, 9, 5 * 96, dtype=np.float32).reshape(5, 96)
        x[3, 40] = np.nan
        if params["input"] == "float32":
            yield Case(operation, profile, params, {"x": x})

    found = {row["params"].get("layout_out", "bytes"): row for row in judged(function, cases=cases).values()
             if row["params"]["input"] == "float32"}  # fmt: skip
    outcome = "malformed" if finding == "wrong-shape-or-dtype" else "mismatch"
    assert {name for name, row in found.items() if row["outcome"] == outcome} == layouts
    failures = [row["failures"][0] for name, row in found.items() if name in layouts]
    assert all(words in failure["words"] and failure["finding"] == finding for failure in failures)
    assert all(failure["reproduced"] == "3 of 3" for failure in failures)


@pytest.mark.parametrize(("row", "names"), [(3, ["PADDING_NOT_ZERO"]), (33, []), (63, ["PADDING_NOT_ZERO"])])
def test_padding_rows_are_bytes_like_others(row, names):
    """A byte of any value in a padding row, and not in a row of an expert."""
    x = np.arange(5 * 34, dtype=np.uint8).reshape(5, 34)
    case = Case("permute_pad", "HOPPER", {"align": 32, "splits": [3, 2]},
                {"payload": x, "row_map": np.arange(5, dtype=np.int32)})  # fmt: skip
    golden = run_golden(case)
    rows, offsets = refnum.permute_pad(**case.inputs, splits=[3, 2])
    rows[row, 7] ^= 1
    comparison = compare(case, golden, (rows, offsets))
    assert not comparison.problem and comparison.level == NO_LEVEL
    assert [entry["id"] for entry in hints([Seen(case, comparison.observed)])] == names


def test_a_kernel_that_reads_a_layout_is_given_it():
    seen = []

    def decoder(packed, scales, dtype="float32", *, layout_in="bytes"):
        seen.append((layout_in, scales.dtype.name))
        return refnum.dequantize_mxfp4(packed, scales, dtype, layout_in=layout_in)

    def transposed(packed, scales, dtype="float32", *, layout_in="bytes"):
        if layout_in == "gemm_float32":
            scales = np.ascontiguousarray(scales[::-1])
        return refnum.dequantize_mxfp4(packed, scales, dtype, layout_in=layout_in)

    found = judged(decoder, "dequantize_mxfp4")
    assert {row["outcome"] for row in found.values()} == {"pass"}
    want = {
        "bytes": "uint8",
        "float32": "float32",
        "gemm_float32": "float32",
        "packed_ue8m0": "int32",
        "swizzled": "uint8",
    }
    assert dict(seen) == want
    wrong = [row["params"]["layout_in"] for row in judged(transposed, "dequantize_mxfp4").values() if row["failing"]]
    assert set(wrong) == {"gemm_float32"}


def test_keyed_random_bits():
    def by_key(x, profile, *, rbits=None, philox=None):
        return refnum.quantize_mxfp4(x, profile, rbits=rbits, philox=philox)

    def short_offset(x, profile, *, rbits=None, philox=None):
        if philox is not None:
            philox = (*philox[:3], philox[3] & 0xFFFFFFFF)
        return refnum.quantize_mxfp4(x, profile, rbits=rbits, philox=philox)

    def given_only(x, profile, *, rbits):
        return refnum.quantize_mxfp4(x, profile, rbits=rbits)

    def cases(operation, profile, params):
        yield from itertools.islice(
            (c for c in sampled_cases(operation, profile, params, 2, 40) if c.elements < 9000), 12
        )

    good = judged(by_key, profile="STOCHASTIC", cases=cases)
    assert len(good) == 6 and {row["outcome"] for row in good.values()} == {"pass"}
    bad = judged(short_offset, profile="STOCHASTIC", cases=cases)
    assert all((row["outcome"] == "mismatch") == ("random" in row["params"]) for row in bad.values())
    only = judged(given_only, profile="STOCHASTIC", cases=cases)
    assert len(only) == 3 and all(
        "keyed random bits, as it takes no `philox`" in row["evidence"] for row in only.values()
    )


def test_keys_differ_and_reach_the_carries():
    params = {"input": "float32", "random": "keyed"}
    cases = list(corner_cases("quantize_mxfp4", "STOCHASTIC", params))
    assert all("rbits" not in case.inputs and "philox" in case.params for case in cases)
    keys = [tuple(case.params["philox"]) for case in cases]
    assert len(set(keys)) == len(keys) and any(key[3] >= 1 << 32 for key in keys)
    for domain in domains_for("quantize_mxfp4", "STOCHASTIC", {"input": "bfloat16", "random": "keyed"}, "standard")[:1]:
        case = next(domain.cases())
        assert "philox" in case.params and set(run_golden(case)) == {"packed", "scales"}


def test_a_failing_layout_replays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = judged(padding, save=True)
    record = next(row for row in rows.values() if row["outcome"] == "mismatch")["failures"][0]
    replay = load(tmp_path / record["replay"] if not str(record["replay"]).startswith("/") else record["replay"])
    assert replay.case.params["layout_out"] in LAYOUTS[1:]


NAMES = ["HOPPER", "OCP", "CEIL", "EVEN", "TE"]
WRONG = 0x3213  # a float16 element, wrong under CEIL alone


def both(function, names, operation="quantize_mxfp4", **more):
    """Results by profile on the domains of float16, nothing else asked."""
    subject = Subject("k", {operation: function}, profiles=tuple(names), **more)
    plan = Plan([subject], select([operation]), names, shown=0, save=False, examples=0)
    only = {**plan.operations[0].__dict__, "params": {"input": ("float16",)}}
    plan.operations = [type(plan.operations[0])(**only)]
    document = run(plan, Report(header("standard", 0, [], [], []))).document()
    return {row["profile"]: row for row in document["results"]}


def wrong_under_ceil(x, profile):
    packed, scales = refnum.quantize_mxfp4(x, profile)
    if refnum.get_profile(profile).name == "CEIL":
        row, column = np.nonzero(x.view(np.uint16) == WRONG)
        byte = scales[row, column // 32]
        hit = (byte >= 138) & (byte <= 139)  # no corner and no sample stands there
        packed[row[hit], column[hit] // 2] ^= 0x11
    return packed, scales


@pytest.mark.parametrize("names", [["CEIL"], ["HOPPER", "CEIL"]])
def test_profiles_of_foreign_code_are_each_tried_completely(little_structure, names):
    rows = both(wrong_under_ceil, names)
    assert rows["CEIL"]["outcome"] == "mismatch"


def test_a_profile_that_was_not_proved_decides_nothing(little_structure):
    """HOPPER is refused, then wrong on a domain: CEIL is tried completely, though its code is one."""

    def supports(operation, profile, params):
        return "not here" if profile == "HOPPER" else ""

    assert both(wrong_under_ceil, ["HOPPER", "CEIL"], one_code=True, supports=supports)["CEIL"]["outcome"] == "mismatch"

    def wrong_under_both(x, profile):
        return wrong_under_ceil(x, "CEIL")

    rows = both(wrong_under_both, ["HOPPER", "CEIL"], one_code=True)
    assert "scale byte, decided under" not in rows["CEIL"]["evidence"]


def test_layouts_are_asked_under_the_first_profile_that_can_be_judged():
    def kernel(x, profile, layout_in="bytes", layout_out="bytes"):
        return refnum.quantize_mxfp4(x, profile)

    def supports(operation, profile, params):
        return "not here" if profile == "HOPPER" else ""

    subject = Subject("k", {"quantize_mxfp4": kernel}, profiles=("HOPPER", "CEIL", "TE"), supports=supports)
    plan = Plan([subject], select(["quantize_mxfp4"]), special=True)
    asked = {item.profile for item in variants(plan) if item.special and not subject.refuses(
        "quantize_mxfp4", item.profile, item.params)}  # fmt: skip
    assert asked == {"CEIL"}
    ordinary = {item.profile: plan.elsewhere(subject, item) for item in variants(plan) if not item.special}
    assert ordinary["TE"] == ["scale layouts, asked under CEIL"] and ordinary["CEIL"] == []
    every = Plan([subject], select(["quantize_mxfp4"]), special=True, level="exhaustive")
    assert {item.profile for item in variants(every) if item.special} == {"HOPPER", "CEIL", "TE"}


def test_domains_that_another_profile_decides_are_left_out(little_structure):
    rows = both(lambda x, profile: refnum.quantize_mxfp4(x, profile), NAMES, one_code=True)
    kept = {name: [domain["name"].split()[1] for domain in rows[name]["domains"]] for name in NAMES}
    assert "every element under every scale byte, decided under HOPPER" in rows["CEIL"]["evidence"]
    assert kept == {
        "HOPPER": ["16-bit", "element", "element"], "OCP": ["16-bit", "element"], "CEIL": ["16-bit"],
        "EVEN": ["16-bit"], "TE": ["16-bit", "element"],
    }  # fmt: skip


def test_the_model_is_asked_no_large_domain_of_answers_that_are_its_own(little_structure):
    row = both(refnum.quantize_mxfp4, ["HOPPER"], one_code=True, kind="model")["HOPPER"]
    assert "every element under every scale byte, whose golden answers are the model's own" in row["evidence"]
    assert row["outcome"] == "pass" and [domain["size"] for domain in row["domains"]] == [1 << 16, 2 << 16]
    other = both(lambda x, profile: refnum.quantize_mxfp4(x, "CEIL"), ["HOPPER"], one_code=True, kind="model")
    assert other["HOPPER"]["outcome"] == "mismatch"


def test_pairs_of_a_profile_left_out_are_among_those_of_the_other():
    """By enumeration: every (byte, element, code) under CEIL is one under HOPPER."""

    def triples(profile):
        domain = domains_for("quantize_mxfp4", profile, {"input": "float16"}, "standard")[1]
        assert domain.within([profile])
        found = set()
        for case in domain.cases():
            golden = run_golden(case)
            x = case.inputs["x"].view(np.uint16).astype(np.uint64)
            codes = np.stack([golden["packed"] & 15, golden["packed"] >> 4], -1).reshape(x.shape).astype(np.uint64)
            bytes_ = np.repeat(golden["scales"], 32, axis=1)[:, : x.shape[1]].astype(np.uint64)
            found |= set(np.unique(bytes_ << np.uint64(24) | x << np.uint64(8) | codes).tolist())
        return found, domain

    hopper, wide = triples("HOPPER")
    ceil, narrow = triples("CEIL")
    assert narrow.within(["HOPPER"]) and ceil <= hopper
    assert not wide.within(["CEIL"]) and not hopper <= ceil


@pytest.mark.parametrize("bits", [4, 8, 11, 16, 24])
def test_the_model_takes_every_key_that_is_drawn(bits):
    profile = f"STOCHASTIC+random_bits={bits}"
    params = {"input": "float32", "random": "keyed"}
    recipe = Recipe("quantize_mxfp4", profile, params, (3, 64), 0, "normal", {"exponent": 0})
    cases = [expand(replace(recipe, seed=seed)) for seed in range(5)]
    assert last_offset(bits) in {case.params["philox"][3] for case in cases}
    for case in cases:
        run_golden(case)
    with pytest.raises(ArgumentError):
        refnum.philox.random_bits(1, bits, seed=0, offset=2 * last_offset(bits))
