"""The exact (Clopper-Pearson) upper bound of the failure rate after a number of sampled cases."""

from __future__ import annotations

import math

CONFIDENCE = 0.95


def upper_bound(cases: int, failing: int = 0, confidence: float = CONFIDENCE) -> float:
    """Return the largest failure rate that is not refuted at this confidence after `failing` of `cases` failed.

    One-sided and exact: the rate at which at most `failing` failures have probability 1 - confidence; for none it is
    1 - (1 - confidence)^(1/cases). 1.0 when nothing was run or everything failed.
    """
    if cases <= 0 or failing >= cases:
        return 1.0
    if failing == 0:
        return -math.expm1(math.log1p(-confidence) / cases)
    low, high = failing / cases, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if _at_most(failing, cases, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(failing: int, cases: int, rate: float) -> float:
    """Probability of at most so many failures at a rate strictly between 0 and 1, summed in logarithms."""
    term = cases * math.log1p(-rate)
    total = math.exp(term)
    for k in range(1, failing + 1):
        term += math.log((cases - k + 1) / k) + math.log(rate) - math.log1p(-rate)
        total += math.exp(term)
    return total


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
