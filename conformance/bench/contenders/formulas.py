"""The plain PyTorch formula of each operation, as a user would write it for torch.compile: no tricks, no kernels.

Tensors in the golden model's layouts: packed codes u8 [M, K/2] (low nibble first), scale bytes u8. Whole tiles only.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

T = torch.Tensor

LARGEST = {"mxfp4": (0x3FFFFF, 2), "fp8": (0x1FFFFF, 8)}
"""Target -> what rounds a maximum's bits up to the next power of two that holds it, and that format's exponent."""


def scale_byte(amax: T, to: str) -> T:
    """Return the scale byte of a finite maximum: the least power of two under which it fits the format."""
    add, exponent = LARGEST[to]
    return (((amax.view(torch.int32) + add) >> 23) - exponent).clamp(min=0)


def power(byte: T) -> T:
    """Return 2^(byte - 127) as float32, bytes 1 to 254."""
    return (byte.to(torch.int32) << 23).view(torch.float32)


def _e2m1(x: T) -> T:
    """Round to E2M1 codes, to nearest even."""
    a = x.abs()
    code = (a > 0.25).to(torch.uint8) + (a >= 0.75) + (a > 1.25) + (a >= 1.75) + (a > 2.5) + (a >= 3.5) + (a > 5.0)
    return code.to(torch.uint8) | (torch.signbit(x).to(torch.uint8) << 3)


def quantize_mxfp4(x: T) -> tuple[T, T]:
    """N5 by the scale rule rceil -> (packed, scale bytes)."""
    m, k = x.shape
    blocks = x.float().view(m, k // 32, 32)
    byte = scale_byte(blocks.abs().amax(-1), "mxfp4")
    code = _e2m1(blocks * power(254 - byte)[..., None]).view(m, k // 2, 2)
    return code[..., 0] | (code[..., 1] << 4), byte.to(torch.uint8)


def _decode(packed: T, scales: T) -> T:
    """Return the float32 values of MXFP4."""
    m, half = packed.shape
    code = torch.stack((packed & 15, packed >> 4), -1).view(m, half // 16, 32).to(torch.int32)
    magnitude = code & 7
    # the float32 bits of 0, 0.5, 1, 1.5, 2, 3, 4, 6
    normal = ((magnitude << 22) + (126 << 23)).view(torch.float32)
    value = torch.where(magnitude < 2, magnitude.float() * 0.5, normal)
    value = torch.where(code >= 8, -value, value)
    return (value * power(scales)[..., None]).view(m, 2 * half)


def dequantize_mxfp4(packed: T, scales: T, dtype: torch.dtype) -> T:
    """N5 -> [M, K] of a dtype."""
    return _decode(packed, scales).to(dtype)


def quantize_fp8_tiles(x: T, tall: int = 1) -> tuple[T, T]:
    """N6, tiles of `tall` rows and 128 columns -> (codes, scale bytes)."""
    m, k = x.shape
    tiles = x.float().view(m // tall, tall, k // 128, 128)
    byte = scale_byte(tiles.abs().amax((1, 3)), "fp8")
    codes = (tiles * power(254 - byte)[:, None, :, None]).to(torch.float8_e4m3fn)
    return codes.view(torch.uint8).view(m, k), byte.to(torch.uint8)


def _decode_fp8(codes: T, scales: T) -> T:
    m, k = codes.shape
    values = codes.view(torch.float8_e4m3fn).float().view(m, k // 128, 128)
    return (values * power(scales)[..., None]).view(m, k)


def dequantize_fp8_tiles(codes: T, scales: T, dtype: torch.dtype) -> T:
    """N6, tiles 1x128 -> [M, K] of a dtype."""
    return _decode_fp8(codes, scales).to(dtype)


def fp8_to_mxfp4(codes: T, scales: T) -> tuple[T, T]:
    """N7 -> (packed, scale bytes)."""
    return quantize_mxfp4(_decode_fp8(codes, scales))


def _occupied(packed: T, scales: T) -> T:
    """Return the scale bytes of blocks that hold anything but zeros, and 0 for the others."""
    m, half = packed.shape
    held = (packed.view(m, half // 16, 16) & 0x77).amax(-1) > 0
    return torch.where(held, scales, 0).to(torch.int32)


def _to_fp8(values: T, byte: T) -> T:
    return (values * power(254 - byte)).to(torch.float8_e4m3fn).view(torch.uint8)


def mxfp4_to_fp8_max(packed: T, scales: T) -> tuple[T, T]:
    """N8 by the largest byte -> (codes, scale bytes)."""
    m, blocks = scales.shape
    byte = (_occupied(packed, scales).view(m, blocks // 4, 4).amax(-1) - 6).clamp(min=0)
    values = _decode(packed, scales).view(m, blocks // 4, 128)
    return _to_fp8(values, byte[..., None]).view(m, 32 * blocks), byte.to(torch.uint8)


def mxfp4_to_fp8_amax(packed: T, scales: T) -> tuple[T, T]:
    """N8 by the exact maximum -> (codes, scale bytes)."""
    return quantize_fp8_tiles(_decode(packed, scales))


def mxfp4_to_fp8_columns_max(packed: T, scales: T) -> tuple[T, T]:
    """N9 by the largest byte, one expert -> (codes [K, M], scale bytes [M/128, K])."""
    m, blocks = scales.shape
    byte = (_occupied(packed, scales).view(m // 128, 128, blocks).amax(1) - 6).clamp(min=0)
    byte = byte.repeat_interleave(32, dim=1)
    values = _decode(packed, scales).view(m // 128, 128, 32 * blocks)
    return _to_fp8(values, byte[:, None]).view(m, 32 * blocks).t().contiguous(), byte.to(torch.uint8)


def _columns(values: T) -> tuple[T, T]:
    m, k = values.shape
    tiles = values.float().view(m // 128, 128, k)
    byte = scale_byte(tiles.abs().amax(1), "fp8")
    return _to_fp8(tiles, byte[:, None]).view(m, k).t().contiguous(), byte.to(torch.uint8)


def mxfp4_to_fp8_columns_amax(packed: T, scales: T) -> tuple[T, T]:
    """N9 by the exact maximum, one expert -> (codes [K, M], scale bytes [M/128, K])."""
    return _columns(_decode(packed, scales))


def mxfp4_columns(packed: T, scales: T) -> tuple[T, T]:
    """N9 to MXFP4 by the exact maximum, one expert -> (packed [K, M/2], scale bytes [M/32, K])."""
    m, half = packed.shape
    blocks = _decode(packed, scales).view(m // 32, 32, 2 * half)
    byte = scale_byte(blocks.abs().amax(1), "mxfp4")
    code = _e2m1(blocks * power(254 - byte)[:, None]).view(m // 2, 2, 2 * half)
    return (code[:, 0] | (code[:, 1] << 4)).t().contiguous(), byte.to(torch.uint8)


def fp8_columns(codes: T, scales: T) -> tuple[T, T]:
    """N10, rne, one expert -> (codes [K, M], scale bytes [M/128, K])."""
    m, k = codes.shape
    held = (codes.view(m, k // 128, 128) & 0x7F).amax(-1) > 0
    byte = torch.where(held, scales, 0).to(torch.int32).view(m // 128, 128, k // 128).amax(1)
    byte = byte.repeat_interleave(128, dim=1)
    values = _decode_fp8(codes, scales).view(m // 128, 128, k)
    return _to_fp8(values, byte[:, None]).view(m, k).t().contiguous(), byte.to(torch.uint8)


def swiglu(gate: T, up: T, prob: T) -> T:
    """N11 with torch's own silu -> float32 [M, H]."""
    return F.silu(gate.float()) * up.float() * prob[:, None]


def swiglu_to_fp8(gate: T, up: T, prob: T) -> tuple[T, T]:
    """N11 to FP8 tiles -> (codes, scale bytes)."""
    return quantize_fp8_tiles(swiglu(gate, up, prob))


def swiglu_to_mxfp4(gate: T, up: T, prob: T) -> tuple[T, T]:
    """N11 to MXFP4 -> (packed, scale bytes)."""
    return quantize_mxfp4(swiglu(gate, up, prob))


def swiglu_backward(grad: T, gate: T, up: T, prob: T) -> tuple[T, T, T]:
    """N11 backward with torch's own sigmoid and sum -> (dgate, dup, dprob), float32."""
    grad, gate, up = grad.float(), gate.float(), up.float()
    s = torch.sigmoid(gate)
    y = gate * s
    weighted = grad * prob[:, None]
    return weighted * up * (s * (1 + gate * (1 - s))), weighted * y, (grad * (y * up)).sum(-1)


def pack_payload(packed: T, scales: T) -> T:
    """N12 -> [T, 17 * K/32]."""
    return torch.cat((packed, scales), dim=1)


def unpack_payload(payload: T) -> tuple[T, T]:
    """N12 -> (packed, scale bytes), both copies."""
    codes = payload.shape[1] // 17 * 16
    return payload[:, :codes].clone(), payload[:, codes:].clone()


def quantize_payload(x: T) -> T:
    """N12 from floating point."""
    return pack_payload(*quantize_mxfp4(x))


def fp8_to_payload(codes: T, scales: T) -> T:
    """N12 from FP8 tiles."""
    return pack_payload(*fp8_to_mxfp4(codes, scales))


def gather(payload: T, row_map: T) -> T:
    """N12 where every expert has whole groups of rows: no padding is added."""
    return payload.index_select(0, row_map)


def gather_unpacked(payload: T, row_map: T) -> tuple[T, T]:
    """The same, split into codes and scale bytes."""
    return unpack_payload(payload.index_select(0, row_map))


def scatter(rows: T, row_map: T, weights: T, tokens: int) -> T:
    """N12, each token's rows summed with their weights in any order -> float32 [tokens, H]."""
    out = torch.zeros((tokens, rows.shape[1]), dtype=torch.float32, device=rows.device)
    terms: Any = rows.float() * weights[:, None]
    return out.index_add(0, row_map, terms)
