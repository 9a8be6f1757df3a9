"""The results page of runs that are compared with bf16: curves, losses, deviations, the witness, from the data.

    python benchmarks/training_page.py docs/results/2026-11-28-h200-training convergence.json [witness.json ...]

writes NAME.md, NAME.json, which has every tenth loss, and NAME.svg. The first file is of `convergence.py`, the others
of `training_step.py --witness`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from convergence import POLICIES, report
from survey_page import Document, command_of, condensed, draw, interval, judged, machine_of, model_of, option, table

from refnum.training.data import write_whole
from refnum.training.models import get_model


def main() -> None:
    """Write the three files."""
    name, path, *others = map(Path, sys.argv[1:])
    document = json.loads(path.read_text())
    document |= report(document["runs"])
    steps = {one.stem: json.loads(one.read_text()) for one in others}
    write_whole(name.with_suffix(".md"), page(document, steps, name.name).encode())
    short = condensed(document) | {"steps of runs by turns": steps}
    short.pop("variables", None)
    write_whole(name.with_suffix(".json"), (json.dumps(short) + "\n").encode())
    draw([document], name.with_suffix(".svg"))


def page(document: Document, steps: dict[str, Any], name: str) -> str:
    """Return the page in Markdown."""
    least = min(told["steps"] for told in document["policies"].values())
    tokens = next(iter(document["runs"].values()))["tokens"] // len(next(iter(document["runs"].values()))["losses"])
    parts = [INTRODUCTION.format(
        machine=machine_of([document]), name=name, model=model_of([document]), seeds=len(document["seeds"]),
        command=" ".join(command_of(document)), planned=document.get("steps", option(document, "--steps")), steps=least,
        held=_held(document),
        tokens=f"{least * tokens / 1e6:.1f}", text=_text(document, least * tokens),
        share=document["policies"][next(iter(document["policies"]))]["steps of the mean"],
    )]  # fmt: skip
    parts += [losses(document), deviations(document), "\n".join(map(_verdict, document["policies"].items())), ""]
    parts += ["## Witness\n", JUDGED, judged([document])]
    parts += [OVERHEAD, overheads(steps), COSTS, costs(steps)] if steps else []
    return "\n".join(parts)


def _text(document: Document, tokens: int) -> str:
    size = document.get("text", {}).get("train")
    if not size:
        return f"{tokens / 1e6:.0f} million bytes are read at random places of the text"
    return (
        f"the text for training has {size / 1e6:.1f} million bytes, so that {tokens / 1e6:.1f} million bytes read at "
        f"random places are {tokens / size:.2f} epochs"
    )


def _held(document: Document) -> str:
    batches = int(option(document, "--held", "1"))
    size = batches * int(option(document, "--batch")) * get_model(option(document, "--model")).sequence
    return f"of {size:,} bytes that are never trained on, the same for all"


def losses(document: Document) -> str:
    """Return the losses seed by seed."""
    names = [POLICIES[0], *document["policies"]]
    first = next(iter(document["policies"].values()))
    means = {POLICIES[0]: first["means"][1]} | {name: one["means"][0] for name, one in document["policies"].items()}
    runs, at = document["runs"], str(first["valid"]["step"]) if "valid" in first else None
    rows = []
    for number, seed in enumerate(document["seeds"]):
        held = [runs[f"{name}-{seed}"]["valid"][at] for name in names] if at else []
        rows.append((seed, *(f"{means[name][number]:.4f}" for name in names), *(f"{one:.4f}" for one in held)))
    head = [f"loss `{name}`" for name in names] + ([f"validation `{name}`" for name in names] if at else [])
    return table(("seed", *head), rows)


def deviations(document: Document) -> str:
    """Return the relative deviations from bf16."""
    rows = []
    for name, told in document["policies"].items():
        allowed = "-" if told["allowed"] is None else f"{told['allowed']:+.2%}"
        for kind, one in (("training", told), ("validation", told.get("valid"))):
            if one:
                each = (f"{value:+.2%}" for value in one["each"])
                mean = f"{one['mean']:+.3%} ± {one['half']:.3%}"
                rows.append((f"`{name}`", kind, *each, mean, allowed))
    seeds = (f"seed {seed}" for seed in document["seeds"])
    return DEVIATIONS + table(("policy", "loss of", *seeds, "mean", "the recipe's deviation"), rows)


def _verdict(item: tuple[str, Any]) -> str:
    name, told = item
    allowed, low, high = told["allowed"], told["mean"] - told["half"], told["mean"] + told["half"]
    if allowed is None:
        return f"- `{name}`: {interval(told)}."
    if high <= allowed:
        return f"- `{name}`: the loss of training stays within {allowed:+.2%} with its whole interval."
    if low > allowed:
        return f"- `{name}`: the loss of training is above {allowed:+.2%} with its whole interval."
    return f"- `{name}`: {allowed:+.2%} lies within the interval from {low:+.2%} to {high:+.2%}: not decided."


def overheads(steps: dict[str, Any]) -> str:
    """Return what the witness costs, by file and policy."""
    rows = []
    for document in steps.values():
        for policy, found in document.items():
            if isinstance(found, dict) and "witness" in found:
                one = found["witness"]
                without, pairs = sum(one["ms without"]) / len(one["ms without"]), one["pairs"]
                own = one["its own count, s"] / (sum(one["ms with"]) * one["steps of a block"] / 1e3)
                counts = [f"{one['judged'][key]:,}" for key in ("conversions", "products", "elements", "mismatches")]
                rows.append((f"`{document['model']}`", f"`{policy}`", len(one["ms with"]), one["steps of a block"],
                             f"{without:.2f}", f"{pairs[0]:+.2%} ± {pairs[1]:.2%}", f"{own:.2%}", *counts))  # fmt: skip
    head = (
        "model",
        "policy",
        "pairs of blocks",
        "steps of a block",
        "ms a step without",
        "more with it",
        "its own count",
    )
    return table((*head, "conversions", "products", "elements", "mismatches"), rows)


def costs(steps: dict[str, Any]) -> str:
    """Return what a step takes, by file and policy."""
    rows = []
    for document in steps.values():
        for policy, found in document.items():
            if isinstance(found, dict) and "profile" in found:
                one, by = found["profile"], "one kernel" if document["fused"] else "torch"
                kernels = [row for row in one["by kernel"] if "Optimizer.step" not in row["kernel"]]
                busy = one["busy_us"] - sum(row["us"] for row in one["by kernel"] if row not in kernels)
                rows.append(
                    (
                        f"`{document['model']}`",
                        f"`{policy}`",
                        by,
                        f"{found['ms']:.1f}",
                        f"{busy / 1e3:.1f}",
                        one["kernels"],
                        "; ".join(f"`{_short(row)}` {row['us'] / 1e3:.2f}" for row in kernels[:4]),
                    )
                )
    head = ("model", "policy", "norm, rotary, SwiGLU by", "ms a step", "ms of kernels", "kernels", "most of them, ms")
    return table(head, rows)


def _short(row: dict[str, Any]) -> str:
    words = re.sub(r"^void |\(anonymous namespace\)::|at::native::|pytorch_flash::", "", row["kernel"])
    return re.split(r"[<(]", words)[0]


INTRODUCTION = """# Convergence against BF16, {seeds} seeds

{machine}. Figures: [{name}.json]({name}.json), with every tenth loss
of each run.

```text
python {command}
```

The model is {model}.
Runs of one seed start with the same weights and read the same text, Python sources as bytes;
{text}.
Each run makes {planned} steps, with the rate along a cosine down to a tenth; all are compared at {steps} steps, which
are {tokens} million tokens each. The runs share the GPU, so their seconds are no measure of speed.

![Losses, and what is above bf16]({name}.svg)

A run's loss is the mean of its last {share} of these steps; the validation loss is the last that all have,
{held}.
"""
DEVIATIONS = """Relative deviation from `bf16`, seed by seed, and the 95 % confidence interval of the mean (Student's
t):

"""
JUDGED = """What it judged at its default rate while these runs trained:
"""
OVERHEAD = """What it costs: one run alone on the GPU, blocks of steps with it and without it by turns; the mean over
pairs of blocks with its 95 % confidence interval, and what the witness itself counts as spent, which it keeps to its
rate. The host sets the pace of these small models, and its blocks differ by more than the witness costs.
"""
COSTS = """What a step takes: one run alone on the GPU, whose host then sets the pace, and the kernels of one step.
"""


if __name__ == "__main__":
    main()
