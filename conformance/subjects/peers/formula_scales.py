"""Scales and their storage layouts (N6.5) as plain PyTorch, for the formulas. Normal powers of two only."""

from __future__ import annotations

import torch
import torch.nn.functional as F

T = torch.Tensor


LARGEST = {"mxfp4": (0x3FFFFF, 2), "fp8": (0x1FFFFF, 8)}
"""Target -> what rounds a maximum's bits up to the next power of two that holds it, and that format's exponent."""


def scale_byte(amax: T, to: str, rule: str = "rceil") -> T:
    """Return the scale byte of a finite maximum: the least power of two under which it fits, or `floor` of OCP."""
    add, exponent = LARGEST[to]
    add = 0 if rule == "floor" else add
    return (((amax.view(torch.int32) + add) >> 23) - exponent).clamp(min=0)


def power(byte: T) -> T:
    """Return 2^(byte - 127) as float32, bytes 1 to 254."""
    return (byte.to(torch.int32) << 23).view(torch.float32)


def stored(byte: T, layout: str) -> T:
    """Return the storage of scale bytes [R, C] in a layout."""
    rows, columns = byte.shape
    if layout == "bytes":
        return byte.to(torch.uint8)
    if layout == "float32":
        return power(byte)
    if layout == "gemm_float32":
        return F.pad(power(byte).t(), (0, -rows % 4)).contiguous()
    if layout == "packed_ue8m0":
        quads = F.pad(byte.to(torch.int32), (0, -columns % 4, 0, -rows % 4)).unflatten(1, (-1, 4))
        words = quads[..., 0] | quads[..., 1] << 8 | quads[..., 2] << 16 | quads[..., 3] << 24
        return words.t().contiguous()
    whole = F.pad(byte.to(torch.uint8), (0, -columns % 4, 0, -rows % 128))
    return whole.view(-(-rows // 128), 4, 32, -(-columns // 4), 4).permute(0, 3, 2, 1, 4).reshape(-1)


def loaded(scales: T, layout: str, rows: int, columns: int) -> T:
    """Return the scale bytes [rows, columns] of a storage, as integers."""
    if layout == "bytes":
        return scales
    if layout == "float32":
        return scales.view(torch.int32) >> 23
    if layout == "gemm_float32":
        return (scales.view(torch.int32) >> 23)[:, :rows].t()
    if layout == "packed_ue8m0":
        words = scales[:, :rows].t()
        quads = torch.stack((words & 255, words >> 8 & 255, words >> 16 & 255, words >> 24 & 255), -1)
        return quads.flatten(1)[:, :columns]
    blocks = scales.view(-(-rows // 128), -(-columns // 4), 32, 4, 4).permute(0, 3, 2, 1, 4)
    return blocks.reshape(-(-rows // 128) * 128, -(-columns // 4) * 4)[:rows, :columns]
