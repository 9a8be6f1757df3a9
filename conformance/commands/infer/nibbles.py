"""In which order a kernel packs two codes a byte: a systematic swap hides no profile."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from refnum.arrays import pack_nibbles
from refnum.errors import RefnumError
from refnum.layouts import NIBBLE_ORDERS, codes_from_packed
from refnum.profiles import Profile

from .answers import Answer, Part
from .score import Score

OURS = NIBBLE_ORDERS[0]
FEW = 24
"""Answers that tell the order, the small ones."""


def nibble_order(answers: Sequence[Answer], profile: Profile) -> str:
    """Return the order in which the packed codes agree best with a profile; ours where no other agrees better."""
    values = {OURS: _agreement(answers[:FEW], profile)}
    for order in NIBBLE_ORDERS[1:]:
        try:
            values[order] = _agreement(in_order(answers[:FEW], order), profile)
        except RefnumError:  # columns that the order does not have
            continue
    return max(values, key=lambda order: values[order])


def _agreement(answers: Sequence[Answer], profile: Profile) -> tuple[int, int]:
    score = Score()
    for answer in answers:
        score.add(answer, profile, [name for name, part in answer.observed.items() if part.kind == "packed"])
    return score.value


def in_order(answers: Sequence[Answer], order: str) -> list[Answer]:
    """Return answers as they are when their packed codes lie in a nibble order."""
    return [dataclasses.replace(answer, observed=_turned(answer.observed, order)) for answer in answers]


def _turned(observed: dict[str, Part], order: str) -> dict[str, Part]:
    return {
        name: Part(part.kind, codes_from_packed(pack_nibbles(part.elements), order)) if part.kind == "packed" else part
        for name, part in observed.items()
    }
