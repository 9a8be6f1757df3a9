"""Questions about steps of optimisers: each part of a step, scalars that degenerate, numbers of every kind (N27)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...cases.corners.updates import KINDS, NAMES, step
from ...cases.draw.factors import TABLES, factors
from ..draft import SIGN, Draft, plain

COMMON = ("STEP_EPS_INSIDE", "STEP_FUSED", "STEP_LERP", "STEP_OLD_MOMENT", "STEP_RATE_FIRST", "STEP_RECIPROCAL",
          "STEP_ROOT_NEAR", "STEP_SQUARE_LATER", "STEP_SUBNORMALS_LOST", "STEP_WEIGHT_FUSED")  # fmt: skip
ADAM = (*COMMON, "STEP_DECAY_LEFT_OUT", "STEP_EPS_CORRECTED")
SPAM = (*COMMON, "SPAM_CLIP_BY_NEW_V", "SPAM_DECAY_FIRST", "SPAM_NOT_CLIPPED", "SPAM_RESET_AFTER", "SPAM_SIGN_LOST")
STABLE = (*COMMON, "STEP_DECAY_LEFT_OUT", "STEP_EPS_CORRECTED", "STABLE_SPAM_CLAMPED", "STABLE_SPAM_FORGETS_OTHERWISE",
          "STABLE_SPAM_NOT_SCALED")  # fmt: skip


def _kinds(number: int) -> dict[str, np.ndarray]:
    """Numbers of every kind, each array in another order."""
    signed = np.concatenate([KINDS, KINDS | np.uint32(SIGN)])
    order = np.arange(len(signed))
    found = {n: signed[(order * step_ + number) % len(signed)] for n, step_ in zip(NAMES, (1, 3, 5, 9), strict=True)}
    return {name: words[None].view(np.float32) for name, words in found.items()}


def _drafts(operation: str, flags: tuple[str, ...], choices: list[dict[str, Any]]) -> Iterator[Draft]:
    for params in choices:
        for row in range(len(TABLES[operation])):
            scalars = {"factors": factors(operation, row)}
            yield Draft({**step((2, 12), row), **scalars}, params, flags, f"ordinary numbers, scalars {row}")
            yield Draft({**_kinds(row), **scalars}, params, flags, f"numbers of every kind, scalars {row}")
        alike = np.full(len(factors(operation, 0)), 1, np.float32)
        yield Draft({**_kinds(7), "factors": alike}, params, flags, "scalars of 1")
    yield Draft({**step((0, 3)), "factors": factors(operation, 0)}, choices[0], flags, "no rows")


def _adam() -> Iterator[Draft]:
    yield from _drafts("adam_apply", ADAM, [{}])


def _spam() -> Iterator[Draft]:
    flags = itertools.product((True, False), repeat=3)
    every = [dict(zip(("clip", "reset", "decay"), chosen, strict=True)) for chosen in flags]
    yield from _drafts("spam_apply", SPAM, every)


def _stable() -> Iterator[Draft]:
    yield from _drafts("stable_spam_apply", STABLE, [{"forget": forget} for forget in ("", "before", "after")])


adam_apply, spam_apply, stable_spam_apply = plain(_adam), plain(_spam), plain(_stable)
