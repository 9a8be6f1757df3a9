"""Which blocks of rows the launches over ragged experts take: every one once, in order, within what 16 bits reach."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from refnum.gpu.ops import columns


def blocks(ends: list[int], tall: int) -> list[tuple[int, int]]:
    """(first row, rows) of every block, as clause N9 cuts them."""
    return [
        (row, min(tall, end - row)) for start, end in itertools.pairwise([0, *ends]) for row in range(start, end, tall)
    ]


def decoded(part: columns.Part) -> list[tuple[int, int]]:
    """What kernels/columns.cuh reads of them (`segment_at`)."""
    places = part.places[: part.segments + 1]
    return [(part.row + (a << part.shift), b - a << part.shift) for a, b in itertools.pairwise(places)]


@pytest.mark.parametrize("tall", [32, 128])
@pytest.mark.parametrize("unit", [1, 2, 32, 128, 160])
def test_every_block_is_taken_once(tall: int, unit: int) -> None:
    rng = np.random.default_rng(unit)
    for experts, most in ((2, 3), (300, 40), (2000, 1), (2, 3000), (40, 600)):
        ends = [unit * int(n) for n in np.cumsum(rng.integers(1, most + 1, experts))]
        parts = columns._parts(ends, tall)
        wanted = blocks(ends, tall)
        assert [block for part in parts for block in decoded(part)] == wanted
        assert [part.segment for part in parts] == list(
            itertools.accumulate((p.segments for p in parts[:-1]), initial=0)
        )
        assert all(part.segments <= columns.SEGMENTS and part.dense_rows == 0 for part in parts)
        if len(wanted) <= columns.SEGMENTS and ends[-1] <= 0xFFFF:
            assert len(parts) == 1


def test_one_expert_needs_no_list() -> None:
    part = columns._parts([70001], 128)
    assert [each[:5] for each in part] == [(0, 0, 70001, 547, 0)]


def test_arguments_are_no_longer_than_any_compiler_takes() -> None:
    assert ctypes.sizeof(columns.ColumnArguments) <= 4096
