"""Arrays on a device that is not the current one, in every library, and arrays on two devices in one call."""

from __future__ import annotations

from typing import Any

import device_arrays
import numpy as np
import pytest
from launcher_calls import call, make, wanted

from refnum import gpu
from refnum.errors import ArgumentError
from refnum.gpu.device import driver

USABLE, REASON = gpu.available()
pytestmark = [
    pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS RUN: {REASON}"),
    pytest.mark.skipif(USABLE and driver.hardware().devices < 2, reason="needs two GPUs"),
]
NAMES = [name for name in gpu.ops.__all__ if name != "available"]


def tensors(name: str, device: int) -> dict[str, Any]:
    return {
        key: device_arrays.torch(value).to(f"cuda:{device}") if isinstance(value, np.ndarray) else value
        for key, value in make(name).items()
    }


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_torch_tensors_on_either_device(name: str, current: int) -> None:
    torch = pytest.importorskip("torch")
    for device in (0, 1, 0):
        arguments = tensors(name, device)
        torch.cuda.synchronize(device)
        with torch.cuda.device(current):
            for _ in range(2):
                results = call(getattr(gpu, name), arguments)
                assert torch.cuda.current_device() == current
            with torch.cuda.stream(torch.cuda.Stream(device)):
                on_a_stream = call(getattr(gpu, name), arguments)
        torch.cuda.synchronize(device)
        for found in (results, on_a_stream):
            device_arrays.equal(wanted(name), found)
            each = found if isinstance(found, tuple) else (found,)
            assert {x.device.index for x in each} == {device}


@pytest.mark.parametrize("name", NAMES)
def test_cupy_arrays_on_the_second_device(name: str) -> None:
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Device(1):
        arguments = {k: device_arrays.cupy(v) if isinstance(v, np.ndarray) else v for k, v in make(name).items()}
        for _ in range(2):
            device_arrays.equal(wanted(name), call(getattr(gpu, name), arguments))
    for _ in range(2):  # with a plan as without one
        with pytest.raises(ArgumentError, match="arrays are on device 1 but CuPy's current one is 0"):
            call(getattr(gpu, name), arguments)


def test_arrays_on_two_devices_are_refused() -> None:
    cupy = pytest.importorskip("cupy")
    packed = cupy.zeros((4, 32), np.uint8)
    with cupy.cuda.Device(1):
        scales = cupy.zeros((4, 2), np.uint8)
    with pytest.raises(ArgumentError, match="scales is on device 1 and packed on device 0"):
        gpu.dequantize_mxfp4(packed, scales)
