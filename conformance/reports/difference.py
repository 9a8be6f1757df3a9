"""What a change did: the results of two runs of the same job, compared subject by subject and variant by variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from . import facts, terminal
from .merge import refuse_unlike
from .report import EXIT_MISMATCH, EXIT_NOTHING, EXIT_VERIFIED
from .sarif import fingerprint

Key = tuple[str, str, str]
Kind = tuple[str, str, str]


@dataclass(frozen=True)
class Line:
    """One variant of one subject that changed: its outcomes before and after, and what is new, in words."""

    subject: str
    variant: str
    before: str
    after: str
    words: str
    failures: tuple[Mapping[str, Any], ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """new: what fails now and did not, or in another way, or more often. fixed: what failed and passes now, or fails in
    fewer ways or less often.

    lost: what was verified and is not any more, without failing: not judged, or less of it covered. gained: what is
    verified for the first time. same: number of variants that fail as before. unchanged: number of all others.
    notes: what else sets the two runs apart.
    """

    new: tuple[Line, ...] = ()
    fixed: tuple[Line, ...] = ()
    lost: tuple[Line, ...] = ()
    gained: tuple[Line, ...] = ()
    same: int = 0
    unchanged: int = 0
    notes: tuple[str, ...] = ()

    @property
    def exit(self) -> int:
        """1 when something new fails, 3 when something verified was lost, else 0."""
        return EXIT_MISMATCH if self.new else EXIT_NOTHING if self.lost else EXIT_VERIFIED


def difference(old: Mapping[str, Any], new: Mapping[str, Any], names: Sequence[str]) -> Difference:
    """Compare two complete reports of the same level, seed and examples; another golden model is a note.

    Raises PartialReport or UnlikeReports (`merge.refuse_unlike`).
    """
    refuse_unlike((old, new), names, ignore=frozenset({"golden model"}))
    before, after = _rows(old), _rows(new)
    found: dict[str, list[Line]] = {"new": [], "fixed": [], "lost": [], "gained": []}
    counts = {"same": 0, "unchanged": 0}
    comparable = len({document["header"]["environment"]["model_digest"] for document in (old, new)}) == 1
    for key in dict.fromkeys((*before, *after)):
        kind, line = _compare(key, before.get(key), after.get(key), comparable)
        if line is None:
            counts[kind] += 1
        else:
            found[kind].append(line)
    for line in new["harness"]:
        if line not in old["harness"]:
            found["new"].append(Line("the harness", "", "", "error", line))
    new_lines, fixed, lost, gained = (tuple(lines) for lines in found.values())
    return Difference(new_lines, fixed, lost, gained, counts["same"], counts["unchanged"], _notes(old, new))


def _rows(document: Mapping[str, Any]) -> dict[Key, Mapping[str, Any]]:
    rows = [*document["results"], *document["data"]]
    return {(row["subject"], row["variant"], row.get("tensor", "")): row for row in rows}


def _compare(
    key: Key, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, comparable: bool
) -> tuple[str, Line | None]:
    """Return the kind of a change with its line, or a kind that is only counted. comparable: numbers mean the same."""
    before, after = (row["outcome"] if row else "not there" for row in (old, new))
    variant = f"{key[1]} {key[2]}".rstrip()

    def line(words: str, failures: Sequence[Mapping[str, Any]] = ()) -> Line:
        return Line(key[0], variant, before, after, words, tuple(failures), new or {})

    if new is not None and after in facts.WRONG:
        fresh, more = _fresh(old, new), _more(old, new, comparable)
        if old is None or before != after or fresh or more:
            grown = [record for record in new["failures"] if record in fresh or _kind(record.get("difference")) in more]
            words = [_words(entry, had) for entry, had in more.values()]
            return "new", line("; ".join([new["words"], *words]), grown if fresh or more else new["failures"])
        gone = [f"no longer {_words(entry, had)}" for entry, had in _more(new, old, comparable).values()]
        return ("fixed", line("; ".join(gone))) if gone and not new.get("not_asked") else ("same", None)
    if before in facts.WRONG:
        return ("fixed", line("")) if after == "pass" else ("lost", line(new["words"] if new else "no result"))
    if before == "pass" and after != "pass":
        return "lost", line(new["words"] if new else "no result")
    if before == after == "pass":
        less = _less(old or {}, new or {})
        return ("lost", line(less)) if less else ("unchanged", None)
    return ("gained", line("")) if after == "pass" else ("unchanged", None)


def _fresh(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the failing cases of a kind that the old result did not have, or that point to another bug than there.

    Of a kind of difference that the old result counts, and shows no case of, the bug is not known.
    """
    if old is None:
        return list(new["failures"])
    known = {fingerprint(old, record) for record in old["failures"]}
    if "differences" not in old:  # a report of an earlier version, whose cases are of no kind
        return [one for one in new["failures"] if fingerprint(new, {**one, "difference": None}) not in known]
    shown = {_kind(record["difference"]) for record in old["failures"] if record.get("difference")}
    unshown = {_kind(one) for one in old["differences"]} - shown
    return [
        record
        for record in new["failures"]
        if fingerprint(new, record) not in known
        and not (record.get("difference") and _kind(record["difference"]) in unshown)
    ]


def _kind(entry: Mapping[str, Any] | None) -> Kind:
    return (entry["class"], entry["output"], entry["way"]) if entry else ("", "", "")


def _more(
    old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, comparable: bool
) -> dict[Kind, tuple[Mapping[str, Any], int]]:
    """Return the kinds of difference of `new` that `old` lacks or, if counts mean the same, counts less of.

    Each with its entry and the count in `old`. Counts of a kernel that is not deterministic, or that was not asked all,
    mean nothing.
    """
    if not old or not new or "differences" not in old or "differences" not in new:
        return {}
    before = {_kind(entry): entry["count"] for entry in old["differences"]}
    counted = comparable and not any(row["outcome"] == "flaky" or row.get("not_asked") for row in (old, new))
    entries = [(entry, before.get(_kind(entry), 0)) for entry in new["differences"]]
    return {_kind(entry): (entry, had) for entry, had in entries if not had or (counted and entry["count"] > had)}


def _words(entry: Mapping[str, Any], had: int) -> str:
    was = f", {had:,} on the other side" if had else ""
    return f"{facts.difference_words(entry)} ({entry['count']:,}{was})"


def _less(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return in words what a passing result verified before and does not now."""
    proved = {d["name"] for d in old.get("domains", ()) if d["verdict"] == "proved"}
    unproved = sorted(proved - {d["name"] for d in new.get("domains", ()) if d["verdict"] == "proved"})
    holes = sorted(set(new.get("holes", ())) - set(old.get("holes", ())))
    parts = [f"no longer proved: {', '.join(unproved)}"] if unproved else []
    parts += [f"no longer covered: {', '.join(holes)}"] if holes else []
    reached = [(row.get("level") or {}) for row in (old, new)]
    levels = [level.get("reached") or "L0" if isinstance(level, Mapping) else str(level) for level in reached]
    if levels[1] > levels[0]:
        parts.append(f"level {levels[1]}, was {levels[0]}")
    return "; ".join(parts)


def _notes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    notes = []
    digests = [document["header"]["environment"]["model_digest"] for document in (old, new)]
    if digests[0] != digests[1]:
        notes.append(f"the golden model changed: {digests[0][:19]} to {digests[1][:19]}")
    versions = [document["header"]["environment"]["versions"] for document in (old, new)]
    for name in sorted({*versions[0], *versions[1]}):
        before, after = (found.get(name, "none") for found in versions)
        if before != after:
            notes.append(f"{name} {before} to {after}")
    return tuple(notes)


def show_difference(out: Console, found: Difference) -> None:
    """Print what a change introduced with its pages, then what it fixed, lost and gained, and the counts."""
    for line in found.new:
        out.print(f"[bold red]new[/]     {_text(line)}", soft_wrap=True)
        for record in line.failures:
            terminal.failure(out, line.result, record)
    for name, style, lines in (
        ("lost", "yellow", found.lost),
        ("fixed", "green", found.fixed),
        ("gained", "green", found.gained),
    ):
        for line in lines:
            out.print(f"[{style}]{name:<7}[/] {_text(line)}", soft_wrap=True)
    for note in found.notes:
        out.print(f"note    {terminal.escape(note)}", soft_wrap=True)
    out.print(
        f"{len(found.new)} new, {len(found.lost)} lost, {len(found.fixed)} fixed, {len(found.gained)} gained; "
        f"{found.same} fail as before, {found.unchanged} unchanged"
    )


def _text(line: Line) -> str:
    words = f": {line.words}" if line.words else ""
    return terminal.escape(f"{line.subject} {line.variant}: {line.before} -> {line.after}{words}".replace("  ", " "))
