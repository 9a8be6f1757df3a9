"""MXFP4 in Numba: a compiled loop over blocks of 32."""

import math

import numba
import numpy as np

from refnum.conformance import implements

MIDPOINTS = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
TO_EVEN = np.array([False, True, False, True, False, True, False])  # whether a tie goes up


@numba.njit
def quantize_blocks(x, packed, scales):
    """Quantise [M, K] float32 values into packed and scales."""
    for row in range(scales.shape[0]):
        for block in range(scales.shape[1]):
            part = x[row, 32 * block : 32 * block + 32].astype(np.float64)
            amax = np.abs(part).max()
            byte = 255
            if np.isfinite(amax):
                significand, exponent = math.frexp(amax)
                byte = min(max(exponent - 3 + (significand > 0.75) + 127, 0), 254) if amax > 0 else 0
            scales[row, block] = byte
            for lane in range(32):
                code = 0
                if byte != 255:
                    scaled = math.ldexp(abs(part[lane]), 127 - byte)
                    for step in range(7):
                        code += scaled > MIDPOINTS[step] or (scaled == MIDPOINTS[step] and TO_EVEN[step])
                    code |= 8 if math.copysign(1.0, part[lane]) < 0 else 0
                at = 16 * block + lane // 2
                packed[row, at] = packed[row, at] | code << 4 if lane % 2 else code


@implements("quantize_mxfp4", profile="HOPPER", dtypes=["float32"], columns=32)
def quantize(x):
    """Quantise [M, K] float32 values: least scale without saturation, ties to even."""
    packed = np.empty((x.shape[0], x.shape[1] // 2), np.uint8)
    scales = np.empty((x.shape[0], x.shape[1] // 32), np.uint8)
    quantize_blocks(x, packed, scales)
    return packed, scales
