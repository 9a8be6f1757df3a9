"""Questions about Philox and the random bits made from it (N13)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..draft import Draft, plain

COUNT = 48


def _philox4x32() -> Iterator[Draft]:
    """Philox4x32-10: Random123's three published answers, and a run of counters."""
    ones = 0xFFFFFFFF
    pi = ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0))
    for counter, key, word in (((0,) * 4, (0, 0), "zeros"), ((ones,) * 4, (ones, ones), "ones"), (*pi, "digits of pi")):
        yield Draft(
            {"counter": np.asarray([counter], np.uint32), "key": np.asarray(key, np.uint32)},
            flags=("PHILOX_WIDTH",),
            comment=f"Random123 known answer: {word}",
        )
    run = np.stack([np.arange(8), np.zeros(8), np.full(8, 3), np.full(8, 9)], axis=1).astype(np.uint32)
    yield Draft(
        {"counter": run, "key": np.asarray([0x01234567, 0x89ABCDEF], np.uint32)},
        flags=("PHILOX_WIDTH",),
        comment="eight counters, stream 3, step 9",
    )


def _random_bits() -> Iterator[Draft]:
    """Streams by key: seed, stream, step and offset all differ, and the block number passes 2^32."""
    keys = [
        [0, 0, 0, 0],
        [0x0123456789ABCDEF, 3, 9, 0],
        [0x0123456789ABCDEF, 9, 3, 0],
        [2026, 1, 0, 32],
        [2026, 0, 1, 96],
        [0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFE, 0],
        [7, 5, 11, (1 << 36) - 32],
        [7, 5, 11, (1 << 34) + 64],
    ]
    for width in (8, 1, 5, 12, 16, 20, 24, 32):
        low = ("RANDOM_LOW_BITS",) if width not in (8, 16, 32) else ()
        yield Draft(
            {"keys": np.asarray(keys, np.uint64)},
            {"bits": width, "count": COUNT},
            flags=("PHILOX_STREAM_STEP", *low),
            comment=f"{width} bits an element, {COUNT} elements of each stream from its offset on",
        )


philox4x32, random_bits = plain(_philox4x32), plain(_random_bits)
