"""Domains of the scalar casts (N1, N2): every code, every float pattern."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import FP32

from ..draw.bits import as_float, input_format
from ..recipes.distributions import layout_of
from .domain import Chunk, Domain, sequence
from .wide import LOW_HALVES, EveryPattern


def decoders(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every code of the format: 16 for E2M1, 256 for E4M3 and E8M0."""
    count = 1 << layout_of(operation, params).element.bits
    codes = np.arange(count, dtype=np.uint8)[None, :]
    yield Domain(
        "every code",
        operation,
        profile,
        params,
        count,
        "codes in order in one row",
        lambda: iter([Chunk({"codes": codes}, sequence(0, codes.shape))]),
    )


def encoders(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every pattern of a 16-bit input: 65,536. float32: a lattice of 393,216 patterns, and all 2**32."""
    fmt = input_format(params.get("input", "float32"))
    if fmt is not FP32:
        bits = np.arange(1 << 16, dtype=np.uint32).reshape(64, 1024)
        yield Domain(
            "every 16-bit pattern",
            operation,
            profile,
            params,
            1 << 16,
            "patterns in order",
            lambda: iter([Chunk({"x": as_float(bits, fmt)}, sequence(0, bits.shape))]),
        )
        return

    def lattice() -> Iterator[Chunk]:
        high = np.arange(1 << 16, dtype=np.uint32)[:, None] << np.uint32(16)
        bits = (high | np.array(LOW_HALVES, np.uint32)).reshape(384, 1024)
        yield Chunk({"x": as_float(bits, FP32)}, sequence(0, bits.shape))

    yield Domain(
        "every upper half with six lower halves",
        operation,
        profile,
        params,
        len(LOW_HALVES) << 16,
        f"every bfloat16 pattern with the lower halves {', '.join(map(hex, LOW_HALVES))}",
        lattice,
    )
    yield _every_float32(operation, profile, params)


def _every_float32(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    """All 2**32 float32 patterns."""
    return Domain(
        "every float32 pattern", operation, profile, params, 1 << 32, "patterns in order",
        wide=EveryPattern(operation, params, profile=profile),
    )  # fmt: skip


encode_e2m1 = encode_e4m3 = encode_e8m0 = encoders
decode_e2m1 = decode_e4m3 = decode_e8m0 = decoders
