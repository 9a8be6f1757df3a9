"""Two MXFP4 quantisers to be judged: one is right, the other rounds ties up."""

import numpy as np

MIDPOINTS = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])  # between neighbours of E2M1
TO_EVEN = np.array([False, True, False, True, False, True, False])  # whether the upper neighbour is even


def _quantize(x, tie_goes_up):
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
    above = (q[..., None] > MIDPOINTS) | ((q[..., None] == MIDPOINTS) & tie_goes_up)
    codes = above.sum(axis=-1).astype(np.uint8) | (np.signbit(finite_blocks) << 3).astype(np.uint8)
    codes = codes.reshape(x.shape)
    return np.ascontiguousarray(codes[:, 0::2] | codes[:, 1::2] << 4), np.ascontiguousarray(scales)


def quantize_mxfp4(x):
    """The operation's own name is enough to be judged on it."""
    return _quantize(x, TO_EVEN)


def ties_up(x):
    """Any other name says which operation it is."""
    return _quantize(x, True)


ties_up.operation = "quantize_mxfp4"
