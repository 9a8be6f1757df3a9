"""The host build of FP8 tiles (clause N6)."""

from __future__ import annotations

from ..checks import KINDS, tiles
from ..interface import tiles as described
from ..interface.call import Rows
from .call import Array, HostCall, twin

__all__ = ["dequantize_fp8_tiles", "quantize_fp8_tiles"]


@twin(described.quantize_fp8_tiles)
def quantize_fp8_tiles(call: HostCall, given: Rows[Array]) -> None:
    """Quantise tile by tile."""
    x, m, k = given.x, given.x.shape[0], given.k
    scales = call.scales_to_write(_tiles(given), given.layouts[1])
    call.run("quantize_fp8_tiles", KINDS[x.dtype], x, m, k, given.tall, given.rules[0], call.arrays[0], scales)


@twin(described.dequantize_fp8_tiles)
def dequantize_fp8_tiles(call: HostCall, given: Rows[Array]) -> None:
    """Dequantise row by row."""
    assert given.scales is not None
    x, m, k = given.x, given.x.shape[0], given.k
    scales = call.bytes_of(given.scales, _tiles(given), given.layouts[0])
    call.run("dequantize_fp8_tiles", x, scales, m, k, given.tall, given.kind, call.arrays[0])


def _tiles(given: Rows[Array]) -> tuple[int, int]:
    """Return how many tiles there are, down and across."""
    return -(-given.x.shape[0] // given.tall), tiles(given.k)
