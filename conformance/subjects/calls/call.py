"""One call of a subject, watched: fresh inputs that must stay unchanged, results that must be its own, and time.

Every fault ends in a `Called` with an outcome and a sentence; nothing a subject raises stops a run. A subject that
lives in a process of its own is called there, by the very same functions.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy import geterr, seterr  # as they are now: a kernel may replace those of the module

from refnum.errors import UnsupportedError

from ...cases.case import Case
from ...cases.entry import is_kept
from ...cases.findings import Finding
from ...cases.layouts import stored_inputs
from ...cases.levels import Outcome
from ...cases.operation import OPERATIONS, as_bits, golden_like
from ...cases.same_bytes import same
from ...cases.structure.byte_order import OTHER
from ...cases.structure.values import FORMATS
from ..arrays import Guarded, same_place, share_memory, to_library, to_numpy
from ..subject import Subject, arguments_for, takes_out
from .binades import between_binades
from .exits import caught
from .float_mode import default_float_mode, float_mode
from .forms import (
    Placed,
    as_out,
    changed_list,
    counts_in_form,
    form_of,
    laid_in_form,
    out_in_form,
    scalars_in_form,
    turned,
)
from .process_state import changed, process_state, restore
from .results import own
from .time_limit import CallTimeout, time_limit

COMPILE_ERRORS = frozenset({"CompileError", "CompileException", "NVRTCError"})
POISONS = (0xCD, 0x32)
NO_ROOM = "this machine has no room for the case"
"""What is said where memory was short and no one knows whether the subject is to blame: it was not judged."""
OUT_OF_MEMORY = frozenset({"MemoryError", "OutOfMemoryError"})
"""Errors, by name, that say that memory is short: Python's and NumPy's, and those of the libraries of devices."""
SMALL, ROOM = 1 << 20, 1 << 26
"""Bytes of the inputs of a case that wants no memory to speak of, and bytes that must be free to say so."""
F = TypeVar("F", bound=Callable[..., Any])


class Laid(dict[str, Any]):
    """Inputs laid out for a call, and the guard zones around those on the host."""

    zones: Mapping[str, Guarded] = {}


@dataclass
class Called:
    """What came of one call: results as NumPy arrays, or an outcome other than pass with a sentence.

    live: the results as the subject handed them out, in its own library. finding: a breach of the calling contract by
    its name in `cases.findings.Finding`, else empty. no_room: whether a case is unsupported
    for want of memory, as the judge saw it, whatever the words. lost: whether the process of the subject ended.
    declared: whether it is unsupported by what the subject declares, before any line of its own ran.
    returned: whether the subject returned, and what it returned, or its `out`, is no array of numbers here.
    """

    results: tuple[np.ndarray, ...] = ()
    live: tuple[Any, ...] = ()
    outcome: Outcome = Outcome.PASS
    words: str = ""
    finding: str = ""
    no_room: bool = False
    lost: bool = False
    declared: bool = False
    returned: bool = False

    @property
    def answered(self) -> bool:
        """Whether results came back that can be compared, with or without a breach of the contract."""
        return self.outcome is Outcome.PASS or bool(self.finding)


Look = Callable[[Case, Mapping[str, Any], tuple[Any, ...]], Called]
"""(case, arrays of the call, results) -> what came of the call."""


def lay_out(subject: Subject, case: Case) -> Laid:
    """Return fresh copies of a case's inputs in the subject's library; those of NumPy lie between guard zones."""
    inputs = stored_inputs(case)
    if form_of(case):
        arrays, places = laid_in_form(case, inputs, subject.arrays, POISONS[0])
        laid = Laid({**arrays, **counts_in_form(case)})
        laid.zones = places
        return laid
    if subject.arrays != "numpy":
        copies = {name: np.array(array, order="C", copy=True) for name, array in inputs.items()}
        return Laid({name: to_library(array, subject.arrays) for name, array in copies.items()})
    zones = {name: Guarded(array, "numpy", POISONS[0]) for name, array in inputs.items()}
    for name, zone in zones.items():
        zone.array[...] = inputs[name]
    laid = Laid({name: zone.array for name, zone in zones.items()})
    laid.zones = zones
    return laid


def where_it_lives(function: F) -> F:
    """Carry out a watched call in the process where the subject lives."""

    @functools.wraps(function)
    def either(subject: Subject, case: Case, *arguments: Any, **keywords: Any) -> Any:
        if subject.remote is not None:
            return subject.remote(function.__name__, case, *arguments, **keywords)
        return function(subject, case, *arguments, **keywords)

    return cast(F, either)


@where_it_lives
def call(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call a subject on fresh copies of the case's inputs, in the case's form, and check that it kept the contract."""
    if "out" in form_of(case):
        return _into_form(subject, case, seconds)
    return call_on(subject, case, lambda: lay_out(subject, case), seconds)


def on_host(case: Case, given: Mapping[str, Any], live: tuple[Any, ...]) -> Called:
    """Bring the results of a call to the host and check that the subject kept the contract."""
    return _kept_contract(case, given, tuple(to_numpy(part) for part in live), live)


def call_on(
    subject: Subject,
    case: Case,
    inputs: Callable[[], Mapping[str, Any]],
    seconds: float = 60.0,
    look: Look = on_host,
    **extra: Any,
) -> Called:
    """Call a subject once; whatever it does, only KeyboardInterrupt is raised. Every call of a subject is made here.

    Args:
        subject: the callee.
        case: the case that is judged.
        inputs: makes the arrays of the call, equal to the case's.
        seconds: time limit of the call and of `look`, 0 for none.
        look: checks the results where they are, under the same guards: a device reports its faults late.
        extra: further keywords for the subject, such as `out`.

    Returns:
        The answer of `look`, or the outcome of a call that failed. The float mode, NumPy's error handling, the
        recursion limit and the state of the process are as before the call.
    """
    process, mode, inside, returned = os.getpid(), float_mode(), False, False
    errors, depth, state = geterr(), sys.getrecursionlimit(), process_state()
    try:
        given = inputs()
        arguments = scalars_in_form(case, arguments_for(subject, case, given))
        with caught(), time_limit(seconds):
            inside = True
            result = subject.operations[case.operation](**arguments, **extra)
            inside, returned = False, True
            live = given_back(result)
            other_mode, other_state = float_mode() != mode, changed(state)
            called = look(case, given, live)
            if other_mode:
                words = "the call changed the thread's rounding direction or flush-to-zero and left it so"
                return replace(called, outcome=Outcome.MISMATCH, words=words, finding=Finding.FLOAT_MODE)
            if called.finding:
                return called
            if other_state:
                words = f"the call changed {other_state[0]} for all code that follows"
                return replace(called, outcome=Outcome.MISMATCH, words=words, finding=Finding.PROCESS_STATE)
            name = changed_list(arguments, case.params)
            if name:
                words = f"the call changed its input {name}"
                return replace(called, outcome=Outcome.MISMATCH, words=words, finding=Finding.INPUT_MUTATED)
            if "out" in extra or look is not on_host:
                return called
            result = live = ()  # which would count as others that hold the results
            return _own_results(subject, case, called, inputs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return replace(_ended(subject, case, error, inside), returned=returned and isinstance(error, TypeError))
    finally:
        if os.getpid() != process:  # a process that the subject forked off came back here: it is not ours
            os._exit(1)
        if float_mode() != mode:
            default_float_mode()
        restore(state)
        if geterr() != errors:
            seterr(**errors)
        sys.setrecursionlimit(depth)


def given_back(result: Any) -> tuple[Any, ...]:
    """Return the arrays that a call gave."""
    parts = result if isinstance(result, tuple | list) else (result,)
    return tuple(part for part in parts if part is not None)


def _ended(subject: Subject, case: Case, error: BaseException, inside: bool) -> Called:
    """Return the call that an error ended. inside: whether the subject's own code raised it."""
    if isinstance(error, CallTimeout):
        return Called(outcome=Outcome.TIMEOUT, words=str(error))
    if isinstance(error, UnsupportedError | NotImplementedError):
        words = str(error) or type(error).__name__
        return Called(outcome=Outcome.UNSUPPORTED, words=words, declared=not inside or _declares(subject, case))
    if not isinstance(error, Exception):  # SystemExit above all: a kernel must not end the run that judges it
        return Called(outcome=Outcome.FAULT, words=f"it raised {type(error).__name__}({_first_line(error)})")
    if _short_of_memory(error) and not (inside and _to_blame(subject, case)):
        return Called(outcome=Outcome.UNSUPPORTED, words=f"{NO_ROOM}: {type(error).__name__}", no_room=True)
    kind = Outcome.COMPILE_ERROR if type(error).__name__ in COMPILE_ERRORS else Outcome.FAULT
    return Called(outcome=kind, words=f"{type(error).__name__}: {_first_line(error)}")


def _declares(subject: Subject, case: Case) -> bool:
    """Whether a refusal by a line of its own is a declaration: of peers, whose adapters are ours, and of `declares`."""
    return subject.kind == "peer" or getattr(subject.operations[case.operation], "declares", False)


def _short_of_memory(error: BaseException) -> bool:
    return any(kind.__name__ in OUT_OF_MEMORY for kind in type(error).__mro__)


def _to_blame(subject: Subject, case: Case) -> bool:
    """Whether a subject that ran out of memory in its own code is at fault: a small case, and there is memory."""
    if subject.kind == "control" or sum(array.nbytes for array in case.inputs.values()) > SMALL:
        return False
    try:
        to_library(np.zeros(ROOM, np.uint8), subject.arrays)
    except Exception:
        return False
    return True


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else "")[:300]


def _kept_contract(
    case: Case, given: Mapping[str, Any], results: tuple[np.ndarray, ...], live: tuple[Any, ...]
) -> Called:
    for name, original in stored_inputs(case).items():
        array = given[name]
        if tuple(array.shape) != original.shape:
            words = f"the call changed the shape of its input {name} to {list(array.shape)}"
            return Called(results, live, Outcome.MISMATCH, words, Finding.INPUT_MUTATED)
        now = array if isinstance(array, np.ndarray) else to_numpy(array)  # an input may have any byte order
        if not same(raw(now), raw(original)):
            return Called(results, live, Outcome.MISMATCH, f"the call changed its input {name}", Finding.INPUT_MUTATED)
    for name, zone in getattr(given, "zones", {}).items():
        side = zone.trespass()
        if side:
            words = f"memory {side} the input {name} was written (guard byte no longer 0x{zone.poison:02X})"
            return Called(results, live, Outcome.MISMATCH, words, Finding.GUARD)
    for name, array in given.items():
        for number, part in enumerate(live):
            if share_memory(part, array):
                words = f"result {number} is a view of the input {name}: writing one changes the other"
                return Called(results, live, Outcome.MISMATCH, words, "output-aliases-input")
    return Called(results, live)


def _own_results(subject: Subject, case: Case, called: Called, inputs: Callable[[], Mapping[str, Any]]) -> Called:
    """Return a call, as a breach where its results are not what a caller can own."""

    def again() -> tuple[Any, ...]:
        arguments = scalars_in_form(case, arguments_for(subject, case, inputs()))
        result = subject.operations[case.operation](**arguments)
        return tuple(result) if isinstance(result, tuple | list) else (result,)

    finding, words = own((subject.name, case.operation), called.live, again, turned(case)) or ("", "")
    return Called(called.results, called.live, Outcome.MISMATCH, words, finding) if finding else called


def _into_form(subject: Subject, case: Case, seconds: float) -> Called:
    """Call with `out` in the storage of the case's form; the results are what it holds afterwards."""
    if not takes_out(subject.operations[case.operation], case.operation):
        words = f"{subject.name}: its {case.operation} takes no 'out'."
        return Called(outcome=Outcome.UNSUPPORTED, words=words, declared=True)
    try:
        places = out_in_form(case, golden_like(case), subject.arrays, POISONS[0])
    except UnsupportedError as error:
        return Called(outcome=Outcome.UNSUPPORTED, words=str(error), declared=True)
    called = call_on(subject, case, lambda: lay_out(subject, case), seconds, out=as_out(case, places))
    return called if called.outcome is not Outcome.PASS or form_of(case)["out"] == OTHER else filled(called, places)


def filled(called: Called, places: Sequence[Placed]) -> Called:
    """Return a call into `out` with what its arrays hold, as a breach where it wrote elsewhere or returned others."""
    outs = tuple(place.array for place in places)
    results = tuple(np.array(to_numpy(out), copy=True) for out in outs)
    for number, place in enumerate(places):
        side = place.trespass()
        if side:
            words = f"memory {side} output {number}, which was given, was written"
            return Called(results, outs, Outcome.MISMATCH, words, Finding.GUARD)
    for number, (back, out) in enumerate(zip(called.live, outs, strict=False)):
        if back is not out and not same_place(back, out):
            words = f"result {number} is not the array that was given as `out`"
            return Called(results, outs, Outcome.MISMATCH, words, Finding.OUT_NOT_RETURNED)
    return Called(results, outs)


def raw(array: np.ndarray) -> np.ndarray:
    """Return an array's bytes as a flat u8 view (a copy where it is not contiguous)."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def other_data(case: Case, along: Mapping[str, int] | None = None) -> Case:
    """Return a case of the same shapes whose floating-point, code and scale inputs hold other data.

    Every bit pattern of those is legal, so the data is reversed, and where that changes nothing one bit is
    flipped. Floating-point numbers change their binades, or what a kernel finds in a whole tensor, such as its maximum,
    would be the same. Row maps stay as they are: they are indices. The other data of other data is the first data.

    along: name of an input -> the axis along which it is cut into parts, each of which keeps its numbers: it is
        reversed along its other axes alone.
    """
    inputs = {}
    for name, array in case.inputs.items():
        bits = as_bits(array)
        if is_kept(name, array):
            inputs[name] = array.copy()
            continue
        if along and name in along:
            back = np.flip(bits, tuple(axis for axis in range(bits.ndim) if axis != along[name]))
        else:
            back = bits.reshape(-1)[::-1].reshape(bits.shape)
        turned = np.array(back, order="C")  # keeps an array without axes
        if np.array_equal(turned, bits):
            turned ^= bits.dtype.type(1)
        if array.dtype.name in FORMATS:
            turned ^= between_binades(turned, FORMATS[array.dtype.name])
        inputs[name] = turned.view(array.dtype)
    return case.with_inputs(inputs, label="same storage, new data")


def one_changed(case: Case) -> Case:
    """Return a case whose first input has another bit in the element in its middle, and nothing else that is other.

    The case itself where that input lies in a storage whose rows or columns are all alike.
    """
    name = OPERATIONS[case.operation].inputs[0]
    if str(form_of(case).get(f"{name}.storage")).startswith("broadcast"):
        return case
    bits = as_bits(case.inputs[name]).copy()
    bits.reshape(-1)[bits.size // 2 : bits.size // 2 + 1] ^= bits.dtype.type(1)
    return case.with_inputs({name: bits.view(case.inputs[name].dtype)}, label=f"{case.label}, one element changed")


@where_it_lives
def into_guarded(
    subject: Subject, case: Case, like: tuple[np.ndarray, ...], poison: int, seconds: float = 60.0
) -> Called:
    """Call with `out=` poisoned and a guard zone before and after every output, behind a call on other data into it.

    like: arrays of the outputs' shapes and dtypes. Results are copies of what the subject wrote into `out`.
    """
    guarded = [Guarded(array, subject.arrays, poison) for array in like]
    outs = tuple(zone.array for zone in guarded)
    for one in (other_data(case), case):
        for zone in guarded:
            zone.poisoned()
        asked = functools.partial(lay_out, subject, one)
        called = call_on(subject, one, asked, seconds, out=outs if len(outs) > 1 else outs[0])
    if called.outcome is not Outcome.PASS:
        return called
    for number, zone in enumerate(guarded):
        side = zone.trespass()
        if side:
            words = f"output {number} was written {side} its bounds (guard byte no longer 0x{poison:02X})"
            return Called(called.results, called.live, Outcome.MISMATCH, words, Finding.GUARD)
    return Called(tuple(np.array(to_numpy(out), copy=True) for out in outs), outs)


def has_out(subject: Subject, operation: str) -> bool:
    """Whether a NumPy or CuPy subject's callable names `out`, so that its writes can be watched."""
    return subject.arrays in ("numpy", "cupy") and takes_out(subject.operations[operation], operation)
