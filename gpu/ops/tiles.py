"""Launchers of FP8 tiles of a row or of 128 rows (clause N6)."""

from __future__ import annotations

from typing import Any

from refnum.errors import ShapeError
from refnum.profiles import HOPPER, Profile

from .. import checks
from ..checks import BLOCK, TILE, tiles
from ..device import plans
from ..device.arrays import View
from ..device.driver import driver
from ..device.outputs import U8, Outputs
from ..device.plans import planned
from . import rowwise
from .rowwise import TUNING, Arguments, layout_defines

__all__ = ["dequantize_fp8_tiles", "quantize_fp8_tiles"]

SQUARE = 256
"""Threads of a tile of 128x128 (kernels/quantize_fp8_tiles.cu)."""


@planned(1)
def quantize_fp8_tiles(
    x: Any,
    tile: tuple[int, int] = (1, 128),
    profile: Profile | str = HOPPER,
    *,
    layout_out: str = "bytes",
    out: Any = None,
) -> Any:
    """Quantise [M, K] floats to E4M3 (N6) -> (codes u8 [M, K], scales a 1x128 or 128x128 tile, in `layout_out`)."""
    view = rowwise.floats("x", x)
    (m, k), tall, rules = view.shape, checks.tile_rows(tile), rowwise.rules(profile)
    outputs = Outputs(out, [((m, k), U8), rowwise.written(-(-m // tall), tiles(k), layout_out)], [view])
    kind = checks.KINDS[view.dtype]
    if tall > 1:
        return _squares(f"quantize_fp8_squares_{rowwise.NAMES[kind]}", view, outputs, rules, layout_out)
    name, layouts = f"quantize_fp8_tiles_{rowwise.NAMES[kind]}", ("bytes", layout_out)
    return rowwise.launch(
        "quantize_fp8_tiles", name, [view], outputs, k, TILE, rules, halved=kind == 0, layouts=layouts
    )


@planned(2)
def dequantize_fp8_tiles(
    codes: Any,
    scales: Any,
    tile: tuple[int, int] = (1, 128),
    dtype: Any = "float32",
    *,
    layout_in: str = "bytes",
    out: Any = None,
) -> Any:
    """Dequantise E4M3 tiles (codes u8 [M, K]) to float32, exact, or bfloat16, nearest even (N6) -> [M, K]."""
    view = rowwise.codes("codes", codes, BLOCK)
    (m, k), tall = view.shape, checks.tile_rows(tile)
    beside = rowwise.scales(scales, (-(-m // tall), tiles(k)), view, layout_in)
    kind, result = checks.output_dtype(dtype)
    outputs = Outputs(out, [((m, k), result)], [view, beside])
    name = f"dequantize_fp8_tiles_{rowwise.NAMES[kind]}"
    layouts = (layout_in, "bytes")
    return rowwise.launch(
        "dequantize_fp8_tiles", name, [view, beside], outputs, k, TILE, tall=tall, halved=kind == 0, layouts=layouts
    )


def _squares(name: str, x: View, outputs: Outputs, rules: tuple[int, int, int], layout: str = "bytes") -> Any:
    """Launch the kernel of 128x128 tiles, one CTA a tile, and return its results."""
    m, k = x.shape
    if m == 0 or k == 0:
        return outputs.finish()
    vector, across = 16, checks.tiles(k)
    if k // 8 >> 32:
        raise ShapeError(f"{x.name} has rows of {k} elements; allowed are fewer than 2**35")
    aligned = x.address % vector == 0 and (m == 1 or x.strides[0] % vector == 0)
    out = [view.address for view in outputs.views]
    arguments = Arguments(
        x.address, None, out[0], out[1], m, x.strides[0], 0, across, k // 8, 1, aligned, *rules, 0, checks.tiles(m), 0
    )
    defines = (*TUNING["quantize_fp8_tiles"].defines, *layout_defines(("bytes", layout)))
    function = driver().function("quantize_fp8_tiles", name, x.device, defines)
    plans.launch(function, x.device, (across * checks.tiles(m), 1), SQUARE, x.library.stream(x.device), arguments)
    return outputs.finish()
