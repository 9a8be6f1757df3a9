"""Domains of SwiGLU (N11): every gate, alone and times every significand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import BF16

from ..draw.bits import as_float
from ..operation import OPERATIONS
from .domain import Chunk, Domain, sequence

ONE = 0x3F80
SHAPE = (64, 1024)


def swiglu_quantize(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every gate times 1, 65,536; and times +-(1 .. 2), all 256 signs and significands of bfloat16: 2**24.

    silu(gate) has one argument, so the first enumerates it; the rounding of the product depends on the two
    significands and, only where it underflows or overflows, on the exponents, which sampling covers.
    """
    yield Domain("every gate", operation, profile, params, 1 << 16, "up is 1, gates in order", _make(operation, (ONE,)))
    factors = tuple(ONE | significand | sign << 15 for sign in range(2) for significand in range(128))
    yield Domain(
        "every gate times every sign and significand",
        operation,
        profile,
        params,
        1 << 24,
        "one case a factor of the binade 1..2, gates in order",
        _make(operation, factors),
        within=lambda others: bool(others),  # the product is rounded before any profile acts
    )


swiglu_backward = swiglu_quantize


def _make(operation: str, factors: tuple[int, ...]) -> Callable[[], Iterator[Chunk]]:
    def make() -> Iterator[Chunk]:
        gate = as_float(np.arange(1 << 16, dtype=np.uint32).reshape(SHAPE), BF16)
        grad = as_float(np.full(SHAPE, ONE), BF16)
        for number, factor in enumerate(factors):
            inputs = {"gate": gate, "up": as_float(np.full(SHAPE, factor), BF16)}
            if "grad" in OPERATIONS[operation].inputs:
                inputs = {"grad": grad, **inputs}
            yield Chunk(inputs, sequence(number << 16, SHAPE))

    return make
