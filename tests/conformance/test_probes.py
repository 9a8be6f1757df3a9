"""The probes of the calling contract on the host: each habit is tried, and a breach has its name."""

import itertools
import math
import mmap
import shutil
import subprocess
import threading
import time

import numpy as np
import pytest
import torch
from run_tools import only, report_of, right, subject

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import call_golden, run_golden
from refnum.conformance.mismatches.failures import observe_again
from refnum.conformance.subjects.arrays import at_end, is_contiguous, to_numpy, with_rows_far_apart
from refnum.conformance.subjects.calls.at_once import call_at_once
from refnum.conformance.subjects.calls.call import POISONS
from refnum.conformance.subjects.calls.in_turn import hold_results
from refnum.conformance.subjects.isolation import child
from refnum.conformance.subjects.isolation.parent import isolated
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts import probes
from refnum.conformance.verdicts.elsewhere import END, MOVED
from refnum.conformance.verdicts.tally import Tally


def test_a_refusal_of_strides_is_said_and_is_no_failure():
    def dense_only(x, profile):
        if not x.flags.c_contiguous:
            raise ValueError("make it contiguous")
        return right(x, profile)

    document = report_of(subject(dense_only))
    assert only(document)["outcome"] == "pass" and "make it contiguous" in only(document)["probes"]["views with gaps"]
    assert only(document)["refused"] == 0


def test_a_device_s_error_on_padded_rows_is_a_fault_and_says_where():
    def faults(x, profile):
        if x.strides[0] != x.shape[1] * x.itemsize:
            raise RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")
        return right(x, profile)

    row = only(report_of(subject(faults)))
    assert row["outcome"] == "fault" and "views with gaps" in str(row)


def test_every_probe_that_applies_is_in_the_report():
    document = report_of(subject(right))
    assert list(only(document)["probes"]) == [
        "ten repeats",
        "new data in place",
        "views with gaps",
        "padded rows",
        "rows one element apart",
        "rows far apart",
        "views at an odd address",
        "inputs of one array",
        "earlier results held",
        "two threads at once",
        "two variants at once",
    ]
    assert not any(only(document)["probes"].values())


def test_a_result_that_is_not_determined_is_named_and_shown_again():
    calls = []

    def now_and_then(x, profile):
        calls.append(1)
        packed, scales = right(x, profile)
        return (packed ^ np.uint8(len(calls) % 5 == 3), scales)

    row = only(report_of(subject(now_and_then)))
    assert row["outcome"] == "flaky" and "not-deterministic" in row["findings"]
    shown = next(failure for failure in row["failures"] if failure["finding"] == "not-deterministic")
    assert shown["reproduced"] == "3 of 3"


@pytest.mark.parametrize(
    ("kept", "finding"), [(False, "wrong-into-out"), (True, "output-not-written")], ids=["written", "not written"]
)
def test_a_wrong_byte_that_equals_the_poison_was_written(kept, finding):
    """The last code of `out` is 0xCD, the first poison: because it is left as it was, or because that is written."""

    def quantize_mxfp4(x, profile, out=None):
        packed, scales = right(x, profile)
        if out is None:
            return packed, scales
        before = out[0][-1:, -1:].copy()
        for given, one in zip(out, (packed, scales), strict=True):
            given[...] = one
        out[0][-1:, -1:] = before if kept else POISONS[0]
        return out

    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.ones((4, 64), np.float32)})
    tally = Tally("kernel", case.operation, case.profile, case.params)
    probes.probe(subject(quantize_mxfp4), case, run_golden(case), tally, 60.0)
    assert {failure.finding for failure in tally.failures} == {finding}


def test_an_out_that_is_known_by_its_address_and_was_written_before_is_told():
    """As a launcher that keeps what it made for the memory of its results."""
    made = {}

    def quantize_mxfp4(x, profile, out=None):
        if out is None:
            return right(x, profile)
        kept = made.setdefault(out[0].__array_interface__["data"], right(x, profile))
        for given, one in zip(out, kept, strict=True):
            given[...] = one
        return out

    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.eye(64, dtype=np.float32)})
    tally = Tally("kernel", case.operation, case.profile, case.params)
    for one in (probe for probe in probes.PROBES if probe.name == probes.OUT):
        one.run(subject(quantize_mxfp4), case, run_golden(case), tally, 60.0)
    assert {failure.finding for failure in tally.failures} == {"wrong-into-out"}


def spoils(when):
    """Return a right kernel that changes its input in the calls that `when` names: by number, or by known storage."""
    kept, number = [], itertools.count(1)

    def quantize_mxfp4(x, profile):
        result = refnum.quantize_mxfp4(x, profile)
        if when(next(number), any(x is one for one in kept)):
            x.view(np.uint8)[0, 0] ^= 1
        kept[:] = [x]
        return result

    return quantize_mxfp4


@pytest.mark.parametrize(
    "when", [lambda _, known: known, lambda number, _: number % 7 == 0, lambda number, _: number % 9 == 0]
)
def test_a_breach_that_only_a_later_call_makes_is_found_and_shown_again(when):
    judged = subject(spoils(when))
    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.ones((4, 64), np.float32)})
    tally = Tally("kernel", case.operation, case.profile, case.params)
    probes.probe(judged, case, run_golden(case), tally, 60.0)
    found = [failure for failure in tally.failures if failure.finding == "input-mutated"]
    assert found
    for failure in found:
        called, comparison = observe_again(judged, failure.case, failure.finding)
        assert called.finding == "input-mutated"
        assert comparison.level == 0  # its bytes are those of the failing case, not of the call before


@pytest.mark.parametrize("shape", [(1, 32), (2, 32), (300, 96), (0, 32), (5,), (3, 4, 32), (2, 3, 2, 8)])
def test_rows_far_apart_hold_the_data_and_span_more_than_32_bits(shape):
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    far = with_rows_far_apart(array)
    assert np.array_equal(far, array) and far.shape == array.shape
    if array.ndim > 1 and math.prod(shape[:-1]) > 1 and array.size:
        steps = [(side - 1) * stride for side, stride in zip(far.shape[:-1], far.strides[:-1], strict=True)]
        assert sum(steps) // far.itemsize >= 1 << 32 and far.strides[-1] == far.itemsize
        assert all(far.strides[axis] == far.shape[axis + 1] * far.strides[axis + 1] for axis in range(array.ndim - 2))


@pytest.mark.parametrize("shape", [(2, 17), (1, 4096), (3, 5, 7), (0, 8), (5,), ()])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_arrays_at_the_end_of_mapped_memory_hold_the_data(shape, library):
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    placed = at_end(array, library)
    assert np.array_equal(to_numpy(placed), array) and placed.shape == shape and is_contiguous(placed)
    end = (placed.data_ptr() if library == "torch" else placed.ctypes.data) + array.nbytes
    assert end % mmap.PAGESIZE == 0


BEHIND = """#include <string.h>
int f(const char *payload, long rows, long columns, char *packed, char *scales) {
    long blocks = columns / 17, width = 16 * blocks;
    for (long row = 0; row < rows; row++) {
        const char *line = payload + row * columns;
        memcpy(packed + row * width, line, width);
        for (long i = 0; i < blocks; i++) {
            volatile char beyond = line[width + i + READ_TO];
            scales[row * blocks + i] = line[width + i] + 0 * beyond;
        }
    }
    return 0;
}"""
BEHIND_DECLARED = """[operations.unpack_payload]
symbol = "f"
arguments = ["payload", "rows(payload)", "columns(payload)", "packed", "scales"]
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("read_to", [0, 1])
def test_a_library_that_reads_behind_its_input_is_no_pass(tmp_path, read_to):
    (tmp_path / "k.c").write_text(BEHIND.replace("READ_TO", str(read_to)))
    (tmp_path / "k.toml").write_text(BEHIND_DECLARED)
    subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / "k.c", "-o", tmp_path / "k.so"], check=True)
    (own,) = isolated(str(tmp_path / "k.so"))
    case = next(case for case in corner_cases("unpack_payload", "HOPPER", {}) if case.inputs["payload"].size)
    tally = Tally(own.name, "unpack_payload", "HOPPER", {})
    probes.probe(own, case, run_golden(case), tally, 20.0)
    assert tally.probes[END.name] == "" and [END.name in words for _, words, _ in tally.faults] == [True] * read_to


def test_results_kept_by_a_tensor_and_its_version_are_found():
    """Kernels, and NumPy where it shares the memory, write to a tensor without a new version."""
    kept = {}

    def quantize(x):
        key = id(x), x._version
        if key not in kept:
            kept[key] = x, [torch.from_numpy(part) for part in refnum.quantize_mxfp4(to_numpy(x))]
        return tuple(part.clone() for part in kept[key][1])

    own = Subject("kept", {"quantize_mxfp4": quantize}, arrays="torch")
    params = {"input": "float32"}
    case = Case("quantize_mxfp4", "HOPPER", params, {"x": np.ones((2, 32), np.float32)})
    tally = Tally("kept", "quantize_mxfp4", "HOPPER", params)
    probes.probe(own, case, run_golden(case), tally, 20.0)
    assert [one.finding for one in tally.failures] == ["stale-output"]


def test_every_call_elsewhere_can_be_made_in_another_process():
    """It is found there by its name."""
    assert {storage.call.__name__ for storage in MOVED} <= set(child.CALLS)


def given():
    return Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.ones((1, 32), np.float32)})


@pytest.mark.parametrize("buffers", [2, 3, 9])
def test_buffers_that_are_handed_out_in_turn_are_found_and_shown_again(buffers):
    ring, calls, one_at_a_time = {}, [], threading.Lock()  # two threads have buffers of their own

    def in_turn(x, profile):
        result = right(x, profile)
        with one_at_a_time:
            calls.append(1)
            own = ring.setdefault((x.shape, len(calls) % buffers), [np.empty_like(part) for part in result])
            for buffer, part in zip(own, result, strict=True):
                buffer[...] = part
        return tuple(own)

    row = only(report_of(subject(in_turn)))
    assert row["outcome"] == "mismatch" and "earlier-result-changed" in row["findings"]
    assert row["failures"][0]["reproduced"] == "3 of 3"


def test_results_of_their_own_are_held():
    other, first, last = hold_results(subject(right), given())
    assert first.outcome is last.outcome is Outcome.PASS and not last.finding
    assert np.array_equal(last.results[0], call_golden(other)[0])


@pytest.mark.parametrize("wrong", range(2, 11))
def test_every_call_beside_held_results_is_compared(wrong):
    """A kernel that is wrong on one call alone, whichever of them it is."""
    calls = []

    def once(x, profile):
        calls.append(1)
        codes, *more = right(x, profile)
        return (codes ^ np.uint8(len(calls) == wrong), *more)

    other, _, last = hold_results(subject(once), given())
    assert last.finding == Finding.NOT_DETERMINISTIC or not np.array_equal(last.results[0], call_golden(other)[0])


@pytest.mark.parametrize(("places", "finding"), [(2, Finding.NOT_THREAD_SAFE), (4, "")])
def test_a_kernel_that_works_in_two_places_in_turn_is_called_from_more_threads_than_two(places, finding):
    work, turns = [None] * places, itertools.count()

    def in_turn(x, profile):
        place = next(turns) % places
        work[place] = x
        time.sleep(0.02)
        return right(work[place], profile)

    numbers = np.arange(1, 129, dtype=np.float32).reshape(2, 64)
    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": numbers})
    subject = Subject("k", {"quantize_mxfp4": in_turn})  # whose threads may happen to find the same data in a place
    found = {called.finding for _ in range(9) for called in call_at_once(subject, case)[1:]}
    assert finding in found and found <= {finding, ""}
