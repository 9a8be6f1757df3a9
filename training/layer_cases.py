"""What a layer is judged on: sizes, routings, ranks, numbers and forms of its arguments, each there to find a bug."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .layer import first_weights

Given = dict[str, torch.Tensor]
"""Arguments of a subject by name: x, experts, probs, w1, w2, grad."""


@dataclass(frozen=True)
class LayerCase:
    """A step of several ranks, and which bugs it is there to find.

    tokens: of each rank. barred: experts that no token chooses. louder: the exponent by which each rank's tokens are
    larger than those of the one before. wide: the exponents of a token's blocks lie within this. changed: a name of
    `CHANGES`. draw: another one gives other numbers.
    """

    name: str
    finds: str
    tokens: tuple[int, ...] = (20, 12)
    top: int = 2
    experts: int = 4
    barred: tuple[int, ...] = ()
    louder: int = 0
    wide: int = 4
    hidden: int = 256
    ffn: int = 128
    changed: str = ""
    draw: int = 0


CASES = (
    LayerCase("even", "what is always wrong"),
    LayerCase("other numbers", "results that are kept for calls of the same sizes", draw=1),
    LayerCase("even again", "a state that calls leave behind"),
    LayerCase("one expert a token", "weights and sums that need several experts", top=1),
    LayerCase("all experts", "sums in another order or format", top=4),
    LayerCase("many rows", "blocks of 128 rows that are not padded or not begun anew", tokens=(150, 140)),
    LayerCase("experts of 128 rows", "experts that need no row of padding", tokens=(100, 28), top=4),
    LayerCase("experts of 129 rows", "a block of one row behind a whole one", tokens=(1, 128), top=4),
    LayerCase("experts of 400 rows", "experts of more blocks than two", tokens=(371, 29), top=4, hidden=128),
    LayerCase("one tile", "strides and offsets of more than one tile", hidden=128),
    LayerCase("an odd number of tiles", "tiles taken two at a time", hidden=384, ffn=384, experts=2),
    LayerCase("many tiles", "tiles beyond the fourth", tokens=(5, 6), hidden=1152, experts=2),
    LayerCase("a wide expert", "halves of gate and up that lie elsewhere", ffn=640, experts=2),
    LayerCase("a deep row", "tiles beyond the thirty-second", tokens=(1, 1), top=1, hidden=4224, experts=2),
    LayerCase("a tall expert", "tiles beyond the sixteenth", tokens=(1, 1), top=1, hidden=128, ffn=2176, experts=2),
    LayerCase(
        "many tokens", "lists of tokens and rows that are too short", tokens=(1100, 3), top=1, hidden=128, experts=2
    ),
    LayerCase("two experts", "a rank with a single expert", experts=2),
    LayerCase("many experts", "tables of experts that are too short", top=8, experts=34, hidden=128),
    LayerCase(
        "hundreds of experts",
        "counts of experts that outgrow a warp or a block, numbers of experts that 8 bits or bfloat16 lose",
        tokens=(9, 7),
        hidden=128,
        experts=258,
        draw=5,
    ),
    LayerCase("an odd number of experts a rank", "experts taken two at a time", top=3, experts=10, hidden=128),
    LayerCase("ranks of other magnitude", "a scale for a whole tensor, which differs by rank", louder=9),
    LayerCase("blocks of other magnitude", "scales in another order than their codes", wide=14),
    LayerCase("experts of other magnitude", "a scale for the weights of all experts", changed="loud experts"),
    LayerCase(
        "special numbers", "zeros, subnormal numbers, Inf and NaN of a token and its weights", changed="special tokens"
    ),
    LayerCase("special gradients", "zeros, subnormal numbers, Inf and NaN of a gradient", changed="special gradients"),
    LayerCase("no gradient", "scales of zeros alone", changed="no gradient"),
    LayerCase(
        "special weights of experts", "zeros, subnormal numbers, Inf and NaN of an expert", changed="special experts"
    ),
    LayerCase("special weights of tokens", "weights that are 0, negative, tiny or above 1", changed="special probs"),
    LayerCase("experts in another order", "experts that are taken for sorted", changed="turned experts", top=3),
    LayerCase("equal tokens", "rows that are taken for one", changed="equal tokens"),
    LayerCase("one gradient for all", "a gradient that is one row, broadcast", changed="one gradient"),
    LayerCase("views", "arguments that have gaps between rows", changed="views"),
    LayerCase("transposed", "arguments that are stored column by column", changed="transposed"),
    LayerCase("an expert without a token", "splits that leave out a zero", barred=(0,)),
    LayerCase("the last expert without a token", "an end that is taken from the last expert", barred=(1, 3)),
    LayerCase("one expert for all", "experts of which only one has tokens", barred=(0, 1, 3)),
    LayerCase("one token", "a single row", tokens=(1, 0)),
    LayerCase("a rank without a token", "exchanges that a rank leaves out", tokens=(16, 0)),
    LayerCase("the first rank without a token", "offsets that begin behind the first rank", tokens=(0, 9)),
    LayerCase("a rank whose experts have no token", "products and columns of no rows", barred=(2, 3)),
    LayerCase("no token at all", "sizes of zero", tokens=(0, 0)),
    LayerCase("four ranks", "an exchange of two ranks only", tokens=(9, 0, 30, 1), top=3, experts=8, barred=(4, 5)),
    LayerCase("a rank of four that is loud", "a scale that differs by rank", tokens=(4, 5, 6, 7), experts=8, louder=5),
    LayerCase("three ranks", "ranks that are taken for a power of two", tokens=(7, 0, 12), experts=6, hidden=128),
    LayerCase(
        "eight ranks",
        "tables of ranks that are too short",
        tokens=(3, 0, 5, 1, 2, 9, 0, 4),
        top=3,
        experts=16,
        hidden=128,
    ),
)


def drawn(seed: int, count: int) -> tuple[LayerCase, ...]:
    """Return so many cases of two ranks whose sizes, routing and numbers are drawn."""
    return tuple(_drawn(random.Random(f"{seed} {number}"), f"drawn {number}, seed {seed}") for number in range(count))


def _drawn(dice: random.Random, name: str) -> LayerCase:
    experts = 2 * dice.choice((1, 2, 3, 4, 5, 8, 12))
    barred = tuple(sorted(dice.sample(range(experts), dice.choice((0, 0, 1, experts // 2)))))
    tokens = tuple(dice.choice((0, 1, 31, 32, 127, 128, round(2 ** dice.uniform(0, 8)))) for _ in range(2))
    return LayerCase(
        name, "what no other case tells", tokens, dice.randint(1, min(6, experts - len(barred))), experts, barred,
        dice.choice((0, 0, 3, 12)), dice.choice((0, 4, 12)), 128 * dice.choice((1, 1, 2, 3, 4, 5)),
        128 * dice.choice((1, 1, 2, 3)), dice.choice(("", "", *CHANGES)), dice.randrange(1 << 16),
    )  # fmt: skip


def inputs(case: LayerCase, rank: int) -> Given:
    """Return x, experts, probs and grad of a rank, the same in every process."""
    generator = torch.Generator().manual_seed(_seed(case) * 31 + rank)
    rows, blocks = case.tokens[rank], case.hidden // 32
    x, grad = (torch.randn(rows, case.hidden, generator=generator) for _ in range(2))
    exponents = torch.randint(-case.wide, 1, (2, rows, blocks), generator=generator).repeat_interleave(32, dim=2)
    x, grad = x * torch.exp2(exponents[0] + case.louder * rank), grad * torch.exp2(exponents[1] - case.louder * rank)
    scores = torch.rand(rows, case.experts, generator=generator)
    scores[:, list(case.barred)] = -1.0
    chosen, experts = scores.topk(min(case.top, case.experts - len(case.barred)), dim=1)
    probs = chosen / chosen.sum(dim=1, keepdim=True)
    given = {"x": x.to(torch.bfloat16), "experts": experts, "probs": probs, "grad": grad.to(torch.bfloat16)}
    return CHANGES[case.changed](given) if case.changed in CHANGES else given


def weights(case: LayerCase, experts: range) -> tuple[torch.Tensor, torch.Tensor]:
    """Return w1 and w2 of some experts."""
    w1, w2 = first_weights(7 + case.draw, case.hidden, case.ffn, case.experts, experts)[1:]
    if case.changed == "loud experts":
        louder = torch.exp2(torch.tensor([9.0 * (expert % 3 - 1) for expert in experts]))[:, None, None]
        return (w1 * louder).to(torch.bfloat16), (w2 / louder).to(torch.bfloat16)
    if case.changed == "special experts":
        w1, w2 = w1.clone(), w2.clone()
        for expert, one, other in zip(experts, w1, w2, strict=True):
            _special_weights(expert, one)
            _special_weights(expert + 1, other)
    return tuple(map(_turned, (w1, w2))) if case.changed == "transposed" else (w1, w2)  # type: ignore[return-value]


def _seed(case: LayerCase) -> int:
    return sum(map(ord, case.name.removesuffix(" again"))) + 1000 * case.draw


_SPECIAL = (0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-39, -1e-39, 3e38)


def _special(rows: torch.Tensor) -> torch.Tensor:
    """Put a special number into each of the first rows, one that is nothing else in every fifth, others stay."""
    rows = rows.clone()
    for number, value in enumerate(_SPECIAL[: len(rows)]):
        rows[number, (37 * number) % rows.shape[1]] = value
    rows[8::5] = torch.tensor(_SPECIAL)[:2].repeat(rows.shape[1] // 2).to(rows.dtype)
    return rows


def _special_weights(expert: int, weight: torch.Tensor) -> None:
    """Put one special number into the weight of every second expert, a tile of zeros into that of the others."""
    if expert % 2:
        weight[:128, :128] = 0.0
    else:
        weight[3, 5] = _SPECIAL[2 + expert // 2 % 6]


def _special_probs(probs: torch.Tensor) -> torch.Tensor:
    values = torch.tensor([0.0, 1.0, -0.75, 2.5, 1e-30, -0.0, 3.0, 1e-40])
    where = torch.arange(probs.numel()).reshape(probs.shape)
    return torch.where(where % 3 == 0, values[where // 3 % len(values)], probs)


def _boundless_probs(probs: torch.Tensor) -> torch.Tensor:
    """Return weights of which one is Inf and one NaN, of tokens that are ordinary."""
    probs = probs.clone()
    probs[9:10, :1], probs[10:11, -1:] = float("inf"), float("nan")
    return probs


def _turned_experts(given: Given) -> Given:
    odd = torch.arange(len(given["x"]))[:, None] % 2 == 1
    return {**given, **{name: torch.where(odd, given[name].flip(1), given[name]) for name in ("experts", "probs")}}


def _gaps(array: torch.Tensor) -> torch.Tensor:
    """Return the same numbers, rows and columns apart from each other."""
    wide = array.new_zeros(2 * array.shape[0] + 1, 2 * array.shape[1] + 3)
    wide[: 2 * array.shape[0] : 2, : array.shape[1]] = array
    return wide[: 2 * array.shape[0] : 2, : array.shape[1]]


def _turned(array: torch.Tensor) -> torch.Tensor:
    """Return the same numbers, stored with the last two axes exchanged."""
    return array.mT.contiguous().mT


CHANGES: dict[str, Callable[[Given], Given]] = {
    "special tokens": lambda given: {**given, "x": _special(given["x"]), "probs": _boundless_probs(given["probs"])},
    "special gradients": lambda given: {**given, "grad": _special(given["grad"])},
    "special probs": lambda given: {**given, "probs": _special_probs(given["probs"])},
    "turned experts": _turned_experts,
    "equal tokens": lambda given: {**given, "x": given["x"][:1].repeat(len(given["x"]), 1)},
    "no gradient": lambda given: {**given, "grad": torch.zeros_like(given["grad"])},
    "one gradient": lambda given: {**given, "grad": given["grad"][:1].expand(len(given["x"]), -1)},
    "views": lambda given: {name: _gaps(array) for name, array in given.items()},
    "transposed": lambda given: {name: _turned(array) for name, array in given.items()},
}
"""Name -> what becomes of x, experts, probs and grad of a rank; `loud` and `special experts` change weights alone."""
