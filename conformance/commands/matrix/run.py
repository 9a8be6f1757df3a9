"""Go through every peer, operation, variant and profile: one call a peer and variant, one comparison a cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refnum.errors import RefnumError, UnsupportedError
from refnum.profiles import PROFILES

from ...cases.case import Case
from ...cases.contracts import contract_words, rows_inside
from ...cases.levels import CLASSES, NO_LEVEL, level_name
from ...cases.operation import OPERATIONS, as_bits
from ...mismatches.shrink import shrink
from ...subjects.arrays import to_library, to_numpy
from ...subjects.peers import all_differences
from ...subjects.peers.torch_peer import base_name
from ...subjects.subject import Subject, arguments_for
from . import cells, inputs
from .cells import Cell
from .inputs import Rows

WIDE = {"quantize_mxfp4": 32, "quantize_mx": 32, "quantize_fp8_tiles": 8, "fp8_to_mxfp4": 8}
"""Operation -> how many rows are laid side by side in a call: kernels want wide tensors, [M, 1024]."""
ROW_GROUP = 128
"""Wide calls have a multiple of this many rows; zero rows fill up."""
BATCHES = ("FZ", "T", "H", "I", "N")
"""Input classes that are tried apart when a peer refuses all of them at once."""
DETERMINISTIC = tuple(name for name, profile in PROFILES.items() if profile.rounding != "stochastic")
"""Columns of a quantiser. Stochastic rounding has no one answer: it takes its random bits from the caller."""
SHRINK_CALLS, SHRINK_SECONDS = 60, 1.0


@dataclass
class Matrix:
    """Results. cells: (subject, operation, profile, params, record). skipped: (subject, operation, reason)."""

    cells: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    subjects: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Answer:
    """What a peer gave for all rows: outputs as bits, the rows that it took, and why it refused the others."""

    outputs: dict[str, np.ndarray]
    taken: np.ndarray
    words: str = ""


def run_matrix(
    subjects: Sequence[Subject], operations: Sequence[str], profiles: Sequence[str] | None = None,
    told: Callable[[str], None] = lambda line: None,
) -> Matrix:  # fmt: skip
    """Judge the subjects. profiles: names, None for all and what each subject claims. told: takes progress lines."""
    matrix, start = Matrix(), time.monotonic()
    for subject in subjects:
        for variant in variants(matrix, subject, operations, told):
            judge_variant(matrix, variant, profiles, told)
    matrix.seconds = time.monotonic() - start
    return matrix


@dataclass
class Variant:
    """One peer, operation and parameters, with what it gave by each profile that it was run with.

    subject: who can be asked again to make a counter-example smaller; None for answers from another machine.
    """

    name: str
    claims: tuple[str, ...]
    operation: str
    params: dict[str, Any]
    answers: dict[str, Answer]
    subject: Subject | None = None


def variants(
    matrix: Matrix, subject: Subject, operations: Sequence[str], told: Callable[[str], None]
) -> Iterator[Variant]:
    """Run a subject on every variant that it takes; what it does not take goes to `matrix.skipped`."""
    usable, reason = subject.available()
    if not usable:
        told(f"skipped {subject.name}: {reason}")
        matrix.skipped.append({"subject": subject.name, "operation": "", "reason": reason})
        return
    matrix.subjects.append(_record(subject))
    claims = subject.profiles or ("HOPPER",)
    seen: set[tuple[str, str]] = set()
    for operation in (name for name in operations if name in subject.operations):
        for params in OPERATIONS[operation].variants():
            if not inputs.wanted(operation, params):
                continue
            reason = subject.refuses(operation, claims[0], params)
            if not reason:
                yield Variant(subject.name, claims, operation, params, _answers(subject, operation, params), subject)
            elif (operation, reason) not in seen:
                seen.add((operation, reason))
                matrix.skipped.append({"subject": subject.name, "operation": operation, "reason": reason})


def _record(subject: Subject) -> dict[str, Any]:
    return {"name": subject.name, "arrays": subject.arrays, "claims": list(subject.profiles or ()),
            "described": {key: str(value) for key, value in subject.describe().items()}}  # fmt: skip


def _answers(subject: Subject, operation: str, params: Mapping[str, Any]) -> dict[str, Answer]:
    """Run a peer by each profile that it takes, else once by its first."""
    given, claims = inputs.rows(operation, params), subject.profiles or ("HOPPER",)
    runs = subject.profiles_for(operation) if OPERATIONS[operation].profiled else claims[:1]
    runs = tuple(name for name in runs if not subject.refuses(operation, name, params)) or claims[:1]
    return {name: answer(subject, operation, name, params, given) for name in runs}


def judge_variant(
    matrix: Matrix, variant: Variant, profiles: Sequence[str] | None, told: Callable[[str], None]
) -> None:
    """Judge one variant by every profile and add its cells."""
    began, profiled = time.monotonic(), OPERATIONS[variant.operation].profiled
    columns = list(dict.fromkeys([*(profiles or DETERMINISTIC), *variant.answers])) if profiled else [""]
    found = [_judged(variant, profile) for profile in columns]
    matrix.cells += found
    loud = [f"{cell['profile'] or '-'} {cell['state'].upper()}" for cell in found if cell["state"] in cells.LOUD]
    what = ",".join(str(value) for name, value in variant.params.items() if name != "tile")
    told(f"{variant.name} {variant.operation} {what} {time.monotonic() - began:.1f} s {' '.join(loud)}".rstrip())


def _judged(variant: Variant, profile: str) -> dict[str, Any]:
    first_run = next(iter(variant.answers))
    claimed = not profile or profile in variant.answers
    used = profile if profile in variant.answers else first_run
    record = {"subject": variant.name, "operation": variant.operation, "params": variant.params, "claimed": claimed,
              "profile": profile}  # fmt: skip
    got = variant.answers[used]
    if not got.taken.any():
        return {**record, **_as_record(Cell(cells.REFUSED, level=NO_LEVEL, words=got.words), {})}
    given = inputs.rows(variant.operation, variant.params)
    part = given if got.taken.all() else inputs.select(given, got.taken)
    case, golden = cells.golden_of(variant.operation, profile or used, variant.params, part)
    wanted, observed = cells.comparable(case, golden, got.outputs)
    known = [entry for entry in all_differences() if entry.subject in (variant.name, base_name(variant.name))
             and entry.covers(variant.operation, variant.params, profile)]  # fmt: skip
    cell = cells.judge(case, part, wanted, observed, known, claimed, golden.get("scales"))
    cell.words = got.words
    if cell.first < 0:
        return {**record, **_as_record(cell, {})}
    first = cells.show_row(case, part, wanted, observed, cell.first)
    if len(first["inputs"].get("x", ())) > 2 and cell.state != cells.NEW and variant.subject is not None:
        first = _smaller(variant.subject, used, case, part, cell.first) or first
    return {**record, **_as_record(cell, first)}


def _as_record(cell: Cell, first: Mapping[str, Any]) -> dict[str, Any]:
    return {"state": cell.state, "level": level_name(cell.level), "rows": cell.rows, "differing": cell.differing,
            "classes": cell.classes, "unknown": cell.unknown, "known": cell.known, "gone": cell.gone,
            "words": cell.words, "first": dict(first)}  # fmt: skip


def answer(subject: Subject, operation: str, profile: str, params: Mapping[str, Any], given: Rows) -> Answer:
    """Call a peer on all rows that its contract holds; where it refuses, on each kind of input by itself."""
    of_rows = {name: array for name, array in given.inputs.items() if name not in inputs.SHARED}
    inside = rows_inside(Case(operation, profile, params, of_rows), subject.inputs)
    if inside.all():
        return _answer(subject, operation, profile, params, given)
    words = f"{contract_words(subject.inputs)} holds {int(inside.sum()):,} of {given.count:,} rows"
    if not inside.any():
        return Answer({}, inside, words)
    part = _answer(subject, operation, profile, params, inputs.select(given, inside))
    taken = inside.copy()
    taken[inside] = part.taken
    return Answer(part.outputs, taken, f"{words}; {part.words}" if part.words else words)


def _answer(subject: Subject, operation: str, profile: str, params: Mapping[str, Any], given: Rows) -> Answer:
    """Call a peer on all rows; where it refuses, on each kind of input by itself."""
    everything = np.ones(given.count, bool)
    try:
        return Answer(call_rows(subject, operation, profile, params, given.inputs, given.count), everything)
    except Exception as error:  # a peer may fail in any way, and the reason is the result
        words = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    taken, parts, refused = np.zeros(given.count, bool), {}, []
    for letters in BATCHES:
        chosen = np.isin(given.classes, [CLASSES.index(letter) for letter in letters])
        if not chosen.any() or chosen.all():
            continue
        try:
            part = inputs.chosen(given.inputs, chosen)
            piece = call_rows(subject, operation, profile, params, part, int(chosen.sum()))
        except Exception as error:
            words = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            refused.append(letters)
            continue
        taken |= chosen
        parts[letters] = (chosen, piece)
    outputs = _joined(parts, taken)
    return Answer(outputs, taken, f"refuses inputs of class {', '.join(refused) or 'any'}: {words}")


def _joined(parts: Mapping[str, tuple[np.ndarray, dict[str, np.ndarray]]], taken: np.ndarray) -> dict[str, np.ndarray]:
    joined: dict[str, np.ndarray] = {}
    for chosen, piece in parts.values():
        for name, array in piece.items():
            if name in inputs.SHARED:
                joined[name] = array
                continue
            whole = joined.setdefault(name, np.zeros((taken.size, *array.shape[1:]), array.dtype))
            whole[chosen] = array
    return inputs.chosen(joined, taken)


def call_rows(
    subject: Subject, operation: str, profile: str, params: Mapping[str, Any], given: Mapping[str, np.ndarray],
    count: int,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Call a peer on rows, laid out wide, and return its outputs row by row as bits.

    Raises what the peer raises, and UnsupportedError when its results have not the right size.
    """
    beside = WIDE.get(operation, 1)
    filled = -(-count // (beside * ROW_GROUP)) * beside * ROW_GROUP if beside > 1 else count
    wide = {}
    for name, array in given.items():
        if name in inputs.SHARED:
            wide[name] = array.copy()
            continue
        if filled != count:
            array = np.concatenate([array, np.zeros((filled - count, *array.shape[1:]), array.dtype)])
        array = array.reshape(filled // beside, -1) if beside > 1 else array
        wide[name] = np.array(array, order="C", copy=True)
    case = Case(operation, profile, params, wide)
    arguments = arguments_for(subject, case, {name: to_library(array, subject.arrays) for name, array in wide.items()})
    function = subject.operations[operation]
    result = function(**arguments)
    parts = result if isinstance(result, tuple | list) else (result,)
    arrays = [to_numpy(part) for part in parts]
    if getattr(function, "gives_values", False):
        return {"values": as_bits(arrays[0].reshape(filled, -1)[:count].astype(np.float32))}
    outputs = OPERATIONS[operation].outputs
    if len(arrays) != len(outputs):
        raise UnsupportedError(f"{len(arrays)} results came back; {len(outputs)} are wanted")
    found = {}
    for output, array in zip(outputs, arrays, strict=True):
        bits = as_bits(array)
        if output.name in inputs.SHARED:
            found[output.name] = bits
            continue
        if bits.size % filled:
            raise UnsupportedError(f"{output.name} has shape {list(array.shape)}")
        flat = bits.reshape(filled, -1)[:count]
        found[output.name] = flat[:, 0] if case.inputs[next(iter(wide))].ndim == 1 else flat
    return found


def _smaller(subject: Subject, used: str, case: Case, given: Rows, index: int) -> dict[str, Any] | None:
    """Return a smaller input with the same kind of difference, shown; None when shrinking was of no use."""
    row = Case(case.operation, case.profile, case.params, given.row(index))

    def both(candidate: Case) -> tuple[Rows, cells.Bits, cells.Bits]:
        count = next(iter(candidate.inputs.values())).shape[0]
        rows = Rows(candidate.inputs, np.zeros(count, np.uint8), {})
        _, golden = cells.golden_of(candidate.operation, candidate.profile, candidate.params, rows)
        observed = call_rows(subject, candidate.operation, used, candidate.params, candidate.inputs, count)
        return rows, *cells.comparable(candidate, golden, observed)

    def fails(candidate: Case) -> bool:
        try:
            _, golden, observed = both(candidate)
            return bool(cells.differing_rows(golden, observed).any())
        except Exception:  # a smaller input that the peer refuses shows something else
            return False

    try:
        small = shrink(row, fails, SHRINK_CALLS, SHRINK_SECONDS)
        rows, golden, observed = both(small)
        shown = cells.show_row(small, rows, golden, observed, 0)
    except (RefnumError, ValueError):
        return None
    return shown if "golden" in shown else None
