"""The door for tests: judge a callable from Python, and fail with the page of the first mismatch.

from refnum.conformance import assert_conforms

def test_my_quantiser():
    assert_conforms(my_quantiser, "quantize_mxfp4", profile="OCP")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from refnum.errors import ArgumentError, UnsupportedError
from refnum.profiles import get_profile

from .cases.contracts import checked_contract
from .cases.operation import select
from .commands.check.controls import verify
from .commands.check.run import RUN_LEVELS, Plan, run
from .reports import facts, terminal
from .reports import report as reports
from .reports.printable import printable
from .reports.terminal import report as show_report
from .reports.text import one_line
from .subjects.choose import Kernel, as_subject


def judge_kernel(
    kernel: Kernel,
    operation: str | None = None,
    *,
    profile: str | None = None,
    level: str = "standard",
    seed: int = 0,
    examples: int = 25,
    agreement: int | str | None = None,
    inputs: str | Sequence[str] = (),
    save: bool = True,
) -> dict[str, Any]:
    """Judge a kernel and return the report as JSON values (`schema/report.schema.json`).

    kernel: a callable with the keywords of its golden twin, one declared by `@implements`, a dict of operation ->
    callable, a Subject, or what would come after `--subject`: that one lives in a process of its own.
    operation: what a bare callable is; for the others a name or pattern that narrows what is judged.
    profile: a profile name; None means those that the kernel claims. agreement: the level of N16 that is enough,
    0 to 5 or its name, whatever the kernel claims; None means what it claims, or 0. inputs: a contract of inputs beside
    what the kernel declares, `finite`, `nonzero`, `normal` or several: what lies outside is information, no failure.
    save: write replay files of mismatches under `.refnum/cases`.

    Raises ArgumentError or ProfileError for unknown names, UnsupportedError for a subject that says that it cannot run
    here, HarnessError when the harness fails its own controls.
    """
    if level not in RUN_LEVELS:
        raise ArgumentError(f"level={level!r} is unknown; choose from {', '.join(RUN_LEVELS)}.")
    if profile is not None:
        get_profile(profile)
    contract = checked_contract(inputs, "judge_kernel")
    counts = verify()
    subject = as_subject(kernel, operation, agreement).within(contract)
    usable, reason = subject.available()
    if not usable:
        raise UnsupportedError(f"{subject.name} cannot be judged here: {reason}.")
    names = [operation] if operation else None
    plan = Plan(
        [subject],
        select(names),
        [profile] if profile else None,
        level,
        seed,
        examples,
        named=frozenset(names or ()),
        special=True,
        save=save,
    )
    record = {"name": subject.name, "kind": subject.kind, "available": True, "reason": ""}
    head = reports.header(level, seed, [], [record], [], examples=examples)
    return run(plan, reports.Report(head, controls=counts)).document()


def assert_conforms(kernel: Kernel, operation: str | None = None, **options: Any) -> None:
    """Raise AssertionError with the mismatch page unless everything that was asked for is verified.

    Options are those of `judge_kernel`. Nothing compared is a failure, and so is a variant that is unsupported.
    """
    __tracebackhide__ = True
    document = judge_kernel(kernel, operation, **options)
    if not verified(document):
        raise AssertionError(f"{summary(document)}\n{as_text(document)}")


def verified(document: Mapping[str, Any]) -> bool:
    """Whether everything that was asked for is verified: something was compared, and nothing was left out."""
    outcomes = set(document["footer"]["totals"]["outcomes"])
    return document["footer"]["exit"] == reports.EXIT_VERIFIED and outcomes == {"pass"}


def summary(document: Mapping[str, Any]) -> str:
    """Return what is wrong in one line: the first wrong result's bug class and smallest input, else the verdict."""
    wrong = [row for row in document["results"] if row["outcome"] in facts.WRONG]
    lines = [f"{one_line(row)}; {row['subject']} on {row['variant']}" for row in wrong[:1]]
    more = f" (and {len(wrong) - 1} more variants)" if len(wrong) > 1 else ""
    return printable(lines[0] + more if lines else document["footer"]["verdict"])


def as_text(document: Mapping[str, Any]) -> str:
    """Return a report as the plain text that the command line prints."""
    stream = StringIO()
    show_report.everything(terminal.plain_console(stream), document)
    return stream.getvalue()
