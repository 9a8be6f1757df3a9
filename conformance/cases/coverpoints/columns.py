"""Coverpoints of the conversions of rows to columns (N9, N10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..case import Case
from ..geometry import splits_of
from ..operation import OPERATIONS
from .distances import DISTANCE
from .elements import ROUNDING
from .point import Counts, Golden, Group
from .scales import below, written


def _split_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    row = OPERATIONS[operation]
    names = {
        "one expert": "no splits given", "several experts": "blocks restart at each", "expert without rows": "m = 0",
        "no rows at all": "M = 0", "tail": f"rows of an expert that do not fill a block of {row.tall}",
        "whole blocks only": f"an expert of a multiple of {row.tall} rows", "odd row count": "of an expert",
    }  # fmt: skip
    if row.even_rows:
        del names["odd row count"]
    return names


def _splits(case: Case, golden: Golden) -> Counts:
    tall = OPERATIONS[case.operation].tall
    rows = case.inputs["scales"].shape[0]
    counts = splits_of(case, rows)
    return {
        "one expert": int("splits" not in case.params), "several experts": int(len(counts) > 1),
        "expert without rows": int("splits" in case.params and 0 in counts), "no rows at all": int(rows == 0),
        "tail": sum(count % tall != 0 for count in counts), "odd row count": sum(count % 2 for count in counts),
        "whole blocks only": sum(count > 0 and count % tall == 0 for count in counts),
    }  # fmt: skip


SPLITS = Group("experts", _split_names, _splits)

mxfp4_to_fp8_columns = mxfp4_to_fp8_rows_columns = (ROUNDING, written(below(249)), DISTANCE, SPLITS)  # 254 - 6
mxfp4_columns = (ROUNDING, written(below(256)), DISTANCE, SPLITS)
fp8_columns = (ROUNDING, written(below(255)), DISTANCE, SPLITS)
