"""Domains of DGE and OCC (N25): every pattern; every 16-bit number between the thresholds of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import FP32

from ..draw.bits import as_float, input_format, word
from .casts import encoders as dge  # noqa: F401  (the domains of an operation stand under its name)
from .domain import Chunk, Domain, sequence

SHAPES = {"tensor": (256, 256), "token": (1, 1 << 16), "channel": (1 << 16, 1)}


def occ(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """All 65,536 upper halves of float32 in one vector: each number beside the thresholds that they have."""
    fmt, shape = input_format(params["input"]), SHAPES[params["axis"]]
    pattern = np.arange(1 << 16, dtype=np.uint32) * np.uint32(40503) & np.uint32(0xFFFF)
    bits: np.ndarray = (pattern << np.uint32(16) if fmt is FP32 else pattern).astype(word(fmt)).reshape(shape)

    def make() -> Iterator[Chunk]:
        yield Chunk({"x": as_float(bits, fmt)}, sequence(0, shape))

    how = "patterns 40503 i mod 2^16 in one vector; float32 has a lower half of zeros"
    yield Domain("every 16-bit pattern in one vector", operation, profile, params, 1 << 16, how, make)
