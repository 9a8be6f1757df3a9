"""`refnum replay` and `refnum shrink`: take a saved case up again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from refnum.errors import ArgumentError, RefnumError

from ..cases.case import variant
from ..cases.findings import Finding
from ..cases.levels import NO_LEVEL, Outcome, checked_level, level_name
from ..mismatches import replay as replays
from ..mismatches.failures import Presenter, observe_again, shows
from ..mismatches.page import page
from ..mismatches.shrink import shrink as shrink_case
from ..reports import terminal
from ..reports.report import EXIT_MISMATCH, EXIT_VERIFIED
from ..subjects.choose import choose
from ..subjects.subject import Subject
from ..verdicts.tally import Failure
from .check.run import Plan
from .options import told

DEADLY = (Finding.DIED, Finding.HUNG)
"""Findings whose case may end or block the process that runs it: the subject is then called in one of its own."""
SECONDS, PATIENCE = 60.0, 30.0
"""Seconds that a call may take, and those of a case that has hung or killed its process before."""


Called = Annotated[
    list[str] | None,
    typer.Option("--subject", "-s", help="The subject to call, as in `refnum check`. Default: none is called."),
]
Trust = Annotated[bool, typer.Option("--trust", help="Call the subject that the file names, whatever it runs.")]


@told
def replay(
    file: Annotated[Path, typer.Argument(help="A replay file, .refnum/cases/<id>.json.")],
    subject: Called = None,
    trust: Trust = False,
) -> None:
    """Run a saved case again: always the golden model, a subject only if you name it or trust the file."""
    raise typer.Exit(rerun(file, subject, terminal.console(), trust))


@told
def shrink(
    file: Annotated[Path, typer.Argument(help="A replay file.")],
    subject: Called = None,
    calls: Annotated[int, typer.Option(min=1, help="Calls of the subject to spend.")] = 2000,
    trust: Trust = False,
) -> None:
    """Shrink a saved case and write it as a new replay file."""
    raise typer.Exit(shrink_again(file, subject, calls, terminal.console(), trust))


def rerun(path: Path, names: list[str] | None, out: Console, trust: bool = False) -> int:
    """Replay a file: golden bytes against the file's expectation, then the subject. Return the exit status.

    1 when the golden model no longer gives the file's expectation, or the subject (still) differs; 0 otherwise.

    Args:
        path: the replay file.
        names: subjects to call, as a person typed them.
        out: where to print.
        trust: whether to call the subject that the file names. A stranger's file may name any program.
    """
    saved = replays.load(path)
    golden = saved.golden()
    out.print(f"{escape(variant(saved.case.operation, saved.case.profile, saved.case.params))}  {path.name}")
    status = EXIT_VERIFIED
    changed = [name for name in golden if not np.array_equal(golden[name], saved.expected[name])]
    if changed:
        out.print(
            f"[bold red]EXPECTATION CHANGED[/]  the golden model gives other {', '.join(changed)} than the file"
            + ("" if saved.same_model else "; its source is not the one that wrote the file")
        )
        status = EXIT_MISMATCH
    else:
        out.print(
            "golden    the file's expectation is reproduced, every byte"
            + ("" if saved.same_model else " (by another version of the model)")
        )
    subjects = _subjects(saved, names, trust, out)
    if not subjects and saved.observed:
        _show_saved(saved, out)
    for subject in subjects:
        status = max(status, _judge(saved, subject, out))
    return status


def _subjects(saved: replays.Replay, names: list[str] | None, trust: bool, out: Console) -> list[Subject]:
    """Return the subjects to call: those that a person named, else the file's own where the person trusts the file."""
    recorded = saved.body["subject"]
    if names is None and (recorded is None or not trust or recorded["kind"] == "user"):
        if recorded is not None:
            out.print(f"subject   {escape(recorded['name'])} was not called: {_way_to_call(recorded)}")
        return []
    try:
        choice = choose(names or [recorded["name"]], saved.body["finding"] in DEADLY or None)
    except RefnumError as error:
        if names is not None:
            raise
        out.print(f"subject   {escape(recorded['name'])} is not here: {escape(str(error))}")
        return []
    for item, reason in choice.unusable:
        out.print(f"subject   {escape(item.name)} is not usable here: {escape(reason)}")
    able = []
    for item in choice.usable:
        reason = item.refuses(saved.case.operation, saved.case.profile, saved.case.params)
        if reason:
            out.print(f"subject   unsupported: {escape(reason)}")
        else:
            able.append(item)
    return able


def _way_to_call(recorded: dict[str, str]) -> str:
    if recorded["kind"] == "user":
        return "it is not an installed subject; give --subject FILE.py:NAME to call it"
    return "a replay file runs nothing that it names; give --subject NAME, or --trust to call what the file names"


def _failure(saved: replays.Replay) -> Failure:
    fails = saved.body["fails"]
    level = checked_level(fails, "the file") + 1 if fails else 1
    return Failure(saved.case, NO_LEVEL if saved.body["finding"] else level, finding=saved.body["finding"])


def _judge(saved: replays.Replay, subject: Subject, out: Console) -> int:
    seconds = PATIENCE if saved.body["finding"] in DEADLY else SECONDS
    called, comparison = observe_again(subject, saved.case, saved.body["finding"], seconds)
    if called.outcome not in (Outcome.PASS, Outcome.MISMATCH):
        out.print(f"[bold red]{called.outcome.upper()}[/]  {escape(subject.name)}: {escape(called.words)}")
        return EXIT_MISMATCH
    again = shows(subject, saved.case, _failure(saved))
    if not again and not comparison.problem and comparison.level <= subject.claimed_level(saved.case.operation):
        out.print(
            f"[green]PASS[/]      {escape(subject.name)} gives every expected byte now; the saved failure is gone"
            if comparison.level == 0
            else f"[green]PASS[/]      {escape(subject.name)} reaches {level_name(comparison.level)}, as it claims"
        )
        return EXIT_VERIFIED
    record = Presenter(Plan([subject], [], shown=0, save=False)).record(subject, _failure(saved), shrunk=False)
    result = {
        "variant": variant(saved.case.operation, saved.case.profile, saved.case.params),
        "subject": subject.name,
        "outcome": "mismatch",
    }
    terminal.failure(out, result, record)
    return EXIT_MISMATCH


def _show_saved(saved: replays.Replay, out: Console) -> None:
    """Print the page of the observed bytes in the file, for a reader without the subject."""
    level = checked_level(saved.body["fails"] or 0, "the file")
    if set(saved.observed) != set(saved.expected):
        return
    details = page(saved.case, saved.expected, saved.observed, level)
    if details:
        out.print("observed  as saved in the file:")
        terminal.element(out, details)


def shrink_again(path: Path, names: list[str] | None, calls: int, out: Console, trust: bool = False) -> int:
    """Shrink a saved case with a larger budget and write the smaller one beside it. Return the exit status."""
    saved = replays.load(path)
    subjects = _subjects(saved, names, trust, out)
    if len(subjects) != 1:
        raise ArgumentError(f"Shrinking needs exactly one usable subject; {len(subjects)} are. Give --subject.")
    subject, failure = subjects[0], _failure(saved)
    if not shows(subject, saved.case, failure):
        raise ArgumentError(f"{subject.name} does not show the saved failure any more; there is nothing to shrink.")
    case = shrink_case(saved.case, lambda smaller: shows(subject, smaller, failure), calls=calls, seconds=120.0)
    if case is saved.case:
        out.print("nothing smaller fails the same way")
        return EXIT_VERIFIED
    _, comparison = observe_again(subject, case, failure.finding)
    body = replays.document(case, replays.run_golden(case), comparison.observed, subject, failure, saved.case)
    written = replays.save(body, path.parent)
    out.print(f"shrunk    {saved.case.elements} to {case.elements} elements: {escape(str(written))}", soft_wrap=True)
    return EXIT_VERIFIED
