"""What a user would take in a kernel's place, as a table. A library is imported only when it is timed.

A contender is a file with `contenders(subject)` and one entry of the table. Where the library is a peer too, its calls
stand in `subjects.peers`, and the file here says only which lines of the bench they answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from types import ModuleType

from refnum.errors import ArgumentError

from ....subjects.peers.foreign import torch_here
from ....subjects.subject import Subject
from ..contender import Contender


@dataclass(frozen=True)
class Entry:
    """A contender's name on the command line, its file in this room, and whether that file has a `missing()`.

    `missing()` returns why the library cannot be used here, or an empty string. Every contender needs torch on a GPU.
    """

    name: str
    module: str
    needs_library: bool = False


CONTENDERS = (
    Entry("tilekernels", "tilekernels", True),
    Entry("compile", "compiled"),
    Entry("separate", "separate"),
    Entry("triton", "triton_mxfp", True),
    Entry("cublaslt", "products"),
)


def select_contenders(patterns: list[str] | None, subject: Subject) -> tuple[list[Contender], list[tuple[str, str]]]:
    """Return the contenders of some names, and (name, reason) for those that cannot be used here.

    Args:
        patterns: names or shell patterns of `CONTENDERS`; None: all of them; `none` alone: none.
        subject: whose kernels they are timed beside.

    Raises:
        ArgumentError: a pattern names no contender.
    """
    if patterns == ["none"]:
        return [], []
    for pattern in patterns or []:
        if not any(fnmatchcase(entry.name, pattern) for entry in CONTENDERS):
            known = ", ".join(entry.name for entry in CONTENDERS)
            raise ArgumentError(f"--peer {pattern!r} is not known; give one of {known}, or none.")
    found: list[Contender] = []
    missing: list[tuple[str, str]] = []
    for entry in CONTENDERS:
        if patterns and not any(fnmatchcase(entry.name, pattern) for pattern in patterns):
            continue
        reason = _missing(entry)
        if reason:
            missing.append((entry.name, reason))
        else:
            found += _module(entry).contenders(subject)
    return found, missing


def _missing(entry: Entry) -> str:
    """Return why a contender cannot be used here; its file is imported only where torch sees a GPU."""
    return torch_here("cuda") or (_module(entry).missing() if entry.needs_library else "")


def _module(entry: Entry) -> ModuleType:
    return import_module(f".{entry.module}", __name__)
