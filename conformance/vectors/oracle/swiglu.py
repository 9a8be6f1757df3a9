"""SwiGLU by definition (N11): nothing here calls the model.

The logistic function is computed to 60 decimal digits and rounded once; sums and products are rounded once from exact
rationals by the oracle.
"""

from __future__ import annotations

import functools
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from refnum import oracle

from ..load import Vector
from .exact import policy, widened

ONE, SIGN = 0x3F800000, 0x80000000
_FAR = 200
"""Beyond this gate the logistic function is 1 or 0 to every bit of float32."""


def _logistic(gate: Fraction, times: Fraction) -> Fraction:
    """Return times / (1 + exp(-gate)) to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        whole = Decimal(gate.numerator) / Decimal(gate.denominator)
        return times * Fraction(1 / (1 + (-whole).exp()))


@functools.cache
def sigmoid(bits: int) -> int:
    """Return the float32 bits of the logistic function of a float32 given as bits."""
    value = oracle.float_value(bits)
    if value == oracle.NAN:
        return oracle.float_bits(oracle.NAN)
    if value in (oracle.POS_INF, oracle.NEG_INF) or (isinstance(value, Fraction) and abs(value) > _FAR):
        return 0 if bits & SIGN else ONE
    number = Fraction(0) if value == oracle.NEG_ZERO else Fraction(value)
    return oracle.float_bits(_logistic(number, Fraction(1)))


@functools.cache
def silu(bits: int) -> int:
    """Return the float32 bits of x times the logistic function of x; silu(-Inf) is its limit, -0."""
    value = oracle.float_value(bits)
    if value == oracle.NAN:
        return oracle.float_bits(oracle.NAN)
    if not isinstance(value, Fraction) or value == 0 or abs(value) > _FAR:
        return SIGN if bits & SIGN else bits
    return oracle.float_bits(_logistic(value, value))


def _swiglu(vector: Vector) -> list[list[int]]:
    gates, ups = widened(vector.inputs["gate"]), widened(vector.inputs["up"])
    multiply = oracle.float32_multiply
    out = [[multiply(silu(g), u) for g, u in zip(*rows, strict=True)] for rows in zip(gates, ups, strict=True)]
    if "prob" in vector.inputs:
        weights = vector.inputs["prob"].view(np.uint32).tolist()
        out = [[multiply(r, weight) for r in line] for line, weight in zip(out, weights, strict=True)]
    return out


def swiglu_quantize(vector: Vector) -> Any:
    """N11 forward: the product by single roundings, then the oracle's quantiser."""
    values = [[oracle.float_value(bits) for bits in line] for line in _swiglu(vector)]
    if vector.params["to"] == "mxfp4":
        return oracle.quantize_mxfp4(values, policy(vector))
    return oracle.quantize_fp8_tiles(values, (1, 128), policy(vector)) if values else ([], [])


def swiglu_backward(vector: Vector) -> Any:
    """N11 backward in the stated order."""
    gates, ups, grads = (widened(vector.inputs[name]) for name in ("gate", "up", "grad"))
    weights = vector.inputs["prob"].view(np.uint32).tolist() if "prob" in vector.inputs else [None] * len(gates)
    add, multiply = oracle.float32_add, oracle.float32_multiply
    dgate, dup, dprob = [], [], []
    for gate, up, grad, weight in zip(gates, ups, grads, weights, strict=True):
        terms = []
        for g, u, received in zip(gate, up, grad, strict=True):
            s, y = sigmoid(g), silu(g)
            slope = multiply(s, add(ONE, multiply(g, add(ONE, s ^ SIGN))))
            weighted = received if weight is None else multiply(received, weight)
            dup.append(multiply(weighted, y))
            dgate.append(multiply(multiply(weighted, u), slope))
            terms.append(multiply(received, multiply(y, u)))
        dprob.append(_tree(terms))
    return (dgate, dup) if weights and weights[0] is None else (dgate, dup, dprob)


def _tree(terms: list[int]) -> int:
    while len(terms) > 1:
        terms = terms + [0] * (len(terms) % 2)
        terms = [oracle.float32_add(a, b) for a, b in zip(terms[0::2], terms[1::2], strict=True)]
    return terms[0]
