"""Conversions of rows to columns by the oracle (N9, N10)."""

from __future__ import annotations

from refnum import oracle

from .exact import converter

mxfp4_to_fp8_columns = converter(oracle.mxfp4_to_fp8_columns, "packed", "splits", "scale")
mxfp4_to_fp8_rows_columns = converter(oracle.mxfp4_to_fp8_rows_columns, "packed", "splits", "scale")
mxfp4_columns = converter(oracle.mxfp4_columns, "packed", "splits", "scale")
fp8_columns = converter(oracle.fp8_columns, "codes", "splits", "underflow")
