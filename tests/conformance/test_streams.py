"""Calls on two streams, on another device and from another thread, with streams that work when they are waited for.

What is queued is done in turn, a step of each stream, as a device does it that has room for both.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import run_golden
from refnum.conformance.cases.structure.cutting import ANOTHER_THREAD, AT_ONCE, THE_SAME
from refnum.conformance.subjects.calls import at_once, streams
from refnum.conformance.subjects.calls.call import Called
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts import elsewhere, probes, reproduce
from refnum.conformance.verdicts.structural import behind
from refnum.conformance.verdicts.tally import Tally

X = np.random.default_rng(5).standard_normal((3, 64)).astype(np.float32)
CASE = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": X})


class Lanes:
    """An array library with two devices, whose streams keep their work until they are waited for."""

    def __init__(self):
        self.here, self.lanes, self.said = threading.local(), [], []

    def devices(self):
        return 2

    def device(self):
        return getattr(self.here, "device", 0)

    @contextmanager
    def on_device(self, number):
        before, self.here.device = self.device(), number
        yield
        self.here.device = before

    def stream(self):
        lane = []
        self.lanes.append(lane)
        return Current(self.here, lane)

    def hold(self):
        self.said.append(("hold", id(self.here.lane)))

    def mark(self):
        return id(self.here.lane)

    def behind(self, mark):
        self.said.append(("behind", id(self.here.lane), mark))

    def wait(self):
        while any(self.lanes):
            for lane in self.lanes:
                if lane:
                    lane.pop(0)()

    def launch(self, step):
        """Queue a step of a kernel on the current stream; on the default one it is done when it is launched."""
        lane = getattr(self.here, "lane", None)
        step() if lane is None else lane.append(step)


class Current:
    """The context in which a stream is the current one."""

    def __init__(self, here, lane):
        self.here, self.lane = here, lane

    def __enter__(self):
        self.here.lane = self.lane

    def __exit__(self, *_):
        self.here.lane = None


@pytest.fixture
def lanes(monkeypatch):
    found = Lanes()
    monkeypatch.setitem(streams.STREAMED, "numpy", found)
    streams.two_streams.cache_clear()
    yield found
    streams.two_streams.cache_clear()


def in_two_steps(lanes, key):
    """Return a kernel that keeps its input in a scratch of its own making between two launches."""
    kept = {}

    def kernel(x, profile):
        out = tuple(np.zeros_like(part) for part in refnum.quantize_mxfp4(x, profile))
        place = key()

        def second():
            for to, part in zip(out, refnum.quantize_mxfp4(kept[place], profile), strict=True):
                to[...] = part

        lanes.launch(lambda: kept.__setitem__(place, x.copy()))
        lanes.launch(second)
        return out

    return Subject("k", {"quantize_mxfp4": kernel})


def of_the_stream(lanes):
    return lambda: id(getattr(lanes.here, "lane", None))


def probed(name, subject, case=CASE):
    tally = Tally("k", case.operation, case.profile, dict(case.params))
    tally.probes[name] = ""
    (chosen,) = (one for one in probes.PROBES if one.name == name)
    assert chosen.applies(subject, case.operation)
    chosen.run(subject, case, run_golden(case), tally, 60.0)
    return {failure.finding for failure in tally.failures}


def test_a_scratch_of_all_streams_is_spoiled_by_two_of_them(lanes):
    for key in (lambda: 0, threading.get_ident):
        subject = in_two_steps(lanes, key)
        _, first, second = at_once.call_on_two_streams(subject, CASE)
        seen = [one.finding for one in (first, second)]
        assert Finding.NOT_THREAD_SAFE in seen and set(seen) <= {Finding.NOT_THREAD_SAFE, ""}
        assert any(at_once.STREAMS in one.words for one in (first, second))
        assert probed(probes.ON_STREAMS, subject) == {Finding.NOT_THREAD_SAFE}
        _, again = reproduce.again(Finding.NOT_THREAD_SAFE)(subject, CASE, 60.0)
        assert again.finding == Finding.NOT_THREAD_SAFE


def test_a_scratch_of_each_stream_is_right_on_two_of_them(lanes):
    subject = in_two_steps(lanes, of_the_stream(lanes))
    other, first, second = at_once.call_on_two_streams(subject, CASE)
    for case, called in ((CASE, first), (other, second)):
        assert called.outcome is Outcome.PASS
        assert all(np.array_equal(a, b) for a, b in zip(called.results, run_golden(case).values(), strict=True))
    assert not np.array_equal(other.inputs["x"], X) and probed(probes.ON_STREAMS, subject) == set()


def test_the_second_stream_begins_when_the_first_is_no_more_held_up(lanes):
    at_once.call_on_two_streams(in_two_steps(lanes, of_the_stream(lanes)), CASE)
    (held, first), (waits, second, mark) = lanes.said
    assert (held, waits) == ("hold", "behind") and mark == first != second
    at_once.call_on_two_streams(in_two_steps(lanes, of_the_stream(lanes)), CASE)
    assert lanes.said[2:] == lanes.said[:2]  # the same streams: memory goes with them


def test_what_a_call_raises_beside_another_stream_is_told(lanes):
    def busy(x, profile):
        if any(lanes.lanes):
            raise ValueError("the workspace is taken")
        lanes.launch(lambda: None)
        return refnum.quantize_mxfp4(x, profile)

    _, *calls = at_once.call_on_two_streams(Subject("k", {"quantize_mxfp4": busy}), CASE)
    assert any("ValueError: the workspace is taken" in one.words for one in calls)


def test_an_error_of_the_device_is_told_of_both_calls(lanes):
    def late(x, profile):
        def fails():
            raise RuntimeError("an illegal memory access")

        if getattr(lanes.here, "lane", None) is not None:
            lanes.launch(fails)
        return refnum.quantize_mxfp4(x, profile)

    _, *calls = at_once.call_on_two_streams(Subject("k", {"quantize_mxfp4": late}), CASE)
    assert all("RuntimeError: an illegal memory access" in one.words for one in calls)


def test_calls_on_two_streams_that_do_not_end_are_late(lanes):
    def hangs(x, profile):
        if getattr(lanes.here, "lane", None) is not None:
            time.sleep(3)
        return refnum.quantize_mxfp4(x, profile)

    _, *calls = at_once.call_on_two_streams(Subject("k", {"quantize_mxfp4": hangs}), CASE, 0.3)
    assert [one.outcome for one in calls] == [Outcome.TIMEOUT] * 2


def test_a_call_on_other_data_goes_before_the_one_whose_inputs_come_late(lanes):
    seen = []

    def kernel(x, profile):
        seen.append(x.copy())
        return refnum.quantize_mxfp4(x, profile)

    called = streams.on_side_stream(Subject("k", {"quantize_mxfp4": kernel}), CASE)
    assert called.outcome is Outcome.PASS and np.array_equal(seen[1], X) and not np.array_equal(seen[0], X)
    assert [one[0] for one in lanes.said] == ["hold", "behind", "hold"]


@pytest.mark.parametrize("late", [False, True])
def test_splits_that_come_late_are_those_of_the_case(lanes, late):
    """Before them the first expert has all rows; who keeps those is blamed for the stream."""
    seen = []

    def permute_pad(payload, row_map, splits, align=32, *, out=None):
        if isinstance(splits, np.ndarray) and out is not None:
            seen.append(splits.tolist())
            splits = seen[-2] if late and len(seen) > 1 and seen[-1] == [1, 2] else seen[-1]
        result = refnum.permute_pad(payload, row_map, splits, align)
        if out is None:
            return result
        for one, part in zip(out, result, strict=True):
            one[: part.shape[0]] = part
        return out

    inputs = {"payload": np.arange(3 * 68, dtype=np.uint8).reshape(3, 68), "row_map": np.arange(3, dtype=np.int32)}
    case = Case("permute_pad", "HOPPER", {"align": 1, "splits": [1, 2]}, inputs)
    subject = Subject("k", {"permute_pad": permute_pad})
    called = streams.with_late_splits(subject, case)
    assert called.outcome is Outcome.PASS and seen == [[3, 0], [1, 2]]
    right = all(np.array_equal(a, b) for a, b in zip(called.results, run_golden(case).values(), strict=True))
    assert right is not late
    seen.clear()
    _, again = reproduce.again(Finding.STREAM)(subject, case, 60.0)
    assert again.outcome is Outcome.PASS and len(seen) == 2
    seen.clear()
    assert probed(probes.ARRAY_SPLITS, subject, case) == ({Finding.STREAM} if late else set())
    seen.clear()  # where the first expert has all rows anyway there is nothing to be read too early
    assert probed(probes.ARRAY_SPLITS, subject, replace(case, params={"align": 1, "splits": [3, 0]})) == set()
    assert [len(one) for one in seen] == [2, 1025]


@pytest.mark.parametrize("late", [False, True])
def test_splits_that_come_late_are_those_of_a_sum(lanes, late):
    seen = []

    def unpermute(rows, row_map, splits, weights, tokens, align=32, *, out=None):
        if isinstance(splits, np.ndarray) and out is not None:
            seen.append(splits.tolist())
            if late and seen[-2:] == [[3, 0], [1, 2]]:
                rows, splits = rows[:4], seen[-2]
        result = refnum.unpermute(rows, row_map, splits, weights, tokens, align)
        if out is None:
            return result
        out[...] = result
        return out

    inputs = {"rows": np.arange(8 * 5, dtype=np.float32).reshape(8, 5), "row_map": np.arange(3, dtype=np.int32)}
    case = Case("unpermute", "HOPPER", {"align": 4, "splits": [1, 2], "tokens": 3}, inputs)
    subject = Subject("k", {"unpermute": unpermute})
    assert probed(probes.ARRAY_SPLITS, subject, case) == ({Finding.STREAM} if late else set())
    assert [3, 0] in seen and len(seen[-1]) == 1025


def test_a_conversion_without_splits_is_shown_again_without_late_ones(lanes):
    inputs = {"packed": np.ones((4, 16), np.uint8), "scales": np.full((4, 1), 127, np.uint8)}
    case = Case("mxfp4_to_fp8_columns", "HOPPER", {"scale": "max", "splits": None}, inputs)

    def mxfp4_to_fp8_columns(packed, scales, splits=None, scale="max", *, out=None):
        assert splits is None and out is None
        return refnum.mxfp4_to_fp8_columns(packed, scales, splits, scale)

    subject = Subject("k", {"mxfp4_to_fp8_columns": mxfp4_to_fp8_columns})
    assert reproduce.again(Finding.STREAM)(subject, case, 60.0)[1].outcome is Outcome.PASS


def test_what_ends_a_process_on_a_side_stream_is_a_fault(lanes):
    def ends(x, profile):
        raise SystemExit

    called = streams.on_side_stream(Subject("k", {"quantize_mxfp4": ends}), CASE)
    assert called.outcome is Outcome.FAULT and "SystemExit" in called.words


def test_a_kernel_that_assumes_the_first_device_is_told(lanes):
    def kernel(x, profile):
        packed, scales = refnum.quantize_mxfp4(x, profile)
        return packed ^ np.uint8(lanes.device()), scales

    assert probed("another device", Subject("k", {"quantize_mxfp4": kernel})) == {Finding.DEVICE}
    right = Subject("k", {"quantize_mxfp4": lambda x, profile: refnum.quantize_mxfp4(x, profile)})
    assert probed("another device", right) == set() and lanes.device() == 0


@pytest.mark.parametrize(("wrong", "findings", "flips"), [
    ((1, 1, 0, 1), {Finding.STREAM}, 0), ((1, 0, 0, 1), {Finding.NOT_DETERMINISTIC}, 1), ((0,), set(), 0)])  # fmt: skip
def test_a_stream_is_blamed_for_what_is_wrong_on_it_mostly(monkeypatch, wrong, findings, flips):
    """Two streams race: it need not be wrong each time."""
    left, golden = list(wrong), tuple(run_golden(CASE).values())

    def races(subject, case, seconds):
        packed, scales = golden
        return Called((packed ^ np.uint8(left.pop(0)), scales))

    tally = Tally("k", CASE.operation, CASE.profile, dict(CASE.params))
    right = Subject("k", {"quantize_mxfp4": lambda x, profile: refnum.quantize_mxfp4(x, profile)})
    one = replace(elsewhere.SIDE_STREAM, call=races)
    elsewhere.elsewhere(one)(right, CASE, run_golden(CASE), tally, 60.0)
    assert {failure.finding for failure in tally.failures} == findings and tally.flips == flips and not left


@pytest.mark.parametrize("turn", [0, 3])
@pytest.mark.parametrize("calls", [ANOTHER_THREAD, THE_SAME, AT_ONCE])
@pytest.mark.parametrize("current", [0, 1])
def test_what_is_called_behind_or_beside_another_thread_of_the_same_device(lanes, monkeypatch, calls, turn, current):
    """As arrays that are not NumPy's are called: each part by itself."""
    monkeypatch.setitem(streams.STREAMED, "torch", lanes)
    seen = []

    def kernel(x, profile):
        seen.append((threading.get_ident(), lanes.device()))
        return tuple(map(torch.from_numpy, refnum.quantize_mxfp4(x.numpy(), profile)))

    torch = pytest.importorskip("torch")
    with lanes.on_device(current):
        called = behind(Subject("k", {"quantize_mxfp4": kernel}, arrays="torch"), CASE, calls, turn, 60.0)
    own = threading.get_ident()
    elsewhere = [ident != own for ident, _ in seen]
    assert called.outcome is Outcome.PASS and {device for _, device in seen} == {current}
    assert sum(elsewhere) == (2 if calls == AT_ONCE else calls == ANOTHER_THREAD or turn == 3)


@pytest.mark.parametrize("name", [probes.AT_ONCE, probes.BESIDE, probes.ON_STREAMS])
def test_other_threads_call_on_the_device_of_the_one_that_asks(lanes, name):
    seen = set()

    def kernel(x, profile):
        seen.add((threading.current_thread() is threading.main_thread(), lanes.device()))
        return refnum.quantize_mxfp4(x, profile)

    with lanes.on_device(1):
        assert probed(name, Subject("k", {"quantize_mxfp4": kernel})) == set()
    assert seen == {(True, 1), (False, 1)}
