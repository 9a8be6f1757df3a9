"""Coverpoints of the MX block formats (N5)."""

from .elements import ROUNDING
from .maxima import BLOCKS
from .scales import READ, from_blocks, written

quantize_mxfp4 = quantize_mx = (ROUNDING, BLOCKS, written(from_blocks))
dequantize_mxfp4 = dequantize_mx = (READ,)
