"""`refnum policies`: the policies of training, and one of them as a graph from operands to products."""

from __future__ import annotations

import dataclasses
import json as encoder
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from .policies import POLICIES, Policy, get_policy
from .recipes import Operand

PRODUCTS = {
    "fprop": ("fc1, fc2: what experts compute", "rows", "weights"),
    "dgrad": ("fc1.dgrad, fc2.dgrad: gradients of rows", "gradients", "weights, transposed"),
    "wgrad": ("fc1.wgrad, fc2.wgrad: gradients of weights", "gradients, transposed", "rows, transposed"),
}
"""Kind of product -> what it is, and its two operands, the sum being along the columns of both."""
_FP8 = {"fprop": ("FP8 1x128", "FP8 128x128"), "dgrad": ("FP8 1x128", "FP8 128x128"),
        "wgrad": ("FP8 1x128", "FP8 1x128")}  # fmt: skip
_WHOLE = {"vectors": " of a row", "sawb": " of an expert", "luq": " of an expert", "radix4": " of an expert"}
"""Form without blocks -> of what its scale is."""


def policies(
    name: Annotated[str | None, typer.Argument(help="A policy, to see it as a graph; all when left out.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """List the policies of `refnum train`, or show how one computes, sends and keeps each tensor (N28)."""
    chosen = list(POLICIES.values()) if name is None else [get_policy(name)]
    if json:
        print(encoder.dumps([_document(one) for one in chosen], indent=1))
        return
    console = Console(highlight=False)
    console.print(_table(chosen) if name is None else graph(chosen[0]))


def graph(policy: Policy) -> Tree:
    """Return a policy as a tree: what is sent and kept, and of each product its operands."""
    tree = Tree(policy.name)
    tree.add(f"sent to experts: {policy.dispatched}; sent back, and gradients: {policy.combined}")
    kept = tree.add("kept for the backward pass")
    kept.add(f"received rows: {policy.saved_input}")
    kept.add(f"gate and up: {policy.saved_activation}")
    kept.add(f"input of fc2: {policy.fc2_input}")
    multiplied = "FP8" if policy.operands == "fp8" else "BF16"
    for kind, (words, *operands) in PRODUCTS.items():
        branch = tree.add(f"{words}, in {multiplied}")
        for operand, form in zip(operands, forms(policy, kind), strict=True):
            branch.add(f"{operand}: {form}")
    if policy.recipe is not None and policy.recipe.estimator != "straight":
        tree.add(f"gradients of weights: times the slope of {policy.recipe.estimator}, N25")
    tree.add(f"router, attention, norms, embedding: BF16 and float32; optimiser: {policy.optimiser}, float32")
    return tree


def forms(policy: Policy, kind: str) -> tuple[str, str]:
    """Return how both operands of a kind of product are quantised, in words."""
    if policy.recipe is None:
        return _FP8[kind] if policy.operands == "fp8" else ("BF16", "BF16")
    left, right = policy.recipe.of(f"fc1.{kind}")
    return _words(left), _words(right)


def _words(operand: Operand) -> str:
    first = f"{_words(operand.before)}, as in the forward product" if operand.before is not None else ""
    if operand.form == "bfloat16":
        return first or "BF16"
    tall, wide = operand.block
    block = f" {tall}x{wide}" if tall * wide else _WHOLE[operand.form]
    turned = "rotated by N22, " if operand.rotated else ""
    clamped = "outliers kept apart, " if operand.clamped else ""
    phase = f", {operand.phase} phase" if operand.form == "radix4" else ""
    rounded = "to an average" if operand.averaged else "at random" if operand.random else "to nearest"
    again = f"{first}; then " if first else ""
    return f"{again}{turned}{clamped}{operand.form}{block}{phase}, rounded {rounded}"


def _table(found: list[Policy]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for column in ("policy", "products", "sent", "rows kept", "gate and up"):
        table.add_column(column, no_wrap=True)
    for one in found:
        products = one.products if one.recipe is None else "simulated"
        table.add_row(one.name, products, one.dispatched, one.saved_input, one.saved_activation)
    return table


def _document(policy: Policy) -> dict[str, object]:
    fields = dataclasses.asdict(policy)
    return {**fields, "operands": {kind: list(forms(policy, kind)) for kind in PRODUCTS}}
