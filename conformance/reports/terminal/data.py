"""What a person reads of `refnum check --data`: one line a tensor, and histograms of scales and distances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from .. import terminal

COLUMNS = (
    "tensor",
    "subject",
    "outcome",
    "results",
    "elements",
    "MXFP4 dB",
    "to zero",
    "saturated",
    "scales",
    "distance",
    "FP8 dB",
    "FP8 to zero",
)
BAR = 40


def tensors(out: Console, report: Mapping[str, Any]) -> None:
    """Print the tensors of a report: verdict and statistics of each, then the histograms over all of them.

    `dB` is the signal-to-quantisation-noise ratio; `to zero` non-zero elements that became 0; `scales` the lowest
    and highest E8M0 byte of non-empty blocks; `distance` the largest between the blocks of one 1x128 tile.
    """
    if not report["data"]:
        return
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in report["data"]:
        groups.setdefault((row["tensor"], row["subject"]), []).append(row)
    terminal.table(out, "Tensors", COLUMNS, [_line(*key, rows) for key, rows in groups.items()])
    first = {row["tensor"]: row["statistics"] for row in report["data"] if "distances" in row["statistics"]}
    _histogram(out, "MXFP4 blocks by E8M0 scale byte", [numbers["scales"] for numbers in first.values()])
    _histogram(out, "MXFP4 blocks by distance from the largest scale of their tile (exact in FP8 up to 14)",
               [numbers["distances"] for numbers in first.values()])  # fmt: skip


def _line(tensor: str, subject: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    outcome = terminal.worst(row["outcome"] for row in rows)
    mxfp4 = _of(rows, "quantize_mxfp4[")
    fp8 = _of(rows, "quantize_fp8_tiles[")
    levels = sorted({row["level"] or "none" for row in rows if row["outcome"] != "unsupported"})
    return [
        escape(tensor),
        escape(subject),
        f"{terminal.outcome_text(outcome)} {' '.join(levels)}",
        f"{len(rows):,}",
        f"{sum(row['compared'] for row in rows):,}",
        _ratio(mxfp4),
        _share(mxfp4, "underflowed"),
        _share(mxfp4, "saturated"),
        _range(mxfp4.get("scales", {})),
        max(mxfp4.get("distances", {}), key=int, default="-"),
        _ratio(fp8),
        _share(fp8, "underflowed"),
    ]


def _of(rows: Sequence[Mapping[str, Any]], start: str) -> Mapping[str, Any]:
    return next((row["statistics"] for row in rows if row["variant"].startswith(start)), {})


def _ratio(numbers: Mapping[str, Any]) -> str:
    if not numbers:
        return "-"
    if numbers["sqnr_db"] is None:
        return "exact" if numbers["error_free"] else "-"
    return f"{numbers['sqnr_db']:.1f}"


def _share(numbers: Mapping[str, Any], name: str) -> str:
    if not numbers or not numbers["elements"]:
        return "-"
    count = numbers[name]
    return "0" if count == 0 else f"{100 * count / numbers['elements']:.2g} %"


def _range(scales: Mapping[str, int]) -> str:
    bytes_ = [int(byte) for byte in scales]
    return f"{min(bytes_)}..{max(bytes_)}" if bytes_ else "-"


def _histogram(out: Console, title: str, parts: Sequence[Mapping[str, int]]) -> None:
    total: Counter[int] = Counter()
    for part in parts:
        total.update({int(key): count for key, count in part.items()})
    if not total:
        return
    most = max(total.values())
    out.print(f"\n{title}")
    for key, count in sorted(total.items()):
        bar = "#" * max(1, round(BAR * count / most))
        out.print(f"  {key:>3}  {count:>10,}  {bar}", soft_wrap=True)
