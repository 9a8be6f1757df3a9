"""Launchers of NVFP4 blocks (clause N21)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from refnum.errors import ShapeError

from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import nvfp4
from ..interface.nvfp4 import BLOCK, Nvfp4
from .blocks import PHILOX_BYTES, key_words
from .rowwise import NAMES, Grid, layout_defines

__all__ = ["dequantize_nvfp4", "quantize_nvfp4"]

PLAIN = nvfp4.VARIANTS.index("MODELOPT")
"""Orders below this one, of blocks of one row and to nearest, have kernels of their own."""
DRAWN, KEYED = 1, 2
"""Of `Nvfp4Rounding` in kernels/nvfp4_table.cuh."""
WARP, SQUARES = 32, 8
"""Threads that have square blocks side by side, and how many."""
FAMILIES = tuple((f"FAMILY={place}",) if place else () for place in range(len(nvfp4.VARIANTS) - PLAIN + 1))
"""Macros of the orders below `PLAIN`, and of each that follows."""
TUNING: dict[str, Grid] = {
    "quantize_nvfp4": Grid(128, 2, 32),
    "quantize_nvfp4_variants": Grid(256, 2, 16),
    "dequantize_nvfp4": Grid(512, 2, 8, stream=1),
    "dequantize_nvfp4 float32": Grid(128, 1, 8, stream=1),
}
"""Kernel file, and a dtype for its launches alone -> grid; parts are of contiguous 16-bit floats or packed codes."""


class Nvfp4Arguments(ctypes.Structure):
    """Mirror of `refnum::Nvfp4Arguments` in kernels/nvfp4_memory.cuh; see `frame.Launch`."""

    slots: tuple[str, ...] = ("x", "amax", "out", "out_scales", "out_amax")
    _fields_ = [
        ("x", ctypes.c_void_p), ("scales", ctypes.c_void_p), ("amax", ctypes.c_void_p), ("out", ctypes.c_void_p),
        ("out_scales", ctypes.c_void_p), ("out_amax", ctypes.c_void_p),
        ("chunks", ctypes.c_int64), ("x_stride", ctypes.c_int64), ("scale_stride", ctypes.c_int64),
        ("per_row_inverse", ctypes.c_uint64),
        ("per_row", ctypes.c_uint32), ("rows", ctypes.c_uint32), ("columns", ctypes.c_uint32),
        ("aligned", ctypes.c_uint32), ("order", ctypes.c_int32), ("square", ctypes.c_uint32),
    ]  # fmt: skip


class OwnMaximum(Nvfp4Arguments):
    """Of a call that finds the tensor's maximum itself."""

    slots = ("x", "out", "out_scales", "out_amax")


class Decoded(Nvfp4Arguments):
    """Of a call that dequantises."""

    slots = ("x", "scales", "amax", "out")


RANDOM_FIELDS: list[tuple[str, Any]] = [
    ("random", ctypes.c_void_p), ("random_stride", ctypes.c_int64), ("first_block", ctypes.c_uint64),
    ("seed_low", ctypes.c_uint32), ("seed_high", ctypes.c_uint32), ("stream", ctypes.c_uint32),
    ("step", ctypes.c_uint32), ("random_aligned", ctypes.c_uint32), ("rounding", ctypes.c_int32),
]  # fmt: skip
"""Mirror of `refnum::RandomBits` in kernels/nvfp4_table.cuh."""


class VariantArguments(Nvfp4Arguments):
    """Mirror of `refnum::Nvfp4VariantArguments` in kernels/quantize_nvfp4_variants.cu."""

    values = ("philox", "first_block", key_words)
    _fields_ = [*RANDOM_FIELDS, ("flat", ctypes.c_uint32), ("m", ctypes.c_uint32)]


class OwnVariantArguments(VariantArguments):
    """Of a call that finds the tensor's maximum itself."""

    slots = OwnMaximum.slots


@planned(nvfp4.quantize_nvfp4, 1, "tensor_amax", "philox")
def quantize_nvfp4(call: DeviceCall, given: Nvfp4[View]) -> None:
    """Launch the quantiser, after a search for the tensor's maximum where it is not given.

    A call with random bytes in memory has no plan, since those are no plain option.
    """
    x, kind = given.x, NAMES[given.kind]
    out, scales, amax = (view.address for view in call.results)
    chunk = 2 * BLOCK if given.kind else BLOCK
    flat = _contiguous([x]) and given.k % chunk == 0
    elements = chunk if flat else BLOCK
    structure = Nvfp4Arguments if given.amax else OwnMaximum
    arguments = _arguments(structure, given, elements, elements * x.dtype.itemsize)
    arguments.out, arguments.out_scales, arguments.out_amax = out, scales, amax
    if given.amax is None:
        call.launch("quantize_nvfp4", "no_largest_nvfp4", _defines("quantize_nvfp4", given), (1, 1), 1, arguments)
        _launch(call, "quantize_nvfp4", f"largest_nvfp4_{kind}{'_flat' * flat}", given, arguments)
    if given.order >= PLAIN or given.tall > 1 or given.random or given.key:
        return _variant(call, given)
    flat = flat and given.layout == "bytes"
    if not flat:
        arguments = _arguments(structure, given, BLOCK, BLOCK * x.dtype.itemsize)
        arguments.out, arguments.out_scales, arguments.out_amax = out, scales, amax
    name = f"quantize_nvfp4_{kind}{'_flat' * flat}"
    _launch(call, "quantize_nvfp4", name, given, arguments, least=1 if given.amax else 0)


def _variant(call: DeviceCall, given: Nvfp4[View]) -> None:
    """Launch the quantiser of any order, block and rounding, on blocks or on several square ones."""
    x, (m, columns), square = given.x, (given.x.shape[0], given.k // BLOCK), given.tall > 1
    arguments = _arguments(
        VariantArguments if given.amax else OwnVariantArguments, given, BLOCK, BLOCK * x.dtype.itemsize
    )
    arguments.out, arguments.out_scales, arguments.out_amax = (view.address for view in call.results)
    arguments.m = m
    if square:
        arguments.per_row = -(-columns // SQUARES)
        arguments.chunks, arguments.per_row_inverse = arguments.rows * arguments.per_row, _inverse(arguments.per_row)
    random_bits(arguments, given.random, given.key)
    arguments.flat = given.layout == "bytes" and _contiguous([x, *([given.random] if given.random else [])])
    kernel, by = "quantize_nvfp4_variants", bool(given.random or given.key)
    name = f"quantize_nvfp4_variant_{NAMES[given.kind]}{'_square' * square}{'_random' * by}"
    each = WARP * _grid(kernel, given).unroll if square else 1  # whose threads have one part each
    _launch(call, kernel, name, given, arguments, 1 if given.amax else 0, each)


@planned(nvfp4.dequantize_nvfp4, 3)
def dequantize_nvfp4(call: DeviceCall, given: Nvfp4[View]) -> None:
    """Launch the dequantiser."""
    assert given.scales is not None
    flat = _contiguous([given.x, given.scales]) and given.layout == "bytes" and given.tall == 1
    arguments = _arguments(Decoded, given, BLOCK // 2, 4)
    arguments.out = call.results[0].address
    name = f"dequantize_nvfp4_{NAMES[given.kind]}{'_flat' * flat}"
    _launch(call, "dequantize_nvfp4", name, given, arguments)


def random_bits(arguments: ctypes.Structure, random: View | None, key: tuple[int, int, int, int] | None) -> None:
    """Fill `RANDOM_FIELDS` of arguments: bytes in memory, a key, or neither."""
    if random:
        arguments.random, arguments.random_stride, arguments.rounding = random.address, random.strides[0], DRAWN
        whole = random.shape[0] == 1 or random.strides[0] % BLOCK == 0
        arguments.random_aligned = random.address % BLOCK == 0 and whole
    elif key:
        seed, arguments.stream, arguments.step, offset = key
        arguments.first_block, arguments.rounding = offset // PHILOX_BYTES, KEYED
        arguments.seed_low, arguments.seed_high = seed & 0xFFFFFFFF, seed >> 32


def family(order: int) -> tuple[str, ...]:
    """Return the macros of the unit that has an order of operations."""
    return FAMILIES[max(0, order - PLAIN + 1)]


def _contiguous(views: Sequence[View]) -> bool:
    return all(view.contiguous for view in views) and views[0].address % 16 == 0


def _arguments(structure: type[Nvfp4Arguments], given: Nvfp4[View], elements: int, size: int) -> Nvfp4Arguments:
    """Return the arguments of chunks of so many elements and bytes of the input, without outputs."""
    x, scales, m = given.x, given.scales, given.x.shape[0]
    per_row, vector = given.k // elements, min(size, 16)
    if per_row >> 32 or m >> 32:
        raise ShapeError(f"{x.name} has shape {x.shape}; allowed are fewer than 2**32 rows and chunks a row")
    aligned = x.address % vector == 0 and (m == 1 or x.strides[0] % vector == 0)
    return structure(
        x.address, scales.address if scales else None, given.amax.address if given.amax else None, None, None, None,
        m * per_row, x.strides[0], scales.strides[0] if scales and given.layout == "bytes" else 0,
        _inverse(per_row), per_row, -(-m // given.tall),
        given.k // BLOCK, aligned, given.order, given.tall > 1,
    )  # fmt: skip


def _inverse(per_row: int) -> int:
    return (1 << 64) // per_row + 1 if per_row > 1 else 0


def _defines(kernel: str, given: Nvfp4[View]) -> tuple[str, ...]:
    layouts = (given.layout, "bytes") if kernel == "dequantize_nvfp4" else ("bytes", given.layout)
    orders = family(given.order) if kernel == "quantize_nvfp4_variants" else ()
    return (*_grid(kernel, given).defines, *orders, *layout_defines(layouts))


def _grid(kernel: str, given: Nvfp4[View]) -> Grid:
    return TUNING.get(f"{kernel} {NAMES[given.kind]}", TUNING[kernel])


def _launch(
    call: DeviceCall,
    kernel: str,
    name: str,
    given: Nvfp4[View],
    arguments: Nvfp4Arguments,
    least: int = 0,
    each: int = 1,
) -> None:
    """Launch a function on all chunks, of so many threads each, on at least so many CTAs."""
    grid = _grid(kernel, given)
    blocks = max(least, -(-arguments.chunks * each // (grid.threads * grid.unroll)))
    if blocks:
        call.launch(kernel, name, _defines(kernel, given), (blocks, 1), grid.threads, arguments)
