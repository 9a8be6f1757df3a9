"""Launchers of rotations (clause N22)."""

from __future__ import annotations

import ctypes
from typing import NamedTuple, TypeVar

from refnum.errors import ShapeError

from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import hadamard
from ..interface.hadamard import GROUP, Rotated
from .blocks import key_words
from .nvfp4 import PLAIN, RANDOM_FIELDS, Nvfp4Arguments, family, random_bits
from .rowwise import NAMES, layout_defines

__all__ = ["hadamard16", "hadamard_quantize_nvfp4"]

WARP = 32
GATHERED = 32
"""Groups of a CTA down columns at most: `GROUPS_DOWN` of kernels/rotation_columns.cuh."""
A = TypeVar("A", bound="RotationArguments")


class Cut(NamedTuple):
    """The cut of a launch: threads of a CTA, groups of a thread, and the threads of a multiprocessor."""

    threads: int
    unroll: int
    resident: int

    @property
    def defines(self) -> tuple[str, ...]:
        """The macros of kernels/rotation_memory.cuh."""
        return tuple(f"{name.upper()}={value}" for name, value in self._asdict().items())


TUNING: dict[str, Cut] = {
    "hadamard16": Cut(256, 2, 768),
    "hadamard16 down": Cut(256, 4, 1024),
    "hadamard_quantize_nvfp4": Cut(256, 22, 1024),
    "hadamard_quantize_nvfp4 down": Cut(128, 8, 768),
    "hadamard_quantize_nvfp4_variants": Cut(128, 16, 1024),
    "hadamard_quantize_nvfp4_variants down": Cut(128, 8, 640),
}
"""Kernel file, and `down` for its launches on groups along columns if they have another -> cut."""


class RotationArguments(Nvfp4Arguments):
    """Mirror of `refnum::RotationArguments` in kernels/rotation_memory.cuh; see `frame.Launch`."""

    slots: tuple[str, ...] = ("x", "out")
    _fields_ = [  # noqa: RUF012 - as ctypes reads it
        ("signs", ctypes.c_uint32), ("rotation", ctypes.c_int32), ("m", ctypes.c_uint32), ("k", ctypes.c_uint32),
    ]  # fmt: skip


class GivenMaximum(RotationArguments):
    """Of a call that quantises under a given maximum."""

    slots: tuple[str, ...] = ("x", "amax", "out", "out_scales", "out_amax")


class OwnMaximum(RotationArguments):
    """Of a call that finds the maximum itself."""

    slots = ("x", "out", "out_scales", "out_amax")


class GivenVariantArguments(GivenMaximum):
    """Mirror of `refnum::RotatedVariantArguments` in kernels/hadamard_quantize_nvfp4_variants.cu."""

    values = ("philox", "first_block", key_words)
    _fields_ = [*RANDOM_FIELDS]  # noqa: RUF012 - as ctypes reads it


class OwnVariantArguments(GivenVariantArguments):
    """Of a call that finds the maximum itself."""

    slots = OwnMaximum.slots


@planned(hadamard.hadamard16, 1)
def hadamard16(call: DeviceCall, given: Rotated[View]) -> None:
    """Launch the rotation."""
    arguments = _arguments(RotationArguments, given)
    arguments.out = call.results[0].address
    _launch(call, "hadamard16", f"rotate_{NAMES[not given.wide]}", given, arguments)


@planned(hadamard.hadamard_quantize_nvfp4, 1, "tensor_amax", "philox")
def hadamard_quantize_nvfp4(call: DeviceCall, given: Rotated[View]) -> None:
    """Launch rotation and quantiser, after a search for the maximum of the rotated tensor where it is not given.

    A call with random bytes in memory has no plan, since those are no plain option.
    """
    kernel = "hadamard_quantize_nvfp4"
    arguments = _filled(GivenMaximum if given.amax else OwnMaximum, call, given)
    if given.amax is None:
        call.launch(kernel, "rotate_nothing", _defines(kernel, given), (1, 1), 1, arguments)
        _launch(call, kernel, "rotate_largest", given, arguments)
    least = 1 if given.amax else 0
    if given.order < PLAIN and not given.random and not given.key:
        return _launch(call, kernel, "rotate_quantize", given, arguments, least)
    varied = _filled(GivenVariantArguments if given.amax else OwnVariantArguments, call, given)
    random_bits(varied, given.random, given.key)
    name = f"rotate_variant{'_random' * bool(given.random or given.key)}"
    _launch(call, f"{kernel}_variants", name, given, varied, least)


def _filled(structure: type[A], call: DeviceCall, given: Rotated[View]) -> A:
    """Return the arguments with the outputs of a call that quantises."""
    arguments = _arguments(structure, given)
    arguments.out, arguments.out_scales, arguments.out_amax = (view.address for view in call.results)
    return arguments


def _by_warps(given: Rotated[View]) -> bool:
    """Return whether warps rotate the groups together: of bfloat16, to bfloat16."""
    return given.kind == 1 and not given.wide


def _arguments(structure: type[A], given: Rotated[View]) -> A:
    """Return the arguments without outputs."""
    x = given.x
    m, k = x.shape
    down = given.axis == 0
    size = x.dtype.itemsize
    per_row = -(-m // GROUP) if down else k // GROUP
    vector = size if down and not _by_warps(given) else 16
    if m >> 32 or k >> 32:
        raise ShapeError(f"{x.name} has shape {x.shape}; allowed are fewer than 2**32 rows and columns")
    aligned = x.address % vector == 0 and (m == 1 or x.strides[0] % vector == 0) and (k * size) % vector == 0
    return structure(
        x.address, None, given.amax.address if given.amax else None, None, None, None,
        (k if down else m) * per_row, x.strides[0], 0,
        (1 << 64) // per_row + 1 if per_row > 1 else 0, per_row, *given.scales,
        aligned, given.order, signs=given.signs, rotation=given.rotation, m=m, k=k,
    )  # fmt: skip


def _cut(kernel: str, given: Rotated[View]) -> Cut:
    return TUNING.get(f"{kernel}{' down' * (given.axis == 0)}", TUNING[kernel])


def _defines(kernel: str, given: Rotated[View]) -> tuple[str, ...]:
    orders = family(given.order) if kernel.endswith("_variants") else ()
    return (*_cut(kernel, given).defines, *orders, *layout_defines(("bytes", given.layout)))


def _launch(
    call: DeviceCall, kernel: str, name: str, given: Rotated[View], arguments: RotationArguments, least: int = 0
) -> None:
    """Launch a function on all groups, on at least so many CTAs."""
    threads, unroll = _cut(kernel, given)[:2]
    x = given.x
    if given.axis == 0:
        way, across = "_down", WARP << _by_warps(given)
        tiles = -(-arguments.k // across) * -(-arguments.per_row // min(threads // WARP * unroll, GATHERED))
    else:
        gaps = arguments.m > 1 and x.strides[0] != arguments.k * x.dtype.itemsize
        way = "_flat" if arguments.aligned and not gaps and given.layout == "bytes" else ""
        tiles = -(-arguments.chunks // (threads * unroll))
    blocks = max(least, tiles)
    if blocks:
        function = f"{name}_{NAMES[given.kind]}{way}"
        call.launch(kernel, function, _defines(kernel, given), (blocks, 1), threads, arguments)
