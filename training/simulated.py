"""Products of operands in a format that Hopper does not multiply: quantised, dequantised and multiplied in bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from .dispatch import Route
from .edges import Edges
from .policies import Policy
from .products import BF16, Observer, Parts, Tensor
from .recipes import Draw, Operand, Recipe


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

    def product(self, name: str, a: Parts, b: Parts, route: Route) -> Tensor:
        """Return the rows of each expert times its weights, both quantised."""
        rows = torch.cat(self._quantised(name, a[0].split(route.rows), right=False))
        weights = torch.stack(self._quantised(name, b[0].unbind(), right=True))
        return super().product(name, (rows,), (weights,), route)

    def weight_gradient(self, name: str, a: Parts, b: Parts, route: Route) -> Tensor:
        """Return of each expert the product of columns, both quantised."""
        left = torch.cat(self._quantised(name, a[0].split(route.rows, dim=1), right=False), dim=1)
        right = torch.cat(self._quantised(name, b[0].split(route.rows, dim=1), right=True), dim=1)
        return super().weight_gradient(name, (left,), (right,), route)

    def _quantised(self, name: str, parts: Iterable[Tensor], right: bool) -> list[Tensor]:
        """Return one operand of each expert as its codes say; a product that is made again has the same words."""
        name = name.removesuffix(".again")
        operand, draw = self.recipe.of(name)[right], self.draw()
        found = []
        for expert, part in enumerate(parts):
            words = {"philox": tuple(draw.key(name, right, expert))} if operand.random else {}
            found.append(self._one(part.contiguous(), operand, words) if part.numel() else part)
        return found

    def _one(self, x: Tensor, operand: Operand, words: dict[str, Any]) -> Tensor:
        """Return the bfloat16 values of a matrix's codes."""
        if operand.rotated:
            x = self.call("hadamard16", x)
        if operand.form == "mxfp4":
            return self.decode(self.call("quantize_mxfp4", x, operand.profile, **words), "mxfp4")
        packed, scales, amax = self.call("quantize_nvfp4", x, tile=operand.tile, **words)
        found: Tensor = self.call("dequantize_nvfp4", packed, scales, amax, tile=operand.tile, dtype=BF16)
        return found
