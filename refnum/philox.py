"""Random bits: the counter-based generator Philox4x32-10 of Random123 (clause N13), stateless.

Element i of a stream is a function of (seed, stream, step, i) alone, so that any part of it can be made
anywhere, in any order. Block b of a stream is Philox of the counter words (b mod 2**32, b div 2**32, stream,
step) under the key (seed mod 2**32, seed div 2**32). Its four words, in the order x, y, z, w, are words
4b..4b+3 of the stream; byte j of the stream is bits 8*(j mod 4) and up of word j // 4.
`numpy.random.Philox` is Philox4x64 and gives other numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .arguments import require_integer, require_sequence
from .arrays import Array, chunks, empty, require_array, require_below
from .errors import ArgumentError, DtypeError, ShapeError, shown

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_BLOCK = 16
"""Bytes of a block: as many blocks are made at once on a host as keep its temporaries in the second-level cache."""


class Key(NamedTuple):
    """Where the random bits of a tensor come from (N13.5): a stream, and the element at which the tensor begins."""

    seed: int
    stream: int = 0
    step: int = 0
    offset: int = 0


def as_key(value: Any) -> Key:
    """Return `(seed, stream, step)` or `(seed, stream, step, offset)` as a Key.

    seed: 64 bits; stream and step: 32 bits each; offset: elements, a multiple of 32 below 2**62.
    Raises ArgumentError for anything else.
    """
    if not isinstance(value, tuple | list) or len(value) not in (3, 4):
        raise ArgumentError(f"philox={shown(value)}; allowed is (seed, stream, step) or (seed, stream, step, offset)")
    limits = (("seed", 64), ("stream", 32), ("step", 32), ("offset", 62))
    key = Key(*(_unsigned(name, each, bits) for each, (name, bits) in zip(value, limits, strict=False)))
    if key.offset % 32:
        raise ArgumentError(f"offset is {key.offset}; allowed are multiples of 32, the first element of an MX block")
    return key


def philox4x32(counter: Sequence[Array], key: Sequence[int], rounds: int = 10) -> tuple[Array, ...]:
    """Return the four output words (u32) of Philox4x32 for the counter words and the key.

    counter: four integer arrays or integers that broadcast together, each word below 2**32; key: two integers
    below 2**32. Raises ShapeError unless there are four and two of them or when they do not broadcast, DtypeError for
    an array of no integers, ArgumentError for a word or a round count outside its range.
    """
    words, keys = require_sequence("counter", counter), require_sequence("key", key)
    if len(words) != 4 or len(keys) != 2:
        raise ShapeError(f"{len(words)} counter and {len(keys)} key words were given; Philox4x32 takes 4 and 2")
    rounds = require_integer("rounds", rounds, 0, 16)
    first, second = (_unsigned("key word", k, 32) for k in keys)
    words = [_word64(c) for c in words]
    try:
        np.broadcast_shapes(*(word.shape for word in words))
    except ValueError:
        raise ShapeError(f"counter words of shapes {[w.shape for w in words]} do not broadcast together") from None
    return _rounds(words, first, second, rounds)


def _rounds(words: Sequence[Array], k0: int, k1: int, rounds: int = 10) -> tuple[Array, ...]:
    """`philox4x32` of words u64 below 2**32, unchecked."""
    x, y, z, w = words
    for _ in range(rounds):
        left, right = x * _MULTIPLIERS[0], z * _MULTIPLIERS[1]
        x, y = (right >> _HALF) ^ y ^ np.uint64(k0), right & _LOW
        z, w = (left >> _HALF) ^ w ^ np.uint64(k1), left & _LOW
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return tuple(word.astype(np.uint32) for word in (x, y, z, w))


def random_words(
    n: int, seed: int, stream: int = 0, step: int = 0, offset: int = 0, like: Array | None = None
) -> Array:
    """Return words offset .. offset+n-1 of a stream as u32 [n].

    seed: 64 bits; stream and step: 32 bits each; offset and n: words. `like` gives the array library.
    Raises ArgumentError for a value outside its range, DtypeError when `like` is no array.
    """
    n, offset = _unsigned("n", n, 62), _unsigned("offset", offset, 62)
    seed, stream, step = (_unsigned(*a) for a in (("seed", seed, 64), ("stream", stream, 32), ("step", step, 32)))
    if like is None:
        like = np.empty(0, np.uint32)
    require_array("like", like)
    first, stop = offset // 4, -(-(offset + n) // 4)
    out = empty((stop - first, 4), np.uint32, like)
    for part in chunks(stop - first, _BLOCK, like):
        block = np.arange(first + part.start, first + part.stop, dtype=np.uint64, like=like)
        high, tail = block >> _HALF, (np.uint64(stream), np.uint64(step))
        words = _rounds((block & _LOW, high, *tail), seed & 0xFFFFFFFF, seed >> 32)
        for lane in range(4):
            out[part, lane] = words[lane]
    return out.ravel()[offset % 4 : offset % 4 + n]


def random_bytes(
    n: int, seed: int, stream: int = 0, step: int = 0, offset: int = 0, like: Array | None = None
) -> Array:
    """Return bytes offset .. offset+n-1 of a stream as u8 [n]: one for each element of a tensor.

    Byte j is byte j mod 4 (the lowest first) of word j // 4. Arguments and errors as `random_words`.
    """
    n, offset = _unsigned("n", n, 62), _unsigned("offset", offset, 62)
    first = offset // 4
    words = random_words(-(-(offset + n) // 4) - first, seed, stream, step, first, like)
    octets = words.astype("<u4").view(np.uint8)  # the lowest byte first on every host
    return octets[offset % 4 : offset % 4 + n]


def random_bits(
    shape: int | Sequence[int],
    bits: int = 8,
    *,
    seed: int,
    stream: int = 0,
    step: int = 0,
    offset: int = 0,
    like: Array | None = None,
) -> Array:
    """Return an array of that shape of integers below 2**bits: `rbits` for stochastic rounding (N2).

    With i = `offset` plus an element's place in row-major order, it is the top `bits` bits of byte i of the stream
    (bits <= 8, u8), of the little-endian 16-bit unit i (bits <= 16, u16) or of word i (bits <= 32, u32).
    Raises ArgumentError for bits outside 1..32, otherwise as `random_words`.
    """
    bits = require_integer("bits", bits, 1, 32)
    one = hasattr(shape, "__index__") and not getattr(shape, "shape", ())  # an array with axes may have it too
    dims: list[Any] = [shape] if one else require_sequence("shape", shape)
    n = math.prod(_unsigned("a dimension of shape", d, 62) for d in dims)
    unit, size = ("<u1", 1) if bits <= 8 else ("<u2", 2) if bits <= 16 else ("<u4", 4)
    first = _unsigned("offset", offset, 62 - (size >> 1)) * size  # a byte below 2**62
    octets = random_bytes(n * size, seed, stream, step, first, like)
    drawn = octets.view(unit).astype(np.dtype(unit).newbyteorder("="))
    return (drawn >> drawn.dtype.type(8 * size - bits)).reshape(dims)


def _word64(word: Any) -> Array:
    if not getattr(word, "shape", ()):
        return np.uint64(_unsigned("counter word", word, 32))
    require_array("a counter word", word)
    if word.dtype.kind not in "iu":
        raise DtypeError(f"a counter word has dtype {word.dtype}; allowed are integers")
    if word.dtype.kind == "i" and word.size and int(word.min()) < 0:
        raise ArgumentError(f"a counter word holds {int(word.min())}; allowed are integers from 0 to 2**32 - 1")
    require_below("a counter word", word, 32, "counter words")
    return word.astype(np.uint64)


def _unsigned(name: str, value: int, bits: int) -> int:
    return require_integer(name, value, 0, (1 << bits) - 1)
