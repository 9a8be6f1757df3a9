"""Judge every subject on the user's own tensors: quantise, then the conversions that follow from the golden result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ....cases.case import Case, variant
from ....cases.levels import Outcome
from ....cases.operation import OPERATIONS, call_golden, run_golden
from ....mismatches.failures import Presenter
from ....reports.report import COMPLETE, Report
from ....verdicts.judge import judge
from ....verdicts.outside import Outside
from ....verdicts.tally import Tally
from ..run import Plan
from . import load_tensors, statistics

QUANTISE = ("quantize_mxfp4", "quantize_fp8_tiles")
FROM_FP8 = ("dequantize_fp8_tiles", "fp8_to_mxfp4", "fp8_columns")
FROM_MXFP4 = ("dequantize_mxfp4", "mxfp4_to_fp8", "mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns", "mxfp4_columns")
DEFAULT_PROFILES = ("HOPPER",)


def tensor_cases(name: str, x: np.ndarray, profiles: list[str]) -> Iterator[Case]:
    """Yield the cases of one tensor: quantisers on it, then each conversion on the golden codes.

    x: [M, K] float32, bfloat16 or float16, K % 32 == 0. The FP8 codes are those of 1x128 tiles, so the direct
    FP8 to MXFP4 quantisation is judged on the FP8 tensor, never on its parent (N7).
    """
    dtype = x.dtype.name
    for profile in profiles:
        yield Case("quantize_mxfp4", profile, {"input": dtype}, {"x": x}, label=name)
        tiles = Case("quantize_fp8_tiles", profile, {"tile": [1, 128], "input": dtype}, {"x": x}, label=name)
        yield tiles
        codes, scales = call_golden(tiles)
        for operation in FROM_FP8:
            params = OPERATIONS[operation].defaults()
            yield Case(operation, profile, params, {"codes": codes, "scales": scales}, label=name)
        packed, bytes_ = call_golden(Case("quantize_mxfp4", profile, {"input": dtype}, {"x": x}))
        for operation in FROM_MXFP4:
            if OPERATIONS[operation].even_rows and x.shape[0] % 2:
                continue  # a column output packs two rows in a byte: splits are even (N9)
            params = OPERATIONS[operation].defaults()
            yield Case(operation, profile, params, {"packed": packed, "scales": bytes_}, label=name)


def check_data(plan: Plan, report: Report, path: Path) -> Report:
    """Judge the plan's subjects on every tensor of a file or folder and add one row a tensor, subject and variant."""
    presenter = Presenter(plan)
    wanted = {operation.name for operation in plan.operations}
    try:
        for name, x, note in load_tensors(path):
            if x is None:
                report.data.append(_left_out(name, note))
                continue
            for case in tensor_cases(name, x, plan.profiles or list(DEFAULT_PROFILES)):
                if case.operation in wanted and (OPERATIONS[case.operation].profiled or case.profile == _first(plan)):
                    report.data += _rows(plan, case, name, note, presenter)
        report.status = COMPLETE
    except KeyboardInterrupt:
        pass
    return report


def _left_out(name: str, note: str) -> dict[str, Any]:
    """Return the row of a tensor that cannot be judged: said, not skipped."""
    return {
        "tensor": name,
        "note": note,
        "subject": "-",
        "variant": "-",
        "outcome": Outcome.UNSUPPORTED.value,
        "words": note,
        "level": None,
        "compared": 0,
        "failing": 0,
        "classes": {},
        "statistics": {},
        "failures": [],
    }


def _first(plan: Plan) -> str:
    return (plan.profiles or list(DEFAULT_PROFILES))[0]


def _rows(plan: Plan, case: Case, name: str, note: str, presenter: Presenter) -> list[dict[str, Any]]:
    golden = run_golden(case)
    numbers = _statistics(case)
    rows = []
    for subject in plan.subjects:
        if case.operation not in subject.operations:
            continue
        tally = Tally(
            subject.name,
            case.operation,
            case.profile,
            dict(case.params),
            claimed=subject.claimed_level(case.operation),
            refusal=subject.refuses(case.operation, case.profile, case.params),
            outside=Outside(subject.inputs),
        )
        if not tally.refusal:
            tally.tensors += judge(subject, case, golden, tally, plan.seconds) is not None
        result = presenter.result(subject, tally)
        rows.append(
            {
                "tensor": name,
                "note": note,
                "subject": subject.name,
                "variant": variant(case.operation, case.profile, case.params),
                "outcome": result["outcome"],
                "words": result["words"],
                "level": result["level"]["reached"],
                "compared": result["compared"],
                "failing": wrong_elements(result),
                "classes": result["classes"],
                "statistics": numbers,
                "failures": result["failures"],
                "differences": result["differences"],
                "unshown": result["unshown"],
            }
        )
    return rows


def wrong_elements(result: dict[str, Any]) -> int:
    """Return the blocks of a quantiser that differ, else the failing cases."""
    if result["classes"]:
        return sum(entry["wrong"] for entry in result["classes"].values())
    return int(result["failing"])


def _statistics(case: Case) -> dict[str, Any]:
    if case.operation not in QUANTISE:
        return {}
    return dict(statistics(case.inputs["x"], case.operation, case.profile))
