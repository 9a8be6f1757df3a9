"""Matrix products by the oracle (N19)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from refnum.oracle import product

from ..load import Vector


def matmul_fp8(vector: Vector) -> Any:
    """N19: each result from the codes of its row and its column; scales are E8M0 bytes."""
    keywords = {name: str(vector.params[name]) for name in ("order", "out", "a_format", "b_format")}
    found: list[list[int]] = []
    for given in _products(vector):
        scales = [_scales(given.get(name)) for name in ("a_scales", "b_scales")]
        found += product.matmul_fp8(given["a"].tolist(), given["b"].tolist(), *scales, **keywords)
    return (found,)


def matmul_bf16(vector: Vector) -> Any:
    """N19: each result from the bits of its row and its column."""
    order, out = str(vector.params["order"]), str(vector.params["out"])
    found: list[list[int]] = []
    for given in _products(vector):
        a, b = (given[name].view(np.uint16).tolist() for name in ("a", "b"))
        found += product.matmul_bf16(a, b, order, out)
    return (found,)


def _products(vector: Vector) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield the arrays of each expert's product (N19.8), all of them where there are no splits."""
    splits = vector.params.get("splits")
    if splits is None:
        yield vector.inputs
        return
    first = 0
    for expert, count in enumerate(splits):
        last, given = first + count, dict(vector.inputs)
        given |= {"a": given["a"][first:last], "b": given["b"][expert]}
        if "a_scales" in given and given["a_scales"].size > 1:
            given["a_scales"] = given["a_scales"][first:last]
        if "b_scales" in given and given["b_scales"].size > 1:
            given["b_scales"] = given["b_scales"][expert]
        yield given
        first = last


def _scales(scales: np.ndarray | None) -> Any:
    if scales is None:
        return None
    lines = [[x if isinstance(x, int) else Fraction(x) for x in line] for line in scales.tolist()]
    return lines[0][0] if scales.size == 1 else lines
