"""Products of operands in a format that Hopper does not multiply: quantised, dequantised and multiplied in bfloat16."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from refnum.philox import Key

from . import forms, methods
from .dispatch import Route
from .edges import Edges
from .forms import Experts
from .policies import Policy
from .products import BF16, Observer, Parts, Tensor
from .recipes import AVERAGED_FROM, BETA, Draw, Operand, Recipe


class Simulated(Edges):
    """The edges of a policy whose products have a recipe (N28.4).

    An operand is quantised expert by expert, with the rows that fill up, which are zeros.

    Args:
        policy: one with a recipe.
        draw: returns where the random words of the step at work come from.
        observer, products: as for `Edges`.
    """

    def __init__(
        self, policy: Policy, draw: Callable[[], Draw], observer: Observer | None = None, products: str = "library"
    ) -> None:
        super().__init__(policy, observer, products)
        assert policy.recipe is not None
        self.recipe: Recipe = policy.recipe
        self.draw = draw

        self.flips: Tensor | None = None
        """The share of the weights whose value under the forward product's codes changed since the last step."""
        self._averages: dict[str, Tensor] = {}
        self._values: dict[str, Tensor] = {}
        self._choosing = False

    def begin(self, step: int, weights: Mapping[str, Tensor]) -> None:
        """Begin a step of the training: update averages of the weights, and count codes that changed (N28.6).

        Args:
            step: its number.
            weights: `fc1` and `fc2` -> bfloat16 [experts, N, K].
        """
        if self.recipe.averaged:
            self._averages = {name: self._average(name, weight.float()) for name, weight in weights.items()}
            self._choosing = step >= AVERAGED_FROM
        if self.recipe.fprop[1].form == "tetrajet":
            now = {name: self._forward_weights(name, weight) for name, weight in weights.items()}
            if self._values:
                counts = [(now[name] != self._values[name]).sum() for name in now]
                self.flips = torch.stack(counts).sum() / sum(one.numel() for one in now.values())
            self._values = now

    def _average(self, name: str, weight: Tensor) -> Tensor:
        if name not in self._averages:
            return weight
        return (self._averages[name] * BETA) + (weight * float(np.float32(1) - np.float32(BETA)))

    def averages(self) -> dict[str, Tensor]:
        """Return what a checkpoint keeps: the averages, float32 [experts, N, K]."""
        return dict(self._averages)

    def restore(self, averages: Mapping[str, Tensor]) -> None:
        """Continue from what `averages` gave."""
        self._averages = dict(averages)

    def _forward_weights(self, name: str, weight: Tensor) -> Tensor:
        count, n, k = weight.shape
        return self._coded(name, weight.reshape(count * n, k), self.recipe.fprop[1], Experts(0, (n,) * count), [])

    def product(self, name: str, a: Parts, b: Parts, route: Route) -> Tensor:
        """Return the rows of each expert times its weights, both quantised."""
        count, n, k = b[0].shape
        rows = self._quantised(name, a[0], False, Experts(0, tuple(route.rows)))
        weights = self._quantised(name, b[0].reshape(count * n, k), True, Experts(0, (n,) * count))
        return super().product(name, (rows,), (weights.view(count, n, k),), route)

    def weight_gradient(self, name: str, a: Parts, b: Parts, route: Route) -> Tensor:
        """Return of each expert the product of columns, both quantised."""
        experts = Experts(1, tuple(route.rows))
        left, right = (self._quantised(name, one[0], side, experts) for side, one in ((False, a), (True, b)))
        return super().weight_gradient(name, (left,), (right,), route)

    def estimated(self, dw: Tensor, weight: Parts) -> Tensor:
        """Return gradients of weights as the recipe's estimator has them."""
        return methods.estimated(dw, weight[0]) if self.recipe.estimator == "dge" else dw

    def _quantised(self, name: str, x: Tensor, right: bool, experts: Experts) -> Tensor:
        """Return one operand of all experts as its codes say; a product that is made again has the same words."""
        name = name.removesuffix(".again")
        operand, draw = self.recipe.of(name)[right], self.draw()
        if not x.numel():
            return x
        keys = [draw.key(name, right, at) for at in range(len(experts.sizes))] if operand.random else []
        return self._coded(name.partition(".")[0], x.contiguous(), operand, experts, keys)

    def _coded(self, name: str, x: Tensor, operand: Operand, experts: Experts, keys: list[Key]) -> Tensor:
        """Return the values of a matrix's codes; name: `fc1` or `fc2`."""
        if operand.before is not None:
            turned, below = experts.turned(x)
            found = self._coded(name, turned, operand.before, below, [])
            x = found.t().contiguous() if experts.dim else below.turned(found)[0]
        if operand.rotated:
            x = self.call("hadamard16", x)
        if operand.form in methods.FORMS:
            average = self._averages[name].view(x.shape) if operand.averaged and self._choosing else None
            found = methods.values(x, operand, experts, keys, average)
            if self.observer is not None and self.observer.wants(len(experts.sizes)):
                self._show(x, found, operand, experts, keys, average)
            return found
        make = {"bfloat16": lambda *_: x, "mxfp4": self._mxfp4, "nvfp4": self._nvfp4}[operand.form]
        return make(x, operand, experts, keys)

    def _show(
        self, x: Tensor, found: Tensor, operand: Operand, experts: Experts, keys: list[Key], average: Tensor | None
    ) -> None:
        """Show the observer the operand of each expert."""
        assert self.observer is not None
        rule = dataclasses.replace(operand, before=None)
        averages = [None] * len(experts.sizes) if average is None else experts.parts(average)
        for at, (part, values) in enumerate(zip(experts.parts(x), experts.parts(found), strict=True)):
            named = {"operand": rule, "philox": tuple(keys[at]) if keys else None, "average": averages[at]}
            self.observer.conversion("operand", (part,), named, values)

    def _mxfp4(self, x: Tensor, operand: Operand, experts: Experts, keys: list[Key]) -> Tensor:
        """Return the values of MXFP4 codes: blocks need no more than themselves, random words are each expert's."""
        if not keys:
            return self.decode(self.call("quantize_mxfp4", x, operand.profile), "mxfp4")
        parts = [part.contiguous() for part in experts.parts(x)]
        found = [
            self.decode(self.call("quantize_mxfp4", part, operand.profile, philox=tuple(key)), "mxfp4")
            if part.numel() else part
            for part, key in zip(parts, keys, strict=True)
        ]  # fmt: skip
        return torch.cat(found, dim=experts.dim)

    def _nvfp4(self, x: Tensor, operand: Operand, experts: Experts, keys: list[Key]) -> Tensor:
        coded = forms.nvfp4(x, operand.tile, experts, keys)
        if self.observer is not None and self.observer.wants(2 * len(experts.sizes)):
            self._show_nvfp4(x, coded, operand, experts, keys)
        return coded.values

    def _show_nvfp4(self, x: Tensor, coded: forms.Coded, operand: Operand, experts: Experts, keys: list[Key]) -> None:
        """Show the observer two conversions of each expert."""
        assert self.observer is not None
        tall, wide = operand.tile
        grid = Experts(experts.dim, tuple(size // (wide if experts.dim else tall) for size in experts.sizes))
        codes = Experts(experts.dim, tuple(size // (2 if experts.dim else 1) for size in experts.sizes))
        each = zip(
            experts.parts(x), codes.parts(forms.packed(coded.elements)), grid.parts(coded.scales),
            coded.amax.split(1), experts.parts(coded.values), strict=True,
        )  # fmt: skip
        for at, (part, packed, scales, amax, values) in enumerate(each):
            words: dict[str, Any] = {"philox": tuple(keys[at])} if keys else {}
            results = packed, scales, amax
            self.observer.conversion("quantize_nvfp4", (part,), {"tile": operand.tile, **words}, results)
            self.observer.conversion("dequantize_nvfp4", results, {"tile": operand.tile, "dtype": BF16}, values)
