"""C++ source as a mutation operator sees it: what is no code is blanked out, and every letter stays in its place."""

from __future__ import annotations

import bisect
import re

_SKIPPED = re.compile(
    r"""
    //[^\n]*                                  # a comment to the end of the line
    | /\*.*?\*/                               # a comment
    | "(?:\\.|[^"\\\n])*"                     # a string, such as the text of an asm statement
    | ^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*          # a directive
    | \b(?:static_assert|\w+_EXPECTS)\s*\([^;]*;  # checked, and no part of an answer
    """,
    re.X | re.S | re.M,
)
_CONDITION = re.compile(r"^[ \t]*#\s*(if|ifdef|ifndef|elif|else|endif)\b([^\n]*)", re.M)
DEVICE = ("__CUDA_ARCH__", "__CUDACC__", "__CUDACC_RTC__")


_DECLARED = re.compile(r"\b(?:u?int\d+_t|[A-Z]\w+)(?:<\w+>)? (?:\w+|\(&\w+\))(?:\[[^\]]*\])+(?:, \w+(?:\[[^\]]*\])+)*")
"""Arrays that are declared: how long they are is no arithmetic either."""
_LOOP = re.compile(r"\bfor \((?:[^()]|\([^()]*\))*\)")


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found.group(0))


def masked(text: str, loops: bool = False) -> str:
    """Return the text with comments, strings, directives and static assertions as blanks, line ends kept.

    loops: the heads of loops are kept too. A loop that runs on behind its arrays is no arithmetic, so operators see
    heads of loops only where they ask for them.
    """
    plain = _DECLARED.sub(_blank, _SKIPPED.sub(_blank, text))
    return plain if loops else _LOOP.sub(_blank, plain)


def regions(text: str) -> list[tuple[int, int, str]]:
    """Return (start, end, `device` or `host`) of what is compiled for one of the two alone, by its conditions."""
    found: list[tuple[int, int, str]] = []
    stack: list[tuple[int, str]] = []

    def leave(end: int) -> str:
        start, side = stack.pop()
        if side:
            found.append((start, end, side))
        return side

    for line in _CONDITION.finditer(text):
        word, condition = line.groups()
        if word.startswith("if"):
            stack.append((line.end(), _side(word, condition)))
        elif word == "elif":
            side = leave(line.start())
            stack.append((line.end(), _side("if", condition) or _other(side)))
        elif word == "else":
            stack.append((line.end(), _other(leave(line.start()))))
        else:
            leave(line.start())
    return sorted(found)


def _side(word: str, condition: str) -> str:
    if not any(name in condition for name in DEVICE):
        return ""
    negative = word == "ifndef" or condition.strip().startswith("!")
    return "host" if negative else "device"


def _other(side: str) -> str:
    return {"device": "host", "host": "device"}.get(side, "")


class Lines:
    """Line numbers of places in a text."""

    def __init__(self, text: str) -> None:
        self._ends = [found.start() for found in re.finditer("\n", text)]

    def number(self, place: int) -> int:
        """Return the line, from 1 on, of a place."""
        return bisect.bisect_left(self._ends, place) + 1
