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
    out = np.empty((7, *factor.shape), dtype=np.uint32, like=factor)
    for code, bound in enumerate(_BOUNDS, 1):
        if divides:  # |x| = bound * factor
            word, place = np.uint64(bound) * significand, exponent - np.int32(150 + 26)
            exact: Array = np.zeros(factor.shape, dtype=bool, like=factor)
        else:  # |x| = bound / factor
            lift = 29 - bound.bit_length()
            wide = np.uint64(bound << lift << 24)
            divisor = np.maximum(significand, np.uint64(1))
            word = wide // divisor
            exact = word * divisor != wide
            place = np.int32(150 - 26 - 24 - lift) - exponent
        out[code - 1] = _upward(word, place, exact, strict=bool(code & 1))
    none, every = (far, factor == np.uint32(0)) if divides else (factor == np.uint32(0), far)
    return np.where(none, INF, np.where(every, np.uint32(1), out))


def _upward(word: Array, exponent: Array, more: Array, strict: bool) -> Array:
    """Bits of the least float32 >= (strict: >) word * 2**exponent, plus something below one unit where `more`."""
    drop = np.maximum(_bit_length(word) - np.int32(24), np.int32(-149) - exponent)
    place = np.clip(exponent + drop + np.int32(149), np.int32(0), np.int32(254)).astype(np.uint32)
    shift = np.clip(drop, np.int32(0), np.int32(60)).astype(np.uint64)
    kept = word >> shift
    up = more | ((kept << shift) != word) | strict
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


def picked(each: Array, codes: Array) -> Array:
    """Entry `code & 7` of eight that each block has: [..., 8] and u8 [..., n] -> [..., n]."""
    place = np.arange(0, each.size, 8, dtype=np.int32, like=each).reshape(codes.shape[:-1])
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
