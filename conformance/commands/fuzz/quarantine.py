"""Decide how to handle a lost worker or a finding, from the event alone.

A suspected case runs once more, in a new process and on another device if there is one. If it fails again, it is
recorded as a fault and never run again; otherwise the shard is retried. So a case that kills workers kills two at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ...cases.levels import Outcome
from .worker_process import DIED, HUNG, Event

TRIES = 3
"""Losses of one shard that are put down to the machines before a case of it is suspected."""


class Action(StrEnum):
    """The next step for a shard whose worker was lost."""

    RETRY = "retry"
    CONFIRM = "confirm"
    GIVE_UP = "give up"


def after_loss(event: Event, losses: int) -> Action:
    """Return what becomes of a shard; losses counts this one.

    A process that hung or died by itself points to its case at once. One that was killed from outside, or whose
    machine is gone, points to nothing until it has happened often. A shard that is lost again and again before any
    case of it began is given up: it is written down as a fault of its first case and not run again.
    """
    if event.number is None:
        return Action.RETRY if losses < 2 * TRIES else Action.GIVE_UP
    if event.why in (HUNG, DIED):
        return Action.CONFIRM
    return Action.RETRY if losses < TRIES else Action.CONFIRM


@dataclass(frozen=True)
class Judgement:
    """The result of a confirmation. again: run the case once more, on the device where it failed first."""

    outcome: str
    words: str
    again: bool = False


def after_mismatch(result: Mapping[str, Any], first: str, device: str, second_look: bool) -> Judgement:
    """Return the judgement of a mismatch that was run again.

    result: of `confirm.confirm`. first, device: where it was seen first, and where it ran now.
    second_look: it was right elsewhere, and now ran again where it was wrong.
    """
    shown, of = result["shown"], result["of"]
    if not result["golden"]:
        return Judgement("golden", result["words"])
    if second_look:
        if shown:
            return Judgement("broken-card", f"wrong on {device} only, {shown} of {of} times; right on another device")
        return Judgement(str(Outcome.FLAKY), f"wrong once on {first} and never again, there or elsewhere")
    if shown == of:
        return Judgement(str(Outcome.MISMATCH), result["words"])
    if shown:
        return Judgement(str(Outcome.FLAKY), f"wrong {shown} of {of} times on the same case")
    if device != first:
        return Judgement("", "", again=True)
    return Judgement(str(Outcome.FLAKY), f"wrong once on {first} and never again in a fresh process")
