"""Launchers of the conversions between FP8 tiles and MXFP4 along rows (clauses N7 and N8)."""

from __future__ import annotations

from ..checks import TILE
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import recast
from ..interface.call import Rows
from . import rowwise

__all__ = ["fp8_to_mxfp4", "mxfp4_to_fp8"]


@planned(recast.fp8_to_mxfp4, 2)
def fp8_to_mxfp4(call: DeviceCall, given: Rows[View]) -> None:
    """Launch the quantiser of tiles to blocks."""
    rowwise.launch(call, "fp8_to_mxfp4", "fp8_to_mxfp4", given, TILE, rceil=True)


@planned(recast.mxfp4_to_fp8, 2)
def mxfp4_to_fp8(call: DeviceCall, given: Rows[View]) -> None:
    """Launch the conversion of blocks to tiles."""
    rowwise.launch(call, "mxfp4_to_fp8", f"mxfp4_to_fp8_{given.mode}", given, TILE)
