"""Explain one element under the two scales of TetraJet-v2: its scales, its noise, its code, or the way back (N24)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .arrays import TILE, float32_bits, unpack_nibbles
from .codec import decode_table, value
from .float_steps import Chain, Explained, Place, Room, agreed, bits_at, float_text, is_nan, of, result_bits, taken
from .formats import E2M1, E4M3
from .softfloat import INF, NAN
from .steps import code_step, fields, show
from .tetrajet_v2 import BLOCK_V2, dequantize_tetrajet_v2, noise_words, quantize_tetrajet_v2

_MAGNITUDE, _SIGN = 0x7FFFFFFF, 0x80000000
_ONE, _SIX, _MOST, _LEAST, _HALF = 0x3F800000, 0x40C00000, 0x43E00000, 0x3B000000, 0x3F000000
"""1, 6, 448, 2**-9 and 1/2."""
_TWO, _FOUR = 0x40000000, 0x40800000


def _maximum(bits: np.ndarray) -> int:
    """The largest magnitude, in which NaN does not count."""
    magnitude = bits & np.uint32(_MAGNITUDE)
    return int(np.where(magnitude > INF, np.uint32(0), magnitude).max())


def _quantised(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "x", "seed")
    packed, scales, outers = quantize_tetrajet_v2(**given)
    (row, column), chain = at, Chain("N24.11")
    line = float32_bits(np.ascontiguousarray(given["x"]))[row]
    own, block, tile = int(line[column]), column // BLOCK_V2, column // TILE
    chain.element(x=own)
    most = _maximum(line[tile * TILE : (tile + 1) * TILE])
    chain.say("amax of 128", float_text(most))
    outer = chain.divide("outer", chain.divide("b / 448", most, _MOST), _SIX)
    if not outer:
        outer = _ONE
        chain.say("outer", f"1 instead of 0: {float_text(outer)}")
    largest = _maximum(line[block * BLOCK_V2 : (block + 1) * BLOCK_V2])
    chain.say("amax of 16", float_text(largest))
    inner = chain.divide("c / o / 6", chain.divide("c / o", largest, outer), _SIX)
    if not inner:
        inner = _LEAST
        chain.say("c / o / 6", f"2^-9 instead of 0: {float_text(inner)}")
    scale = chain.encode("scales", E4M3, inner)
    product = chain.multiply("p", outer, int(decode_table(E4M3)[scale]))
    inverse = chain.divide("i = 1 / p", _ONE, product) if product else 0
    if not product:
        chain.say("i = 1 / p", "p is 0: 0 instead")
    scaled = chain.multiply("x * i", own, inverse)
    if given.get("seed") is not None:
        scaled = _with_noise(chain, scaled, int(given["seed"]), given["x"].shape, at)
    code = chain.encode("rounding", E2M1, scaled)
    chain.steps.append(code_step(E2M1, code))
    found = {"packed": code, "scales": scale, "outer": outer}
    golden = {"scales": int(scales[row, block]), "outer": result_bits(outers, (row, tile))}
    return chain.steps, agreed(found, packed=int(unpack_nibbles(packed)[at]), **golden)


def _with_noise(chain: Chain, scaled: int, seed: int, shape: tuple[int, ...], at: Place) -> int:
    """N24.12."""
    chain.clause = "N24.12"
    place = at[0] * shape[1] + at[1]
    word = int(noise_words((1, 4), seed, place - place % 4)[0, place % 4])
    noise = chain.add("noise", word >> 9 | _ONE, 0xBFC00000)
    if is_nan(scaled):
        chain.say("v + noise", "NaN stays")
        return int(NAN)
    size = scaled & _MAGNITUDE
    step, low, high = (
        (_HALF, 0, _TWO) if size <= _TWO else (_ONE, _TWO, _FOUR) if size <= _FOUR else (_TWO, _FOUR, _SIX)
    )
    moved = chain.add("v + noise", size, chain.multiply("step * noise", noise, step))
    kept = min(max(0 if moved & _SIGN else moved, low), high)
    if kept != moved:
        chain.say("region", f"kept within {float_text(low)} and {float_text(high)}: {float_text(kept)}")
    return kept | scaled & _SIGN


def _back(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "packed scales outer", "dtype")
    result = dequantize_tetrajet_v2(**given)
    (row, column), chain = at, Chain("N24.11")
    code, scale = int(unpack_nibbles(given["packed"])[at]), int(given["scales"][row, column // BLOCK_V2])
    text = f"E2M1 code {fields(E2M1, code)}, value {show(value(E2M1, code), bool(code & 8))}"
    chain.say("element", text, "N1")
    chain.say("scale byte", f"{fields(E4M3, scale)}, value {show(value(E4M3, scale), bool(scale >> 7))}")
    outer = bits_at(given["outer"], (row, column // TILE))
    product = chain.multiply("p", outer, int(decode_table(E4M3)[scale]))
    wide = chain.multiply("code * p", int(decode_table(E2M1)[code]), product)
    return chain.steps, agreed({"values": chain.result("values", wide, result.dtype)}, values=result_bits(result, at))


TETRAJET_V2: Room = {
    "quantize_tetrajet_v2": (of("x"), _quantised),
    "dequantize_tetrajet_v2": (of("packed"), _back),
}
