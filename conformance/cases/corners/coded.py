"""What the corners of operations on codes and scale bytes share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..draw import CODED, Draw
from ..recipes.distributions import layout_of
from .floats import SHAPES

BYTES = np.arange(256, dtype=np.uint8)


def shapes(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield (label, codes, scales) of odd shapes, neighbours under different scales."""
    layout = layout_of(operation, params)
    sides = SHAPES if layout.rows == 1 else (*SHAPES, (129, 160), (257, 288))
    for shape in sides:
        codes, scales = CODED["uniform"].make(Draw(shape[0] * 8192 + shape[1]), layout, shape, base=127, spread=20)
        yield f"shape {shape[0]}x{shape[1]}", codes, scales
