"""One vector on a page: its inputs and its outputs, as bits and decoded."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import refnum
from refnum.arrays import unpack_nibbles

from ..cases.primitives import VECTOR_OPERATIONS
from .load import Vector, load_notes
from .record import profile_choices

ROWS, RUNS = 8, 48
"""Rows of an array, and runs of equal elements of a row, that are printed."""


def show_vector(vector: Vector, console: Console, rows: int = ROWS) -> None:
    """Print one vector: profile, parameters, flags with their notes, every array decoded."""
    notes = load_notes()
    head = Text.assemble(
        (vector.operation, "bold"), f"  {vector.profile['name']}  clause {vector.clause}\n", vector.comment
    )
    facts = Table.grid(padding=(0, 2))
    facts.add_row("params", _words(vector.params))
    facts.add_row("differs from HOPPER in", _words(profile_choices(vector.profile)))
    facts.add_row("file", vector.tensor or vector.file)
    parts: list[RenderableType] = [head, Text(), facts]
    for flag in vector.flags:
        parts.append(Text.assemble((flag, "yellow"), f"  {notes[flag]['description'] if flag in notes else ''}"))
    console.print(Panel(Group(*parts), title=f"vector {vector.id}", title_align="left"))
    for side, arrays in (("input", vector.inputs), ("output", vector.outputs)):
        for name, array in arrays.items():
            console.print(Text.assemble((f"{side} {name}", "bold"), f"  {array.dtype.name}{list(array.shape)}"))
            console.print(_table(array, _decoder(vector, side, name), rows))


def _words(items: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in items.items()) or "-"


def _decoder(vector: Vector, side: str, name: str) -> str:
    """Return the element format that an array's codes decode by, or an empty string."""
    if name == "packed":
        return "packed"
    if name in ("scales", "a_scales", "b_scales"):
        return "E8M0"
    if side == "input" and f"{name}_format" in vector.params:
        return str(vector.params[f"{name}_format"])
    if name != "codes":
        return ""
    operation = VECTOR_OPERATIONS[vector.operation]
    if side == "output":
        return next((o.format(vector.params) for o in operation.outputs if o.name == "codes"), "")
    return operation.reads.format(vector.params).name


def _table(array: np.ndarray, decoder: str, rows: int) -> Table:
    shown = unpack_nibbles(array) if decoder == "packed" and array.ndim == 2 else array
    table = Table(show_header=False)
    table.add_column(justify="right", style="dim")
    matrix = shown.reshape(1, -1) if shown.ndim < 2 else shown.reshape(-1, shown.shape[-1])
    table.add_column()
    for r in range(min(matrix.shape[0], rows)):
        table.add_row(str(r), "  ".join(_runs(matrix[r], "E2M1" if decoder == "packed" else decoder)))
    if matrix.shape[0] > rows:
        table.add_row("...", f"{matrix.shape[0] - rows} more rows")
    return table


def _runs(line: np.ndarray, decoder: str) -> list[str]:
    """Return the cells of a row, equal neighbours as one cell with a count, the rest as dots."""
    runs = [(cell, len(list(group))) for cell, group in itertools.groupby(_cell(item, decoder) for item in line)]
    words = [cell if count == 1 else f"{cell} x{count}" for cell, count in runs[:RUNS]]
    return words + ["..."] * (len(runs) > RUNS)


def _cell(item: np.generic, decoder: str) -> str:
    word = item.view(f"u{item.dtype.itemsize}")
    digits = f"{int(word):0{item.dtype.itemsize * 2}x}"
    if decoder:
        code = int(word) & ((1 << refnum.get_format(decoder).bits) - 1)
        return f"{digits}={_plain(refnum.value(decoder, code), decoder, code)}"
    return f"{digits}={float(item):g}" if item.dtype.kind in "fV" else digits


def _plain(value: Fraction | str, decoder: str, code: int) -> str:
    if isinstance(value, str):
        return value
    if value == 0 and code:
        return "-0"
    return f"2^{code - 127}" if decoder == "E8M0" else f"{float(value):g}"
