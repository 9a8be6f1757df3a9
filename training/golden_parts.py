"""The parts of the golden layer: formats of edges, products, and rows by expert (clause N20).

A quantised matrix is its *parts*: `(bits,)` of bfloat16, `(codes, scales)` of FP8 rows, `(packed, scales)` of MXFP4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refnum import softfloat
from refnum.arrays import TILE, Array, contiguous, float32_bits
from refnum.blocks import dequantize_mxfp4, quantize_mxfp4
from refnum.columns import fp8_columns, mxfp4_to_fp8_columns
from refnum.errors import ArgumentError
from refnum.product import matmul_bf16, matmul_fp8
from refnum.recast import fp8_to_mxfp4, mxfp4_to_fp8
from refnum.swiglu import swiglu, swiglu_quantize
from refnum.tiles import dequantize_fp8_tiles, quantize_fp8_tiles

from .golden_forms import coded, estimated
from .policies import Policy
from .recipes import Draw

Parts = tuple[Array, ...]
Averages = Mapping[str, Array] | None
"""`fc1` and `fc2` -> the running averages of their weights, float32 [experts, N, K]."""
ALIGN = TILE
"""Rows of an expert are filled up with zeros to a multiple of this."""


# ------------------------------------------------------------------------------------------------- formats of edges


def encode(x: Array, form: str) -> Parts:
    """Return the parts of bfloat16 bits [M, K] in a format of an edge."""
    if form == "bfloat16":
        return (x,)
    return quantize_fp8_tiles(x) if form == "fp8" else quantize_mxfp4(x)


def decode(parts: Parts, form: str) -> Array:
    """Return the bfloat16 bits of parts; exact, but for results below bfloat16's normal range."""
    if form == "bfloat16":
        return parts[0]
    make = dequantize_fp8_tiles if form == "fp8" else dequantize_mxfp4
    return make(parts[0], parts[1], dtype="bfloat16").view(np.uint16)


def to_wire(parts: Parts) -> Array:
    """Return the rows of parts as bytes, one part after the other: what is sent (N12.1)."""
    return contiguous(np.concatenate([as_bytes(one) for one in parts], axis=1))


def from_wire(rows: Array, form: str, hidden: int) -> Parts:
    """Return the parts of rows of bytes; undoes `to_wire`."""
    if form == "bfloat16":
        return (viewed(rows, np.dtype(np.uint16)),)
    codes = hidden if form == "fp8" else hidden // 2
    return contiguous(rows[:, :codes]), contiguous(rows[:, codes:])


def recode_wire(rows: Array, given: str, form: str, hidden: int) -> Array:
    """Return rows in another format of no more bits; ArgumentError for one of more."""
    if given == form:
        return rows
    parts = from_wire(rows, given, hidden)
    if given == "bfloat16":
        return to_wire(encode(parts[0], form))
    if (given, form) == ("fp8", "mxfp4"):
        return to_wire(fp8_to_mxfp4(*parts))
    raise ArgumentError(f"what is dispatched as {given} cannot be saved as {form}; allowed are formats of no more bits")


def rows_operand(parts: Parts, form: str, policy: Policy) -> Parts:
    """Return a product's operand with neighbours along rows: FP8 1x128 tiles, or bfloat16."""
    if policy.operands == "bfloat16":
        return (decode(parts, form),)
    if form == "mxfp4":
        return mxfp4_to_fp8(*parts)
    return parts if form == "fp8" else quantize_fp8_tiles(parts[0])


def columns_operand(parts: Parts, form: str, policy: Policy, rows: Sequence[int]) -> Parts:
    """Return the transposed operand of a weight gradient: FP8 with a scale for 128 rows, or bfloat16."""
    if policy.operands == "bfloat16":
        return (contiguous(decode(parts, form).T),)
    if form == "mxfp4":
        return mxfp4_to_fp8_columns(parts[0], parts[1], rows)
    codes, scales = parts if form == "fp8" else quantize_fp8_tiles(parts[0])
    return fp8_columns(codes, scales, rows)


def gradient(x: Array, policy: Policy, rows: Sequence[int]) -> tuple[Parts, Parts]:
    """Return a gradient as rows and as columns; x: float32, or bfloat16 bits."""
    if policy.operands == "bfloat16":
        bits = x if x.dtype == np.uint16 else softfloat.to_bfloat16(float32_bits(x))
        return (bits,), (contiguous(bits.T),)
    parts = quantize_fp8_tiles(x)
    return parts, fp8_columns(parts[0], parts[1], rows)


def activation(gate: Array, up: Array, prob: Array, policy: Policy) -> Parts:
    """Return the second product's input, weighted by the routing's probabilities."""
    if policy.operands == "fp8":
        return swiglu_quantize(contiguous(gate), contiguous(up), prob)
    return (softfloat.to_bfloat16(float32_bits(swiglu(contiguous(gate), contiguous(up), prob))),)


def kept_activation(fc1: Array, policy: Policy) -> Parts:
    """Return what is kept of the first product: nothing where it is made again."""
    return () if policy.saved_activation == "recompute" else encode(fc1, policy.saved_activation)


def activation_again(
    kept: Parts,
    saved: Parts,
    weight: Parts,
    policy: Policy,
    splits: Sequence[int],
    draw: Draw | None = None,
    averages: Averages = None,
) -> Array:
    """Return gate and up of the backward pass: decoded, or the product of the saved rows [R, K] once more."""
    if policy.saved_activation != "recompute":
        return decode(kept, policy.saved_activation)
    return product(rows_operand(saved, policy.saved_input, policy), weight, policy, splits, "fc1", draw, averages)


def stored(gate: Array, up: Array, prob: Array, second: Parts, policy: Policy) -> Parts:
    """Return what is kept of the second product's input: nothing, MXFP4 of its own, or the operand itself."""
    if policy.fc2_input == "recompute":
        return ()
    if policy.saved_activation == "mxfp4":
        return swiglu_quantize(contiguous(gate), contiguous(up), prob, to="mxfp4")
    return second


def second_columns(kept: Parts, prob: Array, gate: Array, up: Array, policy: Policy, rows: Sequence[int]) -> Parts:
    """Return the columns of the second product's input, from what was stored or from the saved gate and up."""
    if policy.fc2_input == "store":
        form = "mxfp4" if policy.saved_activation == "mxfp4" else policy.operands
        return columns_operand(kept, form, policy, rows)
    return columns_operand(activation(gate, up, prob, policy), policy.operands, policy, rows)


# --------------------------------------------------------------------------------------------------------- products


def weight_parts(w: Array, policy: Policy) -> Parts:
    """Return weights [experts, N, K] as the products take them: FP8 with 128x128 tiles, or bfloat16 bits."""
    if policy.operands == "bfloat16":
        return (w,)
    made = [quantize_fp8_tiles(one, (TILE, TILE)) for one in w]
    return np.stack([codes for codes, _ in made]), np.stack([scales for _, scales in made])


def transposed(weight: Parts, policy: Policy) -> Parts:
    """Return weights [experts, K, N] of weights [experts, N, K]; square tiles turn with their scales."""
    return tuple(contiguous(np.swapaxes(one, 1, 2)) for one in weight)


def product(
    a: Parts,
    b: Parts,
    policy: Policy,
    splits: Sequence[int],
    name: str = "",
    draw: Draw | None = None,
    averages: Averages = None,
) -> Array:
    """Return the bfloat16 bits of each expert's rows times its weights, transposed (N19); rows that fill up are +0.

    splits: rows of each expert, without those that fill up. name, draw, averages: what a recipe needs (N28.4).
    """
    if policy.recipe is not None and draw is not None:
        rows = np.split(a[0], np.cumsum(filled(splits))[:-1].tolist())
        average = None if averages is None else averages[name.partition(".")[0]]
        a = (np.concatenate(quantised(rows, False, policy, name, draw)),)
        b = (np.stack(quantised(list(b[0]), True, policy, name, draw, average)),)
    out = np.zeros((a[0].shape[0], b[0].shape[1]), np.uint16, like=a[0])
    if not sum(splits):
        return out
    at = places(splits)
    rows = [taken(one, at) for one in a]
    if policy.operands == "bfloat16":
        found = matmul_bf16(rows[0], b[0], out="bfloat16", splits=splits)
    else:
        found = matmul_fp8(rows[0], b[0], rows[1], b[1], out="bfloat16", splits=splits)
    out[beside(at, out)] = found.view(np.uint16)
    return out


def quantised(
    parts: Sequence[Array], right: bool, policy: Policy, name: str, draw: Draw, average: Array | None = None
) -> list[Array]:
    """Return one operand, bfloat16 bits of each expert, of a product whose policy has a recipe, as its codes say.

    average: float32 [experts, N, K], of the weights in the forward product, where one chooses codes.
    """
    if policy.recipe is None:
        return list(parts)
    operand = policy.recipe.of(name)[right]
    keys = [draw.key(name, right, expert) if operand.random else None for expert in range(len(parts))]
    each = list(average) if average is not None else [None] * len(parts)
    return [
        coded(*one) if one[0].size else one[0] for one in zip(parts, [operand] * len(parts), keys, each, strict=True)
    ]


def weight_gradient(
    a: Parts,
    b: Parts,
    policy: Policy,
    rows: Sequence[int],
    name: str = "",
    draw: Draw | None = None,
    weight: Parts = (),
) -> Array:
    """Return bfloat16 bits [experts, N, K]: of each expert, columns [N, R] times columns [K, R], zero without rows.

    weight: that whose gradient it is, which an estimator reads (N28.6).
    """
    out = np.zeros((len(rows), a[0].shape[0], b[0].shape[0]), np.uint16, like=a[0])
    starts = np.cumsum([0, *rows])
    if policy.recipe is not None and draw is not None:
        sides = [np.split(one[0], starts[1:-1].tolist(), axis=1) for one in (a, b)]
        a, b = ((np.concatenate(quantised(side, right, policy, name, draw), axis=1),)
                for right, side in zip((False, True), sides, strict=True))  # fmt: skip
    for expert, (start, stop) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        if start == stop:
            continue
        one, other = contiguous(a[0][:, start:stop]), contiguous(b[0][:, start:stop])
        if policy.operands == "bfloat16":
            out[expert] = matmul_bf16(one, other, out="bfloat16").view(np.uint16)
        else:
            scales = [contiguous(x[1][start // TILE : stop // TILE].T) for x in (a, b)]
            out[expert] = matmul_fp8(one, other, scales[0], scales[1], out="bfloat16").view(np.uint16)
    if weight and policy.recipe is not None and policy.recipe.estimator == "dge":
        return np.stack([estimated(dw, w) for dw, w in zip(out, weight[0], strict=True)])
    return out


# ------------------------------------------------------------------------------------------------------------- rows


def expert_order(where: np.ndarray, experts: int) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Return (received row, slot) of each row in expert order, rows of one expert ascending, and rows of each expert.

    where: integers [N, top], the expert of each slot; one out of range is another rank's.
    """
    found = [np.nonzero(where == expert) for expert in range(experts)]
    rows = np.concatenate([row for row, _ in found]).astype(np.int64)
    return rows, np.concatenate([slot for _, slot in found]).astype(np.int64), tuple(len(row) for row, _ in found)


def filled(splits: Sequence[int]) -> list[int]:
    """Return the rows of each expert, filled up to a multiple of ALIGN."""
    return [-(-count // ALIGN) * ALIGN for count in splits]


def places(splits: Sequence[int]) -> np.ndarray:
    """Return the row of each routed row among those that are filled up."""
    starts = np.cumsum([0, *filled(splits)])
    return np.concatenate([start + np.arange(count) for start, count in zip(starts[:-1], splits, strict=True)])


def padded(values: Array, splits: Sequence[int]) -> Array:
    """Return values [rows, ...] with zeros in the places of the rows that fill up."""
    out = np.zeros((sum(filled(splits)), *values.shape[1:]), values.dtype, like=values)
    out[beside(places(splits), values)] = values
    return out


def on_host(x: Any) -> Any:
    """Return an array of the host."""
    return x.get() if hasattr(x, "get") else x


def beside(x: np.ndarray, like: Array) -> Array:
    """Return an array of the host in the library of another."""
    return np.asarray(x, like=like)


def taken(x: Array, index: np.ndarray) -> Array:
    """Return rows by their numbers."""
    return np.take(x, beside(index, x), axis=0)


def as_bytes(x: Array) -> Array:
    """Return the bytes of rows."""
    return viewed(x, np.dtype(np.uint8))


def viewed(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return a matrix's bytes as another dtype, also where there are no rows."""
    if x.size:
        return contiguous(x).view(dtype)
    return np.zeros((x.shape[0], x.shape[1] * x.dtype.itemsize // dtype.itemsize), dtype, like=x)
