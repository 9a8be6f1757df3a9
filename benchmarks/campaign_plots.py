"""Draw what campaigns cost: rate against tensor size and against the number of workers, from their databases.

Run: python -m benchmarks.campaign_plots OUT.png --sizes FOLDER... --workers FOLDER...
Each folder is a campaign; its largest case and its number of workers are read from it. Prints the figures as a table.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from refnum.conformance.commands.fuzz.database import FILE, Database


def figures(folder: Path) -> dict[str, float]:
    """Return the largest case, the workers, elements judged a second of wall time, and of work (one worker)."""
    db = Database(folder / FILE, readonly=True)
    compared, busy, cases = db.rows("SELECT sum(compared), sum(seconds), sum(cases) FROM targets")[0]
    start = "min(finished - json_extract(result, '$.seconds'))"  # of work: processes and contexts are up by then
    first, last = db.rows(f"SELECT {start}, max(finished) FROM shards WHERE state = 'done'")[0]
    workers = max(row[0] for row in db.rows("SELECT workers FROM sessions"))
    found = {"elements": db.spec.elements, "workers": workers, "cases": cases, "compared": compared,
             "rate": compared / (last - first), "busy rate": compared / busy}  # fmt: skip
    db.close()
    return found


def draw(axis, rows: list[dict], x: str, label: str) -> None:
    rows = sorted(rows, key=lambda row: row[x])
    unit, letter = (1e9, "G") if max(row["rate"] for row in rows) >= 1e9 else (1e6, "M")
    axis.plot([r[x] for r in rows], [r["rate"] / unit for r in rows], "o-", label="campaign, wall time")
    if x == "elements":
        axis.plot([r[x] for r in rows], [r["busy rate"] / unit for r in rows], "s--", label="one worker, time at work")
    else:
        one = rows[0]["rate"] / rows[0][x] / unit
        axis.plot([r[x] for r in rows], [one * r[x] for r in rows], "k:", label="proportional")
    scale = "log" if x == "elements" else "linear"
    axis.set(xlabel=label, ylabel=f"{letter} items judged a second", xscale=scale, yscale=scale)
    if x == "workers":
        axis.set(ylim=(0, None), xticks=[row[x] for row in rows])
    axis.legend()
    axis.grid(True, which="major", alpha=0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", type=Path, nargs="*", default=[])
    parser.add_argument("--workers", type=Path, nargs="*", default=[])
    wanted = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    asked = (("elements", "elements of the largest case", wanted.sizes), ("workers", "workers", wanted.workers))
    panels = [(x, label, [figures(folder) for folder in folders]) for x, label, folders in asked if folders]
    if not panels:
        parser.error("give --sizes or --workers folders")
    _, axes = plt.subplots(1, len(panels), figsize=(5.5 * len(panels), 4), squeeze=False, layout="constrained")
    for axis, (x, label, rows) in zip(axes[0], panels, strict=True):
        draw(axis, rows, x, label)
        print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
        for row in sorted(rows, key=lambda row: row[x]):
            print("| " + " | ".join(f"{value:.4g}" for value in row.values()) + " |")
    plt.savefig(wanted.out, dpi=130)


if __name__ == "__main__":
    main()
