"""What a mutation operator is, and the ways in which several of them change what they match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Change = Callable[[re.Match[str]], Iterator[str]]


@dataclass(frozen=True)
class Operator:
    """One way to break arithmetic. example: (text, what its mutants are, in order).

    where: what it sees: `code`, that is all but comments, strings and the heads of loops; `loops`; or `all`.
    """

    name: str
    words: str
    pattern: re.Pattern[str]
    changes: tuple[str, ...] | Change
    example: tuple[str, tuple[str, ...]]
    where: str = "code"

    def of(self, found: re.Match[str]) -> Iterator[str]:
        """Yield what a match becomes, never itself."""
        made = (
            self.changes(found)
            if callable(self.changes)
            else (re.sub(r"\\(\d)", lambda number: found[int(number[1])] or "", change) for change in self.changes)
        )
        seen = {found.group(0)}
        for text in made:
            if text not in seen:
                seen.add(text)
                yield text


def near(group: int = 1) -> Change:
    """Return the change of a decimal number by one, in both directions; never below zero."""

    def change(found: re.Match[str]) -> Iterator[str]:
        start, end = found.start(group) - found.start(), found.end(group) - found.start()
        text, value = found.group(0), int(found.group(group))
        for other in (value + 1, value - 1):
            if other >= 0:
                yield f"{text[:start]}{other}{text[end:]}"

    return change


def bits(found: re.Match[str]) -> Iterator[str]:
    """Take the lowest and the highest bit off a hexadecimal mask."""
    digits, suffix = found[2], found[3]
    value, wide = int(digits, 16), len(digits)
    for other in (value & (value - 1), value & ~(1 << max(value.bit_length() - 1, 0))):
        if value:
            yield f"{found[1]}0x{other:0{wide}X}{suffix}"


def entry(found: re.Match[str]) -> Iterator[str]:
    """Flip the lowest bit that is set of a hexadecimal constant."""
    value, wide = int(found[1], 16), len(found[1])
    yield f"0x{value ^ (value & -value or 1):0{wide}X}{found[2]}"


def selectors(found: re.Match[str]) -> Iterator[str]:
    """Swap the lower two and the upper two bytes that a permute picks."""
    a, b, c, d = tuple(found[1])
    yield f"0x{a}{b}{d}{c}"
    yield f"0x{b}{a}{c}{d}"


def operator(
    name: str,
    words: str,
    pattern: str,
    changes: tuple[str, ...] | Change,
    example: str,
    *mutants: str,
    where: str = "code",
) -> Operator:
    """Return an Operator from its words; `mutants` are what its example becomes."""
    return Operator(name, words, re.compile(pattern), changes, (example, mutants), where)
