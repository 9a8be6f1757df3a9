"""A launch that is prepared once and repeated: every further call writes its addresses and launches."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from .driver import Frame

WORDS = [struct.Struct(f"={count}Q") for count in range(9)]
"""Number of fields -> the packing of that many fields of 8 bytes."""
SLOTS = (("x", "scales"), ("out", "out_scales"))
"""Fields with the addresses of inputs and of outputs, for classes of arguments without `slots`."""


class Launch(NamedTuple):
    """One launch: function, CTAs across and down, threads of a CTA, and the arguments, whose addresses are replaced.

    The class of the arguments may have `slots`: the names of the fields with the addresses of all inputs, outputs and
    scratch, in order. It may have `values`: (keyword, field, function) of an option whose value can differ from call to
    call; the function turns the option into integers for the fields of 8 bytes from that field on.
    """

    function: int
    blocks: tuple[int, int]
    threads: int
    arguments: ctypes.Structure


class PreparedLaunch:
    """A launch with the offsets of its addresses, and the frames that no thread is using."""

    __slots__ = ("_frames", "_launch", "_runs", "_value")

    def __init__(self, launch: Launch, inputs: int, outputs: int) -> None:
        kind = type(launch.arguments)
        names = getattr(kind, "slots", None) or SLOTS[0][:inputs] + SLOTS[1][:outputs]
        places = [getattr(kind, name).offset for name in names[: inputs + outputs]]
        self._launch, self._frames = launch, list[Frame]()
        self._runs = _runs(bytes(launch.arguments), places)
        value = getattr(kind, "values", None)
        self._value = (getattr(kind, value[1]).offset, value[2]) if value else None

    def fire(
        self, fire: Callable[[Frame, int], None], places: tuple[int, ...], device: int, stream: int, given: Any
    ) -> None:
        """Launch with a driver's `fire` on arrays at these addresses; `given` is the option of `values`."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(*self._launch)
        if frame.places != places:
            for at, form, first, end in self._runs:
                form.pack_into(frame.arguments, at, *places[first:end])
            frame.places = places
        if given is not None and self._value is not None:
            numbers = self._value[1](given)
            WORDS[len(numbers)].pack_into(frame.arguments, self._value[0], *numbers)
        if frame.stream != stream:
            frame.config.stream = frame.stream = stream
        fire(frame, device)
        self._frames.append(frame)


def _runs(template: bytes, places: list[int]) -> list[tuple[int, struct.Struct, int, int]]:
    """Return the fewest writes as (offset, packing, first address, address after the last); gaps are null pointers."""
    runs: list[tuple[int, struct.Struct, int, int]] = []
    start = 0
    for number in range(1, len(places) + 1):
        gap = template[places[number - 1] + 8 : places[number]] if number < len(places) else b"end"
        if number == len(places) or any(gap) or places[number] < places[number - 1]:
            steps = [b - a - 8 for a, b in zip(places[start : number - 1], places[start + 1 : number], strict=True)]
            form = "=Q" + "".join(f"{step}xQ" for step in steps)
            runs.append((places[start], struct.Struct(form), start, number))
            start = number
    return runs
