"""`python -m tools.mutation`: mutate the golden model or the comparator, in a checkout."""

from __future__ import annotations

from typing import Annotated

import typer

from refnum.conformance.commands.mutate.accepted import accepted
from refnum.conformance.commands.mutate.command import (
    CORES,
    File,
    Kept,
    Out,
    Sample,
    Seed,
    Since,
    Workers,
    chosen,
    report,
)
from refnum.conformance.commands.mutate.ledger import Ledger
from refnum.conformance.commands.mutate.run import run
from refnum.conformance.commands.mutate.since import in_later_lines
from refnum.conformance.commands.options import told
from refnum.errors import ArgumentError
from tools.mutation.line_trace import ROOT
from tools.mutation.python import Modules, reasons
from tools.mutation.python_targets import TARGETS

app = typer.Typer(add_completion=False)


@app.command()
@told
def main(
    target: Annotated[str, typer.Argument(help="`model` or `comparator`.")],
    file: File = "*",
    sample: Sample = None,
    seed: Seed = 0,
    since: Since = None,
    workers: Workers = CORES,
    tests: Annotated[bool, typer.Option("--tests", help="Run survivors against tests.")] = False,
    ledger: Kept = None,
    out: Out = None,
) -> None:
    """Mutate the golden model or the comparator; exit status 1 when a mutant survives."""
    found = next((one for one in TARGETS if one.name == target), None)
    if found is None:
        raise ArgumentError(f"There is no target {target!r}; choose from {', '.join(t.name for t in TARGETS)}.")
    workshop = Modules.open(found, tests)
    later = in_later_lines(workshop.mutants(), ROOT, since)
    mutants = chosen(later, sample, seed, target, file=file)
    verdicts = list(run(workshop, mutants, workers, Ledger(ledger) if ledger else None))
    report(target, accepted(verdicts, reasons(), workshop.texts), out)


if __name__ == "__main__":
    app(prog_name="python -m tools.mutation")
