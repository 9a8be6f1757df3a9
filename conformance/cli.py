"""The command line: `refnum check`, `fuzz`, `report`, `explain`, `replay`, `shrink`, `doctor`, `subjects`, `vectors`.

Exit status: 0 all verified, 1 mismatch, 2 usage or bad input, 3 nothing verified. Functions here parse options,
call one function of another module and print; they decide nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from refnum.errors import RefnumError, UnsupportedError

from . import files, show, show_report
from . import report as reports
from .bench.command import bench
from .choose import choose
from .matrix_cli import matrix
from .operation import select
from .plan import Plan
from .prove_cli import prove
from .run import run

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Bit-exact FP4 numerics: judge any kernel against the golden model.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from .environment import model_digest, versions

        print(f"refnum {versions().get('refnum', 'from a folder')}, model {model_digest()}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and the golden model's digest."
        ),
    ] = False,
) -> None:
    """Bit-exact FP4 numerics: judge any kernel against the golden model."""


class Level(StrEnum):
    """How much a run covers."""

    SMOKE = "smoke"
    STANDARD = "standard"
    EXHAUSTIVE = "exhaustive"


def told(function: Callable[..., None]) -> Callable[..., None]:
    """Turn a RefnumError into one sentence on standard error and exit status 2."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except RefnumError as error:
            print(f"refnum: {error}", file=sys.stderr)
            raise typer.Exit(reports.EXIT_USAGE) from error

    return wrapped


Subjects = Annotated[
    list[str] | None,
    typer.Option(
        "--subject",
        "-s",
        help="Name, kind, pattern, `peers`, `all`, `model`, path/to/file.py:NAME, libkernel.so or exec:PATH. May be "
        "repeated. "
        "Default: every kernel that is installed and usable here.",
    ),
]
Isolate = Annotated[
    bool | None,
    typer.Option(
        "--isolate/--no-isolate",
        help="Call subjects in processes of their own, which may crash or hang. Default: those of files and libraries.",
    ),
]


@app.command()
@told
def check(
    operation: Annotated[list[str] | None, typer.Option("--operation", "-o", help="Name or pattern.")] = None,
    subject: Subjects = None,
    profile: Annotated[list[str] | None, typer.Option("--profile", "-p", help="Default: all that are claimed.")] = None,
    level: Annotated[Level, typer.Option(help="smoke verifies nothing; exhaustive adds 2^32 sweeps.")] = Level.STANDARD,
    seed: Annotated[int, typer.Option(help="Seed of the sampled cases.")] = 0,
    examples: Annotated[int, typer.Option(min=0, help="Sampled cases a variant.")] = 25,
    data: Annotated[Path | None, typer.Option(help="Judge on the tensors of this file or folder instead.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON on standard output.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    timeout: Annotated[float, typer.Option(min=0.0, help="Seconds that one call of a subject may take.")] = 60.0,
    controls: Annotated[bool, typer.Option("--controls", help="Judge only the harness's own controls.")] = False,
    isolate: Isolate = None,
) -> None:
    """Judge kernels bit for bit against the golden model: the main job."""
    from .controls import verify

    counts = verify(thorough=controls)
    if controls:
        print(
            f"harness verified: {counts['right_passed']} right controls pass, "
            f"{counts['wrong_caught']} wrong ones are caught"
        )
        return
    from refnum import get_profile

    _tell_of_deaths()
    for name in profile or []:
        get_profile(name)
    chosen = choose(subject, isolate)
    plan = Plan(
        chosen.usable,
        select(operation),
        profile or None,
        level.value,
        seed,
        examples,
        timeout,
        named=frozenset(operation or ()),
        special=True,
    )
    document = reports.Report(
        reports.header(level.value, seed, sys.argv[1:], chosen.records(), chosen.broken, examples=examples),
        controls=counts,
    )
    saved = reports.checkpoint(report) if report is not None else None
    with contextlib.redirect_stdout(sys.stderr):  # what a subject prints must not get into the report
        _carry_out(plan, document, data, json, saved)
    _deliver(document, report, json)


def _tell_of_deaths() -> None:
    """Say on standard error which kernel killed an earlier run, and where its case was saved."""
    from .journal import leftovers

    for note, path in leftovers():
        where = f"replay with: refnum replay {path} --subject ..." if path else "its case cannot be made again"
        print(
            f"refnum: an earlier run died while {note['subject']} ran {note['operation']} "
            f"[{note['profile']}], case {note['number']} of {note['stream']}; {where}",
            file=sys.stderr,
        )


def _carry_out(
    plan: Plan, document: reports.Report, data: Path | None, quiet: bool, saved: Callable[[reports.Report], None] | None
) -> None:
    if data is not None:
        from .datacheck import check_data

        check_data(plan, document, data)
        return
    from .progress import progress_bar

    with progress_bar(quiet) as progress:
        run(plan, document, progress, saved)


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
        show_report.everything(show.console(), final)
    raise typer.Exit(final["footer"]["exit"])


@app.command()
@told
def replay(
    file: Annotated[Path, typer.Argument(help="A replay file, .refnum/cases/<id>.json.")],
    subject: Subjects = None,
) -> None:
    """Run one saved case again: the golden side anywhere, the subject where it is available."""
    from .rerun import rerun

    raise typer.Exit(rerun(file, subject, show.console()))


@app.command()
@told
def shrink(
    file: Annotated[Path, typer.Argument(help="A replay file.")],
    subject: Subjects = None,
    calls: Annotated[int, typer.Option(min=1, help="Calls of the subject to spend.")] = 2000,
) -> None:
    """Make a saved case smaller and write it as a new replay file."""
    from .rerun import shrink_again

    raise typer.Exit(shrink_again(file, subject, calls, show.console()))


@app.command()
@told
def explain(
    what: Annotated[str, typer.Argument(help="An operation, or a replay file.")],
    values: Annotated[str | None, typer.Option(help="Input numbers, or codes: 1.25,0x3FA00000,nan,...")] = None,
    scales: Annotated[str | None, typer.Option(help="Scale bytes of coded inputs: 127,0x7F,...")] = None,
    index: Annotated[str, typer.Option(help="Element: flat, or row,column.")] = "0",
    profile: Annotated[str, typer.Option("--profile", "-p")] = "HOPPER",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16, for floating-point inputs.")] = "float32",
    param: Annotated[list[str] | None, typer.Option(help="name=value, e.g. scale=amax. May be repeated.")] = None,
) -> None:
    """Show every step of the golden model for one element."""
    from .explaining import explanation

    print(explanation(what, values, scales, index, profile, dtype, param or []))


@app.command()
@told
def doctor() -> None:
    """Look at this machine: float modes, compilers, GPU, flags, subjects and caches."""
    from .doctor import BAD, examine

    findings = list(examine())
    styles = {"ok": "green", "warn": "yellow", "bad": "bold red"}
    show.table(
        show.console(),
        "Doctor",
        ("check", "state", "finding"),
        ([f.name, f"[{styles[f.state]}]{f.state}[/]", show.escape(f.words)] for f in findings),
    )
    raise typer.Exit(int(any(finding.state == BAD for finding in findings)))


@app.command()
@told
def init(
    folder: Annotated[Path, typer.Argument(help="The root of your repository.")],
    operation: Annotated[str, typer.Option("--operation", "-o", help="What your kernel does.")] = "quantize_mxfp4",
    profile: Annotated[str, typer.Option("--profile", "-p", help="Which profile it follows; see `infer`.")] = "OCP",
) -> None:
    """Write a subject file, a pytest file and a CI workflow into a repository; nothing is overwritten."""
    from .init import SUBJECT, write

    for path in write(folder, operation, profile):
        print(f"wrote {path}")
    print(f"Now call your kernel in {folder / SUBJECT}, and run: pytest {folder}")


@app.command()
@told
def infer(
    subject: Annotated[str, typer.Option("--subject", "-s", help="As for `check`; exactly one subject.")],
    operation: Annotated[str | None, typer.Option("--operation", "-o", help="Default: its only one.")] = None,
    isolate: Isolate = None,
    timeout: Annotated[float, typer.Option(min=0.0, help="Seconds that one call of a subject may take.")] = 60.0,
) -> None:
    """Say which profile a kernel follows, and for each choice the input that decides it."""
    from .infer import infer_profile, tell

    raise typer.Exit(tell(infer_profile(subject, operation, isolate, timeout), show.console()))


@app.command()
@told
def subjects() -> None:
    """List who can be judged here: kernels, peers, and why the others cannot."""
    chosen = choose(["all"])
    rows = [
        [
            show.escape(r["name"]),
            r["kind"],
            "yes" if r["available"] else show.escape(r["reason"]),
            ", ".join(r["operations"]),
            ", ".join(r["profiles"]),
            r["level"],
        ]
        for r in chosen.records()
    ]
    show.table(show.console(), "Subjects", ("subject", "kind", "usable", "operations", "profiles", "level"), rows)
    for name, reason in chosen.broken:
        show.console().print(f"[bold red]broken[/] {show.escape(name)}: {show.escape(reason)}")


def _mount(name: str, module: str, attribute: str) -> None:
    """Mount a sub-command that another module of this room brings; one that fails to import says so when used."""
    import importlib
    import importlib.util

    if importlib.util.find_spec(module) is None:
        return
    try:
        app.add_typer(getattr(importlib.import_module(module), attribute), name=name)
    except ImportError as error:
        reason = f"`refnum {name}` cannot be used: {error}."

        @app.command(name, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
        @told
        def broken() -> None:
            raise UnsupportedError(reason)


_mount("vectors", "conformance.vectors_cli", "vectors_app")
_mount("report", "conformance.report_cli", "report_app")
app.command()(told(bench))
_mount("fuzz", "conformance.fuzz_cli", "fuzz_app")
_mount("mutate", "conformance.mutate_cli", "mutate_app")
app.command("prove")(told(prove))
app.command("matrix")(told(matrix))


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
