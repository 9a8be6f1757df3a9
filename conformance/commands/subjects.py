"""`refnum subjects`: who can be judged on this machine."""

from __future__ import annotations

import json as encoder
from typing import Annotated, Any

import typer
from rich.console import Console

from ..cases.operation import OPERATIONS
from ..reports import terminal
from ..subjects.choose import choose
from .options import told

COLUMNS = ("subject", "kind", "operations", "profiles", "level")


@told
def subjects(
    name: Annotated[
        list[str] | None, typer.Argument(help="As for `check -s`: these in full, with their operations.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """List the subjects that can be judged here, and why others cannot."""
    chosen = choose(name or ["all"])
    records, out = chosen.records(), terminal.console()
    if json:
        print(encoder.dumps({"subjects": records, "broken": dict(chosen.broken)}, indent=1))
        return
    if name:
        for record in records:
            _in_full(out, record)
    else:
        usable = [_row(record) for record in records if record["available"]]
        terminal.table(out, "Subjects", COLUMNS, usable)
        for record in records:
            if not record["available"]:
                out.print(f"[yellow]not here[/] {terminal.escape(record['name'])}: {terminal.escape(record['reason'])}")
        out.print("One of them in full, with its operations: refnum subjects NAME")
    for what, reason in chosen.broken:
        out.print(f"[bold red]broken[/] {terminal.escape(what)}: {terminal.escape(reason)}")


def _row(record: dict[str, Any]) -> list[str]:
    count = f"{len(record['operations'])} of {len(OPERATIONS)}"
    profiles = ", ".join(record["profiles"]) or "-"
    return [terminal.escape(record["name"]), record["kind"], count, profiles, record["level"]]


def _in_full(out: Console, record: dict[str, Any]) -> None:
    facts = {
        "kind": record["kind"],
        "usable here": "yes" if record["available"] else record["reason"],
        "operations": ", ".join(record["operations"]),
        "profiles": ", ".join(record["profiles"]) or "-",
        "level": record["level"],
        **record["describe"],
    }
    rows = [[terminal.escape(key), terminal.escape(value)] for key, value in facts.items()]
    terminal.table(out, terminal.escape(record["name"]), ("fact", "value"), rows)
