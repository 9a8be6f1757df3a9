"""MX block formats by the oracle (N5)."""

from __future__ import annotations

from refnum import oracle

from .exact import converter, quantiser

quantize_mxfp4 = quantiser(oracle.quantize_mxfp4)
quantize_mx = quantiser(oracle.quantize_mx, "element")
dequantize_mxfp4 = converter(oracle.dequantize_mxfp4, "packed", "dtype")
dequantize_mx = converter(oracle.dequantize_mx, "codes", "element", "dtype")
