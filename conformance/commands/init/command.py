"""`refnum init`: options in, files written, what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..options import told
from . import SUBJECT, requirement, write


@told
def init(
    folder: Annotated[Path, typer.Argument(help="The root of your repository.")],
    operation: Annotated[str, typer.Option("--operation", "-o", help="What your kernel does.")] = "quantize_mxfp4",
    profile: Annotated[str, typer.Option("--profile", "-p", help="Which profile it follows; see `infer`.")] = "OCP",
    install: Annotated[str | None, typer.Option(help="What pip installs in CI; default: from where this is.")] = None,
) -> None:
    """Write a subject file, a pytest file and a CI workflow into a repository; nothing is overwritten."""
    for path in write(folder, operation, profile, install):
        print(f"wrote {path}")
    if not (requirement() if install is None else install):
        print("refnum came from this machine alone: tell CI where it is, by the repository variable REFNUM.")
    print(f"Now call your kernel in {folder / SUBJECT}, and run: pytest {folder}")
