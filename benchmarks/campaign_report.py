"""Write what a campaign came to as Markdown for a results page: totals, operations, rate over time, findings, holes.

Run: python -m benchmarks.campaign_report FOLDER [--holes]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from refnum.conformance.commands.fuzz.database import FILE, Database
from refnum.conformance.commands.fuzz.status import Watcher

STEP = 60.0
"""Seconds that one row of the rate over time covers."""


def report(folder: Path, holes: bool = False) -> str:
    """Return the Markdown of a campaign's folder; holes: also every coverpoint that no case has hit."""
    db = Database(folder / FILE, readonly=True)
    summary = Watcher(db).summary()
    lines = [*_head(summary, db), "", *_operations(summary["rows"]), "", *_rates(db), "", *_findings(summary)]
    if holes:
        lines += ["", *_holes(summary["rows"])]
    db.close()
    return "\n".join(lines) + "\n"


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    """Return a Markdown table: the first column to the left, figures to the right."""
    ruler = "|---|" + "--:|" * (len(head) - 1)
    return ["| " + " | ".join(head) + " |", ruler, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def _head(summary: dict[str, Any], db: Database) -> Iterator[str]:
    totals, busy = summary["totals"], sum(row["seconds"] for row in summary["rows"])
    yield f"Seed {summary['seed']}, golden model {summary['model'][:23]}, {len(db.spec.targets)} variants."
    cards = Counter(
        (who["card"].get("name", "processor"), who["card"].get("driver_version", ""), who["device"])
        for who in (worker["identity"] for worker in summary["workers"])
    )
    for (name, driver, device), processes in sorted(cards.items()):
        yield f"{processes} worker processes on {name} {device} {driver}".rstrip() + "."
    yield (
        f"{totals['compared']:,} items compared in {totals['cases']:,} cases of {totals['shards']:,} shards, "
        f"{summary['seconds']:.0f} s: {summary['rate'] / 1e9:.2f} G items a second; workers were at work {busy:.0f} s."
    )
    yield (
        f"Failing cases {totals['failing']}, faults {totals['faults']}, unsupported {totals['unsupported']}; "
        f"coverpoints {totals['points']:,} of {totals['expected']:,}. End: {summary['end']}."
    )
    yield summary["statement"] + "."


def _operations(rows: list[dict[str, Any]]) -> list[str]:
    head = (
        "operation",
        "variants",
        "cases",
        "items",
        "G items/s of work",
        "failing",
        "unsupported",
        "coverpoints",
        "95 % bound",
    )
    found = [
        (f"`{row['operation']}`", row["variants"], f"{row['cases']:,}", f"{row['compared']:.3g}",
         f"{row['compared'] / max(row['seconds'], 1e-9) / 1e9:.2f}", row["failing"] + row["faults"], row["unsupported"],
         f"{row['points']:,} of {row['expected']:,}", f"{row['bound']:.2g}")
        for row in sorted(rows, key=lambda row: row["operation"])
    ]  # fmt: skip
    return table(head, found)


def _rates(db: Database) -> list[str]:
    """Shards and items finished in each minute since the first; pauses between sessions count as time."""
    shards = db.rows("SELECT finished, json_extract(result, '$.compared'), json_extract(result, '$.cases') FROM shards "
                     "WHERE state = 'done' ORDER BY finished")  # fmt: skip
    if not shards:
        return []
    sums: dict[int, list[int]] = {}
    for finished, compared, cases in shards:
        row = sums.setdefault(int((finished - shards[0][0]) // STEP), [0, 0, 0])
        row[:] = [row[0] + 1, row[1] + cases, row[2] + compared]
    found = [(minute + 1, *row[:2], f"{row[2]:.3g}", f"{row[2] / STEP / 1e9:.2f}") for minute, row in sums.items()]
    begun = time.strftime("%Y-%m-%d %H:%M", time.gmtime(shards[0][0]))
    return [f"From {begun} UTC:", "", *table(("minute", "shards", "cases", "items", "G items/s"), found)]


def _findings(summary: dict[str, Any]) -> list[str]:
    if not summary["findings"]:
        return ["No findings."]
    found = []
    for finding in summary["findings"]:
        record = finding["record"] or {}
        kinds = ", ".join(entry["id"] for entry in record.get("bug_classes", [])[:2])
        found.append((finding["target"], finding["outcome"] or finding["state"], kinds, record.get("case", ""),
                      (record.get("points") or [""])[0], finding["seen"] or "", finding["words"][:120]))  # fmt: skip
    return table(("target", "outcome", "named", "smallest case", "coverpoint", "seen", "words"), found)


def _holes(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in sorted(rows, key=lambda row: row["operation"]):
        for variant, points in sorted(row["holes"].items()):
            yield f"- `{variant}`: {', '.join(points)}"


def main() -> None:
    """Print the report of the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--holes", action="store_true", help="also list the coverpoints that no case has hit")
    wanted = parser.parse_args()
    print(report(wanted.folder, wanted.holes), end="")


if __name__ == "__main__":
    main()
