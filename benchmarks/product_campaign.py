"""Products of torch (cuBLASLt) on one GPU against the kernels of clause N19, every bit, in every mode.

    python benchmarks/product_campaign.py --out DIR [--results 1e9] [--seconds 120] [--check-seconds 240]

For each mode whole products are made and compared on the GPU until `--results` results agree and every kind of data was
asked at every shape. The first call of a shape names its order: the one asked for, or the likeliest that gives every
bit. Later calls of that shape must give the bits of that very order. If a later one does not, but gives those of an
order that was not tried yet, the shape's count begins anew with that order. Where no named order fits, the results
count as `unnamed` and the nearest order is told. Sides are padded as `torch_products` says. Afterwards torch is judged
as a subject of `refnum check`. Written are product_campaign.json and .md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch_products
from product_checks import checked
from product_data import KINDS, scales

from refnum.conformance.cases.orders import candidates

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Mode:
    """How a library is called: kinds of both operands' scales, formats, and the order that is asked for."""

    name: str
    operation: str
    order: str
    kinds: tuple[str, str] = ("none", "none")
    formats: tuple[tuple[str, str], ...] = (("E4M3", "E4M3"),)

    @property
    def by_block(self) -> bool:
        """Whether scales belong to 128 elements of K."""
        return "1x128" in self.kinds or "128x128" in self.kinds


_MIXED = (("E4M3", "E4M3"), ("E5M2", "E4M3"), ("E4M3", "E5M2"))
MODES = (
    Mode("per tensor, fast accumulation", "matmul_fp8", "chain", ("tensor", "tensor"), _MIXED),
    Mode("per tensor", "matmul_fp8", "promote128", ("tensor", "tensor"), _MIXED),
    Mode("per row, fast accumulation", "matmul_fp8", "chain", ("row", "row")),
    Mode("per row", "matmul_fp8", "promote128", ("row", "row")),
    Mode("1x128 by 1x128", "matmul_fp8", "promote128", ("1x128", "1x128")),
    Mode("1x128 by 128x128", "matmul_fp8", "promote128", ("1x128", "128x128")),
    Mode("128x128 by 1x128", "matmul_fp8", "promote128", ("128x128", "1x128")),
    Mode("bfloat16", "matmul_bf16", "chain", formats=(("BF16", "BF16"),)),
)
SHAPES = (
    (8192, 8192, 512), (8192, 8192, 1024), (4096, 8192, 2048), (4096, 4096, 4096), (2048, 4096, 7168),
    (8192, 4096, 7168), (1024, 4096, 16384), (8192, 8192, 640), (1000, 3000, 2000), (256, 7168, 2048),
    (128, 7168, 2048), (128, 2048, 7168), (128, 1024, 16384),
)  # fmt: skip
"""M, N, K: most results where K is small, and the shapes whose K a library splits."""


@dataclass
class Row:
    """What was compared in one mode at one shape: the order, results of it, and how many of these differ."""

    mode: str
    formats: str
    shape: tuple[int, int, int]
    order: str | None
    compared: int = 0
    differing: int = 0
    calls: int = 0
    data: dict[str, int] = field(default_factory=dict)
    nearest: str = ""
    refused: str = ""
    renamed: int = 0
    untried: list[str] = field(default_factory=list)


class Campaign:
    """Products of a library compared with kernels of the model, both given and returned in torch's tensors."""

    def __init__(self, library: dict[str, Callable[..., Any]], kernels: Any, device: str, seed: int = 19) -> None:
        self._library, self._kernels = library, kernels
        self._random = torch.Generator(device).manual_seed(seed)
        self.rows: dict[tuple[Any, ...], Row] = {}

    def run(self, mode: Mode, results: float, seconds: float, shapes: tuple[Any, ...] = SHAPES) -> None:
        """Compare until so many results agree and everything was asked once, or the time is over."""
        end, done, asked = time.perf_counter() + seconds, 0, 1
        while asked and done < results:
            asked = 0
            for kind, formats, shape in itertools.product(KINDS, mode.formats, shapes):
                if time.perf_counter() > end:
                    return
                key = (mode.name, formats, shape)
                row = self.rows.setdefault(key, Row(mode.name, " x ".join(formats), shape, None))
                if not row.refused and (row.order or not row.calls):
                    done, asked = done + self._compare(mode, row, kind, formats), asked + 1

    def _compare(self, mode: Mode, row: Row, kind: str, formats: tuple[str, str]) -> int:
        """Make one call and return how many results agree with the order of its shape."""
        m, n, k = row.shape
        a, b = KINDS[kind](self._random, m, n, k, formats)
        given: Arguments = {"a": a, "b": b}
        if mode.operation == "matmul_fp8":
            given |= {"a_format": formats[0], "b_format": formats[1]}
            given |= {
                f"{x}_scales": scales(self._random, s, r, k) for x, s, r in zip("ab", mode.kinds, (m, n), strict=True)
            }
        try:
            found = self._library[mode.operation](**given, order=mode.order)
        except RuntimeError as error:
            row.refused = str(error).splitlines()[0][:200]
            return 0
        row.calls += 1
        row.data[kind] = row.data.get(kind, 0) + 1
        wrong = self._wrong(mode, row, found, given)
        row.compared += found.numel()
        row.differing += wrong
        return found.numel() - wrong if row.order else 0

    def _wrong(self, mode: Mode, row: Row, found: Any, given: Arguments) -> int:
        """Return how many results differ from the shape's order, which is another's if that gives every bit."""
        if row.calls == 1:
            row.order = self._named(mode, row, found, given)
            return 0
        wrong = self._differing(mode, str(row.order), found, given)
        other = self._named(mode, row, found, given) if wrong else None
        if other is None:
            return wrong
        row.order, row.compared, row.renamed = other, 0, row.renamed + 1
        return 0

    def _named(self, mode: Mode, row: Row, found: Any, given: Arguments) -> str | None:
        """Return the order that gives every bit of a call, and keep the nearest where none does; each is tried once."""
        if row.calls == 1:
            instruction = "wgmma_fp8" if mode.operation == "matmul_fp8" else "wgmma_bf16"
            names = [mode.order, *(x[0] for x in candidates(row.shape[2], mode.by_block, instruction))]
            row.untried = list(dict.fromkeys(names))
        fewest = found.numel() + 1
        for number, name in enumerate(row.untried):
            wrong = self._differing(mode, name, found, given)
            if wrong == 0:
                row.untried = row.untried[number + 1 :]
                return name
            if wrong < fewest and row.order is None:
                fewest, row.nearest = wrong, f"{name}, which differs in {wrong}"
        return None

    def _differing(self, mode: Mode, order: str, found: Any, given: Arguments) -> int:
        want = getattr(self._kernels, mode.operation)(**given, order=order)
        return int((found.view(torch.int32) != want.view(torch.int32)).sum())


def totals(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """Yield what each mode comes to."""
    for mode in dict.fromkeys(row.mode for row in rows):
        own = [row for row in rows if row.mode == mode]
        named = [row for row in own if row.order]
        yield {
            "mode": mode,
            "orders": {order: sum(r.order == order for r in named) for order in dict.fromkeys(r.order for r in named)},
            "results": sum(row.compared for row in named), "differing": sum(row.differing for row in named),
            "unnamed": sum(row.compared for row in own if not row.order), "refused": sum(bool(r.refused) for r in own),
        }  # fmt: skip


def page(document: dict[str, Any]) -> str:
    """Return the tables of a result page."""
    lines = ["| mode | results in a named order | differ | results without one | orders and at how many shapes |"]
    lines += ["|---|--:|--:|--:|---|"]
    for one in document["modes"]:
        orders = ", ".join(f"`{order}` {count}" for order, count in one["orders"].items())
        refused = f"; {one['refused']} shapes refused" if one["refused"] else ""
        lines.append(
            f"| {one['mode']} | {one['results']:,} | {one['differing']:,} | {one['unnamed']:,} | {orders}{refused} |"
        )
    lines += ["", "| mode | formats | M x N x K | order | calls | results | differ |", "|---|---|---|---|--:|--:|--:|"]
    for row in document["rows"]:
        order = f"`{row['order']}`" if row["order"] else row["refused"] or f"none; nearest {row['nearest']}"
        cells = (row["mode"], row["formats"], " x ".join(map(str, row["shape"])), order, row["calls"])
        lines.append("| " + " | ".join(map(str, cells)) + f" | {row['compared']:,} | {row['differing']:,} |")
    return "\n".join(lines) + "\n"


def written(folder: Path, document: dict[str, Any]) -> None:
    """Write the document and its page; a reader never sees half a file."""
    for name, text in (("json", json.dumps(document, indent=1, default=str)), ("md", page(document))):
        temporary = folder / f"product_campaign.{name}.tmp"
        temporary.write_text(text)
        temporary.rename(folder / f"product_campaign.{name}")


def campaign(made: Campaign, modes: tuple[Mode, ...], results: float, seconds: float, out: Path, **facts: Any) -> Any:
    """Run every mode, each with its share of what time is left, and write the document after each."""
    end, document = time.perf_counter() + seconds, dict(facts)
    for left, mode in zip(range(len(modes), 0, -1), modes, strict=True):
        made.run(mode, results, (end - time.perf_counter()) / left, facts.get("shapes", SHAPES))
        rows = list(made.rows.values())
        document |= {"modes": list(totals(rows)), "rows": [asdict(row) for row in rows]}
        written(out, document)
        print(json.dumps(document["modes"][-1]), flush=True)
    return document


def main() -> None:
    """Compare, judge, and write the document and its page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the document, the page and reports")
    parser.add_argument("--results", type=float, default=1e9, help="results that agree in each mode")
    parser.add_argument("--seconds", type=float, default=120, help="no comparison starts after that many seconds")
    parser.add_argument("--check-seconds", type=float, default=240, help="`refnum check` ends after that many; 0: none")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU")
    from product_orders import environment

    from refnum.gpu import ops

    given.out.mkdir(parents=True, exist_ok=True)
    library = {"matmul_fp8": torch_products.scaled_mm, "matmul_bf16": torch_products.mm}
    made = Campaign(library, ops, "cuda")
    document = campaign(made, MODES, given.results, given.seconds, given.out, environment=environment())
    if given.check_seconds:
        document["checks"] = checked(given.out, time.perf_counter() + given.check_seconds)
        written(given.out, document)
        print(json.dumps({name: found["verdict"] for name, found in document["checks"].items()}, indent=1))


if __name__ == "__main__":
    main()
