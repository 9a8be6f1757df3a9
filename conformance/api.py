"""The door for tests: judge a callable from Python, and fail with the page of the first mismatch.

from conformance import assert_conforms

def test_my_quantiser():
    assert_conforms(my_quantiser, "quantize_mxfp4", profile="OCP")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from io import StringIO
from typing import Any

from rich.console import Console

from refnum.errors import ArgumentError, UnsupportedError
from refnum.profiles import get_profile

from . import report as reports
from . import show
from .choose import choose
from .controls import verify
from .doors.declare import declared
from .operation import select
from .run import RUN_LEVELS, Plan, run
from .show import report as show_report
from .subject import Subject, from_dict

Kernel = Callable[..., Any] | Mapping[str, Any] | Subject | str


def judge_kernel(
    kernel: Kernel,
    operation: str | None = None,
    *,
    profile: str | None = None,
    level: str = "standard",
    seed: int = 0,
    examples: int = 25,
    agreement: int | None = None,
    save: bool = True,
) -> dict[str, Any]:
    """Judge a kernel and return the report as JSON values (`schema/report.schema.json`).

    kernel: a callable with the keywords of its golden twin, one declared by `@implements`, a dict of operation ->
    callable, a Subject, or what would come after `--subject`: that one lives in a process of its own.
    operation: what a bare callable is; for the others a name or pattern that narrows what is judged.
    profile: a profile name; None means those that the kernel claims. agreement: the level of N16 that is enough,
    0 to 4, whatever the kernel claims; None means what it claims, or 0.
    save: write replay files of mismatches under `.refnum/cases`.

    Raises ArgumentError or ProfileError for unknown names, UnsupportedError for a subject that says that it cannot run
    here, HarnessError when the harness fails its own controls.
    """
    if level not in RUN_LEVELS:
        raise ArgumentError(f"level={level!r} is unknown; choose from {', '.join(RUN_LEVELS)}.")
    if profile is not None:
        get_profile(profile)
    counts = verify()
    subject = as_subject(kernel, operation, agreement)
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
        raise AssertionError(as_text(document))


def verified(document: Mapping[str, Any]) -> bool:
    """Whether everything that was asked for is verified: something was compared, and nothing was left out."""
    outcomes = set(document["footer"]["totals"]["outcomes"])
    return document["footer"]["exit"] == reports.EXIT_VERIFIED and outcomes == {"pass"}


def as_text(document: Mapping[str, Any]) -> str:
    """Return a report as the plain text that the command line prints."""
    stream = StringIO()
    show_report.everything(Console(file=stream, width=show.PLAIN_WIDTH, color_system=None, highlight=False), document)
    return stream.getvalue()


def as_subject(kernel: Kernel, operation: str | None = None, agreement: int | None = None) -> Subject:
    """Return what is given as a Subject; ArgumentError when it is none, or not exactly one.

    agreement: the level of agreement that is enough, in the place of what the kernel claims; None leaves that.
    """
    subject = _subject(kernel, operation)
    return subject if agreement is None else replace(subject, level=agreement, levels={})


def _subject(kernel: Kernel, operation: str | None) -> Subject:
    if isinstance(kernel, str):
        chosen = choose([kernel], None)
        found = [*chosen.usable, *(subject for subject, _ in chosen.unusable)]
        if len(found) != 1:
            names = ", ".join(subject.name for subject in found)
            raise ArgumentError(f"{kernel} has {len(found)} subjects, {names}; name one: {kernel}:NAME.")
        return found[0]
    if isinstance(kernel, Subject):
        return kernel
    for declaration in declared([kernel]):
        return from_dict(declaration, "judge_kernel")
    if isinstance(kernel, Mapping):
        return from_dict(kernel if "operations" in kernel else {"name": "kernel", "operations": kernel}, "judge_kernel")
    if not callable(kernel) or operation is None:
        raise ArgumentError("Give a callable with the operation it implements, or a dict of operation -> callable.")
    name = getattr(kernel, "__name__", type(kernel).__name__)
    return from_dict({"name": name, "operations": {operation: kernel}}, "judge_kernel")
