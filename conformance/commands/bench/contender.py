"""Who is timed on a line: the subject's own kernel, or what a user would take in its place."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import refnum
from refnum.arrays import Array
from refnum.errors import UnsupportedError
from refnum.profiles import HOPPER

from ...cases import layouts
from ...cases.case import Case
from ...cases.contracts import contract_words, outside
from ...cases.operation import OPERATIONS
from ...subjects.arrays import to_numpy
from ...subjects.subject import Subject, arguments_for, takes
from .lines import Line

Results = tuple[Any, ...]


@dataclass(frozen=True)
class Prepared:
    """One call, made ready in the formats that the contender takes, on one set of buffers.

    call: launches it and returns its results. inputs: the arrays that it reads. canonical: its results as arrays
    of the golden model's library, shapes and dtypes.
    """

    call: Callable[[], Any]
    inputs: Sequence[Any]
    canonical: Callable[[Any], Sequence[Array]]


@dataclass(frozen=True)
class Contender:
    """A name, whether it is the subject, and how a case of a line is made ready for it.

    offers: (line) -> why it is not timed on this line, or an empty string. prepare: (case) -> Prepared.
    describe: versions, for the header. note: what is run, in a sentence. slow: whether a call takes so long that it is
    timed at the first shape alone, after all others. within: returns a context for its calls. tuning: whether it is the
    subject under another cut of its launches.
    """

    name: str
    offers: Callable[[Line], str]
    prepare: Callable[[Line, Case], Prepared]
    describe: Callable[[], dict[str, str]] = dict
    note: str = ""
    is_subject: bool = False
    slow: bool = False
    within: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    tuning: bool = False


def nbytes(arrays: Sequence[Any]) -> int:
    """Return the bytes of some arrays of any library, without those that are None."""
    return sum(int(x.nbytes) for x in arrays if x is not None)


def as_tuple(result: Any) -> Results:
    """Return the results of a call as a tuple, without those that are None."""
    return tuple(x for x in (result if isinstance(result, tuple | list) else (result,)) if x is not None)


def to_torch(x: Array) -> Any:
    """Return a torch tensor on the memory of a CuPy or NumPy array; uint16 becomes bfloat16."""
    import numpy as np
    import torch

    if x.dtype.name in ("uint16", "bfloat16"):
        return torch.from_dlpack(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_dlpack(x)


def from_torch(x: Any, like: Array) -> Array:
    """Return an array of the library of `like` on the memory of a torch tensor, bits kept."""
    import numpy as np
    import torch

    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    plain = x.detach().contiguous().view(bits)
    if isinstance(like, np.ndarray):
        array = plain.numpy()
    else:
        import cupy

        array = cupy.from_dlpack(plain)
    return array if x.element_size() in (1, 8) else array.view(f"u{x.element_size()}")


def as_written(function: Callable[..., Any], operation: str, arguments: dict[str, Any]) -> Callable[[], Any]:
    """Return the call as a user would write it: arrays by position, and by name what is not at its default."""
    arrays = [name for name in OPERATIONS[operation].inputs if name in arguments]
    golden = inspect.signature(getattr(refnum, operation)).parameters
    defaults = {
        name: value for name, value in OPERATIONS[operation].defaults().items()
        if name not in golden or golden[name].default is not inspect.Parameter.empty  # the others are always written
    } | {"splits": None, "profile": HOPPER}  # fmt: skip
    named = {
        key: value for key, value in arguments.items()
        if key not in arrays and (key not in defaults or not _equal(value, defaults[key]))
    }  # fmt: skip
    if list(inspect.signature(function).parameters)[: len(arrays)] != arrays:
        return lambda: function(**{name: arguments[name] for name in arrays}, **named)
    given = [arguments[name] for name in arrays]
    return lambda: function(*given, **named)


def _equal(one: Any, other: Any) -> bool:
    if hasattr(one, "dtype"):  # an array to write, where the default names a dtype
        return False
    plain = [list(x) if isinstance(x, tuple | list) else x for x in (one, other)]
    return bool(plain[0] == plain[1])


def _require_inside(subject: Subject, case: Case) -> None:
    """Raise UnsupportedError for a case that a subject's contract of inputs excludes."""
    if not subject.inputs:
        return
    words = outside(case.with_inputs({name: to_numpy(x) for name, x in case.inputs.items()}), subject.inputs)
    if words:
        raise UnsupportedError(f"{contract_words(subject.inputs)} excludes it: {words}")


def of_subject(subject: Subject) -> Contender:
    """Return the contender of a subject: its callables, given the arrays it asks for, `out` where it takes that."""

    def offers(line: Line) -> str:
        params = {**OPERATIONS[line.operation].defaults(), **line.params}
        return subject.refuses(line.operation, line.profile, params)

    def prepare(line: Line, case: Case) -> Prepared:
        _require_inside(subject, case)
        on_torch = subject.arrays.startswith("torch")
        arrays = {name: to_torch(x) if on_torch else x for name, x in layouts.stored_inputs(case).items()}
        function = subject.operations[line.operation]
        arguments = arguments_for(subject, case, arrays)
        like = next(iter(case.inputs.values()))
        canonical = (lambda found: [from_torch(x, like) for x in as_tuple(found)]) if on_torch else as_tuple
        call = as_written(function, line.operation, arguments)
        if takes(function, "out"):
            call = as_written(function, line.operation, {**arguments, "out": call()})
        return Prepared(call, list(arrays.values()), canonical)

    def describe() -> dict[str, str]:
        return {str(key): str(value) for key, value in subject.describe().items()}

    return Contender(subject.name, offers, prepare, describe, "the subject", is_subject=True)


def tunings_of(subject: Subject, lines: Sequence[Line]) -> list[Contender]:
    """Return the subject under each other cut of its launches, as contenders of the lines that the cut is for."""
    if subject.tunings is None:
        raise UnsupportedError(f"{subject.name} has no `tunings`: there is nothing that --tune could try.")
    own, found = of_subject(subject), []
    for operation in dict.fromkeys(line.operation for line in lines):
        for words, within in subject.tunings(operation).items():
            offers = functools.partial(_only, operation, own.offers)
            found.append(replace(own, name=words, offers=offers, note="", is_subject=False, within=within, tuning=True))
    return found


def _only(operation: str, offers: Callable[[Line], str], line: Line) -> str:
    return offers(line) if line.operation == operation else f"a cut of {operation}"
