"""First calls while a graph records: what is compiled, loaded and copied for them does not end the capture."""

from __future__ import annotations

from typing import Any

import device_arrays
import numpy as np
import pytest
from launcher_calls import call, make, wanted

from refnum import gpu
from refnum.gpu.device import driver, plans

USABLE, REASON = gpu.available()
pytestmark = pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS RUN: {REASON}")
NAMES = [name for name in gpu.ops.__all__ if name != "available"]


@pytest.fixture(autouse=True)
def first() -> Any:
    """Nothing is loaded on the device and no kind of call is known."""
    device = driver.hardware()
    for kept in (device._functions, device._modules, device._constants):
        kept.clear()
    plans.forget()
    yield
    plans.captured.clear()


def given(name: str, way: str) -> dict[str, Any]:
    bring, _ = device_arrays.WAYS[way]
    return {key: bring(value) if isinstance(value, np.ndarray) else value for key, value in make(name).items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_first_call_in_a_graph_of_torch(name: str) -> None:
    arguments = given(name, "torch")
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call(getattr(gpu, name), arguments)
    graph.replay()
    torch.cuda.synchronize()
    device_arrays.equal(wanted(name), results)


@pytest.mark.parametrize("non_blocking", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_first_call_in_a_graph_of_cupy(name: str, non_blocking: bool) -> None:
    arguments = given(name, "cupy")
    import cupy

    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=non_blocking) as stream:
        stream.begin_capture()
        results = call(getattr(gpu, name), arguments)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    device_arrays.equal(wanted(name), results)


def test_a_constant_comes_back_as_it_went() -> None:
    import cupy

    table = np.arange(1 << 17, dtype=np.uint32)
    place = driver.hardware().constant("table of a test", table, 0)
    memory = cupy.cuda.UnownedMemory(place, table.nbytes, None)
    found = cupy.ndarray(table.shape, table.dtype, cupy.cuda.MemoryPointer(memory, 0))
    assert (found.get() == table).all()
