"""Explanations word for word: `explain_texts.txt` holds what `explain` says of the cases of two modules.

`python tests/refnum/test_explain_texts.py` writes the file anew; what changed is to be read.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from explain_cases import FIRST
from explain_steps_cases import FURTHER

import refnum as R

FILE = Path(__file__).with_name("explain_texts.txt")
CASES = {f"{one.__name__}-{number}": case for one in (*FIRST, *FURTHER) for number, case in enumerate(one())}


def text(name: str) -> str:
    operation, case, index = CASES[name]
    told = R.explain(operation, case, index)
    return f"{told}\n  {told.code} under {told.scale}"


@functools.cache
def frozen() -> dict[str, str]:
    parts = (part.partition("\n") for part in FILE.read_text().rstrip("\n").split("\n\n"))
    return {name.rstrip(":"): body for name, _, body in parts}


@pytest.mark.parametrize("name", CASES)
def test_an_explanation_says_what_it_said(name: str) -> None:
    assert text(name) == frozen()[name]


def test_no_other_explanation_is_frozen() -> None:
    assert [*frozen()] == [*CASES]


if __name__ == "__main__":
    FILE.write_text("\n\n".join(f"{name}:\n{text(name)}" for name in CASES) + "\n")
