"""Steps of Adam and SPAM on float32 state: every operation one rounding, in the released order (N27)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from .arguments import require_integer
from .arrays import Array, require_array
from .errors import ArgumentError, DtypeError, ShapeError, shown
from .interchange import door
from .schedules import cosine_factor, rounded_power64
from .softfloat import INF, NAN, _round
from .updates import adam_apply, spam_apply

State = TypeVar("State", bound="AdamState")


@door
def _zeros(weight: Array) -> Array:
    require_array("weight", weight)
    return np.zeros(weight.shape, dtype=np.float32, like=weight)


@dataclass(frozen=True)
class AdamState:
    """Moments of a weight and how often it was stepped.

    m, v: float32 in the weight's shape. step: the exponent of the bias corrections after the next step is one more.
    """

    m: Array
    v: Array
    step: int = 0

    @classmethod
    def start(cls: type[State], weight: Array) -> State:
        """Return the state of a weight that has had no step."""
        zeros = _zeros(weight)
        return cls(zeros, zeros)


@dataclass(frozen=True)
class SpamState(AdamState):
    """The state of SPAM: total is the number of steps, never set back."""

    total: int = 0


def adam_step(
    state: AdamState,
    gradient: Array,
    weight: Array,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> tuple[AdamState, Array]:
    """Return (state, weight) after a step of Adam with decoupled weight decay (clause N27.2).

    state: of `AdamState.start` or an earlier step. gradient, weight: float32 of one shape.
    lr, eps, weight_decay: numbers from 0; betas: two from 0 to below 1. Raises DtypeError, ShapeError, ArgumentError.
    """
    rates = _checked(state, AdamState, gradient, weight, lr, betas, eps, weight_decay)
    step = state.step + 1
    factors = adam_factors(rates, step)
    weight, m, v = adam_apply(gradient, weight, state.m, state.v, np.asarray(factors, like=gradient))
    return replace(state, m=m, v=v, step=step), weight


def adam_factors(rates: Any, step: int) -> np.ndarray:
    """The scalars of `adam_apply` (N27.7) of a step, float32 [8]."""
    first, second = (1 - rounded_power64(beta, step) for beta in (rates.beta1, rates.beta2))
    found = (1 - rates.lr * rates.decay, rates.beta1, 1 - rates.beta1, rates.beta2, 1 - rates.beta2,
             math.sqrt(second), rates.eps, rates.lr / first)  # fmt: skip
    return np.array(found, np.float64).astype(np.float32)


def spam_step(
    state: SpamState,
    gradient: Array,
    weight: Array,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    threshold: float = 5000.0,
    gap: int = 500,
    warmup: int = 150,
    quiet: int = 20,
) -> tuple[SpamState, Array]:
    """Return (state, weight) after a step of SPAM (clause N27.3): spikes clipped, moments reset every `gap` steps.

    Arguments as of `adam_step`; threshold: of g**2 against v, 0 for no clipping; gap: 0 for no reset; warmup: steps of
    small rates after a reset; quiet: steps after one in which nothing is clipped. Raises DtypeError, ShapeError,
    ArgumentError.
    """
    rates = _checked(state, SpamState, gradient, weight, lr, betas, eps, weight_decay)
    gap, warmup, quiet = (require_integer(n, x, 0) for n, x in (("gap", gap), ("warmup", warmup), ("quiet", quiet)))
    spike, total = _number("threshold", threshold), state.total + 1
    reset = gap > 0 and total % gap == 0
    clip = bool(spike) and total >= quiet and (not gap or total % gap >= quiet)
    step = state.step + 1
    first, second = (1 - rounded_power64(beta, step) for beta in (rates.beta1, rates.beta2))
    since = total % gap if gap and total >= gap else warmup
    rate = rates.lr * (math.sqrt(second) / first) * (cosine_factor(since, warmup) if since < warmup else 1.0)
    found = (spike, rates.beta1, 1 - rates.beta1, rates.beta2, 1 - rates.beta2, rates.eps, rate, rates.lr * rates.decay)
    factors = np.asarray(np.array(found, np.float64).astype(np.float32), like=gradient)
    weight, m, v = spam_apply(gradient, weight, state.m, state.v, factors, clip, reset, bool(rates.decay))
    return replace(state, m=m, v=v, step=step, total=total), weight


@dataclass(frozen=True)
class _Rates:
    lr: float
    beta1: float
    beta2: float
    eps: float
    decay: float


def _checked(state: Any, kind: Any, gradient: Any, weight: Any, lr: Any, betas: Any, eps: Any, decay: Any) -> _Rates:
    """Return the rates of a step; raise unless all arguments fit."""
    if type(state) is not kind:
        raise ArgumentError(f"state is {shown(state)}; allowed is {kind.__name__}, by its `start` or an earlier step")
    for name, array in (("weight", weight), ("gradient", gradient), ("state.m", state.m), ("state.v", state.v)):
        require_array(name, array)
        if array.dtype != np.float32:
            raise DtypeError(f"{name} has dtype {array.dtype}; allowed is float32")
        if tuple(array.shape) != tuple(weight.shape):
            raise ShapeError(f"{name} has shape {tuple(array.shape)}; allowed is that of weight, {tuple(weight.shape)}")
    return _Rates(_number("lr", lr), *_pair("betas", betas), _number("eps", eps), _number("weight_decay", decay))


def _number(name: str, value: Any) -> float:
    plain = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not plain or not 0 <= value < 2**100:
        raise ArgumentError(f"{name} is {shown(value)}; allowed are numbers from 0 to below 2**100")
    return float(value)


def _below_one(name: str, value: Any) -> float:
    found = _number(name, value)
    if found >= 1:
        raise ArgumentError(f"{name} is {shown(value)}; allowed are numbers from 0 to below 1")
    return found


def _pair(name: str, value: Any) -> tuple[float, float]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ArgumentError(f"{name} is {shown(value)}; allowed are two numbers from 0 to below 1")
    return _below_one(f"{name}[0]", value[0]), _below_one(f"{name}[1]", value[1])


def _single(x: float) -> np.float32:
    """A float64 scalar as it meets a float32 array: rounded once."""
    return np.float32(x)


def exact_norm(x: Array) -> np.float32:
    """Return the root of the exact sum of squares of float32 numbers, rounded once (N27.1). Raises DtypeError."""
    require_array("x", x)
    if x.dtype != np.float32:
        raise DtypeError(f"x has dtype {x.dtype}; allowed is float32")
    magnitude = np.ascontiguousarray(x, like=x).reshape(-1).view(np.uint32) & np.uint32(0x7FFFFFFF)
    if x.size and int(magnitude.max()) >= int(INF):
        return np.uint32(NAN if int(magnitude.max()) > int(INF) else INF).view(np.float32)
    field = np.maximum(magnitude >> np.uint32(23), np.uint32(1))
    hidden = np.where(magnitude >= np.uint32(0x800000), np.uint32(0x800000), np.uint32(0))
    significand = ((magnitude & np.uint32(0x7FFFFF)) | hidden).astype(np.uint64)
    squares, total = significand * significand, 0
    for one in range(1, 255):
        chosen = field == np.uint32(one)
        if chosen.any():
            total += _sum_of(squares[chosen]) << 2 * (one - 1)
    return _root(total)


def _sum_of(squares: Array) -> int:
    """The exact sum of integers below 2**48, by halves."""
    return (int((squares >> np.uint64(24)).sum()) << 24) + int((squares & np.uint64(0xFFFFFF)).sum())


def _root(total: int) -> np.float32:
    """The float32 nearest to the root of an integer in units of 2**-298."""
    if not total:
        return np.float32(0)
    shift = max(0, 61 - total.bit_length()) & ~1
    cut = max(0, total.bit_length() - 61) + 1 & ~1
    word = total << shift >> cut
    root = math.isqrt(word)
    exact = root * root == word and total << shift == word << cut
    bits = _round(np.array([2 * root + (not exact)], np.uint64), np.array([(cut - shift) // 2 - 150], np.int32))
    return np.float32(bits.astype(np.uint32).view(np.float32)[0])
