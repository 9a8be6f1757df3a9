"""`refnum subjects`: who can be judged on this machine."""

from __future__ import annotations

from ..reports import terminal
from ..subjects.choose import choose
from .options import told

COLUMNS = ("subject", "kind", "usable", "operations", "profiles", "level")


@told
def subjects() -> None:
    """List who can be judged here: kernels, peers, and why the others cannot."""
    chosen = choose(["all"])
    rows = [
        [
            terminal.escape(record["name"]),
            record["kind"],
            "yes" if record["available"] else terminal.escape(record["reason"]),
            ", ".join(record["operations"]),
            ", ".join(record["profiles"]),
            record["level"],
        ]
        for record in chosen.records()
    ]
    out = terminal.console()
    terminal.table(out, "Subjects", COLUMNS, rows)
    for name, reason in chosen.broken:
        out.print(f"[bold red]broken[/] {terminal.escape(name)}: {terminal.escape(reason)}")
