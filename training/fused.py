"""The byte model's elementwise parts in one Triton kernel each: torch takes a pass over memory for every operation.

The operations and their order are those of the torch functions beside them (`model`, `edges`): contraction is off, so
that rotary positions have the same bits; sums over a row have an order of their own, the same in every run.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

Tensor = torch.Tensor
BF16 = torch.bfloat16
EPSILON = 1e-6
PARTS = 528
"""Parts of the rows whose share of the norm's weight gradient is added up apart: four for each multiprocessor."""
_SIZE = 1024
_ONCE: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}


def takes(x: Tensor) -> bool:
    """Return whether these kernels compute on a tensor's device, and with its columns, a power of two."""
    return x.is_cuda and x.shape[-1].bit_count() == 1


# --------------------------------------------------------------------------------------------------------------- norm


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return the rows of bfloat16 [..., hidden], each divided by its root mean square, times float32 [hidden]."""
    out: Tensor = _Norm.apply(x, weight)
    return out


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out, inverse = torch.empty_like(rows), torch.empty(len(rows), dtype=torch.float32, device=x.device)
        _norm[len(rows),](rows, weight, out, inverse, EPSILON, rows.shape[1], **_ONCE)
        ctx.save_for_backward(rows, weight, inverse)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, weight, inverse = ctx.saved_tensors
        dx = torch.empty_like(rows)
        each = torch.empty((PARTS, rows.shape[1]), dtype=torch.float32, device=rows.device)
        given = rows, weight, inverse, grad.contiguous(), dx, each
        _norm_backward[PARTS,](*given, len(rows), -(-len(rows) // PARTS), rows.shape[1], **_ONCE)
        return dx.view(grad.shape), each.sum(0)


@triton.jit
def _norm(x, weight, out, inverse, epsilon, hidden: tl.constexpr):  # type: ignore[no-untyped-def]
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, hidden)
    wide = tl.load(x + row * hidden + at).to(tl.float32)
    factor = 1.0 / tl.sqrt_rn(tl.sum(wide * wide) / hidden + epsilon)
    tl.store(inverse + row, factor)
    tl.store(out + row * hidden + at, (wide * factor * tl.load(weight + at)).to(tl.bfloat16))


@triton.jit
def _norm_backward(  # type: ignore[no-untyped-def]
    x, weight, inverse, grad, dx, dweight, rows, most: tl.constexpr, hidden: tl.constexpr
):
    part, at = tl.program_id(0), tl.arange(0, hidden)
    by, total = tl.load(weight + at), tl.zeros((hidden,), tl.float32)
    for number in range(most):
        row = part * most + number
        there = (row < rows) & (at < hidden)
        place = row.to(tl.int64) * hidden + at
        factor = tl.load(inverse + row, row < rows, 0.0)
        unit = tl.load(x + place, there, 0.0).to(tl.float32) * factor
        given = tl.load(grad + place, there, 0.0).to(tl.float32)
        total += given * unit
        given *= by
        found = (given - unit * (tl.sum(given * unit) / hidden)) * factor
        tl.store(dx + place, found.to(tl.bfloat16), there)
    tl.store(dweight + part * hidden + at, total)


# ------------------------------------------------------------------------------------------------------------- rotary


def split_and_turned(x: Tensor, heads: tuple[int, int], by: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values [sequences, length, heads, width], the first two with rotary positions.

    Args:
        x: bfloat16 [sequences, length, (heads + 2 groups) width].
        heads: heads and groups.
        by: cosines and sines float32 [length, width / 2].
    """
    query, key, value = _Turned.apply(x, *by, heads)
    return query, key, value


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, heads: tuple[int, int]) -> Any:
        count, length, _ = x.shape
        width, x = 2 * cos.shape[1], x.contiguous()
        many = heads[0], heads[1], heads[1]
        found = tuple(x.new_empty((count, length, one, width)) for one in many)
        ctx.heads, ctx.shape = many, x.shape
        ctx.save_for_backward(cos, sin)
        _move(found, x, cos, sin, 0)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        out = grads[0].new_empty(ctx.shape)
        _move([one.contiguous() for one in grads], out, cos, sin, 1)
        return out, None, None, None


def _move(parts: Any, whole: Tensor, cos: Tensor, sin: Tensor, back: int) -> None:
    """Turn and write the parts of `whole`, or `whole` from its parts; values are as they were."""
    start = 0
    for kind, part in enumerate(parts):
        _, length, heads, width = part.shape
        total = part.numel() // 2
        given = part, whole, cos, sin, total, length, heads, whole.shape[-1], start
        _turn[-(-total // _SIZE),](*given, width // 2, kind == 2, back, _SIZE, **_ONCE)
        start += heads * width


@triton.jit
def _turn(  # type: ignore[no-untyped-def]
    part, whole, cos, sin, total, length, heads, columns, start,
    half: tl.constexpr, plain: tl.constexpr, back: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    there = number < total
    column, head, row = number % half, number // half % heads, number // half // heads
    one = part + (row * heads + head) * 2 * half + column
    other = whole + row * columns + start + head * 2 * half + column
    source, target = (other, one) if not back else (one, other)
    left, right = tl.load(source, there), tl.load(source + half, there)
    if not plain:
        left, right = left.to(tl.float32), right.to(tl.float32)
        c, s = tl.load(cos + row % length * half + column, there), tl.load(sin + row % length * half + column, there)
        if back:
            s = -s
        left, right = left * c - right * s, left * s + right * c
    tl.store(target, left.to(tl.bfloat16), there)
    tl.store(target + half, right.to(tl.bfloat16), there)


# ------------------------------------------------------------------------------------------------- to bfloat16, SwiGLU


def rounded(x: Tensor) -> Tensor:
    """Return contiguous float32 to the nearest bfloat16, ties to even, a NaN as 0x7FC0."""
    out = torch.empty(x.shape, dtype=torch.int16, device=x.device)
    if out.numel():
        _rounded[-(-out.numel() // _SIZE),](x.contiguous().view(torch.int32), out, out.numel(), _SIZE, **_ONCE)
    return out.view(BF16)


@triton.jit
def _rounded(x, out, count, size: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    bits = tl.load(x + at, at < count, 0)
    near = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    tl.store(out + at, tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC0, near).to(tl.int16), at < count)


def weighted_swiglu(gate: Tensor, up: Tensor, prob: Tensor) -> Tensor:
    """Return silu(gate) * up * prob of bfloat16 [M, N], whose columns are neighbours, and float32 [M]."""
    rows, columns = gate.shape
    out = torch.empty((rows, columns), dtype=BF16, device=gate.device)
    if out.numel():
        grid = (rows, -(-columns // _SIZE))
        _swiglu[grid](gate, up, prob, out, gate.stride(0), up.stride(0), columns, min(_SIZE, columns), **_ONCE)
    return out


@triton.jit
def _swiglu(gate, up, prob, out, gate_row, up_row, columns, size: tl.constexpr):  # type: ignore[no-untyped-def]
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * size + tl.arange(0, size)
    there = at < columns
    x = tl.load(gate + row * gate_row + at, there, 0.0).to(tl.float32)
    y = tl.load(up + row * up_row + at, there, 0.0).to(tl.float32)
    found = tl.div_rn(x, 1.0 + libdevice.exp(-x)) * y * tl.load(prob + row)
    tl.store(out + row * columns + at, found.to(tl.bfloat16), there)
