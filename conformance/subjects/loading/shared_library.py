"""A shared library as a subject: a TOML file beside it says which C functions it has and what they take.

The file and the way in which the functions are called are the guide `docs/guides/c-abi.md`, with the schema
`schema/library.schema.json` here. Outputs are filled with poison before the call and lie between guard zones, which
must not be written.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from refnum.errors import ArgumentError, FileError, UnsupportedError
from refnum.profiles import get_profile, profile_name

from ...cases.case import Case
from ...cases.contracts import checked_contract
from ...cases.entry import WORDS, Operation, Output
from ...cases.operation import OPERATIONS, near, outputs_of
from ..arrays import Guarded
from .declare import AnyOf, Limits
from .failure import LIBRARY, KernelFailed, require_schema, see
from .shapes import case_of, output_specs

POISON = 0xCD
MEMORIES = {"host": "numpy", "device": "cupy"}
RETURNS = {"int": ctypes.c_int, "void": None}
"""What a function may return by its declaration: a status, or nothing."""
_KEYS = {"name", "profiles", "level", "inputs", "memory", "library", "source", "operations"}
_OPERATION_KEYS = {"symbol", "arguments", "returns", "source", "dtypes", "rows", "columns", "max_elements"}
_STREAM = ctypes.c_void_p(0)
"""What stands for the stream among the arguments: NULL on the host, the caller's current stream on a device."""
_SIZE = re.compile(r"(rows|columns|size)\((\w+)\)")


def from_library(path: Path) -> dict[str, Any]:
    """Return the subject entry of a shared library, or of its declaration.

    path: the library, with a declaration of the same name and suffix `.toml` beside it, or that declaration.
    Raises FileError for a missing or unreadable file, ArgumentError for a declaration that is off.
    """
    text = path if path.suffix == ".toml" else path.with_suffix(".toml")
    if not text.is_file():
        raise FileError(f"No declaration {text}; write one beside the library, {see(LIBRARY)}.")
    try:
        said = tomllib.loads(text.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{text} cannot be read: {error}; {see(LIBRARY)}.") from error
    _only(said, _KEYS, text)
    require_schema(said, LIBRARY, text)
    memory = said.get("memory", "host")
    library = text.parent / said.get("library", path.name if path.suffix != ".toml" else text.stem + ".so")
    if not said.get("operations"):
        raise ArgumentError(f"{text} has no [operations.NAME]: there is nothing to judge; {see(LIBRARY)}.")
    profiles = [profile_name(get_profile(name)) for name in said.get("profiles") or ()]
    operations = {
        name: _function(library, name, one, memory, profiles, text) for name, one in said["operations"].items()
    }
    return {
        "name": said.get("name", text.stem),
        "operations": operations,
        "profiles": profiles or None,
        "level": said.get("level", 0),
        "inputs": checked_contract(said.get("inputs"), str(text)),
        "arrays": MEMORIES[memory],
        "outside": _limits(said["operations"]),
        "available": lambda: _usable(library, said["operations"]),
        "describe": lambda: {"library": library, "declaration": text},
    }


def _usable(library: Path, operations: dict[str, Any]) -> tuple[bool, str]:
    """Return whether a library is there and has every function of its declaration, and why not."""
    if not library.is_file():
        return False, f"no library {library}"
    try:
        for name, one in operations.items():
            _loaded(library, one.get("symbol", name), one.get("returns", "int"))
    except FileError as error:
        return False, str(error).removesuffix(".")
    return True, ""


def _limits(operations: dict[str, Any]) -> Any:
    keys = ("dtypes", "rows", "columns", "max_elements")
    given = {name: {key: one[key] for key in keys if key in one} for name, one in operations.items()}
    return AnyOf({name: Limits(**{**one, "dtypes": tuple(one.get("dtypes", ()))}) for name, one in given.items()})


def _only(said: dict[str, Any], allowed: set[str], where: Path) -> None:
    unknown = sorted(set(said) - allowed)
    if unknown:
        raise ArgumentError(f"{where} has unknown keys {unknown}; allowed are {sorted(allowed)}; {see(LIBRARY)}.")


def _function(
    library: Path, name: str, said: dict[str, Any], memory: str, profiles: list[str], where: Path
) -> Callable[..., Any]:
    if name not in OPERATIONS:
        raise ArgumentError(
            f"{where}: no operation is named {name!r}{near(name)}; choose from {', '.join(OPERATIONS)}."
        )
    _only(said, _OPERATION_KEYS, where)
    operation = OPERATIONS[name]
    arguments = said.get("arguments") or [*operation.inputs, *map(_as_output(operation), operation.outputs)]
    for argument in arguments:
        _check(argument, operation, where)
    _check_outputs(arguments, operation, where)
    if "profile" in arguments and not profiles:
        raise ArgumentError(f"{where}: {name} takes `profile`, a place among `profiles`: declare them; {see(LIBRARY)}.")
    symbol, returns = said.get("symbol", name), said.get("returns", "int")

    named = {match[2] if (match := _SIZE.fullmatch(argument)) else argument for argument in arguments}

    def call(**keywords: Any) -> tuple[Any, ...]:
        case = case_of(operation, keywords)
        _refuse_unnamed(symbol, case, named)
        zones = {
            output.name: Guarded(np.empty(shape, dtype), MEMORIES[memory], POISON)
            for output, (shape, dtype) in zip(outputs_of(case), output_specs(case), strict=True)
        }
        outs = {_as_output(operation)(output): zones[output.name].array for output in outputs_of(case)}
        inputs = {key: keywords.get(key) for key in (*operation.inputs, *operation.optional)}
        given = [_argument(one, {**inputs, **outs}, case, profiles) for one in arguments]
        function = _loaded(library, symbol, returns)
        if memory == "host":
            code = function(*given)
        elif "stream" in arguments:
            code = function(*(ctypes.c_void_p(_stream()) if one is _STREAM else one for one in given))
        else:
            code = _between_streams(symbol, lambda: function(*given))
        if code == 1:
            raise UnsupportedError(f"{symbol} says that it does not support this case (it returned 1)")
        if code:
            raise KernelFailed(
                f"{symbol} returned {code}; allowed are 0, and 1 for a case it does not support", LIBRARY
            )
        told = dict(zip(arguments, given, strict=True)).get("splits")
        if told is not None and tuple(told) != tuple(case.params["splits"]):
            raise KernelFailed(f"{symbol} changed its argument splits, which are the caller's", LIBRARY)
        for output, zone in zones.items():
            if side := zone.trespass():
                raise KernelFailed(f"{symbol} wrote memory {side} the output {output}", LIBRARY)
        return tuple(zone.array for zone in zones.values())

    return _with_signature(call, operation, named)


def _with_signature(call: Callable[..., Any], operation: Operation, named: set[str]) -> Callable[..., Any]:
    """Let a function name the keywords that its library is told, so that it is judged on those."""
    arrays = [name for name in (*operation.inputs, *operation.optional) if name in named or name in operation.inputs]
    told = [name for name in (*operation.params, "splits", "tokens", "profile") if name in named]
    keywords = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in (*arrays, *told)]
    call.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    call.declares = True  # type: ignore[attr-defined]
    return call


def _refuse_unnamed(symbol: str, case: Case, named: set[str]) -> None:
    """Raise UnsupportedError for what a case has and the function is never told: its buffers would not fit it."""
    given = {name: value for name, value in case.params.items() if name not in ("input", *named) and value is not None}
    for name, value in given.items():
        choices = OPERATIONS[case.operation].params.get(name, (None,))
        if (list(value) if isinstance(value, tuple) else value) != choices[0]:
            raise UnsupportedError(f"{symbol} takes no {name!r}, so {name}={value} cannot be judged")
    unread = sorted(set(case.inputs) - named)
    if unread:
        raise UnsupportedError(f"{symbol} takes no {', '.join(unread)}")


def _as_output(operation: Operation) -> Callable[[Output], str]:
    """Return how an argument names an output: `out(NAME)` where an input has the name too."""
    return lambda output: f"out({output.name})" if output.name in operation.inputs else output.name


def _all_outputs(operation: Operation) -> list[str]:
    others = (output for outputs in operation.other_outputs.values() for output in outputs)
    return list(dict.fromkeys(map(_as_output(operation), (*operation.outputs, *others))))


def _check_outputs(arguments: list[str], operation: Operation, where: Path) -> None:
    """Raise ArgumentError where an output that every call has is not among the arguments, or something stands twice."""
    twice = sorted({one for one in arguments if arguments.count(one) > 1})
    if twice:
        raise ArgumentError(
            f"{where}: {operation.name} has {twice[0]} twice among its arguments; an output whose name an input "
            f"has too is out({twice[0]}), {see(LIBRARY)}."
        )
    always = [_as_output(operation)(output) for output in operation.outputs if not output.needs]
    lacking = [name for name in always if name not in arguments]
    if lacking:
        raise ArgumentError(
            f"{where}: {operation.name} has no {lacking[0]} among its arguments: nothing could be written there; "
            f"{see(LIBRARY)}."
        )


def _check(argument: str, operation: Operation, where: Path) -> None:
    arrays = {*operation.inputs, *operation.optional, *_all_outputs(operation)}
    match = _SIZE.fullmatch(argument)
    told = ("splits", "tokens", "stream", *(("profile",) if operation.profiled else ()))
    known = argument in arrays or argument in operation.params or argument in told
    if not known and not (match and match[2] in {*arrays, "splits"}):
        raise ArgumentError(
            f"{where}: {operation.name} has no argument {argument!r}; allowed are {', '.join(sorted(arrays))}, "
            f"rows(NAME), columns(NAME), size(NAME), {', '.join((*told, *operation.params))}; {see(LIBRARY)}."
        )


def _argument(text: str, arrays: dict[str, Any], case: Case, profiles: list[str]) -> Any:
    if text == "stream":
        return _STREAM
    if text == "tokens":
        return ctypes.c_int64(case.params["tokens"])
    if text == "profile":
        return ctypes.c_int32(profiles.index(case.profile))
    match = _SIZE.fullmatch(text)
    rows = case.params.get("splits")
    if text == "splits":
        return None if rows is None else (ctypes.c_int64 * len(rows))(*rows)
    if match:
        if match[2] == "splits":
            return ctypes.c_int64(len(rows or ()))
        array = arrays[match[2]]
        if array is None:
            return ctypes.c_int64(0)
        shape = array.shape or (1,)  # a scalar is one element
        sizes = {"rows": shape[0], "columns": shape[-1], "size": array.size}
        return ctypes.c_int64(sizes[match[1]])
    if text in arrays:
        array = arrays[text]
        wanted = _integers(text, case)
        if wanted and array is not None and array.dtype != wanted:  # a pointer does not say what it points at
            raise UnsupportedError(f"{text} is {array.dtype}; a library is given {wanted}")
        return None if array is None else ctypes.c_void_p(_address(array))
    if text in _all_outputs(OPERATIONS[case.operation]):  # one that this case does not have
        return None
    choices = OPERATIONS[case.operation].params[text]
    value = case.params.get(text, choices[0])
    value = list(value) if isinstance(value, tuple) else value
    if value not in choices:
        listed = ", ".join(map(str, choices))
        raise UnsupportedError(f"{text}={value} is no choice; a library is told {listed} by their places")
    return ctypes.c_int32(choices.index(value))


def _integers(name: str, case: Case) -> str:
    """Return the dtype of an input that may come as integers of several widths; empty for any other."""
    if name == "codes" and case.operation.startswith("decode_"):
        return "uint8"
    if name == "rbits":
        bits = get_profile(case.profile).random_bits
        return "uint8" if bits <= 8 else "uint16" if bits <= 16 else "uint32"
    return {"row_map": "int32", **dict.fromkeys(WORDS, "uint32")}.get(name, "")


def _stream() -> int:
    """Return the handle of the caller's current stream."""
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)


def _between_streams(symbol: str, call: Callable[[], Any]) -> Any:
    """Make a call that takes no stream, and so launches on the default one, in the order of the caller's stream."""
    import cupy

    current = cupy.cuda.get_current_stream()
    if current.ptr == 0:
        return call()
    if current.is_capturing():
        raise UnsupportedError(f"{symbol} takes no stream, so its launches cannot be recorded in a graph")
    current.synchronize()
    code = call()
    cupy.cuda.Stream.null.synchronize()
    return code


def _address(array: Any) -> int:
    if not array.flags.c_contiguous:
        raise UnsupportedError("a library is given contiguous arrays only: make it contiguous")
    return int(array.ctypes.data) if isinstance(array, np.ndarray) else int(array.data.ptr)


@functools.cache
def _loaded(library: Path, symbol: str, returns: str) -> Any:
    try:
        function = getattr(ctypes.CDLL(str(library.resolve())), symbol)
    except (OSError, AttributeError) as error:
        raise FileError(f"{library}: {error}.") from error
    function.restype = RETURNS[returns]
    return function
