"""What ranks do together outside of the layer: sums in their order, and waiting for each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .dispatch import RankError, Ranks

Tensor = torch.Tensor


def in_order(ranks: Ranks, x: Tensor) -> Tensor:
    """Return the sum of a tensor over all ranks, added in the order of the ranks; RankError if one is missing."""
    total, *parts = _gathered(ranks, x)
    for part in parts:
        total = total + part
    return total


def wait_for_all(ranks: Ranks) -> None:
    """Return when every rank is here; RankError if one is missing."""
    if ranks.count > 1:
        _answered(ranks, dist.barrier, group=ranks.group)


def total(ranks: Ranks, numbers: Sequence[int]) -> list[int]:
    """Return sums of integers over all ranks."""
    device = "cuda" if ranks.count > 1 and not ranks.host_waits else "cpu"
    return in_order(ranks, torch.tensor(list(numbers), dtype=torch.int64, device=device)).tolist()


def _gathered(ranks: Ranks, x: Tensor) -> list[Tensor]:
    if ranks.count == 1:
        return [x]
    parts = [torch.empty_like(x) for _ in range(ranks.count)]
    _answered(ranks, dist.all_gather, parts, x.contiguous(), group=ranks.group)
    return parts


def _answered(ranks: Ranks, function: Callable[..., Any], *given: Any, **named: Any) -> None:
    try:
        function(*given, **named)
    except RuntimeError as error:
        words = next(iter(str(error).splitlines()), "")[:200]
        raise RankError(f"rank {ranks.rank} of {ranks.count} lost another rank: {words}; resume the run") from error
