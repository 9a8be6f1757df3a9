"""How often hints are right: seeded defects of an independent quantiser, and the controls whose bug is known.

`python tests/conformance/hint_measure.py` judges each on the frozen vectors of `quantize_mxfp4`, prints what its page
says, and the two shares of `docs/results/2026-11-23-hints.md`. The museum is measured by `refnum mutate museum`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from defects import DEFECTS

from refnum.arrays import float32_bits, pack_nibbles
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.check.run import Plan
from refnum.conformance.mismatches.failures import Presenter
from refnum.conformance.subjects.controls import controls
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.vectors.frozen import frozen_cases
from refnum.conformance.verdicts.judge import judge
from refnum.conformance.verdicts.tally import Tally

PARAMS = {"input": "float32"}
LABELS = {
    "S02": "SCALE_LOG2_OF_QUOTIENT", "S03": "DIV_BY_RECIPROCAL", "S04": "DIV_BY_RECIPROCAL SCALE_BOUNDARY_INCLUSIVE",
    "S05": "DIV_BY_RECIPROCAL SCALE_BOUNDARY_INCLUSIVE", "S08": "E8M0_SUBNORMAL_IN", "S09": "E8M0_SUBNORMAL_IN",
    "S10": "E8M0_SUBNORMAL_IN FTZ_SILENT", "S11": "E8M0_SUBNORMAL_IN SCALE_MIN_NORMAL", "S12": "INF_BLOCK_POLICY",
    "S13": "AMAX_DROPS_NAN", "S14": "AMAX_WITHOUT_ABS", "S15": "AMAX_LANE_LEFT_OUT", "S16": "AMAX_CLAMP",
    "S17": "ZERO_BLOCK_BYTE", "S18": "SCALE_MIN_NORMAL", "S19": "E8M0_ZERO_IS_TINY", "S21": "SCALE_FLOOR_OF_QUOTIENT",
    "S22": "SCALE_MANTISSA_MASK", "S23": "SCALE_EMAX_NOT_SUBTRACTED", "S24": "AMAX_NARROWED",
    "S26": "SCALE_EXPONENT_WRAPS", "S27": "E8M0_MODE", "S28": "E8M0_MODE", "S29": "AMAX_NARROWED",
    "E01": "E2M1_TIES_UP", "E02": "E2M1_TIES_TO_ZERO", "E03": "TIE_RULE", "E07": "E2M1_TIES_UP TIE_RULE",
    "E08": "E2M1_STICKY_LOST", "E09": "DOUBLE_ROUNDING_BF16", "E10": "DOUBLE_ROUNDING_FP16",
    "E11": "SIGN_OF_ZERO_LOST E4M3_NEG_ZERO", "E12": "SIGN_OF_ZERO_LOST", "E14": "ELEMENT_TRUNCATED",
    "E15": "NIBBLE_ORDER", "E16": "SPLIT_HALF_ORDER", "E17": "FTZ_SILENT", "E18": "SIGN_OF_ZERO_LOST",
    "E19": "TOP_VALUE_UNREACHABLE", "X01": "BLOCK_BOUNDARY_SHIFTED", "X02": "SCALE_OF_NEIGHBOUR",
}  # fmt: skip
"""Row of the catalogue -> the notes that are right for it."""
CONTROLS = {
    "scale_floor": "E8M0_MODE", "sign_lost": "SIGN_LOST", "ties_away": "E2M1_TIES_UP", "ties_up": "E2M1_TIES_UP",
    "zero_sign_lost": "SIGN_OF_ZERO_LOST E4M3_NEG_ZERO", "zeros_output": "OUTPUT_NOT_WRITTEN",
    "first_tile_only": "TAIL_OR_LATER_BATCH", "nan_payload": "", "nan_wildcard": "", "last_element_wrong": "",
}  # fmt: skip
"""Control -> the notes that are right for it; none where no note is."""


@dataclass(frozen=True)
class Met:
    """One defect, the notes that are right for it, and the hints that its page shows."""

    name: str
    right: tuple[str, ...]
    hints: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """`right` or `wrong` by the first hint; `none` where there is no hint."""
        return "none" if not self.hints else "right" if self.hints[0] in self.right else "wrong"


def of_defect(name: str) -> Subject:
    """Return a seeded defect as a subject."""
    quantise = DEFECTS[name]

    def quantize_mxfp4(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, scales = quantise(float32_bits(x).reshape(-1, 32))
        return pack_nibbles(codes.reshape(x.shape)), scales.reshape(x.shape[0], -1)

    return Subject(name, {"quantize_mxfp4": quantize_mxfp4}, profiles=("HOPPER",))


def met(subject: Subject, right: str) -> Met | None:
    """Return what the page of a subject's first operation says; None where nothing is wrong."""
    operation = next(iter(subject.operations))
    params = OPERATIONS[operation].defaults() | (PARAMS if "input" in OPERATIONS[operation].params else {})
    tally = Tally(subject.name, operation, "HOPPER", params)
    frozen = list(frozen_cases(operation, "HOPPER", params))
    made = [(case, None) for case in control_cases(operation, "HOPPER", params)]
    for case, golden in frozen or made:
        judge(subject, case, golden or {}, tally, 60.0)
    if not tally.failures:
        return None
    result = Presenter(Plan([subject], [], save=False)).result(subject, tally, quick=True)
    shown = [bug["id"] for record in result["failures"] for bug in record["bug_classes"] if not record["finding"]]
    return Met(subject.name, tuple(right.split()), tuple(dict.fromkeys(shown)))


def measured(names: list[str] | None = None) -> Iterator[Met]:
    """Yield what became of the defects, or of those of these names, and of the controls."""
    for name in DEFECTS:
        if (names is None or name in names) and (found := met(of_defect(name), LABELS[name[:3]])):
            yield found
    for control in controls():
        name = control.subject.name
        asked = name in CONTROLS and (names is None or name in names)
        if asked and (found := met(control.subject, CONTROLS[name])):
            yield found


def main() -> int:
    """Print every hint and the shares; 1 when they miss what is asked of them."""
    found = []
    for one in measured(sys.argv[1:] or None):
        found.append(one)
        print(f"{one.verdict:<6} {one.name:<36} {', '.join(one.hints) or '-'}", flush=True)
    labelled = [one for one in found if one.right]
    right = sum(one.verdict == "right" for one in labelled)
    wrong = sum(one.verdict == "wrong" for one in found)
    print(f"right first {right} of {len(labelled)}, wrong shown {wrong} of {len(found)}")
    return int(right < 0.95 * len(labelled) or wrong > 0.02 * len(found))


if __name__ == "__main__":
    raise SystemExit(main())
