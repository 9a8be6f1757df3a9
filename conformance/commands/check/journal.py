"""A note of the case at work, written before each call, so that a kernel that kills the process is still found.

A case is a place in a deterministic stream, so the note is a few words. The next `refnum check` finds the note of
a process that is gone, makes the case again and saves it as a replay file.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from refnum.errors import RefnumError

from ...cases.case import Case, plain
from ...cases.corners import corner_cases
from ...cases.domains import domains_for
from ...cases.levels import NO_LEVEL
from ...cases.operation import run_golden
from ...cases.recipes import sampled_cases
from ...cases.structure import structure_cases
from ...cases.structure.fields import parts
from ...cases.structure.illegal import READABLE, illegal_cases, readable_cases
from ...cases.structure.turns import cases_in_turn
from ...mismatches import replay
from ...reports import files
from ...subjects.subject import Subject
from ...vectors.frozen import frozen_cases
from ...verdicts.tally import Failure

FINDING = "process-died"
LENGTH = 1 << 13
"""Bytes of a note, blanks behind it."""
IN_TURN = "in turn"
"""The stream of calls behind another variant."""


def folder() -> Path:
    """Return the folder of the notes, `.refnum` in the working directory."""
    return Path(".refnum")


class Journal:
    """The note of one process. `enter` says which stream of which variant runs; `note` is called before each call."""

    def __init__(self, path: Path | None, seed: int = 0, examples: int = 0, level: str = "standard") -> None:
        self.path = path
        self.place: dict[str, Any] = {"pid": os.getpid(), "seed": seed, "examples": examples, "level": level}
        self.texts: dict[str, bytes] = {}
        self.stream = None if path is None else _mapped(path)
        self.length = 0

    def enter(self, key: tuple[str, str, Mapping[str, Any]], stream: str, seed: int | None = None) -> None:
        """Remember the variant and the stream: `corners`, `vectors`, `structure` or `parts` with an amount,
        `sampled` (of a seed), a domain's name or another."""
        operation, profile, params = key
        self.texts.clear()
        if seed is not None:
            self.place["seed"] = seed
        self.place.update(operation=operation, profile=profile, params=plain(params), stream=stream)

    def note(self, subject: str, number: int, there: bool = False) -> None:
        """Write down that a subject is about to run on a case of the stream, by its number.

        there: it is a part of a wide domain as a device makes it.
        """
        if self.stream is not None:
            more = f', "number": {number}, "there": {"true" if there else "false"}}}'
            text = (self._begun(subject) + more.encode())[:LENGTH]
            self.stream[: max(len(text), self.length)] = text.ljust(self.length)
            self.length = len(text)

    def _begun(self, subject: str) -> bytes:
        """Return the note up to the number of the case, which alone changes from call to call."""
        if subject not in self.texts:
            self.texts[subject] = json.dumps({**self.place, "subject": subject})[:-1].encode()
        return self.texts[subject]

    def close(self) -> None:
        """Take the note away: the process lives and reports for itself."""
        if self.stream is not None and self.path is not None:
            self.stream.close()
            self.path.unlink(missing_ok=True)


def _mapped(path: Path) -> mmap.mmap:
    """Return the bytes of a new file, which stay when the process dies, and are written without asking the system."""
    with path.open("w+b") as stream:
        stream.write(b" " * LENGTH)
        stream.flush()
        return mmap.mmap(stream.fileno(), LENGTH)


@contextmanager
def journal(plan: Any) -> Iterator[Journal]:
    """Yield the journal of a run; one that writes nothing when the folder cannot be written or nothing is saved."""
    path = None
    if plan.save:
        try:
            files.make_folder(folder())
            path = folder() / f"journal-{os.getpid()}.json"
            book = Journal(path, plan.seed, plan.examples, plan.level)
        except OSError:
            path = None
    if path is None:
        book = Journal(None)
    try:
        yield book
    finally:
        book.close()


def leftovers() -> Iterator[tuple[dict[str, Any], Path | None]]:
    """Yield (note, replay file) of every process that died during a call, and take the notes away.

    The replay file is None when the case cannot be made again, say by another version.
    """
    for path in sorted(folder().glob("journal-*.json")):
        try:
            note = json.loads(path.read_text())
            alive = _alive(int(note["pid"]))
        except (OSError, ValueError, KeyError, TypeError):
            note, alive = None, False
        if alive:
            continue
        try:
            path.unlink()
        except FileNotFoundError:  # another run, which took it away and ended while it was read
            continue
        if note and "subject" in note:
            yield note, _saved(note)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _saved(note: Mapping[str, Any]) -> Path | None:
    try:
        case = again(note)
        subject = Subject(note["subject"], {}, kind="user")
        failure = Failure(case, NO_LEVEL, finding=FINDING)
        return replay.save(replay.document(case, run_golden(case), {}, subject, failure), replay.folder())
    except (RefnumError, StopIteration, KeyError, TypeError, ValueError):
        return None


def again(note: Mapping[str, Any]) -> Case:
    """Make the case of a note again; StopIteration when its stream is shorter than it was."""
    key = note["operation"], note["profile"], note["params"]
    cases: Iterator[Case]
    if note["stream"] == "corners":
        cases = corner_cases(*key)
    elif note["stream"] == "vectors":
        cases = (case for case, _ in frozen_cases(*key))
    elif note["stream"].startswith("structure "):
        cases = (asked.case for asked in structure_cases(*key, note["stream"].partition(" ")[2]))
    elif note["stream"].startswith("parts "):
        cases = parts(*key, note["stream"].partition(" ")[2])
    elif note["stream"] == IN_TURN:
        cases = itertools.chain.from_iterable(cases_in_turn(*key))
    elif note["stream"] == "illegal":
        cases = illegal_cases(*key)
    elif note["stream"] == READABLE:
        cases = readable_cases(*key)
    elif note["stream"] == "sampled":
        cases = sampled_cases(*key, note["seed"], note["examples"])
    else:
        domain = next(domain for domain in domains_for(*key, note["level"]) if domain.name == note["stream"])
        if note.get("there"):
            return domain.part(note["number"])
        cases = domain.cases()
    return next(itertools.islice(cases, note["number"], None))
