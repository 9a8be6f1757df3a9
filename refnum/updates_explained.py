"""Explain what a step of an optimiser does at one weight: every float32 operation in its order (clause N27)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .float_steps import Chain, Explained, Place, Room, agreed, bits_at, float_text, is_above, of, result_bits, taken
from .softfloat import SIGN
from .updates import adam_apply, spam_apply, stable_spam_apply

_ARRAYS = ("gradient", "weight", "m", "v")
_SIGN = int(SIGN)


def _begin(arguments: Mapping[str, Any], at: Place, clause: str) -> tuple[Chain, list[int], list[int]]:
    """Return the chain with its first steps, the bits of gradient, weight, m and v, and those of the scalars."""
    chain, given = Chain(clause), {name: bits_at(arguments[name], at) for name in _ARRAYS}
    chain.element(**given)
    return chain, [*given.values()], [int(bits) for bits in np.asarray(arguments["factors"]).view(np.uint32)]


def _end(chain: Chain, at: Place, results: Any, *found: int) -> Explained:
    names = ("weight", "m", "v")
    golden = {name: result_bits(one, at) for name, one in zip(names, results, strict=True)}
    return chain.steps, agreed(dict(zip(names, found, strict=True)), **golden)


def _moments(chain: Chain, g: int, m: int, v: int, *scalars: int) -> tuple[int, int]:
    """N27.2, 2."""
    beta1, rest1, beta2, rest2 = scalars
    m = chain.add("m", chain.multiply("m * beta1", m, beta1), chain.multiply("g * rest1", g, rest1))
    square = chain.multiply("g * g", g, g)
    return m, chain.add("v", chain.multiply("v * beta2", v, beta2), chain.multiply("g * g * rest2", square, rest2))


def _adam_parts(chain: Chain, g: int, w: int, m: int, v: int, *scalars: int) -> tuple[int, int, int]:
    """N27.2, 2 to 4, w being that of part 1."""
    beta1, rest1, beta2, rest2, root, eps, rate = scalars
    m, v = _moments(chain, g, m, v, beta1, rest1, beta2, rest2)
    corrected = chain.divide("root / correction", chain.root("root of v", v), root)
    quotient = chain.divide("m / d", m, chain.add("d", corrected, eps))
    return chain.subtract("weight", w, chain.multiply("rate * m / d", rate, quotient)), m, v


def _adam(arguments: Mapping[str, Any], at: Place) -> Explained:
    results = adam_apply(**taken(arguments, "gradient weight m v factors"))
    chain, (g, w, m, v), (decay, *scalars) = _begin(arguments, at, "N27.2")
    w = chain.multiply("w * decay", w, decay)
    return _end(chain, at, results, *_adam_parts(chain, g, w, m, v, *scalars))


def _spam(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "gradient weight m v factors", "clip reset decay")
    results = spam_apply(**given)
    chain, (g, w, m, v), scalars = _begin(arguments, at, "N27.3")
    threshold, beta1, rest1, beta2, rest2, eps, rate, rest = scalars
    if given.get("reset", False):
        m = v = 0
        chain.say("reset", "m and v become 0")
    if given.get("clip", True):
        limit, square = chain.multiply("v * threshold", v, threshold), chain.multiply("spike", g, g)
        if is_above(square, limit):
            g = chain.root("root of limit", limit) & ~_SIGN | g & _SIGN
            chain.say("gradient", f"clipped, since g * g is above v * threshold: {float_text(g)}")
        else:
            chain.say("gradient", "kept, since g * g is not above v * threshold")
    m, v = _moments(chain, g, m, v, beta1, rest1, beta2, rest2)
    quotient = chain.divide("m / d", m, chain.add("d", chain.root("root of v", v), eps))
    w = chain.subtract("weight", w, chain.multiply("rate * m / d", rate, quotient))
    if given.get("decay", False):
        w = chain.subtract("weight", w, chain.multiply("decay * w", rest, w))
    return _end(chain, at, results, w, m, v)


def _stable(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "gradient weight m v factors", "forget")
    results, forget = stable_spam_apply(**given), given.get("forget", "")
    chain, (g, w, m, v), scalars = _begin(arguments, at, "N27.4")
    decay, limit, largest, norm, wanted, *rates = scalars
    w = chain.multiply("w * decay", w, decay)
    if is_above(g & ~_SIGN, limit):
        g = chain.multiply("gradient", chain.divide("g / largest", g, largest), limit)
    else:
        chain.say("gradient", f"kept, since its magnitude is not above {float_text(limit)}")
    if is_above(norm, 0):
        g = chain.multiply("gradient", chain.divide("g / norm", g, norm), wanted)
    else:
        chain.say("gradient", f"kept, since the norm {float_text(norm)} is not above 0")
    if forget == "before":
        m = v = 0
        chain.say("forget", "m and v become 0")
    chain.clause = "N27.2"
    w, m, v = _adam_parts(chain, g, w, m, v, *rates)
    if forget == "after":
        m = v = 0
        for name in ("m", "v"):
            chain.say(name, f"forgotten: {float_text(0)}", "N27.4")
    return _end(chain, at, results, w, m, v)


UPDATES: Room = {
    "adam_apply": (of("gradient"), _adam),
    "spam_apply": (of("gradient"), _spam),
    "stable_spam_apply": (of("gradient"), _stable),
}
