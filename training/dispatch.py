"""Exchanges between the ranks that share the experts, and the way of every token (clause N20)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import torch
import torch.distributed as dist

from refnum.arrays import TILE
from refnum.errors import ArgumentError, RefnumError

SECONDS = 300.0
"""How long an exchange waits for the other ranks."""


class RankError(RefnumError):
    """Another rank did not answer in time, or has ended."""


class Ranks:
    """The ranks of a process group; without a group, and without `torch.distributed` in use, there is one rank.

    group: of `torch.distributed`, None for the default one. seconds: how long an exchange may take; NCCL, which does
    not let the host wait, has the time of its process group.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, seconds: float = SECONDS) -> None:
        self.group, self.seconds = group, seconds
        there = dist.is_available() and dist.is_initialized()
        if group is not None and not there:
            raise ArgumentError("a process group was given, but torch.distributed is not initialised")
        self.count = dist.get_world_size(group) if there else 1
        self.rank = dist.get_rank(group) if there else 0
        self.host_waits = there and dist.get_backend(group) == "gloo"

    def rows(self, x: torch.Tensor, send: Sequence[int], receive: Sequence[int]) -> torch.Tensor:
        """Return the rows that all ranks send here, by rank; `x` holds the rows for each rank, `send` how many.

        Every rank calls this at the same time. Rows travel as bytes. Raises RankError.
        """
        if self.count == 1:
            return x
        out = torch.empty((sum(receive), x.shape[1]), dtype=x.dtype, device=x.device)
        self._exchange(viewed(out, torch.uint8), viewed(x, torch.uint8), list(receive), list(send))
        return out

    def numbers(self, x: torch.Tensor) -> torch.Tensor:
        """Return the row of numbers that each rank has for this one; x: int64 [ranks, n], one row for each rank."""
        if self.count == 1:
            return x
        out = torch.empty_like(x)
        self._exchange(out, x.contiguous(), [1] * self.count, [1] * self.count)
        return out

    def counts(self, send: torch.Tensor) -> tuple[list[int], list[int]]:
        """Return the rows sent to each rank, and those that each rank sends here; send: int64 [ranks]."""
        given, receive = torch.cat([send[:, None], self.numbers(send[:, None])], dim=1).t().tolist()
        return given, receive

    def _exchange(self, out: torch.Tensor, given: torch.Tensor, receive: list[int], send: list[int]) -> None:
        try:
            work = dist.all_to_all_single(out, given, receive, send, group=self.group, async_op=True)
            work.wait(timedelta(seconds=self.seconds)) if self.host_waits else work.wait()
        except RuntimeError as error:
            words = next(iter(str(error).splitlines()), "")[:200]
            raise RankError(
                f"rank {self.rank} of {self.count} waited up to {self.seconds:g} s for an exchange with the others, "
                f"and it failed: {words}; start all ranks again from the last checkpoint"
            ) from error


def viewed(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix's bytes as another dtype; torch refuses it for some that have no rows."""
    if x.numel():
        return x.contiguous().view(dtype)
    return x.new_empty((x.shape[0], x.shape[1] * x.element_size() // dtype.itemsize), dtype=dtype)


@dataclass(frozen=True)
class Route:
    """The way of one rank's tokens out and back, and of the rows that it received to its experts.

    send, receive: rows to and from each rank. tokens: int64, by receiving rank the tokens that go there, ascending.
    home: int64 [T, top], of each token's experts the row among those sent that has it. row_map: int64, by expert the
    received row of each row. slots: int64, the place in the row's list of experts. splits: rows of each expert here.
    places: int64, the row of each among those that are filled up. rows: the filled up rows of each expert. received:
    the number of received rows.
    """

    send: list[int]
    receive: list[int]
    tokens: torch.Tensor
    home: torch.Tensor
    row_map: torch.Tensor
    slots: torch.Tensor
    splits: list[int]
    places: torch.Tensor
    rows: list[int]
    top: int

    @property
    def received(self) -> int:
        """The number of received rows."""
        return sum(self.receive)

    @cached_property
    def segments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each 128 filled up rows: int64, the number of their expert's first 128, and how many 128 it has."""
        counts = [rows // TILE for rows in self.rows]
        firsts = [sum(counts[:expert]) for expert in range(len(counts))]
        told = [[one for one, count in zip(of, counts, strict=True) for _ in range(count)] for of in (firsts, counts)]
        first, count = torch.tensor(told, dtype=torch.int64, device=self.places.device).unbind()
        return first, count


def make_route(
    ranks: Ranks, experts: torch.Tensor, probs: torch.Tensor, per: int
) -> tuple[Route, torch.Tensor, torch.Tensor]:
    """Return the route of tokens, the experts of each received row, and the weight of each filled up row.

    A token travels once to a rank, however many of its experts are there; its list of experts and weights travels with
    it. Every rank calls this at the same time. The host waits for the device once, for the numbers of rows.

    Args:
        ranks: the ranks.
        experts: int64 [T, top], the experts of each token, no expert twice.
        probs: float32 [T, top], their weights.
        per: experts of a rank.

    Returns:
        The route, int64 [N, top] with the rank's own experts from 0 and others out of range, float32 [R].
    """
    top = experts.shape[1]
    owner = experts.div(per, rounding_mode="floor")
    goes = (owner[None] == _range(ranks.count, experts)[:, None, None]).any(2)
    each = (experts.flatten() == _range(ranks.count * per, experts)[:, None]).sum(1)
    gone = torch.cat([goes.sum(1)[:, None], each.view(ranks.count, per)], dim=1)
    came = ranks.numbers(gone)
    counts = came[:, 1:].sum(0)
    filled = counts.add(TILE - 1).div(TILE, rounding_mode="floor") * TILE
    numbers = torch.cat([gone[:, 0], came[:, 0], counts, filled]).tolist()
    send, receive, splits, rows = _parts(numbers, [ranks.count, ranks.count, per, per])
    tokens, home = _sent(goes, owner, sum(send))
    lists = torch.cat([experts.to(torch.int32), probs.contiguous().view(torch.int32)], dim=1)
    lists = ranks.rows(lists[tokens], send, receive)
    where, weights = lists[:, :top].long() - ranks.rank * per, lists[:, top:].contiguous().view(torch.float32)
    key = where.masked_fill((where < 0) | (where >= per), per).to(torch.int32).flatten()
    expert, order = (one[: sum(splits)] for one in key.sort(stable=True))
    shift = (filled.cumsum(0) - filled) - (counts.cumsum(0) - counts)
    places = _range(len(order), order) + shift[expert.long()]
    prob = torch.zeros(sum(rows), dtype=torch.float32, device=probs.device)
    prob[places] = weights.flatten()[order]
    route = Route(send, receive, tokens, home, order.div(top, rounding_mode="floor"), order % top, splits, places,
                  rows, top)  # fmt: skip
    return route, where, prob


def _sent(goes: torch.Tensor, owner: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens that are sent, by receiving rank, and of each token's experts the row among them.

    Args:
        goes: bool [ranks, T].
        owner: int64 [T, top], the rank of each expert.
        count: rows that are sent.
    """
    if goes.shape[0] == 1:  # all of them, as they are
        tokens = _range(count, goes)
        return tokens, tokens[:, None].expand_as(owner).contiguous()
    place = goes.flatten().cumsum(0) - 1
    tokens = torch.empty(count + 1, dtype=torch.int64, device=goes.device)  # the last takes what is not sent
    number = _range(goes.shape[1], goes).repeat(goes.shape[0])
    tokens.scatter_(0, torch.where(goes.flatten(), place, count), number)
    return tokens[:count], place.view(goes.shape).gather(0, owner.t()).t()


def _parts(numbers: list[int], sizes: list[int]) -> list[list[int]]:
    stops = list(itertools.accumulate(sizes))
    return [numbers[stop - size : stop] for stop, size in zip(stops, sizes, strict=True)]


def _range(n: int, like: torch.Tensor) -> torch.Tensor:
    return torch.arange(n, device=like.device)
