"""Steps of Adam, SPAM and Stable-SPAM by exact rationals, one number at a time (clause N27)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from math import isqrt

from .nvfp4 import float32_divide
from .tables import NAN, NEG_INF, POS_INF
from .values import float32_add, float32_multiply, float_bits, float_value, is_negative, number

Bits = Sequence[int]
_ONE = 0x3F800000
_PI = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"


def _root(square: Fraction) -> Fraction:
    """A rational that rounds as the root of another does: exact, or with a last bit that stands for the rest."""
    scale = 4 ** max(0, 80 - square.numerator.bit_length() + square.denominator.bit_length())
    whole = square.numerator * scale // square.denominator
    root = isqrt(whole)
    rest = root * root != whole or whole * square.denominator != square.numerator * scale
    return Fraction(2 * root + rest, 2 * isqrt(scale))


def float32_root(a: int) -> int:
    """Return the bits of the correctly rounded square root of a float32 given as bits."""
    x = float_value(a)
    if x == NAN or (is_negative(x) and x != "-0"):
        return float_bits(NAN)
    return a if x == POS_INF or number(x) == 0 else float_bits(_root(number(x)))


def _minus(a: int) -> int:
    return a ^ 2**31


def _scalar(x: float | Fraction) -> int:
    return float_bits(Fraction(x))


def power64(base: float, power: int) -> float:
    """Return base**power rounded once to float64."""
    return float(Fraction(base) ** power)


def cosine64(place: int, length: int, falling: float | None = None) -> float:
    """Return the point of a half cosine wave by decimals of 90 digits."""
    with localcontext(prec=95):
        angle = Decimal(_PI) * (place % (2 * length + 2)) / (length + 1)
        term, total, n = Decimal(1), Decimal(1), 0
        while abs(term) > Decimal(10) ** -85 or n < 20:
            n += 2
            term = -term * angle * angle / (n * (n - 1))
            total += term
        wave = (1 + total) / 2
        if falling is None:
            return float(Fraction(1 - Decimal("0.99") * wave))
        return float(Fraction(falling) + (1 - Fraction(falling)) * Fraction(wave))


@dataclass(frozen=True)
class State:
    """Bits of moments and of averages, and counts; zero in the beginning."""

    m: Bits
    v: Bits
    step: int = 0
    total: int = 0
    peak: int = 0
    norm: int = 0
    square: int = 0


@dataclass(frozen=True)
class Rates:
    """Numbers of a step."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    more: dict[str, float] = field(default_factory=dict)


def _average(old: int, new: int, beta: float) -> int:
    return float32_add(float32_multiply(_scalar(beta), old), float32_multiply(_scalar(1 - beta), new))


def _moments(state: State, gradient: Bits, betas: tuple[float, float]) -> tuple[list[int], list[int]]:
    m = [_average(old, g, betas[0]) for old, g in zip(state.m, gradient, strict=True)]
    v = [_average(old, float32_multiply(g, g), betas[1]) for old, g in zip(state.v, gradient, strict=True)]
    return m, v


def _step(
    state: State, gradient: Bits, weight: Bits, rates: Rates, betas: tuple[float, float]
) -> tuple[State, list[int]]:
    m, v = _moments(state, gradient, betas)
    second = _scalar(float(_root(Fraction(1 - power64(betas[1], state.step)))))
    rate = _scalar(rates.lr / (1 - power64(betas[0], state.step)))
    out = []
    for w, a, b in zip(weight, m, v, strict=True):
        below = float32_add(float32_divide(float32_root(b), second), _scalar(rates.eps))
        out.append(float32_add(w, _minus(float32_multiply(rate, float32_divide(a, below)))))
    return replace(state, m=m, v=v), out


def _decayed(weight: Bits, rates: Rates) -> list[int]:
    factor = _scalar(1 - rates.lr * rates.weight_decay)
    return [float32_multiply(w, factor) for w in weight]


def adam(state: State, gradient: Bits, weight: Bits, rates: Rates) -> tuple[State, list[int]]:
    """Return the state and the bits of the weight after a step of Adam (N27.2)."""
    after = replace(state, step=state.step + 1)
    return _step(after, gradient, _decayed(weight, rates), rates, rates.betas)


def spam(state: State, gradient: Bits, weight: Bits, rates: Rates) -> tuple[State, list[int]]:
    """Return the state and the bits of the weight after a step of SPAM (N27.3)."""
    gap, warmup, quiet = (int(rates.more[name]) for name in ("gap", "warmup", "quiet"))
    total, step = state.total + 1, state.step + 1
    if gap and total % gap == 0:
        state = replace(state, m=[0] * len(weight), v=[0] * len(weight))
    if rates.more["threshold"] and total >= quiet and (gap == 0 or total % gap >= quiet):
        limits = [float32_multiply(b, _scalar(rates.more["threshold"])) for b in state.v]
        gradient = [_spike(g, limit) for g, limit in zip(gradient, limits, strict=True)]
    m, v = _moments(state, gradient, rates.betas)
    corrections = [1 - power64(beta, step) for beta in rates.betas]
    rate = rates.lr * (float(_root(Fraction(corrections[1]))) / corrections[0])
    if gap and total >= gap and total % gap < warmup:
        rate *= cosine64(total % gap, warmup)
    out = []
    for w, a, b in zip(weight, m, v, strict=True):
        quotient = float32_divide(a, float32_add(float32_root(b), _scalar(rates.eps)))
        w = float32_add(w, _minus(float32_multiply(_scalar(rate), quotient)))
        if rates.weight_decay:
            w = float32_add(w, _minus(float32_multiply(_scalar(rates.lr * rates.weight_decay), w)))
        out.append(w)
    return replace(state, m=m, v=v, step=step, total=total), out


def _spike(g: int, limit: int) -> int:
    if not _greater(float32_multiply(g, g), limit):
        return g
    return float32_root(limit) | g & 2**31


def _greater(a: int, b: int) -> bool:
    """Whether a > b of float32 that are not negative; NaN is in no order."""
    return NAN not in (float_value(a), float_value(b)) and a % 2**31 > b % 2**31


def norm(gradient: Bits) -> int:
    """Return the bits of the exact norm, rounded once (N27.1)."""
    values = [float_value(g) for g in gradient]
    if NAN in values:
        return float_bits(NAN)
    if POS_INF in values or NEG_INF in values:
        return float_bits(POS_INF)
    total = sum((number(v) ** 2 for v in values), Fraction(0))
    return float_bits(_root(total)) if total else 0


def stable_spam(
    state: State, gradient: Bits, weight: Bits, rates: Rates, mode: str = "code"
) -> tuple[State, list[int]]:
    """Return the state and the bits of the weight after a step of Stable-SPAM (N27.4)."""
    more, total, step = rates.more, state.total + 1, state.step + 1
    scale = cosine64(total, int(more["steps"]), more["least"]) if "steps" in more else 1.0
    weight = _decayed(weight, rates)
    nan = any(float_value(g) == NAN for g in gradient)
    largest = float_bits(NAN) if nan else max((g % 2**31 for g in gradient), default=0)
    peak = _average(state.peak, largest, more["theta"])
    limit = float32_divide(peak, _scalar(1 - power64(more["theta"], step)))
    gradient = [
        float32_multiply(float32_divide(g, largest), limit) if _greater(g % 2**31, limit) else g for g in gradient
    ]
    gamma1, gamma2, size = more["gamma1"] * scale, more["gamma2"], norm(gradient)
    first = _average(state.norm, size, gamma1)
    second = _average(state.square, float32_multiply(size, size), gamma2)
    mean = float32_divide(first, _scalar(1 - power64(gamma1, step)))
    root = float32_root(float32_divide(second, _scalar(1 - power64(gamma2, step))))
    wanted = float32_divide(mean, float32_add(root, _scalar(rates.eps)))
    if _greater(size, 0):
        gradient = [float32_multiply(float32_divide(g, size), wanted) for g in gradient]
    reset, zeros = bool(more["gap"]) and total % int(more["gap"]) == 0, [0] * len(weight)
    before = replace(state, step=1 if reset else step, total=total, peak=peak, norm=first, square=second)
    if reset and mode == "paper":
        before = replace(before, m=zeros, v=zeros)
    after, out = _step(before, gradient, weight, rates, (rates.betas[0] * scale, rates.betas[1]))
    return (replace(after, m=zeros, v=zeros) if reset and mode == "code" else after), out
