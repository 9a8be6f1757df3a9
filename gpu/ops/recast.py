"""Launchers of the conversions between FP8 tiles and MXFP4 along rows (clauses N7 and N8)."""

from __future__ import annotations

from typing import Any

from refnum.profiles import HOPPER, Profile

from .. import checks
from ..checks import BLOCK, TILE, tiles
from ..device.outputs import U8, Outputs
from ..device.plans import planned
from . import rowwise

__all__ = ["fp8_to_mxfp4", "mxfp4_to_fp8"]


@planned(2)
def fp8_to_mxfp4(
    codes: Any,
    scales: Any,
    profile: Profile | str = HOPPER,
    *,
    layout_in: str = "bytes",
    layout_out: str = "bytes",
    out: Any = None,
) -> Any:
    """Quantise E4M3 1x128 tiles to MXFP4 directly (N7) -> (packed u8 [M, K/2], scales of [M, K/32] in `layout_out`)."""
    view = rowwise.codes("codes", codes, BLOCK)
    (m, k), rules, layouts = view.shape, rowwise.rules(profile), (layout_in, layout_out)
    beside = rowwise.scales(scales, (m, tiles(k)), view, layout_in)
    outputs = Outputs(out, [((m, k // 2), U8), rowwise.written(m, k // BLOCK, layout_out)], [view, beside])
    return rowwise.launch(
        "fp8_to_mxfp4", "fp8_to_mxfp4", [view, beside], outputs, k, TILE, rules, rceil=True, layouts=layouts
    )


@planned(2)
def mxfp4_to_fp8(
    packed: Any,
    scales: Any,
    scale: str = "max",
    *,
    layout_in: str = "bytes",
    layout_out: str = "bytes",
    out: Any = None,
) -> Any:
    """Turn MXFP4 into E4M3 1x128 tiles (N8) -> (codes u8 [M, K], scales of [M, ceil(K/128)] in `layout_out`)."""
    view = rowwise.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    checks.choice("scale", scale, ("max", "amax"))
    beside = rowwise.scales(scales, (m, k // BLOCK), view, layout_in)
    outputs = Outputs(out, [((m, k), U8), rowwise.written(m, tiles(k), layout_out)], [view, beside])
    name, layouts = f"mxfp4_to_fp8_{scale}", (layout_in, layout_out)
    return rowwise.launch("mxfp4_to_fp8", name, [view, beside], outputs, k, TILE, layouts=layouts)
