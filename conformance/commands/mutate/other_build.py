"""Mutants that one build has no code of, judged by another: headers hold what only whole kernels use.

What a run wrote counts for a source while that source's text is the same; so it says which texts it judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .operators import Mutant
from .verdict import OUTSIDE, Verdict


def sources(texts: Mapping[str, str]) -> dict[str, str]:
    """Return name -> SHA-256 of sources, as a run writes them down."""
    return {file: hashlib.sha256(text.encode()).hexdigest() for file, text in sorted(texts.items())}


def taken(verdicts: Sequence[Verdict], other: Mapping[str, Any], texts: Mapping[str, str]) -> list[Verdict]:
    """Return the verdicts, those outside of the build with what another run says of the same mutant.

    other: what `refnum mutate run --out` wrote. One that it did not judge, or judged in another text, stays outside.
    """
    same = {file for file, digest in sources(texts).items() if other.get("sources", {}).get(file) == digest}
    rows = {(row["id"], row["old"], row["new"]): row for row in other["mutants"] if row["file"] in same}

    def one(verdict: Verdict) -> Verdict:
        row = rows.get(_name(verdict.mutant)) if verdict.status == OUTSIDE else None
        if row is None:
            return verdict
        values = {name: row[name] for name in ("status", "operation", "case")}
        return replace(verdict, **values, how=f"by {other['subject']}: {row['how'] or row['status']}")

    return [one(verdict) for verdict in verdicts]


def _name(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.id, mutant.old, mutant.new
