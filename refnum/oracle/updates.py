"""What a step of an optimiser does at one weight, float32 bits in and out, by exact rationals (clause N27.7)."""

from __future__ import annotations

from collections.abc import Sequence

from .nvfp4 import float32_divide
from .optimisers import _greater, _minus, float32_root
from .tables import NAN
from .values import float32_add, float32_multiply, float_value

Step = tuple[int, int, int]
_SIGN = 2**31


def _moments(g: int, m: int, v: int, scalars: Sequence[int]) -> tuple[int, int]:
    beta1, rest1, beta2, rest2 = scalars
    m = float32_add(float32_multiply(m, beta1), float32_multiply(g, rest1))
    return m, float32_add(float32_multiply(v, beta2), float32_multiply(float32_multiply(g, g), rest2))


def _moved(w: int, rate: int, m: int, below: int) -> int:
    return float32_add(w, _minus(float32_multiply(rate, float32_divide(m, below))))


def _above(a: int, b: int) -> bool:
    """Whether a > b of float32 of any sign, where a is not negative; NaN is in no order."""
    if NAN in (float_value(a), float_value(b)):
        return False
    return _greater(a, b) if b < _SIGN else a != 0 or b != _SIGN


def adam(g: int, w: int, m: int, v: int, factors: Sequence[int]) -> Step:
    """Return weight and moments after a step of Adam."""
    decay, root, eps, rate = factors[0], *factors[5:]
    m, v = _moments(g, m, v, factors[1:5])
    below = float32_add(float32_divide(float32_root(v), root), eps)
    return _moved(float32_multiply(w, decay), rate, m, below), m, v


def spam(g: int, w: int, m: int, v: int, factors: Sequence[int], clip: bool, reset: bool, decay: bool) -> Step:
    """Return weight and moments after a step of SPAM."""
    threshold, eps, rate, rest = factors[0], *factors[5:]
    if reset:
        m = v = 0
    if clip:
        limit = float32_multiply(v, threshold)
        if _above(float32_multiply(g, g), limit):
            root = float32_root(limit)
            g = root if float_value(root) == NAN else root % _SIGN | g & _SIGN
    m, v = _moments(g, m, v, factors[1:5])
    w = _moved(w, rate, m, float32_add(float32_root(v), eps))
    return (float32_add(w, _minus(float32_multiply(rest, w))) if decay else w), m, v


def stable_spam(g: int, w: int, m: int, v: int, factors: Sequence[int], forget: str) -> Step:
    """Return weight and moments after a step of Stable-SPAM."""
    decay, limit, largest, norm, wanted = factors[:5]
    if forget == "before":
        m = v = 0
    if _above(g % _SIGN, limit):
        g = float32_multiply(float32_divide(g, largest), limit)
    if norm < _SIGN and _above(norm, 0):
        g = float32_multiply(float32_divide(g, norm), wanted)
    w, m, v = adam(g, w, m, v, (decay, *factors[5:]))
    return (w, 0, 0) if forget == "after" else (w, m, v)
