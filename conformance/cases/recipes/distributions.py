"""The distributions of each operation's inputs, and the formats and blocks that the distributions aim at."""

from __future__ import annotations

from typing import Any

from refnum.formats import BF16

from ..draw import CODED, VALUES, Distribution
from ..draw.bits import input_format
from ..draw.coded import Layout
from ..draw.values import Target
from ..operation import OPERATIONS


def distributions_for(operation: str) -> dict[str, Distribution]:
    """Return the distributions that fill an operation's main input, simplest first."""
    return VALUES if OPERATIONS[operation].main == "values" else CODED


def target_of(operation: str, params: Any) -> Target:
    """Return the formats and the block length for which an operation's values are drawn."""
    fmt = input_format(params["input"]) if "input" in params else BF16
    blocks = OPERATIONS[operation].rounds_to
    return Target(fmt, blocks.format(params), blocks.width)


def layout_of(operation: str, params: Any) -> Layout:
    """Return the layout of an operation's codes and scales."""
    blocks = OPERATIONS[operation].reads
    rows, columns = params.get("tile", (1, blocks.width))
    return Layout(blocks.format(params), rows, columns)
