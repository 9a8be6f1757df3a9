"""Inputs of a timed call, made where they are used: normal values, each row at its own power of two.

Codes come from the golden model, so that they are what a kernel gets in training and not arbitrary bytes. `xp` is
CuPy, or NumPy in a test. bfloat16 arrays are uint16 bits, which the model and the device libraries both take.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import refnum
from refnum.arrays import Array

from ...cases.case import Case
from ...cases.entry import WORDS
from ...cases.operation import OPERATIONS
from .lines import Line
from .shapes import ALIGN, Shape

PART = 4096
"""Rows that are made at a time."""


def noise(xp: Any, shape: tuple[int, int], dtype: str, seed: int) -> Array:
    """Return standard normal values times a power of two a row, as float32, float16 or bfloat16 bits."""
    rng = xp.random.default_rng(seed)
    out = xp.empty(shape, {"bfloat16": np.uint16}.get(dtype, dtype))
    for row in range(0, shape[0], PART):
        count = min(PART, shape[0] - row)
        part = rng.standard_normal((count, shape[1]), np.float32)
        part *= xp.exp2(rng.integers(-4, 4, (count, 1)).astype(np.float32))
        out[row : row + count] = _bfloat16_bits(part) if dtype == "bfloat16" else part.astype(dtype)
    return out


def _bfloat16_bits(x: Array) -> Array:
    """Round float32 to bfloat16 bits, to nearest even."""
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def by_rows(function: Callable[..., Any], *arrays: Array) -> tuple[Array, ...]:
    """Return a row-wise golden function's results, worked out some rows at a time."""
    parts = [function(*(x[row : row + PART] for x in arrays)) for row in range(0, max(len(arrays[0]), 1), PART)]
    return tuple(np.concatenate(pieces) for pieces in zip(*parts, strict=True))


def _x(xp: Any, line: Line, shape: Shape, seed: int) -> dict[str, Array]:
    found = {"x": noise(xp, shape.matrix(line.at), line.params["input"], seed)}
    if "tensor_amax" in line.optional:
        found["tensor_amax"] = xp.asarray(np.array([40], np.float32))
    if "rbits" in line.optional:
        found["rbits"] = _random(xp, shape.matrix(line.at), seed)
    for place, name in enumerate(WORDS):
        if name in OPERATIONS[line.operation].inputs:
            found[name] = _random(xp, shape.matrix(line.at), seed + place, WORDS[name], np.uint32)
    return found


def _random(xp: Any, shape: tuple[int, int], seed: int, bits: int = 8, dtype: Any = np.uint8) -> Array:
    rng, out = xp.random.default_rng(seed), xp.empty(shape, dtype)
    for row in range(0, shape[0], PART):
        out[row : row + PART] = rng.integers(0, 1 << bits, out[row : row + PART].shape, dtype=dtype)
    return out


def _weights(xp: Any, line: Line, shape: Shape, seed: int) -> dict[str, Array]:
    """Return weights and a running average of them, which is near."""
    w, more = (noise(xp, shape.matrix(line.at), "float32", seed + place) for place in range(2))
    average, dtype = w + more * np.float32(0.02), line.params["input"]
    both = {"w": w, "ema": average}
    return {name: _bfloat16_bits(x) if dtype == "bfloat16" else x.astype(dtype) for name, x in both.items()}


def _codes(xp: Any, line: Line, shape: Shape, seed: int) -> dict[str, Array]:
    """Return any codes, two a byte, and a step."""
    m, k = shape.matrix(line.at)
    return {"packed": _random(xp, (m, k // 2), seed), "alpha": xp.asarray(np.array([0.7], np.float32))}


def _mxfp4(xp: Any, line: Line, shape: Shape, seed: int) -> dict[str, Array]:
    packed, scales = by_rows(refnum.quantize_mxfp4, noise(xp, shape.matrix(line.at), "bfloat16", seed))
    return {"packed": packed, "scales": scales}


def _nvfp4(xp: Any, line: Line, shape: Shape, seed: int) -> dict[str, Array]:
    amax = xp.asarray(np.array([40], np.float32))
    tile = tuple(line.params.get("tile", (1, 16)))
    quantise = functools.partial(refnum.quantize_nvfp4, tensor_amax=amax, tile=tile)
    packed, scales = by_rows(lambda x: quantise(x)[:2], noise(xp, shape.matrix(line.at), "bfloat16", seed))
    return {"packed": packed, "scales": scales, "tensor_amax": amax}


def _fp8(xp: Any, line: Line, shape: Shape, seed: int) -> dict[str, Array]:
    tall, wide = line.params.get("tile", (1, 128))
    quantise = functools.partial(refnum.quantize_fp8_tiles, tile=(tall, wide))
    codes, scales = by_rows(quantise, noise(xp, shape.matrix(line.at), "bfloat16", seed))
    return {"codes": codes, "scales": scales}


def _swiglu(xp: Any, line: Line, shape: Shape, seed: int) -> dict[str, Array]:
    m, h = shape.matrix(line.at)
    names = [name for name in OPERATIONS[line.operation].inputs if name != "prob"]
    found = {
        name: noise(xp, (m, h), line.dtypes.get(name, "bfloat16"), seed + place) for place, name in enumerate(names)
    }
    if line.data == "gate and up in one array":
        both = xp.concatenate([found["gate"], found["up"]], axis=1)
        found |= {"gate": both[:, :h], "up": both[:, h:]}
    elif line.data:
        zeroed = xp.random.default_rng(seed).integers(0, 2, (m, h), dtype=np.uint16) * (line.data != "all gates zero")
        found["gate"] *= zeroed.astype(np.uint16)
    return {**found, "prob": xp.random.default_rng(seed).random((m,), np.float32)}


def _payload(xp: Any, line: Line, shape: Shape, seed: int) -> dict[str, Array]:
    return {"payload": refnum.pack_payload(**_mxfp4(xp, line, shape, seed))}


def _row_map(xp: Any, line: Line, shape: Shape) -> Array:
    """Return the token of every row in expert order: each token goes to `top_k` of the experts."""
    count = shape.tokens * shape.top_k
    mixed = np.random.default_rng(1).permutation(count) % shape.tokens
    splits = shape.splits(line.unit)
    ends = np.cumsum(splits)
    for start, end in zip(ends - splits, ends, strict=True):
        mixed[start:end].sort()
    return xp.asarray(mixed.astype(np.int64))


def _permute(xp: Any, line: Line, shape: Shape, seed: int) -> dict[str, Array]:
    return {**_payload(xp, line, shape, seed), "row_map": _row_map(xp, line, shape)}


def _unpermute(xp: Any, line: Line, shape: Shape, seed: int) -> dict[str, Array]:
    count, columns = shape.matrix(line.at)
    rows = sum(-(-n // ALIGN) * ALIGN for n in shape.splits(line.unit))  # every expert's are padded to whole groups
    weights = xp.random.default_rng(seed).random((count,), np.float32)
    return {
        "rows": noise(xp, (rows, columns), line.dtypes.get("rows", "bfloat16"), seed),
        "row_map": _row_map(xp, line, shape), "weights": weights,
    }  # fmt: skip


def _product(xp: Any, line: Line, shape: Shape, seed: int) -> dict[str, Array]:
    """Return both operands of a product, of FP8 with scales of 1x128 and of 128x128."""
    m, n, k = shape.product
    values = noise(xp, (m, k), "bfloat16", seed), noise(xp, (n, k), "bfloat16", seed + 1)
    if line.operation == "matmul_bf16":
        return dict(zip("ab", values, strict=True))
    a, a_scales = by_rows(refnum.quantize_fp8_tiles, values[0])
    b, b_scales = refnum.quantize_fp8_tiles(values[1], tile=(128, 128))
    return {"a": a, "b": b, "a_scales": a_scales, "b_scales": b_scales}


MAKERS: dict[tuple[str, ...], Callable[[Any, Line, Shape, int], dict[str, Array]]] = {
    ("x",): _x,
    ("x", "r_under", "r_log"): _x,
    ("w", "ema"): _weights,
    ("packed",): _codes,
    ("packed", "alpha"): _codes,
    ("packed", "scales"): _mxfp4,
    ("packed", "scales", "tensor_amax"): _nvfp4,
    ("codes", "scales"): _fp8,
    ("gate", "up"): _swiglu,
    ("grad", "gate", "up"): _swiglu,
    ("payload",): _payload,
    ("payload", "row_map"): _permute,
    ("rows", "row_map"): _unpermute,
    ("a", "b"): _product,
}
"""Inputs of an operation -> how they are made."""


def make(xp: Any, line: Line, shape: Shape, seed: int = 0) -> Case:
    """Return one call of a line at a shape, its arrays in `xp`."""
    found = MAKERS[OPERATIONS[line.operation].inputs](xp, line, shape, seed)
    wanted = {*OPERATIONS[line.operation].inputs, *line.optional}
    params = dict(line.params)
    if line.experts:
        params["splits"] = shape.splits(line.unit)
    if line.operation == "unpermute":
        params["tokens"] = shape.tokens
    return Case(line.operation, line.profile, params, {name: x for name, x in found.items() if name in wanted})


def _copied(x: Array) -> Array:
    """Return a copy whose rows are as far apart as those of `x`."""
    if x.flags.c_contiguous:
        return x.copy()
    out = type(x)((x.shape[0], x.strides[0] // x.itemsize), x.dtype)[:, : x.shape[1]]
    out[...] = x
    return out


def copies(case: Case, count: int) -> list[Case]:
    """Return `count` cases of equal data, each in storage of its own; the first is the case itself."""
    return [case, *(case.with_inputs({name: _copied(x) for name, x in case.inputs.items()}) for _ in range(count - 1))]
