"""Judge on the device: expand recipes, run the model and compare bytes there, without copies in between.

The golden model runs the same lines on CuPy arrays (NEP 13 and NEP 18). A case sends back a count for each output and,
when bytes differ, the first differing items; a passing case moves nothing else. With a NumPy `like` the same functions
run on the host, so that code for a device is tested without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refnum.arrays import BFLOAT16, Array, contiguous
from refnum.errors import ArgumentError, UnsupportedError

from ..cases.case import Case
from ..cases.entry import is_random
from ..cases.findings import Finding
from ..cases.levels import Outcome
from ..cases.operation import OPERATIONS, run_golden
from ..cases.recipes import Recipe, expand
from ..subjects.arrays import share_memory, to_numpy
from ..subjects.calls.call import Called, call_on
from ..subjects.subject import Subject
from .compare import observe

Bits = Mapping[str, Array]
RECORDS = 16
"""Differing items that are brought back from one case."""


@dataclass(frozen=True)
class Mismatch:
    """One differing item: its output, its index, and both sides' bits."""

    output: str
    index: tuple[int, ...]
    golden: int
    observed: int


@dataclass
class Judged(Called):
    """One call judged where its data is.

    compared: items of all outputs (packed codes count as bytes). wrong: number of items that differ, by output.
    records: the first differing items in order of output and index, at most RECORDS.
    """

    compared: int = 0
    wrong: dict[str, int] = field(default_factory=dict)
    records: list[Mismatch] = field(default_factory=list)


def device_like(device: int = 0) -> Array:
    """Return an empty CuPy array on a device, the `like` of this module's functions; UnsupportedError without one."""
    try:
        import cupy
    except ImportError as error:
        raise UnsupportedError("Judging on the device needs CuPy: install refnum[gpu].") from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise UnsupportedError(f"There is no CUDA device here: {error}.") from error
    if not 0 <= device < count:
        raise UnsupportedError(f"There is no CUDA device {device}; this machine has {count}.")
    with cupy.cuda.Device(device):
        return cupy.empty(0, cupy.uint8)


def library_of(like: Array) -> str:
    """Return `numpy` or `cupy`, the library in which subjects get their arrays beside `like`."""
    return "numpy" if isinstance(like, np.ndarray) else "cupy"


def judged_on_device(subject: Subject, operation: str) -> bool:
    """Whether cases can be judged beside a subject's arrays: on a device, in this process, byte for byte.

    Elements outside of a contract are replaced on the host.
    """
    here = subject.arrays == "cupy" and subject.remote is None and not subject.inputs
    return here and subject.claimed_level(operation) == 0


def expand_on_device(recipe: Recipe, like: Array) -> Case:
    """Return the case of a recipe, made by Philox where `like` lives: the same bits as on the host (N13)."""
    return expand(recipe, None if isinstance(like, np.ndarray) else like)


def place(case: Case, like: Array) -> Case:
    """Return a host case with its inputs where `like` lives; bfloat16 becomes its uint16 bits on a device."""
    if isinstance(like, np.ndarray):
        return case
    inputs = {name: array.view(np.uint16) if array.dtype == BFLOAT16 else array for name, array in case.inputs.items()}
    return case.with_inputs(
        {name: np.asarray(np.asarray(array, order="C"), like=like) for name, array in inputs.items()}
    )


def fetch(case: Case) -> Case:
    """Return a case with its inputs in NumPy, bfloat16 by name again: what replay and shrinking take."""
    row = OPERATIONS[case.operation]
    named = case.params.get("input") == "bfloat16" or row.inputs[0] in ("gate", "grad", "rows")
    named = named or "values" in row.kinds.values()  # floats without a parameter that names their dtype
    inputs = {}
    for name, array in case.inputs.items():
        host = to_numpy(array)
        inputs[name] = host.view(BFLOAT16) if named and host.dtype == np.uint16 and not is_random(name) else host
    return case.with_inputs(inputs)


def judge_on_device(subject: Subject, case: Case, golden: Bits | None = None, seconds: float = 60.0) -> Judged:
    """Call a subject on a case's own arrays and compare every byte on their device (level L0).

    The subject gets the case's arrays themselves: a call that changes one is a breach, and the case is then spoilt. A
    claimed level other than L0 is for the host to judge: fetch the case.

    Args:
        subject: takes arrays of the case's library.
        case: inputs in the library of the subject.
        golden: the outputs of `run_golden(case)`; made here when absent.
        seconds: time limit of call and comparison.

    Returns:
        The judgement; nothing is raised but KeyboardInterrupt.
    """
    before: dict[str, Array] = {}
    right = dict(golden or {})

    def inputs() -> Bits:
        before.update({name: array.copy() for name, array in case.inputs.items()})
        right.update(run_golden(case) if golden is None else {})
        return _own_arrays(subject, case)

    def look(_case: Case, _given: Bits, live: tuple[Any, ...]) -> Judged:
        breach = _breach(case, before, live)
        if breach:
            return breach
        observed, problem = observe(case, right, live)
        if problem:
            return Judged(outcome=Outcome.MISMATCH, words=problem.words, finding=problem.finding)
        return compare_on_device(right, observed)

    called = call_on(subject, case, inputs, seconds, look)
    if isinstance(called, Judged):
        return called
    return Judged(outcome=called.outcome, words=called.words, finding=called.finding, no_room=called.no_room)


def call_on_device(subject: Subject, case: Case) -> Called:
    """Call a subject on the case's own arrays, under the guards of every call; the results stay where they are."""
    return call_on(subject, case, lambda: _own_arrays(subject, case), 0, lambda _case, _given, live: Called(live, live))


def _own_arrays(subject: Subject, case: Case) -> Bits:
    wanted = {library_of(array) for array in case.inputs.values()}
    if wanted != {subject.arrays}:
        raise ArgumentError(
            f"{subject.name} takes {subject.arrays} arrays; the case holds {', '.join(sorted(wanted))}."
        )
    return case.inputs


def _breach(case: Case, before: Bits, results: tuple[Any, ...]) -> Judged | None:
    for name, array in case.inputs.items():
        if bool((as_words(array) != as_words(before[name])).any()):
            words = f"the call changed its input {name}"
            return Judged(outcome=Outcome.MISMATCH, words=words, finding=Finding.INPUT_MUTATED)
        for number, part in enumerate(results):
            if share_memory(part, array):
                words = f"result {number} is a view of the input {name}: writing one changes the other"
                return Judged(outcome=Outcome.MISMATCH, words=words, finding=Finding.ALIASES_INPUT)
    return None


def compare_on_device(golden: Bits, observed: Bits) -> Judged:
    """Compare outputs of equal shape and dtype where they are; only counts, and records of what differs, come back."""
    judged = Judged()
    for name, want in golden.items():
        judged.compared += int(want.size)
        if not bool((as_words(want) != as_words(observed[name])).any()):  # eight bytes at a time, nearly always enough
            continue
        unequal = want != observed[name]
        count = int(unequal.sum())
        if count:
            judged.wrong[name] = count
            judged.records += _records(name, want, observed[name], unequal, RECORDS - len(judged.records))
    if judged.wrong:
        judged.outcome = Outcome.MISMATCH
        counts = ", ".join(f"{count} of {golden[name].size} in {name}" for name, count in judged.wrong.items())
        judged.words = f"{counts} differ"
    return judged


def elements_of(case: Case, outputs: Bits) -> int:
    """Return how many elements a case's outputs hold; a packed byte holds two."""
    packed = {output.name for output in OPERATIONS[case.operation].outputs if output.kind == "packed"}
    return sum(int(array.size) * (1 + (name in packed)) for name, array in outputs.items())


def as_words(array: Array) -> Array:
    """The bytes of an array in row-major order, padded with zeros to a multiple of eight, as little-endian u64."""
    flat = contiguous(array).reshape(-1).view(np.uint8)
    missing = -int(flat.size) % 8
    if missing:
        flat = np.concatenate([flat, np.zeros(missing, np.uint8, like=flat)])
    return flat.view("<u8")


def _records(name: str, want: Array, got: Array, unequal: Array, room: int) -> list[Mismatch]:
    """The first differing items; only they are brought to the host."""
    places = to_numpy(unequal.reshape(-1).nonzero()[0][:room])
    flat_want, flat_got = want.reshape(-1), got.reshape(-1)
    return [
        Mismatch(name, tuple(int(i) for i in np.unravel_index(at, want.shape)), int(flat_want[at]), int(flat_got[at]))
        for at in map(int, places)
    ]
