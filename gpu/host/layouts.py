"""Scale layouts of the host build: bytes in front of an operation, and its bytes laid out behind it (N6.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refnum.errors import ScaleError, ShapeError

from .. import checks
from ..checks import BLOCK, Outputs
from .build import address, library

Array = np.ndarray[Any, Any]


def read(scales: Any, shape: tuple[int, int], layout: str) -> Array:
    """Return scales in a layout as E8M0 bytes u8 of this shape; a float32 that is no power of two gives byte 255."""
    number = checks.choice("layout_in", layout, checks.LAYOUTS)
    if number == 0:
        checks.scales(scales, shape)
        return np.asarray(scales)
    wanted, dtype = checks.layout_of(*shape, layout)
    if not checks.plain(scales) or scales.dtype != dtype:
        raise ScaleError(f"scales has dtype {checks.called(scales)}; the layout {layout} is of {dtype}")
    if scales.shape != wanted:
        raise ShapeError(f"scales has shape {scales.shape}; {shape} scales in the layout {layout} need {wanted}")
    source, found = np.ascontiguousarray(scales), np.empty(shape, np.uint8)
    library().refnum_read_scales(address(source), *shape, number, address(found))
    return found


def read_mxfp4(packed: Array, scales: Array, layout: str) -> Array:
    """Return E8M0 bytes of MXFP4 codes from their layout."""
    m, half = checks.codes("packed", packed, BLOCK // 2)
    return read(scales, (m, 2 * half // BLOCK), layout)


class Laid(Outputs):
    """Outputs of which the second, scales of `shape`, is written in a layout; `arrays` has it as bytes."""

    def __init__(
        self, out: Any, first: tuple[tuple[int, ...], Any], shape: tuple[int, int], layout: str,
        inputs: Sequence[Array],
    ) -> None:  # fmt: skip
        self._layout = checks.choice("layout_out", layout, checks.LAYOUTS)
        super().__init__(out, [first, checks.layout_of(*shape, layout)], inputs)
        if self._layout:
            self._storage = self.arrays[1]
            self.arrays = [self.arrays[0], np.empty(shape, np.uint8)]

    def finish(self) -> Any:
        """Return the results, the scales laid out."""
        if self._layout:
            scales = self.arrays[1]
            library().refnum_lay_scales(address(scales), *scales.shape, self._layout, address(self._storage))
            self.arrays = [self.arrays[0], self._storage]
        return super().finish()
