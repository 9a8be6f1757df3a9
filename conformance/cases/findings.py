"""Findings: the table of what can be wrong with a call besides its bytes, and problems of results as a whole.

A new finding is one entry of `Finding`; one that other data or another call shows also needs its calls in
`verdicts.reproduce`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto


class Shown(Enum):
    """How a finding shows itself, and so how a replay reproduces it.

    RESULT: by count, shape, dtype or padding of the results. CALL: a call names it, whichever way it is made.
    BYTES: by wrong bytes in the calls of one probe. LATER_CALL, LATER_BYTES: the same of a second call, which answers
    other data. QUESTION: by its own case in the judging process. END: by the end of the subject's process.
    """

    RESULT = auto()
    CALL = auto()
    BYTES = auto()
    LATER_CALL = auto()
    LATER_BYTES = auto()
    QUESTION = auto()
    END = auto()


class Finding(StrEnum):
    """Name of a finding in reports -> how it is shown, and what it means."""

    SHAPE = "wrong-shape-or-dtype", Shown.RESULT, "too few or too many results, or one of another shape or dtype"
    PADDING = "wrong-padding", Shown.RESULT, "padding of a scale layout is not zero (N6.2)"
    SCALE = "scale-not-a-power-of-two", Shown.RESULT, "a float32 of a scale layout is the value of no E8M0 byte (N0)"

    INPUT_MUTATED = "input-mutated", Shown.CALL, "the call changed an input"
    FLOAT_MODE = "float-mode-changed", Shown.CALL, "the call left another rounding direction or flush-to-zero mode"
    PROCESS_STATE = "process-state-changed", Shown.CALL, "the call left other defaults or random numbers of a library"
    ALIASES_INPUT = "output-aliases-input", Shown.CALL, "a result is a view of an input"
    GUARD = "guard-overwritten", Shown.CALL, "memory before or after an array was written"
    NOT_CONTIGUOUS = "result-not-contiguous", Shown.CALL, "a result is not contiguous"
    READ_ONLY = "result-read-only", Shown.CALL, "a result cannot be written"
    SUBCLASS = "result-subclass", Shown.CALL, "a result is no plain array: a matrix, a parameter"
    OVERLAP = "results-overlap", Shown.CALL, "two results share memory"
    OUT_NOT_RETURNED = "out-not-returned", Shown.CALL, "a result is not the array given as `out`"

    HELD = "earlier-result-changed", Shown.LATER_CALL, "a later call changed a result of an earlier one"
    IN_STORAGE = "refused-in-place", Shown.LATER_CALL, "new data is refused in the storage of an earlier call only"
    NOT_THREAD_SAFE = "not-thread-safe", Shown.LATER_CALL, "two calls at once spoil each other"

    NOT_WRITTEN = "output-not-written", Shown.BYTES, "a part of `out` was not written"
    OUT_WRONG = "wrong-into-out", Shown.BYTES, "results written into `out` are wrong, returned ones are right"
    STRIDES = "strides-ignored", Shown.BYTES, "an input with gaps between elements is read as contiguous"
    ROW_STRIDE = "row-stride-ignored", Shown.BYTES, "an input with padded rows is read as contiguous"
    ROW_ALIGNMENT = "row-alignment-assumed", Shown.BYTES, "rows at odd addresses are read wrongly"
    ROW_OFFSET = "row-offset-overflow", Shown.BYTES, "rows are read wrongly where their offsets exceed 32 bits"
    ALIGNMENT = "alignment-assumed", Shown.BYTES, "an input at an odd address is read wrongly"
    ONE_ARRAY = "inputs-of-one-array", Shown.BYTES, "inputs that are one array, or parts of one, are read wrongly"
    NOT_DETERMINISTIC = "not-deterministic", Shown.BYTES, "repeated calls on one case differ"
    STREAM = "stream-ignored", Shown.BYTES, "work is not ordered on the caller's stream"
    DEVICE = "device-assumed", Shown.BYTES, "arrays on another device than the first are read or written wrongly"
    WAY_BY_SIZE = "way-by-size", Shown.BYTES, "the code path of large data is wrong"
    AFTER_REFUSAL = "wrong-after-refusal", Shown.BYTES, "a call is wrong after one that was refused"
    AFTER_ANOTHER = "wrong-after-another-call", Shown.BYTES, "a call is wrong right behind another one"
    SPLITS_AS_ARRAY = "splits-as-array", Shown.BYTES, "splits given as an array are read wrongly"

    STALE = "stale-output", Shown.LATER_BYTES, "a call answers the earlier data of its storage"
    GRAPH = "graph-replay-stale", Shown.LATER_BYTES, "a replayed graph answers the data of its capture"

    ILLEGAL_ACCEPTED = "illegal-accepted", Shown.QUESTION, "a call that must be refused is answered"

    DIED = "process-died", Shown.END, "the call ends its process"
    HUNG = "kernel-hung", Shown.END, "the call does not return"
    RAISED = "raised", Shown.END, "the call raises an error"

    shown: Shown
    words: str

    def __new__(cls, value: str, shown: Shown, words: str) -> Finding:
        """Return the member for a name, with its columns."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.shown, member.words = shown, words
        return member


def found_by(*shown: Shown) -> frozenset[str]:
    """Return the findings that are shown in one of some ways."""
    return frozenset(finding for finding in Finding if finding.shown in shown)


SHAPE, PADDING, SCALE = Finding.SHAPE, Finding.PADDING, Finding.SCALE
FINDINGS = found_by(Shown.RESULT)
"""Findings of results that cannot be compared byte for byte."""
NAMED_BY_CALLS = found_by(Shown.CALL, Shown.LATER_CALL)
"""Findings that a call itself names, and that a subject's own process may therefore send."""


@dataclass(frozen=True)
class Problem:
    """A problem of results as a whole, or none: then it is false. words: one sentence, without its full stop."""

    finding: str = ""
    words: str = ""

    def __bool__(self) -> bool:
        return bool(self.finding)

    def __str__(self) -> str:
        return self.words


NO_PROBLEM = Problem()
