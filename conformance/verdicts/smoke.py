"""The smoke test of an adapter: one small legal call before any verdict, and a sentence that says what to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..cases.case import Case
from ..cases.contracts import outside
from ..cases.levels import NO_LEVEL, Outcome
from ..cases.operation import call_golden, outputs_of, run_golden
from ..subjects.calls.call import Called, call
from ..subjects.subject import Subject
from .compare import compare, observe
from .judge import flipped
from .tally import Failure, Tally


def smoke(subject: Subject, tally: Tally, cases: list[Case], seconds: float, note: Callable[[int], None]) -> bool:
    """Call a subject once; one that cannot be judged at all is failed, and left alone from here on.

    Returns whether it was called: not where it supports none of the cases.

    An adapter is off when the call raises, or gives another count of results, other shapes or other dtypes. Where bytes
    are wrong, the call is repeated: the first call of a process may be the only wrong one. Those that stay wrong are
    counted when the case is judged. cases: the smallest that the subject supports is called. note: told the number of a
    case before the call.
    """
    for number in sorted(range(len(cases)), key=lambda number: cases[number].elements):
        case = cases[number]
        if not case.elements:
            continue
        note(number)
        called = call(subject, case, seconds)
        if called.outcome is Outcome.UNSUPPORTED:
            continue
        if not called.answered:
            tally.faults.append(
                (called.outcome, f"{_asked(case)}: {called.words}; {_advice(called, case.operation)}", case)
            )
            tally.out = True
            return True
        golden = run_golden(case)
        observed, problem = observe(case, golden, called.results)
        if problem:
            words = f"{_asked(case)}: {problem}; {_wanted(case)}"
            tally.fail(Failure(case, NO_LEVEL, words, problem.finding, observed))
            tally.compared += sum(array.size for array in golden.values())
            tally.out = True
        elif not outside(case, tally.outside.contract) and compare(case, golden, called.results).level:
            flipped(called, case, tally, lambda other: call(subject, other, seconds))
        return True
    return False


def _asked(case: Case) -> str:
    return f"the first call, {case.operation}({_arrays(case.inputs)}), does not fit"


def _arrays(arrays: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{name} {array.dtype.name}{list(array.shape)}" for name, array in arrays.items())


def _wanted(case: Case) -> str:
    outputs = {output.name: array for output, array in zip(outputs_of(case), call_golden(case), strict=True)}
    return f"return {'a tuple of ' if len(outputs) > 1 else ''}{_arrays(outputs)}, in this order"


def of_numpy(words: str, operation: str) -> str:
    """Return how a kernel of another library than NumPy is declared, if its error says that it was given NumPy's."""
    declared = f'@implements("{operation}", arrays="torch") of refnum.conformance'
    return f"it was given NumPy arrays; a kernel on torch's is declared by {declared}" if "ndarray" in words else ""


def _advice(called: Called, operation: str) -> str:
    if how := of_numpy(called.words, operation):
        return how
    if "argument" in called.words or "parameter" in called.words:
        return "name the function's arguments as the operation does"
    if called.words.startswith("TypeError: a result is"):
        return "return arrays of numbers, one an output"
    if called.words.startswith("what came back is no"):
        return "let it write to no file descriptor that it did not open"
    if called.outcome is Outcome.TIMEOUT:
        return "give --timeout more seconds if it compiles in its first call"
    return "a legal call must not fail: mend it, or declare what it does not support (dtypes, rows, columns)"
