"""Calls that were worked out once: the next call of the same kind only allocates, fills in addresses and launches.

A kind of call is the operation, its options, and of every array the shape, strides, dtype, device and place within
16 bytes. All checks depend on these alone, but for shared memory, which is looked at every time. Options are known by
value, so a call with one that is no plain value, say an array of splits, is worked out anew every time.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from refnum.profiles import Profile

from .. import checks
from . import allocate
from . import arrays as interop
from .arrays import Library, View
from .driver import driver
from .frame import Launch, Ready

F = TypeVar("F", bound=Callable[..., Any])
LIMIT = 4096
"""Kinds of call that are kept; then all are forgotten."""
BARE = frozenset((str, int, type(None), type))
"""Types of options whose values stand for themselves in a key: none of them equals a value of another."""
KEYWORD = object()
"""Stands before an option's name in a key, which may be a value as well."""

captured: list[Any] = []
"""Scratch memory whose address a graph of CuPy's has: kept for the process, for no one tells when the graph is gone.
Whoever knows that none is left may clear the list."""


class Plan:
    """All launches of a kind of call, what to allocate, and the bytes before and behind each array's address."""

    __slots__ = (
        "_apart",
        "_device",
        "_fire",
        "_fresh",
        "_inputs",
        "_launches",
        "_library",
        "_scratch",
        "_spans",
        "_stream",
        "held",
    )

    def __init__(self, notes: _Notes, held: list[Profile]) -> None:
        self.held = held  # the key has their ids, which are theirs as long as they live
        self._library = library = notes.inputs[0].library
        self._device = notes.inputs[0].device
        self._stream, self._inputs = library.stream, len(notes.inputs)
        self._fresh = allocate.prepare(library, notes.wanted, self._device)
        scratch = [((notes.held,), np.dtype(np.uint8))]
        self._scratch = allocate.prepare(library, scratch, self._device) if notes.held else None
        self._fire = driver().fire  # the functions are handles of this driver
        views = [*notes.inputs, *notes.outputs]
        self._spans = [(view.span()[0] - view.address, view.span()[1] - view.address) for view in views]
        outputs = len(notes.outputs) + (notes.held > 0)
        self._launches = [Ready(each, len(notes.inputs), outputs) for each in notes.launches or []]
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
            results, addresses = self._fresh()
            places += addresses
        if self._scratch is not None:
            scratch, addresses = self._scratch()  # whose memory may serve the next call of this stream
            if _capturing(self._library, stream):
                captured.append(scratch[0])
            places += addresses
        for each in self._launches:
            each.fire(self._fire, places, device, stream, value)
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
    inputs: Sequence[View] = ()
    outputs: Sequence[View] = ()
    held: int
    scratch: int | None = None


_notes = _Notes()
_plans: dict[Any, Plan] = {}


def note_outputs(wanted: list[Any], inputs: list[View], outputs: list[View], held: int) -> None:
    """Remember what the call in progress allocates, reads and writes; `held`: its bytes of scratch.

    Its launches get other scratch, that is kept, where a graph records them.
    """
    _notes.wanted, _notes.inputs, _notes.outputs, _notes.held = wanted, inputs, outputs, held
    library, device = inputs[0].library, inputs[0].device
    _notes.scratch = None
    if held and _capturing(library, library.stream(device)):
        captured.append(library.empty((held,), np.dtype(np.uint8), device))
        _notes.scratch = library.address(captured[-1])


def _capturing(library: Library, stream: int) -> bool:
    """Whether a graph records what is launched in a stream, and keeps addresses of CuPy's memory but not the memory.

    A graph of torch has a pool of its own. The legacy stream, 0, cannot be captured and may not be asked.
    """
    if library.empty is not interop.CUPY.empty or stream == 0:
        return False
    return bool(interop.cupy_module().cuda.runtime.streamIsCapturing(stream))


def _wait(lent: View) -> None:
    """Wait for the kernels of a call on lent memory, unless a graph records them: then its arrays are the caller's."""
    stream = lent.library.stream(lent.device)
    if not _capturing(lent.library, stream):
        interop.cupy_module().cuda.runtime.streamSynchronize(stream)


def launch(
    function: int, device: int, blocks: tuple[int, int], threads: int, stream: int, arguments: ctypes.Structure
) -> None:
    """Launch, and remember it for the call in progress."""
    if _notes.scratch is not None:
        cast(Any, arguments).scratch = _notes.scratch
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


def _plain(each: Any) -> Any:
    """Return what stands for an argument in a key, equal only for what the checks take alike.

    TypeError for anything but plain values: what is equal by identity may hold other values at the next call.
    """
    kind = type(each)
    if kind in BARE:
        return each
    if kind is list or kind is tuple:
        if [*map(type, each)].count(int) == len(each):  # the fastest way
            return tuple(each)
    elif kind is Profile:  # a hash of all its fields would cost more than the rest; see `Plan.held`
        return kind, id(each)
    elif kind is bool or isinstance(each, np.dtype) or checks.torch_name(each):  # may equal a number or a name
        return kind, each
    raise TypeError(f"a {kind.__name__} is no plain value")


def _position(function: Callable[..., Any], name: str) -> int:
    """Return the number of an argument that can be given by its place, else one that no place has."""
    places = inspect.signature(function).parameters.values()
    names = [place.name for place in places if place.kind is place.POSITIONAL_OR_KEYWORD]
    return names.index(name) if name in names else sys.maxsize


def planned(arrays: int, optional: str = "", value: str = "") -> Callable[[F], F]:
    """Decorate a launcher whose first `arrays` arguments are arrays and whose results `out` may take.

    optional: an argument behind those that may hold one more input, last among the inputs, or None. value: a keyword
    whose value may change from call to call without making another kind of call (`Launch`).
    """

    def decorate(function: F) -> F:
        name, at = f"{function.__module__}.{function.__name__}", _position(function, optional)
        changing = tuple(filter(None, (optional, value)))

        def kind_of(args: Any, out: tuple[Any, ...] | None, kwargs: dict[str, Any]) -> Any:
            """Return (key, addresses); LookupError unless arrays of CuPy's or torch's own type are in their places."""
            count, out = (-1, ()) if out is None else (len(out), out)
            signature = interop.SIGNATURES[type(args[arrays - 1])]
            more = args[at] if at < len(args) else kwargs.get(optional) if kwargs else None
            key, places = [name, count, more is None], []
            for x in args[:arrays] + out if more is None else (*args[:arrays], more, *out):
                place, kind = signature(x)
                places.append(place)
                key.append(kind)
            if len(args) > arrays:
                for each in args[arrays:at] + args[at + 1 :]:
                    key.append(_plain(each))
            for option, each in kwargs.items():
                if option not in changing:
                    key += KEYWORD, option, _plain(each)
                elif option != optional:
                    key += KEYWORD, option, each is None
                elif at < len(args):
                    raise TypeError(f"{optional} was given twice")
            return tuple(key), tuple(places)

        @functools.wraps(function)
        def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            given = None if out is None else tuple(out) if type(out) in (tuple, list) else (out,)
            key = plan = None
            try:
                key, places = kind_of(args, given, kwargs)
                plan = _plans.get(key)
            except (TypeError, AttributeError, RuntimeError, LookupError):  # the full checks say what is wrong
                key = None
            if plan is not None:
                done = plan.replay(places, given or (), kwargs.get(value) if kwargs else None)
                if done is not None:
                    return done
            _notes.launches = [] if key is not None else None
            try:
                result = function(*args, out=out, **kwargs)
                if key is not None:
                    _keep(key, [each for each in (*args, *kwargs.values()) if type(each) is Profile])
                return result
            finally:
                lent = next((view for view in (*_notes.inputs, *_notes.outputs) if view.library.lent), None)
                _notes.launches = None
                _notes.inputs, _notes.outputs = (), ()  # a view holds its array, and so the array's memory
                _notes.scratch = None
                if lent is not None:
                    _wait(lent)

        return cast(F, call)

    return decorate
