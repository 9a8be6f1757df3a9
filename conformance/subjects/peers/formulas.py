"""The plain PyTorch formula of each operation, as a user would write it for torch.compile: no tricks, no kernels.

Tensors in the golden model's layouts: packed codes u8 [M, K/2] (low nibble first), scale bytes u8. Whole tiles only.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .formula_rounding import e2m1, e2m1_stochastic
from .formula_scales import loaded, power, scale_byte, stored

T = torch.Tensor


def _pack(code: T, m: int, k: int) -> T:
    pairs = code.view(m, k // 2, 2)
    return pairs[..., 0] | (pairs[..., 1] << 4)


def quantize_mxfp4(x: T, rule: str = "rceil", layout_out: str = "bytes") -> tuple[T, T]:
    """N5 by the scale rule rceil or floor -> (packed, scales)."""
    m, k = x.shape
    blocks = x.float().view(m, k // 32, 32)
    byte = scale_byte(blocks.abs().amax(-1), "mxfp4", rule)
    return _pack(e2m1(blocks * power(254 - byte)[..., None]), m, k), stored(byte, layout_out)


def quantize_mxfp4_stochastic(x: T, rbits: T) -> tuple[T, T]:
    """N5 with stochastic rounding by random bits that are given -> (packed, scale bytes)."""
    m, k = x.shape
    blocks = x.float().view(m, k // 32, 32)
    byte = scale_byte(blocks.abs().amax(-1), "mxfp4")
    code = e2m1_stochastic(blocks * power(254 - byte)[..., None], rbits.view(blocks.shape).to(torch.int32))
    return _pack(code, m, k), byte.to(torch.uint8)


def quantize_mxfp4_random(x: T) -> tuple[T, T]:
    """The same by torch's own generator: other random bits than the model's, so other codes."""
    drawn = torch.rand(x.shape, device=x.device, dtype=torch.float32) * 256
    return quantize_mxfp4_stochastic(x, drawn.to(torch.int32))


def encode_e2m1(x: T) -> T:
    """N2 -> codes."""
    return e2m1(x.float())


def encode_e4m3(x: T) -> T:
    """N2, saturating -> codes."""
    return x.float().clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)


def encode_e8m0(x: T) -> T:
    """N1, up, of normal magnitudes -> bytes."""
    return ((x.float().abs().view(torch.int32) + 0x7FFFFF) >> 23).to(torch.uint8)


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


def dequantize_mxfp4(packed: T, scales: T, dtype: torch.dtype, layout_in: str = "bytes") -> T:
    """N5 -> [M, K] of a dtype."""
    m, half = packed.shape
    return _decode(packed, loaded(scales, layout_in, m, half // 16)).to(dtype)


def quantize_fp8_tiles(x: T, tall: int = 1, layout_out: str = "bytes") -> tuple[T, T]:
    """N6, tiles of `tall` rows and 128 columns -> (codes, scales)."""
    m, k = x.shape
    tiles = x.float().view(m // tall, tall, k // 128, 128)
    byte = scale_byte(tiles.abs().amax((1, 3)), "fp8")
    codes = (tiles * power(254 - byte)[:, None, :, None]).to(torch.float8_e4m3fn)
    return codes.view(torch.uint8).view(m, k), stored(byte, layout_out)


def _decode_fp8(codes: T, scales: T, tall: int = 1) -> T:
    m, k = codes.shape
    values = codes.view(torch.float8_e4m3fn).float().view(m // tall, tall, k // 128, 128)
    return (values * power(scales)[:, None, :, None]).view(m, k)


def dequantize_fp8_tiles(codes: T, scales: T, dtype: torch.dtype, tall: int = 1, layout_in: str = "bytes") -> T:
    """N6, tiles of `tall` rows and 128 columns -> [M, K] of a dtype."""
    m, k = codes.shape
    return _decode_fp8(codes, loaded(scales, layout_in, m // tall, k // 128), tall).to(dtype)


def fp8_to_mxfp4(codes: T, scales: T, layout_in: str = "bytes", layout_out: str = "bytes") -> tuple[T, T]:
    """N7 -> (packed, scales)."""
    m, k = codes.shape
    return quantize_mxfp4(_decode_fp8(codes, loaded(scales, layout_in, m, k // 128)), layout_out=layout_out)


def _occupied(packed: T, scales: T) -> T:
    """Return the scale bytes of blocks that hold anything but zeros, and 0 for the others."""
    m, half = packed.shape
    held = (packed.view(m, half // 16, 16) & 0x77).amax(-1) > 0
    return torch.where(held, scales, 0).to(torch.int32)


def _to_fp8(values: T, byte: T) -> T:
    return (values * power(254 - byte)).to(torch.float8_e4m3fn).view(torch.uint8)


def mxfp4_to_fp8_max(packed: T, scales: T, layout_in: str = "bytes", layout_out: str = "bytes") -> tuple[T, T]:
    """N8 by the largest byte -> (codes, scales)."""
    m, blocks = packed.shape[0], packed.shape[1] // 16
    scales = loaded(scales, layout_in, m, blocks)
    byte = (_occupied(packed, scales).view(m, blocks // 4, 4).amax(-1) - 6).clamp(min=0)
    values = _decode(packed, scales).view(m, blocks // 4, 128)
    return _to_fp8(values, byte[..., None]).view(m, 32 * blocks), stored(byte, layout_out)


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
    code = e2m1(blocks * power(254 - byte)[:, None]).view(m // 2, 2, 2 * half)
    return (code[:, 0] | (code[:, 1] << 4)).t().contiguous(), byte.to(torch.uint8)


def mxfp4_columns_max(packed: T, scales: T) -> tuple[T, T]:
    """N9 to MXFP4 by the largest byte, one expert -> (packed [K, M/2], scale bytes [M/32, K])."""
    m, half = packed.shape
    byte = _occupied(packed, scales).view(m // 32, 32, half // 16).amax(1).repeat_interleave(32, dim=1)
    blocks = _decode(packed, scales).view(m // 32, 32, 2 * half)
    code = e2m1(blocks * power(254 - byte)[:, None]).view(m // 2, 2, 2 * half)
    return (code[:, 0] | (code[:, 1] << 4)).t().contiguous(), byte.to(torch.uint8)


def fp8_columns(codes: T, scales: T) -> tuple[T, T]:
    """N10, rne, one expert -> (codes [K, M], scale bytes [M/128, K])."""
    m, k = codes.shape
    held = (codes.view(m, k // 128, 128) & 0x7F).amax(-1) > 0
    byte = torch.where(held, scales, 0).to(torch.int32).view(m // 128, 128, k // 128).amax(1)
    byte = byte.repeat_interleave(128, dim=1)
    values = _decode_fp8(codes, scales).view(m // 128, 128, k)
    return _to_fp8(values, byte[:, None]).view(m, k).t().contiguous(), byte.to(torch.uint8)


def mxfp4_to_fp8_rows_columns_max(packed: T, scales: T) -> tuple[T, ...]:
    """N9.10 by the largest byte, one expert -> (codes, scale bytes, codes [K, M], scale bytes [M/128, K])."""
    return *mxfp4_to_fp8_max(packed, scales), *mxfp4_to_fp8_columns_max(packed, scales)


def mxfp4_to_fp8_rows_columns_amax(packed: T, scales: T) -> tuple[T, ...]:
    """N9.10 by the exact maximum, one expert -> as `mxfp4_to_fp8_rows_columns_max`."""
    return *mxfp4_to_fp8_amax(packed, scales), *mxfp4_to_fp8_columns_amax(packed, scales)


def spaced(x: T, rows: T) -> T:
    """Return the rows of these numbers, rows of zeros for -1: every expert's rows up to whole tiles."""
    return torch.where(rows[:, None] >= 0, x.index_select(0, rows.clamp(min=0)), 0)


def _experts(columns: Any, codes: T, scales: T, rows: T, keep: T) -> tuple[T, T]:
    """Return the columns of experts that end within tiles, see `spaced`; keep: the rows that are no padding."""
    found, byte = columns(spaced(codes, rows), spaced(scales, rows))
    return found.index_select(1, keep), byte


def mxfp4_to_fp8_columns_max_experts(packed: T, scales: T, rows: T, keep: T) -> tuple[T, T]:
    """`mxfp4_to_fp8_columns_max` of experts."""
    return _experts(mxfp4_to_fp8_columns_max, packed, scales, rows, keep)


def mxfp4_to_fp8_columns_amax_experts(packed: T, scales: T, rows: T, keep: T) -> tuple[T, T]:
    """`mxfp4_to_fp8_columns_amax` of experts."""
    return _experts(mxfp4_to_fp8_columns_amax, packed, scales, rows, keep)


def mxfp4_to_fp8_rows_columns_max_experts(packed: T, scales: T, rows: T, keep: T) -> tuple[T, ...]:
    """`mxfp4_to_fp8_rows_columns_max` of experts."""
    return *mxfp4_to_fp8_max(packed, scales), *mxfp4_to_fp8_columns_max_experts(packed, scales, rows, keep)


def mxfp4_to_fp8_rows_columns_amax_experts(packed: T, scales: T, rows: T, keep: T) -> tuple[T, ...]:
    """`mxfp4_to_fp8_rows_columns_amax` of experts."""
    return *mxfp4_to_fp8_amax(packed, scales), *mxfp4_to_fp8_columns_amax_experts(packed, scales, rows, keep)


def fp8_columns_experts(codes: T, scales: T, rows: T, keep: T) -> tuple[T, T]:
    """`fp8_columns` of experts."""
    return _experts(fp8_columns, codes, scales, rows, keep)


def swiglu(gate: T, up: T, prob: T | None = None) -> T:
    """N11 with torch's own silu -> float32 [M, H]."""
    found = F.silu(gate.float()) * up.float()
    return found if prob is None else found * prob[:, None]


def swiglu_to_fp8(gate: T, up: T, prob: T | None = None) -> tuple[T, T]:
    """N11 to FP8 tiles -> (codes, scale bytes)."""
    return quantize_fp8_tiles(swiglu(gate, up, prob))


def swiglu_to_mxfp4(gate: T, up: T, prob: T | None = None) -> tuple[T, T]:
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
