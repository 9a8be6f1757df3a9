"""`refnum bench`: options in, one run, documents out."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from refnum.errors import ArgumentError, UnsupportedError

from ...reports import files
from ...subjects.choose import choose
from ..options import told
from . import document, lines, measure, tables
from . import plot as pictures
from .clock import COPY_BYTES, Clock
from .contender import of_subject, tunings_of
from .contenders import select_contenders
from .shapes import SHAPES, parse


@told
def bench(
    operation: Annotated[
        list[str] | None, typer.Option("--operation", "-o", help="Name or pattern of an operation or a line.")
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option("--subject", "-s", help="A name or path/to/file.py:NAME. Default: the one available here."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="ROWSxCOLUMNS or TOKENS-EXPERTS-HIDDEN-TOPK-FFN. May be repeated. Default: the recipes' own."
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="tilekernels, compile, separate, triton, cublaslt, a pattern, or none. May be repeated. Default: all."
        ),
    ] = None,
    peer_shape: Annotated[
        list[str] | None,
        typer.Option(help="Shapes at which peers run; they are compiled for each. Default: all."),
    ] = None,
    peer_seconds: Annotated[
        float | None, typer.Option(min=0, help="Seconds after which no further peer starts; the subject continues.")
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Time the subject under its alternative launch parameters instead of peers.")
    ] = False,
    repeat: Annotated[int, typer.Option(min=2, help="Number of timed calls.")] = 30,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a page to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture to this file; needs refnum[plot].")] = None,
    results: Annotated[
        Path | None, typer.Option(help="Write all three to this folder, named by date and device.")
    ] = None,
    load: Annotated[Path | None, typer.Option(help="Run nothing: show the figures of this file.")] = None,
) -> None:
    """Time a subject's kernels on a GPU, beside a device copy and public alternatives."""
    files.require_place(json, markdown, plot)
    if load is not None:
        found = document.read(load)
    else:
        with contextlib.redirect_stdout(sys.stderr):  # what a peer prints must not get into the table
            found = _run(
                operation, subject, shape, peer, peer_shape, peer_seconds, tune, repeat,
                lambda head, records: _keep(_paths(head, results, json, markdown, plot)["json"], head, records),
            )  # fmt: skip
    if not document.timed(found):
        raise UnsupportedError("Nothing was timed: " + _why(found))
    _write(found, _paths(found["header"], results, json, markdown, plot))
    tables.terminal(found)


def _run(
    operation: list[str] | None, subject: str | None, shape: list[str] | None, peer: list[str] | None,
    peer_shape: list[str] | None, peer_seconds: float | None, tune: bool, repeat: int,
    keep: Callable[[dict[str, Any], list[dict[str, Any]]], None],
) -> dict[str, Any]:  # fmt: skip
    chosen = lines.select(operation)
    shapes = list(dict.fromkeys(parse(text) for text in shape or SHAPES))  # one that is given twice is timed once
    beside = frozenset(parse(text).name for text in peer_shape) if peer_shape else None
    device = Clock()
    one = _subject(subject)
    own = of_subject(one)
    others, missing = (tunings_of(one, chosen), []) if tune else select_contenders(peer, one)
    start = time.perf_counter()
    head = document.header(
        sys.argv[1:], device.facts(), [own, *(other for other in others if not other.tuning)], missing
    )
    head["repeat"] = repeat
    head["copy_bytes_per_second"] = device.copy(2 * COPY_BYTES, repeat)
    plan = measure.Plan(own, others, chosen, shapes, beside, repeat, peer_seconds, _tell)
    records: list[dict[str, Any]] = []

    def close() -> None:
        head["copy_again_bytes_per_second"] = device.copy_again(2 * COPY_BYTES, repeat)
        head["seconds"] = round(time.perf_counter() - start, 1)

    for record in measure.run(plan, device):
        if records and record["shape"] != records[-1]["shape"] and document.timed({"records": records}):
            close()
            keep(head, records)
        records.append(record)
    calls = list(measure.overheads(one, own, chosen, device))
    close()
    return document.document(head, records, calls)


def _keep(path: Path | None, head: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Write the figures of the shapes that are done, so that what ends a run early costs the last one only."""
    if path:
        files.write_json(path, document.document(head, records, []))


def _tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _subject(name: str | None) -> Any:
    """Return the one subject that is meant; those that take arrays on the host are not timed."""
    choice = choose([name] if name else None)
    usable = [item for item in choice.usable if item.arrays in ("cupy", "torch-cuda")]
    if len(usable) == 1:
        return usable[0]
    if usable:
        raise ArgumentError(f"Several subjects are here: {', '.join(s.name for s in usable)}; give one by --subject.")
    hosts = [f"{item.name} takes {item.arrays} arrays on the host" for item in choice.usable]
    reasons = [f"{item.name}: {reason}" for item, reason in choice.unusable]
    reasons += [f"{door}: {reason}" for door, reason in choice.broken]
    raise UnsupportedError("refnum bench found no subject on a GPU: " + "; ".join([*reasons, *hosts]) + ".")


def _why(found: dict[str, Any]) -> str:
    words = dict.fromkeys(f"{r['line']}: {r['words']}" for r in found["records"])
    return "; ".join(words) + "."


def _paths(
    head: dict[str, Any], results: Path | None, json: Path | None, markdown: Path | None, plot: Path | None
) -> dict[str, Path | None]:
    if results is None:
        return {"json": json, "markdown": markdown, "plot": plot}
    device = head["device"]["name"].split()[-1].lower()
    stem = f"{head['date'][:10]}-{device}-bench"
    return {
        "json": json or results / f"{stem}.json",
        "markdown": markdown or results / f"{stem}.md",
        "plot": plot or results / f"{stem}.png",
    }


def _write(found: dict[str, Any], paths: dict[str, Path | None]) -> None:
    figures, page, picture = paths["json"], paths["markdown"], paths["plot"]
    if figures:  # first: what was measured must not be lost
        files.write_json(figures, found)
    if page:
        title = f"Kernels beside what else could be taken: {found['header']['device']['name']}"
        beside = [path.name if path and path.parent == page.parent else "" for path in (figures, picture)]
        files.write_text(page, tables.markdown(found, title, *beside))
    if picture:
        pictures.draw(found, picture)
