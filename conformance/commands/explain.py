"""`refnum explain`: build a small case from the command line, or from a replay file, and let the model explain it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import typer

import refnum
from refnum.errors import ArgumentError
from refnum.explanation import EXPLAINED
from refnum.formats import Format, get_format

from ..cases.case import Case
from ..cases.operation import OPERATIONS
from ..mismatches import replay
from ..mismatches.page import telling_element
from .options import told

_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}

_ALONE = {"x", "norms", "codes", "packed", "scales", "a", "b"}
"""Inputs that are built from the command line; an operation with others takes a replay file."""


@told
def explain(
    what: Annotated[str, typer.Argument(metavar="OPERATION", help="An operation, or a replay file.")],
    row: Annotated[
        list[str] | None, typer.Argument(metavar="VALUES", help="As --values; give negative numbers there.")
    ] = None,
    values: Annotated[
        str | None, typer.Option(help="Numbers, bits of numbers (0x...), or codes, by commas: 1.25,0x3FA00000,nan")
    ] = None,
    scales: Annotated[str | None, typer.Option(help="Scale bytes of coded inputs: 127,0x7F,...")] = None,
    index: Annotated[
        str | None,
        typer.Option(help="Element: flat, or row,column. Default: the first; of a replay file, one that differs."),
    ] = None,
    profile: Annotated[str, typer.Option("--profile", "-p")] = "HOPPER",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16, for floating-point inputs.")] = "float32",
    param: Annotated[list[str] | None, typer.Option(help="name=value, e.g. scale=amax. May be repeated.")] = None,
    b: Annotated[str | None, typer.Option("--b", help="Of a product, the row of b; --values is the row of a.")] = None,
    b_scales: Annotated[str | None, typer.Option("--b-scales", help="Of an FP8 product, scale bytes of b.")] = None,
) -> None:
    """Show every step of the golden model for one element, as in `refnum explain encode_e2m1 3.3`."""
    given = [*(row or ()), *([] if values is None else [values])]
    print(
        explanation(what, ",".join(given) if given else None, scales, index, profile, dtype, param or [], b, b_scales)
    )


def explanation(
    what: str, values: str | None, scales: str | None, index: str | None, profile: str, dtype: str, params: list[str],
    b: str | None = None, b_scales: str | None = None,
) -> str:  # fmt: skip
    """Return the explanation of one element as text. `what` is an operation or the path of a replay file."""
    if what.endswith(".json") or Path(what).is_file():
        if values is not None or scales is not None or params:
            raise ArgumentError(f"{what} is a replay file, which has its own inputs; leave out values and parameters.")
        saved = replay.load(Path(what))
        case, found = saved.case, None
        if set(saved.observed) == set(saved.expected):
            found = telling_element(case, saved.expected, saved.observed, 0)
    else:
        case, found = build(what, values, scales, profile, dtype, params, b, b_scales), None
    where = found if index is None and found is not None else parse_index(index or "0")
    return str(refnum.explain(case.operation, case, where))


def build(
    operation: str, values: str | None, scales: str | None, profile: str, dtype: str, params: list[str],
    b: str | None = None, b_scales: str | None = None,
) -> Case:  # fmt: skip
    """Return a case of one row: the values (or codes) given, padded with zeros to whole blocks of what has blocks.

    Of an operation without blocks the row is as long as what is given.

    b, b_scales: of a product, whose row is not padded, the row of b and its scale bytes.
    """
    if operation in OPERATIONS and operation not in EXPLAINED:
        raise ArgumentError(f"{operation} only moves bytes: there are no steps to explain.")
    if operation not in EXPLAINED:
        raise ArgumentError(
            f"{operation!r} cannot be explained; choose from {', '.join(sorted(EXPLAINED))}, or give a replay file."
        )
    row = OPERATIONS[operation]
    if set(row.inputs) - _ALONE or row.kind("scales") == "values":
        raise ArgumentError(
            f"{operation} takes numbers beside the values: give a replay file, or call refnum.explain with a case."
        )
    words = _words(values or "")
    if not words:
        raise ArgumentError("Give --values, e.g. --values 1.25,0.1,-3, or a replay file.")
    keywords = dict(OPERATIONS[operation].defaults())
    keywords.update(_param(text, operation) for text in params)
    if "b" in OPERATIONS[operation].inputs:
        return _product(operation, profile, keywords, (words, scales), (_words(b or ""), b_scales))
    if b is not None or b_scales is not None:
        raise ArgumentError(f"{operation} takes no --b and no --b-scales: it is no product.")
    if OPERATIONS[operation].scalar:
        return _scalars(operation, words, scales, profile, dtype, keywords)
    if row.main == "values":
        numbers = _floats(words, dtype)[None] if row.block == 1 else _padded(_floats(words, dtype), row.unit)
        return Case(operation, profile, {**keywords, "input": dtype}, {row.inputs[0]: numbers})
    codes = _padded(_codes(words, row.reads.format(keywords)))
    packed = "packed" in OPERATIONS[operation].inputs
    count = -(-codes.shape[1] // row.reads.width)
    given = [_integer(word, 255, "scale byte") for word in (scales or "127").split(",")]
    if len(given) not in (1, count):
        raise ArgumentError(f"--scales has {len(given)} bytes; {codes.shape[1]} elements have {count} scales.")
    bytes_ = np.array([given * count if len(given) == 1 else given], np.uint8)
    if packed:
        codes = np.ascontiguousarray(codes[:, 0::2] | codes[:, 1::2] << 4)
    if OPERATIONS[operation].even_rows:  # a column output packs two rows: the second one is the same
        codes, bytes_ = np.repeat(codes, 2, axis=0), np.repeat(bytes_, 2, axis=0)
    return Case(operation, profile, keywords, {"packed" if packed else "codes": codes, "scales": bytes_})


def _words(text: str) -> list[str]:
    return [word for word in text.replace(" ", ",").split(",") if word]


def _product(
    operation: str, profile: str, keywords: dict[str, Any], *rows: tuple[list[str], str | None]
) -> Case:  # fmt: skip
    """Return a product of one row by one row: codes of FP8, or numbers or bits of bfloat16."""
    if len(rows[0][0]) != len(rows[1][0]):
        raise ArgumentError(
            f"--values has {len(rows[0][0])} terms and --b has {len(rows[1][0])}; a product takes as many of each."
        )
    inputs: dict[str, np.ndarray] = {}
    for name, (words, scales) in zip("ab", rows, strict=True):
        if operation == "matmul_bf16":
            if scales is not None:
                raise ArgumentError(f"{operation} takes no scales.")
            inputs[name] = _floats(words, "bfloat16").reshape(1, -1)
            continue
        inputs[name] = _codes(words, get_format(keywords[f"{name}_format"]))[None]
        if scales is not None:
            inputs[f"{name}_scales"] = np.array([[_integer(w, 255, "scale byte") for w in _words(scales)]], np.uint8)
    return Case(operation, profile, keywords, inputs)


def _scalars(
    operation: str, words: list[str], scales: str | None, profile: str, dtype: str, keywords: dict[str, Any]
) -> Case:
    """Return a case of a scalar conversion: the values or codes given, and no others."""
    if scales is not None:
        raise ArgumentError(f"{operation} takes no --scales: it converts each element by itself.")
    if "x" in OPERATIONS[operation].inputs:
        return Case(operation, profile, {**keywords, "input": dtype}, {"x": _floats(words, dtype)})
    return Case(operation, profile, keywords, {"codes": _codes(words, OPERATIONS[operation].reads.format(keywords))})


def _codes(words: list[str], fmt: Format) -> np.ndarray:
    return np.array([_integer(word, (1 << fmt.bits) - 1, f"code of {fmt.name}") for word in words], np.uint8)


def _floats(words: list[str], dtype: str) -> np.ndarray:
    if dtype not in _DTYPES:
        raise ArgumentError(f"--dtype {dtype!r} is not one of {', '.join(_DTYPES)}.")
    return np.array([_float(word, _DTYPES[dtype]) for word in words], _DTYPES[dtype])


def parse_index(text: str) -> int | tuple[int, int]:
    """Return a flat index, or (row, column)."""
    try:
        parts = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ArgumentError(f"--index {text!r} is not a number or row,column.") from error
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:
        return parts[0], parts[1]
    raise ArgumentError(f"--index {text!r} has {len(parts)} numbers; give one, or row,column.")


def _param(text: str, operation: str) -> tuple[str, Any]:
    name, _, word = text.partition("=")
    choices = OPERATIONS[operation].params.get(name)
    if choices is None:
        raise ArgumentError(
            f"--param {text!r} is no NAME=VALUE of a parameter of {operation}; its parameters are "
            f"{', '.join(OPERATIONS[operation].params) or 'none'}."
        )
    if name == "order":
        return name, word  # any named order; the model refuses others
    for choice in choices:
        shown = "x".join(map(str, choice)) if isinstance(choice, list) else str(choice)
        if word == shown:
            return name, choice
    raise ArgumentError(f"--param {text!r}: choose from {', '.join(map(str, choices))}.")


def _float(word: str, dtype: np.dtype) -> Any:
    if word.lower().startswith("0x"):
        bits = _integer(word, (1 << 8 * dtype.itemsize) - 1, f"bit pattern of {dtype.name}")
        return np.array([bits], f"u{dtype.itemsize}").view(dtype)[0]
    try:
        with np.errstate(over="ignore"):
            number = np.array([float(word)]).astype(dtype)[0]
    except ValueError as error:
        raise ArgumentError(f"{word!r} is neither a number nor 0x... bits of {dtype.name}.") from error
    if np.isinf(number) and "inf" not in word.lower():
        raise ArgumentError(f"{word!r} is too large for {dtype.name}; give a smaller number, inf, or bits 0x...")
    return number


def _integer(word: str, largest: int, what: str) -> int:
    try:
        number = int(word, 0)
    except ValueError:
        number = -1
    if not 0 <= number <= largest:
        raise ArgumentError(f"{word!r} is no {what}; allowed are 0 to {largest} (0x{largest:X}).")
    return number


def _padded(row: np.ndarray, unit: int = 0) -> np.ndarray:
    unit = max(unit, 32)
    width = max(unit, -(-row.size // unit) * unit)
    out = np.zeros((1, width), row.dtype)
    out[0, : row.size] = row
    return out
