"""The few cases on which the controls are judged before every run: made here, by hand, from integers only.

Each operation gets one case of three rows that holds ties, both zeros, NaN, Inf, tiny and huge values. They share
nothing with the corner cases, so that a mistake there cannot hide a mistake of the harness.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from ...cases.case import Case
from ...cases.crop import COUNTED, WHOLE
from ...cases.draw.factors import factors
from ...cases.entry import WORDS
from ...cases.operation import OPERATIONS

ROWS, K = 4, 256
_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}
_DATA: dict[str, dict[str, Any]] = {
    "permute_pad": {"splits": [3, 0, 3]},
    "permute_unpack": {"splits": [3, 0, 3]},
    "unpermute": {"splits": [3, 0, 3], "tokens": 4},
}


def control_cases(operation: str, profile: str, params: dict[str, Any]) -> Iterator[Case]:
    """Yield the one case of an operation; an operation with splits gets two experts."""
    inputs = {name: _input(name, operation, params) for name in OPERATIONS[operation].inputs}
    yield Case(operation, profile, {**params, **_DATA.get(operation, {})}, inputs, label="control")


def _input(name: str, operation: str, params: dict[str, Any]) -> np.ndarray:
    index = np.arange(ROWS * K, dtype=np.uint32).reshape(ROWS, K)
    noise = (index * np.uint32(2654435761)) >> np.uint32(7)
    if name in ("x", "gate", "up", "grad", "w", "ema", "gradient", "weight", "m", "v", "dist_w", "total", "norms") or (
        OPERATIONS[operation].kind(name) == "values" and name in ("a", "b")
    ):
        return _floats(index, noise, _DTYPES[params.get("input", "bfloat16")])
    if name == "dist_q":  # beside other distances, mostly larger ones
        with np.errstate(all="ignore"):
            return np.roll(_floats(index, noise, _DTYPES["float32"]), 1, axis=1) * np.float32(64)
    if name == "packed":
        return (noise[:, : K // 2] & 0xFF).astype(np.uint8)
    if name in ("codes", "a", "b"):
        return (noise & ((1 << OPERATIONS[operation].reads.format(params).bits) - 1)).astype(np.uint8)
    if name == "payload":
        return (noise[:, : K // 2 + K // 32] & 0xFF).astype(np.uint8)
    if name == "outer" or (name == "scales" and OPERATIONS[operation].kind(name) == "values"):
        return np.resize(np.array([3.3, 1, 0.01, -2], np.float32), (ROWS, K // (128 if name == "outer" else 32)))
    if name == "scales":
        rows, wide = params.get("tile", (1, OPERATIONS[operation].reads.width))
        scales = np.array([127, 120, 0, 255, 131, 127, 254, 113], np.uint8)
        return np.resize(scales, (-(-ROWS // rows), -(-K // wide)))
    if name in COUNTED:
        return (noise // np.uint32(7 ** len(name)) % np.uint32(7)).astype(np.int32) + np.int32(name == "period")
    if name in WORDS:
        return noise & np.uint32((1 << WORDS[name]) - 1)
    if name == "factors":
        return factors(operation, 0)
    if name in WHOLE:
        return np.array([3.3], np.float32)
    if name == "row_map":
        return np.array([2, 0, 1, 3, 0, 2], np.int32)
    rows = 2 * (-(-3 // params["align"]) * params["align"])
    return np.resize(_floats(index, noise, _DTYPES["float32"]), (rows, K))  # `rows` of unpermute


def _floats(index: np.ndarray, noise: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Ties of E2M1 and E4M3 with both signs under a maximum of 6, then a block each of NaN, Inf, tiny, zero."""
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 0.0, 1.0625, 6.0])
    x = ties[noise % 10] * np.where(noise & 1024, -1.0, 1.0)
    x[:, ::32] = 6.0
    x[0, 32:64] = 0.0
    x[1, 33] = np.nan
    x[1, 65] = np.inf
    x[2, 32:64] *= 2.0**-12
    x[2, 70] = 300.0
    x[3, 70] = 7.0
    return x.astype(dtype)
