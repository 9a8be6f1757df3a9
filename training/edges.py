"""The conversions and products of the layer on torch tensors: our operators on CUDA, the golden operations on the CPU.

A quantised matrix is its *parts*: `(x,)` of bfloat16, `(codes, scales)` of FP8 rows, `(packed, scales)` of MXFP4. Every
conversion and every product passes `Edges.call` or `Edges.product`, where a witness can look at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

import refnum
from refnum.arrays import TILE
from refnum.errors import ArgumentError
from refnum.gpu import torch as launchers
from refnum.interchange import door
from refnum.swiglu import swiglu

from .dispatch import Route, viewed
from .policies import Policy
from .products import BF16, Observer, Parts, Products, Tensor

try:
    from . import fused
except ImportError:  # no Triton, which torch brings along where there is CUDA
    fused = None  # type: ignore[assignment]

_swiglu = door(swiglu)


class Edges(Products):
    """A policy's conversions and products on one device; products: as for `Products`."""

    def __init__(self, policy: Policy, observer: Observer | None = None, products: str = "library") -> None:
        super().__init__(policy.operands == "fp8", observer, products)
        self.policy = policy

    def call(self, name: str, x: Tensor, *given: Any, **named: Any) -> Any:
        """Run an operation on the device of its first argument: our kernel, or the golden one where there is none."""
        kernel = getattr(launchers, name, None) if x.is_cuda else None
        function = kernel or getattr(refnum, name)
        results = function(x, *given, **named)
        if self.observer is not None:
            self.observer.conversion(name, (x, *given), named, results)
        return results

    def estimated(self, dw: Tensor, weight: Parts) -> Tensor:
        """Return gradients of weights [experts, N, K] as an estimator has them: as they are."""
        return dw

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
            return self.call("fp8_to_payload", *_code_and_scale_bytes(rows, hidden))
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
        return _code_and_scale_bytes(found, hidden)

    def summed(self, rows: Tensor, row_map: Tensor, splits: Sequence[int], tokens: int, align: int) -> Tensor:
        """Return each token's rows summed in float32 and rounded once to bfloat16."""
        return rounded(self.call("unpermute", rows, row_map, list(splits), None, tokens, align))

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
            return (_turned(self.decode(parts, form)),)
        if form == "mxfp4":
            return self.call("mxfp4_to_fp8_columns", *parts, rows)
        return self.call("fp8_columns", *self.rows_operand(parts, form), rows)

    def gradient(self, x: Sequence[Tensor], rows: list[int]) -> tuple[Parts, Parts]:
        """Return a gradient, given as matrices that lie side by side, as rows and as columns."""
        if not self.fp8:
            found = _beside([rounded(one) for one in x])
            return (found,), (_turned(found),)
        parts = [self.call("quantize_fp8_tiles", one) for one in x]
        whole = tuple(_beside(same) for same in zip(*parts, strict=True))
        return whole, self.call("fp8_columns", *whole, rows)

    def activation(self, fc1: Tensor, prob: Tensor) -> Parts:
        """Return the second product's input, weighted."""
        gate, up = fc1.chunk(2, dim=1)
        if self.fp8:
            return self.call("swiglu_quantize", gate, up, prob)
        return (weighted_swiglu(gate, up, prob),)

    def kept_activation(self, fc1: Tensor) -> Parts:
        """Return what the backward pass reads of the first product, nothing where it is made again."""
        form = self.policy.saved_activation
        return () if form == "recompute" else self.encode(fc1, form)

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
            return self.columns_operand(self.activation(fc1, prob), self.policy.operands, rows)
        form = "mxfp4" if self.policy.saved_activation == "mxfp4" else self.policy.operands
        return self.columns_operand(kept, form, rows)

    def weight(self, w: Tensor) -> Parts:
        """Return weights [experts, N, K] as the products take them."""
        if not self.fp8:
            return (w.detach(),)
        experts, n, k = w.shape
        codes, scales = self.call("quantize_fp8_tiles", w.detach().reshape(experts * n, k), (TILE, TILE))
        return codes.view(experts, n, k), scales.view(experts, n // TILE, k // TILE)


def weighted_swiglu(gate: Tensor, up: Tensor, prob: Tensor) -> Tensor:
    """Return silu(gate) * up * prob in bfloat16; by the golden operation on a CPU, in torch's float32 on CUDA.

    On tensors without data, whose memory alone is counted, only the result is made, as one kernel does.
    """
    if isinstance(gate, FakeTensor):
        return gate.new_empty(gate.shape)
    if gate.is_cuda and fused is not None and fused.takes(gate):
        return fused.weighted_swiglu(gate, up, prob)
    if gate.is_cuda:
        return (torch.nn.functional.silu(gate.float()) * up.float() * prob.unsqueeze(1)).to(BF16)
    return rounded(_swiglu(gate, up, prob))


def rounded(x: Tensor) -> Tensor:
    """Return float32 to the nearest bfloat16, ties to even, a NaN as 0x7FC0: torch's NaN depends on the device."""
    if x.dtype == BF16 or isinstance(x, FakeTensor):
        return x.to(BF16)
    if x.is_cuda and fused is not None:
        return fused.rounded(x)
    bits = x.view(torch.int32)
    near = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return torch.where(x.isnan(), 0x7FC0, near).to(torch.int16).view(BF16)


def _beside(parts: Sequence[Tensor]) -> Tensor:
    """Return matrices as one, side by side; one as it is."""
    return torch.cat(list(parts), dim=1) if len(parts) > 1 else parts[0]


def _turned(x: Tensor) -> Tensor:
    """Return a matrix's transpose; on CUDA as it lies, for the library reads either way."""
    return x.t() if x.is_cuda else x.t().contiguous()


def _code_and_scale_bytes(rows: Tensor, hidden: int) -> Parts:
    """Return the two parts of FP8 rows that lie one after the other in a row of bytes."""
    codes, scales = rows.split([hidden, rows.shape[1] - hidden], dim=1)
    return codes.clone(memory_format=torch.contiguous_format), scales.clone(memory_format=torch.contiguous_format)
