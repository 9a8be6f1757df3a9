"""MXFP4 quantiser in Triton: 32 elements share a scale byte, two codes a byte, even element low."""

import os

import torch
import triton
import triton.language as tl

from refnum.conformance import implements

ON_CPU = os.environ.get("TRITON_INTERPRET") == "1"


@triton.jit
def encode_e2m1(bits, inverse):
    """Sign and magnitude code of float32 bits whose scale's inverse is given; ties to even."""
    q = (bits & 0x7FFFFFFF).to(tl.float32, bitcast=True) * inverse
    code = (q > 0.25).to(tl.int32) + (q >= 0.75).to(tl.int32) + (q > 1.25).to(tl.int32) + (q >= 1.75).to(tl.int32)
    code += (q > 2.5).to(tl.int32) + (q >= 3.5).to(tl.int32) + (q > 5.0).to(tl.int32)
    return code | ((bits >> 28) & 8)


@triton.jit
def quantize_kernel(x, packed, scales, blocks, BLOCK: tl.constexpr):
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = block < blocks
    pair = tl.arange(0, 16)
    at = block[:, None] * 32 + pair[None, :] * 2
    low = tl.load(x + at, mask=inside[:, None], other=0.0).to(tl.float32).to(tl.int32, bitcast=True)
    high = tl.load(x + at + 1, mask=inside[:, None], other=0.0).to(tl.float32).to(tl.int32, bitcast=True)
    amax = tl.max(tl.maximum(low & 0x7FFFFFFF, high & 0x7FFFFFFF), axis=1)
    byte = (amax >> 23) - 2 + ((amax & 0x7FFFFF) > 0x400000).to(tl.int32)  # least k with amax <= 6 * 2**k
    byte = tl.where(amax == 0, 0, tl.maximum(byte, 0))
    special = amax >= 0x7F800000
    inverse = tl.where(byte < 254, (254 - byte) << 23, 0x00400000).to(tl.float32, bitcast=True)[:, None]
    both = encode_e2m1(low, inverse) | (encode_e2m1(high, inverse) << 4)
    both = tl.where(special[:, None], 0, both)
    tl.store(packed + block[:, None] * 16 + pair[None, :], both.to(tl.uint8), mask=inside[:, None])
    tl.store(scales + block, tl.where(special, 255, byte).to(tl.uint8), mask=inside)


@implements("quantize_mxfp4", name="mxfp4_triton", profile="HOPPER", arrays="torch" if ON_CPU else "torch-cuda")
def quantize_mxfp4(x):
    rows, columns = x.shape
    packed = torch.empty((rows, columns // 2), dtype=torch.uint8, device=x.device)
    scales = torch.empty((rows, columns // 32), dtype=torch.uint8, device=x.device)
    blocks = scales.numel()
    if blocks:
        size = min(triton.next_power_of_2(blocks), 65536) if ON_CPU else 128
        quantize_kernel[(triton.cdiv(blocks, size),)](x.contiguous(), packed, scales, blocks, BLOCK=size)
    return packed, scales
