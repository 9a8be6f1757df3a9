"""Truth values as results (N0.1): a byte of 0 or 1 each, as NumPy's or torch's bool or as uint8, and nothing else."""

import subprocess

import numpy as np
import pytest
from run_tools import only, report_of

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.operation import OPERATIONS, call_golden, run_golden
from refnum.conformance.commands.mutate.triggers.condition import Condition
from refnum.conformance.commands.mutate.triggers.draw import tells
from refnum.conformance.commands.mutate.triggers.effects import EFFECTS
from refnum.conformance.commands.mutate.triggers.kernel import Trigger, kernel
from refnum.conformance.commands.mutate.triggers.play import Play
from refnum.conformance.subjects.loading.executable import question
from refnum.conformance.subjects.loading.shapes import output_specs
from refnum.conformance.subjects.loading.shared_library import from_library
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.compare import compare

NAME = "osci_reset_by_distance"
DISTANCES = {"dist_w": np.array([[0, 1, 1, 2]], np.float32), "dist_q": np.array([[5, 16, 15, 64]], np.float32)}
CASE = Case(NAME, "HOPPER", OPERATIONS[NAME].defaults(), DISTANCES)
RIGHT = np.array([[False, True, False, True]])


def judged(result):
    return compare(CASE, run_golden(CASE), (result,))


@pytest.mark.parametrize("dtype", [bool, np.uint8])
def test_a_bool_and_a_byte_of_0_or_1_are_the_same(dtype):
    assert not judged(RIGHT.astype(dtype)).level
    verdict = judged(~RIGHT if dtype is bool else 1 - RIGHT.astype(dtype))
    assert verdict.level and not verdict.problem and sum(verdict.kinds.values()) == 4


@pytest.mark.parametrize("dtype", ["int32", "int8", "float32", "uint16"])
def test_another_dtype_is_named(dtype):
    problem = judged(RIGHT.astype(dtype)).problem
    assert f"flags has dtype {dtype}; expected bool or uint8" in str(problem)


@pytest.mark.parametrize("dtype", [bool, np.uint8])
def test_another_byte_than_1_for_true_differs(dtype):
    """255, which vector compares of a machine give, is true in C and is no truth value here."""
    assert judged((RIGHT.astype(np.uint8) * np.uint8(255)).view(dtype)).kinds


def test_what_calls_without_dtypes_are_told_are_bytes():
    assert call_golden(CASE)[0].dtype == np.uint8
    specs = output_specs(CASE)
    assert specs == [((1, 4), np.dtype(np.uint8))]
    assert "out flags uint8 1 4" in question(CASE, [("flags", specs[0])])


def torch_of(dist_w, dist_q, threshold):
    ratio, least = dist_q / dist_w, np.float32(threshold[0]) / np.float32(threshold[1])
    return (ratio >= float(least)) & (dist_w != 0)


def test_a_kernel_that_gives_torchs_bool_is_judged():
    torch = pytest.importorskip("torch")
    subject = Subject("k", {NAME: torch_of}, arrays="torch")
    assert torch_of(torch.ones(1), torch.ones(1), (1, 1)).dtype == torch.bool
    row = only(report_of(subject, operation=NAME, level="smoke"))
    assert row["outcome"] == "pass" and row["cases"] > 0


def test_a_kernel_that_holds_where_it_should_not_is_named():
    def still(dist_w, dist_q, threshold):
        with np.errstate(all="ignore"):
            return dist_q / dist_w >= np.float32(threshold[0]) / np.float32(threshold[1])

    document = report_of(Subject("k", {NAME: still}), operation=NAME, level="smoke")
    assert only(document)["outcome"] == "mismatch"
    assert "OSCI_STILL_WEIGHTS" in str(document.document())


SOURCE = """#include <stdint.h>
int osci_reset_by_distance(const float *w, const float *q, uint8_t *flags, int64_t n) {
    for (int64_t i = 0; i < n; i++) flags[i] = w[i] != 0 && q[i] / w[i] >= 16.0f;
    return 0;
}
"""
DECLARED = """[operations.osci_reset_by_distance]
arguments = ["dist_w", "dist_q", "flags", "size(dist_w)"]
"""


def test_a_library_writes_bytes(tmp_path):
    (tmp_path / "k.c").write_text(SOURCE)
    (tmp_path / "k.toml").write_text(DECLARED)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", tmp_path / "k.so", tmp_path / "k.c"], check=True)
    function = from_library(tmp_path / "k.so")["operations"][NAME]
    assert np.array_equal(function(**DISTANCES)[0], RIGHT)


def test_a_kernel_of_the_trigger_exam_fills_bytes_and_is_right_without_a_trigger():
    run, flags = kernel(NAME, refnum.osci_reset_by_distance, None), np.empty((1, 4), np.uint8)
    assert run(**DISTANCES, out=flags) is flags and np.array_equal(flags, RIGHT)
    never = Condition("never", "never", lambda call: False, {})
    trigger = Trigger((never,), EFFECTS[0], 0, "everything")
    assert run(**DISTANCES).dtype == np.uint8
    assert not any(tells(NAME, trigger, Play(CASE, dict(DISTANCES), out)) for out in ("", "given"))


def test_the_model_takes_shares_as_pairs():
    """As the harness gives them, so that every form of a call states the same number."""
    args = DISTANCES.values()
    for pair in ((16, 1), [32, 2], 16, 16.0):
        assert np.array_equal(refnum.osci_reset_by_distance(*args, pair), RIGHT)
