"""The picture of a run: share of copy bandwidth by kernel, the subject as bars, its peers as marks beside them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from refnum.errors import FileError, UnsupportedError

from ...cases import layouts
from .document import timed

SUBJECT = "#2a6f97"
PEERS = (("#d1495b", "D"), ("#edae49", "s"), ("#66a182", "^"), ("#8d6a9f", "v"), ("#5c5c5c", "o"))
LAYOUTS = "scales in other layouts"
# heading -> operations under it
GROUPS: dict[str, tuple[str, ...]] = {
    "quantise": ("quantize_mxfp4", "quantize_fp8_tiles"),
    "dequantise": ("dequantize_mxfp4", "dequantize_fp8_tiles"),
    "NVFP4": ("quantize_nvfp4", "dequantize_nvfp4", "hadamard16", "hadamard_quantize_nvfp4"),
    "TetraJet": ("quantize_tetrajet", "q_ema"),
    "logarithmic": ("luq", "dequantize_luq", "radix4", "dequantize_radix4"),
    "DGE and OCC": ("dge", "occ"),
    "FP8 and MXFP4, rows": ("fp8_to_mxfp4", "mxfp4_to_fp8"),
    "columns": ("mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns", "mxfp4_columns", "fp8_columns"),
    "SwiGLU": ("swiglu_quantize", "swiglu_backward"),
    "payload and permutation": (
        "pack_payload", "unpack_payload", "quantize_payload", "fp8_to_payload", "permute_pad", "permute_unpack",
        "unpermute",
    ),
    "scalar casts": ("encode_e2m1", "encode_e4m3", "encode_e8m0"),
    LAYOUTS: (),
}  # fmt: skip
ROW = 0.195
"""Inches that a line is high."""


def _group(record: Mapping[str, Any]) -> str:
    if {layouts.IN, layouts.OUT} & set(record["params"]):
        return LAYOUTS
    return next((name for name, operations in GROUPS.items() if record["operation"] in operations), LAYOUTS)


def _rows(own: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield (text, record) from the top: a heading without a record, then its lines by share, greatest first."""
    for heading in GROUPS:
        mine = sorted((r for r in own if _group(r) == heading), key=lambda r: -r["of_copy"])
        if mine:
            yield heading, None
            yield from ((r["line"], r) for r in mine)


def draw(found: dict[str, Any], path: Path) -> None:
    """Write the picture of the first shape at which the subject was timed; the suffix of the path says the format.

    Raises UnsupportedError without such a shape or matplotlib, FileError when the file cannot be written.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UnsupportedError("--plot needs matplotlib: install refnum[plot].") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shape = next((r["shape"] for r in timed(found) if r["is_subject"] and "of_copy" in r), "")
    if not shape:
        raise UnsupportedError("--plot needs a conversion of the subject's, and the subject was timed nowhere.")
    records = [r for r in timed(found, shape) if "of_copy" in r]
    rows = list(_rows([r for r in records if r["is_subject"]]))
    places = {record["line"]: -place for place, (_, record) in enumerate(rows) if record}
    figure, axes = plt.subplots(figsize=(10, 1.7 + ROW * len(rows)), layout="constrained")
    names = dict.fromkeys(r["contender"] for r in records if not r["is_subject"])
    _bars(axes, [record for _, record in rows if record], places)
    for name, (colour, mark) in zip(names, PEERS * (1 + len(names) // len(PEERS)), strict=False):
        mine = [r for r in records if r["contender"] == name and r["line"] in places]
        axes.plot(
            [100 * r["of_copy"] for r in mine], [places[r["line"]] for r in mine], linestyle="none", marker=mark,
            markersize=5, color=colour, markeredgecolor="white", markeredgewidth=0.5, label=name, zorder=3,
        )  # fmt: skip
    _labels(axes, rows)
    axes.set_xlim(0, max(104.0, *(100 * r["of_copy"] + 2 for r in records)))
    axes.set_xlabel(
        "share of device copy bandwidth, %: bytes that a contender reads and writes over its time, as in the table",
        fontsize=8,
    )
    copy = found["header"]["copy_bytes_per_second"] / 1e12
    axes.set_title(f"{found['header']['device']['name']}, {shape}, copy {copy:.2f} TB/s", fontsize=10)
    figure.legend(loc="outside lower center", fontsize=8, frameon=False, ncols=min(1 + len(names), 6))
    _save(figure, path)
    plt.close(figure)


def _bars(axes: Any, own: Sequence[dict[str, Any]], places: Mapping[str, int]) -> None:
    heights = [places[r["line"]] for r in own]
    shares = [100 * r["of_copy"] for r in own]
    axes.barh(heights, shares, color=SUBJECT, height=0.66, label=own[0]["contender"])
    axes.axvline(100, color="black", linewidth=0.8, linestyle="--")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)


def _labels(axes: Any, rows: Sequence[tuple[str, dict[str, Any] | None]]) -> None:
    """Write names to the left, times to the right of all bars and marks, so that nothing stands on a number."""
    axes.set_yticks([-place for place in range(len(rows))], [text for text, _ in rows], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(0.6 - len(rows), 0.6)
    for label, (_, record) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("normal" if record else "bold")
    for place, (_, record) in enumerate(rows):
        if record:
            text = f"{record['us']['median']:.0f} us"
            axes.text(1.055, -place, text, transform=axes.get_yaxis_transform(), ha="right", va="center", fontsize=7)


def _save(figure: Any, path: Path) -> None:
    """Write under a temporary name, then rename."""
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        figure.savefig(temporary, dpi=130, metadata={"Software": None} if path.suffix == ".png" else None)
        temporary.chmod(0o644)
        temporary.replace(path)
    except (OSError, ValueError) as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise FileError(f"Cannot write {path}: {error}.") from error
