"""Calls that were worked out once: the next call of the same kind only allocates, fills in addresses and launches.

A kind of call is the operation, its options, and of every array the shape, strides, dtype, device and place within
16 bytes. All checks depend on these alone, but for shared memory, which is looked at every time.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from refnum.profiles import Profile

from . import interop
from .driver import Frame, driver
from .interop import View

F = TypeVar("F", bound=Callable[..., Any])
LIMIT = 4096
"""Kinds of call that are kept; then all are forgotten."""
WORDS = [struct.Struct(f"={count}Q") for count in range(9)]
"""Forms of as many fields of 8 bytes."""
SLOTS = (("x", "scales"), ("out", "out_scales"))
"""Fields of the inputs' and of the outputs' addresses, for arguments that have no `slots` of their own."""


class Launch(NamedTuple):
    """One launch: function, CTAs across and down, threads a CTA, and the arguments but for the addresses.

    The class of the arguments may have `slots`, the fields of the addresses of all inputs and outputs in order, and
    `values`, (keyword, field, function) of an option that every call may give anew: the function makes of it the
    integers of as many fields of 8 bytes, from that field on.
    """

    function: int
    blocks: tuple[int, int]
    threads: int
    arguments: ctypes.Structure


class Ready:
    """A launch with the places of its addresses found, and the frames that no thread uses now."""

    __slots__ = ("_frames", "_launch", "_runs", "_value")

    def __init__(self, launch: Launch, inputs: int, outputs: int) -> None:
        kind = type(launch.arguments)
        names = getattr(kind, "slots", None) or SLOTS[0][:inputs] + SLOTS[1][:outputs]
        places = [getattr(kind, name).offset for name in names[: inputs + outputs]]
        self._launch, self._frames = launch, list[Frame]()
        self._runs = _runs(bytes(launch.arguments), places)
        value = getattr(kind, "values", None)
        self._value = (getattr(kind, value[1]).offset, value[2]) if value else None

    def fire(self, places: tuple[int, ...], device: int, stream: int, given: Any) -> None:
        """Launch on arrays at these addresses; `given` is the option of `values`."""
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
        driver().fire(frame, device)
        self._frames.append(frame)


def _runs(template: bytes, places: list[int]) -> list[tuple[int, struct.Struct, int, int]]:
    """Return (offset, form, first and last-plus-one address) of the fewest writes; null pointers between may be."""
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


class Plan:
    """All launches of a kind of call, what to allocate, and the bytes before and behind each array's address."""

    __slots__ = (
        "_address",
        "_apart",
        "_device",
        "_empty",
        "_inputs",
        "_launches",
        "_spans",
        "_stream",
        "_wanted",
        "held",
    )

    def __init__(self, notes: _Notes, held: list[Profile]) -> None:
        self.held = held  # the key has their ids, which are theirs as long as they live
        library, self._device = notes.inputs[0].library, notes.inputs[0].device
        self._stream, self._address = library.stream, library.address
        self._empty = library.empty_here or library.empty
        self._wanted, self._inputs = notes.wanted, len(notes.inputs)
        views = notes.inputs + notes.outputs
        self._spans = [(view.span()[0] - view.address, view.span()[1] - view.address) for view in views]
        self._launches = [Ready(each, len(notes.inputs), len(notes.outputs)) for each in notes.launches or []]
        self._apart: Any = None  # the last addresses that were found to share no memory

    def replay(self, places: tuple[int, ...], out: tuple[Any, ...], value: Any) -> Any:
        """Run; None when the arrays share memory, which only the full checks can name."""
        device, stream, results = self._device, self._stream(self._device), out
        if out:
            if self._apart != places:
                if self._meet(places):
                    return None
                self._apart = places
        else:
            results = tuple([self._empty(shape, dtype, device) for shape, dtype in self._wanted])
            places += tuple([self._address(x) for x in results])
        for each in self._launches:
            each.fire(places, device, stream, value)
        return results[0] if len(results) == 1 else results

    def _meet(self, places: tuple[int, ...]) -> bool:
        ends = [(place + low, place + high) for place, (low, high) in zip(places, self._spans, strict=True)]
        return any(
            low < end and start < high
            for number, (low, high) in enumerate(ends[self._inputs :], self._inputs) for start, end in ends[:number]
        )  # fmt: skip


class _Notes(threading.local):
    launches: list[Launch] | None = None
    wanted: list[Any]
    inputs: list[View]
    outputs: list[View]


_notes = _Notes()
_plans: dict[Any, Plan] = {}


def note_outputs(wanted: list[Any], inputs: list[View], outputs: list[View]) -> None:
    """Remember what the call in progress allocates, reads and writes."""
    _notes.wanted, _notes.inputs, _notes.outputs = wanted, inputs, outputs


def launch(
    function: int, device: int, blocks: tuple[int, int], threads: int, stream: int, arguments: ctypes.Structure
) -> None:
    """Launch, and remember it for the call in progress."""
    if _notes.launches is not None:
        _notes.launches.append(Launch(function, blocks, threads, arguments))
    driver().launch(function, device, blocks, threads, stream, arguments)


def forget() -> None:
    """Drop all plans: for a change of `TUNING`."""
    _plans.clear()


def _keep(key: Any, profiles: list[Profile]) -> None:
    library = _notes.inputs[0].library
    if not _notes.launches or library not in (interop.CUPY, interop.TORCH, *interop.OWN.values()):
        return
    if any(view.library is not library for view in _notes.outputs):
        return
    if len(_plans) >= LIMIT:
        _plans.clear()
    _plans[key] = Plan(_notes, profiles)


def planned(arrays: int, optional: str = "", value: str = "") -> Callable[[F], F]:
    """Decorate a launcher whose first `arrays` arguments are arrays and whose results `out` may take.

    optional: a keyword that may hold one more input, last among the inputs. value: a keyword whose value may change
    from call to call without making another kind of call (`Launch`).
    """

    def decorate(function: F) -> F:
        name = function.__name__

        def plain(each: Any) -> Any:
            if type(each) is Profile:  # a hash of all its fields would cost more than the rest; see `Plan.held`
                return id(each)
            return tuple(each) if type(each) is list else each

        def kind_of(args: Any, out: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            """Return (key, addresses); the key is None for arrays that are not exactly CuPy's or torch's."""
            kind = type(args[0])
            signature = interop.SIGNATURES.get(kind)
            if signature is None or len(args) < arrays:
                return None, ()
            key: list[Any] = [name, kind, len(out)]
            places = []
            more = kwargs.get(optional) if kwargs else None
            for x in args[:arrays] + out if more is None else (*args[:arrays], more, *out):
                if type(x) is not kind:
                    return None, ()
                found = signature(x)
                places.append(found[0])
                key.append(found[0] & 15)
                key += found[1:]
            for each in args[arrays:]:
                key.append(plain(each))
            for option, each in kwargs.items():
                key += option, each is None if option in (optional, value) else plain(each)
            return tuple(key), tuple(places)

        @functools.wraps(function)
        def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            given = () if out is None else tuple(out) if type(out) in (tuple, list) else (out,)
            key = plan = None
            try:
                key, places = kind_of(args, given, kwargs)
                plan = _plans.get(key)
            except (TypeError, AttributeError, RuntimeError, IndexError):  # the full checks say what is wrong
                key = None
            if plan is not None:
                done = plan.replay(places, given, kwargs.get(value) if kwargs else None)
                if done is not None:
                    return done
            _notes.launches = [] if key is not None else None
            try:
                result = function(*args, out=out, **kwargs)
                if key is not None:
                    _keep(key, [each for each in (*args, *kwargs.values()) if type(each) is Profile])
                return result
            finally:
                _notes.launches = None
                _notes.inputs, _notes.outputs = [], []  # a view holds its array, and so the array's memory

        return cast(F, call)

    return decorate
