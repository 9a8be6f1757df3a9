"""Domains of the matrix products (N19)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import BFLOAT16

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


def matmul_bf16(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every bfloat16 times powers of two of both signs beside 1 times 1: cuts at every distance, 65,536 by 16."""
    k = terms_for(str(params["order"]), 2)

    def chunks() -> Iterator[Chunk]:
        b = np.zeros((16, k), np.uint16)
        b[:, 0] = [field << 7 | sign for field in (1, 64, 103, 120, 127, 134, 190, 254) for sign in (0, 0x8000)]
        b[:, 1] = 0x3F80
        for start in range(0, 1 << 16, 1 << 12):
            a = np.zeros((1 << 12, k), np.uint16)
            a[:, 0], a[:, 1] = np.arange(start, start + (1 << 12)), 0x3F80
            operands = {"a": a.view(BFLOAT16), "b": b.view(BFLOAT16)}
            yield Chunk(operands, sequence(start * 16, (1 << 12, 16)))

    yield Domain(
        "every bfloat16 times powers of two, beside 1",
        operation,
        profile,
        params,
        1 << 20,
        "elements of `a` down the rows of the result, powers of two along its columns",
        chunks,
    )
