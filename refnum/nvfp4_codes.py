"""E2M1 codes of the elements of NVFP4 blocks: fl(x * f) or fl(x / f), then N2 (clause N21.4).

Both steps rise with |x|, so a block's factor decides by seven float32 numbers: the least |x| with each code above 0.
`least_inputs` finds them exactly, and an element takes seven comparisons. Random bits need the number itself.
"""

from __future__ import annotations

import numpy as np

from .arrays import Array, widen
from .codec import encode_bits
from .division import divide, normalised
from .formats import E2M1
from .profiles import PROFILES
from .softfloat import INF, _bit_length, multiply

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_BOUNDS = (16777217, 50331646, 83886084, 117440508, 167772168, 234881016, 335544336)
"""In units of 2**-26, where fl(y) begins to have the codes 1 to 7: half a float32 step above 0.25, 1.25, 2.5 and 5,
whose ties go down, and half a step below 0.75, 1.75 and 3.5, whose ties go up."""


def least_inputs(factor: Array, divides: bool) -> Array:
    """Return float32 bits u32 [7, ...]: the least |x| whose quotient or product with the factor has code 1 to 7.

    factor: float32 bits u32 of positive numbers, zero or Inf. An |x| that no finite number reaches is Inf.
    """
    significand, exponent = normalised(factor)
    far = factor >= INF
    each = [-1] + [1] * factor.ndim  # a bound beside each factor
    bounds = np.asarray(_BOUNDS, dtype=np.uint64, like=factor).reshape(each)
    strict = np.arange(1, 8, dtype=np.int32, like=factor).reshape(each) & np.int32(1) > np.int32(0)
    if divides:  # |x| = bound * factor
        word, place, more = bounds * significand, exponent - np.int32(150 + 26), strict
    else:  # |x| = bound / factor
        lift = np.asarray([29 - bound.bit_length() for bound in _BOUNDS], dtype=np.int32, like=factor).reshape(each)
        wide = bounds << (lift + np.int32(24)).astype(np.uint64)
        divisor = np.maximum(significand, np.uint64(1))
        word = wide // divisor
        more = strict | (word * divisor != wide)
        place = np.int32(150 - 26 - 24) - lift - exponent
    none, every = (far, factor == np.uint32(0)) if divides else (factor == np.uint32(0), far)
    return np.where(none, INF, np.where(every, np.uint32(1), _upward(word, place, more)))


def _upward(word: Array, exponent: Array, more: Array) -> Array:
    """Bits of the least float32 >= word * 2**exponent, plus something below one unit where `more`."""
    drop = np.maximum(_bit_length(word) - np.int32(24), np.int32(-149) - exponent)
    place = np.minimum(exponent + drop + np.int32(149), np.int32(254)).astype(np.uint32)
    shift = np.minimum(np.maximum(drop, np.int32(0)), np.int32(60)).astype(np.uint64)
    kept = word >> shift
    up = more | ((kept << shift) != word)
    return np.minimum((place << np.uint32(23)) + kept.astype(np.uint32) + up.astype(np.uint32), INF)


def block_codes(bits: Array, factor: Array, divides: bool) -> Array:
    """Codes u8 of blocks of elements to nearest, ties to even.

    bits: `own_bits` [..., n]; factor: float32 bits u32 [...], one a block.
    """
    least = least_inputs(np.where(factor > INF, np.uint32(0), factor), divides)
    narrow = bits.dtype == np.uint16
    mask = np.uint16(0x7FFF) if narrow else _MAGNITUDE
    magnitude = bits & mask
    if narrow:
        least = ((least + np.uint32(0xFFFF)) >> np.uint32(16)).astype(np.uint16)
    codes = np.zeros(bits.shape, dtype=np.uint8, like=bits)
    for bound in least:
        codes += magnitude >= bound[..., None]
    codes |= (bits != magnitude).astype(np.uint8) << np.uint8(3)
    invalid = _invalid(widen(magnitude), factor[..., None], divides)
    return codes if invalid is None else np.where(invalid, np.uint8(7), codes)


def picked(each: Array, scales: Array, codes: Array) -> Array:
    """Entry `code & 7` of eight that a scale has: [256, 8], scales u8 [...] and codes u8 [..., n] -> [..., n]."""
    place = scales.astype(np.int32) << np.int32(3)
    return np.take(each.reshape(-1), place[..., None] | (codes & np.uint8(7)))


def _invalid(magnitude: Array, factor: Array, divides: bool) -> Array | None:
    """Where a product or a quotient is NaN, which has the code 7; None if it is nowhere."""
    odd = (factor == np.uint32(0)) | (factor >= INF)
    if not bool(odd.any()) and not bool((magnitude >= INF).any()):
        return None
    zero, infinite = factor == np.uint32(0), factor == INF
    left, right = (infinite, zero) if divides else (zero, infinite)
    found: Array = (magnitude > INF) | (factor > INF)
    return found | (left & (magnitude == INF)) | (right & (magnitude == np.uint32(0)))


def block_codes_at_random(bits: Array, factor: Array, divides: bool, rbits: Array) -> Array:
    """Codes u8 of blocks of elements by stochastic rounding with eight bits an element (N2.8).

    bits, factor: as of `block_codes`; rbits: integers below 256 [..., n].
    """
    scaled = (divide if divides else multiply)(widen(bits), factor[..., None])
    return encode_bits(E2M1, scaled, 0, PROFILES["STOCHASTIC"], rbits=rbits)
