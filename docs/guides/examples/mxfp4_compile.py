"""MXFP4 in torch under torch.compile. Bits are compared as integers: no product can be contracted or flushed."""

import numpy as np
import torch

from refnum.conformance import implements

BYTES = np.arange(255)[:, None]
with np.errstate(over="ignore"):
    MIDPOINTS = np.ldexp(np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]), BYTES - 127).astype(np.float32)
TABLE = torch.from_numpy(MIDPOINTS.view(np.int32))  # of E2M1 under every scale byte, as float32 bits
TO_EVEN = torch.tensor([0, 1, 0, 1, 0, 1, 0], dtype=torch.int32)  # whether a tie goes up


@torch.compile(dynamic=True)
def quantize_blocks(blocks):
    """Quantise blocks, int32 bits [N, 32] -> (codes [N, 32], scale bytes [N])."""
    magnitude = blocks & 0x7FFFFFFF
    amax = magnitude.amax(dim=1)
    finite = amax < 0x7F800000
    exponent = (amax >> 23) - 2 + ((amax & 0x7FFFFF) > 0x400000).int()
    byte = torch.where(finite, exponent.clamp(0, 254), 255)
    above = magnitude[..., None] + TO_EVEN > TABLE[byte.clamp(max=254)][:, None, :]
    codes = above.sum(dim=2, dtype=torch.int32) | torch.where(blocks < 0, 8, 0)
    return torch.where(finite[:, None], codes, 0).to(torch.uint8), byte.to(torch.uint8)


@implements("quantize_mxfp4", profile="HOPPER", arrays="torch", dtypes=["float32"], columns=32)
def quantize(x):
    """Quantise [M, K] float32 values: least scale without saturation, ties to even."""
    if not x.numel():
        return x.new_empty(0, x.shape[1] // 2, dtype=torch.uint8), x.new_empty(0, x.shape[1] // 32, dtype=torch.uint8)
    codes, byte = quantize_blocks(x.contiguous().view(torch.int32).reshape(-1, 32))
    codes = codes.reshape(x.shape)
    return codes[:, 0::2] | codes[:, 1::2] << 4, byte.reshape(x.shape[0], -1)
