"""Launchers of TetraJet's quantiser and of Q-EMA (clause N24)."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from refnum.errors import ShapeError

from .. import checks
from ..checks import BLOCK
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import tetrajet
from ..interface.call import Rows
from ..interface.tetrajet import FLOAT32, Tetrajet
from . import rowwise
from .blocks import PHILOX_BYTES, key_words
from .rowwise import NAMES, Arguments

__all__ = ["q_ema", "quantize_tetrajet"]


class Down(NamedTuple):
    """The cut of a launch on blocks down columns: threads of a CTA, and CTAs of a multiprocessor that get registers."""

    threads: int
    ctas: int

    @property
    def defines(self) -> tuple[str, ...]:
        """The macros of kernels/tetrajet_memory.cuh."""
        return (f"THREADS={self.threads}", f"CTAS={self.ctas}")


DOWN: dict[str, Down] = {
    "quantize_tetrajet_down": Down(128, 6),
    "quantize_tetrajet_down_stochastic": Down(128, 6),
    "q_ema_down": Down(128, 3),
}
"""Kernel file for blocks down columns -> cut."""
WARP = 32
WIDE = 8
"""Columns of a thread where blocks lie down columns."""


class TetrajetArguments(ctypes.Structure):
    """Mirror of `refnum::TetrajetArguments` in kernels/tetrajet_memory.cuh; see `frame.Launch`."""

    slots: tuple[str, ...] = ("x", "out", "out_scales")
    _fields_ = [
        *Arguments._fields_,
        ("other", ctypes.c_void_p), ("other_stride", ctypes.c_int64), ("first_block", ctypes.c_uint64),
        ("seed_low", ctypes.c_uint32), ("seed_high", ctypes.c_uint32), ("stream", ctypes.c_uint32),
        ("step", ctypes.c_uint32), ("other_aligned", ctypes.c_uint32), ("scale_rule", ctypes.c_int32),
        ("m", ctypes.c_uint32), ("k", ctypes.c_uint32), ("across", ctypes.c_uint32),
        ("across_inverse", ctypes.c_uint64),
    ]  # fmt: skip


class OtherArguments(TetrajetArguments):
    """Of a call with a second input: random bytes or averages."""

    slots = ("x", "other", "out", "out_scales")


class KeyedArguments(TetrajetArguments):
    """Of a call with a key, which the next call of its kind may give anew."""

    values = ("philox", "first_block", key_words)


class Way(NamedTuple):
    """What is launched: kernel file, the words of the function, the second input, and bytes of it beside an element."""

    kernel: str
    words: str
    other: View | None = None
    size: int = 0


@planned(tetrajet.quantize_tetrajet, 1, "rbits", "philox")
def quantize_tetrajet(call: DeviceCall, given: Tetrajet[View]) -> None:
    """Launch the quantiser to nearest, or the one that rounds by random bits."""
    name, kind = f"quantize_tetrajet{'' if given.axis else '_down'}", NAMES[given.kind]
    if given.random or given.key:
        words = f"{name}_{'drawn' if given.random else 'keyed'}_{kind}"
        _launch(call, given, Way(f"{name}_stochastic", words, given.random, 1 if given.random else 0))
    else:
        _launch(call, given, Way(name, f"{name}_{'away' if given.away else 'even'}_{kind}"))


@planned(tetrajet.q_ema, 2)
def q_ema(call: DeviceCall, given: Tetrajet[View]) -> None:
    """Launch Q-EMA."""
    assert given.ema is not None
    name, other = f"q_ema{'' if given.axis else '_down'}", given.ema
    words = f"{name}_{NAMES[given.kind]}_{NAMES[checks.KINDS[other.dtype]]}"
    _launch(call, given, Way(name, words, other, other.dtype.itemsize))


def _launch(call: DeviceCall, given: Tetrajet[View], way: Way) -> None:
    """Launch on all blocks unless there is none."""
    if 0 in given.x.shape:
        return
    structure = OtherArguments if way.other else KeyedArguments if given.key else TetrajetArguments
    (_rows if given.axis else _down)(call, given, way, structure)


def _rows(call: DeviceCall, given: Tetrajet[View], way: Way, structure: type[TetrajetArguments]) -> None:
    x, other = given.x, way.other
    made = rowwise.cut(way.kernel, Rows(x, x.shape[1]), call.results, BLOCK, given.kind == FLOAT32)
    arguments = structure.from_buffer_copy(bytes(made.arguments).ljust(ctypes.sizeof(structure), b"\0"))
    vector = min(16, way.size * (made.grid.part // (1 if given.kind else 2)))
    flat = made.flat and (other is None or (other.contiguous and _aligned(other, vector)))
    _fill(arguments, given, way, vector)
    call.launch(
        way.kernel, f"{way.words}{'_flat' * flat}", made.grid.defines, (made.blocks, 1), made.grid.threads, arguments
    )


def _down(call: DeviceCall, given: Tetrajet[View], way: Way, structure: type[TetrajetArguments]) -> None:
    """Launch a warp on each 32 rows of 64 columns, or of 32 where an input is float32."""
    x, grid, (m, k) = given.x, DOWN[way.kernel], given.x.shape
    if m >> 32 or k >> 32:
        raise ShapeError(f"{x.name} has shape {x.shape}; allowed are fewer than 2**32 rows and columns")
    wide = WIDE * (4 if given.kind == FLOAT32 or way.size == 4 else 8)
    across = -(-k // wide)
    arguments = structure()
    arguments.x, arguments.x_stride, arguments.chunks = x.address, x.strides[0], across * -(-m // BLOCK)
    arguments.out, arguments.out_scales = (view.address for view in call.results)
    arguments.m, arguments.k, arguments.across = m, k, across
    arguments.across_inverse = (1 << 64) // across + 1 if across > 1 else 0
    vector = min(16, WIDE * way.size)
    _fill(arguments, given, way, vector)
    aligned = _aligned(x, 16) and (way.other is None or _aligned(way.other, vector))
    blocks = -(-arguments.chunks // (grid.threads // WARP))
    name = f"{way.words}{'_aligned' * aligned}"
    call.launch(way.kernel, name, grid.defines, (blocks, 1), grid.threads, arguments)


def _fill(arguments: TetrajetArguments, given: Tetrajet[View], way: Way, vector: int) -> None:
    """Write what both ways to lay blocks share."""
    arguments.scale_rule = given.rule
    if way.other:
        arguments.other, arguments.other_stride = way.other.address, way.other.strides[0]
        arguments.other_aligned = _aligned(way.other, vector)
    if given.key:
        seed, arguments.stream, arguments.step, offset = given.key
        arguments.first_block = offset // PHILOX_BYTES
        arguments.seed_low, arguments.seed_high = seed & 0xFFFFFFFF, seed >> 32


def _aligned(x: View, vector: int) -> bool:
    """Return whether every row begins at a multiple of so many bytes."""
    return x.address % vector == 0 and (x.shape[0] == 1 or x.strides[0] % vector == 0)
