"""Mutants of later lines: those that a commit does not have, so that only what is new is judged."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

from refnum.errors import ArgumentError

from .operators import Mutant


def in_later_lines(mutants: Sequence[Mutant], root: Path, commit: str | None) -> list[Mutant]:
    """Return the mutants in lines that a commit does not have; without a commit, all of them.

    root: the folder of their files, in a git repository. A file that the commit does not have is new in every line.
    Raises ArgumentError: there is no such repository or commit, or no mutant is left.
    """
    if commit is None:
        return list(mutants)
    if _git(root, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is None:
        raise ArgumentError(f"--since {commit} is no commit of the git repository around {root}.")
    later = {file: _later(root, file, commit) for file in {mutant.file for mutant in mutants}}
    found = [mutant for mutant in mutants if mutant.line in later[mutant.file]]
    if not found:
        raise ArgumentError(f"No mutant lies in a line that --since {commit} does not have.")
    return found


def _later(root: Path, file: str, commit: str) -> frozenset[int]:
    """Return the numbers of a file's lines that its text at a commit does not have in the same order."""
    old, new = (_git(root, "show", f"{commit}:./{file}") or "").splitlines(), (root / file).read_text().splitlines()
    kept = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return frozenset(range(1, len(new) + 1)).difference(*(range(at + 1, at + n + 1) for _, at, n in kept))


def _git(folder: Path, *words: str) -> str | None:
    """Return what git says in a folder, or None where it fails or there is none."""
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError:
        return None
    return None if done.returncode else done.stdout
