"""What `refnum check` does once its options are read: the controls, the run, and the report that comes of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import typer

from ...reports import files, terminal
from ...reports import report as reports
from ...reports.terminal import report as show_report
from ...reports.terminal.watch import watched
from .controls import verify, verify_watched
from .data.check import check_data
from .journal import leftovers
from .plan import Plan
from .progress import progress_bar
from .run import run
from .shares import Processes, Request, processes, run_shares, workers_for

__all__ = ["Request", "judge", "judge_controls"]

LOST = (
    "a process that judged a share of the variants ended by itself: a kernel killed it, or want of memory; "
    "--isolate keeps kernels in processes of their own."
)


def judge_controls() -> None:
    """Judge every control of the harness thoroughly, and print how many there are."""
    with watched(terminal.console(stderr=True)) as watch:
        counts = verify_watched(watch, thorough=True)
    print(
        f"harness verified: {counts['right_passed']} right controls pass, "
        f"{counts['wrong_caught']} wrong ones are caught"
    )


def judge(request: Request, data: Path | None, json: bool, report: Path | None, workers: int | None) -> None:
    """Verify the harness, carry out a request, and deliver its report.

    data: judge on the tensors of this file or folder instead. json: print the report as JSON. report: write it to this
    file. workers: processes that judge side by side, None for as many as `workers_for` says. Raises typer.Exit with the
    status of the report, and what `Request.choose` raises.
    """
    chosen = request.choose()
    plan = request.plan(chosen)
    with processes(request, 1 if data is not None else workers_for(plan, workers)) as started:
        counts = verify()  # in the time that the processes need to start
        _tell_of_deaths()
        document = reports.Report(
            reports.header(
                request.level, request.seed, sys.argv[1:], chosen.records(), chosen.broken, examples=request.examples
            ),
            controls=counts,
        )
        saved = reports.checkpoint(report) if report is not None else None
        with contextlib.redirect_stdout(sys.stderr):  # what a subject prints must not get into the report
            if data is not None:
                check_data(plan, document, data)
            else:
                _carry_out(request, plan, document, started, json, saved)
    _deliver(document, report, json)


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
    started: Processes | None,
    quiet: bool,
    saved: Callable[[reports.Report], None] | None,
) -> None:
    with progress_bar(quiet) as progress:
        if started is None:
            run(plan, document, progress, saved)
            return
        try:
            run_shares(request, plan, document, started, progress, saved)
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
