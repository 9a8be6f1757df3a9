"""Coverpoints of FP8 tiles (N6)."""

from .elements import ROUNDING
from .maxima import BLOCKS
from .scales import READ, from_tiles, written

quantize_fp8_tiles = (ROUNDING, BLOCKS, written(from_tiles))
dequantize_fp8_tiles = (READ,)
