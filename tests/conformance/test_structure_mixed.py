"""Mixed rows, special elements, and calls made twice or at once: what they hold, and which wrong kernels they tell."""

import itertools
import threading
import time

import numpy as np
import pytest
from structure_tools import engine_of, golden, verdict

import refnum
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cases.structure import build
from refnum.conformance.cases.structure.fields import fields
from refnum.conformance.cases.structure.plan import CALLS, structure_rows
from refnum.conformance.cases.structure.ragged import DRAWN, drawn
from refnum.conformance.cases.structure.special import planted
from refnum.conformance.subjects.calls.at_once import LateError, _failed, call_twice_at_once
from refnum.conformance.subjects.subject import Subject

ONE = 0x3F800000

E4M3_NAN = 0x7F


def mixed(operation, amount="full", **params):
    rows = structure_rows(operation, "HOPPER", {**OPERATIONS[operation].defaults(), **params}, amount)
    return [row for row in rows if "classes" in row]


@pytest.mark.parametrize("operation", ["quantize_mxfp4", "permute_pad", "mxfp4_columns", "decode_e4m3"])
def test_every_way_of_calling_meets_every_form_of_the_first_input(operation):
    rows, name = mixed(operation), OPERATIONS[operation].inputs[0]
    for way in CALLS:
        found = {row.get(f"{name}.storage") for row in rows if row["calls"] == way}
        assert {"contiguous", "element gap"} <= found


def test_variants_of_an_operation_have_rows_of_their_own():
    first = {str(row) for row in mixed("mxfp4_to_fp8", "brief")}
    other = {str(row) for row in mixed("mxfp4_to_fp8", "brief", scale="max")}
    other |= {str(row) for row in mixed("mxfp4_to_fp8", "brief", scale="amax")} - first
    assert len(first | other) > 1.5 * len(first)


def test_every_residue_of_rows_is_asked_in_a_layout():
    found = fields("quantize_mxfp4", "HOPPER", {"input": "float32", "layout_out": "swizzled"}, "full")
    assert {part.row["rows"] % 128 for field in found for part in field.parts} == set(range(128))


def test_special_elements_of_every_class_stand_beside_each_other():
    x = np.ones((64, 256), np.float32)
    bits = planted("quantize_mxfp4", {"input": "float32"}, {"x": x}, 3)["x"].view(np.uint32) & 0x7FFFFFFF
    normal = (bits >= 1 << 23) & (bits < 0x7F7FFFFF)
    tie = normal & (bits & 0x7FFFFF != 0) & (bits & 0x1FFFFF == 0)
    classes = [bits == 0, (bits > 0) & (bits < 1 << 23), tie, bits == 0x7F7FFFFF, bits == 0x7F800000, bits > 0x7F800000]
    assert (bits == 0x3F800000).mean() > 0.4
    for one in classes:
        for other in classes:
            assert (one[:, ::2] & other[:, 1::2]).any()


def test_special_codes_and_scales_reach_both_ends():
    inputs = {"codes": np.full((64, 512), 0x38, np.uint8), "scales": np.full((64, 16), 127, np.uint8)}
    found = planted("dequantize_mx", {"element": "E4M3"}, inputs, 1)
    assert {0, 0x7E, E4M3_NAN, 0xFF} <= set(np.unique(found["codes"]))
    assert {0, 1, 254, 255} <= set(np.unique(found["scales"]))


@pytest.mark.parametrize("way", [*DRAWN, "thousand"])
def test_drawn_splits_are_the_same_every_time_and_even_where_they_must_be(way):
    counts = drawn(way, 77, 64, 1, 5, even=True)
    assert counts == drawn(way, 77, 64, 1, 5, even=True) and all(count % 2 == 0 and count >= 0 for count in counts)
    assert way != "thousand" or len(counts) > 512


@pytest.mark.parametrize(
    ("operation", "name", "pattern"),
    [
        ("dequantize_fp8_tiles", "codes", 0xFF),
        ("swiglu_quantize", "prob", ONE),
        ("dequantize_luq", "alpha", 0x7F800000),
        ("quantize_nvfp4", "tensor_amax", 0),
        ("adam_apply", "v", 1),
    ],
)
def test_a_kernel_that_is_wrong_for_an_input_of_one_element_all_over_is_told(operation, name, pattern):
    names = [*OPERATIONS[operation].inputs, *OPERATIONS[operation].optional]

    def run(*inputs, **more):
        right = golden(operation)(*inputs, **more)
        arrays = {**dict(zip(names, inputs, strict=False)), **more}
        given, rows = arrays.get(name), len(arrays[names[0]])
        many = given is not None and given.size > 0 and (given.size > 1 or rows > 32)
        if many and (given.view(f"u{given.itemsize}") == pattern).all():
            first = right[0] if isinstance(right, tuple) else right
            first.view(f"u{first.itemsize}")[...] ^= 1
        return right

    assert verdict(operation, run, rows=lambda row: "uniform" in row).outcome is Outcome.MISMATCH


def whole(counts):
    return all(count % 32 == 0 for count in counts)


def falling(counts):
    return all(one > other for one, other in itertools.pairwise(counts))


def rising(counts):
    return falling(counts[::-1])


def balanced(counts):
    return len(set(counts)) == 1


@pytest.mark.parametrize(
    ("operation", "only"), [*(("permute_pad", only) for only in (balanced, rising)), ("mxfp4_columns", balanced)]
)
def test_a_kernel_that_is_wrong_for_five_full_experts_of_some_kind_is_told(operation, only):
    def run(*inputs, splits=None, **more):
        right = golden(operation)(*inputs, splits=splits, **more)
        counts = [] if splits is None else [int(count) for count in splits]
        if len(counts) > 4 and min(counts) > 0 and only(counts):
            right[0][...] ^= 1
        return right

    assert verdict(operation, run).outcome is Outcome.MISMATCH


@pytest.mark.parametrize("rows", [1000, 3000])
@pytest.mark.parametrize("kind", [whole, rising, falling])
def test_ordered_experts_are_of_every_kind(kind, rows):
    counts = [drawn("ordered", rows, 64, 1, seed, even=False) for seed in range(60)]
    assert all(min(one) > 0 and len(set(one)) == len(one) for one in counts)
    assert any(len(one) > 4 and kind(one) for one in counts)


def test_balanced_experts_have_as_many_rows_but_for_the_last():
    counts = [drawn("alike", rows, 64, 1, seed, even=False) for rows in (1, 7, 300) for seed in range(40)]
    assert all(len(set(one[:-1])) < 2 and 0 < one[-1] <= one[0] for one in counts)
    assert any(len(one) > 4 and len(set(one)) == 1 for one in counts) and any(len(set(one)) == 2 for one in counts)


def test_a_static_buffer_of_one_width_is_told():
    kept = {}

    def run(packed, scales):
        right = refnum.pack_payload(packed, scales)
        if right.shape[1] != 17 * 29:
            return right
        buffer = kept.setdefault(right.shape, np.empty_like(right))
        buffer[...] = right
        return buffer

    assert verdict("pack_payload", run).outcome is Outcome.MISMATCH


def test_a_kernel_that_is_spoiled_by_another_of_its_rows_is_told():
    inside = []

    def run(packed, scales):
        inside.append(0)
        if threading.active_count() > 1:
            time.sleep(0.002)
        right = refnum.pack_payload(packed, scales)
        if len(inside) > 1 and right.shape[0] == 3:
            right[0, 0] ^= 1
        inside.pop()
        return right

    assert verdict("pack_payload", run).outcome is Outcome.MISMATCH


def test_a_busy_machine_makes_no_difference_to_what_is_called_twice(monkeypatch):
    calls = []

    def run(packed, scales):
        calls.append(packed.shape)
        return refnum.pack_payload(packed, scales)

    assert not verdict("pack_payload", run).left_out
    often, looks = len(calls), itertools.count()
    calls.clear()
    monkeypatch.setattr(time, "perf_counter", lambda: 0.06 * next(looks))  # each case takes that long, and is in time
    assert not verdict("pack_payload", run).left_out
    assert len(calls) == often


def test_answers_that_are_kept_by_the_ends_of_an_input_are_told():
    kept = {}

    def run(packed, scales):
        ends = np.ascontiguousarray(packed).reshape(-1)
        key = packed.shape, ends[:16].tobytes(), ends[-16:].tobytes(), scales.tobytes()
        return kept.setdefault(key, refnum.pack_payload(packed, scales)).copy()

    assert verdict("pack_payload", run).outcome is Outcome.MISMATCH


def test_a_refusal_that_wavers_is_told():
    calls = []

    def run(packed, scales):
        calls.append(packed.shape)
        if packed.strides[-1] != 1 and (len(calls) < 2 or calls[-2] != calls[-1]):
            raise NotImplementedError("contiguous rows only")
        return refnum.pack_payload(packed, scales)

    tally = verdict("pack_payload", run)
    assert tally.outcome is Outcome.MISMATCH and "called again" in tally.failures[0].words


def test_results_of_two_calls_at_once_that_share_memory_are_a_breach():
    case = build("pack_payload", "HOPPER", {}, {"rows": 3, "columns": 64}, 1)
    buffer = refnum.pack_payload(**case.inputs)
    subject = Subject("k", {"pack_payload": lambda packed, scales: buffer})
    _, first, second = call_twice_at_once(subject, case)
    assert first.outcome is Outcome.PASS and second.finding == "not-thread-safe"


def test_two_calls_at_once_into_out_fill_each_its_own():
    case = build("pack_payload", "HOPPER", {}, {"form shape": "5x288", "out": "row gap", "out.address": 12}, 1)

    def run(packed, scales, out=None):
        out[...] = golden("pack_payload")(packed, scales)
        return out

    _, first, second = call_twice_at_once(Subject("k", {"pack_payload": run}), case)
    want = refnum.pack_payload(**case.inputs)
    assert all(np.array_equal(called.results[0], want) for called in (first, second))


def test_a_call_that_is_late_beside_another_is_told_in_words_and_not_compared():
    called = _failed(LateError("no answer within 3 s"))
    assert called.outcome is Outcome.TIMEOUT and not called.answered and "another thread" in called.words


def test_illegal_calls_are_of_variants_without_a_layout():
    """In a layout's storage a row too many can be padding, so that no kernel can refuse it."""
    subject = Subject("k", {"pack_payload": golden("pack_payload"), "dequantize_mxfp4": golden("dequantize_mxfp4")})
    engine = engine_of(subject, "dequantize_mxfp4", {"dtype": "float32", "layout_in": "gemm_float32"})
    engine.active = lambda: [one for one in engine.judged if not engine.tallies["k"].coverage.cases > 30]
    assert engine.structural() == set()
    assert not engine.tallies["k"].wrong
