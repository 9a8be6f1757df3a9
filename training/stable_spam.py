"""Stable-SPAM on torch tensors, without a wait for the device: the operations of N27.4, but for the norm (N28.7)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from refnum.schedules import rounded_power64

Tensor = torch.Tensor
NAMES = ("m", "v", "peak", "norm", "square")


class StableSpam:
    """Steps of weights that are changed where they are.

    The mode is `code`, and there is no cosine. The norm of a gradient is the root of its squares' sum in float64,
    rounded to float32.

    Args:
        weights: float32.
        decays: of each weight.
        betas, eps, gammas, theta, gap: as of `refnum.stable_spam_step`.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        decays: Sequence[float],
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        gammas: tuple[float, float] = (0.7, 0.9),
        theta: float = 0.999,
        gap: int = 1000,
    ) -> None:
        self.weights, self.decays, self.betas, self.eps = list(weights), list(decays), betas, eps
        self.gammas, self.theta, self.gap = gammas, theta, gap
        self.total = self.count = 0
        self.states = [[torch.zeros_like(one), torch.zeros_like(one), *(one.new_zeros(()) for _ in range(3))]
                       for one in self.weights]  # fmt: skip

    def step(self, gradients: Sequence[Tensor], rate: float) -> None:
        """Take a step with float32 gradients at a learning rate."""
        self.total, self.count = self.total + 1, self.count + 1
        reset = self.gap > 0 and self.total % self.gap == 0
        for at, (weight, gradient, decay) in enumerate(zip(self.weights, gradients, self.decays, strict=True)):
            weight.mul_(1 - rate * decay)
            self._move(
                weight, self._stable(gradient, self.states[at]), self.states[at], rate, 1 if reset else self.count
            )
            if reset:
                self.states[at][0].zero_(), self.states[at][1].zero_()
        self.count = 1 if reset else self.count

    def _stable(self, gradient: Tensor, state: list[Tensor]) -> Tensor:
        """Return the gradient, clipped, and with a norm that is averaged over the steps."""
        largest = gradient.abs().max()
        state[2] = _averaged(state[2], largest, self.theta)
        limit = state[2] / _whole(state[2], 1 - rounded_power64(self.theta, self.count))
        gradient = torch.where(gradient.abs() > limit, gradient / largest * limit, gradient)
        length = gradient.double().square().sum().sqrt().float()
        state[3] = _averaged(state[3], length, self.gammas[0])
        state[4] = _averaged(state[4], length * length, self.gammas[1])
        first, second = (_whole(length, 1 - rounded_power64(gamma, self.count)) for gamma in self.gammas)
        wanted = state[3] / first / (_root(state[4] / second) + self.eps)
        return torch.where(length > 0, gradient / length * wanted, gradient)

    def _move(self, weight: Tensor, gradient: Tensor, state: list[Tensor], rate: float, count: int) -> None:
        """Step a weight as Adam does."""
        state[0] = _averaged(state[0], gradient, self.betas[0])
        state[1] = _averaged(state[1], gradient * gradient, self.betas[1])
        first, second = (1 - rounded_power64(beta, count) for beta in self.betas)
        below = _root(state[1]) / _whole(weight, math.sqrt(second)) + self.eps
        weight.sub_((state[0] / below) * (rate / first))

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint keeps."""
        found = {f"spam.{at}.{name}": one for at, state in enumerate(self.states)
                 for name, one in zip(NAMES, state, strict=True)}  # fmt: skip
        return found | {"spam.steps": torch.tensor([self.total, self.count])}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Continue from what `tensors` gave."""
        self.total, self.count = tensors["spam.steps"].tolist()
        self.states = [[tensors[f"spam.{at}.{name}"].to(weight.device) for name in NAMES]
                       for at, weight in enumerate(self.weights)]  # fmt: skip


def _averaged(old: Tensor, new: Tensor, beta: float) -> Tensor:
    return old * beta + new * (1 - beta)


def _root(x: Tensor) -> Tensor:
    """Return the square root, rounded once: torch's own in float32 is another on some processors."""
    return x.double().sqrt().float()


def _whole(like: Tensor, value: float) -> Tensor:
    """Return a number as a tensor: torch divides by a plain number as a product with its reciprocal on a GPU."""
    return torch.full((), value, dtype=torch.float32, device=like.device)
