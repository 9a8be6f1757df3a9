"""The results page of the survey: curves, a table of every policy, and the answer to every claim, from the data.

    python benchmarks/survey_page.py docs/results/2026-11-24-h200-survey convergence.json [convergence.json ...]

writes NAME.md, NAME.json, which has every tenth loss, and NAME.svg. Each file is one call of `convergence.py`, whose
policies are compared with the bf16 of the same call.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from convergence import CLAIMS, FLIPS, POLICIES, report

from refnum.training.data import write_whole
from refnum.training.models import get_model
from refnum.training.policies import get_policy
from refnum.training.policies_command import PRODUCTS, forms

EVERY = 10
WINDOW = 25
"""Steps of a moving mean in the drawing."""
LEAST = 200
"""Steps under which a call answers no claim: the rate has hardly stopped rising."""
Document = dict[str, Any]

COUNTS = {1: "One GPU", 2: "Two GPUs"}


def main() -> None:
    """Write the three files."""
    name, *paths = map(Path, sys.argv[1:])
    documents = [json.loads(path.read_text()) for path in paths]
    for document in documents:
        document |= report(document["runs"])
    write_whole(name.with_suffix(".md"), page(documents, name.name).encode())
    short = [{key: value for key, value in condensed(one).items() if key != "variables"} for one in documents]
    write_whole(name.with_suffix(".json"), (json.dumps(short) + "\n").encode())
    draw(documents, name.with_suffix(".svg"))


def condensed(document: Document) -> Document:
    """Return a document with every tenth loss."""
    runs = {name: {**run, **{key: run[key][::EVERY] for key in ("losses", "flips") if key in run}}
            for name, run in document["runs"].items()}  # fmt: skip
    return {**document, "command": command_of(document), "runs": runs, f"losses of every {EVERY}th step": True}


def page(documents: list[Document], name: str) -> str:
    """Return the page in Markdown."""
    parts = [INTRODUCTION.format(machine=machine_of(documents), name=name, model=model_of(documents))]
    for number, document in enumerate(documents, 1):
        parts.append(_section(number, document))
    parts += ["## Claims\n", ANSWERS, claims(documents), "## What each policy simulates\n", SIMULATED]
    parts += [simulated(documents), "## Witness\n", judged(documents), NOTHING]
    return "\n".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines) + "\n"


def machine_of(documents: list[Document]) -> str:
    """Return what the calls ran on, and when."""
    gpus = sorted({f"{gpu['name']}, driver {gpu['driver_version']}" for one in documents for gpu in one["gpus"]})
    torch = sorted({one["versions"]["torch"] for one in documents})
    dates = sorted({one["date"] for one in documents})
    count = max(len(one["gpus"]) for one in documents)
    return f"{COUNTS.get(count, count)} a call ({'; '.join(gpus)}), torch {', '.join(torch)}, {', '.join(dates)}"


def option(document: Document, name: str, default: str = "") -> str:
    """Return what a call gave for an option."""
    words = document["command"]
    return words[words.index(name) + 1] if name in words else default


def command_of(document: Document) -> list[str]:
    """Return the words of a call without the names of its folders, of which the last is that of its results."""
    return [*document["command"][:1], "RUNS", *document["command"][2:-2], "--results", "FOLDER"]


def model_of(documents: list[Document]) -> str:
    """Return the model and the tokens of a step."""
    name = option(documents[0], "--model")
    model = get_model(name)
    tokens = int(option(documents[0], "--batch")) * model.sequence
    return (
        f"`{name}` of `refnum train`: {model.layers} layers, hidden {model.hidden}, {model.experts} experts of ffn "
        f"{model.expert}, top {model.top}. A step\nreads {tokens:,} bytes in sequences of {model.sequence}"
    )


def _section(number: int, document: Document) -> str:
    if not document["seeds"]:
        return f"## Call {number}\n\nNothing to compare.\n"
    left = ", ".join(f"`{one}`" for one in document["left out"])
    out = f" Left out, since their runs ended early: {left}." if left else ""
    trial = max(told["steps"] for told in document["policies"].values()) < LEAST
    out += " A trial, too short to say anything of training: it shows that each policy runs." if trial else ""
    text = (
        f"{len(document['seeds'])} seeds. A policy is compared with bf16 at the steps that all runs of both made; a "
        f"loss is the mean of the last tenth of them.{out}\n"
    )
    return f"## Call {number}\n\n```text\npython {' '.join(command_of(document))}\n```\n\n{text}\n{losses(document)}"


def losses(document: Document) -> str:
    """Return the table of a call's policies, the least deviation first."""
    rows = []
    for policy, told in sorted(document["policies"].items(), key=lambda item: item[1]["mean"]):
        ours, base = (statistics.fmean(one) for one in told["means"])
        flips = document["flips"].get(policy)
        rows.append((
            f"`{policy}`", told["steps"], f"{base:.4f}", f"{ours:.4f}", interval(told),
            " ".join(f"{one:+.2%}" for one in told["each"]), interval(told["valid"]) if "valid" in told else "-",
            "-" if flips is None else f"{statistics.fmean(flips):.3%}",
        ))  # fmt: skip
    head = ("policy", "steps", "loss of bf16", "loss", "against bf16", "seed by seed", "validation", "flips a step")
    return table(head, rows)


def interval(told: Document) -> str:
    """Return a mean with its confidence interval."""
    return f"{told['mean']:+.2%} ± {told['half']:.2%}"


def claims(documents: list[Document]) -> str:
    """Return the answer to every claim; one whose policies did not run is named too."""
    rows = []
    for words in (*CLAIMS, *FLIPS):
        found = [
            (number, one["claims"][words]) for number, one in enumerate(documents, 1) if words in one.get("claims", {})
        ]
        for number, told in found:
            pair = " against ".join(f"`{one}`" for one in told["pair"])
            each = " ".join(f"{one:+.2%}" for one in told["each"])
            answer = told["answer"] if told["steps"] >= LEAST else "too short"
            rows.append((words, answer, pair, interval(told), each, told["steps"], number))
        if not found:
            pair = " against ".join(f"`{one}`" for one in (CLAIMS | FLIPS)[words])
            rows.append((words, "not run", pair, "-", "-", "-", "-"))
    return table(("claim", "answer", "policies", "difference", "seed by seed", "steps", "call"), rows)


def simulated(documents: list[Document]) -> str:
    """Return how each policy that ran quantises its operands."""
    ran = dict.fromkeys(name for one in documents for name in (POLICIES[0], *one.get("policies", {})))
    rows = []
    for name in ran:
        policy = get_policy(name)
        kind = "simulated" if policy.recipe is not None else "real"
        rows.append((f"`{name}`", kind, *("; ".join(forms(policy, product)) for product in PRODUCTS), policy.optimiser))
    return table(("policy", "products", "fprop", "dgrad", "wgrad", "optimiser"), rows)


def judged(documents: list[Document]) -> str:
    """Return what the witness judged, by policy and over all calls."""
    counts: dict[str, dict[str, int]] = {}
    followed = any(run["witness"].get("layer steps") for one in documents for run in one["runs"].values())
    names = ("conversions", "products", *(("layer steps",) if followed else ()), "elements", "mismatches")
    for one in documents:
        for name, run in one["runs"].items():
            found = counts.setdefault(name.rpartition("-")[0], dict.fromkeys(names, 0))
            for key in names:
                found[key] += run["witness"].get(key, 0)
    rows = [(f"`{policy}`", *(f"{found[key]:,}" for key in names)) for policy, found in counts.items()]
    return table(("policy", *names), rows)


def draw(documents: list[Document], path: Path) -> None:
    """Draw the bf16 curves, and how far each policy's moving mean is above bf16's, means over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2 * len(documents)), layout="constrained")
    grid = figure.subplots(len(documents), 2, squeeze=False)
    for (left, right), document in zip(grid, documents, strict=True):
        base = _moving(_mean(document, POLICIES[0]))
        for number, policy in enumerate((POLICIES[0], *document["policies"])):
            one = _moving(_mean(document, policy))
            style = {"linestyle": ("-", "--", ":")[number // 10 % 3], "linewidth": 1.2, "label": policy}
            steps = range(WINDOW, WINDOW + len(one))
            left.plot(steps, one, **style)
            shares = [100 * (value / other - 1) for value, other in zip(one, base, strict=False)]
            right.plot(steps[: len(shares)], shares, **style)
        left.set(xlabel="step", ylabel="loss, nats a byte", yscale="log")
        right.set(xlabel="step", ylabel="per cent above bf16")
        right.legend(frameon=False, fontsize=6, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, format="svg")


def _mean(document: Document, policy: str) -> list[float]:
    """Return the losses of a policy, means over seeds, as far as all of them have come."""
    runs = [document["runs"][f"{policy}-{seed}"]["losses"] for seed in document["seeds"]]
    return [statistics.fmean(step) for step in zip(*runs, strict=False)]


def _moving(values: list[float]) -> list[float]:
    return [statistics.fmean(values[end - WINDOW : end]) for end in range(WINDOW, len(values) + 1)]


INTRODUCTION = """# Survey of FP4 methods

{machine}. Figures: [{name}.json]({name}.json), with every tenth loss of each run.

Every policy trains the same small model from the same weights on the same bytes, seed by seed, so differences are taken
seed by seed. The model is {model},
text of Python sources. A policy is a row of clause N28: it says how operands of the experts' products are quantised.
Hopper has no product of any FP4 format: operands of the rows marked *simulated* are quantised and dequantised, and
multiplied in BF16, and what they send and keep is BF16. Attention, router, embedding and norms are BF16 and float32
everywhere. The runs of a call share one GPU, so their seconds are no measure of speed.

![Losses, and what is above bf16]({name}.svg)
"""
ANSWERS = """A difference is that of the first policy's loss (or flips) from the second's, relative, with the 95 %
confidence interval of its mean over seeds (Student's t). *yes*: the whole interval is below 0. *no*: the whole of it is
above 0. Otherwise the call does not decide it. No correction is made for the number of claims.
A call that compares fewer than 200 steps answers nothing, *too short*: the rate rises for the first 80 to 100 of them.

The average of Q-EMA, with its published rate of 0.998, spans 500 steps, about as many as a run here has. Flips are the
share of the experts' weights whose value under the codes of the forward product changes in a step.
"""
SIMULATED = """Blocks and scales as `refnum policies NAME` shows them; clauses N28.4 to N28.7. On a GPU torch
operations compute the operands of all experts at once, bit for bit as the model does (the witness judges parts of them,
below), but that the means of SAWB and the norm of Stable-SPAM are sums in float64, rounded once.
"""
NOTHING = """
## What is not here

- **Knowledge distillation** (KD, as LLM-QAT has it) and **coreset selection** (ACS) define no numerics: they choose the
  loss that is minimised and the samples that are read, and no format, rounding or order of operations. There is nothing
  to simulate.
- TetraJet-v2, attention in FP8, SMP, hindsight maxima, Q-Ramping and SPAM have clauses, or functions, and no policy.
- One model of this size, a few million bytes, one learning rate: what a paper says of billions of tokens is neither
  confirmed nor refuted by these answers. A claim that fails here fails at this scale.
"""


if __name__ == "__main__":
    main()
