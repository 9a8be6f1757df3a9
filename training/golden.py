"""The golden layer: one forward and one backward step of all ranks, composed from the model's operations (clause N20).

Arrays are NumPy's or CuPy's; bfloat16 is taken and given as its uint16 bits. Nothing here is shared with the torch
layer, so that an error of one is no error of the other. How single edges are computed is in `golden_parts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from refnum import softfloat
from refnum.arrays import TILE, Array, float32_bits
from refnum.errors import ArgumentError, ShapeError
from refnum.payload import permute_pad, unpermute
from refnum.swiglu import swiglu_backward

from .golden_parts import (
    ALIGN,
    Averages,
    Parts,
    activation,
    activation_again,
    as_bytes,
    beside,
    columns_operand,
    encode,
    expert_order,
    filled,
    from_wire,
    gradient,
    kept_activation,
    on_host,
    padded,
    places,
    product,
    recode_wire,
    rows_operand,
    second_columns,
    stored,
    taken,
    to_wire,
    transposed,
    viewed,
    weight_gradient,
    weight_parts,
)
from .policies import Policy, get_policy
from .recipes import Draw


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
    seed: int = 0,
    step: int = 0,
    averages: Averages = None,
) -> list[Forward]:
    """Return the forward step of every rank (clause N20).

    Args:
        x: a rank's tokens each, bfloat16 bits u16 [T, K].
        experts: integers [T, top] of each rank, the experts of a token, no expert twice.
        probs: float32 [T, top] of each rank, the weight of each of them.
        w1: bfloat16 bits u16 [experts, 2 * H, K]: gate rows, then up rows.
        w2: bfloat16 bits u16 [experts, K, H].
        policy: a policy or its name.
        seed, step: of the random words of a policy with a recipe (N28.4), the layer's and the training's.
        averages: of the weights of all experts, where they choose codes (N28.6).

    Returns:
        One Forward a rank.

    Raises:
        ArgumentError, ShapeError, DtypeError: an argument that does not fit.
    """
    rules, ranks = get_policy(policy), len(x)
    per = _experts_of_a_rank(w1, w2, ranks)
    chosen = [np.asarray(on_host(one)) for one in experts]
    sent = [tuple(np.flatnonzero((one // per == rank).any(axis=1)) for rank in range(ranks)) for one in chosen]
    payloads = [to_wire(encode(one, rules.dispatched)) for one in x]
    made = []
    for rank in range(ranks):
        received = np.concatenate([taken(payloads[home], sent[home][rank]) for home in range(ranks)])
        where = np.concatenate([chosen[home][sent[home][rank]] for home in range(ranks)]) - rank * per
        weights = np.concatenate([taken(probs[home], sent[home][rank]) for home in range(ranks)])
        part = slice(rank * per, rank * per + per)
        made.append(expert_forward(received, where, weights, w1[part], w2[part], rules,
            Draw(seed, step, rank * per), _of(averages, part)))  # fmt: skip
    steps = []
    for home in range(ranks):
        rows = np.concatenate([_part(made[rank]["returned"], sent, home, rank) for rank in range(ranks)])
        out = _combined(rows, np.concatenate(sent[home]), [len(one) for one in sent[home]], x[home].shape[0], 1)
        steps.append(Forward(sent=sent[home], payload=payloads[home], out=out, **made[home]))
    return steps


def expert_forward(
    received: Array,
    where: np.ndarray,
    weights: Array,
    w1: Array,
    w2: Array,
    policy: Policy,
    draw: Draw | None = None,
    averages: Averages = None,
) -> dict[str, Any]:
    """Return what one rank computes of the rows that it received, as fields of Forward.

    received: u8 [N, bytes of a row]; where: integers [N, top], the rank's own expert of each slot, others out of range;
    weights: float32 [N, top]; w1, w2: of the rank's experts.
    """
    hidden, wide = w1.shape[2], w1.shape[1] // 2
    row_map, slots, splits = expert_order(where, w1.shape[0])
    prob = padded(taken(weights.reshape(-1), row_map * where.shape[1] + slots), splits)
    rows = from_wire(permute_pad(received, beside(row_map, received), splits, ALIGN)[0], policy.dispatched, hidden)
    weight1, weight2 = weight_parts(w1, policy), weight_parts(w2, policy)
    first = rows_operand(rows, policy.dispatched, policy)
    fc1 = product(first, weight1, policy, splits, "fc1", draw, averages)
    gate, up = fc1[:, :wide], fc1[:, wide:]
    second = activation(gate, up, prob, policy)
    fc2 = product(second, weight2, policy, splits, "fc2", draw, averages)
    saved = recode_wire(received, policy.dispatched, policy.saved_input, hidden)
    return {
        "received": received, "row_map": row_map, "splits": splits, "prob": prob, "fc1_weight": weight1,
        "fc2_weight": weight2, "fc1_input": first, "fc1": fc1, "fc2_input": second, "fc2": fc2,
        "returned": _combined(fc2, row_map, splits, received.shape[0], ALIGN), "saved_input": saved,
        "saved_activation": kept_activation(fc1, policy),
        "saved_fc2_input": stored(gate, up, prob, second, policy),
    }  # fmt: skip


def backward(
    steps: Sequence[Forward],
    grads: Sequence[Array],
    experts: Sequence[Any],
    policy: Policy | str = "mxfp4",
    seed: int = 0,
    step: int = 0,
    averages: Averages = None,
) -> list[Backward]:
    """Return the backward step of every rank (clause N20).

    Args:
        steps: what `forward` gave.
        grads: bfloat16 bits u16 [T, K] of each rank, the gradient of its `out`.
        experts: as for `forward`.
        policy, seed, step, averages: the same.

    Returns:
        One Backward a rank.
    """
    rules, ranks = get_policy(policy), len(steps)
    per, sent = len(steps[0].splits), [one.sent for one in steps]
    chosen = [np.asarray(on_host(one)) for one in experts]
    made = []
    for rank, one in enumerate(steps):
        received = np.concatenate([taken(grads[home], sent[home][rank]) for home in range(ranks)])
        made.append(expert_backward(one, received, rules, Draw(seed, step, rank * per),
            _of(averages, slice(rank * per, rank * per + per))))  # fmt: skip
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
            values = taken(made[rank]["dprob"], places(splits)[mine])
            dprobs[beside(tokens, dx), beside(slots[mine], dx)] = values
        found.append(Backward(dx=dx, dprobs=dprobs, **made[home]))
    return found


def expert_backward(
    step: Forward, received: Array, policy: Policy, draw: Draw | None = None, averages: Averages = None
) -> dict[str, Any]:
    """Return what one rank computes of the gradients that it received, bits u16 [N, K], as fields of Backward."""
    hidden, splits, rows = received.shape[1], step.splits, filled(step.splits)
    row_map = beside(step.row_map, received)
    grad = viewed(permute_pad(as_bytes(received), row_map, splits, ALIGN)[0], np.dtype(np.uint16))
    grad_rows, grad_columns = gradient(grad, policy, rows)
    dact = product(grad_rows, transposed(step.fc2_weight, policy), policy, splits, "fc2.dgrad", draw, averages)
    saved = from_wire(permute_pad(step.saved_input, row_map, splits, ALIGN)[0], policy.saved_input, hidden)
    fc1 = activation_again(step.saved_activation, saved, step.fc1_weight, policy, splits, draw, averages)
    gate, up = fc1[:, : fc1.shape[1] // 2], fc1[:, fc1.shape[1] // 2 :]
    dgate, dup, dprob = swiglu_backward(dact, gate, up, step.prob)
    inner_rows, inner_columns = gradient(np.concatenate([dgate, dup], axis=1), policy, rows)
    input_columns = columns_operand(saved, policy.saved_input, policy, rows)
    act_columns = second_columns(step.saved_fc2_input, step.prob, gate, up, policy, rows)
    dx_rows = product(inner_rows, transposed(step.fc1_weight, policy), policy, splits, "fc1.dgrad", draw, averages)
    return {
        "received": received, "fc2_grad": grad_rows, "fc2_grad_columns": grad_columns,
        "fc2_input_columns": act_columns, "dact": dact, "dprob": dprob, "fc1_grad": inner_rows,
        "fc1_grad_columns": inner_columns, "fc1_input_columns": input_columns,
        "dw1": weight_gradient(inner_columns, input_columns, policy, rows, "fc1.wgrad", draw, step.fc1_weight),
        "dw2": weight_gradient(grad_columns, act_columns, policy, rows, "fc2.wgrad", draw, step.fc2_weight),
        "dx_rows": dx_rows,
        "returned": _combined(dx_rows, step.row_map, splits, received.shape[0], ALIGN),
    }  # fmt: skip


def _combined(rows: Array, row_map: np.ndarray, splits: Sequence[int], tokens: int, align: int) -> Array:
    """Return the sums of N12.3 rounded once to bfloat16 bits; a token without rows gives +0."""
    if not row_map.size:
        return np.zeros((tokens, rows.shape[1]), np.uint16, like=rows)
    sums = unpermute(rows, beside(row_map, rows), list(splits), None, tokens, align)
    return softfloat.to_bfloat16(float32_bits(sums))


def _of(averages: Averages, experts: slice) -> Averages:
    """Return the averages of some experts."""
    return None if averages is None else {name: one[experts] for name, one in averages.items()}


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
