"""Kernel sources made ready for the emulator: `asm` statements become calls that carry the same text and operands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from refnum.errors import RefnumError


class CompileError(RefnumError):
    """A kernel does not compile for the emulator; the message has the first error."""


_ASM = re.compile(r"\basm\s*(?:volatile\s*)?\(")
_OPERAND = re.compile(r'\s*(?:\[\w+\]\s*)?"([=+]?)&?([rlhfdn])"\s*\((.*)\)\s*', re.S)
_DYNAMIC = re.compile(r"extern\s+__shared__\s+((?:__align__\(\d+\)\s+)?[\w:]+)\s+(\w+)\s*\[\s*\]")
_VERBS = {"=": "out", "+": "in_out", "": "in"}
DYNAMIC_SHARED = 227 << 10
"""Bytes that `extern __shared__` gets: what a CTA of sm_90 may have."""


def _closing(text: str, start: int) -> int:
    """Return where the parenthesis that opens before `start` closes."""
    for (place, depth), _ in _outside_strings(text, start):
        if depth < 0:
            return place
    raise CompileError(f"an asm statement is never closed: {text[start : start + 60]!r}")


def _outside_strings(text: str, start: int = 0) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield ((place, depth), letter) for letters outside string literals; a closing bracket has its opener's depth."""
    depth, place = 0, start
    while place < len(text):
        letter = text[place]
        if letter == '"':
            place = re.compile(r'"(?:\\.|[^"\\])*"', re.S).match(text, place).end()  # type: ignore[union-attr]
            continue
        depth -= letter in ")]}"
        yield (place, depth), letter
        depth += letter in "([{"
        place += 1


def _split(text: str, at: str) -> list[str]:
    """Split at a letter outside strings and brackets."""
    cuts = [place for (place, depth), letter in _outside_strings(text) if letter == at and depth == 0]
    return [text[start:end] for start, end in zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(text)], strict=True)]


def _call(inside: str, where: str) -> str:
    """Return the call for what stands between an asm statement's parentheses."""
    template, *sections = _split(inside, ":")
    operands = []
    for one in [part for section in sections[:2] for part in _split(section, ",") if part.strip()]:
        found = _OPERAND.fullmatch(one)
        if found is None:
            raise CompileError(f"{where}: the emulator cannot read the operand {one.strip()!r} of an asm statement")
        operands.append(f"::emulation::{_VERBS[found[1]]}<'{found[2]}'>({found[3]})")
    return f"::emulation::run<{template.strip()}>({', '.join(operands)})"


def rewritten(name: str, text: str) -> str:
    """Return a source for the emulator, its lines where they were; CompileError for an asm that cannot be read."""
    text = _DYNAMIC.sub(rf"__shared__ \1 \2[{DYNAMIC_SHARED}]", text)
    out, done = [], 0
    for found in _ASM.finditer(text):
        line_start = text.rfind("\n", 0, found.start()) + 1
        if found.start() < done or "//" in text[line_start : found.start()]:
            continue
        end = _closing(text, found.end())
        where = f"{name}:{text.count(chr(10), 0, found.start()) + 1}"
        call = _call(text[found.end() : end], where)
        lines = text.count("\n", found.start(), end) - call.count("\n")
        out += [text[done : found.start()], call, "\n" * max(lines, 0)]
        done = end + 1
    return "".join([*out, text[done:]])
