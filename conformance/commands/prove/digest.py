"""The digest of a chunk's outputs (N18.4): a sum, so that a device can take it in any order, over mixed 64-bit words.

Not a cryptographic digest: it is there to tell one run's bytes from another's, not to resist a forger. The digest of
the whole certificate is SHA-256 over the chunks' digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from refnum.arrays import Array

from ...verdicts.device import as_words

RULE = "N18.4"
_INDEX, _WORD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_FIRST = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_SECOND = ((0, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, 1))
_BETWEEN = np.uint64(0x6A09E667F3BCC909)
_MODULUS = 1 << 64


class ChunkDigest:
    """The two sums of one chunk. `add` takes the outputs of its cases in order."""

    def __init__(self) -> None:
        self.sums = [0, 0]
        self.places: dict[str, int] = {}

    def add(self, outputs: Mapping[str, Array]) -> None:
        """Add the outputs of the chunk's next case: unsigned arrays by name, in the operation's order."""
        for number, (name, array) in enumerate(outputs.items()):
            words = as_words(array)
            place = self.places.get(name, 0)
            self.places[name] = place + words.size
            for which, total in enumerate(_sums(words, (number << 56) + place)):
                self.sums[which] = (self.sums[which] + total) % _MODULUS

    def hex(self) -> str:
        """The digest: both sums as 16 hexadecimal digits each."""
        return f"{self.sums[0]:016x}{self.sums[1]:016x}"


def _sums(words: Array, place: int) -> tuple[int, int]:
    if not words.size:
        return 0, 0
    index = np.arange(place, place + words.size, dtype=np.uint64, like=words)
    first = _mixed(index * _INDEX + words * _WORD, _FIRST)
    total = int(first.sum())
    return total, int(_mixed(first ^ _BETWEEN, _SECOND).sum())


def _mixed(words: Array, stages: tuple[tuple[int, int], ...]) -> Array:
    """Each stage: word ^ word >> shift, times an odd number; a bijection of 64-bit words."""
    for shift, factor in stages:
        if shift:
            words = words ^ (words >> np.uint64(shift))
        if factor != 1:
            words = words * np.uint64(factor)
    return words


def root(chunks: Iterable[str]) -> str:
    """SHA-256 over the lines `number:digest`, chunks in order from 0."""
    state = hashlib.sha256()
    for number, text in enumerate(chunks):
        state.update(f"{number}:{text}\n".encode("ascii"))
    return "sha256:" + state.hexdigest()
