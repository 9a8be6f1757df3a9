"""Domains of FP8 tiles (N6)."""

from .codes import dequantisers
from .quantizers import quantizers

quantize_fp8_tiles = quantizers
dequantize_fp8_tiles = dequantisers
