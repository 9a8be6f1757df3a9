"""The host build of NVFP4 blocks (clause N21)."""

from __future__ import annotations

from ..interface import nvfp4
from ..interface.nvfp4 import BLOCK, Nvfp4
from .call import Array, HostCall, twin

__all__ = ["dequantize_nvfp4", "quantize_nvfp4"]


@twin(nvfp4.quantize_nvfp4)
def quantize_nvfp4(call: HostCall, given: Nvfp4[Array]) -> None:
    """Quantise block by block under the tensor's maximum, given or found first."""
    m, columns = given.x.shape[0], given.k // BLOCK
    packed, stored, amax = call.arrays
    random = call.drawn_bytes(given.random, given.key, given.x.shape)
    scales = call.scales_to_write((-(-m // given.tall), columns), given.layout, stored)
    how = given.tall, given.amax, given.order, random
    call.run("quantize_nvfp4", given.kind, given.x, m, columns, *how, packed, scales, amax)


@twin(nvfp4.dequantize_nvfp4)
def dequantize_nvfp4(call: HostCall, given: Nvfp4[Array]) -> None:
    """Dequantise block by block."""
    assert given.scales is not None
    m, columns = given.x.shape[0], given.k // BLOCK
    scales = call.bytes_of(given.scales, (-(-m // given.tall), columns), given.layout)
    how = given.tall, given.order, given.kind
    call.run("dequantize_nvfp4", given.x, scales, given.amax, m, columns, *how, call.arrays[0])
