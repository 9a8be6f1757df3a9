"""Launchers of MXFP4 blocks, also rounded by random bits that are given or made in the kernel (N5, N13)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .. import checks
from ..checks import BLOCK
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import blocks
from ..interface.call import Rows
from . import rowwise
from .rowwise import NAMES, Arguments

__all__ = ["dequantize_mxfp4", "quantize_mxfp4"]

PHILOX_BYTES = 16
"""Elements to which one block of the stream gives a byte each."""


def key_words(philox: Any) -> tuple[int, int, int]:
    """Return the fields of `StochasticArguments` from `first_block` on, 8 bytes each."""
    if type(philox) is not tuple or len(philox) != 4:
        philox = (*philox, 0) if type(philox) is tuple and len(philox) == 3 else checks.philox_key(philox)
    seed, stream, step, offset = philox
    plain = type(seed) is int and type(stream) is int and type(step) is int and type(offset) is int
    if not plain or seed >> 64 or stream >> 32 or step >> 32 or offset >> 62 or offset % BLOCK:
        seed, stream, step, offset = checks.philox_key(philox)  # which says what is wrong
    return offset // PHILOX_BYTES, seed, step << 32 | stream


class StochasticArguments(ctypes.Structure):
    """Mirror of `refnum::StochasticArguments` in kernels/quantize_mxfp4_stochastic.cu; see `frame.Launch`."""

    slots: tuple[str, ...] = ("x", "random", "out", "out_scales")
    _fields_ = [
        *Arguments._fields_,
        ("random", ctypes.c_void_p), ("random_stride", ctypes.c_int64), ("first_block", ctypes.c_uint64),
        ("seed_low", ctypes.c_uint32), ("seed_high", ctypes.c_uint32), ("stream", ctypes.c_uint32),
        ("step", ctypes.c_uint32), ("random_aligned", ctypes.c_uint32),
    ]  # fmt: skip


class KeyedArguments(StochasticArguments):
    """Of a call with a key, which the next call of its kind may give anew."""

    slots = ("x", "out", "out_scales")
    values = ("philox", "first_block", key_words)


@planned(blocks.quantize_mxfp4, 1, "rbits", "philox")
def quantize_mxfp4(call: DeviceCall, given: Rows[View]) -> None:
    """Launch the quantiser to nearest, or the one that rounds by random bits."""
    kind = checks.KINDS[given.x.dtype]
    if given.random or given.key:
        _stochastic(call, NAMES[kind], given)
    else:
        rowwise.launch(call, "quantize_mxfp4", f"quantize_mxfp4_{NAMES[kind]}", given, BLOCK, True, kind == 0)


@planned(blocks.dequantize_mxfp4, 2)
def dequantize_mxfp4(call: DeviceCall, given: Rows[View]) -> None:
    """Launch the dequantiser."""
    name = f"dequantize_mxfp4_{NAMES[given.kind]}"
    rowwise.launch(call, "dequantize_mxfp4", name, given, BLOCK, halved=given.kind == 0)


def _stochastic(call: DeviceCall, kind: str, given: Rows[View]) -> None:
    """Launch on the random bits of an array, or of a key where there is none."""
    x, random, kernel = given.x, given.random, "quantize_mxfp4_stochastic"
    if x.shape[0] == 0 or given.k == 0:
        return
    made = rowwise.cut(kernel, given, call.results, BLOCK, x.dtype == np.float32)
    structure = StochasticArguments if random else KeyedArguments
    arguments = structure.from_buffer_copy(bytes(made.arguments).ljust(ctypes.sizeof(structure), b"\0"))
    flat = made.flat
    if random:
        aligned = random.address % 16 == 0 and (x.shape[0] == 1 or random.strides[0] % 16 == 0)
        flat = flat and aligned and random.contiguous
        arguments.random, arguments.random_stride = random.address, random.strides[0]
        arguments.random_aligned = aligned
    elif given.key:
        seed, arguments.stream, arguments.step, offset = given.key
        arguments.first_block = offset // PHILOX_BYTES
        arguments.seed_low, arguments.seed_high = seed & 0xFFFFFFFF, seed >> 32
    name = f"quantize_mxfp4_{'drawn' if random else 'keyed'}_{kind}{'_flat' * flat}"
    rowwise.run(call, kernel, name, made, arguments, given.layouts)
