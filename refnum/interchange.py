"""The door of the golden functions: tensors of torch, arrays of other libraries, lists and numbers (clause N0).

`refnum.NAME` is the golden function of that name behind `door`: arguments become NumPy arrays, or CuPy arrays for
tensors that lie on a CUDA device where CuPy is installed, and a torch tensor among them makes the results torch
tensors on its device. Bits are taken as they are: no number is rounded but those of a list, which have no dtype.
The functions of `refnum.layouts` and `refnum.philox` get their doors when the module is loaded (`door_module`).
torch is never imported here: a process that has a torch tensor has imported it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from .argument_kinds import CODED, HELD, KINDS, LAYOUT, OTHERWISE, STORED
from .arrays import BFLOAT16, GIVE
from .errors import ArgumentError, DtypeError, shown
from .formats import Format
from .profiles import Profile

Array = Any

_NUMBERS = (bool, int, float, list, tuple)
_AT_ONCE = (np.ndarray, str, bool, type(None), Profile, Format)


def door(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a golden function that takes arrays of any library; one without array arguments as it is.

    The signature that `help` shows names a profile and a format; the function called is `__wrapped__`.
    """
    signature = inspect.signature(function)
    kinds = {name: kind for name, kind in KINDS.items() if name in signature.parameters}
    kinds |= OTHERWISE.get(function.__name__, {})
    kinds = {name: kind for name, kind in kinds.items() if kind}
    if not set(kinds) - {"dtype", "out"}:
        return function

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        if all(map(_plain, given)) and all(map(_plain, named.values())):
            return _each(_row_major, function(*given, **named))
        try:
            bound = signature.bind(*given, **named)
        except TypeError:  # an argument too many or too few: Python's own words name the function
            return function(*given, **named)
        return _called(function, bound, kinds)

    call.__module__ = __package__ or ""
    call.__signature__ = _short(signature)  # type: ignore[attr-defined]
    return call


def door_module(module: ModuleType) -> None:
    """Put the public functions of a module behind doors, where they are."""
    for name, function in list(vars(module).items()):
        own = inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
        if own and (behind := door(function)) is not function:
            behind.__module__ = module.__name__
            setattr(module, name, behind)


def _plain(value: Any) -> bool:
    """Whether an argument needs no look: an array of NumPy's own dtypes, or no array at all."""
    return type(value) in _AT_ONCE and (type(value) is not np.ndarray or value.dtype.isbuiltin == 1)


def _short(signature: inspect.Signature) -> inspect.Signature:
    """Name the profile or the format that is a default, in place of all its fields."""
    return signature.replace(
        parameters=[
            p.replace(default=p.default.name) if isinstance(p.default, Profile | Format) else p
            for p in signature.parameters.values()
        ]
    )


def _called(function: Callable[..., Any], bound: inspect.BoundArguments, kinds: Mapping[str, str]) -> Any:
    arguments = bound.arguments
    tensors = {name: value for name, value in _values(arguments, kinds) if _torch_of(value)}
    place = _Place(tensors)
    for name in kinds.keys() & arguments.keys():
        arguments[name] = _taken(name, kinds[name], arguments, place)
    return _each(place.back, _each(_row_major, function(*bound.args, **bound.kwargs)))


def _each(change: Callable[[Any], Any], result: Any) -> Any:
    """A result with each array in it changed: of a tuple its parts, of a state its moments."""
    if hasattr(result, "__array_function__"):
        return change(result)
    if isinstance(result, tuple):
        return tuple(_each(change, part) for part in result)
    if moments := _moments(result):
        return replace(result, **{field: change(getattr(result, field)) for field in moments})
    return change(result)


def _row_major(result: Any) -> Any:
    """Return an array in row-major order; element by element NumPy and CuPy keep the order of axes that inputs have."""
    dense = not hasattr(result, "__array_function__") or result.flags.c_contiguous
    return result if dense else result.copy()


def _values(arguments: Mapping[str, Any], kinds: Mapping[str, str]) -> list[tuple[str, Any]]:
    """The arrays of a call by name, those of a case included."""
    found: list[tuple[str, Any]] = []
    for name in kinds.keys() & arguments.keys():
        value = arguments[name]
        if kinds[name] == "case" and isinstance(value, Mapping):
            found += [(str(key), item) for key, item in value.items()]
        elif kinds[name] == "words" and isinstance(value, (list, tuple)):
            found += [(f"{name}[{number}]", item) for number, item in enumerate(value)]
        elif kinds[name] == "state":
            found += [(f"{name}.{field}", getattr(value, field)) for field in _moments(value)]
        elif kinds[name] != "dtype":
            found.append((name, value))
    return found


def _moments(state: Any) -> tuple[str, ...]:
    """The fields of an optimiser's state that are arrays; none of what is no state."""
    known = is_dataclass(state) and hasattr(state, "m") and hasattr(state, "v")
    return ("m", "v") if known and not isinstance(state, type) else ()


def _taken(name: str, kind: str, arguments: Mapping[str, Any], place: _Place) -> Any:
    """One argument as the model takes it."""
    value = arguments[name]
    if value is None:
        return None
    if kind == "dtype":
        torch = sys.modules.get("torch")
        return str(value).removeprefix("torch.") if torch and isinstance(value, torch.dtype) else value
    if kind in _WHOLE:
        return _WHOLE[kind](name, value, place)
    return _array(name, kind, value, arguments, place)


def _array(name: str, kind: str, value: Any, arguments: Mapping[str, Any], place: _Place) -> Any:
    if kind == "exponents" and isinstance(value, (int, np.integer)):
        return value
    holds = _holds(kind, arguments)
    if isinstance(value, _NUMBERS) and not isinstance(value, (bool, np.generic)):
        return place.put(_from_numbers(name, holds, value))
    if _torch_of(value):
        return place.from_torch(name, holds, value)
    return place.put(_as_bits(holds, _native(name, value)))


def _case(name: str, value: Any, place: _Place) -> Any:
    """The arguments of `explain` by name; what is no mapping is for it to judge."""
    if not isinstance(value, Mapping):
        return value
    kinds = {name: kind for name, kind in KINDS.items() if name in value and kind not in ("dtype", "case")}
    return {**value, **{name: _taken(name, kind, value, place) for name, kind in kinds.items()}}


def _state(name: str, state: Any, place: _Place) -> Any:
    """The state of an optimiser with its moments as arrays; what is no state is for the step to judge."""
    moments = {
        field: _array(f"{name}.{field}", "float32", getattr(state, field), {}, place) for field in _moments(state)
    }
    return replace(state, **moments) if moments else state


def _words(name: str, value: Any, place: _Place) -> Any:
    """Counter words: one array of them all, or a sequence of arrays, lists and integers."""
    if not isinstance(value, (list, tuple)):
        return _words_of(name, value, place)
    return [_words_of(f"{name}[{number}]", word, place) for number, word in enumerate(value)]


def _words_of(name: str, word: Any, place: _Place) -> Any:
    readable = isinstance(word, (list, tuple)) or hasattr(word, "__array__") or hasattr(word, "__dlpack__")
    return _array(name, "integers", word, {}, place) if readable and not isinstance(word, np.generic) else word


def _like(name: str, value: Any, place: _Place) -> Any:
    """An array of the library, and on the device, that a result is made with."""
    if _torch_of(value):
        return place.put(np.empty(0, np.uint8))
    return value if isinstance(value, (*_NUMBERS, np.generic)) else _native(name, value)


def _measured(name: str, value: Any, place: _Place) -> Any:
    """A number that was measured elsewhere: an array of one; Python's own numbers are for the step to judge."""
    plain = isinstance(value, (*_NUMBERS, np.generic)) or value is None
    return value if plain else _array(name, "float32", value, {}, place)


_WHOLE: dict[str, Callable[[str, Any, _Place], Any]] = {
    "case": _case,
    "state": _state,
    "words": _words,
    "like": _like,
    "measured": _measured,
}
"""Kinds of arguments that are no array of one dtype -> how they are taken."""


def _holds(kind: str, arguments: Mapping[str, Any]) -> str:
    """Replace `@argument` by the name of the format that the argument gives, E4M3 or E2M1 where it is left out."""
    if kind in LAYOUT:
        return STORED.get(str(arguments.get(LAYOUT[kind])), "E8M0")
    if not kind.startswith("@"):
        return kind
    given = arguments.get(kind[1:], "E2M1" if kind == "@element" else "E4M3")
    return given.name if isinstance(given, Format) else str(given)


# ------------------------------------------------------------------------------------------------- to NumPy


def _from_numbers(name: str, holds: str, value: Any) -> np.ndarray:
    """Return numbers as an array: float32, rounded once to nearest even; codes and other integers as they are."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        raise DtypeError(f"{name} is {shown(value)}, which makes no array of numbers; {GIVE}") from None
    if array.dtype.kind not in "iuf" and array.dtype.kind != "V":
        raise DtypeError(f"{name} is {shown(value)}, which makes no array of numbers; {GIVE}")
    if array.dtype not in (np.float64, np.int64, np.uint64):  # rows that are arrays have a dtype
        return _as_bits(holds, array)
    if holds == "int32":
        return _signed(array)
    if holds not in ("float32", "bfloat16") and (array.dtype.kind != "f" or not array.size):
        return _narrowed(array)
    return _rounded(name, array, holds) if holds in ("float32", "bfloat16", "E8M0") else array


def _narrowed(array: np.ndarray) -> np.ndarray:
    """Integers of at least 0 in the least unsigned dtype; others, which the model judges, as int64."""
    if not array.size:
        return array.astype(np.uint8)
    return array.astype(np.min_scalar_type(int(array.max()))) if int(array.min()) >= 0 else array


def _signed(array: np.ndarray) -> np.ndarray:
    """Integers that int32 holds as int32; others, which the model judges, as they are."""
    narrow = array.astype(np.int32) if array.dtype.kind in "iu" or not array.size else array
    return narrow if np.array_equal(narrow, array) else array


def _rounded(name: str, array: np.ndarray, holds: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        single = array.astype(np.float32)
    if bool((np.isinf(single) & np.isfinite(array)).any()):
        raise DtypeError(f"{name} holds a number of 2**128 or more, which float32 cannot hold; give smaller ones")
    if holds != "bfloat16":
        return single
    bits = single.view(np.uint32)
    if bool((bits & np.uint32(0xFFFF)).any()):
        raise DtypeError(f"{name} holds a number that is no bfloat16; round it yourself, once, to a bfloat16 array")
    return (bits >> np.uint32(16)).astype(np.uint16).view(BFLOAT16)


def _native(name: str, value: Any) -> Array:
    """Return an array of NumPy or CuPy as it is, that of another library as NumPy's."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(getattr(value, "dtype", None), np.dtype) and hasattr(value, "__array_function__"):
        return value
    try:
        if hasattr(value, "__array__") and not isinstance(value, type):  # before DLPack, which has no bfloat16 in NumPy
            return np.asarray(value)
        if hasattr(value, "__dlpack__") and not isinstance(value, type):
            return np.from_dlpack(value)
    except Exception as error:  # code of another library
        words = next(iter(str(error).splitlines()), "")[:200]
        raise DtypeError(f"{name} is a {type(value).__name__} that cannot be read: {words}; {GIVE}") from error
    raise DtypeError(f"{name} is a {type(value).__name__}; {GIVE}")


def _as_bits(holds: str, array: Array) -> Array:
    """Codes in the dtype of their own format as unsigned integers; any other array as it is, for the model to judge."""
    if CODED.get(array.dtype.name) == holds:
        return array.view(f"u{array.dtype.itemsize}")
    return array


# ------------------------------------------------------------------------------------------- torch, there and back


def _torch_of(value: Any) -> ModuleType | None:
    """Return torch where the value is a tensor of it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(value, getattr(torch, "Tensor", ())) else None


class _Place:
    """Where a call is computed: on the host, or with CuPy on the CUDA device of its tensors.

    Raises ArgumentError for tensors on several devices.
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self.torch = next(map(_torch_of, tensors.values()), None)
        devices = {str(tensor.device): tensor.device for tensor in tensors.values()}
        if len(devices) > 1:
            where = ", ".join(f"{name} on {tensor.device}" for name, tensor in sorted(tensors.items()))
            raise ArgumentError(f"tensors lie on several devices ({where}); move them to one")
        self.device: Any = next(iter(devices.values()), None)
        self.cupy = _cupy() if self.device is not None and self.device.type == "cuda" else None

    def put(self, array: Array) -> Array:
        """Return an array that is no tensor where the call is computed."""
        if self.cupy is None or not isinstance(array, np.ndarray):
            return array
        with self.cupy.cuda.Device(self.device.index):
            return self.cupy.asarray(array.view(np.uint16) if array.dtype == BFLOAT16 else array)

    def from_torch(self, name: str, holds: str, tensor: Any) -> Array:
        """Return the bits of a tensor, without a copy where it lies on the host or CuPy is there."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        coded = CODED.get(dtype)
        if coded not in (None, "BF16", holds):
            raise DtypeError(f"{name} has dtype {tensor.dtype}; it holds {HELD.get(holds, f'{holds} codes')}")
        try:
            plain = tensor.detach()
            if coded is not None:
                plain = plain.view(self.torch.int16 if coded == "BF16" else self.torch.uint8)  # type: ignore[union-attr]
            array = plain.cpu().numpy() if self.cupy is None else self.cupy.from_dlpack(plain)
        except Exception as error:  # sparse, quantised and fake tensors, and dtypes that NumPy does not have
            words = next(iter(str(error).splitlines()), "")[:200]
            raise DtypeError(f"{name} is a tensor of {tensor.dtype} that cannot be read: {words}; {GIVE}") from error
        if coded != "BF16":
            return array
        bits = array.view(np.uint16)
        return bits if holds == "BF16" or self.cupy is not None else bits.view(BFLOAT16)

    def back(self, result: Any) -> Any:
        """Return an array as a tensor on the device of the call's tensors; as it is where there are none."""
        if self.torch is None:
            return result
        if isinstance(result, np.generic):
            result = np.asarray(result)
        if not hasattr(result, "__array_function__"):
            return result
        half = result.dtype == BFLOAT16
        bits = result.view(np.int16) if half else result
        if self.cupy is None:
            tensor = self.torch.from_numpy(bits if bits.flags.writeable else bits.copy()).to(self.device)
        else:
            tensor = self.torch.from_dlpack(bits)
        return tensor.view(self.torch.bfloat16) if half else tensor


def _cupy() -> ModuleType | None:
    """Return CuPy where it is installed and finds a device."""
    try:
        import cupy
    except ImportError:
        return None
    return cupy if cupy.cuda.is_available() else None
