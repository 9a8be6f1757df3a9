"""One call of a subject, watched: fresh inputs that must stay unchanged, results that must be its own, and time.

Every fault ends in a `Called` with an outcome and a sentence; nothing a subject raises stops a run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from refnum.errors import UnsupportedError

from .case import Case
from .operation import as_bits
from .subject import Subject, arguments_for, takes, to_numpy
from .verdict import Outcome

COMPILE_ERRORS = frozenset({"CompileError", "CompileException", "NVRTCError"})
GUARD = 256
POISONS = (0xCD, 0x32)


class CallTimeout(Exception):
    """A subject's call ran past its limit."""


@dataclass
class Called:
    """What came of one call: results as NumPy arrays, or an outcome other than pass with a sentence.

    finding: a short name for a breach of the calling contract (`input-mutated`, `output-aliases-input`,
    `stale-output`, `earlier-result-changed`, `guard-overwritten`, `output-not-written`), else empty.
    """

    results: tuple[np.ndarray, ...] = ()
    outcome: Outcome = Outcome.PASS
    words: str = ""
    finding: str = ""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise CallTimeout after some seconds (main thread only; a hang inside one C call is seen when it ends)."""
    if seconds <= 0 or threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_signal: int, _frame: Any) -> None:
        raise CallTimeout(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def call(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call a subject on fresh copies of the case's inputs and check that it kept the contract."""
    fresh = {name: np.array(array, order="C", copy=True) for name, array in case.inputs.items()}
    return call_on(subject, case, fresh, seconds)


def call_on(subject: Subject, case: Case, inputs: Mapping[str, np.ndarray], seconds: float = 60.0,
            **extra: Any) -> Called:
    """Call a subject on these very arrays (equal to the case's inputs); `extra` keywords are passed on."""
    try:
        arguments = arguments_for(subject, case, inputs)
        with limit(seconds):
            result = subject.operations[case.operation](**arguments, **extra)
            parts = result if isinstance(result, tuple | list) else (result,)
            results = tuple(to_numpy(part) for part in parts if part is not None)
    except KeyboardInterrupt:
        raise
    except CallTimeout as error:
        return Called(outcome=Outcome.TIMEOUT, words=str(error))
    except (UnsupportedError, NotImplementedError) as error:
        return Called(outcome=Outcome.UNSUPPORTED, words=str(error) or type(error).__name__)
    except Exception as error:
        kind = Outcome.COMPILE_ERROR if type(error).__name__ in COMPILE_ERRORS else Outcome.FAULT
        return Called(outcome=kind, words=f"{type(error).__name__}: {_first_line(error)}")
    return _kept_contract(case, inputs, arguments, results, may_alias="out" in extra)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else "")[:300]


def _kept_contract(case: Case, inputs: Mapping[str, np.ndarray], given: Mapping[str, Any],
                   results: tuple[np.ndarray, ...], may_alias: bool) -> Called:
    for name, original in case.inputs.items():
        after = to_numpy(given[name]) if name in given else inputs[name]
        if not np.array_equal(raw(after), raw(original)):
            return Called(results, Outcome.MISMATCH, f"the call changed its input {name}", "input-mutated")
    for name, array in inputs.items():
        for number, result in enumerate(results):
            if result.size and array.size and np.may_share_memory(result, array):
                return Called(results, Outcome.MISMATCH,
                              f"result {number} is a view of the input {name}: writing one changes the other",
                              "output-aliases-input")
    return Called(results)


def raw(array: np.ndarray) -> np.ndarray:
    """Return an array's bytes as a flat u8 view (a copy where it is not contiguous)."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def other_data(case: Case) -> Case:
    """Return a case of the same shapes whose floating-point, code and scale inputs hold other data.

    Every bit pattern of those is legal, so the data is reversed, and where that changes nothing one bit is
    flipped. Row maps stay as they are: they are indices.
    """
    inputs = {}
    for name, array in case.inputs.items():
        bits = as_bits(array)
        if array.dtype.kind == "i" or name == "rbits":
            inputs[name] = array.copy()
            continue
        turned = np.ascontiguousarray(bits.reshape(-1)[::-1].reshape(bits.shape))
        if np.array_equal(turned, bits):
            turned = bits ^ bits.dtype.type(1)
        inputs[name] = turned.view(array.dtype)
    return case.with_inputs(inputs, label="same storage, new data")


def strided(case: Case) -> dict[str, np.ndarray]:
    """Return the inputs as views with gaps along the last axis; the gaps hold poison."""
    views = {}
    for name, array in case.inputs.items():
        gapped = (*array.shape[:-1], 2 * array.shape[-1] * array.itemsize)
        view = np.full(gapped, POISONS[0], np.uint8).view(array.dtype)[..., ::2]
        view[...] = array
        views[name] = view
    return views


def replay_in_place(subject: Subject, case: Case, seconds: float = 60.0) -> tuple[Case, Called, Called]:
    """Call twice with the same storage and new data in between.

    Returns (second case, first call, second call). A first result that changed during the second call is a
    breach; whether the second result is right is for the caller to judge against the golden model.
    """
    storage = {name: np.array(array, order="C", copy=True) for name, array in case.inputs.items()}
    first = call_on(subject, case, storage, seconds)
    if first.outcome is not Outcome.PASS:
        return case, first, first
    kept = [result.copy() for result in first.results]
    second_case = other_data(case)
    for name, array in storage.items():
        np.copyto(raw_view(array), raw(second_case.inputs[name]))
    second = call_on(subject, second_case, storage, seconds)
    for number, (before, now) in enumerate(zip(kept, first.results, strict=True)):
        if not np.array_equal(raw(before), raw(now)):
            second = Called(second.results, Outcome.MISMATCH,
                            f"result {number} of the first call changed when the second call ran: "
                            f"the subject hands out its own buffer", "earlier-result-changed")
    return second_case, first, second


def raw_view(array: np.ndarray) -> np.ndarray:
    """Return a contiguous array's bytes as a flat u8 view that writes through."""
    return array.reshape(-1).view(np.uint8)


def into_guarded(subject: Subject, case: Case, like: tuple[np.ndarray, ...], poison: int,
                 seconds: float = 60.0) -> Called:
    """Call with `out=` poisoned and a guard zone before and after every output.

    like: arrays of the outputs' shapes and dtypes. Results are copies of what the subject wrote into `out`.
    """
    zones, outs = [], []
    for array in like:
        zone = np.full(array.nbytes + 2 * GUARD, poison, np.uint8)
        zones.append(zone)
        outs.append(zone[GUARD:GUARD + array.nbytes].view(array.dtype).reshape(array.shape))
    fresh = {name: np.array(array, order="C", copy=True) for name, array in case.inputs.items()}
    called = call_on(subject, case, fresh, seconds, out=tuple(outs) if len(outs) > 1 else outs[0])
    if called.outcome is not Outcome.PASS:
        return called
    for number, zone in enumerate(zones):
        end = zone.size - GUARD
        if (zone[:GUARD] != poison).any() or (zone[end:] != poison).any():
            side = "before" if (zone[:GUARD] != poison).any() else "after"
            return Called(called.results, Outcome.MISMATCH,
                          f"output {number} was written {side} its bounds (guard byte no longer 0x{poison:02X})",
                          "guard-overwritten")
    return Called(tuple(array.copy() for array in outs))


def has_out(subject: Subject, operation: str) -> bool:
    """Whether a NumPy subject's callable names `out`, so that its writes can be watched."""
    return subject.arrays == "numpy" and takes(subject.operations[operation], "out")
