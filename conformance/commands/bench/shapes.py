"""Shapes that are timed: published mixture-of-experts layers, and one large matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refnum.errors import ArgumentError

PRODUCT = 2048
"""Rows of an operand of a product at most: the golden model takes some seconds for so many results."""
ALIGN = 32
"""Rows that each expert is padded to, and that those of aligned experts are multiples of."""


@dataclass(frozen=True)
class Shape:
    """One layer on one device: tokens, experts, hidden size, experts a token goes to, size of the feed-forward."""

    tokens: int
    experts: int
    hidden: int
    top_k: int
    ffn: int

    @property
    def name(self) -> str:
        """`rows x columns` of a plain matrix, else tokens, experts, hidden, top-k and feed-forward."""
        if self == _plain(self.tokens, self.hidden):
            return f"{self.tokens}x{self.hidden}"
        return "-".join(map(str, (self.tokens, self.experts, self.hidden, self.top_k, self.ffn)))

    @property
    def product(self) -> tuple[int, int, int]:
        """M, N and K of a product: tokens by the feed-forward's rows over the hidden size."""
        return min(self.tokens, PRODUCT), min(self.ffn, PRODUCT), self.hidden

    def matrix(self, at: str) -> tuple[int, int]:
        """Return [rows, columns]: `tokens` before dispatch, `rows` after it, `ffn` in experts, M and N of `product`."""
        if at == "product":
            return self.product[:2]
        rows = self.tokens if at == "tokens" else self.tokens * self.top_k
        return rows, self.ffn if at == "ffn" else self.hidden

    def splits(self, unit: int = ALIGN) -> list[int]:
        """Return rows of each expert after dispatch: unequal, each a multiple of `unit`, all rows together."""
        total = self.tokens * self.top_k // unit
        drawn = np.random.default_rng(0).dirichlet(np.full(self.experts, 4.0)) * total
        rows = np.floor(drawn).astype(int)
        rows[: total - rows.sum()] += 1
        return [unit * int(n) for n in rows]


def _plain(rows: int, columns: int) -> Shape:
    """Return the shape that `rows x columns` names: one expert, but for the one that is timed by default."""
    named = (rows, columns) == (PLAIN.tokens, PLAIN.hidden)
    return PLAIN if named else Shape(rows, 1, columns, 1, columns)


PLAIN = Shape(32768, 256, 7168, 1, 7168)
SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        PLAIN,
        Shape(4096, 256, 7168, 8, 2048),
        Shape(4096, 160, 5120, 6, 1536),
        Shape(4096, 64, 2048, 6, 1408),
        Shape(4096, 64, 1280, 7, 1024),
    )
}


def parse(text: str) -> Shape:
    """Return a shape from its name, `ROWSxCOLUMNS`, or five numbers joined by `-`; ArgumentError otherwise."""
    if text in SHAPES:
        return SHAPES[text]
    parts = text.split("x") if "x" in text else text.split("-")
    if all(part.isdecimal() and int(part) > 0 for part in parts):
        numbers = [int(part) for part in parts]
        shape = _plain(*numbers) if len(numbers) == 2 else None
        shape = Shape(*numbers) if len(numbers) == 5 else shape
        if shape and shape.tokens % ALIGN == 0 and shape.hidden % ALIGN == 0 and shape.ffn % ALIGN == 0:
            return shape
    raise ArgumentError(
        f"--shape {text!r} is not known; give one of {', '.join(SHAPES)}, or ROWSxCOLUMNS, or "
        f"TOKENS-EXPERTS-HIDDEN-TOPK-FFN, sizes in multiples of {ALIGN}."
    )
