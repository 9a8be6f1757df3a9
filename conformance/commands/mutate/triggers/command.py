"""`refnum mutate triggers`: draw wrong kernels, judge them, and tell which are taken for right ones."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from refnum.errors import ArgumentError

from ....cases.operation import select
from ....reports import terminal
from ....reports.files import require_place, write_text
from ...options import told
from . import score
from .draw import drawn
from .exam import MODEL, Exam, Marked, judged, sit


class Level(StrEnum):
    """How much a check covers."""

    SMOKE = "smoke"
    STANDARD = "standard"
    EXHAUSTIVE = "exhaustive"


@told
def triggers(
    operation: Annotated[list[str] | None, typer.Option("--operation", "-o", help="Name or pattern.")] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed of a draw, 0 by default; a fresh seed makes an exam.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Mutants of each operation and seed.")] = 100,
    level: Annotated[Level, typer.Option(help="Level of the check that judges them.")] = Level.STANDARD,
    subject: Annotated[str, typer.Option("--subject", "-s", help="The kernels to break, on NumPy arrays.")] = MODEL,
    largest: Annotated[int | None, typer.Option(min=1, help="Skip cases with more elements.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    mutant: Annotated[str | None, typer.Option(help="Only this mutant, seed:index; needs one operation.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all verdicts as JSON.")] = None,
) -> None:
    """Draw kernels that are wrong only under a random condition, and judge them; exit status 1 if one survives."""
    require_place(json_out)
    names = tuple(one.name for one in select(operation))
    exam = Exam(names, tuple(seed or (0,)), count, level.value, subject, workers, largest)
    marked = list(sit(exam)) if mutant is None else [_one(exam, mutant)]
    if json_out is not None:
        write_text(json_out, json.dumps(score.document(exam, marked), indent=1) + "\n")
    _show(exam, marked)
    if any(not verdict.killed for one in marked for verdict in one.verdicts):
        raise typer.Exit(1)


def _one(exam: Exam, mutant: str) -> Marked:
    """Return the verdict on one mutant of the exam's only operation."""
    seed, _, index = mutant.partition(":")
    if len(exam.operations) != 1 or not (seed.isdigit() and index.isdigit()):
        raise ArgumentError(f"--mutant {mutant}: give seed:index, such as 3:17, and one operation with -o.")
    found = drawn(exam.operations[0], int(seed), int(index))
    if found is None:
        raise ArgumentError(f"--mutant {mutant}: no legal call of {exam.operations[0]} was found that shows it.")
    return judged(exam, exam.operations[0], [found], {})


def _show(exam: Exam, marked: list[Marked]) -> None:
    out = terminal.console()
    for title, rows in score.tables(marked):
        terminal.table(out, "", (title, "cases", "killed", "share"), rows)
    discarded = sum(sum(one.discarded.values()) for one in marked)
    out.print(f"{discarded} draws were discarded: no legal call was found on which they tell")
    for verdict in (verdict for one in marked for verdict in one.verdicts):
        if not verdict.killed:
            again = f"refnum mutate triggers -o {verdict.operation} --mutant {verdict.id}{_options(exam)}"
            out.print(
                f"survived  {verdict.operation}: {verdict.words} ({verdict.shown}); {again}",
                markup=False,
                soft_wrap=True,
            )
        elif len(marked) == 1 and len(marked[0].verdicts) == 1:
            out.print(
                f"killed  {verdict.operation}: {verdict.words} ({verdict.shown}); {verdict.how}",
                markup=False,
                soft_wrap=True,
            )


def _options(exam: Exam) -> str:
    """Return the options of an exam that are not at their defaults, as they are typed."""
    given = {"--level": exam.level, "--subject": exam.subject, "--largest": exam.largest}
    usual = {"--level": Exam.level, "--subject": Exam.subject, "--largest": Exam.largest}
    return "".join(f" {name} {value}" for name, value in given.items() if value != usual[name])
