"""The upper bound (Clopper and Pearson's) of the failure rate after a number of sampled cases."""

from __future__ import annotations

import math
from statistics import NormalDist

CONFIDENCE = 0.95
MOST_EXACT = 10**6
"""Failures up to which the bound is exact."""


def upper_bound(cases: int, failing: int = 0, confidence: float = CONFIDENCE) -> float:
    """Return the largest failure rate that is not refuted at this confidence after `failing` of `cases` failed.

    One-sided and exact: the rate at which at most `failing` failures have probability 1 - confidence; for none it is
    1 - (1 - confidence)^(1/cases). 1.0 when nothing was run or everything failed. Of more than `MOST_EXACT` failures it
    is Wilson's score bound, which is the same to five digits there.
    """
    if cases <= 0 or failing >= cases:
        return 1.0
    if failing == 0:
        return -math.expm1(math.log1p(-confidence) / cases)
    if failing > MOST_EXACT:
        return _score(failing / cases, cases, confidence)
    low, high = failing / cases, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if _at_most(failing, cases, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(failing: int, cases: int, rate: float) -> float:
    """Probability of at most so many failures at a rate between failing / cases and 1: the last term is the largest."""
    ways = math.lgamma(cases + 1) - math.lgamma(failing + 1) - math.lgamma(cases - failing + 1)
    term = total = math.exp(ways + failing * math.log(rate) + (cases - failing) * math.log1p(-rate))
    for k in range(failing, 0, -1):
        term *= k / (cases - k + 1) * (1 - rate) / rate
        total += term
        if term <= total * 2.0**-60:
            break
    return total


def _score(rate: float, cases: int, confidence: float) -> float:
    """Wilson's score bound of a rate that was seen."""
    z = NormalDist().inv_cdf(confidence)
    spread = math.sqrt(rate * (1 - rate) / cases + (z / (2 * cases)) ** 2)
    return (rate + z * z / (2 * cases) + z * spread) / (1 + z * z / cases)


def statement(cases: int, failing: int) -> str:
    """Return the result of the sampling as a sentence to quote."""
    if not cases:
        return "nothing was sampled"
    bound = upper_bound(cases, failing)
    failed = "none failed" if not failing else f"{failing} failed"
    return (
        f"{cases} sampled cases, {failed}: with 95 % confidence fewer than {bound:.3g} of the cases that these recipes "
        f"draw fail. Sampling is not a proof"
    )
