"""Arrays of more than 2**31 elements, and as wide as a grid takes: a small array again and again, so that every part of
the results must be the small one's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernel_samples as samples
import numpy as np
import pytest

import refnum
from refnum import gpu
from refnum.gpu.ops import columns

USABLE, REASON = gpu.available()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS RUN: {REASON}")]
ROWS, K = 256, 7168
TIMES = (1 << 31) // (ROWS * K) + 2
"""How often the rows are repeated."""
NEEDED = 24 << 30
"""Bytes of memory."""


@pytest.fixture
def cupy() -> Any:
    """CuPy, where a device has the memory; nothing is left in its pool."""
    module = pytest.importorskip("cupy")
    module.get_default_memory_pool().free_all_blocks()
    if module.cuda.runtime.memGetInfo()[0] < NEEDED:
        pytest.skip(f"needs {NEEDED >> 30} GiB of device memory")
    yield module
    module.get_default_memory_pool().free_all_blocks()


def same(want: np.ndarray[Any, Any], got: Any, times: int, axis: int, cupy: Any) -> bool:
    """Whether a result is the small one `times` times along an axis."""
    shape = list(want.shape)
    assert got.shape == tuple(n * times if number == axis else n for number, n in enumerate(shape))
    parts = got.reshape(*shape[:axis], times, *shape[axis:])
    small = cupy.expand_dims(cupy.asarray(want), axis)
    step = max(1, (1 << 28) * times // got.size)  # the comparison needs memory as well
    cuts = [slice(first, first + step) for first in range(0, times, step)]
    return all(bool((parts[(slice(None),) * axis + (cut,)] == small).all()) for cut in cuts)


def golden(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(refnum, name)
    return found


def given(name: str, rows: int, k: int) -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(7)
    if name.startswith("fp8"):
        return samples.fp8_codes(rng, rows, k), samples.scale_bytes(rng, rows, -(-k // 128))
    return samples.fp4_codes(rng, rows, k), samples.scale_bytes(rng, rows, k // 32)


CASES: list[tuple[str, dict[str, str], tuple[int, ...]]] = [
    ("mxfp4_to_fp8_columns", {"scale": "max"}, (1, 0)),
    ("mxfp4_to_fp8_columns", {"scale": "amax"}, (1, 0)),
    ("mxfp4_to_fp8_rows_columns", {"scale": "max"}, (0, 0, 1, 0)),
    ("mxfp4_to_fp8_rows_columns", {"scale": "amax"}, (0, 0, 1, 0)),
    ("mxfp4_columns", {"scale": "max"}, (1, 0)),
    ("mxfp4_columns", {"scale": "amax"}, (1, 0)),
    ("fp8_columns", {"underflow": "rne"}, (1, 0)),
    ("fp8_columns", {"underflow": "te"}, (1, 0)),
    ("fp8_to_payload", {}, (0,)),
    ("fp8_to_payload", {"profile": "OCP"}, (0,)),
]
"""Operation, options, and the axis along which each result repeats when the rows do."""


@pytest.mark.parametrize(("name", "options", "axes"), CASES)
def test_many_rows(name: str, options: dict[str, str], axes: tuple[int, ...], cupy: Any) -> None:
    small = given(name, ROWS, K)
    wanted = golden(name)(*small, **options)
    found = getattr(gpu, name)(*(cupy.tile(cupy.asarray(x), (TIMES, 1)) for x in small), **options)
    pairs = zip(wanted, found, axes, strict=True) if isinstance(found, tuple) else [(wanted, found, axes[0])]
    assert all(same(want, got, TIMES, axis, cupy) for want, got, axis in pairs)


@pytest.mark.parametrize("name", [name for name, order in columns.TUNING.items() if order.across])
def test_as_many_columns_as_a_grid_takes(name: str, cupy: Any) -> None:
    operation, _, mode = name.rpartition("_")
    order = columns.TUNING[name]
    k, rows = 256, 130
    times = columns.DOWN * order.across * order.wide // k
    small = given(operation, rows, k)
    options = {"underflow" if operation == "fp8_columns" else "scale": mode}
    wanted = golden(operation)(*small, **options)
    codes, scales = getattr(gpu, operation)(*(cupy.tile(cupy.asarray(x), (1, times)) for x in small), **options)
    assert same(wanted[0], codes, times, 0, cupy) and same(wanted[1], scales, times, 1, cupy)


@pytest.mark.parametrize("dtype", [np.float32, np.uint16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["encode_e2m1", "encode_e4m3", "encode_e8m0"])
def test_many_scalars(name: str, dtype: Any, cupy: Any) -> None:
    bits = np.arange(1 << 16, dtype=np.uint32)
    small = (bits << 16 | bits).view(np.float32) if dtype == np.float32 else bits.astype(np.uint16)
    times = (1 << 15) + 3
    wanted = golden(name)(small)
    assert same(wanted, getattr(gpu, name)(cupy.tile(cupy.asarray(small), times)), times, 0, cupy)
