"""Recipes: how each operand of the experts' products is quantised where the products themselves are BF16 (N28.4)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from refnum.philox import Key


@dataclass(frozen=True)
class Operand:
    """How one operand of a product is quantised, and dequantised to bfloat16, before it is multiplied.

    Attributes:
        form: `bfloat16` for no quantisation, `mxfp4`, `nvfp4` of the variant TE, `tetrajet`, `sawb`, `luq`, `radix4`,
            or `vectors`: E2M1 with a float32 scale a row.
        tile: rows and columns of a block of NVFP4.
        random: whether elements are rounded stochastically, with the words of `key`.
        rotated: whether `hadamard16` turns each 16 neighbours along the product's sum first.
        phase: of radix 4, `even` or `odd`.
        averaged: whether a running average of the weights chooses their codes (Q-EMA).
        clamped: whether outliers are cut off before, and added again after quantisation (OCC).
        before: how the operand was quantised in the forward product, along that product's sum; what this gave is
            quantised here.
    """

    form: str
    tile: tuple[int, int] = (1, 16)
    random: bool = False
    rotated: bool = False
    phase: str = "even"
    averaged: bool = False
    clamped: bool = False
    before: Operand | None = None

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block; 0 for all of them."""
        blocks = {"nvfp4": self.tile, "mxfp4": (1, 32), "tetrajet": (1, 32), "vectors": (1, 0), "bfloat16": (1, 1)}
        return blocks.get(self.form, (0, 0))

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
        estimator: what the gradients of weights are multiplied by: `straight` for nothing, or the slope of `dge`.
    """

    name: str
    fprop: tuple[Operand, Operand]
    dgrad: tuple[Operand, Operand]
    wgrad: tuple[Operand, Operand]
    estimator: str = "straight"

    def of(self, product: str) -> tuple[Operand, Operand]:
        """Return the operands of a product by its name: `fc1`, `fc2.dgrad`, `fc1.wgrad` and so on."""
        found: tuple[Operand, Operand] = getattr(self, product.partition(".")[2] or "fprop")
        return found

    @property
    def averaged(self) -> bool:
        """Whether a running average of the weights is kept."""
        return self.fprop[1].averaged


_MX, _MX_RANDOM = Operand("mxfp4"), Operand("mxfp4", random=True)
_NV, _NV_RANDOM, _NV_TURNED = Operand("nvfp4"), Operand("nvfp4", random=True), Operand("nvfp4", rotated=True)
_NV_SQUARE, _NV_BOTH = Operand("nvfp4", (16, 16)), Operand("nvfp4", random=True, rotated=True)
_TJ, _TJ_RANDOM, _TJ_AVERAGED = (
    Operand("tetrajet"),
    Operand("tetrajet", random=True),
    Operand("tetrajet", averaged=True),
)
_TJ_TWICE, _TJ_AGAIN = (dataclasses.replace(_TJ_RANDOM, before=one) for one in (_TJ, _TJ_AVERAGED))
_SAWB, _LUQ, _LUQ_RANDOM = Operand("sawb"), Operand("luq"), Operand("luq", random=True)
_EVEN, _ODD = Operand("radix4"), Operand("radix4", phase="odd")
_VECTORS, _CLAMPED, _PLAIN = Operand("vectors"), Operand("vectors", clamped=True), Operand("bfloat16")
_AS_VECTORS, _AS_CLAMPED = (dataclasses.replace(_PLAIN, before=one) for one in (_VECTORS, _CLAMPED))


def _vectors(name: str, tokens: Operand, again: Operand, estimator: str) -> Recipe:
    return Recipe(name, (tokens, _VECTORS), (_PLAIN, _AS_VECTORS), (_PLAIN, again), estimator)


RECIPES: dict[str, Recipe] = {
    row.name: row
    for row in (
        Recipe("mxfp4-products", (_MX, _MX), (_MX, _MX), (_MX, _MX)),
        Recipe("mxfp4-products-random", (_MX, _MX), (_MX_RANDOM, _MX), (_MX_RANDOM, _MX)),
        Recipe("nvfp4", (_NV, _NV_SQUARE), (_NV_RANDOM, _NV_SQUARE), (_NV_BOTH, _NV_TURNED)),
        Recipe("nvfp4-no-rotation", (_NV, _NV_SQUARE), (_NV_RANDOM, _NV_SQUARE), (_NV_RANDOM, _NV)),
        Recipe("nvfp4-nearest", (_NV, _NV_SQUARE), (_NV, _NV_SQUARE), (_NV_TURNED, _NV_TURNED)),
        Recipe("nvfp4-rows", (_NV, _NV), (_NV_RANDOM, _NV), (_NV_BOTH, _NV_TURNED)),
        Recipe("tetrajet", (_TJ, _TJ), (_TJ_RANDOM, _TJ_TWICE), (_TJ_RANDOM, _TJ_TWICE)),
        Recipe("tetrajet-ema", (_TJ, _TJ_AVERAGED), (_TJ_RANDOM, _TJ_AGAIN), (_TJ_RANDOM, _TJ_TWICE)),
        Recipe("luq", (_SAWB, _SAWB), (_LUQ_RANDOM, _SAWB), (_LUQ_RANDOM, _SAWB)),
        Recipe("luq-nearest", (_SAWB, _SAWB), (_LUQ, _SAWB), (_LUQ, _SAWB)),
        Recipe("tpr", (_SAWB, _SAWB), (_EVEN, _SAWB), (_ODD, _SAWB)),
        Recipe("radix4-one-phase", (_SAWB, _SAWB), (_EVEN, _SAWB), (_EVEN, _SAWB)),
        _vectors("vectors", _VECTORS, _AS_VECTORS, "straight"),
        _vectors("vectors-dge", _VECTORS, _AS_VECTORS, "dge"),
        _vectors("vectors-occ", _CLAMPED, _AS_CLAMPED, "straight"),
        _vectors("vectors-dge-occ", _CLAMPED, _AS_CLAMPED, "dge"),
    )
}
"""Name -> recipe: MXFP4 in all products, with gradients rounded to nearest or at random; NVFP4 as published
(arXiv:2509.25149), and without one of its parts: rotation, stochastic rounding, square blocks of weights; TetraJet
without and with Q-EMA (arXiv:2502.20853); LUQ and SAWB (arXiv:2112.10769), and to nearest; radix 4 in two phases and in
one (Sun et al., 2020); E2M1 vectors with DGE, OCC, both or neither (arXiv:2501.17116)."""

PRODUCTS = ("fc1", "fc2", "fc1.dgrad", "fc2.dgrad", "fc1.wgrad", "fc2.wgrad")
AVERAGED_FROM = 10
"""The first step whose codes the average of Q-EMA chooses."""
BETA = 0.998
"""Of that average."""
KEPT = (99, 100)
"""The quantile of OCC."""
RADIX4_N0 = -6
"""Exponent of the least level of radix 4, so that the highest of the even phase is 1."""


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
