"""`refnum prove`: run proofs, list them, and verify certificates. Parses options, calls, prints; decides nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from refnum.errors import ArgumentError, UnsupportedError

from ...reports import terminal
from ...subjects.choose import choose
from ...verdicts.device import device_like
from ..options import told
from . import run as runs
from . import verify as verifying
from .catalogue import CATALOGUE
from .certificate import CertificateError, file_name, load_certificate, published, write_certificate
from .chunk import Refuted
from .processes import Processes, places_on
from .run import Watch, same_model

STATE, OUT = Path(".refnum/proofs"), Path(".refnum/certificates")
EXIT_STOPPED, EXIT_NOTHING = 130, 3


@told
def prove(
    names: Annotated[list[str] | None, typer.Argument(help="Proofs by name or pattern; see --list.")] = None,
    subject: Annotated[str, typer.Option("--subject", "-s", help="The subject to prove.")] = "host",
    verify: Annotated[
        list[Path] | None, typer.Option("--verify", help="Certificate whose chunks the model recomputes.")
    ] = None,
    chunks: Annotated[str, typer.Option(help="With --verify: how many chunks, drawn by the seed, or `all`.")] = "1",
    chunk: Annotated[list[int] | None, typer.Option(help="With --verify: this chunk; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(help="With --verify: seed of the draw; the clock when left out.")] = None,
    device: Annotated[bool, typer.Option("--device", help="With --verify: run the model on CuPy.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the proofs and the existing certificates.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for certificates.")] = OUT,
    state: Annotated[Path, typer.Option(help="Folder for the state of unfinished proofs.")] = STATE,
    most: Annotated[int | None, typer.Option(min=1, help="Stop after this many chunks of each proof.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run even if a certificate exists and nothing has changed.")
    ] = False,
    gpus: Annotated[
        str | None,
        typer.Option("--gpus", help="all, or indices or UUIDs such as 0,1: one process each shares the work."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes that share the work, for a subject on the CPU.")
    ] = None,
) -> None:
    """Prove a kernel equal to the model on whole domains, with certificates; verify certificates anywhere."""
    if listed:
        _list()
    elif verify:
        _verify(verify, chunks, chunk, seed, device)
    else:
        _run(_selected(names), subject, (gpus, workers), out, state, most, again)


def _run(
    proofs: list[Any], name: str, shared: tuple[str | None, int | None], out: Path, state: Path, most: int | None,
    again: bool,
) -> None:  # fmt: skip
    """Run proofs for the subjects of a name; exit status 1 when one was refuted, 130 stopped, 3 none was proved."""
    chosen = choose([name])
    if not chosen.usable:
        reasons = "; ".join(f"{item.name}: {reason}" for item, reason in chosen.unusable)
        raise ArgumentError(f"--subject {name} selects nothing usable ({reasons}).")
    exact = [item for item in chosen.usable if item.name == name]  # before those whose kind or file has that name
    ended = set()
    with ExitStack() as stack:
        for subject in exact or chosen.usable:
            places = places_on(subject, *shared)
            processes = stack.enter_context(closing(Processes(name, places))) if places else None
            for proof in proofs:
                word = _prove(proof, subject, out, state, most, again, processes)
                if word == "stopped" and most is None:
                    raise typer.Exit(EXIT_STOPPED)
                ended.add(word)
    if ended & {"refuted", "stopped"}:
        raise typer.Exit(1 if "refuted" in ended else EXIT_STOPPED)
    if "proved" not in ended:
        raise typer.Exit(EXIT_NOTHING)


def _prove(
    proof: Any, subject: Any, out: Path, state: Path, most: int | None, again: bool, processes: Any
) -> str:  # fmt: skip
    """Run one proof, write its certificate and print a line; return how it ended, the line's first word."""
    tell = terminal.console().print
    path = out / file_name(proof.name, subject.name)
    if not again and runs.unchanged(path, proof, subject):
        tell(f"[green]proved[/]   {proof.name}: {path} holds, nothing changed since")
        return "proved"
    try:
        with _bar() as watch:
            document = runs.prove(proof, subject, state, watch, most, processes)
    except runs.Stopped as error:
        tell(f"[yellow]stopped[/]  {terminal.escape(str(error))}")
        return "stopped"
    except UnsupportedError as error:
        tell(f"[dim]not run[/]  {proof.name}: {terminal.escape(str(error))}")
        return "not run"
    except Refuted as error:
        tell(f"[bold red]refuted[/]  {terminal.escape(str(error))}")
        return "refuted"
    write_certificate(path, document)
    tell(f"[green]proved[/]   {_sentence(document)} -> {path}")
    return "proved"


def _sentence(document: dict[str, Any]) -> str:
    result, run = document["result"], document["run"]
    return (
        f"{document['proof']}: {result['members']:,} members, {result['elements']:,} elements in "
        f"{run['seconds']:.1f} s ({run['rate'] / 1e9:.2f} G/s), 0 mismatches"
    )


def _selected(names: list[str] | None) -> list[Any]:
    if not names:
        raise ArgumentError("Name a proof, or `*` for all; `refnum prove --list` shows them.")
    for name in names:
        if not any(fnmatchcase(proof, name) for proof in CATALOGUE):
            raise ArgumentError(f"No proof is named {name!r}; choose from {', '.join(CATALOGUE)}.")
    return [proof for proof in CATALOGUE.values() if any(fnmatchcase(proof.name, name) for name in names)]


def _verify(paths: list[Path], count: str, numbers: list[int] | None, seed: int | None, device: bool) -> None:
    if count != "all" and not count.isdecimal():
        raise ArgumentError(f"--chunks {count}; give a number or `all`.")
    failed = False
    seed = time.time_ns() if seed is None else seed
    for path in paths:
        try:
            document = load_certificate(path)
            drawn = verifying.draw_chunks(document, None if count == "all" else int(count), seed, numbers)
            done = verifying.verify(document, drawn, device_like() if device else None)
        except CertificateError as error:
            failed = True
            terminal.console().print(f"[bold red]wrong[/]    {terminal.escape(str(error))}")
            continue
        shown = ", ".join(map(str, drawn[:8])) + (", ..." if len(drawn) > 8 else "")
        older = "" if same_model(document) else "; the model's files changed since it was made"
        total = document["domain"]["chunks"]
        terminal.console().print(
            f"[green]verified[/] {terminal.escape(path.name)}: {done} of {total} chunks ({shown}){older}"
        )
    if failed:
        raise typer.Exit(1)


def _list() -> None:
    held: dict[str, list[str]] = {}
    for (proof, subject), path in published().items():
        document = load_certificate(path)
        held.setdefault(proof, []).append(subject if same_model(document) else f"{subject} (another model)")
    rows = [
        [proof.name, f"{proof.size:,}", f"{proof.made.chunks:,}", proof.clause, proof.statement,
         ", ".join(held.get(proof.name, []))]
        for proof in CATALOGUE.values()
    ]  # fmt: skip
    terminal.table(
        terminal.console(), "Proofs", ("proof", "members", "chunks", "clause", "statement", "certified"), rows
    )


@contextmanager
def _bar() -> Iterator[Any]:
    """Yield the watch of a run that draws a bar on a terminal: chunks done, rate, time left."""
    err = terminal.console(stderr=True)
    if not err.is_terminal:
        yield Watch()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>5.1f} %"),
               TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
    with Bar(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None, rate="")
        since, elements = time.monotonic(), 0

        def start(proof: Any, total: int, done: int) -> None:
            bar.update(task, description=proof.name, total=total, completed=done)

        def advance(_members: int, count: int) -> None:
            nonlocal elements
            elements += count
            rate = elements / max(time.monotonic() - since, 1e-9) / 1e9
            bar.update(task, advance=1, rate=f"{rate:.2f} G/s")

        yield Watch(start, advance)
