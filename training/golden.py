"""The golden layer: one forward and one backward step of all ranks, composed from the model's operations (clause N20).

Arrays are NumPy's or CuPy's; bfloat16 is taken and given as its uint16 bits. Nothing here is shared with the torch
layer, so that an error of one is no error of the other. A quantised matrix is its *parts*: `(bits,)` of bfloat16,
`(codes, scales)` of FP8 rows, `(packed, scales)` of MXFP4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from refnum import softfloat
from refnum.arrays import TILE, Array, contiguous, float32_bits
from refnum.blocks import dequantize_mxfp4, quantize_mxfp4
from refnum.columns import fp8_columns, mxfp4_to_fp8_columns
from refnum.errors import ArgumentError, ShapeError
from refnum.payload import permute_pad, unpermute
from refnum.product import matmul_bf16, matmul_fp8
from refnum.recast import fp8_to_mxfp4, mxfp4_to_fp8
from refnum.swiglu import swiglu, swiglu_backward, swiglu_quantize
from refnum.tiles import dequantize_fp8_tiles, quantize_fp8_tiles

from .policies import Policy, get_policy

Parts = tuple[Array, ...]
ALIGN = TILE
"""Rows of an expert are filled up with zeros to a multiple of this."""


@dataclass(frozen=True)
class Forward:
    """Every intermediate of a forward step on one rank. T: its tokens, N: rows it received, R: rows of its experts.

    sent: by receiving rank the tokens that go there, ascending. row_map: int64, by expert the received row of each.
    splits: rows of each expert of this rank. prob: float32 [R], 0 in the rows that fill up.
    """

    sent: tuple[np.ndarray, ...]
    payload: Array
    received: Array
    row_map: np.ndarray
    splits: tuple[int, ...]
    prob: Array
    fc1_weight: Parts
    fc2_weight: Parts
    fc1_input: Parts
    fc1: Array
    fc2_input: Parts
    fc2: Array
    returned: Array
    out: Array
    saved_input: Array
    saved_activation: Parts
    saved_fc2_input: Parts


@dataclass(frozen=True)
class Backward:
    """Every intermediate of a backward step on one rank; gradients of products' results are FP8 rows and columns."""

    received: Array
    fc2_grad: Parts
    fc2_grad_columns: Parts
    fc2_input_columns: Parts
    dact: Array
    dprob: Array
    fc1_grad: Parts
    fc1_grad_columns: Parts
    fc1_input_columns: Parts
    dw1: Array
    dw2: Array
    dx_rows: Array
    returned: Array
    dx: Array
    dprobs: Array


def tensors(step: Forward | Backward) -> dict[str, Array]:
    """Return the arrays of a step by name; the parts of a matrix are `name.0` and `name.1`."""
    found: dict[str, Array] = {}
    for field in fields(step):
        value = getattr(step, field.name)
        if field.name == "splits":
            found[field.name] = np.asarray(value, np.int64)
        elif isinstance(value, tuple):
            found |= {f"{field.name}.{at}": one for at, one in enumerate(value)}
        else:
            found[field.name] = value
    return found


def forward(
    x: Sequence[Array],
    experts: Sequence[Any],
    probs: Sequence[Array],
    w1: Array,
    w2: Array,
    policy: Policy | str = "mxfp4",
) -> list[Forward]:
    """Return the forward step of every rank (clause N20).

    Args:
        x: a rank's tokens each, bfloat16 bits u16 [T, K].
        experts: integers [T, top] of each rank, the experts of a token, no expert twice.
        probs: float32 [T, top] of each rank, the weight of each of them.
        w1: bfloat16 bits u16 [experts, 2 * H, K]: gate rows, then up rows.
        w2: bfloat16 bits u16 [experts, K, H].
        policy: a policy or its name.

    Returns:
        One Forward a rank.

    Raises:
        ArgumentError, ShapeError, DtypeError: an argument that does not fit.
    """
    rules, ranks = get_policy(policy), len(x)
    per = _experts_of_a_rank(w1, w2, ranks)
    chosen = [np.asarray(_host(one)) for one in experts]
    sent = [tuple(np.flatnonzero((one // per == rank).any(axis=1)) for rank in range(ranks)) for one in chosen]
    payloads = [to_wire(encode(one, rules.dispatched)) for one in x]
    made = []
    for rank in range(ranks):
        received = np.concatenate([_take(payloads[home], sent[home][rank]) for home in range(ranks)])
        where = np.concatenate([chosen[home][sent[home][rank]] for home in range(ranks)]) - rank * per
        weights = np.concatenate([_take(probs[home], sent[home][rank]) for home in range(ranks)])
        part = slice(rank * per, rank * per + per)
        made.append(expert_forward(received, where, weights, w1[part], w2[part], rules))
    steps = []
    for home in range(ranks):
        rows = np.concatenate([_part(made[rank]["returned"], sent, home, rank) for rank in range(ranks)])
        out = _combined(rows, np.concatenate(sent[home]), [len(one) for one in sent[home]], x[home].shape[0], 1)
        steps.append(Forward(sent=sent[home], payload=payloads[home], out=out, **made[home]))
    return steps


def expert_forward(
    received: Array, where: np.ndarray, weights: Array, w1: Array, w2: Array, policy: Policy
) -> dict[str, Any]:
    """Return what one rank computes of the rows that it received, as fields of Forward.

    received: u8 [N, bytes of a row]; where: integers [N, top], the rank's own expert of each slot, others out of range;
    weights: float32 [N, top]; w1, w2: of the rank's experts.
    """
    hidden, wide = w1.shape[2], w1.shape[1] // 2
    row_map, slots, splits = expert_order(where, w1.shape[0])
    prob = padded(_take(weights.reshape(-1), row_map * where.shape[1] + slots), splits)
    rows = from_wire(permute_pad(received, _like(row_map, received), splits, ALIGN)[0], policy.dispatched, hidden)
    weight1, weight2 = weight_parts(w1, policy), weight_parts(w2, policy)
    first = rows_operand(rows, policy.dispatched, policy)
    fc1 = product(first, weight1, policy, filled(splits))
    gate, up = fc1[:, :wide], fc1[:, wide:]
    second = activation(gate, up, prob, policy)
    fc2 = product(second, weight2, policy, filled(splits))
    saved = recode_wire(received, policy.dispatched, policy.saved_input, hidden)
    return {
        "received": received, "row_map": row_map, "splits": splits, "prob": prob, "fc1_weight": weight1,
        "fc2_weight": weight2, "fc1_input": first, "fc1": fc1, "fc2_input": second, "fc2": fc2,
        "returned": _combined(fc2, row_map, splits, received.shape[0], ALIGN), "saved_input": saved,
        "saved_activation": encode(fc1, policy.saved_activation),
        "saved_fc2_input": stored(gate, up, prob, second, policy),
    }  # fmt: skip


def backward(
    steps: Sequence[Forward], grads: Sequence[Array], experts: Sequence[Any], policy: Policy | str = "mxfp4"
) -> list[Backward]:
    """Return the backward step of every rank (clause N20).

    Args:
        steps: what `forward` gave.
        grads: bfloat16 bits u16 [T, K] of each rank, the gradient of its `out`.
        experts: as for `forward`.
        policy: the same policy.

    Returns:
        One Backward a rank.
    """
    rules, ranks = get_policy(policy), len(steps)
    per, sent = len(steps[0].splits), [step.sent for step in steps]
    chosen = [np.asarray(_host(one)) for one in experts]
    made = []
    for rank, step in enumerate(steps):
        received = np.concatenate([_take(grads[home], sent[home][rank]) for home in range(ranks)])
        made.append(expert_backward(step, received, rules))
    found = []
    for home in range(ranks):
        rows = np.concatenate([_part(made[rank]["returned"], sent, home, rank) for rank in range(ranks)])
        dx = _combined(rows, np.concatenate(sent[home]), [len(one) for one in sent[home]], grads[home].shape[0], 1)
        dprobs = np.zeros(chosen[home].shape, np.float32, like=dx)
        for rank in range(ranks):
            first = sum(len(sent[other][rank]) for other in range(home))
            local = np.concatenate([chosen[other][sent[other][rank]] for other in range(ranks)]) - rank * per
            row_map, slots, splits = expert_order(local, per)
            mine = (row_map >= first) & (row_map < first + len(sent[home][rank]))
            tokens = sent[home][rank][row_map[mine] - first]
            values = _take(made[rank]["dprob"], places(splits)[mine])
            dprobs[_like(tokens, dx), _like(slots[mine], dx)] = values
        found.append(Backward(dx=dx, dprobs=dprobs, **made[home]))
    return found


def expert_backward(step: Forward, received: Array, policy: Policy) -> dict[str, Any]:
    """Return what one rank computes of the gradients that it received, bits u16 [N, K], as fields of Backward."""
    hidden, splits, rows = received.shape[1], step.splits, filled(step.splits)
    row_map = _like(step.row_map, received)
    grad = _viewed(permute_pad(_bytes(received), row_map, splits, ALIGN)[0], np.dtype(np.uint16))
    grad_rows, grad_columns = gradient(grad, policy, rows)
    dact = product(grad_rows, transposed(step.fc2_weight, policy), policy, rows)
    fc1 = decode(step.saved_activation, policy.saved_activation)
    gate, up = fc1[:, : fc1.shape[1] // 2], fc1[:, fc1.shape[1] // 2 :]
    dgate, dup, dprob = swiglu_backward(dact, gate, up, step.prob)
    inner_rows, inner_columns = gradient(np.concatenate([dgate, dup], axis=1), policy, rows)
    saved = from_wire(permute_pad(step.saved_input, row_map, splits, ALIGN)[0], policy.saved_input, hidden)
    input_columns = columns_operand(saved, policy.saved_input, policy, rows)
    act_columns = second_columns(step, gate, up, policy, rows)
    dx_rows = product(inner_rows, transposed(step.fc1_weight, policy), policy, rows)
    return {
        "received": received, "fc2_grad": grad_rows, "fc2_grad_columns": grad_columns,
        "fc2_input_columns": act_columns, "dact": dact, "dprob": dprob, "fc1_grad": inner_rows,
        "fc1_grad_columns": inner_columns, "fc1_input_columns": input_columns,
        "dw1": weight_gradient(inner_columns, input_columns, policy, rows),
        "dw2": weight_gradient(grad_columns, act_columns, policy, rows), "dx_rows": dx_rows,
        "returned": _combined(dx_rows, step.row_map, splits, received.shape[0], ALIGN),
    }  # fmt: skip


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
    return contiguous(np.concatenate([_bytes(one) for one in parts], axis=1))


def from_wire(rows: Array, form: str, hidden: int) -> Parts:
    """Return the parts of rows of bytes; undoes `to_wire`."""
    if form == "bfloat16":
        return (_viewed(rows, np.dtype(np.uint16)),)
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
    if policy.products == "bfloat16":
        return (decode(parts, form),)
    if form == "mxfp4":
        return mxfp4_to_fp8(*parts)
    return parts if form == "fp8" else quantize_fp8_tiles(parts[0])


def columns_operand(parts: Parts, form: str, policy: Policy, rows: Sequence[int]) -> Parts:
    """Return the transposed operand of a weight gradient: FP8 with a scale for 128 rows, or bfloat16."""
    if policy.products == "bfloat16":
        return (contiguous(decode(parts, form).T),)
    if form == "mxfp4":
        return mxfp4_to_fp8_columns(parts[0], parts[1], rows)
    codes, scales = parts if form == "fp8" else quantize_fp8_tiles(parts[0])
    return fp8_columns(codes, scales, rows)


def gradient(x: Array, policy: Policy, rows: Sequence[int]) -> tuple[Parts, Parts]:
    """Return a gradient as rows and as columns; x: float32, or bfloat16 bits."""
    if policy.products == "bfloat16":
        bits = x if x.dtype == np.uint16 else softfloat.to_bfloat16(float32_bits(x))
        return (bits,), (contiguous(bits.T),)
    parts = quantize_fp8_tiles(x)
    return parts, fp8_columns(parts[0], parts[1], rows)


def activation(gate: Array, up: Array, prob: Array, policy: Policy) -> Parts:
    """Return the second product's input, weighted by the routing's probabilities."""
    if policy.products == "fp8":
        return swiglu_quantize(contiguous(gate), contiguous(up), prob)
    return (softfloat.to_bfloat16(float32_bits(swiglu(contiguous(gate), contiguous(up), prob))),)


def stored(gate: Array, up: Array, prob: Array, second: Parts, policy: Policy) -> Parts:
    """Return what is kept of the second product's input: nothing, MXFP4 of its own, or the operand itself."""
    if policy.fc2_input == "recompute":
        return ()
    if policy.saved_activation == "mxfp4":
        return swiglu_quantize(contiguous(gate), contiguous(up), prob, to="mxfp4")
    return second


def second_columns(step: Forward, gate: Array, up: Array, policy: Policy, rows: Sequence[int]) -> Parts:
    """Return the columns of the second product's input, from what was stored or from the saved gate and up."""
    if policy.fc2_input == "store":
        form = "mxfp4" if policy.saved_activation == "mxfp4" else policy.products
        return columns_operand(step.saved_fc2_input, form, policy, rows)
    return columns_operand(activation(gate, up, step.prob, policy), policy.products, policy, rows)


# --------------------------------------------------------------------------------------------------------- products


def weight_parts(w: Array, policy: Policy) -> Parts:
    """Return weights [experts, N, K] as the products take them: FP8 with 128x128 tiles, or bfloat16 bits."""
    if policy.products == "bfloat16":
        return (w,)
    made = [quantize_fp8_tiles(one, (TILE, TILE)) for one in w]
    return np.stack([codes for codes, _ in made]), np.stack([scales for _, scales in made])


def transposed(weight: Parts, policy: Policy) -> Parts:
    """Return weights [experts, K, N] of weights [experts, N, K]; square tiles turn with their scales."""
    return tuple(contiguous(np.swapaxes(one, 1, 2)) for one in weight)


def product(a: Parts, b: Parts, policy: Policy, rows: Sequence[int]) -> Array:
    """Return the bfloat16 bits of each expert's rows times its weights, transposed (N19)."""
    if policy.products == "bfloat16":
        return matmul_bf16(a[0], b[0], out="bfloat16", splits=rows).view(np.uint16)
    return matmul_fp8(a[0], b[0], a[1], b[1], out="bfloat16", splits=rows).view(np.uint16)


def weight_gradient(a: Parts, b: Parts, policy: Policy, rows: Sequence[int]) -> Array:
    """Return bfloat16 bits [experts, N, K]: of each expert, columns [N, R] times columns [K, R], zero without rows."""
    out = np.zeros((len(rows), a[0].shape[0], b[0].shape[0]), np.uint16, like=a[0])
    starts = np.cumsum([0, *rows])
    for expert, (start, stop) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        if start == stop:
            continue
        one, other = contiguous(a[0][:, start:stop]), contiguous(b[0][:, start:stop])
        if policy.products == "bfloat16":
            out[expert] = matmul_bf16(one, other, out="bfloat16").view(np.uint16)
        else:
            scales = [contiguous(x[1][start // TILE : stop // TILE].T) for x in (a, b)]
            out[expert] = matmul_fp8(one, other, scales[0], scales[1], out="bfloat16").view(np.uint16)
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
    out[_like(places(splits), values)] = values
    return out


def _combined(rows: Array, row_map: np.ndarray, splits: Sequence[int], tokens: int, align: int) -> Array:
    """Return the sums of N12.3 rounded once to bfloat16 bits; a token without rows gives +0."""
    if not row_map.size:
        return np.zeros((tokens, rows.shape[1]), np.uint16, like=rows)
    sums = unpermute(rows, _like(row_map, rows), list(splits), None, tokens, align)
    return softfloat.to_bfloat16(float32_bits(sums))


def _part(rows: Array, sent: Sequence[tuple[np.ndarray, ...]], home: int, rank: int) -> Array:
    """Return the rows of one home rank among those that a rank received."""
    first = sum(len(sent[other][rank]) for other in range(home))
    return rows[first : first + len(sent[home][rank])]


def _experts_of_a_rank(w1: Array, w2: Array, ranks: int) -> int:
    experts, double, hidden = w1.shape
    if tuple(w2.shape) != (experts, hidden, double // 2) or double % (2 * TILE) or hidden % TILE:
        raise ShapeError(
            f"w1 has shape {tuple(w1.shape)} and w2 {tuple(w2.shape)}; allowed are [experts, 2 * H, K] and "
            f"[experts, K, H] with H and K multiples of {TILE}"
        )
    if experts % ranks:
        raise ArgumentError(f"{experts} experts on {ranks} ranks; allowed are ranks that divide the experts")
    return experts // ranks


def _host(x: Any) -> Any:
    return x.get() if hasattr(x, "get") else x


def _like(x: np.ndarray, like: Array) -> Array:
    return np.asarray(x, like=like)


def _take(x: Array, index: np.ndarray) -> Array:
    return np.take(x, _like(index, x), axis=0)


def _bytes(x: Array) -> Array:
    return _viewed(x, np.dtype(np.uint8))


def _viewed(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return a matrix's bytes as another dtype, also where there are no rows."""
    if x.size:
        return contiguous(x).view(dtype)
    return np.zeros((x.shape[0], x.shape[1] * x.dtype.itemsize // dtype.itemsize), dtype, like=x)
