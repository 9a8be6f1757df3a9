"""`refnum report`: show a saved report, and make from it what other tools and people read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..reports import badge as badges
from ..reports import files, terminal
from ..reports import report as reports
from ..reports.difference import difference, show_difference
from ..reports.html import html as as_html
from ..reports.junit import junit as as_junit
from ..reports.merge import merge as join
from ..reports.printable import shown
from ..reports.sarif import sarif as as_sarif
from ..reports.summary import markdown
from ..reports.terminal.report import everything
from .options import told


class _ShowsFiles(TyperGroup):
    """`refnum report FILE` is `refnum report show FILE`: the first word is a command, or else a file to show."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)


report_app = typer.Typer(
    cls=_ShowsFiles,
    no_args_is_help=True,
    help="Show a report of `refnum check --report FILE`, and make HTML, JUnit, SARIF and Markdown from it.",
)

File = Annotated[Path, typer.Argument(metavar="REPORT", help="A report written by `refnum check --report`.")]
Output = Annotated[
    Path | None, typer.Option("--out", "--output", "-o", help="Write to this file; standard output without it.")
]


@report_app.command("show")
@told
def show_report(file: File) -> None:
    """Check a report and print it; the exit status is the one of its run."""
    document = reports.load(file)
    with files.understood(file):
        everything(terminal.console(), document)
    raise typer.Exit(document["footer"]["exit"])


@report_app.command()
@told
def html(file: File, output: Output = None) -> None:
    """One page for a browser, without scripts and without anything from the network."""
    _make(as_html, file, output)


@report_app.command()
@told
def junit(file: File, output: Output = None) -> None:
    """JUnit XML: a test case for each subject and variant."""
    _make(as_junit, file, output)


@report_app.command()
@told
def sarif(file: File, output: Output = None) -> None:
    """SARIF 2.1.0 for code scanning, with fingerprints, at most 25,000 results and 10 MB."""
    _make(as_sarif, file, output)


@report_app.command()
@told
def summary(file: File, output: Output = None) -> None:
    """Markdown for the page of a run on GitHub, under its limit of 1,024 KiB."""
    _make(markdown, file, output)


@report_app.command()
@told
def badge(
    file: File,
    link: Annotated[str, typer.Option(help="Where the badge leads.")] = "",
    check: Annotated[Path | None, typer.Option(help="Exit 1 unless this report's badge stands in this file.")] = None,
) -> None:
    """A line of Markdown with the verdict, its level, and the digests of the model and of this report."""
    document = reports.load(file)
    with files.understood(file):
        line = badges.badge(document, link)
    if check is None:
        print(shown(line))
    elif not badges.stands_in(document, check):
        print(f"refnum: the badge of {file} does not stand in {check}: {shown(line)}", file=sys.stderr)
        raise typer.Exit(reports.EXIT_MISMATCH)


@report_app.command()
@told
def diff(
    old: Annotated[Path, typer.Argument(help="The report before a change.")],
    new: Annotated[Path, typer.Argument(help="The report after it.")],
) -> None:
    """What a change introduced. Exit 1: something new fails; 3: something is no longer verified; 0: neither."""
    before, after = reports.load(old), reports.load(new)
    with files.understood(new):
        found = difference(before, after, (str(old), str(new)))
        show_difference(terminal.console(), found)
    raise typer.Exit(found.exit)


@report_app.command()
@told
def merge(
    file: Annotated[list[Path], typer.Argument(metavar="REPORT...", help="Reports of runs that did the same.")],
    output: Annotated[Path, typer.Option("--out", "--output", "-o", help="Where the merged report goes.")],
) -> None:
    """Put the reports of several machines or subjects together; partial and unlike ones are refused."""
    found = [reports.load(path) for path in file]
    with files.understood(file[0]):
        document = join(found, [str(path) for path in file])
    files.write_json(output, document)
    print(shown(document["footer"]["verdict"]))


def _make(form: Callable[[dict[str, Any]], str], file: Path, output: Path | None) -> None:
    document = reports.load(file)
    with files.understood(file):
        text = form(document)
    if output is None:
        sys.stdout.write(text)
    else:
        files.write_text(output, text)
