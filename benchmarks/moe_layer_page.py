"""The results page of the layer on several GPUs, from what `moe_layer.py` wrote on each rank.

    python benchmarks/moe_layer_page.py docs/results/2026-11-28-h200-layer-two DIR [--ranks 2]

writes NAME.md and NAME.json. What was not measured has no section.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from convergence import T95
from moe_layer_words import (
    BITS,
    EQUAL,
    EXCHANGE,
    INTRODUCTION,
    MEMORY,
    PROFILE,
    TIME,
    WITNESS,
)

from refnum.training.data import write_whole

Document = dict[str, Any]
MB = 10**6
POLICIES = ("bf16", "fp8", "mxfp4", "mxfp4+fc2_input=store", "fp8+saved_activation=recompute")
PAIRS = (("mxfp4", "fp8", "equal recomputation"),
         ("mxfp4+fc2_input=store", "fp8+saved_activation=recompute", "no more memory"), ("mxfp4", "bf16", ""),
         ("fp8", "bf16", ""))  # fmt: skip
"""Whose tokens a second are compared: one, with another, at what."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table whose first column is text and whose others are numbers."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines) + "\n"


def done(section: Any) -> Document:
    """Return the parts of a section that were measured."""
    found = section if isinstance(section, dict) else {}
    return {name: one for name, one in found.items() if isinstance(one, dict) and "error" not in one}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half of its 95 % confidence interval (Student's t)."""
    return statistics.fmean(values), T95.get(len(values), 2.0) * statistics.stdev(values) / len(values) ** 0.5


# --------------------------------------------------------------------------------------------------------- sections


def checks(documents: list[Document]) -> str:
    """Return what was compared with the golden layer, rank by rank."""
    rows = []
    for rank, document in enumerate(documents):
        for name, one in done(document["checks"]).items():
            if "elements" in one:
                differ = ", ".join(f"{key} {count}" for key, count in one["differing"].items())
                rows.append((name, rank, f"{one['received rows']:,}", _rows(one["rows of experts"]),
                             f"{one['elements']:,}", differ or 0, ", ".join(one["two runs differ in"]) or 0),
                            )  # fmt: skip
    head = ("shape, policy, products", "rank", "received rows", "rows of an expert", "elements", "differ", "two runs")
    counts: Counter[str] = Counter()
    for document in documents:
        for one in done(document["checks"]).values():
            for found in one.get("orders", {}).values():
                counts.update(found)
    orders = ", ".join(f"`{name}` {count}" for name, count in counts.items())
    return f"{BITS}\n{table(head, rows)}\nOrders of the library's products: {orders or 'not asked'}.\n"


def _rows(counts: Sequence[int]) -> str:
    return f"{min(counts)} to {max(counts)}" + (f", {list(counts).count(0)} without" if 0 in counts else "")


def exchanges(documents: list[Document]) -> str:
    """Return the all-to-all of each format."""
    found = documents[0]["exchanges"]
    ratios = found["times as quick as mxfp4's"]
    rows = [(f"`{name}`", f"{one['bytes_a_row']:,}", one["us"], f"{one['us_least']} to {one['us_most']}",
             f"{ratios[name]:.2f}") for name, one in done(found).items() if "us" in one]  # fmt: skip
    return EXCHANGE + "\n" + table(("rows", "bytes a row", "us", "least to most", "time / `mxfp4`"), rows)


def times(documents: list[Document]) -> str:
    """Return the milliseconds of a step under each policy, and how many tokens a second one has more than another."""
    shapes = done(documents[0]["times"])
    rows = [(shape, *(f"{of[one]['ms']:.1f} ({of[one]['ms_least']:.1f})" if one in of else "" for one in POLICIES))
            for shape, of in shapes.items()]  # fmt: skip
    head = ("tokens x hidden x ffn, experts", *(f"`{one}`" for one in POLICIES))
    more = [(shape, *(_more(of, one, other) for one, other, _ in PAIRS)) for shape, of in shapes.items()]
    of = (f"`{one}` against `{other}`" + (f", {at}" if at else "") for one, other, at in PAIRS)
    return f"{TIME}\n{table(head, rows)}\n{EQUAL}\n{table(('tokens x hidden x ffn, experts', *of), more)}"


def _more(of: Document, one: str, other: str) -> str:
    if one not in of or other not in of:
        return ""
    mean, half = interval([b / a - 1 for a, b in zip(of[one]["turns"], of[other]["turns"], strict=True)])
    return f"{mean:+.1%} ± {half:.1%}"


def memory(documents: list[Document]) -> str:
    """Return what a step held, and measured bytes divided by counted ones."""
    rows = []
    names = ("saved, counted", "allocated after forward", "peak of forward", "peak of backward", "gradients")
    for key, one in done(documents[0]["memory"]).items():
        policy, _, shape = key.partition(" ")
        ratios = dict(zip(names, one["measured / counted"].values(), strict=True))
        cells = (f"{one[name] / MB:,.0f} ({ratios[name]:.4f})" for name in names)
        each = f"{one['saved a routed token, each with its own input']:,}"
        rows.append((shape, f"`{policy}`", each, *cells, f"{one['reserved'] / MB:,.0f}"))
    head = ("shape", "policy", "bytes of a row", "saved", *names[1:], "reserved")
    return MEMORY + "\n" + table(head, rows)


def witness(documents: list[Document]) -> str:
    """Return what the witness cost at its default rate."""
    rows = []
    for rank, document in enumerate(documents):
        for shape, one in done(document["overhead"]).items():
            pairs = [a / b - 1 for a, b in zip(one["blocks"]["with"], one["blocks"]["without"], strict=True)]
            mean, half = interval(pairs)
            judged = ", ".join(f"{count} {name}" for name, count in one["judged"].items())
            rows.append((shape, rank, len(pairs), one["steps of a block"], f"{one['ms']['without']:.2f}",
                         f"{mean:+.2%} ± {half:.2%}", f"{statistics.median(pairs):+.2%}", f"{one['its own count']:.2%}",
                         judged))  # fmt: skip
    head = ("tokens x hidden x ffn, experts", "rank", "pairs of blocks", "steps of a block", "ms without",
            "more with it", "median", "its own count", "judged")  # fmt: skip
    return WITNESS + "\n" + table(head, rows)


def kernels(documents: list[Document]) -> str:
    """Return each policy's kernels by kind with their least times, and the longest kernels."""
    found = documents[0]["profile"]
    speeds = found["speeds"]
    told = (f"A copy moves {speeds['copy'] / 1e12:.2f} TB/s, an exchange {speeds.get('exchange', 0) / 1e9:.0f} GB/s to "
            f"the other GPU, a product of 8192^3 computes {speeds['bf16'] / 1e12:.0f} TFLOP/s in BF16 and "
            f"{speeds['fp8'] / 1e12:.0f} in FP8 with one scale.\n")  # fmt: skip
    parts = [PROFILE.format(shape=found["shape"]), told]
    for policy, one in done(found).items():
        if "kinds" not in one:
            continue
        total, least = one["kernels_ms"], sum(kind["least_ms"] for kind in one["kinds"].values())
        parts.append(f"`{policy}`: a step takes {one['wall_ms']:.1f} ms, its kernels {total:.1f} ms; the sum of least "
                     f"times is {least:.1f} ms, {least / one['wall_ms']:.0%} of the step.\n")  # fmt: skip
        cells = [(name, f"{kind['ms']:.2f}", f"{kind['ms'] / total:.1%}",
                  f"{kind['least_ms']:.2f}" if kind["least_ms"] else "",
                  f"{kind['least_ms'] / kind['ms']:.0%}" if kind["least_ms"] and kind["ms"] else "")
                 for name, kind in one["kinds"].items() if kind["ms"] >= 0.005]  # fmt: skip
        parts.append(table(("kernels", "ms", "share", "least ms", "least / ms"), cells))
        longest = (f"`{row['kernel'][:60]}` {row['us'] / 1e3:.2f}" for row in one["kernels"][:6])
        parts.append(f"Longest, ms: {'; '.join(longest)}.\n")
    return "\n".join(parts)


SECTIONS = {"Bits": checks, "Exchange": exchanges, "Time": times, "Memory": memory, "Witness": witness,
            "Where time goes": kernels}  # fmt: skip


def page(documents: list[Document], name: str) -> str:
    """Return the page in Markdown."""
    one = documents[0]
    gpus, environment = one.get("gpus") or [], one.get("environment", {})
    driver = gpus[0]["driver_version"] if gpus else "not recorded"
    commands = dict.fromkeys(_command(words, one["ranks"]) for words in one["commands"])
    parts = [INTRODUCTION.format(
        ranks=one["ranks"], device=one["device"], driver=driver, torch=one["torch"], nccl=one.get("nccl", "none"),
        date=one["date"], digest=environment.get("model_digest", "")[:16], name=name, commands="\n".join(commands),
    )]  # fmt: skip
    for title, make in SECTIONS.items():
        with suppress(KeyError, TypeError, AttributeError, statistics.StatisticsError):  # not measured
            parts.append(f"## {title}\n\n{make(documents)}")
    return "\n".join(parts)


def _command(words: Sequence[str], ranks: int) -> str:
    taken = list(words[1:])
    taken[taken.index("--out") + 1] = "DIR"
    ahead = f"python -m torch.distributed.run --nproc-per-node {ranks} benchmarks/moe_layer.py"
    return " ".join([ahead, *(f'"{word}"' if " " in word else word for word in taken)])


def main() -> None:
    """Write the two files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    given = parser.parse_args()
    files = [given.folder / f"moe_layer_{given.ranks}_{rank}.json" for rank in range(given.ranks)]
    documents = [json.loads(path.read_text()) for path in files]
    write_whole(given.name.with_suffix(".md"), page(documents, given.name.name).encode())
    write_whole(given.name.with_suffix(".json"), (json.dumps({"by rank": documents}) + "\n").encode())


if __name__ == "__main__":
    main()
