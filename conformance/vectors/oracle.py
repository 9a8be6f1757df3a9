"""The frozen answers a second time: brute force over exact rationals, no code of the model (N15)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np

from refnum import oracle
from refnum.oracle import blocks

from . import definitions
from .load import Vector
from .record import little_endian

_BITS = {"float32": np.uint32, "bfloat16": np.uint16, "float16": np.uint16}
Matrices = tuple[list[list[int]], ...]


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Let the oracle remember what it has encoded: the same exact quotients come back in most blocks."""
    plain = blocks.encode
    blocks.encode = functools.lru_cache(maxsize=1 << 20)(plain)
    try:
        yield
    finally:
        blocks.encode = plain


def sampled(vector: Vector, rows: int) -> Vector:
    """Return a tensor of a row-wise operation cut to evenly spaced rows; any other vector as it is."""
    count = next(iter(vector.inputs.values())).shape[0]
    if vector.tensor is None or vector.operation not in _ROW_WISE or count <= rows:
        return vector
    if vector.params.get("tile") == [128, 128]:
        return vector
    kept = np.unique(np.linspace(0, count - 1, rows).astype(int) // 8 * 8 + np.arange(rows) % 8)
    kept = kept[kept < count]
    return replace(
        vector,
        inputs={n: a[kept] for n, a in vector.inputs.items()},
        outputs={n: a[kept] for n, a in vector.outputs.items()},
    )


def expected_by_oracle(vector: Vector) -> dict[str, np.ndarray] | None:
    """Return the outputs by the oracle as unsigned integers, or None where the oracle has no such operation."""
    solve = _SOLVERS.get(vector.operation)
    if solve is None:
        return None
    answers = solve(vector)
    return {
        name: np.asarray(answer, dtype=f"u{array.dtype.itemsize}").reshape(array.shape)
        for (name, array), answer in zip(vector.outputs.items(), answers, strict=True)
    }


def agrees(vector: Vector, expected: Mapping[str, np.ndarray]) -> str | None:
    """Return None when every bit agrees, else the name of the first output that differs."""
    for name, array in vector.outputs.items():
        if little_endian(array) != little_endian(expected[name]):
            return name
    return None


def policy(vector: Vector) -> oracle.Policy:
    """Return the vector's literal profile as the oracle's policy: nothing is looked up in refnum.profiles."""
    known = {field.name for field in fields(oracle.Policy)}
    return oracle.Policy(**{k: v for k, v in vector.profile.items() if k in known})


@functools.cache
def _value(bits: int, dtype: str) -> oracle.Exact:
    return oracle.float_value(bits, dtype)


def exact(array: np.ndarray) -> list[Any]:
    """Return the exact values of a float array as nested lists."""
    name = array.dtype.name
    words = array.view(_BITS[name])
    if array.ndim == 1:
        return [_value(int(w), name) for w in words]
    return [[_value(int(w), name) for w in row] for row in words]


def _lists(vector: Vector, *names: str) -> list[Any]:
    return [vector.inputs[name].tolist() for name in names]


def _quantiser(function: Callable[..., Any], *more: str) -> Callable[[Vector], Any]:
    def solve(vector: Vector) -> Any:
        draws = {"rbits": vector.inputs["rbits"].tolist()} if "rbits" in vector.inputs else {}
        return function(exact(vector.inputs["x"]), *(vector.params[m] for m in more), policy=policy(vector), **draws)

    return solve


def _tiles(vector: Vector) -> Any:
    x = vector.inputs["x"]
    if x.shape[0] == 0:
        return [], []
    return oracle.quantize_fp8_tiles(exact(x), tuple(vector.params["tile"]), policy(vector))


def _converter(function: Callable[..., Any], first: str, *more: str) -> Callable[[Vector], Any]:
    def solve(vector: Vector) -> Any:
        keywords = {name: vector.params[name] for name in more}
        if "tile" in keywords:
            keywords["tile"] = tuple(keywords["tile"])
        result = function(*_lists(vector, first, "scales"), **keywords)
        return result if isinstance(result, tuple) else (result,)

    return solve


def _encode(vector: Vector, element: str, **choices: Any) -> Any:
    values = np.asarray(exact(vector.inputs["x"]), dtype=object).reshape(-1)
    if element in _IEEE:
        return ([_encode_ieee(element, value, choices["overflow"]) for value in values],)
    draws = vector.inputs["rbits"].reshape(-1).tolist() if "rbits" in vector.inputs else [0] * len(values)
    codes = [oracle.encode(element, v, rbits=r, **choices) for v, r in zip(values, draws, strict=True)]
    return (codes,)


def _encode_ieee(element: str, value: oracle.Exact, overflow: str) -> int:
    """BF16 and FP16 have no value table: one rounding of the exact value, whose overflow saturates or is Inf."""
    dtype, infinity = _IEEE[element]
    bits = oracle.float_bits(value, dtype)
    return bits - 1 if overflow == "saturate" and bits & 0x7FFF == infinity else bits


def _encode_e8m0(vector: Vector) -> Any:
    """By definition: the power of two at or above, at or below, or nearest (a midpoint goes up), clamped."""
    out = []
    top = 254 if vector.params["saturate"] else 255
    for value in np.asarray(exact(vector.inputs["x"]), dtype=object).reshape(-1):
        if value == oracle.NAN:
            out.append(255)
        elif value in (oracle.POS_INF, oracle.NEG_INF):
            out.append(top)
        else:
            magnitude = Fraction(0) if value == oracle.NEG_ZERO else abs(value)
            out.append(_e8m0_byte(magnitude, vector.params["rounding"], top))
    return (out,)


def _e8m0_byte(magnitude: Fraction, rounding: str, top: int) -> int:
    if magnitude == 0:
        return 0
    below = oracle.floor_log2(magnitude)
    ratio = magnitude / Fraction(2) ** below
    step = {"down": False, "up": ratio > 1, "nearest": ratio >= Fraction(3, 2)}[rounding]
    return min(max(below + step + 127, 0), top)


def _decode(vector: Vector, element: str) -> Any:
    dtype = vector.params.get("dtype", "float32")
    codes = vector.inputs["codes"].reshape(-1).tolist()
    return ([oracle.float_bits(oracle.decode(element, code, signed_zero=True), dtype) for code in codes],)


_IEEE = {"BF16": ("bfloat16", 0x7F80), "FP16": ("float16", 0x7C00)}
_ROW_WISE = (
    "quantize_mxfp4",
    "quantize_mx",
    "quantize_fp8_tiles",
    "dequantize_mxfp4",
    "dequantize_mx",
    "dequantize_fp8_tiles",
    "fp8_to_mxfp4",
    "mxfp4_to_fp8",
)
_CHOICES = ("rounding", "ties", "overflow", "negative_zero", "random_bits")


def _joined(name: str) -> Callable[[Vector], Any]:
    """N12: the codes of every row that an operation gives, then its scale bytes."""
    return lambda v: ([codes + scales for codes, scales in zip(*_SOLVERS[name](v), strict=True)],)


_SOLVERS: dict[str, Callable[[Vector], Any]] = {
    "quantize_mxfp4": _quantiser(oracle.quantize_mxfp4),
    "quantize_mx": _quantiser(oracle.quantize_mx, "element"),
    "quantize_fp8_tiles": _tiles,
    "dequantize_mxfp4": _converter(oracle.dequantize_mxfp4, "packed", "dtype"),
    "dequantize_mx": _converter(oracle.dequantize_mx, "codes", "element", "dtype"),
    "dequantize_fp8_tiles": _converter(oracle.dequantize_fp8_tiles, "codes", "tile", "dtype"),
    "fp8_to_mxfp4": lambda v: oracle.fp8_to_mxfp4(v.inputs["codes"].tolist(), v.inputs["scales"].tolist(), policy(v)),
    "quantize_payload": _joined("quantize_mxfp4"),
    "fp8_to_payload": _joined("fp8_to_mxfp4"),
    "mxfp4_to_fp8": _converter(oracle.mxfp4_to_fp8, "packed", "scale"),
    "mxfp4_to_fp8_columns": _converter(oracle.mxfp4_to_fp8_columns, "packed", "splits", "scale"),
    "mxfp4_to_fp8_rows_columns": _converter(oracle.mxfp4_to_fp8_rows_columns, "packed", "splits", "scale"),
    "mxfp4_columns": _converter(oracle.mxfp4_columns, "packed", "splits", "scale"),
    "fp8_columns": _converter(oracle.fp8_columns, "codes", "splits", "underflow"),
    "encode_e2m1": lambda v: _encode(v, "E2M1"),
    "encode_e4m3": lambda v: _encode(v, "E4M3", overflow=v.params["overflow"]),
    "encode_element": lambda v: _encode(v, v.params["element"], **{c: v.params[c] for c in _CHOICES if c in v.params}),
    "encode_e8m0": _encode_e8m0,
    "decode_e2m1": lambda v: _decode(v, "E2M1"),
    "decode_e4m3": lambda v: _decode(v, "E4M3"),
    "decode_e8m0": lambda v: _decode(v, "E8M0"),
    "decode_element": lambda v: _decode(v, v.params["element"]),
    "swiglu_quantize": lambda v: definitions.swiglu_quantize(v, policy(v)),
    **definitions.DEFINITIONS,
}
