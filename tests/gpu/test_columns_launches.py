"""Which segments the launches over ragged experts see: every one, in order, from every window that it meets."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from refnum.gpu.ops import columns
from refnum.gpu.ops.columns import Shape

SHAPES = (Shape(), columns.SHAPES["mxfp4_columns"])


def segments(ends: list[int], tall: int) -> list[tuple[int, int]]:
    """(first row, end) of every segment, as clause N9 cuts them."""
    return [
        (row, min(row + tall, end)) for start, end in itertools.pairwise([0, *ends]) for row in range(start, end, tall)
    ]


def seen(part: columns.Part, shape: Shape, rows: int) -> Iterator[tuple[int, int, int]]:
    """(number, first row, end) of what each window of a launch meets, as kernels/columns.cuh reads it (`Segments`)."""
    origin = part.first * shape.ragged
    for window in range(part.windows):
        row, end = window * shape.ragged, min((window + 1) * shape.ragged, rows - origin)
        expert = int(part.at[window])
        while row < end:
            while part.ends[expert + 1] <= row:
                expert += 1
            before = (row - int(part.ends[expert])) // shape.tall
            first = int(part.ends[expert]) + before * shape.tall
            last = min(first + shape.tall, int(part.ends[expert + 1]))
            yield int(part.segments[expert]) + before, origin + first, origin + last
            row = last


@pytest.mark.parametrize("shape", SHAPES, ids=["128", "32"])
@pytest.mark.parametrize("unit", [1, 2, 32, 128, 160])
def test_every_window_meets_its_segments(shape: Shape, unit: int) -> None:
    rng = np.random.default_rng(unit)
    for experts, most in ((2, 3), (300, 40), (2000, 1), (2, 3000), (40, 600)):
        ends = [unit * int(n) for n in np.cumsum(rng.integers(1, most + 1, experts))]
        parts, wanted = columns._parts(ends, shape), segments(ends, shape.tall)
        whole = all(end % shape.tall == 0 for end in ends[:-1])
        windows = -(-ends[-1] // (shape.window if whole else shape.ragged))
        assert [p.first for p in parts] == list(itertools.accumulate((p.windows for p in parts[:-1]), initial=0))
        assert sum(p.windows for p in parts) == windows
        if whole:
            assert [p.experts for p in parts] == [0]
            continue
        assert all(0 < p.windows <= columns.WINDOWS and 0 < p.experts <= columns.EXPERTS for p in parts)
        assert all(len(p.ends) == p.experts + 1 == len(p.segments) + 1 and len(p.at) == p.windows for p in parts)
        found = [each for part in parts for each in seen(part, shape, ends[-1])]
        assert all(wanted[number] == (first, end) for number, first, end in found)
        assert sorted({number for number, _, _ in found}) == list(range(len(wanted)))
        if windows <= columns.WINDOWS and experts <= columns.EXPERTS:
            assert len(parts) == 1


def test_whole_segments_need_no_list() -> None:
    assert columns._parts([70001], Shape()) == [columns.Part(0, 547)]
    assert columns._parts([128, 1280, 1281], Shape()) == [columns.Part(0, 11)]


def test_arguments_are_no_longer_than_any_compiler_takes() -> None:
    assert max(map(ctypes.sizeof, (columns.ColumnArguments, columns.SeamArguments))) <= 4096


def test_segments_at_multiples_of_32_are_windows() -> None:
    rng = np.random.default_rng(0)
    for experts, most in ((2, 3), (700, 5), (2, 3000), (40, 600)):
        ends = [32 * int(n) for n in np.cumsum(rng.integers(1, most + 1, experts))]
        wanted, found = segments(ends, 128), []
        for part in columns._whole_parts(ends, Shape()):
            assert 0 < part.windows <= columns.WINDOWS and part.experts <= columns.EXPERTS
            for number, expert in enumerate(part.at, part.first):
                first = int(part.ends[expert]) + (number - int(part.segments[expert])) * 128
                found.append((first, min(first + 128, int(part.ends[expert + 1]))))
        assert found == wanted


def test_every_sector_in_which_segments_meet_is_launched_once() -> None:
    rng = np.random.default_rng(1)
    cases = [
        np.cumsum(rng.integers(1, most + 1, experts)).tolist()
        for experts, most in ((2, 3), (1700, 70), (2, 3000), (40, 600))
    ]
    for ends in (*cases, [128 * 70000, 128 * 70000 + 5, 128 * 80000], [32, 256, 300]):
        wanted: dict[int, list[int]] = {}  # sector -> segments of its 32 rows
        begins = np.array([first for first, _ in segments(ends, 128)])
        for sector in np.unique(begins[begins % 32 > 0] // 32).tolist():
            wanted[sector] = (np.searchsorted(begins, np.arange(32 * sector, 32 * sector + 32), "right") - 1).tolist()
        found: dict[int, list[int]] = {}
        for part in columns._seams(ends, Shape()):
            assert 0 < part["seams"] <= columns.SEAM_COUNT
            for i in range(part["seams"]):
                begun = [int(part["starts"][i] & (2 << row) - 1).bit_count() for row in range(32)]
                segment, sector = part["first_segment"] + part["segments"][i], part["first_sector"] + part["sectors"][i]
                assert sector not in found and part["starts"][i] % 2 == 0
                found[sector] = [segment + n for n in begun]
        assert found == wanted
