"""A whole run on a stand-in device: NumPy arrays and a host clock in place of CuPy and events."""

import contextlib
import dataclasses
import functools
import time
import types
import weakref

import numpy as np
import pytest
from bench_tools import PLAIN, SHAPE, Host, model, subject

from refnum.conformance.cases.operation import OPERATIONS, call_golden
from refnum.conformance.commands.bench import agree, document, inputs, lines, measure, tables
from refnum.conformance.commands.bench.clock import Times, in_turn, sets_for
from refnum.conformance.commands.bench.contender import Contender, Prepared, of_subject, tunings_of
from refnum.conformance.subjects.subject import from_dict
from refnum.errors import ArgumentError, UnsupportedError


def records(plan):
    return list(measure.run(plan, Host()))


def plan(**given):
    one = subject(given.pop("broken", False))
    chosen = {"peers": (), "lines": lines.LINES, "shapes": (SHAPE,), "repeat": 2, **given}
    return measure.Plan(of_subject(one), **chosen)


@pytest.fixture(scope="module")
def whole():
    return records(plan())


def test_every_line_is_timed_and_equal(whole):
    assert [r["line"] for r in whole] == [line.label for line in lines.LINES]
    assert {(r["status"], r["agreement"], r["words"]) for r in whole} == {("timed", "equal", "")}
    assert all(r["compared"] > 0 and r["differing"] == 0 for r in whole)


def test_bytes_are_inputs_and_outputs_once(whole):
    by = {r["line"]: r for r in whole}
    assert by["BF16 -> MXFP4"]["bytes"] == 64 * 256 * 2 + 64 * 128 + 64 * 8
    assert by["FP8 -> MXFP4"]["bytes"] == 256 * 256 + 256 * 2 + 256 * 128 + 256 * 8
    record = by["FP8 -> MXFP4"]
    rate = record["bytes"] / (record["us"]["median"] * 1e-6)
    assert record["of_copy"] == pytest.approx(rate / Host.RATE, abs=1e-4)


def test_a_product_has_multiply_adds_a_second(whole):
    by = {r["line"]: r for r in whole if "terms" in r}
    assert set(by) == {"FP8 product, chain", "FP8 product, 1x128 by 128x128", "BF16 product"}
    record = by["BF16 product"]
    assert (record["matrix"], record["terms"]) == ([64, 128], 256) and "of_copy" not in record
    rate = 64 * 128 * 256 / (record["us"]["median"] * 1e-6)
    assert record["tma_s"] == pytest.approx(rate / 1e12, rel=1e-3)


def test_every_timed_operation_has_a_line():
    silent = {"quantize_mx", "dequantize_mx"} | {name for name in OPERATIONS if name.startswith("decode_")}
    silent |= {
        name for name, row in OPERATIONS.items() if row.family in ("integer", "oscillation", "tetrajet_v2", "updates")
    }  # without kernels
    assert {line.operation for line in lines.LINES} == set(OPERATIONS) - silent


def test_every_line_of_experts_has_one_whose_experts_begin_anywhere():
    ragged = {line.label for line in lines.LINES if OPERATIONS[line.operation].ragged and line.experts}
    aligned = {label for label in ragged if not label.endswith(", unaligned")}
    assert len(aligned) == 12 and ragged == aligned | {f"{label}, unaligned" for label in aligned}


def test_an_unwritten_byte_is_seen():
    (record,) = records(plan(broken=True, lines=lines.select(["FP8 -> MXFP4"])))
    assert record["agreement"] == "differs"
    assert record["differing"] == 2  # the last byte of both outputs


def test_a_peer_that_fails_does_not_stop_the_others():
    def bad(line, case):
        raise ZeroDivisionError("no such\nlaunch")

    def good(line, case):
        return Prepared(lambda: call_golden(case), list(case.inputs.values()), list)

    peers = (Contender("bad", lambda line: "", bad), Contender("good", lambda line: "", good))
    found = records(plan(peers=peers, lines=lines.select(["pack_payload"])))
    assert [(r["contender"], r["status"]) for r in found] == [
        ("stand-in", "timed"), ("bad", "failed"), ("good", "timed"),
    ]  # fmt: skip
    assert found[1]["words"] == "ZeroDivisionError in bad: no such launch"
    elsewhere = plan(peers=peers, lines=lines.select(["pack_payload"]), peer_shapes=frozenset({"32x32"}))
    assert not records(elsewhere)[1:]  # not at this shape


def good(line, case):
    return Prepared(lambda: call_golden(case), list(case.inputs.values()), list)


def test_a_slow_peer_is_timed_once_after_the_others_and_at_the_first_shape_alone():
    told = []
    peers = (
        Contender("slow", lambda line: "", good, slow=True),
        Contender("good", lambda line: "", good),
    )
    chosen = plan(peers=peers, lines=lines.select(["pack_payload"]), shapes=(SHAPE, PLAIN), told=told.append)
    found = records(chosen)
    assert [(r["shape"], r["contender"], r["status"]) for r in found] == [
        (SHAPE.name, "stand-in", "timed"), (SHAPE.name, "slow", "timed"), (SHAPE.name, "good", "timed"),
        (PLAIN.name, "stand-in", "timed"), (PLAIN.name, "slow", "not offered"), (PLAIN.name, "good", "timed"),
    ]  # fmt: skip
    assert found[4]["words"] == f"it is slow: timed at {SHAPE.name} only"
    assert [words for words in told if "slow" in words] == [told[6]]  # the last of the first shape
    own = [words for words in told if words.startswith(SHAPE.name) and words.split("  ")[2] == "stand-in"]
    assert [words.split("  ")[-1] for words in (*own, told[6])] == ["1 of 3", "2 of 3", "3 of 3", "1 of 1, slow"]


def test_lines_that_are_no_part_of_a_layer_are_timed_at_the_first_shape_alone():
    chosen = lines.select(["BF16 -> E4M3 codes", "BF16 -> MXFP4", "BF16 -> MXFP4, swizzled scales"])
    found = records(plan(lines=chosen, shapes=(SHAPE, PLAIN)))
    assert [(r["shape"], r["line"]) for r in found] == [
        *((SHAPE.name, line.label) for line in chosen), (PLAIN.name, "BF16 -> MXFP4"),
    ]  # fmt: skip


def test_no_peer_begins_after_its_seconds_and_the_subject_goes_on():
    peers = (Contender("good", lambda line: "", good),)
    found = records(plan(peers=peers, lines=lines.select(["pack_payload"]), peer_seconds=0.0))
    assert [(r["contender"], r["status"], r["words"]) for r in found] == [
        ("stand-in", "timed", ""), ("good", "failed", "the seconds given to peers were over"),
    ]  # fmt: skip


def test_no_peer_of_a_line_begins_after_its_seconds(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(measure, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))

    def late(line, case):
        clock[0] = 60.0
        return good(line, case)

    peers = [Contender(name, lambda line: "", ready, slow=slow) for name, ready, slow in
             (("long", late, False), ("good", good, False), ("slow", good, True))]  # fmt: skip
    found = records(plan(peers=peers, lines=lines.select(["pack_payload"]), peer_seconds=30.0))
    assert [(r["contender"], r["status"]) for r in found] == [
        ("stand-in", "timed"), ("long", "timed"), ("good", "failed"), ("slow", "failed"),
    ]  # fmt: skip
    assert {r["words"] for r in found[2:]} == {"the seconds given to peers were over"}


@pytest.mark.parametrize("us", [(100.0, 1000.0), (7.0,), (1.0, 2.0, 3.0, 4.0, 100.0)])
def test_quartiles_lie_between_the_least_and_the_greatest(us):
    found = Times(us).summary()
    assert min(us) == found["min"] <= found["q1"] <= found["median"] <= found["q3"] <= found["max"] == max(us)


def test_a_share_is_never_nothing():
    class Fast(Host):
        RATE = 7e16

    chosen = plan(lines=lines.select(["pack_payload"]), shapes=(PLAIN,))
    (record,) = found = list(measure.run(chosen, Fast()))
    assert 0 < record["of_copy"] < 1e-4 and 0 < record["of_same"] < 1e-4
    saved(found, [])


def no_inputs_of(operation, monkeypatch):
    """Have the inputs of one operation fail, as they do where memory is short."""
    make = inputs.make

    def fails_once(xp, line, shape, seed=0):
        if line.operation == operation:
            raise MemoryError("4 GiB")
        return make(xp, line, shape, seed)

    monkeypatch.setattr(inputs, "make", fails_once)


def test_a_line_without_golden_results_is_a_record_and_the_next_line_goes_on(monkeypatch):
    no_inputs_of("pack_payload", monkeypatch)
    found = records(plan(lines=lines.select(["pack_payload", "unpack_payload"])))
    assert [(r["line"], r["status"], r["words"]) for r in found] == [
        ("pack payload", "failed", "MemoryError in fails_once: 4 GiB"), ("unpack payload", "timed", ""),
    ]  # fmt: skip


class Failing(Host):
    """A device of which one call of one kind fails, counted from 1."""

    def __init__(self, name, number):
        self.name, self.number, self.count = name, number, 0

    def _counted(self, name):
        self.count += name == self.name
        if name == self.name and self.count == self.number:
            raise MemoryError("lost")

    def free(self):
        self._counted("free")

    def copy(self, nbytes, repeat):
        self._counted("copy")
        return self.RATE


LOST = "MemoryError in _counted: lost"


@pytest.mark.parametrize(
    ("device", "wanted"),
    [
        # four rounds of the first line, and behind them
        (Failing("free", 5), [("stand-in", ""), ("good", ""), ("stand-in", LOST), ("stand-in", ""), ("good", "")]),
        # that of the run, of the subject, and of the peer
        (Failing("copy", 3), [("stand-in", ""), ("good", LOST), ("stand-in", ""), ("good", "")]),
    ],
    ids=["free", "copy"],
)
def test_what_was_timed_is_kept_when_the_device_fails_behind_it(device, wanted):
    peers = (Contender("good", lambda line: "", good),)
    chosen = plan(peers=peers, lines=lines.select(["pack_payload", "unpack_payload"]))
    found = list(measure.run(chosen, device))
    assert [(r["contender"], r["words"]) for r in found] == wanted
    assert [r["status"] for r in found] == ["failed" if words else "timed" for _, words in wanted]


@pytest.mark.parametrize(
    "said", ["ptxas x.ptx, line 9; error   : cvt.rs is not for sm_90a", "x.cu(3): error: identifier is undefined"]
)
def test_a_compile_error_is_told_by_the_compiler_and_not_by_the_source_before_it(said):
    text = f"#if defined(_MSC_VER)\n{200 * '#include <x>'}\nCompilation error:\n{said}\n1 error detected"
    assert measure._words(_raised(RuntimeError(text))) == f"RuntimeError in _raised: {' '.join(said.split())}"


def _raised(error):
    try:
        raise error
    except RuntimeError as found:
        return found


def test_of_a_long_call_fewer_are_timed():
    device, counts = Host(), []
    device.time = lambda calls, repeat: counts.append(repeat) or Times((1.0,) * repeat)

    def long(line, case):
        return Prepared(lambda: time.sleep(0.06) or call_golden(case), list(case.inputs.values()), list)

    chosen = plan(peers=(Contender("long", lambda line: "", long),), lines=lines.select(["pack_payload"]), repeat=30)
    list(measure.run(chosen, device))
    assert max(counts) == 10  # the stand-in's
    assert 2 <= min(counts) <= 4


def test_scales_in_a_layout_are_counted_and_compared_as_they_are_stored(whole):
    by = {r["line"]: r for r in whole}
    given = 64 * 256 * 2 + 64 * 128  # bfloat16 and packed codes
    assert by["BF16 -> MXFP4, float32 scales"]["bytes"] == given + 4 * 64 * 8
    assert by["BF16 -> MXFP4, packed UE8M0 scales"]["bytes"] == given + 4 * 2 * 64
    assert by["BF16 -> MXFP4, swizzled scales"]["bytes"] == given + 128 * 8  # rows up to 128
    (line,) = lines.select(["BF16 -> MXFP4, swizzled scales"])
    case = inputs.make(np, line, SHAPE)
    packed, scales = (x.copy() for x in call_golden(case))
    scales[-1] ^= 1  # padding
    assert agree.Golden(case).compare((packed, scales)).verdict == "differs"


def test_bytes_of_the_lines_of_other_dtypes(whole):
    by = {r["line"]: r for r in whole}
    assert by["FP32 -> E4M3 codes"]["bytes"] == 64 * 256 * (4 + 1)
    assert by["BF16 -> MXFP4, stochastic, bits given"]["bytes"] == by["BF16 -> MXFP4"]["bytes"] + 64 * 256
    assert by["BF16 -> MXFP4, stochastic, by key"]["bytes"] == by["BF16 -> MXFP4"]["bytes"]
    assert by["SwiGLU backward, FP32 gradient"]["bytes"] == by["SwiGLU backward"]["bytes"] + 2 * 256 * 128
    assert by["FP8 128x128 -> BF16"]["bytes"] == 3 * 256 * 256 + 2 * 2
    rows, columns = by["MXFP4 -> FP8, amax"]["bytes"], by["MXFP4 -> FP8 columns, amax"]["bytes"]
    both = by["MXFP4 -> FP8 rows and columns, amax"]["bytes"]
    assert both == rows + columns - 256 * 128 - 256 * 8  # its inputs are read once


def test_a_line_that_the_subject_lacks_is_recorded_with_the_reason():
    one = from_dict({"name": "few", "operations": {"pack_payload": model("pack_payload")}, "arrays": "cupy"}, "here")
    chosen = measure.Plan(of_subject(one), (), lines.select(["pack_payload", "permute and pad"]), (SHAPE,), repeat=2)
    assert [(r["status"], r["words"]) for r in records(chosen)] == [
        ("timed", ""), ("not offered", "few has no permute_pad"),
    ]  # fmt: skip


def test_host_time_of_every_operation():
    one = subject()
    found = list(measure.overheads(one, of_subject(one), lines.LINES, Host()))
    assert [call["operation"] for call in found] == list(dict.fromkeys(line.operation for line in lines.LINES))
    assert all(call["fresh_us"] > 0 and call["out_us"] > 0 for call in found)


def test_a_call_whose_host_time_cannot_be_had_says_why(whole, monkeypatch):
    no_inputs_of("pack_payload", monkeypatch)
    one = subject()
    chosen = lines.select(["pack_payload", "unpack_payload"])
    calls = list(measure.overheads(one, of_subject(one), chosen, Host()))
    assert [call["operation"] for call in calls] == ["pack_payload", "unpack_payload"] and calls[1]["fresh_us"] > 0
    words = "MemoryError in fails_once: 4 GiB"
    assert calls[0] == {"operation": "pack_payload", "fresh_us": None, "out_us": None, "words": words}
    found = saved(whole, calls)
    assert ("host time of a call", words, "pack_payload") in list(tables.failures(found))
    assert "| pack_payload | failed |  |" in tables.markdown(found, "Title")


def test_sets_are_larger_than_a_cache():
    assert sets_for(1 << 30) == 2
    assert sets_for(1 << 25) == 8
    assert sets_for(1) == 32


def test_an_operation_that_is_not_timed_is_refused():
    with pytest.raises(ArgumentError, match="selects nothing"):
        lines.select(["decode_e2m1"])


def saved(records, calls):
    device = {"name": "Stand-in", "cuda_runtime": 13020}
    head = document.header(["bench"], device, [of_subject(subject())], [("peer", "why")])
    head |= {"repeat": 2, "copy_bytes_per_second": 1e9, "copy_again_bytes_per_second": 1e9, "seconds": 0.1}
    return document.document(head, records, calls)


def test_who_cannot_say_what_it_is_is_timed_all_the_same():
    def fails():
        raise KeyError("tilelang")

    one = from_dict({"name": "mute", "operations": {"pack_payload": model("pack_payload")}, "describe": fails}, "here")
    others = (of_subject(one), Contender("peer", lambda line: "", good, fails))
    found = document.header([], {}, others, [])["contenders"]
    assert [each["describe"] for each in found] == [{"describe": "failed: KeyError: 'tilelang'"}] * 2


def test_the_document_has_its_schema(whole):
    found = saved(whole, [{"operation": "pack_payload", "fresh_us": 1.0, "out_us": None}])
    assert found["schema"] == "refnum.bench/1"


def test_results_live_until_their_calls_next_turn():
    """An allocator hands out again what was let go: calls would write to one place, which a cache holds."""

    class Result:
        pass

    alive: list[weakref.ref[Result]] = []

    def call() -> Result:
        result = Result()
        alive.append(weakref.ref(result))
        return result

    turns = in_turn([call] * 3)
    for _ in range(8):
        next(turns)
    assert [each() is not None for each in alive] == [False] * 5 + [True] * 3


def test_other_cuts_of_a_launch_are_timed_within_their_contexts():
    used = []

    @contextlib.contextmanager
    def cut(words):
        used.append(words)
        yield

    def tunings(operation):
        if operation != "fp8_to_mxfp4":
            return {}
        return {words: functools.partial(cut, words) for words in ("THREADS=64", "THREADS=512")}

    own = dataclasses.replace(subject(), tunings=tunings)
    chosen = lines.select(["FP8 -> MXFP4", "pack_payload"])
    others = tunings_of(own, chosen)
    found = records(plan(peers=others, lines=chosen))
    assert [(r["line"], r["contender"], r["agreement"]) for r in found] == [
        ("FP8 -> MXFP4", "stand-in", "equal"), ("FP8 -> MXFP4", "THREADS=64", "equal"),
        ("FP8 -> MXFP4", "THREADS=512", "equal"), ("pack payload", "stand-in", "equal"),
    ]  # fmt: skip
    assert used == ["THREADS=64", "THREADS=512"] * measure.ROUNDS
    with pytest.raises(UnsupportedError, match="stand-in has no `tunings`"):
        tunings_of(subject(), chosen)
