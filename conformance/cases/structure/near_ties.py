"""Rows of SwiGLU whose results lie at a tie of the element format, so that one ulp, or another order, shows.

A row has one gate, factors, and a probability that is searched in whole numbers: the result is at the tie or below it,
and with silu one ulp larger, or with the products in another order, it is above, or the other way round.
"""

from __future__ import annotations

import functools

import numpy as np

from refnum import softfloat
from refnum.formats import BF16, FP32
from refnum.swiglu import silu

from ..draw.bits import as_float

COLUMNS = 32
TIES = {"fp8": 0x3F880000, "mxfp4": 0x3FA00000}
"""Target -> float32 bits of a tie: 1.0625 between E4M3 codes, 1.25 between E2M1 codes, both rounded down, to even."""
PIN = 0x3FE0
"""A factor of 1.75: the largest result of the row."""
SPAN = range(-4, 5)
"""Steps of one ulp within which a probability is searched."""
FACTORS = (0x3F80, 0x3F81, 0x3F8B, 0x3F93, 0x3FA5, 0x3FB7, 0x3FC9, 0x3FDB)
"""Factors beside which the order of the products is asked: 1 is none of them."""
_ONE, _FRACTION, _EXPONENT = np.uint32(0x3F800000), np.uint32(0x7FFFFF), np.uint32(0xFF)


def near_ties(to: str) -> dict[str, np.ndarray]:
    """Return gate, up (bfloat16 [rows, 32]) and prob (float32 [rows]) for a target; the same every time."""
    gate, factor, prob = _rows(to)
    up = np.full((gate.size, COLUMNS), 0, np.uint16)
    lane = np.arange(COLUMNS, dtype=np.uint16)
    up[:] = (factor[:, None] - (lane[None, :] % 3 << 7)) | (lane[None, :] & 1) << 15
    up[:, 0] = np.where(factor == FACTORS[0], PIN, factor + 0x40)
    wide = np.broadcast_to(gate[:, None], up.shape).copy()
    return {"gate": as_float(wide, BF16), "up": as_float(up, BF16), "prob": as_float(prob, FP32)}


@functools.lru_cache(maxsize=2)
def _rows(to: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return gates and factors (u16) and probabilities (u32), one a row."""
    gates = _gates()
    found = [_one_ulp(gates, to, step) for step in (1, -1)]
    for number in FACTORS[1:]:
        some = gates[number % 5 :: 5]
        found += [_orders(some, number, to, order) for order in range(3)]
    gate, factor, prob = (np.concatenate(part) for part in zip(*found, strict=True))
    return gate, factor, prob


def _gates() -> np.ndarray:
    """Return the gates whose magnitude is from 2^-12 to 2^6: of both signs, with results that are no subnormals."""
    number = np.arange(1 << 16, dtype=np.uint16)
    field = number >> 7 & 0xFF
    return number[(field >= 115) & (field <= 132)]


def _silu(gates: np.ndarray) -> np.ndarray:
    return silu(as_float(gates, BF16))


def _probabilities(first: np.ndarray, tie: int) -> np.ndarray:
    """Return u32 [9, n]: float32 bits about tie / first, mantissa by mantissa, in steps of one ulp."""
    mantissa = (first & _FRACTION).astype(np.int64) | 1 << 23
    wanted = (tie & 0x7FFFFF | 1 << 23) << 24
    quotient = wanted // mantissa
    quotient = np.where(quotient >= 1 << 24, quotient >> 1, quotient)
    near = np.clip(quotient[None, :] + np.array(SPAN)[:, None], 1 << 23, (1 << 24) - 1)
    return (near.astype(np.uint32) & _FRACTION) | _ONE


def _above(bits: np.ndarray, tie: int) -> np.ndarray:
    """Whether results lie above the tie of their binade."""
    return (bits & _FRACTION) > np.uint32(tie & 0x7FFFFF)


def _chosen(gates: np.ndarray, factor: int, probs: np.ndarray, shows: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the gates, and for each the first probability, where something shows."""
    some = shows.any(axis=0)
    prob = np.take_along_axis(probs, shows.argmax(axis=0)[None, :], axis=0)[0]
    return gates[some], np.full(int(some.sum()), factor, np.uint16), prob[some]


def _one_ulp(gates: np.ndarray, to: str, step: int) -> tuple[np.ndarray, ...]:
    """Rows in which silu one ulp off gives another code."""
    tie, right = TIES[to], _silu(gates)
    probs = _probabilities(right, tie)
    off = (right.astype(np.int64) + step).astype(np.uint32)
    shows = _above(softfloat.multiply(right[None, :], probs), tie) != _above(
        softfloat.multiply(off[None, :], probs), tie
    )
    return _chosen(gates, FACTORS[0], probs, shows)


def _orders(gates: np.ndarray, factor: int, to: str, order: int) -> tuple[np.ndarray, ...]:
    """Rows in which another order of the products gives another code.

    order: 0 multiplies the factor and the probability first, 1 silu and the probability, 2 rounds only once.
    """
    tie, first, up = TIES[to], _silu(gates), np.uint32(factor << 16)
    product = softfloat.multiply(first, np.full_like(first, up))
    probs = _probabilities(product, tie)
    right = softfloat.multiply(product[None, :], probs)
    if order == 0:
        other = softfloat.multiply(first[None, :], softfloat.multiply(np.full_like(probs, up), probs))
    elif order == 1:
        other = softfloat.multiply(softfloat.multiply(first[None, :], probs), np.full_like(probs, up))
    else:
        other = _once(first[None, :], up, probs)
    return _chosen(gates, factor, probs, _above(right, tie) != _above(other, tie))


def _once(first: np.ndarray, up: np.uint32, probs: np.ndarray) -> np.ndarray:
    """Return the fraction bits of the exact product of three float32, rounded once, to nearest even."""
    a = (first & _FRACTION).astype(object) | 1 << 23
    b = int(up & _FRACTION) | 1 << 23
    exact = a * b * ((probs & _FRACTION).astype(object) | 1 << 23)
    shift = np.vectorize(lambda value: value.bit_length() - 24, otypes=[object])(exact)
    down, half = exact >> shift, exact & ((1 << shift) - 1)
    up_one = np.vectorize(lambda rest, s, even: 2 * rest + (even & 1) > 1 << s, otypes=[object])(half, shift, down)
    return (((down + up_one) & 0x7FFFFF).astype(np.int64)).astype(np.uint32) | _ONE
