"""Domains of the MX block formats (N5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .codes import BYTES, dequantisers
from .domain import Chunk, Domain
from .quantizers import quantizers

quantize_mxfp4 = quantize_mx = quantizers
dequantize_mx = dequantisers


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
