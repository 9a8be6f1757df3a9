"""Which profile a kernel follows: candidates are judged by its own answers, and each choice keeps its witness.

Every combination of scale rule, rounding, ties, overflow, sign of zero and policy for Inf and NaN is a candidate,
with the zero byte and the floor of amax that the kernel's answers to zeros and to tiny blocks ask for. The golden
model answers the cases for them: scales are explained first, by the fields that decide them, then the codes. Of a
kernel that none explains, the closest is found by counting elements (`score.py`). What no input tells apart is
reported as undecided, not guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from refnum.profiles import Profile

from .answers import Answer, ask, one_operation, one_subject
from .candidates import FIELDS, closest, named
from .nibbles import OURS, in_order
from .scales import WrongScales
from .score import Score
from .witness import Doubt, Witness, weigh

__all__ = ["FIELDS", "Inference", "Witness", "infer_profile"]


@dataclass
class Inference:
    """What was found out.

    asked: the subject as it was named. claimed: the profiles that it declares. best: the profile that explains most;
    exact: whether it explains every case. nibbles: the order in which the kernel packs codes, by which they were
    compared. agreement: output -> elements that agree with it, and all elements. scales: in which ways scales are
    wrong. recoded: in words, codes that it gives and another that the kernel gives there.
    choices: field -> a witness against each other value that one was found for. undecided: field -> values that no
    input told apart. unclear: field -> values that give something else, but not where the kernel agrees with the
    best one. unexplained: cases that the best does not explain. cases: how many were compared. refused: how many the
    kernel refused.
    """

    subject: str
    operation: str
    best: Profile
    asked: str = ""
    claimed: tuple[str, ...] = ()
    nibbles: str = OURS
    cases: int = 0
    refused: int = 0
    agreement: dict[str, tuple[int, int]] = field(default_factory=dict)
    scales: list[WrongScales] = field(default_factory=list)
    recoded: list[str] = field(default_factory=list)
    choices: dict[str, list[Witness]] = field(default_factory=dict)
    undecided: dict[str, list[Any]] = field(default_factory=dict)
    unclear: dict[str, list[Any]] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Whether the profile explains every answer."""
        return not self.unexplained and self.cases > 0


def infer_profile(
    name: str,
    operation: str | None,
    isolate: bool | None = None,
    seconds: float = 60.0,
    say: Callable[[str], None] = lambda words: None,
) -> Inference:
    """Return what profile a subject follows.

    seconds: what one call of the subject may take. say: is told what is done, a line now and then.

    Raises ArgumentError when it is not one subject with one operation that has a profile, UnsupportedError when it
    chooses by an argument `profile`, rounds at random, or answers nothing.
    """
    subject = one_subject(name, isolate)
    operation = one_operation(subject, operation)
    answers, refused = ask(subject, operation, seconds, say)
    left, order = closest(answers, say)
    best, claimed = named(left), subject.claims(operation)
    found = Inference(subject.name, operation, best, name, claimed, order, len(answers), refused)
    if order != OURS:
        answers = in_order(answers, order)
    _measure(found, answers)
    say("looking for an input that decides each choice")
    for name in FIELDS:
        for value, verdict in weigh(best, name, answers):
            _note(found, name, value, verdict)
    return found


def _measure(found: Inference, answers: list[Answer]) -> None:
    """Count what agrees with the best profile, and name the cases that it does not explain."""
    score = Score()
    for answer in answers:
        if not score.add(answer, found.best, answer.observed):
            found.unexplained.append(f"{answer.label}: {answer.case}")
    found.agreement = {name: (score.agreed[name], score.total[name]) for name in score.total}
    found.scales, found.recoded = score.scales(), score.recoded()


def _note(found: Inference, name: str, value: Any, verdict: Witness | Doubt) -> None:
    if isinstance(verdict, Witness):
        found.choices.setdefault(name, []).append(verdict)
    elif verdict is Doubt.SAME:
        found.undecided.setdefault(name, []).append(value)
    else:
        found.unclear.setdefault(name, []).append(value)
