"""Guess the bug class of a mismatch: try every known wrong rule and keep those that give the very same wrong bits.

A guess is not a proof. On a case of one or two elements several wrong rules may give the same bits; all of them
are named, the most specific first, as they stand in `suspects.SUSPECTS`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from refnum.errors import RefnumError

from ..bugs.suspects import COARSE, SUSPECTS, Suspect
from ..cases import layouts
from ..cases.case import Case
from ..cases.operation import OPERATIONS, as_bits, outputs_of, run_golden
from ..vectors.errors import VectorFileError
from ..vectors.load import load_notes
from ..verdicts.compare import equal_at

SHOWN = 4
ENOUGH = 8
"""Wrong scales that must be in failing cases before scales alone tell a rule."""
LARGEST = 1 << 20
"""Elements of the largest case on which suspects are tried."""
_NOT_APPLICABLE = (RefnumError, ValueError, LookupError, TypeError, AttributeError, AssertionError, ArithmeticError)


Bits = Mapping[str, Any]


def diagnose(
    case: Case, golden: Bits, observed: Bits, level: int = 0, also: tuple[Case, Bits] | None = None
) -> list[dict[str, Any]]:
    """Return the suspects whose wrong bits equal the observed bits and differ from the golden ones.

    level: the level of agreement at which bits are equal (N16), so that what a lower level forgives, say codes
    under a NaN scale, does not hide the bug that is asked about. also: a larger case that failed, with what was
    observed there; if any suspects explain that too, only those are returned, and if others explain it, those: on
    a case of a few elements a wrong rule may look like a coarser one. Each is {"id", "words", "note"},
    where note is the entry of the notes registry with that id, or None.
    """
    if case.elements > LARGEST:
        return []
    found = list(_explaining(case, golden, observed, level, SUSPECTS))
    if also is not None and also[0].elements <= LARGEST and also[0] is not case:
        wanted = run_golden(also[0])
        found = (
            list(_explaining(also[0], wanted, also[1], level, found))
            or list(_explaining(also[0], wanted, also[1], level, SUSPECTS))
            or found
        )
    first = {suspect.id: suspect for suspect in reversed(found)}
    if not found and only_padding(case, golden, observed):
        return [_note("PADDING_NOT_ZERO")]
    return [_entry(suspect) for suspect in found if first[suspect.id] is suspect][:SHOWN]


def of_scales(failures: Iterable[tuple[Case, Bits]]) -> list[dict[str, Any]]:
    """Return the suspects that give all the scales of some failing cases, although not their codes.

    A kernel with a wrong scale rule has a way of its own to encode what then is too large, which no rule foretells; so
    where nothing explains all bits, the scales of many blocks may still tell their rule. failures: (case, what was
    observed); those whose scales are right say nothing. There must be ENOUGH wrong scales in all.
    """
    left, wrong_blocks = [suspect for suspect in SUSPECTS if suspect not in COARSE], 0
    for case, observed in failures:
        golden = run_golden(case)
        if "scales" not in golden or np.array_equal(golden["scales"], observed["scales"]):
            continue
        wrong_blocks += int(np.count_nonzero(golden["scales"] != observed["scales"]))
        left = [suspect for suspect in left if _gives_scales(suspect, case, golden, observed["scales"])]
    if wrong_blocks < ENOUGH:
        return []
    return [_note(one.id, f"{one.words or _note(one.id)['words']} (by the scales alone)") for one in left][:SHOWN]


def _gives_scales(suspect: Suspect, case: Case, golden: Bits, scales: np.ndarray) -> bool:
    if not any(fnmatchcase(case.operation, pattern) for pattern in suspect.operations):
        return False
    wrong = _wrong(suspect, case, golden)
    return wrong is not None and np.array_equal(as_bits(np.asarray(wrong["scales"])), scales)


def only_padding(case: Case, golden: Bits, observed: Bits) -> bool:
    """Whether a permutation's results differ in its padding rows and nowhere else (N12), whatever those hold."""
    operation = OPERATIONS[case.operation]
    if not (operation.routed and operation.moves_only):
        return False
    align = int(case.params["align"])
    padding = np.concatenate(
        [np.zeros(0, bool), *(np.arange(-(-m // align) * align) >= m for m in map(int, case.params["splits"]))]
    )
    wrong = [np.not_equal(golden[name], observed[name]) for name in golden]
    moved = [each.any(axis=1) for each in wrong if each.ndim == 2]
    if any(each.any() for each in wrong if each.ndim != 2):  # offsets
        return False
    within = all(len(each) == len(padding) and not np.any(each & ~padding) for each in moved)
    return within and any(each.any() for each in moved)


def named(classes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether bug classes say more than the coarse ones, which explain much at once."""
    return any(entry["id"] not in {suspect.id for suspect in COARSE} for entry in classes)


LAYOUTS = {"swizzled": "SWIZZLE_LAYOUT", "packed_ue8m0": "UE8M0_PACK_ORDER"}


def laid_out(case: Case, problem: str) -> list[dict[str, Any]]:
    """Return the note on a scale layout whose storage holds what no bytes give, by the comparison's words for it."""
    name = LAYOUTS.get(str(case.params.get(layouts.OUT)), "")
    if not name or "layout" not in problem:
        return []
    return [_note(name)]


def _entry(suspect: Suspect) -> dict[str, Any]:
    return _note(suspect.id, suspect.words)


def _note(name: str, words: str = "") -> dict[str, Any]:
    note = notes().get(name)
    return {"id": name, "words": words or (note or {}).get("description", ""), "note": note}


def _explaining(case: Case, golden: Bits, observed: Bits, level: int, suspects: Iterable[Suspect]) -> Iterator[Suspect]:
    for suspect in suspects:
        if not any(fnmatchcase(case.operation, pattern) for pattern in suspect.operations):
            continue
        if suspect.id.endswith("_TIES_UP") and suspect.id != _ties_up_id(case):
            continue  # one rule, three notes: the element format says which
        wrong = _wrong(suspect, case, golden)
        if wrong is None:
            continue
        try:
            if equal_at(case, golden, _over(golden, wrong), level):
                continue
            if not equal_at(case, _over(observed, wrong), observed, level):
                continue
        except _NOT_APPLICABLE:
            continue
        yield suspect


def _wrong(suspect: Suspect, case: Case, golden: Bits) -> Bits | None:
    """Return what a suspect gives, as it gives it; None where it does not apply."""
    try:
        with np.errstate(all="ignore"):
            return suspect.wrong(case, golden)
    except _NOT_APPLICABLE:  # a wrong rule may meet shapes or values that it was not written for
        return None


def _over(there: Bits, wrong: Bits) -> dict[str, np.ndarray]:
    """Return the bits of a wrong answer written over what was there: what a rule masks it never writes."""
    return {
        name: np.where(array.mask, there[name], as_bits(array.data))
        if isinstance(array, np.ma.MaskedArray)
        else as_bits(array)
        for name, array in wrong.items()
    }


def _ties_up_id(case: Case) -> str:
    """Return the note on ties for the element format that the case is encoded to."""
    formats = {output.format(case.params) for output in outputs_of(case) if output.kind in ("codes", "packed")}
    return next((f"{name}_TIES_UP" for name in ("E2M1", "E4M3") if name in formats), "ELEMENT_TIES_UP")


@functools.cache
def notes() -> dict[str, dict[str, Any]]:
    """Return the registry of bug notes by id (`vectors/notes.json`); empty when it is not installed."""
    try:
        return {name: {"id": name, **note} for name, note in load_notes().items()}
    except VectorFileError:
        return {}
