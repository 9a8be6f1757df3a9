"""Domains of dequantisers of one code a byte: every code under every scale byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..recipes.distributions import layout_of
from .domain import Chunk, Domain

BYTES = np.arange(256, dtype=np.uint8)


def dequantisers(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every code under every scale byte: 256 * 2**bits pairs."""
    layout = layout_of(operation, params)
    count = 1 << layout.element.bits
    square = layout.rows > 1

    def make() -> Iterator[Chunk]:
        if square:  # tiles of two rows: each holds all 256 codes
            codes = np.tile(BYTES.reshape(2, 128), (1, 256))
            held = np.arange(256)[None, :, None] * 256 + BYTES.reshape(2, 1, 128)
            yield Chunk({"codes": codes, "scales": BYTES[None, :].copy()}, lambda: held.reshape(2, -1))
            return
        columns = max(count, 32)
        codes = np.broadcast_to(np.arange(columns) % count, (256, columns)).astype(np.uint8)
        scales = np.repeat(BYTES[:, None], columns // layout.columns, axis=1)
        held = np.where(np.arange(columns) < count, np.arange(256)[:, None] * count + np.arange(columns), -1)
        yield Chunk({"codes": codes, "scales": scales}, lambda: held)

    yield Domain(
        "every code under every scale byte",
        operation,
        profile,
        params,
        256 * count,
        "tile s holds scale byte s and all codes",
        make,
    )
