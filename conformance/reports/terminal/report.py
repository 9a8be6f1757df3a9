"""The terminal's view of a whole report, in the order in which a reader needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from .. import facts, terminal
from . import data as show_data


def everything(out: Console, report: Mapping[str, Any]) -> None:
    """Print a whole report: table, what is not verified, classes, mismatches, and the verdict line."""
    if report["results"] or not report["data"]:
        terminal.verdicts(out, report)
    show_data.tensors(out, report)
    terminal.classes(out, report)
    terminal.differences(out, report)
    terminal.not_verified(out, report)
    terminal.holes(out, report)
    terminal.structure(out, report)
    more: list[str] = []
    for result in [*report["results"], *report["data"]]:
        for record in result["failures"]:
            if result["outcome"] == "pass":
                continue
            partial = report["footer"]["status"] == "partial"
            if record["shrunk"] or not record["page"] or record["reproduced"][:1] != "3" or partial:
                terminal.failure(out, result, record)
            else:
                like = ", ".join(bug["id"] for bug in record["bug_classes"]) or "no known bug class"
                more.append(f"{result['variant']}  subject={result['subject']}  like {like}  {record['command']}")
        shown = any(record["words"] and record["words"] in result["words"] for record in result["failures"])
        if result["outcome"] in ("fault", "timeout", "compile-error") and not shown:
            out.print(
                f"\n[bold red]{result['outcome'].upper()}[/]  {escape(result['variant'])}  "
                f"subject={escape(result['subject'])}\n  {escape(result['words'])}"
            )
    if more:
        out.print(f"\n{len(more)} more failing variants, not shrunk:")
        for line in more:
            out.print(f"  {escape(line)}", soft_wrap=True)
    if left := facts.unshown(report):
        out.print(f"\n{left:,} more differences have no page: of a variant the worst are shown")
    for line in report["harness"]:
        out.print(f"[bold red]HARNESS[/]  {escape(line)}")
    style = {0: "green", 1: "bold red"}.get(report["footer"]["exit"], "yellow")
    out.print(f"\n[{style}]{escape(report['footer']['verdict'])}[/]", soft_wrap=not out.is_terminal)
