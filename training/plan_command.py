"""`refnum plan`: what a device holds while a model trains under a policy."""

from __future__ import annotations

import json as encoder
from math import gcd
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .models import MODELS, get_model
from .plan import GRADIENTS, RECOMPUTE, STATES, Plan, Setting, published
from .plan import plan as planned
from .policies import POLICIES, get_policy

GB = 10**9


def plan(
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}.")] = "deepseek-v3",
    gpus: Annotated[int, typer.Option(help="Devices.", min=1)] = 256,
    policy: Annotated[
        str, typer.Option(help=f"One of {', '.join(POLICIES)}, with changes as in mxfp4+fc2_input=store.")
    ] = "mxfp4",
    recompute: Annotated[
        str, typer.Option(help=f"What the backward pass makes again, with commas: {', '.join(RECOMPUTE)}.")
    ] = "",
    pipeline: Annotated[int | None, typer.Option(help="Pipeline stages. Default: the model's.")] = None,
    expert_ranks: Annotated[
        int | None, typer.Option(help="Ranks that share the experts. Default: the model's.")
    ] = None,
    tensor: Annotated[
        int | None, typer.Option(help="Ranks that share other matrices and each sequence. Default: the model's.")
    ] = None,
    sequences: Annotated[int, typer.Option(help="Sequences of a micro-batch.")] = 1,
    optimiser: Annotated[str, typer.Option(help=f"One of {', '.join(STATES)}.")] = "adamw-bf16",
    gradients: Annotated[str, typer.Option(help=f"One of {', '.join(GRADIENTS)}.")] = "bfloat16",
    memory: Annotated[float, typer.Option(help="Memory of a device in GB (10**9 bytes).", min=1)] = 80,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Count the device memory of a training run by part, and its dispatched bytes, from a policy's formats."""
    sizes, formats = get_model(model), get_policy(policy)
    names = tuple(name.strip() for name in recompute.split(",") if name.strip())
    stages = gcd(sizes.pipeline, gpus) if pipeline is None else pipeline
    left = max(1, gpus // max(1, stages))
    shares = gcd(sizes.expert_ranks, left) if expert_ranks is None else expert_ranks
    parts = gcd(sizes.tensor, left) if tensor is None else tensor
    setting = Setting(gpus, stages, shares, sequences, names, parts, optimiser, gradients)
    found = planned(sizes, formats, setting)
    told = published(model, formats, setting)
    if json:
        print(encoder.dumps(_document(found, setting, memory, told), indent=1))
        return
    console = Console(highlight=False)
    console.print(f"{model}, {formats.name}, {gpus} GPUs")
    console.print(f"{stages} pipeline stages, {shares} expert ranks, {parts} tensor ranks")
    console.print(_table("part", found.parts, found.total, memory))
    console.print(_table("saved activations", found.edges, found.parts["saved activations"], memory))
    for line in _lines(found, memory, told):
        console.print(line)


def _table(first: str, sizes: dict[str, int], total: int, memory: float) -> Table:
    table = Table(box=SIMPLE_HEAD, show_footer=True)
    table.add_column(first, "total")
    for name, text in (("GB", f"{total / GB:.2f}"), (f"% of {memory:g} GB", _percent(total, memory))):
        table.add_column(name, text, justify="right")
    for name, size in sizes.items():
        table.add_row(name, f"{size / GB:.{2 if size > GB // 20 else 4}f}", _percent(size, memory))
    return table


def _percent(size: int, memory: float) -> str:
    return f"{100 * size / GB / memory:.2f}"


def _lines(found: Plan, memory: float, told: float | None) -> list[str]:
    row, rows = found.dispatched
    words = [
        f"dispatched: {row:,} bytes a token and rank, {rows / GB:.3f} GB a layer",
        f"kept for a routed token, nothing made again: {found.routed:,} bytes",
    ]
    if told is not None:
        words.append(
            f"published: {told:.2f} % of 80 GB; this plan: {_percent(found.total, 80)} % (`refnum docs train`)"
        )
    if found.total > memory * GB:
        words.append(f"it does not fit into {memory:g} GB")
    return words


def _document(found: Plan, setting: Setting, memory: float, told: float | None) -> dict[str, Any]:
    return {
        "stage": found.stage,
        "pipeline": setting.pipeline,
        "expert_ranks": setting.experts,
        "tensor": setting.tensor,
        "parts": found.parts,
        "edges": found.edges,
        "total": found.total,
        "dispatched_row": found.dispatched[0],
        "dispatched": found.dispatched[1],
        "saved_routed_token": found.routed,
        "percent": 100 * found.total / GB / memory,
        "published_percent": told,
    }
