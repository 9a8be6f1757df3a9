"""`refnum vectors`: build, verify, show and export the frozen test vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from refnum.errors import ArgumentError, RefnumError

from ..cases.primitives import VECTOR_OPERATIONS
from ..reports import terminal
from ..reports.terminal.watch import watched
from ..vectors import load_vectors, vectors_folder
from ..vectors.build import build as build_folder
from ..vectors.errors import VectorFileError, VectorMismatchError
from ..vectors.export import FORMATS, export_vectors
from ..vectors.load import Vector, document_vectors, read_document
from ..vectors.show import show_vector
from ..vectors.verify import ORACLE_ROWS
from ..vectors.verify import verify as verify_folder

vectors_app = typer.Typer(no_args_is_help=True, help="Frozen test vectors: build, verify, show, export.")
Folder = Annotated[Path | None, typer.Option("--vectors", help="The vectors folder; the installed one when left out.")]


@contextmanager
def _reported() -> Iterator[None]:
    """Turn errors into one line and an exit status: 1 for a mismatch, 2 for anything malformed."""
    try:
        yield
    except VectorMismatchError as error:
        typer.echo(f"refnum: mismatch: {error}", err=True)
        raise typer.Exit(1) from error
    except RefnumError as error:
        typer.echo(f"refnum: {error}", err=True)
        raise typer.Exit(2) from error


@vectors_app.command()
def build(
    out: Annotated[Path | None, typer.Option(help="Where to write; the installed folder when left out.")] = None,
    source: Annotated[Path | None, typer.Option(help="Folder whose authored files are taken over.")] = None,
) -> None:
    """Generate every vector and write the folder, completely or not at all."""
    with _reported():
        where = vectors_folder() if out is None else out
        count = build_folder(where, source)
        typer.echo(f"{count} vectors in {where}")


@vectors_app.command()
def verify(
    vectors: Folder = None,
    rebuild: Annotated[bool, typer.Option(help="Regenerate in another process and compare byte for byte.")] = True,
    oracle: Annotated[
        str, typer.Option(help="Tensor rows the second oracle answers: a number, `all` or `none`.")
    ] = str(ORACLE_ROWS),
) -> None:
    """Check schema, lint, manifest, rebuild and the second oracle. Exit 1 on a mismatch, 2 on a malformed file."""
    with _reported():
        where = vectors_folder() if vectors is None else vectors
        rows = _oracle_rows(oracle)
        with watched(terminal.console(stderr=True)) as watch:
            found = verify_folder(where, rebuild, rows, watch)
        typer.echo(f"verified: {found.vectors} vectors, {found.by_oracle} answered by the second oracle")
        if found.rebuilt_files:
            typer.echo(f"rebuilt in another process: {found.rebuilt_files} files identical")
        if found.without_oracle:
            rest = ", ".join(f"{name} {count}" for name, count in sorted(found.without_oracle.items()))
            typer.echo(f"not verified by the oracle: {rest}")


def _oracle_rows(word: str) -> int | None:
    if word == "all":
        return None
    if word != "none" and not (word.isascii() and word.isdigit()):
        raise ArgumentError(f"--oracle {word!r}; allowed are a number of rows, `all` or `none`.")
    return 0 if word == "none" else int(word)


@vectors_app.command()
def show(
    what: Annotated[
        str,
        typer.Argument(
            metavar="ID|FILE|OPERATION",
            help="A vector id (or its beginning), a vector file, or an operation, whose vectors are listed.",
        ),
    ],
    vectors: Folder = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of an array to print.")] = 8,
) -> None:
    """Print one vector, or the vectors of a file, decoded."""
    with _reported():
        where = vectors_folder() if vectors is None else vectors
        console = terminal.Shown()
        if what in VECTOR_OPERATIONS:
            _list(what, where)
            return
        for vector in _named(what, where):
            show_vector(vector, console, rows)


def _list(operation: str, folder: Path) -> None:
    """Print a line for each vector of an operation."""
    rows = [
        [vector.id, vector.profile["name"], ", ".join(f"{k}={v}" for k, v in vector.params.items()), vector.comment]
        for vector in load_vectors(folder=folder)
        if vector.operation == operation
    ]
    body = [[terminal.escape(str(cell)) for cell in row] for row in rows]
    terminal.table(
        terminal.console(), f"{operation}: {len(rows)} vectors", ("id", "profile", "params", "comment"), body
    )


def _named(what: str, folder: Path) -> list[Vector]:
    path = Path(what) if Path(what).is_file() else folder / what
    if path.is_file():
        try:
            return list(document_vectors(read_document(path), path.resolve().parents[1], what))
        except (KeyError, TypeError, AttributeError) as error:
            raise VectorFileError(f"{path} is no vector file ({error!r}).") from error
    found = [vector for vector in load_vectors(folder=folder) if len(what) >= 4 and vector.id.startswith(what)]
    if not found:
        raise VectorFileError(
            f"No vector and no file is named {what!r} in {folder}; give 4 to 16 hex digits or a path."
        )
    return found


@vectors_app.command()
def export(
    out: Annotated[Path, typer.Option(help="Folder to write; it must be new or empty.")],
    format: Annotated[str, typer.Option(help=f"One of {', '.join(FORMATS)}.")] = "c",
    operation: Annotated[str | None, typer.Option("--operation", "-o", help="Only this operation.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", "-p", help="Only this profile.")] = None,
    tensors: Annotated[bool, typer.Option(help="Include the vectors that are stored as safetensors.")] = False,
    vectors: Folder = None,
) -> None:
    """Write the vectors for readers without Python: C headers, .npz or $readmemh files."""
    with _reported():
        files = export_vectors(format, out, operation, profile, tensors, vectors)
        typer.echo(f"{files} files in {out}")


if __name__ == "__main__":
    vectors_app()
