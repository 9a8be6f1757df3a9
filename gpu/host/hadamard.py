"""The host build of rotations (clause N22)."""

from __future__ import annotations

from ..interface import hadamard
from ..interface.hadamard import GROUP, Rotated
from .call import Array, HostCall, twin

__all__ = ["hadamard16", "hadamard_quantize_nvfp4"]


@twin(hadamard.hadamard16)
def hadamard16(call: HostCall, given: Rotated[Array]) -> None:
    """Rotate group by group."""
    call.run("hadamard16", *_groups(given), given.rotation, given.wide, call.arrays[0])


@twin(hadamard.hadamard_quantize_nvfp4)
def hadamard_quantize_nvfp4(call: HostCall, given: Rotated[Array]) -> None:
    """Rotate and quantise group by group under the tensor's maximum, given or found first."""
    packed, stored, amax = call.arrays
    scales = call.scales_to_write(given.scales, given.layout, stored)
    random = call.drawn_bytes(given.random, given.key, (given.scales[0], GROUP * given.scales[1]))
    rules = given.rotation, given.amax, given.order, random
    call.run("hadamard_quantize_nvfp4", *_groups(given), *rules, packed, scales, amax)


def _groups(given: Rotated[Array]) -> tuple[int, Array, int, int, int, int]:
    """Return the arguments that say where the groups lie."""
    return given.kind, given.x, given.x.shape[0], given.x.shape[1], int(given.axis == 0), given.signs
