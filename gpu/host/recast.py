"""The host build of the conversions between FP8 tiles and MXFP4 along rows (clauses N7 and N8)."""

from __future__ import annotations

from ..checks import BLOCK, tiles
from ..interface import recast
from ..interface.call import Rows
from .call import Array, HostCall, twin

__all__ = ["fp8_to_mxfp4", "mxfp4_to_fp8"]


@twin(recast.fp8_to_mxfp4)
def fp8_to_mxfp4(call: HostCall, given: Rows[Array]) -> None:
    """Quantise tiles to blocks."""
    rule, _, zero_byte = given.rules
    _recast(call, given, tiles(given.k), given.k // BLOCK, rule, zero_byte)


@twin(recast.mxfp4_to_fp8)
def mxfp4_to_fp8(call: HostCall, given: Rows[Array]) -> None:
    """Convert blocks to tiles."""
    _recast(call, given, given.k // BLOCK, tiles(given.k), recast.MODES.index(given.mode))


def _recast(call: HostCall, given: Rows[Array], read: int, written: int, *options: int) -> None:
    """Run the conversion of the call; read, written: scales of a row."""
    assert given.scales is not None
    m, layouts = given.x.shape[0], given.layouts
    scales, made = call.bytes_of(given.scales, (m, read), layouts[0]), call.scales_to_write((m, written), layouts[1])
    call.run(call.operation, given.x, scales, m, given.k, *options, call.arrays[0], made)
