"""Recipes: how each operand of the experts' products is quantised where the products themselves are BF16 (N28.4)."""

from __future__ import annotations

from dataclasses import dataclass

from refnum.philox import Key


@dataclass(frozen=True)
class Operand:
    """How one operand of a product is quantised, and dequantised to bfloat16, before it is multiplied.

    Attributes:
        form: `mxfp4`, or `nvfp4` of the variant TE.
        tile: rows and columns of a block of NVFP4.
        random: whether elements are rounded stochastically, with the words of `key`.
        rotated: whether `hadamard16` turns each 16 neighbours along the product's sum first.
    """

    form: str
    tile: tuple[int, int] = (1, 16)
    random: bool = False
    rotated: bool = False

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return (1, 32) if self.form == "mxfp4" else self.tile

    @property
    def profile(self) -> str:
        """The profile of MXFP4: that of the Hopper recipe, or its scales with stochastic elements."""
        return "STOCHASTIC" if self.random else "HOPPER"


@dataclass(frozen=True)
class Recipe:
    """A name, and of each kind of product the operands with rows of tokens or gradients first.

    Attributes:
        fprop: tokens and weights, summed along their columns.
        dgrad: gradients and weights, transposed.
        wgrad: gradients and tokens, transposed, so blocks lie along tokens.
    """

    name: str
    fprop: tuple[Operand, Operand]
    dgrad: tuple[Operand, Operand]
    wgrad: tuple[Operand, Operand]

    def of(self, product: str) -> tuple[Operand, Operand]:
        """Return the operands of a product by its name: `fc1`, `fc2.dgrad`, `fc1.wgrad` and so on."""
        found: tuple[Operand, Operand] = getattr(self, product.partition(".")[2] or "fprop")
        return found


_MX, _MX_RANDOM = Operand("mxfp4"), Operand("mxfp4", random=True)
_NV, _NV_RANDOM, _NV_TURNED = Operand("nvfp4"), Operand("nvfp4", random=True), Operand("nvfp4", rotated=True)
_NV_SQUARE, _NV_BOTH = Operand("nvfp4", (16, 16)), Operand("nvfp4", random=True, rotated=True)

RECIPES: dict[str, Recipe] = {
    row.name: row
    for row in (
        Recipe("mxfp4-products", (_MX, _MX), (_MX, _MX), (_MX, _MX)),
        Recipe("mxfp4-products-random", (_MX, _MX), (_MX_RANDOM, _MX), (_MX_RANDOM, _MX)),
        Recipe("nvfp4", (_NV, _NV_SQUARE), (_NV_RANDOM, _NV_SQUARE), (_NV_BOTH, _NV_TURNED)),
        Recipe("nvfp4-no-rotation", (_NV, _NV_SQUARE), (_NV_RANDOM, _NV_SQUARE), (_NV_RANDOM, _NV)),
        Recipe("nvfp4-nearest", (_NV, _NV_SQUARE), (_NV, _NV_SQUARE), (_NV_TURNED, _NV_TURNED)),
        Recipe("nvfp4-rows", (_NV, _NV), (_NV_RANDOM, _NV), (_NV_BOTH, _NV_TURNED)),
    )
}
"""Name -> recipe: MXFP4 in all products, with gradients rounded to nearest or at random; NVFP4 as published
(arXiv:2509.25149), and without one of its parts: rotation, stochastic rounding, square blocks of weights."""

PRODUCTS = ("fc1", "fc2", "fc1.dgrad", "fc2.dgrad", "fc1.wgrad", "fc2.wgrad")


@dataclass(frozen=True)
class Draw:
    """Where the random words of a layer's step come from.

    seed: of the layer, below 2**64. step: of the training. first: number of the rank's first expert.
    """

    seed: int = 0
    step: int = 0
    first: int = 0

    def key(self, product: str, right: bool, expert: int) -> Key:
        """Return the words of one operand (N13.5) of one of the rank's experts, the right-hand operand or the left."""
        number = 2 * PRODUCTS.index(product) + right
        return Key(self.seed, (number << 24) + self.first + expert, self.step)
