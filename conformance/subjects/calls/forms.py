"""Calls in other forms: arrays that lie elsewhere, counts in other sequences, arguments left out, results into `out`.

The form of a call is the parameter `form` of its case (`cases.structure`), so that whatever calls a case, in whichever
process, calls it in its form.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import refnum
from refnum.errors import UnsupportedError

from ...cases.case import FORM, Case
from ...cases.layouts import PLAIN, in_dtype
from ...cases.operation import OPERATIONS
from ...cases.same_bytes import same
from ...cases.structure.byte_order import OTHER, other_dtype
from ..arrays import overwrite, to_library, to_numpy

ALIGN, SLACK, MOST_KEPT = 128, 256, 1 << 14
"""Bytes whose multiples addresses are counted from, of poison around an array, and of a place that is kept."""
Form = Mapping[str, Any]


def form_of(case: Case) -> Form:
    """Return the form of a case's call: factor -> level, empty for a plain call."""
    return case.params.get(FORM) or {}


def turned(case: Case) -> frozenset[tuple[int, ...]]:
    """Return the shapes of inputs whose columns lie together: the axes of such results may lie in any order."""
    form, storages = form_of(case), ("transposed", "broadcast rows")
    return frozenset(array.shape for name, array in case.inputs.items() if form.get(f"{name}.storage") in storages)


class Placed:
    """An array of a library in a storage of its own, amid poison.

    array: what a kernel is given. before: all bytes around and in it, as they were before a call. beside: which of them
    are no elements of it.
    """

    def __init__(self, like: np.ndarray, library: str, storage: str, address: int, poison: int) -> None:
        """Place an array like this one.

        Args:
            like: shape and dtype. library: as in `arrays.LIBRARIES`. storage: a level of `factors.STORAGES`.
            address: bytes beyond a multiple of 128, rounded down to whole elements. poison: the byte around it.
        Raises: UnsupportedError for a storage that the library does not have.
        """
        if library == "jax" or (library.startswith("torch") and storage.startswith("reversed")):
            raise UnsupportedError(f"{library} has no arrays in the storage {storage!r}")
        if library != "numpy" and not like.dtype.isnative:
            raise UnsupportedError(f"{library} has no arrays of {like.dtype}")
        dtype = np.dtype(np.uint16) if library == "cupy" and like.dtype.name == "bfloat16" else like.dtype
        shape = base_shape(like.shape, storage, dtype.itemsize)
        size, self.poison = int(np.prod(shape)) * dtype.itemsize, poison
        self.before = np.full(size + ALIGN + 2 * SLACK, poison, np.uint8)
        self.flat = to_library(self.before.copy(), library)
        start = SLACK + (address // dtype.itemsize * dtype.itemsize - _pointer(self.flat) - SLACK) % ALIGN
        part = self.flat[start : start + size]
        self.storage, self.shape, self.bits = storage, shape, np.dtype(f"u{dtype.itemsize}")
        self.array = view_in(_shaped(part, dtype, shape, library), storage, like.shape)
        self.base = slice(start, start + size)
        self.beside = np.ones(len(self.flat), bool)
        gaps = _gaps if size <= MOST_KEPT else _gaps.__wrapped__
        self.beside[self.base] = gaps(like.shape, shape, storage, dtype.itemsize)

    def fill(self, data: np.ndarray, library: str) -> None:
        """Write the elements: into the bytes as they are known here, and these at once."""
        if data.size:
            whole, broadcast = self.before[self.base].view(self.bits).reshape(self.shape), "broadcast" in self.storage
            target = held(whole, self.storage) if broadcast else view_in(whole, self.storage, data.shape)
            target[...] = data.view(self.bits)[tuple(slice(0, side) for side in target.shape)]
            overwrite(self.flat, self.before, library)
            to_numpy(self.flat[:1])  # on a device: once all of it is there, whichever stream reads it

    def trespass(self) -> str:
        """Return `before`, `after` or `between the elements of`, where bytes beside the elements changed."""
        now = to_numpy(self.flat)
        if same(now, self.before):
            return ""
        changed = np.flatnonzero((now != self.before) & self.beside)
        if not changed.size:
            return ""
        if changed[0] < self.base.start:
            return "before"
        return "after" if changed[-1] >= self.base.stop else "between the elements of"


def _pointer(flat: Any) -> int:
    if hasattr(flat, "data_ptr"):
        return int(flat.data_ptr())
    interface = getattr(flat, "__cuda_array_interface__", None) or flat.__array_interface__
    return int(interface["data"][0])


def _shaped(part: Any, dtype: np.dtype, shape: tuple[int, ...], library: str) -> Any:
    if not library.startswith("torch"):
        return part.view(dtype).reshape(shape)
    import torch

    return part.view(getattr(torch, dtype.name)).reshape(shape)


@functools.lru_cache(maxsize=256)
def _gaps(shape: tuple[int, ...], whole: tuple[int, ...], storage: str, itemsize: int) -> np.ndarray | bool:
    """Return which bytes of a whole are no elements of the array of a shape that a storage is; False where none is."""
    if storage.startswith("broadcast") or whole == shape:
        return False
    elements = np.zeros(whole, bool)
    view_in(elements, storage, shape)[...] = True
    return ~np.repeat(elements.reshape(-1), itemsize)


def base_shape(shape: tuple[int, ...], storage: str, itemsize: int) -> tuple[int, ...]:
    """Return the shape of the whole of which a storage is a part."""
    if not shape or storage == "contiguous":
        return shape
    first, last = shape[0], shape[-1]
    if storage == "row gap":
        return (*shape[:-1], last + (16 + -last * itemsize % 16) // itemsize)
    if storage == "odd rows":
        return (*shape[:-1], last + 1)
    if storage == "element gap":
        return (*shape[:-1], 2 * last)
    if storage == "transposed":
        return (*shape[:-2], *shape[-2:][::-1])
    if storage == "every other row":
        return (2 * first, *shape[1:])
    if storage == "broadcast rows" and len(shape) > 1:
        return (min(first, 1), *shape[1:])
    return (*shape[:-1], min(last, 1)) if storage == "broadcast columns" else shape


def view_in(whole: Any, storage: str, shape: tuple[int, ...]) -> Any:
    """Return the part of a whole that a storage is."""
    if not shape:
        return whole
    if storage in ("row gap", "odd rows"):
        return whole[..., : shape[-1]]
    if storage == "element gap":
        return whole[..., ::2]
    if storage == "transposed":
        return whole.swapaxes(-1, -2) if len(shape) > 1 else whole
    if storage == "every other row":
        return whole[::2]
    if storage == "reversed rows":
        return whole[::-1]
    if storage == "reversed columns":
        return whole[..., ::-1]
    one = held(whole, storage)
    if storage.startswith("broadcast") and tuple(one.shape) != shape:
        return one.expand(shape) if hasattr(one, "expand") else np.broadcast_to(one, shape)
    return whole


def held(whole: Any, storage: str) -> Any:
    """Return the part of a whole that has the elements of a broadcast storage: all, or the first column alone."""
    return whole[..., :1] if storage == "broadcast columns of whole rows" else whole


def laid_in_form(
    case: Case, inputs: Mapping[str, np.ndarray], library: str, poison: int
) -> tuple[dict[str, Any], dict]:
    """Return a case's inputs as its form lays them out, and what watches over each.

    Raises UnsupportedError for a form that the library does not have.
    """
    form, zones = form_of(case), {}
    for name, array in inputs.items():
        storage, address = form.get(f"{name}.storage", "contiguous"), int(form.get(f"{name}.address", 0))
        zones[name] = Placed(array, library, storage, address, poison)
        zones[name].fill(array, library)
        if storage == "read-only" and library == "numpy":
            zones[name].array.flags.writeable = False
    return {name: zone.array for name, zone in zones.items()}, zones


def counts_in_form(case: Case) -> dict[str, Any]:
    """Return the splits as their form says, empty when they are a list."""
    level = form_of(case).get("splits")
    if level is None or case.params.get("splits") is None:
        return {}
    given = [int(count) for count in case.params["splits"]]
    if level == "tuple":
        return {"splits": tuple(given)}
    if level == "numpy integers":
        return {"splits": [np.int64(count) for count in given]}
    if level == "matrix":
        return {"splits": np.array([given], np.int64)}
    if level == "range":
        return {"splits": _as_range(given)}
    return {"splits": _as_array(given, str(level).removesuffix(" array"))}


def _as_range(counts: list[int]) -> Sequence[int]:
    """Return counts as a range, or as they are where they are not in step."""
    step = (counts[1] - counts[0] if len(counts) > 1 else 1) or 1
    found = range(counts[0], counts[-1] + (1 if step > 0 else -1), step) if counts else range(0)
    return found if list(found) == counts else counts


def _as_array(counts: list[int], level: str) -> np.ndarray:
    """Return counts in an array: of a dtype, or as a level of `factors.SPLITS` says."""
    least, most = min(counts, default=0), max(counts, default=0)
    if level.startswith("narrow"):
        return np.array(counts, np.min_scalar_type(min(least, -most - 1) if level == "narrow signed" else most))
    wide = np.array(counts, np.int64 if level in ("strided", "reversed", "read-only") else level)
    if level == "strided":
        return np.repeat(wide, 2)[::2]
    wide.flags.writeable = level != "read-only"
    return wide[::-1].copy()[::-1] if level == "reversed" else wide


def same_counts(counts: Any, asked: Any) -> bool:
    """Whether the splits that a call was given are still those of its case."""
    if not isinstance(asked, list) or counts is None or (len(asked) and isinstance(asked[0], list)):
        return True
    if isinstance(counts, list | tuple | range):
        return list(counts) == asked
    host = counts if isinstance(counts, np.ndarray) else to_numpy(counts)  # NumPy's may have any byte order
    return bool(host.reshape(-1).tolist() == asked)


def changed_list(arguments: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Return the name of an argument in a sequence, such as `splits` or a ratio, that a call changed; or nothing."""
    for name, asked in params.items():
        given = arguments.get(name)
        changed = isinstance(asked, list) and isinstance(given, list) and given != asked
        if changed or (name == "splits" and not same_counts(given, asked)):
            return name
    return ""


def scalars_in_form(case: Case, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of a call with NumPy's scalars, or without those at their default."""
    form, row = form_of(case), OPERATIONS[case.operation]
    if form.get("profile") == "name" and "profile" in arguments:
        arguments = {**arguments, "profile": case.profile}
    if form.get("profile") == "copy" and isinstance(arguments.get("profile"), refnum.Profile):
        arguments = {**arguments, "profile": replace(arguments["profile"])}
    if form.get("scalars") == "omitted":
        defaults = {**dict.fromkeys(row.layouts, PLAIN), **row.defaults()}
        return {
            name: value
            for name, value in arguments.items()
            if not (
                name in defaults
                and name not in _required(row.name)
                and (list(value) if name == "tile" else value) == defaults[name]
            )
            and not (name == "profile" and case.profile == "HOPPER")
        }
    if form.get("scalars") == "numpy":
        return {name: _numpy_scalar(name, value) for name, value in arguments.items()}
    if form.get("scalars") == "narrow":
        return {name: _narrow(value) for name, value in arguments.items()}
    return arguments


@functools.cache
def _required(operation: str) -> frozenset[str]:
    """Return the arguments of a golden function that have no default."""
    parameters = inspect.signature(getattr(refnum, operation)).parameters.values()
    return frozenset(one.name for one in parameters if one.default is one.empty)


def _numpy_scalar(name: str, value: Any) -> Any:
    if name == "dtype" and value in ("float32",):
        return np.dtype(value)
    if isinstance(value, bool):
        return np.bool_(value)
    if name in ("tokens", "align", "divisor", "n0"):
        return np.int32(value)
    if isinstance(value, list) and name != "splits":
        return tuple(value)
    return [np.int64(side) for side in value] if name == "tile" else value


def _narrow(value: Any) -> Any:
    """Return whole numbers, and those of a ratio, a tile or a key, in the least dtype that holds each."""
    if isinstance(value, int) and not isinstance(value, bool):
        return np.min_scalar_type(value).type(value)
    if isinstance(value, list | tuple) and value and all(type(part) is int for part in value):
        return type(value)(map(_narrow, value))
    return value


_UNFIT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "one row short": lambda like: like[:-1],
    "one row long": lambda like: np.concatenate([like, like[:1]]),
    "a wider dtype": lambda like: like.astype(f"i{2 * like.itemsize}" if like.itemsize < 8 else "f8"),
    "another dtype": lambda like: like.view(f"{'u' if like.dtype.kind == 'i' else 'i'}{like.itemsize}"),
    "read-only": lambda like: like,
}
"""Arrays that are no `out` of an operation, by level."""
_COUNTS: dict[str, Callable[[tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]] = {
    "one array short": lambda like: like[:-1],
    "one array more": lambda like: (*like, like[0]),
}
"""Too few or too many arrays, by level."""


def as_out(case: Case, places: Sequence[Placed]) -> Any:
    """Return what a call is given as `out`: one array, a tuple, or a list where the case's form says so."""
    outs = tuple(place.array for place in places)
    if len(outs) == 1:
        return outs[0]
    return list(outs) if form_of(case).get("out.sequence") == "list" else outs


def out_in_form(case: Case, like: tuple[np.ndarray, ...], library: str, poison: int) -> list[Placed]:
    """Return a place for every output, filled with poison, as the form says."""
    form = form_of(case)
    if form["out"] in _COUNTS:
        return [Placed(one, library, "contiguous", 0, poison) for one in _COUNTS[form["out"]](like)]
    if form["out"] == OTHER:
        return [Placed(in_dtype(one, other_dtype(one) or None), library, "contiguous", 0, poison) for one in like]
    if form["out"] in _UNFIT:
        like = (_UNFIT[form["out"]](like[0]), *like[1:])
        places = [Placed(one, library, "contiguous", 0, poison) for one in like]
        if form["out"] == "read-only" and library == "numpy":
            places[0].array.flags.writeable = False
        return places
    address = int(form.get("out.address", 0))
    return [Placed(one, library, out_storage(form, place), address, poison) for place, one in enumerate(like)]


def out_storage(form: Form, place: int) -> str:
    """Return the storage of one of the arrays of `out`: that of all, or a row gap in the first, or in the others."""
    level = str(form["out"])
    if level in ("gap in the first", "gap in the others"):
        return "row gap" if (place == 0) == (level == "gap in the first") else "contiguous"
    return level
