"""A run's JSON as Markdown: the score by operator, and the frozen vectors with the mutants that only they kill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import refnum

from ...cases.operation import OPERATIONS
from ...vectors.errors import VectorFileError
from ...vectors.load import load_vectors
from .score import STATUSES

PREFIX = "vector: vector "


def by_operator(document: Mapping[str, Any]) -> str:
    """Return the table of a run by operator."""
    lines = [_row("operator", *STATUSES, "killed of those that could be"), "|---" * (len(STATUSES) + 2) + "|"]
    for name, counts in document["operators"].items():
        lines.append(_row(name, *(counts[status] for status in STATUSES), f"{100 * counts['score']:.1f} %"))
    return "\n".join(lines) + "\n"


def by_vector(document: Mapping[str, Any], places: Mapping[str, str]) -> str:
    """Return the table of vectors that are the only one to kill a mutant. places: id of a vector -> what it is of."""
    found: dict[str, list[str]] = defaultdict(list)
    for mutant in document["mutants"]:
        if mutant["only"]:
            change = f"{mutant['old'].strip()} to {mutant['new'].strip() or 'nothing'}"
            found[mutant["only"].removeprefix(PREFIX)].append(f"`{mutant['id']}` ({_plain(change)})")
    lines = [_row("vector", "of", "mutants that only it kills"), "|---|---|---|"]
    for name, mutants in sorted(found.items(), key=lambda item: (places.get(item[0], ""), item[0])):
        lines.append(_row(f"`{name}`", places.get(name, ""), ", ".join(mutants)))
    return "\n".join(lines) + "\n"


def places_of_vectors() -> dict[str, str]:
    """Return id -> operation and profile of every frozen vector."""
    return {name: f"`{operation}` {profile}" for name, operation, profile in _vectors()}


def _vectors() -> Iterator[tuple[str, str, str]]:
    for operation in OPERATIONS:
        for profile in refnum.PROFILES:
            try:
                yield from ((vector.id, operation, profile) for vector in load_vectors(operation, profile))
            except VectorFileError:
                continue


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*").replace("_", "\\_")


def _row(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def vectors_page(document: Mapping[str, Any]) -> str:
    """Return a whole page on what each frozen vector alone kills, of a run in which that was asked."""
    mutants = document["mutants"]
    seen, unknown = sum(m["vectors"] > 0 for m in mutants), sum(m["vectors"] < 0 for m in mutants)
    return f"""# Frozen vectors and the mutants that only they kill

Written by `refnum mutate vectors` from a run on {document["subject"]} in which every mutant was judged by the frozen
vectors of the operations that it can affect, at least until two had detected it. {seen} of {len(mutants)} mutants are
detected by one or more; for {unknown} the answer is not known, as no vector was asked, or not all. A vector that is not
listed kills no mutant that another vector does not kill as well.

{by_vector(document, places_of_vectors())}"""
