"""`refnum fuzz`: run, watch, resume, merge, minimise and export campaigns of sampled cases."""

from __future__ import annotations

import json as encoder
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ...reports import terminal
from ..check.controls import verify
from ..options import Isolate, told
from . import spec as specs
from .coordinator import Limits
from .corpus import minimise as make_small
from .database import FILE, Database, create, understood
from .errors import CampaignError
from .export import export as write
from .merge import merge as join
from .session import duration as seconds
from .session import work
from .status import Watcher
from .status import show as print_summary

fuzz_app = typer.Typer(
    no_args_is_help=True,
    help="Campaigns of sampled cases that survive faults, hangs and reboots: run, status, resume, merge, minimise, "
    "export.",
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The campaign's folder.")]
For = Annotated[str | None, typer.Option("--for", help="Total time: 8h, 90m, 30s, 1h30m.")]
Cases = Annotated[int | None, typer.Option("--cases", min=1, help="Total number of sampled cases.")]
Gpus = Annotated[str, typer.Option("--gpus", help="all, or indices or UUIDs such as 0,1: one process each.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=0, help="Processes for CPU subjects. Default: one a core.")
]
Scheduler = Annotated[
    str | None, typer.Option("--scheduler", help="Address of a Dask scheduler to run on, tcp://... or tls://...")
]
Named = Annotated[
    list[str] | None,
    typer.Option(
        "--subject", "-s", help="A file or program of the campaign that may be run, as it was given to `run`."
    ),
]
Trust = Annotated[bool, typer.Option("--trust", help="Run every file and program that the campaign names.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output.")]


@fuzz_app.command()
@told
def run(
    folder: Folder,
    duration: For = None,
    cases: Cases = None,
    operations: Annotated[list[str] | None, typer.Option("--operations", "--operation", "-o")] = None,
    subjects: Annotated[list[str] | None, typer.Option("--subjects", "--subject", "-s")] = None,
    profiles: Annotated[list[str] | None, typer.Option("--profiles", "--profile", "-p")] = None,
    gpus: Gpus = "all",
    workers: Workers = None,
    scheduler: Scheduler = None,
    seed: Annotated[int, typer.Option(min=0, help="The campaign's seed, which determines every case.")] = 0,
    shard: Annotated[int, typer.Option(min=1, help="Cases per shard, the unit of work.")] = specs.CASES,
    elements: Annotated[int | None, typer.Option(min=32, help="Elements of the largest case.")] = None,
    corpus: Annotated[Path | None, typer.Option(help="A corpus.json from `fuzz minimise`, judged first.")] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=86400.0, help="Seconds that one call may take.")
    ] = specs.TIMEOUT,
    isolate: Isolate = None,
    json: Json = False,
) -> None:
    """Start a campaign in FOLDER and work on it; names may be repeated or joined by commas.

    Without --for and --cases it goes on until Ctrl-C, or until every target has failed.
    """
    verify()
    limits = _limits(duration, cases)
    spec = specs.make_spec(_split(subjects), _split(operations), _split(profiles), seed, shard, elements, timeout,
                           corpus=corpus, isolate=isolate)  # fmt: skip
    create(folder, spec).close()
    _work(folder, limits, workers, gpus, scheduler, json)


@fuzz_app.command()
@told
def resume(
    folder: Folder,
    duration: For = None,
    cases: Cases = None,
    gpus: Gpus = "all",
    workers: Workers = None,
    scheduler: Scheduler = None,
    subjects: Named = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Resume a campaign, up to its original limits or larger ones.

    A campaign may be a stranger's: files and programs that it names run only with --subject or --trust.
    """
    _permit(folder, subjects, trust)
    _work(folder, _limits(duration, cases), workers, gpus, scheduler, json)


@fuzz_app.command()
@told
def status(
    folder: Folder,
    holes: Annotated[bool, typer.Option("--holes", help="Also name the coverpoints that no case has hit.")] = False,
    json: Json = False,
) -> None:
    """Show the state of a campaign, which may be running."""
    db = Database(folder / FILE, readonly=True)
    with understood(db.path):
        summary = Watcher(db).summary()
    _deliver({**summary, "digest": db.digest()}, json, holes)


@fuzz_app.command()
@told
def merge(
    into: Annotated[Path, typer.Argument(metavar="INTO", help="A new folder.")],
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Campaigns of one kind, any seeds.")],
) -> None:
    """Join campaigns that judged the same subjects with the same model; each shard counts once."""
    db = join(into, folders)
    with understood(db.path):
        summary = Watcher(db).summary()
    _deliver({**summary, "digest": db.digest()}, False, False)


@fuzz_app.command()
@told
def minimise(folder: Folder, subjects: Named = None, trust: Trust = False) -> None:
    """Shrink every confirmed finding, and write the smallest cases that hit every coverpoint to corpus.json.

    Files and programs that the campaign names run only with --subject or --trust.
    """
    _permit(folder, subjects, trust)
    findings, kept = make_small(folder)
    print(f"{findings} findings made small; {kept} cases in {folder / 'corpus.json'} hit every coverpoint met")


@fuzz_app.command()
@told
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="Folder for the vector files.")],
) -> None:
    """Write the findings as test vectors, with the right answers."""
    db = Database(folder / FILE, readonly=True)
    with understood(db.path):
        count, left = write(db, out)
    for words in left:
        print(f"refnum: {words}", file=sys.stderr)
    print(f"{count} vectors in {out}")


def _permit(folder: Path, subjects: list[str] | None, trust: bool) -> None:
    """Raise CampaignError unless the person named, or trusts, every file and program that the campaign would run."""
    db = Database(folder / FILE, readonly=True)
    strange = [] if trust else specs.unnamed(db.spec, _split(subjects) or [])
    db.close()
    if strange:
        raise CampaignError(
            f"The campaign in {folder} would run {', '.join(strange)}; give --subject for each, or --trust for all."
        )


def _split(names: list[str] | None) -> list[str] | None:
    return [part for name in names for part in name.split(",")] if names else None


def _limits(duration: str | None, cases: int | None) -> Limits:
    return Limits(cases, None if duration is None else seconds(duration))


def _work(folder: Path, asked: Limits, workers: int | None, gpus: str, scheduler: str | None, json: bool) -> None:
    """Work up to the limits asked for, else those of the campaign, which are kept in its database."""
    db = Database(folder / FILE)
    if asked.cases is None and asked.seconds is None:
        with understood(db.path):
            asked = Limits(*encoder.loads(db.get("limits", "[null, null]")))
    with db.transaction():
        db.put("limits", encoder.dumps([asked.cases, asked.seconds]))
    db.close()
    summary = work(folder, asked, workers, gpus, scheduler, quiet=json)
    db = Database(folder / FILE, readonly=True)
    _deliver({**summary, "digest": db.digest()}, json, False)


def _deliver(summary: dict[str, Any], json: bool, holes: bool) -> None:
    if json:
        print(encoder.dumps(summary, indent=1))
    else:
        out = terminal.console()
        print_summary(out, summary, holes)
        out.print(f"digest {summary['digest']}", soft_wrap=True)
    raise typer.Exit(summary["exit"])
