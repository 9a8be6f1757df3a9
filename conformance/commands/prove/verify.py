"""Re-verification: chunks of a certificate made again by the model, on any machine, and their digests compared."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from refnum.arrays import Array
from refnum.errors import ArgumentError

from .catalogue import get_proof
from .certificate import CertificateError
from .chunk import golden_chunk


def draw_chunks(document: dict[str, Any], count: int | None, seed: int, numbers: list[int] | None = None) -> list[int]:
    """Return the chunks to make again: those named, or `count` drawn by a seed, or all when `count` is None.

    Raises ArgumentError for a chunk that the certificate does not have.
    """
    total = int(document["domain"]["chunks"])
    for number in numbers or ():
        if not 0 <= number < total:
            raise ArgumentError(f"chunk {number} does not exist; {document['proof']} has chunks 0 to {total - 1}.")
    if numbers:
        return sorted(set(numbers))
    if count is None or count >= total:
        return list(range(total))
    return sorted(random.Random(seed).sample(range(total), count))


def verify(
    document: dict[str, Any], chunks: list[int], like: Array = None, told: Callable[[int], None] = lambda chunk: None
) -> int:
    """Make chunks of a loaded certificate again with the model and compare digests; return how many agree: all.

    like: where the model runs; NumPy when None. Raises CertificateError at the first chunk that differs.
    """
    proof = get_proof(document["proof"])
    like = np.empty(0, np.uint8) if like is None else like
    for chunk in chunks:
        made = golden_chunk(proof, chunk, like)
        if made != document["digest"]["chunks"][chunk]:
            raise CertificateError(
                f"{proof.name}, chunk {chunk} ({proof.made.title(chunk)}): the certificate has "
                f"{document['digest']['chunks'][chunk]}, the model gives {made}."
            )
        told(chunk)
    return len(chunks)
