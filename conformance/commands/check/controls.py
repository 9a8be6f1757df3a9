"""The harness judges itself: every control must get the verdict that it was made for."""

from __future__ import annotations

import functools
from typing import Any

from refnum.errors import RefnumError

from ...cases.levels import Outcome
from ...cases.operation import OPERATIONS, select
from ...reports.report import COMPLETE, Report
from ...reports.terminal.watch import Watch
from ...subjects.calls.call import NO_ROOM
from ...subjects.controls import Control, controls
from ...verdicts.device import judge_on_device
from .control_cases import control_cases
from .run import Plan, run


class HarnessError(RefnumError):
    """The harness misjudged one of its own controls: no verdict of this run is to be believed."""


class NoRoomError(HarnessError, MemoryError):
    """Memory was short while a control was judged: nothing is known of the harness."""


def judge_control(control: Control, thorough: bool = False) -> tuple[set[str], set[str]]:
    """Return the outcomes and the findings of one control; nothing is saved or shrunk.

    Judged on the few cases of `control_cases`, of one operation a family, or, when thorough, on the corners and a few
    sampled cases of every operation.
    """
    operations = select(list(control.subject.operations))
    if not thorough:
        operations = list({one.family: one for one in reversed(operations)}.values())[::-1]
    plan = Plan(
        [control.subject],
        operations,
        profiles=["HOPPER"],
        level="smoke",
        examples=2,
        seconds=0.5 if control.outcome is Outcome.TIMEOUT else 60.0,  # a machine that is busy is no hang
        save=False,
        shown=0,
        cases=None if thorough else control_cases,
    )
    report = run(plan, Report({"level": "smoke"}))
    if report.status != COMPLETE:
        raise KeyboardInterrupt  # which `run` makes a partial report of: that is no verdict on the harness
    if report.harness:
        raise HarnessError(f"Judging the control {control.subject.name}: {report.harness[0]}")
    if any(NO_ROOM in result["refusal"] for result in report.results):
        raise NoRoomError(f"Judging the control {control.subject.name}: {NO_ROOM}; end other programs, or judge less.")
    outcomes = {result["outcome"] for result in report.results}
    if control.outcome in (Outcome.FAULT, Outcome.UNSUPPORTED):
        outcomes |= _on_own_arrays(control)
    return outcomes, {name for result in report.results for name in result["findings"]}


def _on_own_arrays(control: Control) -> set[str]:
    """Return the outcomes of a control by the path of wide domains, which must survive the same endings of a call."""
    subject = control.subject
    cases = (case for name in subject.operations for case in control_cases(name, "HOPPER", OPERATIONS[name].defaults()))
    return {judge_on_device(subject, case).outcome.value for case in cases}


def check_control(control: Control, thorough: bool = False) -> None:
    """Raise HarnessError unless a control gets its outcome and its breach is named."""
    outcomes, findings = judge_control(control, thorough)
    name = control.subject.name
    if outcomes != {control.outcome.value}:
        raise HarnessError(
            f"The control {name} must end in {control.outcome.value} and ended in "
            f"{', '.join(sorted(outcomes)) or 'nothing'}: the harness itself is broken."
        )
    if control.finding and control.finding not in findings:
        raise HarnessError(
            f"The control {name} must be caught as {control.finding} and was caught as "
            f"{', '.join(sorted(findings)) or 'nothing in particular'}."
        )


@functools.cache
def verify(thorough: bool = False) -> dict[str, Any]:
    """Judge every control once a process; HarnessError names the first that is misjudged."""
    return verify_watched(Watch(), thorough)


def verify_watched(watch: Watch, thorough: bool = False) -> dict[str, Any]:
    """Judge every control, as `verify`; watch: is told how far it is."""
    counts, every = {"right_passed": 0, "wrong_caught": 0}, list(controls())
    watch.enter("controls", len(every))
    for control in every:
        check_control(control, thorough)
        counts["right_passed" if control.right else "wrong_caught"] += 1
        watch.step()
    return counts
