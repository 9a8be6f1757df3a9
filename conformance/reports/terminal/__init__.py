"""What a person reads: the table of verdicts and the page of a mismatch. Everything comes from the report's JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any, Literal

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ...cases.findings import Shown as How
from ...cases.findings import found_by
from ...cases.levels import CLASSES
from .. import covered, facts
from ..facts import worst
from ..printable import shown

__all__ = ["PLAIN_WIDTH", "console", "element", "escape", "failure", "outcome_text", "plain_console", "table", "worst"]

PLAIN_WIDTH = 200
STEPS_SHOWN = 48
"""Lines of a product's steps, at most."""
ENDS = found_by(How.END, How.QUESTION)
"""Findings of calls that gave nothing to compare, or were answered and must not be."""
_STYLES = {"pass": "green", "unsupported": "yellow", "not-run": "yellow", "not-verified": "yellow"}


class Shown(Console):
    """A console on which nobody's text moves the cursor: control characters in words and names are shown as `\\x1b`."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Return a text of ours or of a subject, ready to be printed."""
        return super().render_str(shown(text), **how)


def console(stderr: bool = False) -> Console:
    """Return a console: Rich on a terminal, plain and wide when piped."""
    stream = sys.stderr if stderr else sys.stdout
    return Shown(file=stream, highlight=False) if stream.isatty() else plain_console(stream)


def plain_console(stream: Any) -> Console:
    """Return a console without colours whose lines are wide."""
    return Shown(file=stream, highlight=False, width=PLAIN_WIDTH, color_system=None)


def table(
    out: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], least: Sequence[str] = ()
) -> None:
    """Print a table: with rules on a terminal, else in plain aligned columns, which wrap only where $COLUMNS is set.

    least: the columns that are left out, the first of them first, where words would have to be broken to fit.
    """
    cells = [list(row) for row in rows]
    limit = out.width if out.is_terminal else _told_width()
    if limit is None:
        _plain_table(out, title, columns, cells)
        return
    kept, left_out = list(columns), list[str]()
    for name in least:
        if _width(out, _grid(columns, cells, kept)).minimum <= limit:
            break
        kept.remove(name)
        left_out.append(name)
    whole = _width(out, _grid(columns, cells, kept)).minimum <= limit
    if out.is_terminal:
        grid = _grid(columns, cells, kept, whole, SIMPLE_HEAD)
        grid.title = title
        out.print(grid)
    else:
        _print_plain(out, title, _grid(columns, cells, kept, whole), limit)
    if left_out:
        out.print(f"[dim]left out at {limit} columns: {', '.join(left_out)}[/]")


WIDE = 10_000
"""Columns in which any table fits."""


def _told_width() -> int | None:
    """Return the width that $COLUMNS asks for, as a run in a pipe may be told; None where it says nothing."""
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isdecimal() and int(told) else None


def _width(out: Console, grid: Table) -> Measurement:
    """Return the widths between which a table can be printed."""
    return Measurement.get(out, out.options.update(width=WIDE, max_width=WIDE), grid)


def _grid(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    kept: Sequence[str],
    whole: bool = True,
    box: Box | None = None,
) -> Table:
    """Return a table of some columns. whole: whether cells of one word are kept whole, and other columns give way."""
    grid = Table(box=box, show_edge=False, pad_edge=False, padding=(0, 2 if box is None else 1, 0, 0))
    places = [columns.index(name) for name in kept]
    for place, name in zip(places, kept, strict=True):
        words = any(" " in row[place] for row in cells)
        justify: Literal["left", "right"] = "right" if name in _NUMBERS else "left"
        grid.add_column(name, overflow="fold", no_wrap=whole and not words, justify=justify)
    for row in cells:
        grid.add_row(*(row[place] for place in places))
    return grid


def _print_plain(out: Console, title: str, grid: Table, width: int) -> None:
    """Print a table without rules in a width, and without blanks at the ends of its lines."""
    hidden = Shown(file=StringIO(), width=width, color_system=None, highlight=False)
    with hidden.capture() as captured:
        hidden.print(grid)
    lines = [*([title] if title else []), *captured.get().splitlines()]
    out.print(Text("\n".join(line.rstrip() for line in lines)), soft_wrap=True)


def _plain_table(out: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    cells = [list(columns), *([shown(Text.from_markup(cell).plain) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [title] if title else []
    for row in cells:
        aligned = [
            cell.rjust(width) if name in _NUMBERS else cell.ljust(width)
            for cell, width, name in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(aligned).rstrip())
    out.print(Text("\n".join(lines)), soft_wrap=True)


_NUMBERS = frozenset(
    {
        "blocks",
        "share",
        "variants",
        "cases",
        "elements",
        "shown",
        "proved",
        "seconds",
        "results",
        "levels",
        "answered",
        "saturated",
        "to zero",
        "distance",
        "MXFP4 dB",
        "FP8 dB",
        "FP8 to zero",
    }
)


def outcome_text(name: str) -> str:
    """Return an outcome in its colour."""
    return f"[{_STYLES.get(name, 'bold red')}]{name}[/]"


def verdicts(out: Console, report: Mapping[str, Any]) -> None:
    """Print one line a subject, operation and profile: the worst outcome and what it rests on."""
    rows = [
        [
            escape(line.subject),
            line.operation,
            line.profile,
            outcome_text(line.outcome),
            line.level,
            line.variants,
            f"{line.cases:,}",
            f"{line.elements:,}",
            f"{line.proved:,}" if line.proved else "-",
            f"{line.seconds:.1f}",
        ]
        for line in facts.verdicts(report)
    ]
    if rows:
        table(out, "Verdicts", _VERDICTS, rows, ("seconds", "proved", "cases", "elements"))


_VERDICTS = (
    "subject",
    "operation",
    "profile",
    "outcome",
    "level",
    "variants",
    "cases",
    "elements",
    "proved",
    "seconds",
)


def not_verified(out: Console, report: Mapping[str, Any]) -> None:
    """Print, loudly, everything that was not verified and why; equal reasons are one line."""
    for what, who, words in facts.unverified(report):
        out.print(f"[yellow]{what}[/]: {escape(who)}: {escape(words)}", soft_wrap=True)


def classes(out: Console, report: Mapping[str, Any]) -> None:
    """Print the result by input class (N17) of every quantiser that is not right at every byte."""
    rows = [
        [escape(result["subject"]), escape(result["variant"]), *cells] for result, cells in facts.class_rows(report)
    ]
    if rows:
        table(
            out,
            "Blocks that differ, by input class: level reached, wrong/all (F finite, T tiny, H huge, Z zero, "
            "I Inf, N NaN)",
            ("subject", "variant", *CLASSES),
            rows,
        )


def differences(out: Console, report: Mapping[str, Any]) -> None:
    """Print every kind of difference of what is wrong, with its number of elements and how many cases are shown."""
    rows = [
        [
            escape(result["subject"]),
            escape(result["variant"] + f" {result.get('tensor', '')}".rstrip()),
            facts.CLASS_WORDS[entry["class"]],
            entry["output"],
            entry["way"],
            entry["fails"],
            f"{entry['count']:,}",
            shown_of,
        ]
        for result, entry, shown_of in facts.difference_rows(report)
    ]
    if rows:
        columns = ("subject", "variant", "input", "output", "differs in", "fails", "elements", "shown")
        table(out, "Differences, by class of input or of what is expected", columns, rows)


def structure(out: Console, report: Mapping[str, Any]) -> None:
    """Print the factors of structure: their levels over all operations, and which were refused or never tested."""
    rows = [
        [escape(subject), factor, f"{levels:,}", f"{answered:,}", escape(rest) or "-"]
        for subject, factor, levels, answered, rest in covered.coverage(report["results"])
    ]
    if rows:
        table(out, "Structure", ("subject", "factor", "levels", "answered", "refused or never tested"), rows)


def holes(out: Console, report: Mapping[str, Any]) -> None:
    """Print the coverpoints that no case hit."""
    for result in report["results"]:
        if result["holes"]:
            out.print(
                f"[yellow]not covered[/]: {escape(result['subject'])} {escape(result['variant'])}: "
                f"{escape(', '.join(result['holes']))}"
            )


def failure(out: Console, result: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    """Print the page of one failing case."""
    page = record["page"]
    breach = f"  {record['finding']}" if record["finding"] else f"  fails {record['fails']}"
    breach += f"  {facts.difference_words(record['difference'])}" if record.get("difference") else ""
    head = "MALFORMED" if result["outcome"] == "malformed" else "FAULT" if record["finding"] in ENDS else "MISMATCH"
    head = "NEXT LEVEL" if result["outcome"] == "pass" else head
    out.print(f"\n[bold red]{head}[/]  {escape(result['variant'])}  subject={escape(result['subject'])}{breach}")
    if record["words"]:
        out.print(f"  {escape(record['words'])}", soft_wrap=True)
    if page:
        element(out, page)
    for bug in record["bug_classes"]:
        if bug["words"] == record["words"]:
            continue
        note = bug.get("note") or {}
        effect = f" ({note['effect']})" if note.get("effect") else ""
        out.print(f"  like      {escape(bug['id'])}: {escape(bug['words'])}{escape(effect)}", soft_wrap=True)
    if not record["bug_classes"] and page:
        out.print("  like      no single known bug class gives the bits of this kernel")
    from_label = f" [{record['label']}]" if record["label"] else ""
    size = (
        f"shrunk    from {record['shrunk_from']}{from_label} to {record['case']}"
        if record["shrunk"]
        else f"case      {record['case']}{from_label}"
    )
    out.print(f"  {escape(size)}; shown in {record['reproduced']} runs", soft_wrap=True)
    if record["command"]:
        out.print(f"  replay    {escape(record['command'])}", soft_wrap=True)


def element(out: Console, page: Mapping[str, Any]) -> None:
    """Print the element that differs: inputs, scale, both codes by field, and the rule that decides."""
    out.print(
        f"  {escape(page['place'])}   in {escape(page['output'])}; differing: "
        + escape(", ".join(f"{name} {count}" for name, count in page["differing"].items()))
    )
    for entry in page["input"]:
        out.print(f"    {entry['name']:<9} {entry['bits']:<11} {entry['fields']:<14} {escape(entry['value'])}")
    if page["scale"]:
        same = page["scale"]["expected"] == page["scale"]["observed"]
        both = (
            page["scale"]["expected"]
            if same
            else f"expected {page['scale']['expected']}  observed {page['scale']['observed']}"
        )
        out.print(f"    scale     {both}")
    for side in ("expected", "observed"):
        tail = (
            f"   ({page['rule']})"
            if side == "expected" and page["rule"]
            else f"   {page['differs']}"
            if side == "observed"
            else ""
        )
        cells = page[side]
        out.print(f"    {side:<9} {cells['bits']:<11} {cells['fields']:<14} {escape(cells['value'])}{escape(tail)}")
    if page.get("parts"):
        out.print(f"  {escape(page['parts'])}", soft_wrap=True)
        for step in page["steps"][:STEPS_SHOWN]:
            out.print(f"    {escape(step['name']):<12} {escape(step['text'])}", soft_wrap=True)
