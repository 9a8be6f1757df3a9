"""Fresh results of a planned call: small ones share an allocation and are arrays of their own all the same."""

import itertools

import numpy as np
import pytest

import refnum
from refnum.gpu import emulate, ops
from refnum.gpu.device import allocate, plans
from refnum.gpu.emulate.arrays import ALIGNMENT

pytestmark = pytest.mark.usefixtures("emulator")


def codes(rows=40, k=96):
    rng = np.random.default_rng(rows)
    return rng.integers(0, 256, (rows, k // 2), np.uint8), rng.integers(1, 250, (rows, k // 32), np.uint8)


def spans(arrays):
    return sorted((int(x.ctypes.data), int(x.ctypes.data) + x.nbytes) for x in arrays)


def owners(arrays):
    """The memory below each array's views."""
    found = set()
    for x in arrays:
        while isinstance(x.base, np.ndarray):
            x = x.base
        found.add(id(x))
    return found


def called(given):
    arrays = [emulate.array(x) for x in given]
    return [ops.mxfp4_to_fp8_rows_columns(*arrays) for _ in range(3)][-1]


@pytest.mark.parametrize("limit", [0, allocate.TOGETHER])
def test_results_do_not_overlap_and_are_right(limit, monkeypatch):
    monkeypatch.setattr(allocate, "TOGETHER", limit)
    given = codes()
    results = called(given)
    assert len(owners(results)) == (1 if limit else 4)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans(results)))
    assert all(x.ctypes.data % ALIGNMENT == 0 and x.flags.c_contiguous for x in results)
    for got, want in zip(results, refnum.mxfp4_to_fp8_rows_columns(*given), strict=True):
        assert np.array_equal(got, want)


def test_calls_do_not_share_memory():
    given = [emulate.array(x) for x in codes()]
    all_results = [x for _ in range(4) for x in ops.mxfp4_to_fp8_rows_columns(*given)]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans(all_results)))


def test_large_results_have_memory_of_their_own():
    rows = 32 * (allocate.TOGETHER // 1024 // 32 + 1)
    results = called(codes(rows, 512))
    assert len(owners(results)) == 4


def test_an_optional_array_may_stand_in_its_place_or_be_named():
    rng = np.random.default_rng(1)
    gate, up = (emulate.array(rng.integers(0x3E00, 0x4100, (5, 64), np.uint16)) for _ in range(2))
    prob = emulate.array(rng.random(5, np.float32))
    wanted = [refnum.swiglu_quantize(gate, up, each) for each in (None, prob)]
    assert not np.array_equal(wanted[0][0], wanted[1][0])
    for _ in range(3):
        for call in (lambda: ops.swiglu_quantize(gate, up, prob), lambda: ops.swiglu_quantize(gate, up, prob=prob)):
            assert all(map(np.array_equal, call(), wanted[1]))
        for call in (lambda: ops.swiglu_quantize(gate, up, None), lambda: ops.swiglu_quantize(gate, up)):
            assert all(map(np.array_equal, call(), wanted[0]))
    assert len(plans._plans) == 2


def test_every_launcher_of_the_package_is_a_function():
    """A room must not have a launcher's name: the package's attribute would be the room once it is imported."""
    from refnum import gpu

    for name in gpu.__all__:
        assert callable(getattr(gpu, name)) and getattr(gpu, name) is getattr(ops, name), name
