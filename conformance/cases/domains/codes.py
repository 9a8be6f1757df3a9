"""Domains of decoders, dequantisers and scalar encoders: every code under every scale, every float pattern."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import FP32, get_format

from ..draw.bits import as_float, input_format
from ..recipes.distributions import layout_of
from .domain import Chunk, Domain, sequence
from .wide import EveryPattern

BYTES = np.arange(256, dtype=np.uint8)
LOW_HALVES = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
"""Low halves of float32 patterns that decide a tie, a sticky bit or a carry into the upper half."""


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


def dequantize_mxfp4(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every packed byte under every scale byte: 65,536 pairs."""

    def make() -> Iterator[Chunk]:
        packed = np.broadcast_to(BYTES, (256, 256)).copy()
        # member = scale byte * 256 + packed byte, counted at the even element of each packed byte
        held = np.full((256, 256, 2), -1, np.int64)
        held[:, :, 0] = np.arange(256)[:, None] * 256 + np.arange(256)[None, :]
        yield Chunk({"packed": packed, "scales": np.repeat(BYTES[:, None], 16, axis=1)}, lambda: held.reshape(256, 512))

    yield Domain(
        "every packed byte under every scale byte",
        operation,
        profile,
        params,
        1 << 16,
        "row s holds scale byte s and all 256 packed bytes",
        make,
    )


def dequantize_codes(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every code under every scale byte: 256 * 2**bits pairs."""
    fmt = get_format(params["element"]) if "element" in params else layout_of(operation, params).element
    count = 1 << fmt.bits
    square = tuple(params.get("tile", ())) == (128, 128)

    def make() -> Iterator[Chunk]:
        if square:  # tiles of two rows: each holds all 256 codes
            codes = np.tile(BYTES.reshape(2, 128), (1, 256))
            held = np.arange(256)[None, :, None] * 256 + BYTES.reshape(2, 1, 128)
            yield Chunk({"codes": codes, "scales": BYTES[None, :].copy()}, lambda: held.reshape(2, -1))
            return
        columns = max(count, 32)
        codes = np.broadcast_to(np.arange(columns) % count, (256, columns)).astype(np.uint8)
        block = 32 if "element" in params else 128
        scales = np.repeat(BYTES[:, None], columns // block, axis=1)
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
    yield every_float32(operation, profile, params)


def every_float32(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    """All 2**32 float32 patterns."""
    return Domain(
        "every float32 pattern", operation, profile, params, 1 << 32, "patterns in order",
        wide=EveryPattern(operation, params, profile=profile),
    )  # fmt: skip
