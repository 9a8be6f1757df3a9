"""The random bits of cases that round stochastically: an array, or a Philox key (N13)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import refnum
from refnum import philox

from ..case import Case
from ..entry import WORDS
from ..operation import OPERATIONS

Array = Any

OFFSETS = (0, 32, (1 << 32) - 32, ((1 << 33) - 1) * 32)
"""Offsets of keyed random bits: a key's first element, and where its counter carries; beside them `last_offset`."""

ORDINARY = 4
"""Of so many keys one is small in every word."""

STREAM = 1 << 16
"""Philox stream of the random bits of stochastic rounding, far from the streams of the inputs."""


def with_random_bits(
    operation: str, profile: str, inputs: dict[str, Array], seed: int, like: Array = None
) -> dict[str, Array]:
    """Add `rbits` where the profile rounds stochastically and the operation takes them, and words that are missing."""
    for place, name in enumerate(name for name in OPERATIONS[operation].inputs if name in WORDS):
        if name not in inputs:
            inputs[name] = philox.random_bits(
                tuple(map(int, inputs["x"].shape)), WORDS[name], seed=seed, stream=STREAM + 1 + place, like=like
            )
    chosen = refnum.get_profile(profile)
    if chosen.rounding == "stochastic" and "rbits" in OPERATIONS[operation].optional:
        shape = tuple(int(side) for side in inputs["x"].shape)
        inputs["rbits"] = philox.random_bits(shape, chosen.random_bits, seed=seed, stream=STREAM, like=like)
    return inputs


def by_key(case: Case, seed: int) -> Case:
    """Return a case of a variant with keyed random bits, with a Philox key in place of `rbits` (N13.5)."""
    if case.params.get("random") != "keyed":
        return case
    key = key_of(seed, refnum.get_profile(case.profile).random_bits)
    inputs = {name: array for name, array in case.inputs.items() if name != "rbits"}
    return replace(case, inputs=inputs, params={**case.params, "philox": key})


def key_of(seed: int, bits: int) -> list[int]:
    """Return a Philox key for random bits of a width: seed, stream, step and offset.

    Most differ in every word, and their offsets lie at both ends and at the carries of the counter; one of `ORDINARY`
    is as training has them: a small seed, 0 or one of 32 bits, one of the first streams and steps, an offset amid a
    tensor.
    """
    if seed % ORDINARY == ORDINARY - 1:
        number = seed // ORDINARY
        drawn = (number % 1000, 0, (number * 0x9E3779B1 | 1 << 31) & (1 << 32) - 1)[number % 3]
        return [drawn, number % 5 // 2, number % 4, 96 * (number % 1000)]
    mixed = (seed + 1) * 0x9E3779B97F4A7C15
    offsets = (*OFFSETS, last_offset(bits))
    return [
        mixed & (1 << 64) - 1,
        mixed >> 7 & (1 << 32) - 1,
        mixed >> 19 & (1 << 32) - 1,
        offsets[seed % len(offsets)],
    ]


def last_offset(bits: int) -> int:
    """Return the last power of two that keyed random bits of a width may begin at: bytes, halves or words (N13.5)."""
    return 1 << (61 if bits <= 8 else 60 if bits <= 16 else 59)
