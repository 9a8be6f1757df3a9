"""Judge a part of a wide domain on the device: model and comparison run there too (N18.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..cases.case import Case
from ..cases.crop import take_rows
from ..cases.levels import Outcome
from ..cases.operation import run_golden
from ..subjects.arrays import alive
from ..subjects.subject import Subject
from . import device
from .judge import judge
from .tally import Tally


def judge_wide(
    subject: Subject, case: Case, golden: dict[str, Any], tally: Tally, seconds: float, again: Callable[[], Case]
) -> bool | None:
    """Judge a case on the device and count it; return whether the subject passed, None if nothing was compared.

    A case that does not pass is judged again on the host, which explains the failure. again: makes the case on the
    host, for a device that no longer answers.
    """
    seen = device.judge_on_device(subject, case, golden, seconds)
    if seen.outcome is Outcome.PASS:
        tally.compared += device.elements_of(case, golden)
        tally.calls += 1
        return True
    if not alive(subject.arrays):  # nothing can be fetched from there any more
        tally.faults.append((seen.outcome, seen.words, again()))
        return None
    row = seen.records[0].index[0] if seen.records else 0
    for rows in (take_rows(case, row, row + 1), case):  # the row alone may be right: then all of them
        host = device.fetch(rows)
        held = judge(subject, host, run_golden(host), tally, seconds)
        if held is not True:
            return held
    tally.repeat(host, 1, 1)  # wrong at first, and right when it was judged again
    return False
