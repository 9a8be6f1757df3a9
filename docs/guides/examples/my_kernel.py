"""Two MXFP4 quantisers to be judged: one is right, the other rounds ties up."""

import numpy as np

EVEN_ABOVE = {0.25: False, 0.75: True, 1.25: False, 1.75: True, 2.5: False, 3.5: True, 5.0: False}
"""Midpoints between neighbours of E2M1, and whether the upper neighbour is even."""


def _quantize(x, ties_up=False):
    if str(x.dtype) not in ("float32", "bfloat16", "float16"):
        raise TypeError(f"x is {x.dtype}; give float32, bfloat16 or float16")
    with np.errstate(invalid="ignore"):  # signalling NaNs are among the inputs
        blocks = x.astype(np.float64).reshape(x.shape[0], x.shape[1] // 32, 32)  # float64: exact from here on
    amax = np.abs(blocks).max(axis=-1)
    finite = np.isfinite(amax)
    significand, exponent = np.frexp(np.where(finite, amax, 1.0))
    k = exponent - 3 + (significand > 0.75)  # least k with amax <= 6 * 2**k
    scales = np.where(amax == 0, 0, np.clip(k + 127, 0, 254))
    scales = np.where(finite, scales, 255).astype(np.uint8)
    finite_blocks = np.where(finite[..., None], blocks, 0.0)
    q = np.ldexp(np.abs(finite_blocks), 127 - scales.astype(np.int32)[..., None])
    passed = [q >= middle if even or ties_up else q > middle for middle, even in EVEN_ABOVE.items()]
    codes = sum(one.view(np.uint8) for one in passed) | (np.signbit(finite_blocks) << 3).astype(np.uint8)
    codes = codes.reshape(x.shape)
    return np.ascontiguousarray(codes[:, 0::2] | codes[:, 1::2] << 4), np.ascontiguousarray(scales)


def quantize_mxfp4(x):
    """The operation's own name is enough to be judged on it."""
    return _quantize(x)


def ties_up(x):
    """Any other name says which operation it is."""
    return _quantize(x, ties_up=True)


ties_up.operation = "quantize_mxfp4"
