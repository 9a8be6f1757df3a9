"""The host build of MXFP4 blocks (clauses N5 and N13)."""

from __future__ import annotations

import numpy as np

from ..checks import BLOCK, KINDS
from ..interface import blocks
from ..interface.call import U8, Rows
from .call import Array, HostCall, twin

__all__ = ["dequantize_mxfp4", "quantize_mxfp4"]


@twin(blocks.quantize_mxfp4)
def quantize_mxfp4(call: HostCall, given: Rows[Array]) -> None:
    """Quantise to nearest, or by random bits that are given or made by a key."""
    x, m = given.x, given.x.shape[0]
    shape = m, given.k // BLOCK
    after = (m * shape[1], *given.rules, call.arrays[0], call.scales_to_write(shape, given.layouts[1]))
    if given.key:
        call.run("quantize_mxfp4_keyed", KINDS[x.dtype], x, *given.key, *after)
    elif given.random is None:
        call.run("quantize_mxfp4", KINDS[x.dtype], x, *after)
    else:
        random = np.ascontiguousarray(given.random, dtype=U8)
        call.run("quantize_mxfp4_stochastic", KINDS[x.dtype], x, random, *after)


@twin(blocks.dequantize_mxfp4)
def dequantize_mxfp4(call: HostCall, given: Rows[Array]) -> None:
    """Dequantise block by block."""
    assert given.scales is not None
    shape = given.x.shape[0], given.k // BLOCK
    scales = call.bytes_of(given.scales, shape, given.layouts[0])
    call.run("dequantize_mxfp4", given.x, scales, shape[0] * shape[1], given.kind, call.arrays[0])
