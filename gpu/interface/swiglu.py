"""SwiGLU with quantisation, and its gradients (clause N11)."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np

from refnum.errors import DtypeError, ShapeError
from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BLOCK
from .call import F32, HALF_BITS, U8, A, Call, Rules

ROWS = 1 << 31
"""Rows that a kernel cannot number."""


class Forward(NamedTuple, Generic[A]):
    """The checked arguments of `swiglu_quantize`. mxfp4: whether the result is MXFP4, else FP8 tiles."""

    gate: A
    up: A
    prob: A | None
    mxfp4: bool
    rules: Rules


class Backward(NamedTuple, Generic[A]):
    """The checked arguments of `swiglu_backward`."""

    grad: A
    gate: A
    up: A
    prob: A | None


def swiglu_quantize(
    call: Call[A],
    gate: Any,
    up: Any,
    prob: Any = None,
    to: str = "fp8",
    profile: Profile | str = HOPPER,
    *,
    out: Any = None,
) -> Forward[A]:
    """Quantise silu(gate) * up, times a weight for each row if given (N11).

    The product is made in float32, one rounding for each operation, and is not stored.

    Args:
        gate: bfloat16 (or its uint16 bits) [M, H], H a multiple of 32.
        up: as gate.
        prob: float32 [M], or None for no weights.
        to: `fp8` or `mxfp4`.
        profile: a profile or its name.
        out: the arrays to write.

    Returns:
        (codes u8 [M, H], scales u8 [M, ceil(H / 128)]), or (packed codes u8 [M, H/2], scales u8 [M, H/32]).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit or that the kernels do not have.
    """
    mxfp4 = bool(checks.choice("to", to, ("fp8", "mxfp4")))
    first, second = _gate_and_up(call, gate, up, BLOCK)
    weights = _weights(call, prob, first)
    rules = checks.rules(get_profile(profile))
    m, h = first.shape
    made = (h // 2, h // BLOCK) if mxfp4 else (h, checks.tiles(h))
    call.outputs(out, [((m, n), U8) for n in made], [first, second, *([] if weights is None else [weights])])
    return Forward(first, second, weights, mxfp4, rules)


def swiglu_backward(call: Call[A], grad: Any, gate: Any, up: Any, prob: Any = None, *, out: Any = None) -> Backward[A]:
    """Return the gradients of SwiGLU, summed in the model's order (N11).

    Args:
        grad: float32 or bfloat16 (or its uint16 bits) [M, H], H >= 1.
        gate: bfloat16 (or its bits) [M, H].
        up: as gate.
        prob: float32 [M], or None for no weights.
        out: the arrays to write: (dgate, dup), and dprob when prob is given.

    Returns:
        (dgate float32 [M, H], dup float32 [M, H], dprob float32 [M] or None without prob).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    first, second = _gate_and_up(call, gate, up, 1)
    received = call.matrix("grad", grad, 1, first)
    if received.dtype != F32 and received.dtype not in HALF_BITS:
        raise DtypeError(f"grad has dtype {received.dtype}; allowed are float32, bfloat16 and uint16 (bfloat16 bits)")
    m, h = first.shape
    if received.shape != (m, h):
        raise ShapeError(f"grad has shape {received.shape}; gate has {(m, h)}, they must be equal")
    if h == 0:
        raise ShapeError(f"gate has shape {(m, h)}; allowed is [M, H] with H >= 1")
    weights = _weights(call, prob, first)
    wanted: list[tuple[tuple[int, ...], np.dtype[Any]]] = [((m, h), F32), ((m, h), F32)]
    if weights is None:
        call.outputs(out, wanted, [received, first, second])
    else:
        call.outputs(out, [*wanted, ((m,), F32)], [received, first, second, weights])
    return Backward(received, first, second, weights)


def three(results: Any) -> Any:
    """Return the results of `swiglu_backward`, None in the place of a dprob that is not there."""
    return results if len(results) == 3 else (*results, None)


def _gate_and_up(call: Call[A], gate: Any, up: Any, multiple: int) -> tuple[A, A]:
    first = call.matrix("gate", gate, multiple)
    second = call.matrix("up", up, 1, first)
    for name, x in (("gate", first), ("up", second)):
        if x.dtype not in HALF_BITS:
            raise DtypeError(f"{name} has dtype {x.dtype}; allowed are bfloat16 and uint16 (bfloat16 bits)")
    if second.shape != first.shape:
        raise ShapeError(f"up has shape {second.shape}; gate has {first.shape}, they must be equal")
    if first.shape[0] >= ROWS:
        raise ShapeError(f"gate has {first.shape[0]} rows; allowed are fewer than 2**31")
    return first, second


def _weights(call: Call[A], prob: Any, gate: A) -> A | None:
    """Return the weights of the rows, None if there are none."""
    return None if prob is None else call.weights("prob", prob, gate, gate.shape[0], "it is one weight a row")
