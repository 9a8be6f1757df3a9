"""Wrong rules of optimiser steps (N27): parts left out, in another order, fused, or with another epsilon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..cases.case import Case
from .tools import Outputs, Rule, changed

Array = np.ndarray
ZERO = np.float32(0)


@dataclass(frozen=True)
class Step:
    """A step in parts that a wrong rule exchanges: the averages of both moments, what the first moment is divided by
    and which one it is, and how the weight moves."""

    average: Callable[[Array, np.float32, Array, np.float32], Array] = lambda old, beta, new, rest: (
        old * beta + new * rest
    )
    below: Callable[[Array, np.float32, np.float32], Array] = lambda v, root, eps: np.sqrt(v) / root + eps
    first: Callable[[Array, np.float32, Array, np.float32], Array] | None = None
    divide: Callable[[Array, Array], Array] = lambda m, below: m / below
    move: Callable[[Array, np.float32, Array, Array], Array] | None = None
    square_later: bool = False
    old: bool = False
    decays: bool = True
    clamps: bool = False
    scales: bool = True
    signed: bool = True
    clips: bool = True
    by_new: bool = False
    decay_first: bool = False
    reset_after: bool = False

    def moments(self, m: Array, v: Array, gradient: Array, rates: list[np.float32]) -> tuple[Array, Array]:
        """Both moments after the gradient. rates: beta1, rest1, beta2, rest2."""
        beta1, rest1, beta2, rest2 = rates
        first = (self.first or self.average)(m, beta1, gradient, rest1)
        if self.square_later:
            return first, v * beta2 + rest2 * gradient * gradient
        return first, self.average(v, beta2, gradient * gradient, rest2)

    def moved(self, weight: Array, rate: np.float32, m: Array, below: Array) -> Array:
        """The weight after the step."""
        return self.move(weight, rate, m, below) if self.move else weight - rate * self.divide(m, below)


def _out(weight: Array, m: Array, v: Array) -> Outputs:
    found = {"weight": weight, "m": m, "v": v}
    return {n: np.where(np.isnan(a), np.float32(np.nan), a).astype(np.float32) for n, a in found.items()}


def _adam(case: Case, s: Step, gradient: Array, scalars: list[np.float32], forget: str = "") -> Outputs:
    decay, *rates, root, eps, rate = scalars
    m, v = (np.zeros_like(gradient) if forget == "before" else case.inputs[name] for name in ("m", "v"))
    weight: Array = case.inputs["weight"] * (decay if s.decays else np.float32(1))
    first, second = s.moments(m, v, gradient, rates)
    weight = s.moved(weight, rate, m if s.old else first, s.below(second, root, eps))
    return _out(weight, first * 0 if forget == "after" else first, second * 0 if forget == "after" else second)


def _spam(case: Case, s: Step, gradient: Array, scalars: list[np.float32]) -> Outputs:
    threshold, beta1, rest1, beta2, rest2, eps, rate, rest = scalars
    p, weight = case.params, case.inputs["weight"]
    early = p["reset"] and not s.reset_after
    m, v = (np.zeros_like(gradient) if early else case.inputs[name] for name in ("m", "v"))
    if p["clip"] and s.clips:
        limit = (s.average(v, beta2, gradient * gradient, rest2) if s.by_new else v) * threshold
        root = np.sqrt(limit)
        gradient = np.where(gradient * gradient > limit, np.copysign(root, gradient) if s.signed else root, gradient)
    first, second = s.moments(m, v, gradient, [beta1, rest1, beta2, rest2])
    if p["decay"] and s.decay_first:
        weight = weight - rest * weight
    weight = s.moved(weight, rate, m if s.old else first, s.below(second, np.float32(1), eps))
    if p["decay"] and not s.decay_first:
        weight = weight - rest * weight
    late = p["reset"] and s.reset_after
    return _out(weight, np.zeros_like(first) if late else first, np.zeros_like(second) if late else second)


def _stable(case: Case, s: Step, gradient: Array, scalars: list[np.float32]) -> Outputs:
    decay, limit, largest, norm, wanted, *rest = scalars
    over = np.copysign(limit, gradient) if s.clamps else gradient / largest * limit
    gradient = np.where(np.abs(gradient) > limit, over, gradient)
    if s.scales:
        gradient = np.where(norm > 0, gradient / norm * wanted, gradient)
    return _adam(case, s, gradient, [decay, *rest], case.params["forget"])


def rule(step: Step) -> Rule:
    """Return the rule of a kernel whose step is this one."""
    ways = {"adam_apply": _adam, "spam_apply": _spam, "stable_spam_apply": _stable}

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        return ways[case.operation](case, step, case.inputs["gradient"], list(case.inputs["factors"].reshape(-1)))

    return wrong


def fused_average(old: Array, beta: np.float32, new: Array, rest: np.float32) -> Array:
    """An average whose second product is not rounded before it is added."""
    return ((old * beta).astype(np.float64) + new.astype(np.float64) * np.float64(rest)).astype(np.float32)


def interpolated(old: Array, beta: np.float32, new: Array, rest: np.float32) -> Array:
    """An average as the old number and a part of the way to the new one."""
    return old + rest * (new - old)


def fused_move(weight: Array, rate: np.float32, m: Array, below: Array) -> Array:
    """A weight whose step is not rounded before it is subtracted."""
    return (weight.astype(np.float64) - np.float64(rate) * (m / below).astype(np.float64)).astype(np.float32)


def rate_first(weight: Array, rate: np.float32, m: Array, below: Array) -> Array:
    """A weight whose step multiplies the moment by the rate before it divides."""
    return weight - rate * m / below


def near_root(v: Array) -> Array:
    """A root as the number times its rounded reciprocal root: one float32 step off at 28 % of the numbers."""
    reciprocal = (1 / np.sqrt(v.astype(np.float64))).astype(np.float32)
    return np.where((v == 0) | np.isinf(v), np.sqrt(v), v * reciprocal)


def _without_subnormals(array: Array) -> Array:
    return np.where(np.abs(array) < np.float32(2.0**-126), np.copysign(ZERO, array), array)


def subnormals_lost(case: Case, golden: Outputs) -> Outputs | None:
    """Subnormal numbers are flushed to zero, given and as results."""
    names = ("gradient", "weight", "m", "v")
    found = changed(case, **{name: _without_subnormals(case.inputs[name]) for name in names})
    return {name: _without_subnormals(array) for name, array in found.items()}


def forgets_otherwise(case: Case, golden: Outputs) -> Outputs | None:
    """Moments that should become zero before the step do so after it, and the other way round."""
    other = {"before": "after", "after": "before"}.get(case.params["forget"])
    return changed(case, forget=other) if other else None


fused = rule(Step(average=fused_average))
eps_inside = rule(Step(below=lambda v, root, eps: np.sqrt(v + eps) / root))
eps_corrected = rule(Step(below=lambda v, root, eps: (np.sqrt(v) + eps) / root))
root_near = rule(Step(below=lambda v, root, eps: near_root(v) / root + eps))
reciprocal = rule(Step(divide=lambda m, below: m * (np.float32(1) / below)))
lerp, square_later = rule(Step(first=interpolated)), rule(Step(square_later=True))
weight_fused, rate_before = rule(Step(move=fused_move)), rule(Step(move=rate_first))
old_moment, decay_left_out = rule(Step(old=True)), rule(Step(decays=False))
clamped, not_scaled = rule(Step(clamps=True)), rule(Step(scales=False))
sign_lost, not_clipped, clip_by_new_v = rule(Step(signed=False)), rule(Step(clips=False)), rule(Step(by_new=True))
decay_first, reset_after = rule(Step(decay_first=True)), rule(Step(reset_after=True))
