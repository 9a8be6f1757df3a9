"""`refnum matrix`: parses options, calls, prints; decides nothing."""

from __future__ import annotations

import contextlib
import json as encoder
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer

from refnum.errors import ArgumentError
from refnum.profiles import get_profile

from ...reports import files, terminal
from ...subjects import peers
from ...subjects.subject import from_dict
from ..options import told
from . import cells as states
from . import recorded as answers
from . import run as engine
from .document import by_class, document, first_words, variant_name
from .document import markdown as page
from .inputs import OPERATIONS


@told
def matrix(
    peer: Annotated[
        list[str] | None, typer.Option("--peer", "-s", help="Name or pattern. Default: every peer.")
    ] = None,
    operation: Annotated[list[str] | None, typer.Option("--operation", "-o", help="Name or pattern.")] = None,
    profile: Annotated[
        list[str] | None, typer.Option("--profile", "-p", help="Default: every profile except the stochastic one.")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the matrix as JSON.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the matrix as Markdown.")] = None,
    record: Annotated[
        Path | None, typer.Option(help="Only run the peers and store their answers in this folder.")
    ] = None,
    recorded: Annotated[
        list[Path] | None,
        typer.Option(help="Judge the answers in this folder, for example from another machine. May be repeated."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also print the profiles that a peer does not claim.")] = False,
) -> None:
    """Compare every installed peer with every profile: the first difference of each, and whether it is known.

    Exit status: 0 when all differences are documented ones, 1 for a new or a vanished one, 3 when nothing ran. Peers
    that are not on PyPI are found in the folders of $REFNUM_PEERS.
    """
    files.require_place(json, markdown)
    for name in profile or []:
        get_profile(name)
    started, found = time.monotonic(), engine.Matrix()
    operations = _chosen(operation)
    told = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
    with contextlib.redirect_stdout(sys.stderr):  # what a peer prints must not get into the result
        if record is not None:
            done = answers.record(record, _subjects(peer), operations, told)
            raise typer.Exit(0 if done.subjects else 3)
        here = {subject.name: subject for subject in _subjects(peer) if recorded and subject.available()[0]}
        for folder in recorded or []:
            for variant in answers.load(folder, found):
                if variant.operation in operations and _matches(variant.name, peer):
                    variant.subject = here.get(variant.name)  # to make a counter-example smaller
                    engine.judge_variant(found, variant, profile, told)
        if not recorded:
            found = engine.run_matrix(_subjects(peer), operations, profile, told)
    result = document(found, time.monotonic() - started)
    if json is not None:
        files.write_json(json, result)  # first the file, then its checks: what was measured must not be lost
    files.check(encoder.loads(encoder.dumps(result)), "matrix", "this matrix")
    if markdown is not None:
        files.write_text(markdown, page(result))
    shown = [cell for cell in result["cells"] if every or cell["claimed"]]
    out = terminal.console()
    terminal.table(out, "Agreement",
                   ("peer", "operation", "profile", "verdict", "level", "differs", "known as", "first"),
               ([*map(terminal.escape, (cell["subject"], variant_name(cell), cell["profile"] or "-")),
                 f"[bold red]{cell['state'].upper()}[/]" if cell["state"] in states.LOUD else cell["state"],
                 cell["level"], by_class(cell) or "-",
                 terminal.escape(_notes(cell)),
                 terminal.escape(first_words(cell))] for cell in shown), ("first", "level", "differs"))  # fmt: skip
    for entry in result["skipped"]:
        out.print(
            terminal.escape(f"skipped  {entry['subject']} {entry['operation'] or ''}: {entry['reason']}"),
            soft_wrap=True,
        )
    out.print(", ".join(f"{count} {state}" for state, count in result["footer"]["states"].items()) or "nothing ran")
    raise typer.Exit(result["footer"]["exit"])


def _notes(cell: dict[str, Any]) -> str:
    """Return what is known of a cell, and what it was not asked."""
    return (
        ", ".join([*cell["known"], *(f"GONE {name}" for name in cell["gone"]), *filter(None, [cell["words"]])]) or "-"
    )


def _matches(name: str, patterns: list[str] | None) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _subjects(patterns: list[str] | None) -> list[Any]:
    every = [from_dict(entry, "refnum.conformance.subjects.peers") for entry in peers.all_subjects()]
    for pattern in patterns or []:
        if not any(fnmatchcase(subject.name, pattern) for subject in every):
            raise ArgumentError(f"No peer is named {pattern!r}; choose from {', '.join(s.name for s in every)}.")
    return [subject for subject in every if _matches(subject.name, patterns)]


def _chosen(patterns: list[str] | None) -> list[str]:
    for pattern in patterns or []:
        if not any(fnmatchcase(name, pattern) for name in OPERATIONS):
            raise ArgumentError(f"The matrix has no operation {pattern!r}; choose from {', '.join(OPERATIONS)}.")
    return [name for name in OPERATIONS if _matches(name, patterns)]
