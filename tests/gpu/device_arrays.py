"""NumPy arrays brought to a device in the array libraries that launchers take, and back."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import kernel_samples as samples
import numpy as np
import pytest


class Only:
    """A device array that has nothing but `__cuda_array_interface__`."""

    def __init__(self, x: np.ndarray[Any, Any]) -> None:
        self.memory = cupy(x)
        self.__cuda_array_interface__ = self.memory.__cuda_array_interface__


def cupy(x: np.ndarray[Any, Any]) -> Any:
    """Bfloat16 travels as its bits."""
    return pytest.importorskip("cupy").asarray(x.view(np.uint16) if x.dtype == samples.BFLOAT16 else x)


def torch(x: np.ndarray[Any, Any]) -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch sees no GPU")
    if x.dtype == samples.BFLOAT16:
        return module.from_numpy(x.view(np.int16)).view(module.bfloat16).cuda()
    return module.from_numpy(x).cuda()


def jax(x: np.ndarray[Any, Any]) -> Any:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    module = pytest.importorskip("jax")
    if module.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    module.config.update("jax_enable_x64", True)
    return module.numpy.asarray(x)


WAYS: dict[str, tuple[Callable[[np.ndarray[Any, Any]], Any], str]] = {
    "cupy": (cupy, "cupy"), "torch": (torch, "torch"), "jax": (jax, "jaxlib"), "interface": (Only, "cupy"),
}  # fmt: skip
"""Way of an array -> what brings it to the device, and the library of the results."""


def raw(x: Any) -> np.ndarray[Any, Any]:
    """Return the bytes of an array of any library."""
    if hasattr(x, "data_ptr"):
        x = x.contiguous().view(__import__("torch").uint8).cpu().numpy()
    found = np.ascontiguousarray(x.get() if hasattr(x, "get") else x)
    return found.view(np.uint8)


def equal(wanted: list[Any], results: Any) -> None:
    """Compare the model's results with a launcher's, by shape and bytes; None stands for none."""
    found = results if isinstance(results, tuple | list) else [results]
    for number, (want, got) in enumerate(zip(wanted, found, strict=True)):
        assert (want is None) == (got is None), number
        if want is not None:
            assert tuple(got.shape) == want.shape, number
            np.testing.assert_array_equal(raw(want), raw(got), err_msg=f"result {number}")
