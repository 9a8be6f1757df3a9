"""Launchers of MXFP4 blocks, also rounded by random bits that are given or made in the kernel (N5, N13)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from refnum.errors import DtypeError, ShapeError
from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BLOCK
from ..device.arrays import View
from ..device.outputs import U8, Outputs
from ..device.plans import planned
from . import rowwise
from .rowwise import Arguments, Layouts

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


@planned(1, "rbits", "philox")
def quantize_mxfp4(
    x: Any,
    profile: Profile | str = HOPPER,
    *,
    rbits: Any = None,
    philox: tuple[int, ...] | None = None,
    layout_out: str = "bytes",
    out: Any = None,
) -> Any:
    """Quantise [M, K] floats to MXFP4 (N5) -> (packed u8 [M, K/2], scales of [M, K/32] in `layout_out` of N6.5).

    A profile with stochastic rounding of eight bits takes rbits, u8 [M, K], or philox, the key of a stream (N13.5),
    whose bits are then made in the kernel.
    """
    view, chosen = rowwise.floats("x", x), get_profile(profile)
    checks.profile(chosen, stochastic=True)
    (m, k), rules = view.shape, rowwise.policy(chosen)
    key = checks.randomness(rbits, philox, chosen)
    random = None if rbits is None else _drawn(rbits, view)
    wanted = [((m, k // 2), U8), rowwise.written(m, k // BLOCK, layout_out)]
    outputs = Outputs(out, wanted, [view] if random is None else [view, random])
    kind, layouts = checks.KINDS[view.dtype], ("bytes", layout_out)
    name = f"quantize_mxfp4_{rowwise.NAMES[kind]}"
    if key or random:
        return _stochastic(name, view, random, key, outputs, rules, layouts)
    return rowwise.launch(
        "quantize_mxfp4", name, [view], outputs, k, BLOCK, rules, rceil=True, halved=kind == 0, layouts=layouts
    )


@planned(2)
def dequantize_mxfp4(
    packed: Any, scales: Any, dtype: Any = "float32", *, layout_in: str = "bytes", out: Any = None
) -> Any:
    """Dequantise MXFP4 (packed u8 [M, K/2], scales of [M, K/32] in `layout_in`) to float32 or bfloat16, exact (N5)."""
    view = rowwise.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    beside = rowwise.scales(scales, (m, k // BLOCK), view, layout_in)
    kind, result = checks.output_dtype(dtype)
    outputs = Outputs(out, [((m, k), result)], [view, beside])
    name = f"dequantize_mxfp4_{rowwise.NAMES[kind]}"
    layouts = (layout_in, "bytes")
    return rowwise.launch(
        "dequantize_mxfp4", name, [view, beside], outputs, k, BLOCK, halved=kind == 0, layouts=layouts
    )


def _drawn(rbits: Any, x: View) -> View:
    """Return the view of random bits: uint8, one an element of x, any row stride."""
    view = rowwise.matrix("rbits", rbits, 1, x)
    if view.dtype != U8:
        raise DtypeError(f"rbits has dtype {view.dtype}; the kernels take eight bits an element, uint8")
    if view.shape != x.shape:
        raise ShapeError(f"rbits has shape {view.shape}; allowed is that of x, {x.shape}")
    return view


def _stochastic(
    name: str, x: View, random: View | None, philox: Any, outputs: Outputs, rules: tuple[int, int, int],
    layouts: Layouts,
) -> Any:  # fmt: skip
    """Launch on the random bits of an array, or of a key where there is none, and return the results."""
    m, k = x.shape
    if m == 0 or k == 0:
        return outputs.finish()
    kernel = "quantize_mxfp4_stochastic"
    made = rowwise.cut(kernel, x, None, outputs, k, BLOCK, rules, 1, x.dtype == np.float32, layouts)
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
    return rowwise.run(kernel, name + ("_flat" if flat else ""), x, outputs, made, arguments, layouts)
