"""A call on a device: the conditions on its arrays, its outputs and scratch memory, and its launches."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from refnum.errors import ArgumentError, DtypeError, ShapeError, UnsupportedError

from .. import checks
from ..checks import MOST
from ..interface.call import U8, Call
from . import arrays
from .arrays import Library, View
from .driver import driver
from .frame import Launch

EXPERTS = 1024
"""Experts whose places fit a launch's parameters."""
captured: list[Any] = []
"""Scratch memory whose addresses graphs of CuPy hold. It is kept for the life of the process, because nothing reports
that a graph is gone; clear the list once no such graph is used again."""


class DeviceCall(Call[View]):
    """A call of a launcher. launches: its launches, if they are recorded for a plan. held: bytes of its scratch."""

    def __init__(self, operation: str, recording: bool = False) -> None:
        super().__init__(operation)
        self.launches: list[Launch] | None = [] if recording else None
        self.held = 0
        self._scratch: Any = None
        self._returned = False

    def look(self, name: str, x: Any) -> View:
        """Return the view of a device array of any library."""
        return arrays.look(name, x)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], beside: View) -> View:
        """Return the view of an empty array of an input's library, on its device."""
        x = beside.library.empty(shape, dtype, beside.device)
        own = beside.library in (arrays.CUPY, arrays.TORCH)
        return beside.library.view("out", x, beside.library) if own else arrays.look("out", x)

    def check_rows(self, x: View) -> None:
        """Raise ShapeError unless the elements of a row are neighbours; any stride of rows is taken."""
        self.check_last(x)

    def check_last(self, x: View) -> None:
        """Raise ShapeError unless elements along the last axis are neighbours."""
        if 0 not in x.shape and x.shape[-1] > 1 and x.strides[-1] != x.dtype.itemsize:
            raise ShapeError(
                f"{x.name} has a stride of {x.strides[-1]} bytes along its last axis; allowed is {x.dtype.itemsize}, "
                f"neighbours side by side: make it contiguous"
            )

    def check_elements(self, x: View) -> None:
        """Raise ShapeError unless the array is contiguous."""
        if not x.contiguous:
            raise ShapeError(f"{x.name} has strides {x.strides}; allowed is a contiguous array: make it contiguous")

    def check_beside(self, x: View, beside: View) -> None:
        """Raise ArgumentError unless both are of one library and on one device."""
        if x.device != beside.device:
            raise ArgumentError(
                f"{x.name} is on device {x.device} and {beside.name} on device {beside.device}; give both on one"
            )
        if x.library.name != beside.library.name:
            raise ArgumentError(
                f"{x.name} is an array of {x.library.name} and {beside.name} one of {beside.library.name}; "
                f"give both of one library"
            )

    def check_whole(self, x: View, layout: str) -> None:
        """Raise ArgumentError unless scales in a layout are contiguous, at a multiple of their items' size."""
        size = x.dtype.itemsize
        if not x.contiguous or x.address % size:
            raise ArgumentError(
                f"{x.name} has strides {x.strides} and address {x.address:#x}; the layout {layout} must be contiguous "
                f"at a multiple of {size} bytes"
            )

    def check_items(self, name: str, x: View) -> None:
        """Raise ArgumentError unless every item of a vector lies at a multiple of its size."""
        size = x.dtype.itemsize
        if x.address % size or (x.shape[0] > 1 and x.strides[0] % size):
            raise ArgumentError(
                f"{name} lies at {x.address:#x} with a stride of {x.strides[0]} bytes; allowed are multiples of its "
                f"items' {size} bytes"
            )

    def check_indices(self, name: str, x: View, limit: int | None, what: str) -> None:
        """Raise DtypeError for integers in another byte order; their values, on the device, are not read."""
        if not x.dtype.isnative:
            raise DtypeError(f"{name} has dtype {x.dtype}; allowed are integers in the machine's byte order")

    def check_experts(self, splits: list[int], align: int) -> None:
        """Raise UnsupportedError for more experts, or more padded rows, than a kernel counts."""
        if len(splits) > EXPERTS:
            raise UnsupportedError(f"splits holds {len(splits)} experts; the kernels have room for {EXPERTS}")
        if checks.padded(splits, align) > MOST:
            total = checks.padded(splits, align)
            raise UnsupportedError(f"splits at align={align} need {total} rows; the kernels count to {MOST}")

    def check_random(self, name: str, words: View, bits: int) -> None:
        """Raise DtypeError unless random words are uint8, or uint32 where they have more than eight bits."""
        wanted = U8 if bits == 8 else np.dtype(np.uint32)
        if words.dtype != wanted:
            raise DtypeError(f"{name} has dtype {words.dtype}; the kernels take {bits} bits an element as {wanted}")

    def check_output(self, name: str, x: View, inputs: Sequence[View]) -> None:
        """Raise ArgumentError unless an array of `out` lies on the inputs' device, contiguous, aligned and apart."""
        first = inputs[0]
        if x.device != first.device:
            raise ArgumentError(f"{name} is on device {x.device} and {first.name} on {first.device}")
        if x.library.stream is not first.library.stream:  # one library's kernels would not wait for the other's
            raise ArgumentError(
                f"{name} is an array of {x.library.name} and {first.name} one of {first.library.name}; "
                f"give both of one library"
            )
        if 0 not in x.shape and (not x.contiguous or x.address % 16):
            raise ArgumentError(
                f"{name} has strides {x.strides} and address {x.address:#x}; allowed is a contiguous array at a "
                f"multiple of 16 bytes"
            )
        low, high = x.span()
        if any(low < end and start < high for start, end in (each.span() for each in inputs)):
            raise ArgumentError(f"{name} shares memory with {first.name} or its scales; give storage of its own")

    def check_outputs(self, out: Sequence[View]) -> None:
        """Raise ArgumentError when arrays of `out` share memory."""
        lows = sorted(view.span() for view in out)
        if any(high > low for (_, high), (low, _) in itertools.pairwise(lows)):
            raise ArgumentError("the arrays of out share memory; give each storage of its own")
        self._returned = True

    def scratch(self, size: int) -> int | None:
        """Return the address of memory that all launches of this call share, None for no bytes.

        A graph that records the call keeps the address but not the memory; then the memory is added to `captured`.
        """
        if size == 0:
            return None
        library, device = self.inputs[0].library, self.inputs[0].device
        self.held, self._scratch = size, library.empty((size,), U8, device)
        if capturing(library, library.stream(device)):
            captured.append(self._scratch)
        return library.address(self._scratch)

    def launch(
        self, kernel: str, name: str, defines: tuple[str, ...], blocks: tuple[int, int], threads: int,
        arguments: ctypes.Structure,
    ) -> None:  # fmt: skip
        """Launch a function of a kernel file on the inputs' current stream; remember it where calls are recorded."""
        x = self.inputs[0]
        function = driver().function(kernel, name, x.device, defines)
        if self.launches is not None:
            self.launches.append(Launch(function, blocks, threads, arguments))
        driver().launch(function, x.device, blocks, threads, x.library.stream(x.device), arguments)

    def finish(self) -> Any:
        """Return the results in the caller's library, those of `out` themselves: a tuple unless there is one."""
        give = (lambda x: x) if self._returned else self.inputs[0].library.give
        results = [give(view.owner) for view in self.results]
        return results[0] if len(results) == 1 else tuple(results)

    def wait_if_lent(self) -> None:
        """Wait for the kernels if a library can reuse the memory of an array before they have run.

        There is nothing to wait for while a graph records the kernels; then the caller has to keep the arrays.
        """
        lent = next((view for view in (*self.inputs, *(self._results or ())) if view.library.lent), None)
        if lent is None:
            return
        stream = lent.library.stream(lent.device)
        if not capturing(lent.library, stream):
            arrays.cupy_module().cuda.runtime.streamSynchronize(stream)


def capturing(library: Library, stream: int) -> bool:
    """Return whether a graph of CuPy records the launches of a stream; such a graph keeps addresses, not memory.

    A graph of torch has a memory pool of its own. The legacy stream, 0, cannot be captured, and the query fails on it.
    """
    if library.empty is not arrays.CUPY.empty or stream == 0:
        return False
    return bool(cast(Any, arrays.cupy_module()).cuda.runtime.streamIsCapturing(stream))
