"""Launches of the quantiser with stochastic rounding: random bits beside the input, or made in the kernel (N13)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from refnum.errors import DtypeError, ShapeError

from .. import checks
from ..checks import BLOCK
from ..device.arrays import View
from ..device.outputs import U8, Outputs
from . import launch
from .launch import Arguments, Layouts

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
    """Mirror of `refnum::StochasticArguments` in kernels/quantize_mxfp4_stochastic.cu; see `ready.Launch`."""

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


def drawn(rbits: Any, x: View) -> View:
    """Return the view of random bits: uint8, one an element of x, any row stride."""
    view = launch.matrix("rbits", rbits, 1, x)
    if view.dtype != U8:
        raise DtypeError(f"rbits has dtype {view.dtype}; the kernels take eight bits an element, uint8")
    if view.shape != x.shape:
        raise ShapeError(f"rbits has shape {view.shape}; allowed is that of x, {x.shape}")
    return view


def quantize_mxfp4(
    name: str, x: View, random: View | None, philox: Any, outputs: Outputs, rules: tuple[int, int, int],
    layouts: Layouts,
) -> Any:  # fmt: skip
    """Launch on the random bits of an array, or of a key where there is none, and return the results."""
    m, k = x.shape
    if m == 0 or k == 0:
        return outputs.finish()
    kernel = "quantize_mxfp4_stochastic"
    made = launch.cut(kernel, x, None, outputs, k, BLOCK, rules, 1, x.dtype == np.float32, layouts)
    kind = StochasticArguments if random else KeyedArguments
    arguments = kind.from_buffer_copy(bytes(made.arguments).ljust(ctypes.sizeof(kind), b"\0"))
    flat = made.flat
    if random:
        aligned = random.address % 16 == 0 and (m == 1 or random.strides[0] % 16 == 0)
        flat = flat and aligned and random.contiguous
        arguments.random, arguments.random_stride = random.address, random.strides[0]
        arguments.random_aligned = aligned
    else:
        seed, arguments.stream, arguments.step, offset = checks.philox_key(philox)
        arguments.first_block = offset // PHILOX_BYTES
        arguments.seed_low, arguments.seed_high = seed & 0xFFFFFFFF, seed >> 32
    name = name.replace("quantize_mxfp4_", "quantize_mxfp4_drawn_" if random else "quantize_mxfp4_keyed_")
    return launch.run(kernel, name + ("_flat" if flat else ""), x, outputs, made, arguments, layouts)
