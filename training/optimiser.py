"""AdamW on float32 master weights, with gradients that are the same bits whatever runs beside them.

Gradients of parameters that all ranks have are gathered and added in the order of the ranks, in float32; no reduction
of a library, whose order is its own, takes part. Those of experts are complete on their rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.adamw import adamw

from .collective import in_order
from .dispatch import Ranks
from .model import ByteModel
from .stable_spam import StableSpam

Tensor = torch.Tensor
BETAS, DECAY, EPS = (0.9, 0.95), 0.1, 1e-8
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class Optimiser:
    """AdamW (betas 0.9 and 0.95, weight decay 0.1 on matrices) over float32 copies of a model's parameters.

    Args:
        model: whose parameters are set after each step, rounded to their dtype.
        ranks: those that share the model.
        rate: the highest learning rate: reached after `warm` steps, then along a cosine to a tenth at `steps`.
        warm, steps: of the schedule.
        clip: the largest norm of the whole gradient under `adam`.
        rule: `adam` or `stable-spam` (N28.7).
    """

    def __init__(
        self,
        model: ByteModel,
        ranks: Ranks,
        rate: float,
        warm: int,
        steps: int,
        clip: float = 1.0,
        rule: str = "adam",
    ) -> None:
        self.ranks, self.rate, self.warm, self.steps, self.clip = ranks, rate, warm, steps, clip
        self.shared, self.owned = list(model.shared().values()), list(model.owned().values())
        self.parameters = [*self.shared, *self.owned]
        self.masters = [one.detach().float().clone() for one in self.parameters]
        self.gradients = [torch.empty_like(one) for one in self.masters]
        self.decays = [DECAY if one.dim() > 1 else 0.0 for one in self.masters]
        self.moments: list[dict[str, Tensor]] = []  # none before the first step
        self.stable = StableSpam(self.masters, self.decays, BETAS) if rule == "stable-spam" else None

    def step(self, number: int) -> tuple[float, float]:
        """Take a step with the parameters' gradients, and clear them.

        Args:
            number: of the step, from 0.

        Returns:
            The norm of the whole gradient before it is clipped, and the learning rate.
        """
        grads = self.gradients
        _copy(grads, [torch.zeros_like(one) if p.grad is None else p.grad
                      for p, one in zip(self.parameters, self.masters, strict=True)])  # fmt: skip
        if self.ranks.count > 1:
            shared = grads[: len(self.shared)]
            _copy(shared, _split(in_order(self.ranks, _flat(shared)), self.shared))
            torch._foreach_div_(grads, float(self.ranks.count))
        norm = self._norm(grads)
        rate = self.scheduled(number)
        if self.stable is not None:
            self.stable.step(grads, rate)
        else:
            self._adam_step(grads, norm, rate)
        self.publish()
        return norm, rate

    def _adam_step(self, grads: list[Tensor], norm: float, rate: float) -> None:
        scale = min(1.0, self.clip / norm) if norm > 0 and math.isfinite(norm) else 1.0
        torch._foreach_mul_(grads, scale)
        self.moments = self.moments or [_fresh(one) for one in self.masters]
        for decay in (DECAY, 0.0):
            some = [at for at, own in enumerate(self.decays) if own == decay]
            averages, squares, steps = ([self.moments[at][name] for at in some] for name in MOMENTS)
            with torch.no_grad():  # torch.optim.AdamW, which imports a compiler besides, calls the same
                adamw(
                    [self.masters[at] for at in some], [grads[at] for at in some], averages, squares, [], steps,
                    foreach=True, amsgrad=False, beta1=BETAS[0], beta2=BETAS[1], lr=rate, weight_decay=decay, eps=EPS,
                    maximize=False,
                )  # fmt: skip

    def scheduled(self, number: int) -> float:
        """Return the learning rate of a step."""
        if number < self.warm:
            return self.rate * (number + 1) / self.warm
        share = (number - self.warm) / max(1, self.steps - self.warm)
        return self.rate * (0.55 + 0.45 * math.cos(math.pi * min(1.0, share)))

    def publish(self) -> None:
        """Set the model's parameters to the master weights, rounded once, and forget the gradients."""
        with torch.no_grad():
            _copy(self.parameters, self.masters)
        for parameter in self.parameters:
            parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """Return the state that a checkpoint keeps: master weights and both moments, by number."""
        found = {}
        for at, master in enumerate(self.masters):
            found[f"{at}.master"] = master
            state = self.moments[at] if self.moments else _fresh(master)
            found |= {f"{at}.{name}": state[name] for name in MOMENTS}
        return found | ({} if self.stable is None else self.stable.tensors())

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Continue from what `tensors` gave."""
        for at, master in enumerate(self.masters):
            master.copy_(tensors[f"{at}.master"])
        self.moments = [
            {name: tensors[f"{at}.{name}"].to("cpu" if name == "step" else master.device) for name in MOMENTS}
            for at, master in enumerate(self.masters)
        ]
        if self.stable is not None:
            self.stable.load(tensors)
        self.publish()

    def _norm(self, grads: list[Tensor]) -> float:
        """Return the norm of all gradients: squares added in float64, in the order of the ranks."""
        shared, owned = grads[: len(self.shared)], grads[len(self.shared) :]
        return math.sqrt(float(_squares(shared)) + float(in_order(self.ranks, _squares(owned))))


def _fresh(master: Tensor) -> dict[str, Tensor]:
    return {"step": torch.zeros(()), "exp_avg": torch.zeros_like(master), "exp_avg_sq": torch.zeros_like(master)}


def _squares(grads: Sequence[Tensor]) -> Tensor:
    return torch.stack([torch.linalg.vector_norm(one, dtype=torch.float64) for one in grads]).square().sum()


def _copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors, all pairs of the same two dtypes at once."""
    groups: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in zip(targets, sources, strict=True):
        some = groups.setdefault((target.dtype, source.dtype), ([], []))
        some[0].append(target)
        some[1].append(source)
    for to, of in groups.values():
        torch._foreach_copy_(to, of)


def _flat(grads: list[Tensor]) -> Tensor:
    return torch.cat([grad.flatten() for grad in grads])


def _split(flat: Tensor, like: list[torch.nn.Parameter]) -> list[Tensor]:
    parts = flat.split([one.numel() for one in like])
    return [part.view_as(one) for part, one in zip(parts, like, strict=True)]
