"""What each operation's inputs are drawn from: its distributions, and the formats and blocks that they aim at."""

from __future__ import annotations

from typing import Any

import refnum
from refnum.formats import BF16, E2M1, E4M3, get_format

from ..draw import CODED, VALUES, Distribution
from ..draw.bits import input_format
from ..draw.coded import Layout
from ..draw.values import Target
from ..operation import OPERATIONS

TILED = frozenset({"quantize_fp8_tiles", "encode_e4m3", "swiglu_quantize", "swiglu_backward"})
"""Operations whose values are rounded to E4M3 in blocks of 128; the others round to their element in 32."""

FLOATING = frozenset({"x", "gate", "grad", "rows"})
"""First inputs that are floating point; the others are codes."""

ROUTED = frozenset({"permute_pad", "permute_unpack", "unpermute"})
"""Operations whose splits count routed rows, not the rows of the shape."""

WIDE = frozenset({"swiglu_backward", "unpermute"})
"""Operations whose first input is bfloat16 or, in wide recipes, float32, without a parameter that says which."""


def distributions_for(operation: str) -> dict[str, Distribution]:
    """Return the distributions that fill an operation's main input, simplest first."""
    return VALUES if OPERATIONS[operation].inputs[0] in FLOATING else CODED


def target_of(operation: str, params: Any) -> Target:
    """Return what the values of an operation are drawn for."""
    fmt = input_format(params["input"]) if "input" in params else BF16
    if operation in TILED:
        return Target(fmt, E4M3, 128)
    return Target(fmt, get_format(params.get("element", "E2M1")), 32)


def layout_of(operation: str, params: Any) -> Layout:
    """Return the layout of an operation's codes and scales."""
    if operation == "decode_e4m3":
        return Layout(E4M3, 1, 128)
    if operation == "decode_e8m0":
        return Layout(refnum.E8M0, 1, 128)
    if "element" in params:
        return Layout(get_format(params["element"]), 1, 32)
    if OPERATIONS[operation].inputs[0] == "codes" and operation != "decode_e2m1":
        rows, columns = params.get("tile", (1, 128))
        return Layout(E4M3, rows, columns)
    return Layout(E2M1, 1, 32)
