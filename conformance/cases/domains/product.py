"""Domains of the matrix products (N19)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..draw.products import terms_for
from .domain import Chunk, Domain, sequence


def matmul_fp8(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every code of `a` times every code of `b`, the only product of its sum that is not +0 times +0: 65,536."""
    codes = np.zeros((256, terms_for(str(params["order"]), 1)), np.uint8)
    codes[:, 0] = np.arange(256)
    yield Domain(
        "every pair of codes",
        operation,
        profile,
        params,
        1 << 16,
        "codes of `a` down the rows of the result, codes of `b` along its columns",
        lambda: iter([Chunk({"a": codes, "b": codes.copy()}, sequence(0, (256, 256)))]),
    )
