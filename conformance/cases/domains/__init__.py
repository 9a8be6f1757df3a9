"""Enumerable domains: sets small enough to try completely, with their exact sizes.

`DOMAINS` maps an operation to the function that yields its domains. Operations that only move bytes
(payload, permutation) have none. Why these domains prove an operation is written where they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from refnum.errors import ArgumentError

from ..operation import OPERATIONS
from . import codes, quantizers, recast, swiglu
from .domain import Chunk, Domain, count_once

__all__ = ["DOMAINS", "LEVELS", "Chunk", "Domain", "count_once", "domains_for"]

Make = Callable[[str, str, Mapping[str, Any]], Iterator[Domain]]


def _of(make: Make, whose: str) -> Make:
    """Return the domains of another operation for one that takes the same inputs and decides the same."""
    return lambda operation, profile, params: (
        replace(domain, operation=operation) for domain in make(whose, profile, params)
    )


def _all(*makes: Make) -> Make:
    """Return the domains of several functions together."""
    return lambda operation, profile, params: (d for make in makes for d in make(operation, profile, params))


DOMAINS: dict[str, Make] = {
    "quantize_mxfp4": quantizers.quantizers,
    "quantize_mx": quantizers.quantizers,
    "quantize_fp8_tiles": quantizers.quantizers,
    "dequantize_mxfp4": codes.dequantize_mxfp4,
    "dequantize_mx": codes.dequantize_codes,
    "dequantize_fp8_tiles": codes.dequantize_codes,
    "fp8_to_mxfp4": recast.fp8_to_mxfp4,
    "quantize_payload": _of(quantizers.quantizers, "quantize_mxfp4"),
    "fp8_to_payload": _of(recast.fp8_to_mxfp4, "fp8_to_mxfp4"),
    "mxfp4_to_fp8": recast.mxfp4_to_fp8,
    "mxfp4_to_fp8_columns": recast.mxfp4_columns,
    "mxfp4_to_fp8_rows_columns": _all(recast.mxfp4_to_fp8, recast.mxfp4_columns),
    "mxfp4_columns": recast.mxfp4_columns,
    "fp8_columns": recast.fp8_columns,
    "swiglu_quantize": swiglu.swiglu,
    "swiglu_backward": swiglu.swiglu,
    "encode_e2m1": codes.encoders,
    "encode_e4m3": codes.encoders,
    "encode_e8m0": codes.encoders,
    "decode_e2m1": codes.decoders,
    "decode_e4m3": codes.decoders,
    "decode_e8m0": codes.decoders,
}

LEVELS: dict[str, int] = {"smoke": 0, "standard": 1 << 24, "exhaustive": 1 << 32}
"""Level -> the size of the largest domain that it runs."""


def domains_for(operation: str, profile: str, params: Mapping[str, Any], level: str) -> list[Domain]:
    """Return the domains of one variant at a level: none at `smoke`, up to 2**24 at `standard`, all at `exhaustive`.

    An operation without enumerable domain gives an empty list. `splits` in params are left out: domains that
    need rows choose their own. Raises ArgumentError for an unknown level.
    """
    if level not in LEVELS:
        raise ArgumentError(f"level={level!r} is unknown; choose from {', '.join(LEVELS)}.")
    if operation not in DOMAINS or not LEVELS[level]:
        return []
    fixed = {name: value for name, value in params.items() if name != "splits"}
    if OPERATIONS[operation].undefined(profile):
        return []
    return [domain for domain in DOMAINS[operation](operation, profile, fixed) if domain.size <= LEVELS[level]]
