"""The long stage: what survives the fast one is asked every point of the enumerable domains, all survivors together.

A survivor that answers every point right is `enumerated`: on those domains it is the same function. Operations, or
paths of them, without a domain are not covered by that, and the verdict names what was asked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import corpus
from .forked import OUR_FAULT
from .library import Library
from .run import on_workshop, pool
from .verdict import ENUMERATED, KILLED, SURVIVED, Verdict

FAST = {corpus.OWN, "vector", "corner", "sampled", "layout", "key", "element"}
"""Places of questions that are no domain."""


def enumerated(
    library: Library, verdicts: Sequence[Verdict], folder: Path, workers: int, seconds: float
) -> list[Verdict]:
    """Return the verdicts with survivors settled by the domains of the operations that their change reaches.

    seconds: for one operation; one whose domains do not end in that time settles nothing.
    """
    survivors = [verdict for verdict in verdicts if verdict.status == SURVIVED]
    folders = {verdict.mutant.id: folder / str(i) for i, verdict in enumerate(survivors)}
    operations = sorted({name for verdict in survivors for name in verdict.changed})
    found: dict[str, dict[str, str]] = {}
    asked: dict[str, dict[str, int]] = {}
    with pool(library, workers) as judges:
        list(judges.map(on_workshop(_built), survivors, folders.values()))
        waiting = {
            judges.submit(
                on_workshop(_ask_all), name, [v for v in survivors if name in v.changed], folders, seconds
            ): name
            for name in operations
        }
        for done in as_completed(waiting):
            name = waiting[done]
            asked[name], kills = done.result()
            for one, words in kills.items():
                found.setdefault(one, {})[name] = words
    return [_settled(verdict, found.get(verdict.mutant.id, {}), asked) for verdict in verdicts]


def _settled(verdict: Verdict, kills: dict[str, str], asked: dict[str, dict[str, int]]) -> Verdict:
    if verdict.status != SURVIVED:
        return verdict
    if kills:
        name, words = sorted(kills.items())[0]
        return replace(verdict, status=KILLED, how="other bytes", operation=name, case=words)
    open_ones = [name for name in verdict.changed if not set(asked.get(name, ())) - FAST]
    if open_ones:
        return replace(verdict, how=f"not every point was asked of {', '.join(open_ones)}")
    cases = sum(sum(asked[name].values()) for name in verdict.changed)
    return replace(verdict, status=ENUMERATED, how=f"right in {cases} cases of the domains of its operations")


def _built(library: Library, verdict: Verdict, folder: Path) -> None:
    _built_here[verdict.mutant.id] = library.optimised(verdict.mutant, folder)


_built_here: dict[str, Any] = {}


def _operations(library: Library, verdict: Verdict, folder: Path) -> Any:
    if verdict.mutant.id not in _built_here:
        _built(library, verdict, folder)
    return _built_here[verdict.mutant.id].operations


def _ask_all(
    library: Library, operation: str, verdicts: Sequence[Verdict], folders: dict[str, Path], seconds: float
) -> tuple[dict[str, int], dict[str, str]]:
    """Return (domain -> cases asked, id -> the case that killed it) of one operation."""
    alive = {v.mutant.id: _operations(library, v, folders[v.mutant.id]) for v in verdicts}
    kills: dict[str, str] = {}
    counts: dict[str, int] = {}
    end = time.monotonic() + seconds
    for question in corpus.all_of(operation, library.sources.profiles):
        if time.monotonic() > end:
            return {}, kills  # what did not end proves nothing
        counts[question.place] = counts.get(question.place, 0) + 1
        for name, operations in list(alive.items()):
            try:
                wrong = corpus.wrong(operations, question)
            except OUR_FAULT:
                return {}, kills
            if wrong:
                kills[name] = question.label[:160]
                del alive[name]
        if not alive:
            break
    return counts, kills
