"""The arrays that a call writes: fresh ones of the caller's library, or the caller's own after the checks of `out`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from refnum.errors import ArgumentError, DtypeError, ShapeError

from .. import checks
from . import arrays, plans
from .arrays import View

U8 = np.dtype(np.uint8)


class Outputs:
    """The arrays that a kernel writes: fresh ones of the caller's library, or the caller's `out`."""

    def __init__(
        self, out: Any, wanted: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], inputs: Sequence[View], held: int = 0
    ) -> None:
        """`held`: bytes of memory that the call's launches share and nobody gets (`scratch`)."""
        source = inputs[0]
        self._scratch = _fresh(source, (held,), U8) if held else None
        self.scratch = self._scratch.address if self._scratch else None
        if out is None:
            self.views = [_fresh(source, shape, dtype) for shape, dtype in wanted]
            self._give = source.library.give
            plans.note_outputs(list(wanted), list(inputs), self.views, held)
            return
        given = list(out) if isinstance(out, tuple | list) else [out]
        if len(given) != len(wanted):
            raise ArgumentError(f"out holds {len(given)} arrays; allowed is {len(wanted)}")
        self.views = [arrays.look(f"out[{number}]", x) for number, x in enumerate(given)]
        for view, (shape, dtype) in zip(self.views, wanted, strict=True):
            _fits(view, shape, dtype, inputs)
        lows = sorted(view.span() for view in self.views)
        if any(high > low for (_, high), (low, _) in itertools.pairwise(lows)):
            raise ArgumentError("the arrays of out share memory; give each storage of its own")
        self._give = lambda x: x
        plans.note_outputs(list(wanted), list(inputs), self.views, held)

    def finish(self) -> Any:
        """Return the results in the caller's library: a tuple unless there is one."""
        results = [self._give(view.owner) for view in self.views]
        return results[0] if len(results) == 1 else tuple(results)


def _fresh(source: View, shape: tuple[int, ...], dtype: np.dtype[Any]) -> View:
    """Return the view of an empty array of an input's library, on its device."""
    x = source.library.empty(shape, dtype, source.device)
    own = source.library in (arrays.CUPY, arrays.TORCH)
    return source.library.view("out", x, source.library) if own else arrays.look("out", x)


def _fits(view: View, shape: tuple[int, ...], dtype: np.dtype[Any], inputs: Sequence[View]) -> None:
    if view.dtype != dtype and not (dtype == checks.BFLOAT16 and view.dtype == np.uint16):
        raise DtypeError(f"{view.name} has dtype {view.dtype}; allowed is {dtype}")
    if view.shape != shape:
        raise ShapeError(f"{view.name} has shape {view.shape}; allowed is {shape}")
    if view.device != inputs[0].device:
        raise ArgumentError(f"{view.name} is on device {view.device} and {inputs[0].name} on {inputs[0].device}")
    if view.library.stream is not inputs[0].library.stream:  # one library's kernels would not wait for the other's
        raise ArgumentError(
            f"{view.name} is an array of {view.library.name} and {inputs[0].name} one of {inputs[0].library.name}; "
            f"give both of one library"
        )
    if 0 not in shape and (not view.contiguous or view.address % 16):
        raise ArgumentError(
            f"{view.name} has strides {view.strides} and address {view.address:#x}; allowed is a "
            f"contiguous array at a multiple of 16 bytes"
        )
    low, high = view.span()
    if any(low < end and start < high for start, end in (x.span() for x in inputs)):
        raise ArgumentError(f"{view.name} shares memory with {inputs[0].name} or its scales; give storage of its own")
