"""Payloads, permutation and the weighted way back by definition, element by element (N12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refnum import oracle

from ..load import Vector
from . import blocks, recast
from .exact import Solve, widened


def pack_payload(vector: Vector) -> Any:
    """N12: the codes of a row, then its scale bytes."""
    pairs = zip(vector.inputs["packed"].tolist(), vector.inputs["scales"].tolist(), strict=True)
    return ([codes + scales for codes, scales in pairs],)


def unpack_payload(vector: Vector) -> Any:
    """N12: sixteen of seventeen bytes are codes."""
    lines = vector.inputs["payload"].tolist()
    cut = vector.inputs["payload"].shape[1] // 17 * 16
    return [line[:cut] for line in lines], [line[cut:] for line in lines]


def _places(splits: list[int], align: int) -> tuple[list[int], list[int], int]:
    """Return (padded row of every row in expert order, start of every expert, padded rows)."""
    places: list[int] = []
    starts, end = [], 0
    for rows in splits:
        starts.append(end)
        places += range(end, end + rows)
        end += (rows + align - 1) // align * align
    return places, starts, end


def permute_pad(vector: Vector) -> Any:
    """N12: one row copied after another."""
    places, starts, total = _places(vector.params["splits"], vector.params["align"])
    payload = vector.inputs["payload"].tolist()
    out = [[0] * vector.inputs["payload"].shape[1] for _ in range(total)]
    for place, source in zip(places, vector.inputs["row_map"].tolist(), strict=True):
        out[place] = payload[source]
    return out, starts


def permute_unpack(vector: Vector) -> Any:
    """N12: the rows of `permute_pad`, sixteen of seventeen bytes of each codes."""
    lines, starts = permute_pad(vector)
    cut = vector.inputs["payload"].shape[1] // 17 * 16
    return [line[:cut] for line in lines], [line[cut:] for line in lines], starts


def unpermute(vector: Vector) -> Any:
    """N12: the weighted sum in ascending expert order, each product and sum rounded once."""
    places, _, _ = _places(vector.params["splits"], vector.params["align"])
    rows = widened(vector.inputs["rows"])
    weights = vector.inputs["weights"].view(np.uint32).tolist()
    sums: list[list[int] | None] = [None] * vector.params["tokens"]
    for place, token, weight in zip(places, vector.inputs["row_map"].tolist(), weights, strict=True):
        terms = [oracle.float32_multiply(weight, x) for x in rows[place]]
        before = sums[token]
        sums[token] = (
            terms if before is None else [oracle.float32_add(a, b) for a, b in zip(before, terms, strict=True)]
        )
    return ([line or [0] * vector.inputs["rows"].shape[1] for line in sums],)


def _joined(solve: Solve) -> Solve:
    """N12: the codes of every row that an operation gives, then its scale bytes."""
    return lambda vector: ([codes + scales for codes, scales in zip(*solve(vector), strict=True)],)


quantize_payload = _joined(blocks.quantize_mxfp4)
fp8_to_payload = _joined(recast.fp8_to_mxfp4)
