"""One cell: a peer's results against the golden model by one profile, and what is known of where they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import refnum
from refnum.arrays import float32_bits, unpack_nibbles

from ...cases.case import Case
from ...cases.levels import CLASSES, LEVELS, NO_LEVEL
from ...cases.operation import OPERATIONS, as_bits, run_golden
from ...subjects.peers.difference import Difference, expected
from ...verdicts.compare import equal_at
from .inputs import SHARED, Rows

EQUAL, DOCUMENTED, NEW, VANISHED, OTHER, REFUSED = "equal", "documented", "new", "vanished", "other", "refused"
STATES = (EQUAL, DOCUMENTED, NEW, VANISHED, OTHER, REFUSED)
"""equal: every byte of every row. documented: differs exactly where its file says. new: also elsewhere. vanished: a
documented difference is gone. other: differs, and the peer does not claim this profile. refused: it would not run."""

LOUD = (NEW, VANISHED)
_SHOW = "FZTHIN"
"""Order in which a first difference is picked: finite inputs before the ends of the range and the specials."""


@dataclass
class Cell:
    """One cell. level: highest level of agreement (N16), NO_LEVEL when values differ.

    classes: letter -> [rows that differ, rows]. first: the row that stands for the difference, or -1.
    unknown: rows that no entry explains. gone: names of entries that no longer hold. known: names of those that do.
    """

    state: str
    level: int = 0
    differing: int = 0
    rows: int = 0
    classes: dict[str, list[int]] = field(default_factory=dict)
    first: int = -1
    unknown: int = 0
    gone: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    words: str = ""


def golden_of(
    operation: str, profile: str, params: Mapping[str, Any], given: Rows
) -> tuple[Case, dict[str, np.ndarray]]:
    """Return the case of all rows and the golden outputs as bits."""
    case = Case(operation, profile, params, given.inputs)
    key = (operation, profile, repr(params), id(given))
    if key not in _GOLDEN:
        if len(_GOLDEN) > _KEPT:
            _GOLDEN.clear()
        _GOLDEN[key] = (given, run_golden(case))  # the rows are held too: their id stays theirs
    return case, _GOLDEN[key][1]


_GOLDEN: dict[tuple[str, str, str, int], tuple[Rows, dict[str, np.ndarray]]] = {}
_KEPT = 64
"""Golden outputs are the same for every peer; each is some megabytes."""


Bits = Mapping[str, np.ndarray]


def comparable(case: Case, golden: Bits, observed: Bits) -> tuple[Bits, Bits]:
    """Return both sides as they are compared.

    Bytes, but for values: there every NaN is one pattern, since no format says which (the decode operations show what
    each peer gives). Of a quantiser that gives values, the golden codes are decoded.
    """
    if "values" in observed and "values" not in golden:
        golden = {"values": as_bits(refnum.dequantize_mxfp4(golden["packed"], golden["scales"]))}
    if OPERATIONS[case.operation].family == "updates":
        return {n: one_nan(part) for n, part in golden.items()}, {n: one_nan(part) for n, part in observed.items()}
    if "values" in golden and not OPERATIONS[case.operation].scalar:
        return {"values": one_nan(golden["values"])}, {"values": one_nan(observed["values"])}
    return golden, observed


def one_nan(bits: np.ndarray) -> np.ndarray:
    """Return the bits of float32 or bfloat16 values with every NaN the canonical one."""
    inf, nan = (0x7F800000, 0x7FC00000) if bits.dtype.itemsize == 4 else (0x7F80, 0x7FC0)
    magnitude = bits & bits.dtype.type((1 << (8 * bits.dtype.itemsize - 1)) - 1)
    return np.where(magnitude > inf, bits.dtype.type(nan), bits)


def differing_rows(golden: Mapping[str, np.ndarray], observed: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return which rows differ in any byte of an output that has rows."""
    hit: np.ndarray | None = None
    for name, want in golden.items():
        if name in SHARED:
            continue
        unequal = want != observed[name]
        unequal = unequal.reshape(len(unequal), -1).any(axis=1)
        hit = unequal if hit is None else hit | unequal
    assert hit is not None
    return hit


def level_of(case: Case, golden: Mapping[str, np.ndarray], observed: Mapping[str, np.ndarray]) -> int:
    """Return the highest level at which all rows agree."""
    if "values" in golden and "packed" in {output.name for output in OPERATIONS[case.operation].outputs}:
        return 0 if all(np.array_equal(golden[name], observed[name]) for name in golden) else NO_LEVEL
    return next((level for level in range(len(LEVELS)) if equal_at(case, golden, observed, level)), NO_LEVEL)


def judge(
    case: Case, given: Rows, golden: Mapping[str, np.ndarray], observed: Mapping[str, np.ndarray],
    known: Sequence[Difference], claimed: bool, scales: np.ndarray | None = None,
) -> Cell:  # fmt: skip
    """Return the cell of one peer and profile.

    known: the entries that speak of this variant; used where claimed. scales: the golden scale bytes, where there are
    any, for entries that speak of quotients.
    """
    hit = differing_rows(golden, observed)
    cell = Cell(EQUAL, rows=given.count, differing=int(hit.sum()), classes=_by_class(given.classes, hit))
    cell.level = level_of(case, golden, observed) if cell.differing else 0
    if not claimed:
        cell.state = OTHER if cell.differing else EQUAL
        cell.first = pick(given.classes, hit)
        return cell
    may = np.zeros(given.count, bool)
    for entry, place in places(known, given, scales):
        may |= place
        wrong = (place & ~hit).any() if entry.exact else place.any() and not (place & hit).any()
        (cell.gone if wrong else cell.known).append(entry.note) if place.any() else None
    cell.known, cell.gone = sorted(set(cell.known)), sorted(set(cell.gone))
    unknown = hit & ~may
    cell.unknown = int(unknown.sum())
    cell.first = pick(given.classes, unknown if cell.unknown else hit)
    if cell.unknown:
        cell.state = NEW
    elif cell.gone:
        cell.state = VANISHED
    elif cell.differing:
        cell.state = DOCUMENTED
    return cell


def places(
    known: Iterable[Difference], given: Rows, scales: np.ndarray | None
) -> list[tuple[Difference, np.ndarray]]:  # fmt: skip
    """Return each entry with the rows that it speaks of."""
    found = []
    for entry in known:
        if entry.of == "quotient" and scales is not None:
            place = expected([entry], quotients(given, scales))[1].any(axis=1) & (scales != 255).all(axis=1)
        elif entry.of == "byte" and scales is not None:
            place = expected([entry], scales)[1].any(axis=1)
        elif entry.of in given.keys:
            place = expected([entry], given.keys[entry.of])[1]
        else:
            continue
        found.append((entry, place))
    return found


def quotients(given: Rows, scales: np.ndarray) -> np.ndarray:
    """Return the float32 bits of every element divided by the golden scale of its block: [N, width]."""
    x = float32_bits(np.ascontiguousarray(given.inputs["x"])).view(np.float32)
    exponent = scales.astype(np.int64) - 127
    with np.errstate(all="ignore"):
        scaled = np.ldexp(x.astype(np.float64), -np.repeat(exponent, x.shape[1] // exponent.shape[1], axis=1))
        return scaled.astype(np.float32).view(np.uint32)


def _by_class(classes: np.ndarray, hit: np.ndarray) -> dict[str, list[int]]:
    total = np.bincount(classes, minlength=len(CLASSES))
    wrong = np.bincount(classes[hit], minlength=len(CLASSES))
    return {letter: [int(w), int(t)] for letter, w, t in zip(CLASSES, wrong, total, strict=True) if t}


def pick(classes: np.ndarray, hit: np.ndarray) -> int:
    """Return the first row that differs, of the plainest class that has one; -1 for none."""
    for letter in _SHOW:
        found = np.flatnonzero(hit & (classes == CLASSES.index(letter)))
        if found.size:
            return int(found[0])
    return -1


def show_row(
    case: Case, given: Rows, golden: Mapping[str, np.ndarray], observed: Mapping[str, np.ndarray], index: int
) -> dict[str, Any]:
    """Return the first difference of a row in words: the input, and the first place where both sides part."""
    inputs = {name: _nonzero(array) for name, array in given.row(index).items()}
    of_rows = {name: want for name, want in golden.items() if name not in SHARED}
    for name, want in sorted(of_rows.items(), key=lambda item: item[0] != "scales"):  # codes follow from the scale
        left, right = want[index].reshape(-1), observed[name][index].reshape(-1)
        if name == "packed":
            left, right = unpack_nibbles(left[None, :])[0], unpack_nibbles(right[None, :])[0]
        at = np.flatnonzero(left != right)
        if at.size:
            place = int(at[0])
            digits = 2 * left.dtype.itemsize
            ours, theirs = (f"0x{int(side[place]):0{digits}X}" for side in (left, right))
            return {"inputs": inputs, "output": name, "index": place, "golden": ours, "peer": theirs}
    return {"inputs": inputs}


def _nonzero(array: np.ndarray) -> list[list[Any]]:
    """Return (place, bits) of the elements that are not zero, at most 4."""
    bits = as_bits(array).reshape(-1)
    digits = 2 * bits.dtype.itemsize
    return [[int(at), f"0x{int(bits[at]):0{digits}X}"] for at in np.flatnonzero(bits)[:4]]
