"""Explain one element of SwiGLU and of its backward pass: the table's value, then every float32 operation (N11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .arrays import float32_bits
from .float_steps import Chain, Explained, Place, Room, agreed, bits_at, float_text, of, result_bits, taken
from .softfloat import add, multiply
from .swiglu import sigmoid, silu, swiglu, swiglu_backward

_ONE = 0x3F800000


def _function(chain: Chain, name: str, function: Any, gate: Any, at: Place) -> int:
    """A value of silu or of the logistic function, which the frozen table holds."""
    found = int(function(np.asarray(gate)[at].reshape(1))[0])
    chain.say(name, f"of {float_text(bits_at(gate, at))}, rounded once: {float_text(found)}", "N11.1")
    return found


def gated_steps(arguments: Mapping[str, Any], at: Place) -> Explained:
    """Return the steps of what `swiglu_quantize` quantises at a place, and its float32 bits."""
    given = taken(arguments, "gate up", "prob")
    result, chain = swiglu(**given), Chain("N11.2")
    chain.element(gate=bits_at(given["gate"], at), up=bits_at(given["up"], at))
    bits = chain.multiply("y * up", _function(chain, "silu", silu, given["gate"], at), bits_at(given["up"], at))
    if given.get("prob") is not None:
        bits = chain.multiply("y * up * prob", bits, bits_at(given["prob"], at[:1]))
    return chain.steps, agreed({"r": bits}, r=result_bits(result, at))


def _backward(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "grad gate up", "prob")
    results, prob = swiglu_backward(**given), given.get("prob")
    chain, (grad, gate, up) = Chain("N11.3"), (bits_at(given[name], at) for name in ("grad", "gate", "up"))
    chain.element(grad=grad, gate=gate, up=up)
    s, y = (_function(chain, one.__name__, one, given["gate"], at) for one in (sigmoid, silu))
    t = chain.subtract("t", _ONE, s)
    v = chain.add("v", _ONE, chain.multiply("g * t", gate, t))
    d = chain.multiply("d", s, v)
    weighted = grad if prob is None else chain.multiply("gp", grad, bits_at(prob, at[:1]))
    found = {"dgate": 0, "dup": chain.multiply("dup", weighted, y)}
    found["dgate"] = chain.multiply("dgate", chain.multiply("gp * up", weighted, up), d)
    golden = {name: result_bits(one, at) for name, one in zip(("dgate", "dup"), results, strict=False)}
    if prob is not None:
        term = chain.multiply("grad * y * up", grad, chain.multiply("y * up", y, up))
        found["dprob"] = _sum(chain, given, at, term)
        golden["dprob"] = result_bits(results[2], at[:1])
    return chain.steps, agreed(found, **golden)


def _sum(chain: Chain, given: Mapping[str, Any], at: Place, term: int) -> int:
    """N11.4: the sums above one term of a row, to the last; what they are added to is of the model."""
    grads, ups = (float32_bits(np.ascontiguousarray(np.asarray(given[name])[at[0]])) for name in ("grad", "up"))
    terms = multiply(grads, multiply(silu(np.ascontiguousarray(np.asarray(given["gate"])[at[0]])), ups))
    chain.clause, place = "N11.4", at[1]
    while len(terms) > 1:
        terms = np.concatenate([terms, np.zeros(len(terms) % 2, np.uint32)])
        pair = [term if one == place else int(terms[one]) for one in (place & ~1, place | 1)]
        terms, place = add(terms[0::2], terms[1::2]), place // 2
        term = chain.add(f"sum {place} of {len(terms)}", *pair)
    chain.say("dprob", f"of {len(grads)} terms: {float_text(term)}")
    return term


SWIGLU: Room = {"swiglu_backward": (of("gate"), _backward)}
