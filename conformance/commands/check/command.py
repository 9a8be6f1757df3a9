"""`refnum check`: its options; what they ask for is carried out by `work`, which is imported when they are sound."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from refnum import get_profile
from refnum.errors import FileError, UnsupportedError

from ...cases.contracts import checked_contract
from ...cases.operation import select
from ...reports import files
from ...subjects.named import require_files
from ..options import Isolate, Subjects, told

LAYER = "moe_layer"
"""What is judged on several ranks, as a whole step (N20), not as a function of arrays."""


class Level(StrEnum):
    """How much a run covers."""

    SMOKE = "smoke"
    STANDARD = "standard"
    EXHAUSTIVE = "exhaustive"


@told
def check(
    kernels: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="What to judge, as --subject; of a Python file every function that has an operation's name, or is "
            "declared.",
        ),
    ] = None,
    operation: Annotated[
        list[str] | None,
        typer.Option(
            "--operation",
            "-o",
            help="Name or pattern, see `refnum operations`; moe_layer alone: a whole layer, on several ranks. Default: "
            "all that a subject has.",
        ),
    ] = None,
    subject: Subjects = None,
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", "-p", help="Name, see `refnum profiles`. Default: all that a subject claims."),
    ] = None,
    level: Annotated[
        Level, typer.Option(help="smoke is quick and verifies nothing; exhaustive adds sweeps of 2^32 inputs.")
    ] = Level.STANDARD,
    seed: Annotated[int, typer.Option(help="Seed of the sampled cases.")] = 0,
    examples: Annotated[int, typer.Option(min=0, help="Sampled cases of each variant.")] = 25,
    data: Annotated[Path | None, typer.Option(help="Judge on the tensors of this file or folder instead.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON on standard output.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            help="Contract of the subjects' inputs: finite, nonzero or normal. May be repeated. What lies outside is "
            "called too, and told as information."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.0, max=86400.0, help="Seconds that one call of a subject may take; 0: any number.")
    ] = 60.0,
    controls: Annotated[bool, typer.Option("--controls", help="Judge only the harness's own controls.")] = False,
    isolate: Isolate = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="REFNUM_WORKERS",
            help="Processes that judge side by side. Default: one a processor, and one in all for kernels on a GPU.",
        ),
    ] = None,
) -> None:
    """Judge kernels bit for bit against the golden model: the main job.

    Exit status: 0 when all is verified, 1 for a mismatch, 2 for a usage error or bad input, 3 when nothing is verified.
    """
    if controls:
        _work().judge_controls()
        return
    files.require_place_of_report(report)
    if operation == [LAYER]:
        raise typer.Exit(
            _layer_judge()((*(kernels or ()), *(subject or ())), report, json, seed=seed, examples=examples // 5)
        )
    operations = select(operation)  # a name that is wrong is told before the harness is imported and verifies itself
    for name in profile or []:
        get_profile(name)
    contract = checked_contract(inputs, "--inputs")
    if data is not None and not data.exists():
        raise FileError(f"--data {data}: there is no such file or folder.")
    names = (*(kernels or ()), *(subject or ()))
    require_files(names)
    work = _work()
    request = work.Request(
        names,
        isolate,
        tuple(one.name for one in operations),
        frozenset(operation or ()),
        tuple(profile or ()),
        contract,
        level.value,
        seed,
        examples,
        timeout,
    )
    work.judge(request, data, json, report, workers)


def _work() -> Any:
    """Return the module that carries a check out: the whole harness, which a mistyped option need not wait for."""
    return import_module(".work", __package__)


def _layer_judge() -> Callable[..., int]:
    """Return the judge of whole layers, which stands with the layer."""
    try:
        found: Callable[..., int] = import_module("refnum.training.judge").check_layer
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"{LAYER} needs {error.name}; install refnum[training]") from error
    return found
