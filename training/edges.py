"""The conversions and products of the layer on torch tensors: our operators on CUDA, the golden operations on the CPU.

A quantised matrix is its *parts*: `(x,)` of bfloat16, `(codes, scales)` of FP8 rows, `(packed, scales)` of MXFP4. Every
conversion and every product passes `Edges.call` or `Edges.product`, where a witness can look at it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch

import refnum
from refnum.arrays import TILE
from refnum.errors import ArgumentError
from refnum.gpu import torch as launchers
from refnum.interchange import door
from refnum.swiglu import swiglu

from .dispatch import Route, viewed
from .policies import Policy

Tensor = torch.Tensor
Parts = tuple[Tensor, ...]
BF16 = torch.bfloat16
_swiglu = door(swiglu)


class Observer(Protocol):
    """What looks at conversions and products while the layer runs."""

    def conversion(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any], results: Any) -> None:
        """Look at one conversion: the operation's name, its arguments, and what it gave."""

    def product(self, name: str, operands: Callable[[], tuple[Parts, Parts]], result: Tensor) -> None:
        """Look at one product: what makes the operands with neighbours along K, which costs, and the result."""


class Edges:
    """A policy's conversions and products on one device.

    products: `library` for cuBLASLt by torch, `model` for the exact kernel in the order `promote128`; on a CPU the
    golden operation computes them.
    """

    def __init__(self, policy: Policy, observer: Observer | None = None, products: str = "library") -> None:
        if products not in ("library", "model"):
            raise ArgumentError(f"products={products!r}; allowed are 'library' and 'model'")
        self.policy, self.observer, self.products = policy, observer, products
        self.fp8 = policy.products == "fp8"

    def call(self, name: str, x: Tensor, *given: Any, **named: Any) -> Any:
        """Run an operation of `refnum` on the device of its first argument."""
        function = getattr(launchers, name) if x.is_cuda else getattr(refnum, name)
        results = function(x, *given, **named)
        if self.observer is not None:
            self.observer.conversion(name, (x, *given), named, results)
        return results

    # ---------------------------------------------------------------------------------------------------- rows

    def encode(self, x: Tensor, form: str) -> Parts:
        """Return the parts of bfloat16 rows in a format."""
        if form == "bfloat16":
            return (x,)
        return self.call("quantize_fp8_tiles" if form == "fp8" else "quantize_mxfp4", x)

    def decode(self, parts: Parts, form: str) -> Tensor:
        """Return the bfloat16 values of parts."""
        if form == "bfloat16":
            return parts[0]
        if form == "fp8":
            return self.call("dequantize_fp8_tiles", *parts, dtype=BF16)
        return self.call("dequantize_mxfp4", *parts, BF16)

    def wire(self, x: Tensor, form: str) -> Tensor:
        """Return bfloat16 rows [T, K] as the bytes that are sent: 2K, K + K/128 or 17K/32 of each."""
        if form == "bfloat16":
            return viewed(x, torch.uint8)
        if form == "mxfp4":
            return self.call("quantize_payload", x)
        return torch.cat(self.call("quantize_fp8_tiles", x), dim=1)

    def rewire(self, rows: Tensor, given: str, form: str, hidden: int) -> Tensor:
        """Return rows of bytes in another format of no more bits."""
        if given == form:
            return rows
        if given == "bfloat16":
            return self.wire(viewed(rows, BF16), form)
        if (given, form) == ("fp8", "mxfp4"):
            return self.call("fp8_to_payload", rows[:, :hidden].contiguous(), rows[:, hidden:].contiguous())
        raise ArgumentError(
            f"what is dispatched as {given} cannot be saved as {form}; allowed are formats of no more bits"
        )

    def gathered(self, rows: Tensor, route: Route, form: str, hidden: int) -> Parts:
        """Return received rows of bytes by expert, filled up with zeros, as parts."""
        if form == "mxfp4":
            return self.call("permute_unpack", rows, route.row_map, route.splits, TILE)[:2]
        found = self.call("permute_pad", rows, route.row_map, route.splits, TILE)[0]
        if form == "bfloat16":
            return (viewed(found, BF16),)
        return found[:, :hidden].contiguous(), found[:, hidden:].contiguous()

    def summed(self, rows: Tensor, row_map: Tensor, splits: Sequence[int], tokens: int, align: int) -> Tensor:
        """Return each token's rows summed in float32 and rounded once to bfloat16."""
        return self.call("unpermute", rows, row_map, list(splits), None, tokens, align).to(BF16)

    # ------------------------------------------------------------------------------------------------ operands

    def rows_operand(self, parts: Parts, form: str) -> Parts:
        """Return a product's operand with neighbours along rows."""
        if not self.fp8:
            return (self.decode(parts, form),)
        if form == "mxfp4":
            return self.call("mxfp4_to_fp8", *parts)
        return parts if form == "fp8" else self.call("quantize_fp8_tiles", parts[0])

    def columns_operand(self, parts: Parts, form: str, rows: list[int]) -> Parts:
        """Return the transposed operand of a weight gradient."""
        if not self.fp8:
            return (self.decode(parts, form).t().contiguous(),)
        if form == "mxfp4":
            return self.call("mxfp4_to_fp8_columns", *parts, rows)
        return self.call("fp8_columns", *self.rows_operand(parts, form), rows)

    def gradient(self, x: Sequence[Tensor], rows: list[int]) -> tuple[Parts, Parts]:
        """Return a gradient, given as matrices that lie side by side, as rows and as columns."""
        if not self.fp8:
            found = torch.cat([one.to(BF16) for one in x], dim=1)
            return (found,), (found.t().contiguous(),)
        parts = [self.call("quantize_fp8_tiles", one) for one in x]
        whole = tuple(torch.cat(same, dim=1) if len(x) > 1 else same[0] for same in zip(*parts, strict=True))
        return whole, self.call("fp8_columns", *whole, rows)

    def activation(self, fc1: Tensor, prob: Tensor) -> Parts:
        """Return the second product's input, weighted."""
        gate, up = fc1.chunk(2, dim=1)
        if self.fp8:
            return self.call("swiglu_quantize", gate, up, prob)
        return (weighted_swiglu(gate, up, prob),)

    def kept(self, fc1: Tensor, prob: Tensor, second: Parts) -> Parts:
        """Return what the backward pass reads of the second product's input, nothing where it is recomputed."""
        if self.policy.fc2_input == "recompute":
            return ()
        if self.policy.saved_activation == "mxfp4":
            return self.call("swiglu_quantize", *fc1.chunk(2, dim=1), prob, "mxfp4")
        return second

    def second_columns(self, kept: Parts, fc1: Tensor, prob: Tensor, rows: list[int]) -> Parts:
        """Return the columns of the second product's input, from what was kept or from the saved gate and up."""
        if not kept:
            return self.columns_operand(self.activation(fc1, prob), self.policy.products, rows)
        form = "mxfp4" if self.policy.saved_activation == "mxfp4" else self.policy.products
        return self.columns_operand(kept, form, rows)

    # ------------------------------------------------------------------------------------------------ products

    def weight(self, w: Tensor) -> Parts:
        """Return weights [experts, N, K] as the products take them."""
        if not self.fp8:
            return (w.detach(),)
        experts, n, k = w.shape
        codes, scales = self.call("quantize_fp8_tiles", w.detach().reshape(experts * n, k), (TILE, TILE))
        return codes.view(experts, n, k), scales.view(experts, n // TILE, k // TILE)

    def product(self, name: str, a: Parts, b: Parts, route: Route) -> Tensor:
        """Return the rows of each expert times its weights [experts, N, K], bfloat16 [R, N]."""
        make = torch.empty if a[0].is_cuda else torch.zeros
        out = make((a[0].shape[0], b[0].shape[1]), dtype=BF16, device=a[0].device)
        ready = self._ready(a), self._ready(b)
        for expert, (start, stop) in _ranges(route.rows):
            # a host computes no row that only fills up: its result is the zero that is there
            last = stop if out.is_cuda else start + route.splits[expert]
            self._function(out.is_cuda)(_rows(ready[0], start, last), _item(ready[1], expert), out[start:last])
            if self.observer is not None:
                pair = partial(_row_pair, a, b, expert, start, last)
                self.observer.product(f"{name}[{expert}]", pair, out[start:last])
        return out

    def weight_gradient(self, name: str, a: Parts, b: Parts, route: Route) -> Tensor:
        """Return of each expert the columns [N, R] times the columns [K, R], bfloat16 [experts, N, K]."""
        shape = (len(route.rows), a[0].shape[0], b[0].shape[0])
        out = torch.zeros(shape, dtype=BF16, device=a[0].device)
        ready = self._ready(a), self._ready(b)
        for expert, (start, stop) in _ranges(route.rows):
            # steps of 32 zeros leave a sum as it is: a host omits them
            last = stop if out.is_cuda else start + -(-route.splits[expert] // 32) * 32
            left, right = (_columns(one, start, last) for one in ready)
            self._function(out.is_cuda)(left, right, out[expert])
            if self.observer is not None:
                pair = partial(_column_pair, a, b, start, last)
                self.observer.product(f"{name}[{expert}]", pair, out[expert])
        return out

    def _ready(self, parts: Parts) -> Parts:
        """Return an operand with the scales that the library takes, float32."""
        if not (self.fp8 and parts[0].is_cuda and self.products == "library"):
            return parts
        return parts[0].view(torch.float8_e4m3fn), _by_four(float32_scales(parts[1]))

    def _function(self, cuda: bool) -> Callable[[Parts, Parts, Tensor], Any]:
        if not self.fp8:
            return _multiply_bf16 if cuda else _golden_bf16
        return _multiply_fp8 if cuda and self.products == "library" else _exact_fp8


def weighted_swiglu(gate: Tensor, up: Tensor, prob: Tensor) -> Tensor:
    """Return silu(gate) * up * prob in bfloat16; by the golden operation on a CPU, in torch's float32 on CUDA."""
    if gate.is_cuda:
        return (torch.nn.functional.silu(gate.float()) * up.float() * prob[:, None]).to(BF16)
    return _swiglu(gate, up, prob).to(BF16)


def float32_scales(scales: Tensor) -> Tensor:
    """Return the numbers of E8M0 bytes, as the library takes them."""
    bits = scales.to(torch.int32) << 23
    return torch.where(scales == 0, 0x00400000, bits).view(torch.float32)


def _ranges(rows: list[int]) -> list[tuple[int, tuple[int, int]]]:
    """Return the number and the [start, stop) of each expert that has rows."""
    stops = itertools.accumulate(rows)
    return [(at, (stop - count, stop)) for at, (count, stop) in enumerate(zip(rows, stops, strict=True)) if count]


def _rows(parts: Parts, start: int, stop: int) -> Parts:
    return tuple(one[start:stop] for one in parts)


def _item(parts: Parts, expert: int) -> Parts:
    return tuple(one[expert] for one in parts)


def _columns(parts: Parts, start: int, stop: int) -> Parts:
    """Return some rows' part of columns, codes [N, rows] and scales [N, ceil(rows / 128)]."""
    codes = parts[0][:, start:stop].contiguous()
    return (codes, parts[1][start // TILE : -(-stop // TILE)].t()) if len(parts) > 1 else (codes,)


def _row_pair(a: Parts, b: Parts, expert: int, start: int, stop: int) -> tuple[Parts, Parts]:
    return _rows(a, start, stop), _item(b, expert)


def _column_pair(a: Parts, b: Parts, start: int, stop: int) -> tuple[Parts, Parts]:
    return _columns(a, start, stop), _columns(b, start, stop)


def _golden_bf16(a: Parts, b: Parts, out: Tensor) -> None:
    out.copy_(refnum.matmul_bf16(a[0], b[0], out="bfloat16"))


def _multiply_bf16(a: Parts, b: Parts, out: Tensor) -> None:
    torch.mm(a[0], b[0].t(), out=out)


def _exact_fp8(a: Parts, b: Parts, out: Tensor) -> None:
    scales = [x[1].contiguous() for x in (a, b)]
    if out.is_cuda:
        out.copy_(launchers.matmul_fp8(a[0], b[0], *scales, "promote128", BF16))
    else:
        out.copy_(refnum.matmul_fp8(a[0], b[0], scales[0], scales[1], "promote128", "bfloat16"))


def _multiply_fp8(a: Parts, b: Parts, out: Tensor) -> None:
    """Multiply by cuBLASLt; scales of 1x128 have the rows contiguous, those of 128x128 the blocks of K."""
    left = a[1].t().contiguous().t()
    right = b[1].t() if b[1].shape[0] != b[0].shape[0] else b[1].t().contiguous()
    torch._scaled_mm(a[0], b[0].t(), left, right, out_dtype=BF16, use_fast_accum=False, out=out)


def _by_four(scales: Tensor) -> Tensor:
    """Return scales with rows that lie a multiple of four apart, as the library needs those of 128x128."""
    blocks = scales.shape[-1]
    return torch.nn.functional.pad(scales, (0, -blocks % 4))[..., :blocks]
