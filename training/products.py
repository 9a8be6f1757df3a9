"""The products of the layer's experts on torch tensors: cuBLASLt or the exact kernel on CUDA, golden ones on the CPU.

The library reads every operand where it lies: an expert's rows, its part of columns that all experts share, and a
weight's codes either way round. Only scales are put into the order that it wants, for all experts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Protocol

import torch

import refnum
from refnum.arrays import TILE
from refnum.errors import ArgumentError
from refnum.gpu import torch as launchers

from .dispatch import Route

Tensor = torch.Tensor
Parts = tuple[Tensor, ...]
BF16 = torch.bfloat16
FP8 = torch.float8_e4m3fn


class Observer(Protocol):
    """What looks at conversions and products while the layer runs."""

    def wants(self, calls: int) -> bool:
        """Return whether it would look at one of so many calls that follow; if not, they are not shown to it."""

    def conversion(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any], results: Any) -> None:
        """Look at one conversion: the operation's name, its arguments, and what it gave."""

    def product(self, name: str, operands: Callable[[], tuple[Parts, Parts]], result: Tensor) -> None:
        """Look at one product: what gives the operands with neighbours along K, and the result."""


class Products:
    """The experts' products of operands in FP8 or bfloat16.

    products: `library` for cuBLASLt by torch, where it takes K (a multiple of 512 for 128x128 scales), `model` for the
    exact kernel in the order `promote128`; on a CPU the golden operation computes them.
    """

    def __init__(self, fp8: bool, observer: Observer | None = None, products: str = "library") -> None:
        if products not in ("library", "model"):
            raise ArgumentError(f"products={products!r}; allowed are 'library' and 'model'")
        self.fp8, self.observer, self.products = fp8, observer, products
        self.all_k = False
        """Whether the library takes every K: so it does where memory is counted and nothing is multiplied."""

    def product(self, name: str, a: Parts, b: Parts, route: Route) -> Tensor:
        """Return the rows of each expert times its weights [experts, N, K], bfloat16 [R, N]."""
        make = torch.empty if a[0].is_cuda else torch.zeros
        out = make((a[0].shape[0], b[0].shape[1]), dtype=BF16, device=a[0].device)
        multiply = self._function(out.is_cuda, self._by_library(a) and self._by_library(b))
        # a host computes no row that only fills up: its result is the zero that is there
        counts = route.rows if out.is_cuda else route.splits
        seen = self._seen(counts)
        left, right, stops = self._rows(a, route), self._weights(b), accumulate(route.rows)
        for expert, (count, stop, target) in enumerate(zip(counts, stops, out.split(route.rows), strict=True)):
            if not count:
                continue
            target = target.narrow(0, 0, count)
            multiply(tuple(one.narrow(0, 0, count) for one in left[expert]), right[expert], target)
            if seen is not None:
                start = stop - route.rows[expert]
                pair = partial(_row_pair, a, b, expert, start, start + count)
                seen.product(f"{name}[{expert}]", pair, target)
        return out

    def weight_gradient(self, name: str, a: Parts, b: Parts, route: Route) -> Tensor:
        """Return of each expert the columns [N, R] times the columns [K, R], bfloat16 [experts, N, K]."""
        shape = (len(route.rows), a[0].shape[0], b[0].shape[0])
        out = torch.empty(shape, dtype=BF16, device=a[0].device)
        multiply = self._function(out.is_cuda, self._library(out.is_cuda))
        # steps of 32 zeros leave a sum as it is: a host omits them
        counts = route.rows if out.is_cuda else [-(-count // 32) * 32 for count in route.splits]
        seen = self._seen(counts)
        left, right = (self._columns(one, route) for one in (a, b))
        stops = accumulate(route.rows)
        for expert, (count, stop, target) in enumerate(zip(counts, stops, out.unbind(), strict=True)):
            if not count:
                target.zero_()
                continue
            multiply(_first_columns(left[expert], count), _first_columns(right[expert], count), target)
            if seen is not None:
                start = stop - route.rows[expert]
                pair = partial(_column_pair, a, b, start, start + count)
                seen.product(f"{name}[{expert}]", pair, target)
        return out

    def _seen(self, counts: Sequence[int]) -> Observer | None:
        """Return the observer, if it looks at one of the products of so many rows."""
        calls = len(counts) - list(counts).count(0)
        return self.observer if self.observer is not None and self.observer.wants(calls) else None

    def turned(self, weight: Parts) -> Parts:
        """Return weights [experts, K, N] of weights [experts, N, K]; square tiles turn with their scales.

        On CUDA `fp8_columns`, whose rows have one scale each tile here, moves codes as they are; torch takes longer.
        """
        if not weight[0].is_cuda:
            return tuple(one.transpose(1, 2).contiguous() for one in weight)
        if not self.fp8:
            return (weight[0].transpose(1, 2),)
        codes, scales = weight
        beside = scales.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        return turned_codes(launchers.fp8_columns, codes, scales), beside

    def _rows(self, a: Parts, route: Route) -> list[Parts]:
        """Return each expert's rows of an operand, as the library takes them."""
        if not self._by_library(a):
            return list(zip(*(one.split(route.rows) for one in a), strict=True))
        scales = packed_scales(float32_scales(a[1]), route)
        return list(zip(a[0].view(FP8).split(route.rows), scales, strict=True))

    def _weights(self, b: Parts) -> list[Parts]:
        """Return each expert's weights, as the library takes them."""
        if not self._by_library(b):
            return list(zip(*(one.unbind() for one in b), strict=True))
        return list(zip(b[0].view(FP8).unbind(), _by_four(float32_scales(b[1])).unbind(), strict=True))

    def _columns(self, x: Parts, route: Route) -> list[Parts]:
        """Return each expert's part of columns: codes [N, rows] and scales [N, rows / 128]."""
        codes = x[0].split(route.rows, dim=1)
        if not self.fp8:
            return [(one,) for one in codes]
        library = self._library(x[0].is_cuda)
        scales = (float32_scales(x[1]) if library else x[1]).split([rows // TILE for rows in route.rows])
        return [(one.view(FP8) if library else one, some.t()) for one, some in zip(codes, scales, strict=True)]

    def _library(self, cuda: bool) -> bool:
        return self.fp8 and cuda and self.products == "library"

    def _by_library(self, parts: Parts) -> bool:
        """Whether the library multiplies an operand along rows: torch refuses 128x128 scales of other K than these."""
        return self._library(parts[0].is_cuda) and (self.all_k or parts[0].shape[-1] % (4 * TILE) == 0)

    def _function(self, cuda: bool, library: bool) -> Callable[[Parts, Parts, Tensor], Any]:
        if not self.fp8:
            return _multiply_bf16 if cuda else _golden_bf16
        return _multiply_fp8 if library else _exact_fp8


def turned_codes(columns: Callable[..., Any], codes: Tensor, scales: Tensor) -> Tensor:
    """Return codes [experts, K, N] of [experts, N, K] by `fp8_columns`; they lie by K, then by expert.

    Args:
        columns: the operation.
        codes: uint8 [experts, N, K].
        scales: uint8 [experts, N / 128, K / 128], those of square tiles, so no code changes.
    """
    experts, n, k = codes.shape
    rows = scales.reshape(-1, k // TILE).repeat_interleave(TILE, dim=0)
    return columns(codes.reshape(experts * n, k), rows)[0].view(k, experts, n).transpose(0, 1)


def packed_scales(scales: Tensor, route: Route) -> list[Tensor]:
    """Return each expert's scales [rows, blocks] with its rows beside each other, strides (1, rows).

    Experts have whole segments of 128 rows, so segments are turned and then put where they belong.
    """
    blocks = scales.shape[1]
    first, count = route.segments
    turned = scales.view(-1, TILE, blocks).transpose(1, 2).reshape(-1, TILE)
    start = (blocks - 1) * first + torch.arange(len(first), device=first.device)
    place = start.unsqueeze(1) + count.unsqueeze(1) * torch.arange(blocks, device=first.device)
    flat = turned.new_empty(turned.shape).index_copy_(0, place.flatten(), turned)
    parts = flat.split([rows // TILE * blocks for rows in route.rows])
    return [part.view(blocks, rows).t() for part, rows in zip(parts, route.rows, strict=True)]


def float32_scales(scales: Tensor) -> Tensor:
    """Return the numbers of E8M0 bytes, as the library takes them."""
    bits = scales.to(torch.int32) << 23
    return torch.where(scales == 0, 0x00400000, bits).view(torch.float32)


def _first_columns(parts: Parts, count: int) -> Parts:
    """Return the first rows' part of columns."""
    if count == parts[0].shape[1]:
        return parts
    return (parts[0][:, :count], *(one[:, : -(-count // TILE)] for one in parts[1:]))


def _row_pair(a: Parts, b: Parts, expert: int, start: int, stop: int) -> tuple[Parts, Parts]:
    return tuple(one[start:stop] for one in a), tuple(one[expert] for one in b)


def _column_pair(a: Parts, b: Parts, start: int, stop: int) -> tuple[Parts, Parts]:
    return _cut_columns(a, start, stop), _cut_columns(b, start, stop)


def _cut_columns(parts: Parts, start: int, stop: int) -> Parts:
    """Return some rows' part of columns, codes [N, rows] and scales [N, ceil(rows / 128)]."""
    codes = parts[0][:, start:stop]
    return (codes, parts[1][start // TILE : -(-stop // TILE)].t()) if len(parts) > 1 else (codes,)


def _golden_bf16(a: Parts, b: Parts, out: Tensor) -> None:
    out.copy_(refnum.matmul_bf16(a[0].contiguous(), b[0].contiguous(), out="bfloat16"))


def _multiply_bf16(a: Parts, b: Parts, out: Tensor) -> None:
    torch.mm(a[0], b[0].t(), out=out)


def _exact_fp8(a: Parts, b: Parts, out: Tensor) -> None:
    (one, one_scales), (other, other_scales) = ([x.contiguous() for x in parts] for parts in (a, b))
    if out.is_cuda:
        out.copy_(launchers.matmul_fp8(one, other, one_scales, other_scales, "promote128", BF16))
    else:
        out.copy_(refnum.matmul_fp8(one, other, one_scales, other_scales, "promote128", "bfloat16"))


def _multiply_fp8(a: Parts, b: Parts, out: Tensor) -> None:
    """Multiply by cuBLASLt; scales of 1x128 have the rows contiguous, those of 128x128 the blocks of K."""
    torch._scaled_mm(a[0], b[0].t(), a[1], b[1].t(), out_dtype=BF16, use_fast_accum=False, out=out)


def _by_four(scales: Tensor) -> Tensor:
    """Return scales with rows that lie a multiple of four apart, as the library needs those of 128x128."""
    blocks = scales.shape[-1]
    return torch.nn.functional.pad(scales, (0, -blocks % 4)).narrow(-1, 0, blocks)
