"""Scalars of an optimiser's step (N27.7), literal: of early and late steps, and ends at which a step degenerates."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

Array = Any
INF, NAN, TINY = float("inf"), float("nan"), 2.0**-140
ADAM = (
    (0.99999, 0.9, 0.1, 0.999, 0.001, 0.03162278, 1e-8, 0.01),
    (1, 0.9, 0.1, 0.999, 0.001, 0.99, 1e-8, 1.0101e-3),
    (0.5, 0.8999, 0.1001, 0.99, 0.01, 0.7, 1e-6, 3.3),
    (1, 0, 1, 0, 1, 1, 0, 1),
    (1, 0.9, 0.1, 0.999, 0.001, 0, 0, 1e-3),
    (TINY, 0.3, 0.7, 0.123, 0.877, 0.1, TINY, TINY),
)  # fmt: skip
"""decay, beta1, rest1, beta2, rest2, root, eps, rate: an early step, a late one, with decay, bare, and ends."""
SPAM = (
    (5000, 0.9, 0.1, 0.999, 0.001, 1e-6, 3.16e-3, 1e-5),
    (3, 0.9, 0.1, 0.99, 0.01, 1e-8, 0.0123, 0.1),
    (1, 0, 1, 0, 1, 0, 1, 1),
    (0.5, 0.3, 0.7, 0.7, 0.3, 1e-6, 0, 0),
    (TINY, 0.9, 0.1, 0.999, 0.001, 0, 1e-3, TINY),
)
"""threshold, beta1, rest1, beta2, rest2, eps, rate, decay."""
STABLE = (
    (0.99999, 3.1, 40, 7, 2.5, 0.9, 0.1, 0.999, 0.001, 0.03162278, 1e-8, 0.01),
    (1, 0.7, 1.3, 123.4, 99, 0.45, 0.55, 0.999, 0.001, 0.99, 1e-8, 1e-3),
    (0.75, 0, 3, 0, 5, 0, 1, 0, 1, 1, 0, 1),
    (1, INF, 0.1, 1e-3, INF, 0.9, 0.1, 0.999, 0.001, 0.5, 0, 1e-3),
    (1, NAN, NAN, NAN, NAN, 0.9, 0.1, 0.999, 0.001, 1, 1e-8, 0.1),
    (1, 2.0**-10, 3, 3e38, 2.0**-130, 0.9, 0.1, 0.999, 0.001, 1, 1e-8, 0.1),
)
"""decay, limit, largest, norm, wanted, beta1, rest1, beta2, rest2, root, eps, rate."""
TABLES = {"adam_apply": ADAM, "spam_apply": SPAM, "stable_spam_apply": STABLE}


def factors(operation: str, seed: int) -> np.ndarray:
    """Return the scalars of a step, float32 [N], of the table's row that a seed chooses."""
    row = TABLES[operation][seed % len(TABLES[operation])]
    return np.frombuffer(struct.pack(f"<{len(row)}f", *row), np.float32).copy()


def positive(v: Array) -> Array:
    """Return float32 without their signs, as averages of squares are."""
    return (v.view(np.uint32) & np.uint32(0x7FFFFFFF)).view(np.float32)
