"""Shapes and dtypes of the torch operators' results, from their arguments; sizes may be symbolic.

One function for each launcher, with its name; the three scalar encoders share `encode`.
"""
# ruff: noqa: D103 - a function's name says whose results it describes

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from refnum.errors import ShapeError

from .. import checks

TALL = {"fp8": 128, "mxfp4": 32}
"""Target of a columns conversion -> rows that share a scale."""

Wanted = list[tuple[tuple[Any, ...], torch.dtype]]
"""Shape and dtype of every result."""


def _up(n: Any, step: int) -> Any:
    """Return ceil(n / step) of integers, symbolic ones included."""
    return (n + step - 1) // step


def _size(name: str, x: torch.Tensor, multiple: int) -> tuple[Any, Any]:
    if x.dim() != 2 or x.shape[1] % multiple != 0:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; allowed is [rows, n] with n a multiple of {multiple}")
    return x.shape[0], x.shape[1]


def _segments(splits: Iterable[Any] | None, m: Any, tall: int) -> Any:
    return sum((_up(n, tall) for n in ([m] if splits is None else splits)), 0)


def _scales(rows: Any, columns: Any, layout: str) -> tuple[tuple[Any, ...], torch.dtype]:
    checks.choice("layout_out", layout, checks.LAYOUTS)
    shape, dtype = checks.layout_of(rows, columns, layout)
    return shape, getattr(torch, dtype.name)


def _mxfp4(m: Any, k: Any, layout: str = "bytes") -> Wanted:
    return [((m, k // 2), torch.uint8), _scales(m, k // 32, layout)]


def _fp8(m: Any, k: Any, tall: int = 1, layout: str = "bytes") -> Wanted:
    return [((m, k), torch.uint8), _scales(_up(m, tall), _up(k, 128), layout)]


def _output(dtype: torch.dtype | None) -> torch.dtype:
    """Return the dtype of a dequantiser's result; ArgumentError for one that its launcher refuses."""
    checks.output_dtype(dtype or torch.float32)
    return dtype or torch.float32


def _fp8_columns(m: Any, k: Any, splits: Any) -> Wanted:
    return [((k, m), torch.uint8), ((_segments(splits, m, TALL["fp8"]), k), torch.uint8)]


def quantize_mxfp4(x: Any, profile: str, rbits: Any, philox: Any, layout_out: str) -> Wanted:
    return _mxfp4(*_size("x", x, 32), layout_out)


def dequantize_mxfp4(packed: Any, scales: Any, dtype: Any, layout_in: str) -> Wanted:
    m, half = _size("packed", packed, 16)
    return [((m, 2 * half), _output(dtype))]


def quantize_fp8_tiles(x: Any, tile: list[int], profile: str, layout_out: str) -> Wanted:
    return _fp8(*_size("x", x, 32), tall=checks.tile_rows(tile), layout=layout_out)


def dequantize_fp8_tiles(codes: Any, scales: Any, tile: list[int], dtype: Any, layout_in: str) -> Wanted:
    checks.tile_rows(tile)
    return [(_size("codes", codes, 32), _output(dtype))]


def quantize_nvfp4(
    x: Any, variant: str, tensor_amax: Any, tile: list[int], rbits: Any, philox: Any, layout_out: str
) -> Wanted:
    m, k = _size("x", x, 16)
    scales = _scales(_up(m, tile[0]), k // 16, layout_out)
    return [((m, k // 2), torch.uint8), scales, ((1,), torch.float32)]


def dequantize_nvfp4(
    packed: Any, scales: Any, tensor_amax: Any, order: str, tile: list[int], dtype: Any, layout_in: str
) -> Wanted:
    m, half = _size("packed", packed, 8)
    return [((m, 2 * half), _output(dtype))]


def _rotated(x: Any, axis: int) -> tuple[Any, Any]:
    """Return rows and columns of a rotated matrix."""
    m, k = _size("x", x, 16 if axis else 1)
    return (m if axis else _up(m, 16) * 16), k


def hadamard16(x: Any, signs: int, axis: int, order: str, dtype: Any) -> Wanted:
    return [(_rotated(x, axis), _output(dtype or torch.bfloat16))]


def hadamard_quantize_nvfp4(
    x: Any, signs: int, axis: int, order: str, variant: str, tensor_amax: Any, rbits: Any, philox: Any, layout_out: str
) -> Wanted:
    m, k = _rotated(x, axis)
    lines, length = (m, k) if axis else (k, m)
    scales = _scales(lines, length // 16, layout_out)
    return [((lines, length // 2), torch.uint8), scales, ((1,), torch.float32)]


def luq(x: Any, r_under: Any, r_log: Any, divisor: int, tensor_amax: Any, step: str) -> Wanted:
    m, k = _size("x", x, 2)
    return [((m, k // 2), torch.uint8), ((1,), torch.float32)]


def dequantize_luq(packed: Any, alpha: Any, dtype: Any) -> Wanted:
    m, half = _size("packed", packed, 1)
    return [((m, 2 * half), _output(dtype))]


def radix4(x: Any, n0: int, phase: str, threshold: str) -> Wanted:
    m, k = _size("x", x, 2)
    return [((m, k // 2), torch.uint8)]


def dequantize_radix4(packed: Any, n0: int, phase: str, dtype: Any) -> Wanted:
    return dequantize_luq(packed, None, dtype)


def quantize_tetrajet(x: Any, axis: int, rule: str, ties: str, ratio: str, rbits: Any, philox: Any) -> Wanted:
    m, k = _size("x", x, 32)
    return _mxfp4(m, k) if axis else [((m, k // 2), torch.uint8), ((_up(m, 32), k), torch.uint8)]


def q_ema(w: Any, ema: Any, axis: int, rule: str, ratio: str) -> Wanted:
    return quantize_tetrajet(w, axis, rule, "even", ratio, None, None)


def dge(x: Any, k: int, cap: float, target: str, compat: str) -> Wanted:
    return [(tuple(x.shape), _output(getattr(torch, target)))]


def occ(x: Any, alpha: Any, axis: str) -> Wanted:
    m, k = _size("x", x, 1)
    made = torch.bfloat16 if x.dtype == torch.uint16 else x.dtype
    return [((m, k), made), ((m, k), made), ((2, {"tensor": 1, "token": m, "channel": k}[axis]), made)]


def stable_spam_apply(gradient: Any, weight: Any, m: Any, v: Any, factors: Any, forget: str) -> Wanted:
    return [(tuple(gradient.shape), torch.float32)] * 3


def fp8_to_mxfp4(codes: Any, scales: Any, profile: str, layout_in: str, layout_out: str) -> Wanted:
    return _mxfp4(*_size("codes", codes, 32), layout_out)


def mxfp4_to_fp8(packed: Any, scales: Any, scale: str, layout_in: str, layout_out: str) -> Wanted:
    m, half = _size("packed", packed, 16)
    return _fp8(m, 2 * half, layout=layout_out)


def mxfp4_to_fp8_rows_columns(packed: Any, scales: Any, splits: Any, scale: str) -> Wanted:
    m, half = _size("packed", packed, 16)
    return _fp8(m, 2 * half) + _fp8_columns(m, 2 * half, splits)


def mxfp4_to_fp8_columns(packed: Any, scales: Any, splits: Any, scale: str) -> Wanted:
    m, half = _size("packed", packed, 16)
    return _fp8_columns(m, 2 * half, splits)


def mxfp4_columns(packed: Any, scales: Any, splits: Any, scale: str) -> Wanted:
    m, half = _size("packed", packed, 16)
    return [((2 * half, m // 2), torch.uint8), ((_segments(splits, m, TALL["mxfp4"]), 2 * half), torch.uint8)]


def fp8_columns(codes: Any, scales: Any, splits: Any, underflow: str) -> Wanted:
    return _fp8_columns(*_size("codes", codes, 32), splits)


def swiglu_quantize(gate: Any, up: Any, prob: Any, to: str, profile: str) -> Wanted:
    size = _size("gate", gate, 32)
    return _mxfp4(*size) if checks.choice("to", to, ("fp8", "mxfp4")) else _fp8(*size)


def swiglu_backward(grad: Any, gate: Any, up: Any, prob: Any) -> Wanted:
    size = _size("gate", gate, 1)
    return [(size, torch.float32), (size, torch.float32), ((0 if prob is None else size[0],), torch.float32)]


def pack_payload(packed: Any, scales: Any) -> Wanted:
    m, half = _size("packed", packed, 16)
    return [((m, half // 16 * 17), torch.uint8)]


def unpack_payload(payload: Any) -> Wanted:
    t, width = _size("payload", payload, 17)
    return _mxfp4(t, width // 17 * 32)


def quantize_payload(x: Any, profile: str) -> Wanted:
    t, k = _size("x", x, 32)
    return [((t, k // 32 * 17), torch.uint8)]


def fp8_to_payload(codes: Any, scales: Any, profile: str) -> Wanted:
    t, k = _size("codes", codes, 32)
    return [((t, k // 32 * 17), torch.uint8)]


def _padded(splits: Any, align: Any) -> Any:
    return sum((_up(n, align) * align for n in splits), 0)


def permute_pad(payload: Any, row_map: Any, splits: Any, align: Any) -> Wanted:
    width = _size("payload", payload, 1)[1]
    return [((_padded(splits, align), width), torch.uint8), ((len(splits),), torch.int64)]


def permute_unpack(payload: Any, row_map: Any, splits: Any, align: Any) -> Wanted:
    blocks = _size("payload", payload, 17)[1] // 17
    return [*_mxfp4(_padded(splits, align), 32 * blocks), ((len(splits),), torch.int64)]


def matmul_fp8(
    a: Any, b: Any, a_scales: Any, b_scales: Any, order: str, out: Any, splits: Any, a_format: str, b_format: str
) -> Wanted:
    m, k = _size("a", a, 1)
    if b.dim() != (2 if splits is None else 3) or b.shape[-1] != k:
        raise ShapeError(f"b has shape {tuple(b.shape)}; allowed is [N, {k}], and [experts, N, {k}] with splits")
    return [((m, b.shape[-2]), _output(out))]


def matmul_bf16(a: Any, b: Any, order: str, out: Any, splits: Any) -> Wanted:
    return matmul_fp8(a, b, None, None, order, out, splits, "BF16", "BF16")


def encode(x: Any, **options: Any) -> Wanted:
    return [(tuple(x.shape), torch.uint8)]


def unpermute(rows: Any, row_map: Any, splits: Any, weights: Any, tokens: Any, align: Any) -> Wanted:
    return [((tokens, _size("rows", rows, 1)[1]), torch.float32)]
