"""Tables in Markdown and a picture of what `product_accuracy.py` wrote.

python benchmarks/product_accuracy_page.py product_accuracy.json --plot PICTURE.png
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Row = dict[str, Any]
# layout of scales, order -> colour, mark
LINES = {
    ("per tensor", "chain"): ("#d1495b", "D"),
    ("1x128", "promote128"): ("#66a182", "s"),
    ("per tensor", "promote128"): ("#2a6f97", "."),
    ("BF16", "chain"): ("#8d6a9f", "v"),
    ("per tensor", "float32, in sequence"): ("#5c5c5c", "o"),
}
CLAIM_K = 4096
MEASURES = {
    "largest": "largest",
    "above_claimed": "above 2 %",
    "p99": "99 of 100 below",
    "median": "median",
    "largest_of_rms": "largest error / RMS",
    "norm": "of the norm",
    "shift": "shift",
}


def percent(x: float) -> str:
    """Return a share of 1 in percent with two digits that count."""
    share = 100 * x
    return "0" if x == 0 else f"{share:.1e} %" if abs(share) < 0.001 else f"{share:.{2 if share < 99.5 else 6}g} %"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    sides = ["---"] + ["--:"] * (len(header) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, sides, *rows)) + "\n"


def chosen(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def at_k(rows: Sequence[Row], k: int) -> str:
    """Return the table of every measure at one K."""
    return markdown(
        ["data, layout, order", *MEASURES.values()],
        (
            [f"{row['data']}, {row['layout']}, {row['order']}", *(percent(row[name]) for name in MEASURES)]
            for row in chosen(rows, k=k)
            if (row["layout"], row["order"]) in LINES
        ),
    )


def over_k(rows: Sequence[Row], layout: str, order: str, measure: str) -> str:
    """Return the table of one measure of an order: data down, K across."""
    mine = chosen(rows, layout=layout, order=order)
    lengths = sorted({row["k"] for row in mine})
    return markdown(
        [f"{order}, {layout}", *map(str, lengths)],
        (
            [name, *(percent(row[measure]) for row in sorted(chosen(mine, data=name), key=lambda row: row["k"]))]
            for name in dict.fromkeys(row["data"] for row in mine)
        ),
    )


def draw(document: Row, path: Path) -> None:
    """Write the picture: one panel for each kind of data, norm of the errors over K."""
    rows = document["errors"]
    names = list(dict.fromkeys(row["data"] for row in rows))
    columns = min(3, len(names))
    figure, panels = plt.subplots(
        -(-len(names) // columns), columns, figsize=(10, 6.4), sharex=True, sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for panel, name in zip(panels.flat, names, strict=False):
        _panel(panel, chosen(rows, data=name))
        panel.set_title(name, fontsize=9)
    for panel in panels[-1]:
        panel.set_xlabel("K", fontsize=8)
    figure.supylabel("norm of the errors / norm of the exact product; an error of 0 has no mark", fontsize=8)
    figure.suptitle(f"{document['device']}, products of {document['rows']} x {document['rows']} x K", fontsize=10)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", fontsize=8, frameon=False, ncols=3)
    temporary = path.with_name(f".{path.name}.part")
    figure.savefig(temporary, dpi=130, format="png", metadata={"Software": None})
    os.replace(temporary, path)
    plt.close(figure)


def _panel(axes: Any, rows: Sequence[Row]) -> None:
    for (layout, order), (colour, mark) in LINES.items():
        _line(axes, chosen(rows, layout=layout, order=order), "norm", f"{order}, {layout}", color=colour, marker=mark)
    quantised = chosen(rows, layout="1x128", order="exact")
    _line(axes, quantised, "with_quantising", "quantising alone, 1x128", color="black", linestyle="--")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(linewidth=0.4, alpha=0.5)
    axes.tick_params(labelsize=7.5)


def _line(axes: Any, rows: Sequence[Row], measure: str, label: str, **style: Any) -> None:
    heights = [row[measure] or float("nan") for row in rows]
    axes.plot([row["k"] for row in rows], heights, label=label, linewidth=1, markersize=4, **style)


def main(words: list[str] | None = None) -> None:
    """Print the tables, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("found", type=Path, help="product_accuracy.json")
    parser.add_argument("--plot", type=Path, required=True)
    given = parser.parse_args(words)
    document = json.loads(given.found.read_text())
    rows = document["errors"]
    draw(document, given.plot)
    for layout, order in (("per tensor", "chain"), ("per tensor", "promote128"), ("1x128", "exact")):
        print(over_k(rows, layout, order, "with_quantising" if order == "exact" else "norm"))
    for measure in ("largest_of_rms", "largest"):
        print(f"{MEASURES[measure]}:\n\n{over_k(rows, 'per tensor', 'chain', measure)}")
    print(at_k(rows, min(CLAIM_K, max(row["k"] for row in rows))))


if __name__ == "__main__":
    main()
