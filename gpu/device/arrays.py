"""Device arrays of any library: read through one small view, allocated and returned in the caller's library.

Arrays of CuPy and torch are read directly. Arrays of another library with DLPack or `__cuda_array_interface__` are read
through CuPy, and results are returned as CuPy arrays if that library's arrays name no namespace with `from_dlpack`.
CuPy and torch are imported when the first array that needs them is given.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refnum.errors import ArgumentError, DtypeError, UnsupportedError

from ..checks import BFLOAT16

HOST_HINT = "the kernels take arrays on a GPU (CuPy, torch, or any array with DLPack): move it there"


@dataclass(frozen=True)
class View:
    """An array as a launcher sees it: address, shape, strides in bytes, NumPy dtype, device number, and library."""

    name: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int
    library: Library
    owner: Any

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps; true for an array without elements."""
        if 0 in self.shape:
            return True
        step = self.dtype.itemsize
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length != 1 and stride != step:
                return False
            step *= length
        return True

    def span(self) -> tuple[int, int]:
        """Return the address of the first byte and the address after the last byte."""
        if 0 in self.shape:
            return self.address, self.address
        steps = [(length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True)]
        low, high = sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps)
        return self.address + low, self.address + high + self.dtype.itemsize


@dataclass(frozen=True)
class Library:
    """The functions that a launcher needs of an array library.

    view: the view of an array. empty: a new array. stream: the current stream of a device. address: of an array. give:
    the array that the caller gets. lent: whether the library can reuse an array's memory before a kernel has read it.
    """

    name: str
    view: Callable[[str, Any, Library], View]
    empty: Callable[[tuple[int, ...], np.dtype[Any], int], Any]
    stream: Callable[[int], int]
    address: Callable[[Any], int]
    give: Callable[[Any], Any] = lambda x: x
    lent: bool = False


@functools.cache
def cupy_module() -> Any:
    """Return CuPy; UnsupportedError where it is not installed."""
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise UnsupportedError(
            "this array needs CuPy to be read; install refnum[gpu], or give CuPy or torch arrays"
        ) from error


def _view_cupy(name: str, x: Any, library: Library) -> View:
    return View(name, x.data.ptr, x.shape, x.strides, x.dtype, x.data.device_id, library, x)


@functools.cache
def _cupy_calls() -> tuple[Any, Any]:
    cupy = cupy_module()
    return cupy.cuda.runtime.getDevice, cupy.cuda.get_current_stream


def _empty_cupy(shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Any:
    cupy = cupy_module()
    if cupy.cuda.runtime.getDevice() == device:
        return cupy.empty(shape, dtype)
    with cupy.cuda.Device(device):
        return cupy.empty(shape, dtype)


def _stream_cupy(device: int) -> int:
    current_device, current_stream = _cupy_calls()
    current = current_device()
    if current != device:
        raise ArgumentError(
            f"the arrays are on device {device} but CuPy's current one is "
            f"{current}: enter `with cupy.cuda.Device({device})`"
        )
    pointer: int = current_stream().ptr
    return pointer


def _address_cupy(x: Any) -> int:
    pointer: int = x.data.ptr
    return pointer


def _signature_cupy(x: Any) -> tuple[int, tuple[Any, ...]]:
    data = x.data
    place = data.ptr
    return place, (type(x), place & 15, x.shape, x.strides, x.dtype, data.device_id)


CUPY = Library("cupy", _view_cupy, _empty_cupy, _stream_cupy, _address_cupy)


@functools.cache
def torch_dtypes() -> tuple[dict[Any, np.dtype[Any]], dict[np.dtype[Any], Any]]:
    """Return torch's dtype -> NumPy's, and the way back."""
    torch = sys.modules["torch"]
    pairs = {
        torch.float32: np.dtype(np.float32), torch.bfloat16: BFLOAT16, torch.float16: np.dtype(np.float16),
        torch.uint16: np.dtype(np.uint16), torch.uint8: np.dtype(np.uint8), torch.float64: np.dtype(np.float64),
        torch.int32: np.dtype(np.int32), torch.int64: np.dtype(np.int64), torch.uint32: np.dtype(np.uint32),
    }  # fmt: skip
    return pairs, {numpy: own for own, numpy in pairs.items()}


def _view_torch(name: str, x: Any, library: Library) -> View:
    if not x.is_cuda:
        raise DtypeError(f"{name} is a torch tensor on {x.device}; {HOST_HINT}")
    dtype = torch_dtypes()[0].get(x.dtype)
    if dtype is None:
        raise DtypeError(
            f"{name} has dtype {x.dtype}; allowed are float32, bfloat16, float16, int32, int64 and uint8, 16 and 32"
        )
    try:
        address, shape, steps = x.data_ptr(), tuple(x.shape), x.stride()
    except RuntimeError:  # torch raises it without memory, a definite shape, or strides
        address, shape, steps = 0, (), ()
    if address == 0 and 0 not in shape:  # a kernel with this address would end the device's context
        raise DtypeError(
            f"{name} is a {type(x).__name__} without memory of its own: traced, sparse, nested or a wrapper of others; "
            f"the kernels take plain tensors: give what it holds, or where it is traced call torch.ops.refnum"
        )
    strides = tuple(step * dtype.itemsize for step in steps)
    return View(name, address, shape, strides, dtype, x.device.index, library, x)


@functools.cache
def _torch_device(device: int) -> Any:
    return sys.modules["torch"].device("cuda", device)


def _empty_torch(shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Any:
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=torch_dtypes()[1][dtype], device=_torch_device(device))


@functools.cache
def _torch_stream() -> Callable[[int], int]:
    """Return the function for a device's current stream: torch's internal one where this torch has it."""
    torch = sys.modules["torch"]
    short: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return short or (lambda device: int(torch.cuda.current_stream(device).cuda_stream))


def _stream_torch(device: int) -> int:
    return _torch_stream()(device)


def _address_torch(x: Any) -> int:
    pointer: int = x.data_ptr()
    return pointer


def _signature_torch(x: Any) -> tuple[int, tuple[Any, ...]]:
    place = x.data_ptr()  # the device's number is -1 on the host, whose tensors never get a plan
    return place, (type(x), place & 15, x.shape, x.stride(), x.dtype, x.get_device())


TORCH = Library("torch", _view_torch, _empty_torch, _stream_torch, _address_torch)
SIGNATURES: dict[type, Callable[[Any], tuple[int, tuple[Any, ...]]]] = {}
"""Array type -> a function that returns an array's address and every fact that its checks depend on; filled with the
types that have been given."""
OWN: dict[type, Library] = {}
"""Array type -> its library, for the types of an emulated device (gpu/emulate/arrays.py)."""


def _foreign(x: Any) -> Library:
    """Return the library of an array of neither CuPy nor torch: read by CuPy, returned by its own `from_dlpack`.

    Without an `__array_namespace__` that has `from_dlpack`, results are CuPy arrays. The library frees memory without
    regard to CuPy's stream, so a call waits for its kernels (`DeviceCall.wait_if_lent`).
    """
    namespace = x.__array_namespace__() if hasattr(x, "__array_namespace__") else None
    back = getattr(namespace, "from_dlpack", None) if hasattr(x, "__dlpack__") else None

    def view(name: str, array: Any, library: Library) -> View:
        cupy = cupy_module()
        try:
            on_device = cupy.from_dlpack(array) if hasattr(array, "__dlpack__") else cupy.asarray(array)
        except Exception as error:  # each library refuses in its own way
            raise DtypeError(
                f"{name} is a {type(array).__name__} that CuPy cannot read ({error}); {HOST_HINT}"
            ) from error
        return _view_cupy(name, on_device, library)

    return Library(type(x).__module__, view, _empty_cupy, _stream_cupy, _address_cupy, back or (lambda y: y), lent=True)


def on_gpu(name: str, x: Any) -> bool:
    """Return whether an array with DLPack is on a GPU; DtypeError if it names no device, e.g. if it is on several."""
    try:
        kind = x.__dlpack_device__()[0]
    except Exception as error:  # each library refuses in its own way
        raise DtypeError(
            f"{name} is a {type(x).__name__} that lies on no one device ({error}); give an array on one GPU"
        ) from error
    return kind in (2, 13)  # kDLCUDA, kDLCUDAManaged


def look(name: str, x: Any) -> View:
    """Return the view of a device array; the DtypeError for anything else says what to do."""
    own = OWN.get(type(x))
    if own is not None:
        return own.view(name, x, own)
    root = type(x).__module__.partition(".")[0]
    if root == "cupy" and hasattr(x, "data"):
        SIGNATURES.setdefault(type(x), _signature_cupy)
        return _view_cupy(name, x, CUPY)
    if (root == "torch" and hasattr(x, "is_cuda")) or isinstance(x, getattr(sys.modules.get("torch"), "Tensor", ())):
        view = _view_torch(name, x, TORCH)
        SIGNATURES.setdefault(type(x), _signature_torch)
        return view
    if isinstance(x, np.ndarray):
        raise DtypeError(f"{name} is a NumPy array on the host; {HOST_HINT}")
    if not hasattr(x, "__dlpack__") and not hasattr(x, "__cuda_array_interface__"):
        raise DtypeError(f"{name} is a {type(x).__name__}; {HOST_HINT}")
    if hasattr(x, "__dlpack_device__") and not on_gpu(name, x):
        raise DtypeError(f"{name} is a {type(x).__name__} on the host; {HOST_HINT}")
    library = _foreign(x)
    return library.view(name, x, library)
