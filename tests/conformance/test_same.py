"""Bytes that are the same, and a judge that a kernel in its own process cannot make blind by accident."""

import sys
import tracemalloc

import numpy as np
import pytest
from run_tools import only, report_of, right, subject

from refnum.conformance.cases.same_bytes import CHUNK, same

ONES = np.ones((2, 3), np.uint32)


class Lies(np.ndarray):
    def __eq__(self, other):
        return np.ones(self.shape, bool)

    def tobytes(self, order="C"):
        return ONES.tobytes()


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (ONES.copy(), True),
        (ONES.astype(np.int32), True),
        (np.asfortranarray(ONES), True),
        (np.ones((4, 6), np.uint32)[::2, ::2], True),
        (ONES * 2, False),
        ((ONES * 2).view(Lies), False),
        (ONES.reshape(3, 2), False),
        (np.ones((), np.uint32), False),
        (ONES.astype(np.uint64), False),
        (np.zeros((2, 0), np.uint32), False),
    ],
)
def test_same_means_shape_size_and_bytes(other, equal):
    assert same(ONES, other) is equal and same(other, ONES) is equal


def test_every_byte_of_large_arrays_counts_and_none_is_copied_whole():
    size = 3 * CHUNK + 5
    left, right = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    assert same(left, right)
    for place in (0, CHUNK - 1, CHUNK, 3 * CHUNK, size - 1):
        right[place] = 1
        assert not same(left, right) and not same(right, left)
        right[place] = 0
    tracemalloc.start()
    assert same(left, right)
    assert tracemalloc.get_traced_memory()[1] < size
    tracemalloc.stop()


def test_nan_is_the_same_as_its_own_bits_and_the_zeros_differ():
    assert same(np.array([np.nan]), np.array([np.nan])) and not same(np.array([0.0]), np.array([-0.0]))
    assert same(np.zeros((0, 4)), np.zeros((0, 4)))


def test_a_kernel_that_replaces_numpy_s_comparison_is_still_wrong(monkeypatch):
    def patches(x, profile):
        monkeypatch.setattr(np, "array_equal", lambda *_, **__: True)
        packed, scales = right(x, profile)
        return packed ^ 1, scales

    row = only(report_of(subject(patches)))
    assert row["outcome"] == "mismatch" and row["level"]["reached"] == "none"


def test_numpy_s_error_state_and_the_recursion_limit_are_put_back():
    errors, depth = np.geterr(), sys.getrecursionlimit()

    def changes(x, profile):
        result = right(x, profile)
        np.seterr(all="raise")
        sys.setrecursionlimit(depth + 77)
        return result

    assert only(report_of(subject(changes), level="smoke"))["outcome"] == "pass"
    assert np.geterr() == errors and sys.getrecursionlimit() == depth
