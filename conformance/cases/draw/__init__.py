"""The table of distributions that a recipe may name, simplest first, with the range of each parameter.

`VALUES` make floating-point inputs, `CODED` make codes with their scale bytes. A new distribution is one function and
one entry here; recipes, their JSON and their shrinking follow from the entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import coded, values
from .words import Draw

__all__ = ["CODED", "VALUES", "Distribution", "Draw"]


@dataclass(frozen=True)
class Distribution:
    """A named way to fill an input.

    Attributes:
        name: the name that recipes use.
        make: the function that draws the input.
        ranges: parameter -> (smallest, largest) integer; a recipe gives every parameter.
        simple: parameter -> the value that shrinking moves towards.
    """

    name: str
    make: Callable[..., Any]
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    simple: dict[str, int] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """The first sentence of the function's docstring."""
        return (self.make.__doc__ or "").strip().split("\n")[0]


_EXPONENT = (-130, 120)

_VALUES = (
    Distribution("zero", values.zero),
    Distribution(
        "signed_zeros", values.signed_zeros, {"mixed": (0, 128), "values": (0, 128)}, {"mixed": 64, "values": 2}
    ),
    Distribution("whole", values.whole, {"limit": (1, 255), "exponent": _EXPONENT}, {"limit": 8, "exponent": 0}),
    Distribution("normal", values.normal, {"exponent": _EXPONENT}, {"exponent": 0}),
    Distribution("boundary", values.boundary, {"low": (-149, 127), "span": (0, 276)}, {"low": -2, "span": 4}),
    Distribution("ties", values.ties, {"low": (-130, 125), "span": (0, 252)}, {"low": 0, "span": 0}),
    Distribution(
        "distances",
        values.distances,
        {"spread": (0, 60), "empty": (0, 128), "exponent": _EXPONENT},
        {"spread": 8, "empty": 0, "exponent": 0},
    ),
    Distribution("outlier", values.outlier, {"binades": (0, 40), "exponent": _EXPONENT}, {"binades": 6, "exponent": 0}),
    Distribution("tiny", values.tiny, {"binades": (1, 40)}, {"binades": 1}),
    Distribution("huge", values.huge, {"binades": (1, 40)}, {"binades": 1}),
    Distribution(
        "specials", values.specials, {"nan": (0, 64), "inf": (0, 64), "zero": (0, 128)}, {"nan": 2, "inf": 0, "zero": 0}
    ),
    Distribution("heavy", values.heavy, {"tail": (1, 6), "exponent": _EXPONENT}, {"tail": 3, "exponent": 0}),
    Distribution("channels", values.channels, {"spread": (0, 6), "exponent": _EXPONENT}, {"spread": 2, "exponent": 0}),
    Distribution("gated", values.gated, {"exponent": _EXPONENT}, {"exponent": 0}),
    Distribution("lattice", values.lattice, {"low": (0, 254), "span": (0, 254)}, {"low": 120, "span": 8}),
    Distribution("bits", values.bits),
)

_BYTE = (0, 254)

_CODED = (
    Distribution("zero", coded.zero, {"base": _BYTE}, {"base": 127}),
    Distribution("uniform", coded.uniform, {"base": _BYTE, "spread": (0, 254)}, {"base": 127, "spread": 0}),
    Distribution(
        "apart",
        coded.apart,
        {"base": _BYTE, "spread": (0, 254), "empty": (0, 128), "nan": (0, 64)},
        {"base": 127, "spread": 8, "empty": 0, "nan": 0},
    ),
    Distribution(
        "rows",
        coded.rows,
        {"base": _BYTE, "spread": (0, 254), "zero": (0, 128), "nan": (0, 64)},
        {"base": 127, "spread": 8, "zero": 0, "nan": 0},
    ),
    Distribution(
        "activations", coded.activations, {"spread": (0, 6), "exponent": (-100, 100)}, {"spread": 2, "exponent": 0}
    ),
    Distribution("edges", coded.edges),
)

VALUES: dict[str, Distribution] = {distribution.name: distribution for distribution in _VALUES}
CODED: dict[str, Distribution] = {distribution.name: distribution for distribution in _CODED}
