"""Periods, steps and resets of oscillating weights by the oracle, one number at a time (N24)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from refnum.oracle import oscillation as oracle
from refnum.oracle import tetrajet_v2
from refnum.oracle.values import is_finite

from ..load import Vector
from .exact import exact, widened


def _lines(vector: Vector, *names: str) -> list[list[tuple[Any, ...]]]:
    """The numbers of inputs at each place, float32 as bits."""
    arrays = (vector.inputs[name] for name in names)
    lists = [(array.view(np.uint32) if array.dtype == np.float32 else array).tolist() for array in arrays]
    return [list(zip(*line, strict=True)) for line in zip(*lists, strict=True)]


def _each(vector: Vector, one: Callable[..., Any], *more: Any) -> Any:
    return ([[int(one(*pair, *more)) for pair in line] for line in _lines(vector, "dist_w", "dist_q")],)


def q_ramping(vector: Vector) -> Any:
    """N24.9 by exact rationals."""
    alpha = Fraction(*vector.params["alpha"])
    return _each(vector, oracle.q_ramping, alpha, vector.params["beta"], vector.params["most"])


def ramping_step(vector: Vector) -> Any:
    """N24.10 by exact rationals."""
    finite = all(is_finite(value) for line in exact(vector.inputs["grad"]) for value in line)
    lines = _lines(vector, "total", "count", "grad", "period")
    found = [[oracle.ramping_step(t, n, g, p, finite) for t, n, g, p in line] for line in lines]
    return tuple([[int(element[part]) for element in line] for line in found] for part in range(4))


def osci_reset(vector: Vector) -> Any:
    """N24.14 of each weight by itself, under the product of its scales."""
    inputs, threshold = vector.inputs, Fraction(*vector.params["threshold"])
    flags: list[list[int]] = []
    outer = inputs["outer"].view(np.uint32).tolist()
    for row, line in enumerate(widened(inputs["w"])):
        flags.append([])
        for k, w in enumerate(line):
            factor = tetrajet_v2.product(outer[row][k // 128], int(inputs["scales"][row, k // 16]))
            code = int(inputs["packed"][row, k // 2]) // 16 ** (k % 2) % 16
            flags[-1].append(int(oracle.osci_reset(w, factor, code, threshold)))
    return (flags,)


def out_control(vector: Vector) -> Any:
    """N24.15 of each row by itself."""
    share = Fraction(*vector.params["share"])
    return ([[int(flag) for flag in oracle.out_control(row, share)]
             for row in vector.inputs["norms"].view(np.uint32).tolist()],)  # fmt: skip


def osci_reset_by_distance(vector: Vector) -> Any:
    """N24.14 by exact rationals."""
    threshold = Fraction(*vector.params["threshold"])
    return _each(vector, oracle.osci_reset_by_distance, threshold)
