"""`refnum mutate`: break a subject's sources on purpose and count what the harness notices. Parses, calls, prints."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from refnum.errors import ArgumentError, FileError, RefnumError

from ...reports import terminal
from ...reports.files import parse, require_place, write_text
from ...reports.gpus import chosen_gpus, smi
from ...subjects.loading.discover import installed
from ..options import told
from . import other_build, score
from .accepted import accepted, reasons_of
from .enumerate import enumerated
from .forked import call_forked
from .functions import Rows, settled
from .kernels import Kernels
from .ledger import Ledger
from .library import Library
from .museum import EXHIBITS
from .museum.visit import visit
from .operators import OPERATORS, Mutant
from .page import vectors_page
from .run import run as judge_all
from .score import document
from .since import in_later_lines
from .sole_killers import VectorsOnly
from .triggers.command import triggers
from .verdict import BY_LIMIT, KILLED, SURVIVED, Verdict

T = TypeVar("T")
mutate_app = typer.Typer(no_args_is_help=True, help="Mutation: broken copies of a subject's sources, and a museum.")
Subject = Annotated[str, typer.Option("--subject", "-s", help="Whose sources: a subject that can be built anew.")]
File = Annotated[str, typer.Option(help="Only source files of this name or pattern.")]
Since = Annotated[str | None, typer.Option(help="Only mutants in lines that this git commit does not have.")]
Sample = Annotated[int | None, typer.Option(min=1, help="Only so many mutants, drawn by the seed.")]
Seed = Annotated[int, typer.Option(help="Seed of the draw.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes.")]
Kept = Annotated[Path | None, typer.Option("--ledger", help="Keep verdicts in this file; a later run goes on from it.")]
Out = Annotated[Path | None, typer.Option(help="Write all verdicts as JSON.")]
EXIT_SURVIVORS = 1
CORES = os.cpu_count() or 1
mutate_app.command()(triggers)


def _sources(name: str) -> Any:
    """Return a subject's sources. Whether it is usable is asked in another process: this one forks, and a device that
    was started here would be of no use there."""
    found = next((item for item in installed()[0] if item.name == name and item.mutable is not None), None)
    if found is None or found.mutable is None:
        raise ArgumentError(f"--subject {name} cannot be built from changed sources: it has no `mutable`.")
    said = call_forked(found.available, 120)  # words of how it ended, where it did not answer
    usable, reason = (False, said["how"]) if isinstance(said, dict) else said
    if not usable:
        raise ArgumentError(f"--subject {name} cannot be built from changed sources: {reason}.")
    return found.mutable()


@mutate_app.command()
@told
def operators() -> None:
    """List the operators, each with an example."""
    rows = [[one.name, one.words, one.example[0], " / ".join(one.example[1]) or "(nothing)"] for one in OPERATORS]
    headers = ("operator", "what it breaks", "from", "to")
    terminal.table(
        terminal.console(), "Mutation operators", headers, [[terminal.escape(text) for text in row] for row in rows]
    )


def chosen(mutants: Sequence[Mutant], sample: int | None, seed: int, among: str, **patterns: str) -> list[Mutant]:
    """Return the mutants whose fields match patterns, or a sample of them; among: whose they are, in words.

    Raises:
        ArgumentError: No mutant matches.
    """
    found = [m for m in mutants if all(fnmatchcase(getattr(m, name), text) for name, text in patterns.items())]
    if not found:
        asked = " and ".join(f"--{name} {text}" for name, text in patterns.items())
        raise ArgumentError(f"No mutant of {among} has {asked}.")
    return found if sample is None else random.Random(seed).sample(found, min(sample, len(found)))


@mutate_app.command()
@told
def run(
    subject: Subject = "host",
    file: File = "*",
    operator: Annotated[str, typer.Option(help="Only operators of this name or pattern.")] = "*",
    sample: Sample = None,
    seed: Seed = 0,
    workers: Workers = CORES,
    since: Since = None,
    profile: Annotated[
        list[str] | None, typer.Option(help="Ask under these profiles; the workshop's when left out.")
    ] = None,
    domains: Annotated[bool, typer.Option("--domains", help="Ask survivors every enumerable domain as well.")] = False,
    seconds: Annotated[float, typer.Option(help="With --domains: seconds for one operation.")] = 600.0,
    ledger: Kept = None,
    hints: Annotated[Path | None, typer.Option(help="A ledger of another subject: what to ask first.")] = None,
    gpus: Annotated[
        str, typer.Option("--gpus", help="Whole kernels: all, or indices or UUIDs such as 0,1: processes in turns.")
    ] = "all",
    outside: Annotated[
        Path | None, typer.Option(help="Another subject's --out: its verdicts where this build has no code.")
    ] = None,
    out: Out = None,
) -> None:
    """Build and judge mutants; exit status 1 when one survives."""
    require_place(out)
    sources = _sources(subject)
    if profile:
        sources = replace(sources, profiles=tuple(profile))
    with tempfile.TemporaryDirectory(prefix="refnum-mutate-") as folder:
        workshop = _opened(sources, Path(folder) / "start")
        later = in_later_lines(workshop.mutants(), sources.root, since)
        mutants = chosen(later, sample, seed, subject, file=file, operator=operator)
        rows = Rows.of(sources.functions())
        kept = Ledger(ledger, rows.digest) if ledger else None
        verdicts = list(judge_all(workshop, mutants, workers, kept, _hints(hints), _gpus(gpus)))
        verdicts = settled(workshop, rows, verdicts, Path(folder) / "functions", workers, kept)
        if domains and isinstance(workshop, Library):
            verdicts = enumerated(workshop, verdicts, Path(folder) / "domains", workers, seconds)
        verdicts = accepted(verdicts, reasons_of(getattr(sources, "reasons", tuple)()), workshop.texts)
    if outside is not None:
        verdicts = _from(outside, lambda path: other_build.taken(verdicts, parse(path), workshop.texts))
    report(subject, verdicts, out, sources=other_build.sources(workshop.texts))


def _from(path: Path, use: Callable[[Path], T]) -> T:
    """Return what a file of an earlier run gives; FileError if it is no such file."""
    try:
        return use(path)
    except RefnumError:
        raise
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path} is not what an earlier run wrote: {type(error).__name__}: {error}.") from error


def _opened(sources: Any, folder: Path) -> Library | Kernels:
    """Return the workshop of a subject's sources: whole kernels say which units they are compiled as."""
    return Kernels.open(sources) if hasattr(sources, "units") else Library.open(sources, folder)


def _hints(path: Path | None) -> dict[str, str]:
    def of(file: Path) -> dict[str, str]:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        return {row["id"]: row["operation"] for row in rows if row.get("operation")}

    return {} if path is None else _from(path, of)


def _gpus(text: str) -> list[str]:
    return [card["uuid"] for card in chosen_gpus(text)] if smi() or text != "all" else []


def report(name: str, verdicts: list[Verdict], out: Path | None, **facts: Any) -> None:
    """Print the score, the kills by limit and the survivors, and write all verdicts with facts; exit status 1 when one
    survives.
    """
    headers = ("operator", *score.STATUSES, "score", "CPU s")
    terminal.table(terminal.console(), f"Mutants of {name}", headers, list(score.rows(score.by_operator(verdicts))))
    survivors = [verdict for verdict in verdicts if verdict.status == SURVIVED]
    limited = [verdict for verdict in verdicts if verdict.status == KILLED and verdict.how.startswith(BY_LIMIT)]
    for one in limited + survivors:
        change = f"{one.mutant.old.strip()} -> {one.mutant.new.strip() or '(nothing)'}"
        words = f"{one.status}  {one.mutant.id}: {terminal.escape(change)}  {terminal.escape(one.how)}"
        terminal.console().print(words)
    if out is not None:
        write_text(out, json.dumps(document(verdicts, subject=name, **facts), indent=1) + "\n")
    if survivors:
        raise typer.Exit(EXIT_SURVIVORS)


@mutate_app.command()
@told
def vectors(
    run: Annotated[Path | None, typer.Argument(help="What this command wrote by --json, or `run` by --out.")] = None,
    subject: Subject = "host",
    file: File = "*",
    sample: Sample = None,
    seed: Seed = 0,
    workers: Workers = CORES,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all verdicts as JSON.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the page as Markdown.")] = None,
) -> None:
    """List the frozen vectors that alone kill a mutant; without a saved run, run only the vectors."""
    require_place(json_out, out)
    found = parse(run) if run else _run_on_vectors(subject, file, sample, seed, workers)
    text = _from(run, lambda path: vectors_page(found)) if run else vectors_page(found)
    if json_out is not None:
        write_text(json_out, json.dumps(found, indent=1) + "\n")
    if out is None:
        terminal.console().print(text, markup=False)
    else:
        write_text(out, text)


def _run_on_vectors(subject: str, file: str, sample: int | None, seed: int, workers: int) -> dict[str, Any]:
    """Ask mutants the frozen vectors, and return that run as JSON values."""
    with tempfile.TemporaryDirectory(prefix="refnum-mutate-") as folder:
        workshop = VectorsOnly.open(_sources(subject), Path(folder))
        mutants = chosen(workshop.mutants(), sample, seed, subject, file=file)
        return document(list(judge_all(workshop, mutants, workers)), subject=subject)


@mutate_app.command()
@told
def museum(
    names: Annotated[list[str] | None, typer.Argument(help="Exhibits by name or pattern; all when left out.")] = None,
    workers: Workers = CORES,
    out: Annotated[Path | None, typer.Option(help="Write what became of each exhibit as JSON.")] = None,
) -> None:
    """Rebuild bugs of public code in our sources and check them; exit status 1 if one is not caught."""
    require_place(out)
    shown = [e for e in EXHIBITS if any(fnmatchcase(e.name, n) for n in names or ["*"])]
    if not shown:
        raise ArgumentError(f"No exhibit is named {', '.join(names or [])}; see docs/guides/mutation.md.")
    with tempfile.TemporaryDirectory(prefix="refnum-museum-") as folder:
        builds = {name: _opened(_sources(name), Path(folder)) for name in sorted({e.build for e in shown})}
        met = list(visit(builds, shown, workers))
    rows = [
        [one.exhibit.name, one.exhibit.operation, f"{one.first:.2f} s" if one.killed else "not caught",
         "yes" if one.right else "no", ", ".join(one.guesses) or one.case, ", ".join(one.exhibit.seen)]
        for one in met
    ]  # fmt: skip
    headers = ("bug", "operation", "caught in", "guessed", "what the report says", "seen in")
    terminal.table(terminal.console(), "Museum", headers, [[terminal.escape(text) for text in row] for row in rows])
    missed, right = sum(not one.killed for one in met), sum(one.right for one in met)
    misled = sum(one.misled for one in met)
    terminal.console().print(
        f"{len(rows) - missed} of {len(rows)} caught, {right} with the right bug class first, {misled} with a wrong one"
    )
    if out is not None:
        write_text(out, json.dumps([_met(one) for one in met], indent=1) + "\n")
    if missed:
        raise typer.Exit(EXIT_SURVIVORS)


def _met(one: Any) -> dict[str, Any]:
    exhibit = one.exhibit
    return {
        "name": exhibit.name, "file": exhibit.file, "operation": exhibit.operation, "build": exhibit.build,
        "seen": list(exhibit.seen), "classes": list(exhibit.classes), "caught": one.killed, "right": one.right,
        "guesses": list(one.guesses), "how": one.case,
        "built": round(one.built, 2), "first": round(one.first, 3), "whole": round(one.whole, 1),
    }  # fmt: skip
