"""What is timed: one literal line a conversion, with the operation, its parameters and where in a layer it happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from refnum.errors import ArgumentError

from ..operation import OPERATIONS


@dataclass(frozen=True)
class Line:
    """One conversion.

    at: the matrix of a shape that it works on, see `Shape.matrix`. params: of the operation. experts: whether the
    rows are split over the shape's experts, not one. optional: optional inputs that are given.
    """

    label: str
    operation: str
    at: str
    params: Mapping[str, Any] = field(default_factory=dict)
    profile: str = "HOPPER"
    experts: bool = False
    optional: tuple[str, ...] = ()


def _quantisers(to: str, operation: str, **params: Any) -> tuple[Line, ...]:
    names = {"bfloat16": "BF16", "float16": "FP16", "float32": "FP32"}
    return tuple(
        Line(f"{names[dtype]} -> {to}", operation, "tokens", {"input": dtype, **params}) for dtype in names
    )  # fmt: skip


_ALL = (
    *_quantisers("MXFP4", "quantize_mxfp4"),
    Line("BF16 -> MXFP4, floor", "quantize_mxfp4", "tokens", {"input": "bfloat16"}, "OCP"),
    *_quantisers("FP8 1x128", "quantize_fp8_tiles", tile=[1, 128]),
    Line("BF16 -> FP8 128x128", "quantize_fp8_tiles", "tokens", {"input": "bfloat16", "tile": [128, 128]}),
    Line("MXFP4 -> BF16", "dequantize_mxfp4", "rows", {"dtype": "bfloat16"}),
    Line("MXFP4 -> FP32", "dequantize_mxfp4", "rows", {"dtype": "float32"}),
    Line("FP8 -> BF16", "dequantize_fp8_tiles", "rows", {"tile": [1, 128], "dtype": "bfloat16"}),
    Line("FP8 -> FP32", "dequantize_fp8_tiles", "rows", {"tile": [1, 128], "dtype": "float32"}),
    Line("FP8 -> MXFP4", "fp8_to_mxfp4", "rows"),
    Line("MXFP4 -> FP8, max", "mxfp4_to_fp8", "rows", {"scale": "max"}),
    Line("MXFP4 -> FP8, amax", "mxfp4_to_fp8", "rows", {"scale": "amax"}),
    Line("MXFP4 -> FP8 columns, max", "mxfp4_to_fp8_columns", "rows", {"scale": "max"}),
    Line("MXFP4 -> FP8 columns, max, experts", "mxfp4_to_fp8_columns", "rows", {"scale": "max"}, experts=True),
    Line("MXFP4 -> FP8 columns, amax", "mxfp4_to_fp8_columns", "rows", {"scale": "amax"}),
    Line("MXFP4 -> FP8 columns, amax, experts", "mxfp4_to_fp8_columns", "rows", {"scale": "amax"}, experts=True),
    Line("MXFP4 -> FP8 rows and columns", "mxfp4_to_fp8_rows_columns", "rows", {"scale": "max"}),
    Line("MXFP4 -> FP8 rows and columns, experts", "mxfp4_to_fp8_rows_columns", "rows", {"scale": "max"}, experts=True),
    Line("MXFP4 -> MXFP4 columns, amax", "mxfp4_columns", "rows", {"scale": "amax"}),
    Line("MXFP4 -> MXFP4 columns, amax, experts", "mxfp4_columns", "rows", {"scale": "amax"}, experts=True),
    Line("MXFP4 -> MXFP4 columns, max", "mxfp4_columns", "rows", {"scale": "max"}),
    Line("FP8 -> FP8 columns, rne", "fp8_columns", "rows", {"underflow": "rne"}),
    Line("FP8 -> FP8 columns, rne, experts", "fp8_columns", "rows", {"underflow": "rne"}, experts=True),
    Line("FP8 -> FP8 columns, te", "fp8_columns", "rows", {"underflow": "te"}),
    Line("SwiGLU -> FP8", "swiglu_quantize", "ffn", {"to": "fp8"}, optional=("prob",)),
    Line("SwiGLU -> MXFP4", "swiglu_quantize", "ffn", {"to": "mxfp4"}, optional=("prob",)),
    Line("SwiGLU backward", "swiglu_backward", "ffn", optional=("prob",)),
    Line("pack payload", "pack_payload", "tokens"),
    Line("BF16 -> payload", "quantize_payload", "tokens", {"input": "bfloat16"}),
    Line("FP8 -> payload", "fp8_to_payload", "tokens"),
    Line("unpack payload", "unpack_payload", "rows"),
    Line("permute and pad", "permute_pad", "tokens", {"align": 32}, experts=True),
    Line("permute and unpack", "permute_unpack", "tokens", {"align": 32}, experts=True),
    Line("unpermute", "unpermute", "rows", {"align": 32}, experts=True, optional=("weights",)),
)

LINES: tuple[Line, ...] = tuple(line for line in _ALL if line.operation in OPERATIONS)
"""The lines of the operations that this version has."""


def select(patterns: list[str] | None) -> tuple[Line, ...]:
    """Return the lines whose operation or label matches any shell pattern; ArgumentError for one without a match."""
    if not patterns:
        return LINES
    for pattern in patterns:
        if not any(_matches(line, pattern) for line in LINES):
            known = sorted({line.operation for line in LINES})
            raise ArgumentError(f"--operation {pattern!r} selects nothing that is timed; known are {', '.join(known)}.")
    return tuple(line for line in LINES if any(_matches(line, pattern) for pattern in patterns))


def _matches(line: Line, pattern: str) -> bool:
    return fnmatchcase(line.operation, pattern) or fnmatchcase(line.label, pattern)
