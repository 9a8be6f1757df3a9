"""Plans of calls: the second call of a kind only allocates its results, writes addresses, and launches.

The kind of a call is its operation, its options, and for every array the shape, strides, dtype, device, and address
modulo 16. Every check depends on these alone, except the check for shared memory, which is made at every call. Options
are compared by value, so a call with an option that is no plain value, e.g. an array of splits, gets no plan.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from refnum.profiles import Profile

from .. import checks
from ..interface.call import U8, public
from . import allocate, arrays
from .call import DeviceCall, captured, capturing
from .driver import driver
from .frame import PreparedLaunch

P = ParamSpec("P")
T = TypeVar("T")
LIMIT = 4096
"""Plans that are kept at most; when there are more, all are dropped."""
BARE = frozenset((str, int, type(None), type))
"""Types of options that are used in a key as they are: no value of one type equals a value of another."""
KEYWORD = object()
"""Precedes the name of an option in a key, because the same text can also be a value."""


class Plan:
    """All launches of a kind of call, the arrays to allocate, and the extent of each array around its address."""

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

    def __init__(self, call: DeviceCall, held: list[Profile]) -> None:
        self.held = held  # the key has the ids of these profiles, which are unique while the profiles live
        first = call.inputs[0]
        self._library, self._device = first.library, first.device
        self._stream, self._inputs = first.library.stream, len(call.inputs)
        self._fresh = allocate.prepare(first.library, call.wanted, first.device)
        scratch = [((call.held,), U8)]
        self._scratch = allocate.prepare(first.library, scratch, first.device) if call.held else None
        self._fire = driver().fire  # the functions are handles of this driver
        views = [*call.inputs, *call.results]
        self._spans = [(view.span()[0] - view.address, view.span()[1] - view.address) for view in views]
        outputs = len(call.results) + (call.held > 0)
        self._launches = [PreparedLaunch(each, len(call.inputs), outputs) for each in call.launches or []]
        self._apart: Any = None  # the addresses of the last call whose arrays were found to share no memory

    def replay(self, places: tuple[int, ...], out: tuple[Any, ...], value: Any) -> Any:
        """Run the call and return its results; None when arrays share memory, so that the full checks name them."""
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
            scratch, addresses = self._scratch()  # the next call of this stream may get the same memory
            if capturing(self._library, stream):
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


_plans: dict[Any, Plan] = {}


def forget() -> None:
    """Drop all plans, e.g. after a change of `TUNING`."""
    _plans.clear()


def _keep(key: Any, call: DeviceCall, profiles: list[Profile]) -> None:
    """Keep the plan of a call that has launched kernels, if its arrays are of CuPy, torch or an emulator."""
    library = call.inputs[0].library
    if not call.launches or library not in (arrays.CUPY, arrays.TORCH, *arrays.OWN.values()):
        return
    if any(view.library is not library for view in call.results):
        return
    if len(_plans) >= LIMIT:
        _plans.clear()
    _plans[key] = Plan(call, profiles)


def _plain(each: Any) -> Any:
    """Return the part of a key for an argument; equal parts mean that the checks treat both arguments alike.

    Raises TypeError for anything but plain values: an object that is compared by identity can hold other values at the
    next call.
    """
    kind = type(each)
    if kind in BARE:
        return each
    if kind is list or kind is tuple:
        if [*map(type, each)].count(int) == len(each):  # the fastest test
            return tuple(each)
    elif kind is Profile:  # a hash of all its fields would cost more than the rest; see `Plan.held`
        return kind, id(each)
    elif kind is bool or isinstance(each, np.dtype) or checks.torch_name(each):  # can equal a number or name
        return kind, each
    raise TypeError(f"a {kind.__name__} is no plain value")


def _position(described: Callable[..., Any], name: str) -> int:
    """Return the position of an argument that needs no name, else a number beyond all positions."""
    places = list(inspect.signature(described).parameters.values())[1:]  # the first is the call
    names = [place.name for place in places if place.kind is place.POSITIONAL_OR_KEYWORD]
    return names.index(name) if name in names else sys.maxsize


def planned(
    described: Callable[Concatenate[DeviceCall, P], T], inputs: int, optional: str = "", value: str = "",
    operation: str = "",
) -> Callable[[Callable[[DeviceCall, T], None]], Callable[P, Any]]:  # fmt: skip
    """Return a decorator that makes a launcher of an operation out of the function that launches its kernels.

    Args:
        described: the operation's description, which checks the arguments; the first `inputs` of them are arrays, and
            `out` may take the results.
        inputs: how many.
        optional: an argument behind those that may hold one more input, last among the inputs, or None.
        value: a keyword whose value may change from call to call without making another kind of call (`Launch`).
        operation: the name of the operation, where it is not that of the description.

    Returns:
        A decorator of a function of the call and the checked arguments.
    """

    def decorate(run: Callable[[DeviceCall, T], None]) -> Callable[P, Any]:
        called = operation or described.__name__
        name, at = f"{run.__module__}.{run.__name__}.{called}", _position(described, optional)
        changing = tuple(filter(None, (optional, value)))

        def kind_of(args: Any, out: tuple[Any, ...] | None, kwargs: dict[str, Any]) -> Any:
            """Return (key, addresses); LookupError unless arrays of CuPy's or torch's own type are in their places."""
            count, out = (-1, ()) if out is None else (len(out), out)
            signature = arrays.SIGNATURES[type(args[inputs - 1])]
            more = args[at] if at < len(args) else kwargs.get(optional) if kwargs else None
            key, places = [name, count, more is None], []
            for x in args[:inputs] + out if more is None else (*args[:inputs], more, *out):
                place, kind = signature(x)
                places.append(place)
                key.append(kind)
            if len(args) > inputs:
                for each in args[inputs:at] + args[at + 1 :]:
                    key.append(_plain(each))
            for option, each in kwargs.items():
                if option not in changing:
                    key += KEYWORD, option, _plain(each)
                elif option != optional:
                    key += KEYWORD, option, each is None
                elif at < len(args):
                    raise TypeError(f"{optional} was given twice")
            return tuple(key), tuple(places)

        @public(described, run)
        def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            given = None if out is None else tuple(out) if type(out) in (tuple, list) else (out,)
            key = plan = None
            try:
                key, places = kind_of(args, given, kwargs)
                plan = _plans.get(key)
            except (TypeError, AttributeError, RuntimeError, LookupError):  # the full checks name the error
                key = None
            if plan is not None:
                done = plan.replay(places, given or (), kwargs.get(value) if kwargs else None)
                if done is not None:
                    return done
            made = DeviceCall(called, key is not None)
            try:
                run(made, cast(Any, described)(made, *args, out=out, **kwargs))
                if key is not None:
                    _keep(key, made, [each for each in (*args, *kwargs.values()) if type(each) is Profile])
                return made.finish()
            finally:
                made.wait_if_lent()

        return cast(Callable[P, Any], call)

    return decorate
