"""A step of Stable-SPAM in two parts: its scalars, and what it does at each weight (N27.4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from .arguments import require_choice, require_integer
from .arrays import Array
from .division import divide
from .errors import DtypeError
from .optimisers import SpamState, _below_one, _checked, _pair, _single, exact_norm
from .schedules import cosine_factor, rounded_power64
from .softfloat import INF, NAN, add, multiply
from .square_roots import square_root
from .updates import averaged, clipped, stable_spam_apply

MODES = ("code", "paper")
_ZERO = np.float32(0)


@dataclass(frozen=True)
class StableSpamState(SpamState):
    """The state of Stable-SPAM: averages (float32) of the largest gradient, of the norm and of its square."""

    peak: np.float32 = _ZERO
    norm: np.float32 = _ZERO
    square: np.float32 = _ZERO


@dataclass(frozen=True)
class StableSpamFactors:
    """The float32 scalars of a step (N27.4), in the order in which `array` has them.

    decay: of the weight. limit: above it a gradient is divided by largest and multiplied by limit. norm, wanted: where
    norm is above 0 each gradient is divided by it and multiplied by wanted. beta1, rest1, beta2, rest2: of the moments.
    root, eps: the square root of v is divided by root, and eps is added. rate: of the step.
    """

    decay: np.float32
    limit: np.float32
    largest: np.float32
    norm: np.float32
    wanted: np.float32
    beta1: np.float32
    rest1: np.float32
    beta2: np.float32
    rest2: np.float32
    root: np.float32
    eps: np.float32
    rate: np.float32

    @property
    def array(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The scalars, float32 [12], as `stable_spam_apply` takes them."""
        return np.array(astuple(self), np.float32)


def stable_spam_step(
    state: StableSpamState,
    gradient: Array,
    weight: Array,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    gammas: tuple[float, float] = (0.7, 0.9),
    theta: float = 0.999,
    gap: int = 1000,
    steps: int | None = None,
    least: float = 0.5,
    mode: str = "code",
) -> tuple[StableSpamState, Array]:
    """Return (state, weight) after a step of Stable-SPAM (clause N27.4): clip, rescale the norm, reset, Adam.

    Arguments as of `adam_step`; gammas and theta: rates of the averages of the norm, its square and the largest
    gradient, from 0 to below 1; gap: as of `spam_step`; steps: those of the run, over which the first gamma and beta
    fall along a cosine to `least` of themselves, or None; mode: at a reset, `code` steps with the old moments and
    forgets this gradient, `paper` begins from zero moments. Raises DtypeError, ShapeError, ArgumentError.
    """
    _checked(state, StableSpamState, gradient, weight, lr, betas, eps, weight_decay)
    factors, after, forget = stable_spam_factors(
        state, gradient, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, gammas=gammas, theta=theta, gap=gap,
        steps=steps, least=least, mode=mode,
    )  # fmt: skip
    scalars = np.asarray(factors.array, like=gradient)
    weight, m, v = stable_spam_apply(gradient, weight, state.m, state.v, scalars, forget)
    return replace(after, m=m, v=v), weight


def stable_spam_factors(
    state: StableSpamState,
    gradient: Array,
    *,
    largest: Any = None,
    norm: Any = None,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    gammas: tuple[float, float] = (0.7, 0.9),
    theta: float = 0.999,
    gap: int = 1000,
    steps: int | None = None,
    least: float = 0.5,
    mode: str = "code",
) -> tuple[StableSpamFactors, StableSpamState, str]:
    """Return the scalars of a step of Stable-SPAM, all of it that is no work at each weight (clause N27.4).

    Args:
        state: of `StableSpamState.start` or an earlier step.
        gradient: float32 in the shape of the moments.
        largest: the largest magnitude of the gradient as float32, where it was measured elsewhere; None measures it.
        norm: that of the clipped gradient by N27.1 as float32, where it was measured elsewhere; None measures it.
        lr, betas, eps, weight_decay, gammas, theta, gap, steps, least, mode: as of `stable_spam_step`.

    Returns:
        (the factors; the state after the step, with the moments that it had before; when the moments are forgotten, for
        `stable_spam_apply`: "", "before" or "after").

    Raises:
        DtypeError, ShapeError, ArgumentError.
    """
    rates = _checked(state, StableSpamState, gradient, gradient, lr, betas, eps, weight_decay)
    gamma1, gamma2 = _pair("gammas", gammas)
    theta, gap = _below_one("theta", theta), require_integer("gap", gap, 0)
    require_choice("mode", mode, MODES)
    total, step = state.total + 1, state.step + 1
    scale = 1.0
    if steps is not None:
        scale = cosine_factor(total, require_integer("steps", steps, 1), falling=_below_one("least", least))
    beta1, gamma1 = rates.beta1 * scale, gamma1 * scale
    words = gradient.view(np.uint32)
    top = _given("largest", largest, lambda: _largest(words))
    peak = averaged(_word(state.peak), _word(theta), top, _word(1 - theta))
    limit = divide(peak, _word(1 - rounded_power64(theta, step)))
    length = _given("norm", norm, lambda: _word(exact_norm(clipped(words, limit, top).view(np.float32))))
    first = averaged(_word(state.norm), _word(gamma1), length, _word(1 - gamma1))
    second = averaged(_word(state.square), _word(gamma2), multiply(length, length), _word(1 - gamma2))
    below1, below2 = (_word(1 - rounded_power64(gamma, step)) for gamma in (gamma1, gamma2))
    spread = add(square_root(divide(second, below2)), _word(rates.eps))
    wanted = divide(divide(first, below1), spread)
    reset = gap > 0 and total % gap == 0
    step = 1 if reset else step
    one, two = (1 - rounded_power64(beta, step) for beta in (beta1, rates.beta2))
    factors = StableSpamFactors(
        _single(1 - rates.lr * rates.decay), _number(limit), _number(top), _number(length), _number(wanted),
        _single(beta1), _single(1 - beta1), _single(rates.beta2), _single(1 - rates.beta2), _single(math.sqrt(two)),
        _single(rates.eps), _single(rates.lr / one),
    )  # fmt: skip
    after = replace(state, step=step, total=total, peak=_number(peak), norm=_number(first), square=_number(second))
    return factors, after, ("after" if mode == "code" else "before") if reset else ""


def _given(name: str, value: Any, measured: Callable[[], np.uint32]) -> np.uint32:
    """Return the bits of a number that was measured elsewhere, or here; DtypeError unless it is one float32."""
    if value is None:
        return measured()
    if getattr(value, "dtype", None) != np.float32 or getattr(value, "size", 0) != 1:
        raise DtypeError(f"{name} is a {type(value).__name__}; allowed is one float32, a scalar or an array of one")
    return _whole(value.reshape(()).view(np.uint32))


def _largest(words: Array) -> np.uint32:
    """The bits of the largest magnitude of float32 bits, 0 of none."""
    return _whole((words & np.uint32(0x7FFFFFFF)).max()) if words.size else np.uint32(0)


def _whole(bits: Any) -> np.uint32:
    """float32 bits of NumPy or of a device as a scalar of NumPy; NaN is 0x7FC00000."""
    found = np.uint32(int(bits))
    return NAN if found & np.uint32(0x7FFFFFFF) > INF else found


def _word(x: float | np.float32) -> np.uint32:
    """The bits of a float64 scalar rounded once to float32."""
    return np.float32(x).view(np.uint32)


def _number(bits: Any) -> np.float32:
    return np.float32(np.uint32(bits).view(np.float32))
