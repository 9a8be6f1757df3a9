"""The host build of payloads, of their permutation by expert, and of the weighted way back (clause N12)."""

from __future__ import annotations

import numpy as np

from ..checks import BLOCK, KINDS, UNIT
from ..interface import payload
from ..interface.call import I64, Rows
from .call import Array, HostCall, twin

__all__ = [
    "fp8_to_payload",
    "pack_payload",
    "permute_pad",
    "permute_unpack",
    "quantize_payload",
    "unpack_payload",
    "unpermute",
]


@twin(payload.pack_payload)
def pack_payload(call: HostCall, given: payload.Packed[Array]) -> None:
    """Join the rows of codes and scales."""
    call.run("pack_payload", given.codes, given.scales, *given.scales.shape, call.arrays[0])


@twin(payload.unpack_payload)
def unpack_payload(call: HostCall, given: Array) -> None:
    """Split every row."""
    call.run("unpack_payload", given, given.shape[0], given.shape[1] // UNIT, *call.arrays)


@twin(payload.quantize_payload)
def quantize_payload(call: HostCall, given: Rows[Array]) -> None:
    """Quantise floats to rows of the payload."""
    x, blocks = given.x, given.k // BLOCK
    call.run("quantize_payload", KINDS[x.dtype], x, x.shape[0], blocks, *given.rules, call.arrays[0])


@twin(payload.fp8_to_payload)
def fp8_to_payload(call: HostCall, given: Rows[Array]) -> None:
    """Quantise tiles to rows of the payload."""
    (rule, _, zero_byte), size = given.rules, (given.x.shape[0], given.k // BLOCK)
    call.run("fp8_to_payload", given.x, given.scales, *size, rule, zero_byte, call.arrays[0])


@twin(payload.permute_pad)
def permute_pad(call: HostCall, given: payload.Gather[Array]) -> None:
    """Gather whole rows."""
    _gather(call, given, given.payload.shape[1])


@twin(payload.permute_unpack)
def permute_unpack(call: HostCall, given: payload.Gather[Array]) -> None:
    """Gather rows and split them."""
    _gather(call, given, given.payload.shape[1] // UNIT)


def _gather(call: HostCall, given: payload.Gather[Array], width: int) -> None:
    """Run the gather of the call; width: bytes or blocks of a row."""
    place, splits = given.row_map.astype(I64), np.array(given.splits, I64)
    call.run(call.operation, given.payload, width, place, splits, splits.size, given.align, *call.arrays)


@twin(payload.unpermute)
def unpermute(call: HostCall, given: payload.Sum[Array]) -> None:
    """Add row after row to the sums of its token."""
    rows, splits, sums = given.rows, np.array(given.splits, I64), call.arrays[0]
    place, seen = given.row_map.astype(I64), np.zeros(given.tokens, np.uint8)
    sums[...] = 0
    before = (KINDS[rows.dtype], rows, rows.shape[1], place, splits, splits.size, given.align)
    call.run("unpermute", *before, given.weights, given.tokens, seen, sums)
