"""Column kernels over experts that begin at any row, on the emulated device and in the host twin, against the model.

A CTA has rows of a window, wherever experts begin. So segments begin before a window and end behind it, rows of one
thread belong to several of them, and what lies outside decides bytes within. Every access is checked, races too.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refnum
from refnum.gpu import emulate, host
from refnum.gpu.device import plans
from refnum.gpu.device.compile import KERNELS
from refnum.gpu.ops import columns

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)

MODES = {
    "mxfp4_to_fp8_columns": ("max", "amax"),
    "mxfp4_to_fp8_rows_columns": ("max", "amax"),
    "fp8_columns": ("rne", "te"),
    "mxfp4_columns": ("max", "amax"),
}
CASES = [(name, mode) for name, modes in MODES.items() for mode in modes]
SPLITS: dict[str, list[int]] = {
    "odd": [129, 0, 131, 1, 255, 3, 121],
    "one row each": [1] * 150,
    "tiny": [5, 7, 3, 0, 1, 9, 2, 6, 31, 33, 17, 4, 8, 23, 1, 130],
    "eights": [8, 136, 24, 200, 64, 48],
    "fours": [260, 4, 132, 100, 16],
    "long": [77, 400, 163],
    "a last row": [384, 1],
    "an end behind a window": [130, 132, 2, 254, 4, 120],
    "at multiples of 32": [96, 0, 160, 32, 288, 64, 45],
    "halves": [112, 144, 128, 128],
}
EMULATOR = emulate.Emulator()


def inputs(name: str, m: int, k: int, kind: str, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Codes and scale bytes: within a few binades, of any bytes with NaN, zeros under uneven bytes, or far apart."""
    rng = np.random.default_rng(seed)
    wide = 1 if name == "fp8_columns" else 2
    codes = rng.integers(0, 256, (m, k // wide)).astype(np.uint8)
    columns = -(-k // 128) if wide == 1 else k // 32
    low, above = {"near": (118, 10), "any": (0, 256), "sparse": (100, 40), "zeros": (120, 9), "far": (0, 1)}[kind]
    scales = rng.integers(low, low + above, (m, columns)).astype(np.uint8)
    if kind == "sparse":
        codes[rng.random(codes.shape) < 0.97] = 0
    if kind == "zeros":  # rows of zeros under the largest bytes
        rows = rng.random(m) < 0.5
        codes[rows] &= 0x88 if wide == 2 else 0x80
        scales[rows] = 140
    if kind == "far":
        scales[::40] = 254
    if kind == "near" and wide == 1:
        codes[(codes & 0x7F) == 0x7F] = 0x7E
    return codes, scales


def compare(call: Any, name: str, mode: str, splits: list[int], k: int, kind: str, seed: int) -> None:
    given = inputs(name, sum(splits), k, kind, seed)
    wanted = getattr(refnum, name)(*given, splits, mode)
    for number, (ours, theirs) in enumerate(zip(call(*given, splits, mode), wanted, strict=True)):
        wrong = np.argwhere(ours != theirs)
        assert not len(wrong), f"{kind}, output {number}: {len(wrong)} of {theirs.size} differ, first at {wrong[0]}"


def fitting(name: str, splits: list[int]) -> list[int]:
    return [n + n % 2 for n in splits] if name == "mxfp4_columns" else splits


@pytest.mark.parametrize("splits", list(SPLITS))
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_experts_begin_anywhere(name: str, mode: str, splits: str) -> None:
    rows = fitting(name, SPLITS[splits])
    for number, (kind, k) in enumerate((("near", 256), ("any", 96), ("sparse", 288), ("zeros", 32))):
        compare(emulate.subject_operations(EMULATOR)[name], name, mode, rows, k, kind, number)
        if host.available()[0]:
            compare(getattr(host, name), name, mode, rows, k, kind, number)


def whole(splits: list[int]) -> list[int]:
    """Splits with one more expert, so that columns are whole sixteens of bytes and not always whole sectors."""
    return [*splits, -sum(splits) % 16 + 16 * (len(splits) % 2)]


@pytest.mark.parametrize("splits", list(SPLITS))
@pytest.mark.parametrize("name", ["mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns"])
def test_sectors_in_which_segments_meet_are_written_apart(
    name: str, splits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "CROWDED", 1000)
    rows = whole(SPLITS[splits])
    assert (
        columns._cut(f"{name}_amax", list(itertools.accumulate(filter(None, rows))), columns.Shape(), 16)[0].split == 2
    )
    plans.forget()
    for number, (kind, k) in enumerate((("near", 256), ("any", 96), ("sparse", 288), ("zeros", 544), ("far", 32))):
        compare(emulate.subject_operations(EMULATOR)[name], name, "amax", rows, k, kind, number)
    plans.forget()


@pytest.mark.parametrize(
    ("found", "planted"),
    [
        ("? above.low : below.low", "? below.low : below.low"),  # the segment below has all rows
        ("__popc(starts & (2u <<", "__popc(starts & (1u <<"),  # a segment begins a row late
        ("byte - 9 > 246 - 9", "byte > 255"),  # differences of bytes wrap
        ("offset_t row = (a.first_sector + a.sectors[seam])", "offset_t row = (a.sectors[seam])"),
    ],
)
def test_a_defect_in_shared_sectors_shows(found: str, planted: str, tmp_path: Path) -> None:
    shutil.copytree(KERNELS, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "column_seams.cu"
    assert file.read_text().count(found) == 1
    file.write_text(file.read_text().replace(found, planted))
    plans.forget()
    call = emulate.subject_operations(emulate.Emulator(tmp_path))["mxfp4_to_fp8_columns"]
    with pytest.raises((AssertionError, emulate.EmulationError)):
        for rows in ([32, 101, 1, 2, 200, 77, 35], [129, 131, 1, 3, 120]):
            for kind in ("near", "any", "far"):
                compare(call, "mxfp4_to_fp8_columns", "amax", whole(rows), 96, kind, 0)
    plans.forget()
