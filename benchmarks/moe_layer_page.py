"""The tables of a results page from what `moe_layer.py` wrote on several ranks.

python benchmarks/moe_layer_page.py DIR [--ranks 2]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

MB = 10**6
POLICIES = ("bf16", "fp8", "mxfp4", "mxfp4+fc2_input=store", "fp8+saved_activation=recompute")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table whose first column is text and whose others are numbers."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines) + "\n"


def done(section: Any) -> dict[str, Any]:
    """Return the parts of a section that were measured."""
    found = section if isinstance(section, dict) else {}
    return {name: one for name, one in found.items() if isinstance(one, dict) and "error" not in one}


def exchanges(document: dict[str, Any]) -> str:
    """Return the all-to-all of each format."""
    found = document["exchanges"]
    rows = [(name, f"{one['bytes_a_row']:,}", one["us"], f"{one['us_least']} to {one['us_most']}",
             found["times as quick as mxfp4's"][name]) for name, one in done(found).items() if "us" in one]  # fmt: skip
    return table(("rows", "bytes a row", "us", "least to most", "time / mxfp4"), rows)


def checks(documents: list[dict[str, Any]]) -> str:
    """Return what was compared with the golden layer, rank by rank."""
    rows = []
    for rank, document in enumerate(documents):
        for section in ("checks", "ragged checks", "more checks"):
            for name, one in done(document.get(section)).items():
                differ = ", ".join(f"{key} {count}" for key, count in one["differing"].items())
                rows.append((name, rank, f"{one['received rows']:,}", f"{one['elements']:,}", differ or 0,
                             ", ".join(one["two runs differ in"]) or 0))  # fmt: skip
    return table(("shape, policy, products", "rank", "received rows", "elements", "differ", "two runs"), rows)


def orders(documents: list[dict[str, Any]]) -> str:
    """Return how many products had which order."""
    counts: dict[str, int] = {}
    for document in documents:
        for section in ("checks", "ragged checks", "more checks"):
            for one in done(document.get(section)).values():
                for found in one.get("orders", {}).values():
                    for order, count in found.items():
                        counts[order] = counts.get(order, 0) + count
    return f"Orders of the library's products: {counts}\n"


def split(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parts of a section by shape and policy."""
    shapes: dict[str, dict[str, Any]] = {}
    for key, one in done(found).items():
        policy, _, shape = key.partition(" ")
        shapes.setdefault(shape, {})[policy] = one
    return shapes


def times(document: dict[str, Any]) -> str:
    """Return the milliseconds of a step under each policy, and tokens a second of a rank against fp8."""
    shapes = split(document["times"])
    rows = [(shape, *(f"{of[one]['ms']:.1f} ({of[one]['ms_least']:.1f})" if one in of else "" for one in POLICIES))
            for shape, of in shapes.items()]  # fmt: skip
    return table(("tokens x hidden x ffn, experts", *(f"`{one}`" for one in POLICIES)), rows)


def equal_memory(document: dict[str, Any]) -> str:
    """Return what a policy saves beside its speed."""
    rows = []
    speeds = split(document["times"])
    for shape, of in split(document.get("memory", {})).items():
        for policy, one in of.items():
            speed = speeds.get(shape, {}).get(policy, {}).get("tokens_a_second", "")
            rows.append((shape, f"`{policy}`", f"{one['saved, counted'] / MB:.0f}", one["saved a routed token"],
                         f"{speed:,}" if speed else ""))  # fmt: skip
    return table(("tokens x hidden x ffn, experts", "policy", "saved, MB", "a routed row", "tokens a second"), rows)


def memory(document: dict[str, Any]) -> str:
    """Return what a step held, and measured bytes divided by counted ones."""
    rows = []
    names = ("saved", "kept", "forward", "backward", "gradients")
    for shape, of in split(document.get("memory", {})).items():
        for policy, one in of.items():
            if isinstance(ratios := one.get("measured / counted"), dict):
                parts = [one[key] / MB for key in ("weights", "allocated after forward", "peak of forward",
                                                   "peak of backward", "gradients", "reserved")]  # fmt: skip
                rows.append((shape, f"`{policy}`", *(f"{part:,.0f}" for part in parts),
                             *(f"{ratios[name]:.4f}" for name in names)))  # fmt: skip
    head = ("shape", "policy", "weights", "after forward", "peak of forward", "peak of backward", "gradients",
            "reserved", *(f"{name}: measured / counted" for name in names))  # fmt: skip
    return table(head, rows)


def witness(documents: list[dict[str, Any]]) -> str:
    """Return what the witness cost at its default rate."""
    rows = [(shape, rank, one["ms"]["without"], one["ms"]["with"], f"{one['share']:+.2%}", one["spent_s"],
             one["judged"]) for rank, document in enumerate(documents)
            for shape, one in done(document.get("overhead")).items()]  # fmt: skip
    head = ("tokens x hidden x ffn, experts", "rank", "ms without", "ms with", "more", "spent, s", "judged")
    return table(head, rows)


def kernels(document: dict[str, Any]) -> str:
    """Return the ten longest kernels of a step under each policy."""
    parts = []
    for policy, rows in document["profile"].items():
        total = sum(row["us"] for row in rows)
        parts.append(f"`{policy}`: {total / 1e3:.1f} ms in the {len(rows)} longest\n")
        cells = [(f"`{row['kernel'][:70]}`", row["calls"], row["us"], f"{row['us'] / total:.1%}") for row in rows[:10]]
        parts.append(table(("kernel", "calls", "us", "share"), cells))
    return "\n".join(parts)


def main() -> None:
    """Print what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    given = parser.parse_args()
    files = [given.folder / f"moe_layer_{given.ranks}_{rank}.json" for rank in range(given.ranks)]
    documents = [json.loads(path.read_text()) for path in files]
    one = documents[0]
    made = {"Bits": lambda: checks(documents) + "\n" + orders(documents), "Exchange": lambda: exchanges(one),
            "Time": lambda: times(one), "Equal memory": lambda: equal_memory(one), "Memory, MB": lambda: memory(one),
            "Witness": lambda: witness(documents), "Kernels": lambda: kernels(one)}  # fmt: skip
    for name, make in made.items():
        try:
            print(f"## {name}\n\n{make()}")
        except (KeyError, TypeError, AttributeError) as error:
            print(f"## {name}\n\nnot measured ({error})\n")


if __name__ == "__main__":
    main()
