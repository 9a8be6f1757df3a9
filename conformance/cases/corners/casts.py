"""Corners of the scalar casts (N1, N2): every 16-bit pattern, every tie, every special; every code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..draw import VALUES, Draw
from ..draw.bits import as_float
from ..recipes.distributions import layout_of, target_of
from .arrange import matrix
from .floats import SPECIALS, sequence, tie_blocks


def encoders(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield (label, {"x": [M, K]}) for the scalar encoders: every 16-bit pattern, every tie, every special."""
    target = target_of(operation, params)
    fmt = target.input
    yield "all 16-bit patterns", {"x": as_float(sequence(fmt, 1024), fmt)}
    yield "every tie and one ulp beside, at every power of two", {"x": as_float(matrix(tie_blocks(target), 1024), fmt)}
    yield "special values", {"x": as_float(np.array([SPECIALS[fmt]], np.uint32), fmt)}
    for name in ("normal", "bits", "tiny"):
        distribution = VALUES[name]
        bits = distribution.make(Draw(17), target, (64, 512), **distribution.simple)
        yield f"{name} data", {"x": as_float(bits, fmt)}
    yield "no rows", {"x": as_float(np.zeros((0, 32), np.uint32), fmt)}


def decoders(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Every code, in one row, and in rows of other lengths."""
    count = 1 << layout_of(operation, params).element.bits
    yield "every code", {"codes": np.arange(count, dtype=np.uint8)[None, :]}
    yield "every code, odd width", {"codes": (np.arange(37 * 29) % count).astype(np.uint8).reshape(37, 29)}
    yield "no rows", {"codes": np.zeros((0, 32), np.uint8)}


encode_e2m1 = encode_e4m3 = encode_e8m0 = encoders
decode_e2m1 = decode_e4m3 = decode_e8m0 = decoders
