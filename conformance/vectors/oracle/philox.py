"""Philox and its random bits by definition, on Python integers (N13)."""

from __future__ import annotations

from typing import Any

from ..load import Vector


def philox4x32(vector: Vector) -> Any:
    """N13.1: ten rounds on Python integers."""
    return ([_block(counter, vector.inputs["key"].tolist()) for counter in vector.inputs["counter"].tolist()],)


def _block(counter: list[int], key: list[int]) -> list[int]:
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        left, right = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = right >> 32 ^ c1 ^ k0, right % 2**32, left >> 32 ^ c3 ^ k1, left % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


def random_bits(vector: Vector) -> Any:
    """N13.2, N13.3 and N13.5: the top bits of the byte, 16-bit unit or word of each element of a stream."""
    bits, count = vector.params["bits"], vector.params["count"]
    size = 1 if bits <= 8 else 2 if bits <= 16 else 4
    return ([_stream_bits(key, bits, size, count) for key in vector.inputs["keys"].tolist()],)


def _stream_bits(key: list[int], bits: int, size: int, count: int) -> list[int]:
    seed, stream, step, offset = key
    first = offset * size // 16
    words = []
    for block in range(first, (offset + count) * size // 16 + 1):
        words += _block([block % 2**32, block >> 32, stream, step], [seed % 2**32, seed >> 32])
    octets = b"".join(word.to_bytes(4, "little") for word in words)
    starts = range(offset * size - first * 16, (offset + count) * size - first * 16, size)
    return [int.from_bytes(octets[at : at + size], "little") >> 8 * size - bits for at in starts]
