"""What drawn, structural and hand-aimed products share: lengths of sums and shapes of scales that their order takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from refnum.arrays import TILE

COLUMNS = (1, 3, 5, 9, 16)
"""Rows of `b`, and so columns of the result, of a drawn product."""
KINDS = ("", "tensor", "row", "block", "square")
"""How scales of an operand lie (N19.5); empty is none."""


def terms_for(order: str, k: int) -> int:
    """Return K, or one block of 128 more where the order has two parts and K has one block."""
    return k + TILE if order.startswith("split") and k <= TILE else k


def scale_kinds(order: str) -> tuple[str, ...]:
    """Return the kinds of scales that an order takes: runs longer than a block have none by block."""
    return KINDS[:3] if order.endswith("chain") else KINDS


def scales_of_kind(scales: Any, kind: str) -> Any:
    """Cut bytes [rows, blocks of K], one for each row and block, down to a kind of scales."""
    if kind == "tensor":
        return scales[:1, :1] if scales.size else np.zeros((1, 1), np.uint8, like=scales) + np.uint8(127)
    return {"row": scales[:, :1], "block": scales, "square": scales[::TILE]}[kind]
