"""What a user would take in a kernel's place, as a table. A peer's library is imported when it is asked for.

Adding one is a file with `contenders(subject)` and one entry here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

from refnum.errors import ArgumentError

from ....subjects.subject import Subject
from ..contender import Contender


@dataclass(frozen=True)
class Peer:
    """A file of this room. missing: function of the file `module` that gives why it cannot be used, or nothing."""

    name: str
    module: str
    missing: tuple[str, str]


PEERS = (
    Peer("tilekernels", "tilekernels", ("tilekernels", "missing")),
    Peer("compile", "compiled", ("compiled", "missing_torch")),
    Peer("separate", "separate", ("compiled", "missing_torch")),
    Peer("triton", "triton_mxfp", ("triton_mxfp", "missing")),
)


COMMON = ("compiled", "missing_torch")
"""What every peer needs: torch, and a GPU that it sees."""


def _call(module: str, name: str, *arguments: Any) -> Any:
    return getattr(import_module(f".{module}", __name__), name)(*arguments)


def peers(patterns: list[str] | None, subject: Subject) -> tuple[list[Contender], list[tuple[str, str]]]:
    """Return the contenders of the peers asked for (default: all; `none`: none), and (peer, reason) for the others.

    Raises ArgumentError for a pattern that names no peer.
    """
    if patterns == ["none"]:
        return [], []
    for pattern in patterns or []:
        if not any(fnmatchcase(peer.name, pattern) for peer in PEERS):
            known = ", ".join(peer.name for peer in PEERS)
            raise ArgumentError(f"--peer {pattern!r} is not known; give one of {known}, or none.")
    found: list[Contender] = []
    missing: list[tuple[str, str]] = []
    for peer in PEERS:
        if patterns and not any(fnmatchcase(peer.name, pattern) for pattern in patterns):
            continue
        reason = _call(*COMMON) or _call(*peer.missing)
        if reason:
            missing.append((peer.name, reason))
        else:
            found += _call(peer.module, "contenders", subject)
    return found, missing
