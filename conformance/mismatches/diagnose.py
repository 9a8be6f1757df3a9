"""Hints: the known wrong rules that give every bit that was seen of a subject, and nothing that was not seen.

A hint is not a proof. A rule is shown when it gives all differing bits of every kept case of a page, and when the
subject, called again on further small cases of the variant, differs wherever the rule does, and by the same bits: a
sign of zero too, even if the subject is compared by decoded values. Of several rules those are shown that explain the
most of these cases; where none is left, nothing is shown.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refnum.errors import RefnumError

from ..bugs import WRONG, asked_of
from ..bugs.suspects import SUSPECTS, Suspect
from ..cases import layouts
from ..cases.case import Case
from ..cases.operation import OPERATIONS, as_bits, outputs_of, run_golden
from ..cases.same_bytes import same
from ..vectors.errors import VectorFileError
from ..vectors.load import load_notes
from ..verdicts.compare import differences, equal_at

SHOWN = 4
LARGEST = 1 << 20
"""Elements of the largest case on which suspects are tried."""
ASKED, SMALL, SECONDS = 64, 1 << 13, 2.0
"""Further cases on which one suspect is tried, the elements of the largest of them, and the time that they may take."""
LEAST = 12
"""Cases on which a suspect is tried however long they take: a busy machine shows nothing that it did not try."""
EXACT = 1
"""The level by which bits are told apart whatever level a subject is compared at: codes under a NaN scale are free."""
_NOT_APPLICABLE = (RefnumError, ValueError, LookupError, TypeError, AttributeError, AssertionError, ArithmeticError)

Bits = Mapping[str, Any]
Ask = Callable[[Case], Bits | None]
"""Calls the subject on a case; None where it gives nothing that can be compared."""


@dataclass(frozen=True)
class Seen:
    """What a subject gave for a case. level: the level of agreement at which bits are equal (N16)."""

    case: Case
    observed: Bits
    level: int = 0

    @functools.cached_property
    def golden(self) -> Bits:
        """The right outputs, as unsigned integers."""
        return run_golden(self.case)

    @functools.cached_property
    def _answers(self) -> dict[Suspect, Bits | None]:
        return {}

    def answer(self, suspect: Suspect) -> Bits | None:
        """Return `predicted` of a suspect; the answers to a small case are kept, as several questions need them."""
        if self.case.elements > SMALL:
            return predicted(suspect, self.case, self.golden)
        if suspect not in self._answers:
            self._answers[suspect] = predicted(suspect, self.case, self.golden)
        return self._answers[suspect]

    def given(self, observed: Bits) -> Seen:
        """Return the same case with what the subject gave for it."""
        seen = replace(self, observed=observed)
        seen.__dict__.update(golden=self.golden, _answers=self._answers)
        return seen

    def equal(self, bits: Bits) -> bool:
        """Whether some bits are those of the subject, at the level of agreement."""
        return equal_at(self.case, bits, self.observed, self.level)

    @functools.cached_property
    def wrong(self) -> Bits:
        """Where the subject's bits are not the right ones, at the level of agreement."""
        return differences(self.case, self.golden, self.observed, self.level)

    def apart(self, left: Bits, right: Bits) -> Bits:
        """Where two answers to the case differ in any bit that counts: codes under a NaN scale do at level L0 alone."""
        return differences(self.case, left, right, min(self.level, EXACT))

    @functools.cached_property
    def right(self) -> bool:
        """Whether the subject's bits are the right ones, at the level of agreement."""
        return self.equal(self.golden)


def hints(kept: Sequence[Seen], further: Iterable[Case] = (), ask: Ask = lambda case: None) -> list[dict[str, Any]]:
    """Return the bug classes that explain some failing cases, those that explain the most of further cases first.

    Args:
        kept: the failing cases of one page.
        further: cases of the same variant on which the subject may be called; those are tried that tell suspects apart.
        ask: calls the subject.

    Returns:
        A list of {"id", "words", "note"}, at most `SHOWN`, where note is the entry of the notes registry of that id.
    """
    small = sorted((one for one in kept if one.case.elements <= LARGEST), key=lambda one: one.case.elements)
    found = list(SUSPECTS) if small else []
    for one in small:
        found = [suspect for suspect in found if gives(suspect, one)]
    found = [suspect for suspect in found if any(explains(suspect, one) for one in small)]
    if not found and small and all(only_padding(one.case, one.golden, one.observed) for one in small):
        return [_note("PADDING_NOT_ZERO")]
    if not found:
        return []
    left = _asked(found, further, ask, small[0].level)
    first = {suspect.id: suspect for suspect in reversed(left)}
    return [_note(suspect.id, suspect.words) for suspect in left if first[suspect.id] is suspect][:SHOWN]


def gives(suspect: Suspect, seen: Seen) -> bool:
    """Whether a suspect gives what was seen of a case; what it masks may be anything.

    What differs from the right result at the level of agreement must be given bit by bit, all else at that level.
    """
    wrong = seen.answer(suspect)
    try:
        if wrong is None:
            return False
        bits = _over(seen.observed, wrong)
        if all(same(bits[name], right) for name, right in seen.golden.items()):
            return seen.right
        return seen.equal(bits) and not _both(seen.wrong, seen.apart(seen.observed, bits))
    except _NOT_APPLICABLE:
        return False


def explains(suspect: Suspect, seen: Seen) -> bool:
    """Whether a suspect gives exactly the bits that were seen of a case, and not the right ones."""
    return _strikes(suspect, seen) and gives(suspect, seen)


def refuted(suspect: Suspect, seen: Seen) -> bool:
    """Whether the subject gave other bits than a suspect where this differs from the right result.

    Where it differs below the level of agreement only, the subject's bits must be the right ones to say so: a subject
    may have its own ways there.
    """
    wrong = seen.answer(suspect)
    if wrong is None:
        return False
    try:
        given, bits = _over(seen.golden, wrong), _over(seen.observed, wrong)
        strikes = differences(seen.case, seen.golden, given, seen.level)
        if _both(strikes, seen.apart(seen.observed, bits)):
            return True
        right = {name: ~each for name, each in seen.apart(seen.golden, seen.observed).items()}
        return _both(seen.apart(seen.golden, given), right)
    except _NOT_APPLICABLE:
        return False


def _both(left: Bits, right: Bits) -> bool:
    """Whether an element of any output that both sides have bears both marks."""
    return any(bool(np.any(left[name] & right[name])) for name in left.keys() & right.keys())


def _asked(found: list[Suspect], further: Iterable[Case], ask: Ask, level: int) -> list[Suspect]:
    """Return the suspects that no further case refutes, the ones that explain the most of these cases first."""
    end, tried, times = time.monotonic() + SECONDS, Counter[Suspect](), Counter[Suspect]()
    for unseen in (Seen(case, {}, level) for case in further if case.elements <= SMALL):
        limit = ASKED if time.monotonic() < end else LEAST
        waiting = [suspect for suspect in found if tried[suspect] < limit]
        if not waiting:
            break
        told_apart = [suspect for suspect in waiting if _strikes(suspect, unseen, exactly=True)]
        observed = ask(unseen.case) if told_apart else None
        tried.update(told_apart)
        if observed is not None:
            seen = unseen.given(observed)
            found = [suspect for suspect in found if not refuted(suspect, seen)]
            times.update(suspect for suspect in found if explains(suspect, seen))
    most = max((times[suspect] for suspect in found), default=0)
    return [suspect for suspect in found if times[suspect] == most]


def _strikes(suspect: Suspect, seen: Seen, exactly: bool = False) -> bool:
    """Whether a suspect differs from the right result, at the level of agreement or in any bit that is compared."""
    wrong = seen.answer(suspect)
    try:
        if wrong is None:
            return False
        level = min(seen.level, EXACT) if exactly else seen.level
        return not equal_at(seen.case, seen.golden, _over(seen.golden, wrong), level)
    except _NOT_APPLICABLE:
        return False


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


LAYOUTS = {"swizzled": "SWIZZLE_LAYOUT", "packed_ue8m0": "UE8M0_PACK_ORDER"}


def laid_out(case: Case, problem: str) -> list[dict[str, Any]]:
    """Return the note on a scale layout whose storage holds what no bytes give, by the comparison's words for it."""
    name = LAYOUTS.get(str(case.params.get(layouts.OUT)), "")
    if not name or "layout" not in problem:
        return []
    return [_note(name)]


def _note(name: str, words: str = "") -> dict[str, Any]:
    note = notes().get(name)
    return {"id": name, "words": words or (note or {}).get("description", ""), "note": note}


def predicted(suspect: Suspect, case: Case, golden: Bits) -> Bits | None:
    """Return what a suspect gives for a case, as it gives it; None where it does not apply."""
    if not asked_of(suspect.operations, case.operation):
        return None
    if suspect.id in TIES and suspect.id not in _ties_of(case):
        return None  # one rule of ties, several notes: the element format says which
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


TIES = frozenset(f"{name}_TIES_{way}" for name in ("E2M1", "E4M3", "ELEMENT") for way in ("UP", "TO_ZERO"))


def _ties_of(case: Case) -> tuple[str, ...]:
    """Return the notes on ties for the element format that the case is encoded to."""
    formats = {output.format(case.params) for output in outputs_of(case) if output.kind in ("codes", "packed")}
    known = [note for name in ("E2M1", "E4M3") if name in formats for note in sorted(TIES) if note.startswith(name)]
    ways = [way for way in ("UP", "TO_ZERO") if not any(note.endswith(way) and note in WRONG for note in known)]
    return (*known, *(f"ELEMENT_TIES_{way}" for way in ways))


@functools.cache
def notes() -> dict[str, dict[str, Any]]:
    """Return the registry of bug notes by id (`vectors/notes.json`); empty when it is not installed."""
    try:
        return {name: {"id": name, **note} for name, note in load_notes().items()}
    except VectorFileError:
        return {}
