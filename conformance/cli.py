"""The command line: `refnum check`, `fuzz`, `report`, `explain`, `replay`, `shrink`, `doctor`, `subjects`, `vectors`.

Exit status: 0 all verified, 1 mismatch, 2 usage or bad input, 3 nothing verified. Functions here parse options,
call one function of another module and print; they decide nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refnum.errors import UnsupportedError

from . import show
from .bench.command import bench
from .choose import choose
from .commands.check import check
from .commands.matrix import matrix
from .commands.prove import prove
from .commands.words import Isolate, Subjects, told

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


app.command("check")(check)


@app.command()
@told
def replay(
    file: Annotated[Path, typer.Argument(help="A replay file, .refnum/cases/<id>.json.")],
    subject: Subjects = None,
) -> None:
    """Run one saved case again: the golden side anywhere, the subject where it is available."""
    from .commands.rerun import rerun

    raise typer.Exit(rerun(file, subject, show.console()))


@app.command()
@told
def shrink(
    file: Annotated[Path, typer.Argument(help="A replay file.")],
    subject: Subjects = None,
    calls: Annotated[int, typer.Option(min=1, help="Calls of the subject to spend.")] = 2000,
) -> None:
    """Make a saved case smaller and write it as a new replay file."""
    from .commands.rerun import shrink_again

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
    from .commands.explain import explanation

    print(explanation(what, values, scales, index, profile, dtype, param or []))


@app.command()
@told
def doctor() -> None:
    """Look at this machine: float modes, compilers, GPU, flags, subjects and caches."""
    from .commands.doctor import BAD, examine

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
    install: Annotated[str | None, typer.Option(help="What pip installs in CI; default: from where this is.")] = None,
) -> None:
    """Write a subject file, a pytest file and a CI workflow into a repository; nothing is overwritten."""
    from .init import SUBJECT, requirement, write

    for path in write(folder, operation, profile, install):
        print(f"wrote {path}")
    if not (requirement() if install is None else install):
        print("refnum came from this machine alone: tell CI where it is, by the repository variable REFNUM.")
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
    from .infer import infer_profile
    from .show.inference import tell

    err = show.console(stderr=True)
    found = infer_profile(
        subject, operation, isolate, timeout, lambda words: err.print(words, markup=False, soft_wrap=True)
    )
    raise typer.Exit(tell(found, show.console()))


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


_mount("vectors", "conformance.commands.vectors", "vectors_app")
_mount("report", "conformance.commands.report", "report_app")
app.command()(told(bench))
_mount("fuzz", "conformance.commands.fuzz", "fuzz_app")
_mount("mutate", "conformance.commands.mutate", "mutate_app")
app.command("prove")(told(prove))
app.command("matrix")(told(matrix))


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
