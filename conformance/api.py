"""The door for tests: judge a callable from Python, and fail with the page of the first mismatch.

from conformance import assert_conforms

def test_my_quantiser():
    assert_conforms(my_quantiser, "quantize_mxfp4", profile="OCP")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import StringIO
from typing import Any

from rich.console import Console

from refnum.errors import ArgumentError
from refnum.profiles import get_profile

from . import report as reports
from . import show
from .controls import verify
from .operation import select
from .run import RUN_LEVELS, Plan, run
from .subject import Subject, from_dict

Kernel = Callable[..., Any] | Mapping[str, Any] | Subject


def judge_kernel(
    kernel: Kernel,
    operation: str | None = None,
    *,
    profile: str | None = None,
    level: str = "standard",
    seed: int = 0,
    examples: int = 25,
    agreement: int = 0,
    save: bool = True,
) -> dict[str, Any]:
    """Judge a kernel and return the report as JSON values (`schema/report.schema.json`).

    kernel: a callable with the keywords of its golden twin, a dict of operation -> callable, or a Subject.
    operation: what a bare callable is; for the others a name or pattern that narrows what is judged.
    profile: a profile name; None means those that the kernel claims. agreement: the level of N16 that is enough.
    save: write replay files of mismatches under `.refnum/cases`.

    Raises ArgumentError or ProfileError for unknown names, HarnessError when the harness fails its own controls.
    """
    if level not in RUN_LEVELS:
        raise ArgumentError(f"level={level!r} is unknown; choose from {', '.join(RUN_LEVELS)}.")
    if profile is not None:
        get_profile(profile)
    counts = verify()
    subject = _subject(kernel, operation, agreement)
    names = [operation] if operation else None
    plan = Plan(
        [subject],
        select(names),
        [profile] if profile else None,
        level,
        seed,
        examples,
        named=frozenset(names or ()),
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
    outcomes = set(document["footer"]["totals"]["outcomes"])
    if document["footer"]["exit"] != reports.EXIT_VERIFIED or outcomes != {"pass"}:
        raise AssertionError(as_text(document))


def as_text(document: Mapping[str, Any]) -> str:
    """Return a report as the plain text that the command line prints."""
    stream = StringIO()
    show.everything(Console(file=stream, width=show.PLAIN_WIDTH, color_system=None, highlight=False), document)
    return stream.getvalue()


def _subject(kernel: Kernel, operation: str | None, agreement: int) -> Subject:
    if isinstance(kernel, Subject):
        return kernel
    if isinstance(kernel, Mapping):
        entry = kernel if "operations" in kernel else {"name": "kernel", "operations": kernel}
        return from_dict({"level": agreement, **entry}, "judge_kernel")
    if not callable(kernel) or operation is None:
        raise ArgumentError("Give a callable with the operation it implements, or a dict of operation -> callable.")
    name = getattr(kernel, "__name__", type(kernel).__name__)
    return from_dict({"name": name, "operations": {operation: kernel}, "level": agreement}, "judge_kernel")
