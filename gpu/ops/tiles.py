"""Launchers of FP8 tiles of one row or of 128 (clause N6)."""

from __future__ import annotations

from refnum.errors import ShapeError

from .. import checks
from ..checks import TILE
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import tiles
from ..interface.call import Rows
from . import rowwise
from .rowwise import NAMES, TUNING, Arguments, layout_defines

__all__ = ["dequantize_fp8_tiles", "quantize_fp8_tiles"]

SQUARE = 256
"""Threads of a tile of 128x128 (kernels/quantize_fp8_tiles.cu)."""


@planned(tiles.quantize_fp8_tiles, 1)
def quantize_fp8_tiles(call: DeviceCall, given: Rows[View]) -> None:
    """Launch the quantiser of tiles of one row, or of 128."""
    kind, kernel = checks.KINDS[given.x.dtype], "quantize_fp8_tiles"
    if given.tall > 1:
        _squares(call, f"quantize_fp8_squares_{NAMES[kind]}", given)
    else:
        rowwise.launch(call, kernel, f"{kernel}_{NAMES[kind]}", given, TILE, halved=kind == 0)


@planned(tiles.dequantize_fp8_tiles, 2)
def dequantize_fp8_tiles(call: DeviceCall, given: Rows[View]) -> None:
    """Launch the dequantiser."""
    kernel = "dequantize_fp8_tiles"
    rowwise.launch(call, kernel, f"{kernel}_{NAMES[given.kind]}", given, TILE, halved=given.kind == 0)


def _squares(call: DeviceCall, name: str, given: Rows[View]) -> None:
    """Launch the kernel of 128x128 tiles, one CTA a tile."""
    x, k, m = given.x, given.k, given.x.shape[0]
    if m == 0 or k == 0:
        return
    vector, across = 16, checks.tiles(k)
    if k // 8 >> 32:
        raise ShapeError(f"{x.name} has rows of {k} elements; allowed are fewer than 2**35")
    aligned = x.address % vector == 0 and (m == 1 or x.strides[0] % vector == 0)
    out = [view.address for view in call.results]
    arguments = Arguments(
        x.address, None, out[0], out[1], m, x.strides[0], 0, across, k // 8, 1, aligned, *given.rules, 0,
        checks.tiles(m), 0,
    )  # fmt: skip
    defines = (*TUNING["quantize_fp8_tiles"].defines, *layout_defines(given.layouts))
    call.launch("quantize_fp8_tiles", name, defines, (across * checks.tiles(m), 1), SQUARE, arguments)
