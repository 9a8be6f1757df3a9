"""`refnum infer`: options in, one inference, its table out."""

from __future__ import annotations

from typing import Annotated

import typer

from refnum.errors import ArgumentError
from refnum.product_steps import PRODUCTS

from ...reports import terminal
from ...subjects.loading.discover import function_from_file
from ..options import Isolate, told
from . import infer_profile
from .orders import SCALES, infer_order
from .show import tell, tell_order


@told
def infer(
    subject: Annotated[str, typer.Option("--subject", "-s", help="As for `check`; exactly one subject.")],
    operation: Annotated[str | None, typer.Option("--operation", "-o", help="Default: its only one.")] = None,
    isolate: Isolate = None,
    timeout: Annotated[
        float, typer.Option(min=0.0, max=86400.0, help="Seconds that one call of a subject may take; 0: any number.")
    ] = 60.0,
    shape: Annotated[str, typer.Option(help="M,N,K of a product, with `-o matmul_*`.")] = "256,256,2048",
    scales: Annotated[str, typer.Option(help=f"Scales of a product: {', '.join(SCALES)}.")] = "none",
) -> None:
    """Find the profile that a kernel follows, and for each choice the input that decides it.

    Of a matrix product (`-o matmul_fp8` or `-o matmul_bf16`), a function of a file that runs in this process: its order
    of sums.
    """
    err = terminal.console(stderr=True)
    if operation in PRODUCTS:
        sizes = shape.split(",")
        if len(sizes) != 3 or not all(size.isdecimal() for size in sizes):
            raise ArgumentError(f"--shape {shape} is not M,N,K, three integers.")
        m, n, k = map(int, sizes)
        named = f"{subject}:{operation}" if subject.endswith(".py") else subject
        found_order = infer_order(named, function_from_file(named), (m, n, k), scales, operation=operation)
        raise typer.Exit(tell_order(found_order, terminal.console()))
    found = infer_profile(
        subject, operation, isolate, timeout, lambda words: err.print(words, markup=False, soft_wrap=True)
    )
    raise typer.Exit(tell(found, terminal.console()))
