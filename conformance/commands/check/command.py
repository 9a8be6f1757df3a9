"""`refnum check`: options, the run, and the report that comes of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from refnum import get_profile
from refnum.errors import FileError, UnsupportedError

from ...cases.contracts import checked_contract
from ...cases.operation import select
from ...reports import files, terminal
from ...reports import report as reports
from ...reports.terminal import report as show_report
from ...reports.terminal.watch import watched
from ..options import Isolate, Subjects, told
from .controls import verify, verify_watched
from .data.check import check_data
from .journal import leftovers
from .plan import Plan
from .progress import progress_bar
from .run import run
from .shares import Request, run_shares, workers_for

LOST = (
    "a process that judged a share of the variants ended by itself: a kernel killed it, or want of memory; "
    "--isolate keeps kernels in processes of their own."
)

LAYER = "moe_layer"
"""What is judged on several ranks, as a whole step (N20), not as a function of arrays."""


class Level(StrEnum):
    """How much a run covers."""

    SMOKE = "smoke"
    STANDARD = "standard"
    EXHAUSTIVE = "exhaustive"


@told
def check(
    kernels: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="As --subject: of a Python file every function that bears an operation's name, or that is declared.",
        ),
    ] = None,
    operation: Annotated[
        list[str] | None,
        typer.Option("--operation", "-o", help="Name or pattern; moe_layer alone: a whole layer, on two ranks."),
    ] = None,
    subject: Subjects = None,
    profile: Annotated[list[str] | None, typer.Option("--profile", "-p", help="Default: all that are claimed.")] = None,
    level: Annotated[Level, typer.Option(help="smoke verifies nothing; exhaustive adds 2^32 sweeps.")] = Level.STANDARD,
    seed: Annotated[int, typer.Option(help="Seed of the sampled cases.")] = 0,
    examples: Annotated[int, typer.Option(min=0, help="Sampled cases a variant.")] = 25,
    data: Annotated[Path | None, typer.Option(help="Judge on the tensors of this file or folder instead.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON on standard output.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            help="Contract of the subjects' inputs: finite, nonzero or normal. May be repeated. What lies outside is "
            "called too, and told as information."
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.0, help="Seconds that one call of a subject may take.")] = 60.0,
    controls: Annotated[bool, typer.Option("--controls", help="Judge only the harness's own controls.")] = False,
    isolate: Isolate = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="REFNUM_WORKERS",
            help="Processes that judge side by side. Default: one a processor, and one in all for kernels on a GPU.",
        ),
    ] = None,
) -> None:
    """Judge kernels bit for bit against the golden model: the main job."""
    if controls:
        with watched(terminal.console(stderr=True)) as watch:
            counts = verify_watched(watch, thorough=True)
        print(
            f"harness verified: {counts['right_passed']} right controls pass, "
            f"{counts['wrong_caught']} wrong ones are caught"
        )
        return
    if operation == [LAYER]:
        raise typer.Exit(_layer_judge()((*(kernels or ()), *(subject or ())), report, json))
    operations = select(operation)  # a name that is wrong is told before the harness verifies itself
    for name in profile or []:
        get_profile(name)
    contract = checked_contract(inputs, "--inputs")
    if data is not None and not data.exists():
        raise FileError(f"--data {data}: there is no such file or folder.")
    request = Request(
        (*(kernels or ()), *(subject or ())),
        isolate,
        tuple(one.name for one in operations),
        frozenset(operation or ()),
        tuple(profile or ()),
        contract,
        level.value,
        seed,
        examples,
        timeout,
    )
    chosen = request.choose()
    counts = verify()
    _tell_of_deaths()
    plan = request.plan(chosen)
    document = reports.Report(
        reports.header(level.value, seed, sys.argv[1:], chosen.records(), chosen.broken, examples=examples),
        controls=counts,
    )
    saved = reports.checkpoint(report) if report is not None else None
    with contextlib.redirect_stdout(sys.stderr):  # what a subject prints must not get into the report
        if data is not None:
            check_data(plan, document, data)
        else:
            _carry_out(request, plan, document, workers, json, saved)
    _deliver(document, report, json)


def _layer_judge() -> Callable[..., int]:
    """Return the judge of whole layers, which stands with the layer."""
    try:
        found: Callable[..., int] = import_module("refnum.training.judge").check_layer
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"{LAYER} needs {error.name}; install refnum[training]") from error
    return found


def _tell_of_deaths() -> None:
    """Say on standard error which kernel killed an earlier run, and where its case was saved."""
    for note, path in leftovers():
        where = f"replay with: refnum replay {path} --subject ..." if path else "its case cannot be made again"
        print(
            f"refnum: an earlier run died while {note['subject']} ran {note['operation']} "
            f"[{note['profile']}], case {note['number']} of {note['stream']}; {where}",
            file=sys.stderr,
        )


def _carry_out(
    request: Request,
    plan: Plan,
    document: reports.Report,
    wanted: int | None,
    quiet: bool,
    saved: Callable[[reports.Report], None] | None,
) -> None:
    with progress_bar(quiet) as progress:
        workers = workers_for(plan, wanted)
        if workers == 1:
            run(plan, document, progress, saved)
            return
        try:
            run_shares(request, plan, document, workers, progress, saved)
        except BrokenProcessPool as error:
            _tell_of_deaths()
            print(f"refnum: {LOST}", file=sys.stderr)
            raise typer.Exit(reports.EXIT_MISMATCH) from error


def _deliver(document: reports.Report, path: Path | None, json: bool) -> None:
    final = document.document()
    if path is not None:
        files.write_json(path, final)  # first the file, then its checks: what was measured must not be lost
        reports.check(final, str(path))
    if json:
        import json as encoder

        reports.check(final, "this report")
        print(encoder.dumps(final, indent=1))
    else:
        show_report.everything(terminal.console(), final)
    raise typer.Exit(final["footer"]["exit"])
