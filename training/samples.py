"""Parts of a conversion or a product that can be computed again alone: literal inputs and what was observed.

Names and keywords are those of the operation in `refnum`, so that a sample can be written as a replay file. bfloat16
arrays have the dtype of `ml_dtypes`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from refnum import blocks, columns, hadamard, nvfp4, payload, recast, swiglu, tiles
from refnum import product as products
from refnum.arrays import BFLOAT16, TILE
from refnum.philox import as_key, random_bits

from .compare import to_array
from .golden_forms import operand_values

Tensor = torch.Tensor
WIDE = 2 * TILE
"""Columns of a sample of a transposing conversion."""
ORDERS = ("promote128", "split2", "split3", "split4")
"""Orders of N19.4 that a library's product may have."""


@dataclass(frozen=True)
class Sample:
    """A part of one call.

    operation: its name in `refnum`. inputs: by the golden function's names. params: its keywords. observed: by the
    outputs' names. row: the first row of the call that the part has. of: rows of the call.
    """

    operation: str
    inputs: dict[str, np.ndarray]
    observed: dict[str, np.ndarray]
    params: dict[str, Any] = field(default_factory=dict)
    row: int = 0
    of: int = 0

    def landed(self) -> Sample:
        """Return the sample with arrays of the host, when the copies of the device have arrived."""
        inputs, observed = ({name: _landed(one) for name, one in of.items()} for of in (self.inputs, self.observed))
        return dataclasses.replace(self, inputs=inputs, observed=observed)

    def expected(self, **changes: Any) -> dict[str, np.ndarray]:
        """Return what the model gives, by the outputs' names."""
        named = {**self.params, **changes}
        if "tile" in named:
            named["tile"] = tuple(named["tile"])
        results = MODEL[self.operation](**self.inputs, **named)
        given = results if isinstance(results, tuple) else (results,)
        return dict(zip(self.observed, (one for one in given if one is not None), strict=True))


MODEL: dict[str, Callable[..., Any]] = {
    "quantize_mxfp4": blocks.quantize_mxfp4,
    "dequantize_mxfp4": blocks.dequantize_mxfp4,
    "quantize_fp8_tiles": tiles.quantize_fp8_tiles,
    "dequantize_fp8_tiles": tiles.dequantize_fp8_tiles,
    "quantize_nvfp4": nvfp4.quantize_nvfp4,
    "dequantize_nvfp4": nvfp4.dequantize_nvfp4,
    "hadamard16": hadamard.hadamard16,
    "fp8_to_mxfp4": recast.fp8_to_mxfp4,
    "mxfp4_to_fp8": recast.mxfp4_to_fp8,
    "mxfp4_to_fp8_columns": columns.mxfp4_to_fp8_columns,
    "fp8_columns": columns.fp8_columns,
    "swiglu_quantize": swiglu.swiglu_quantize,
    "swiglu_backward": swiglu.swiglu_backward,
    "quantize_payload": payload.quantize_payload,
    "fp8_to_payload": payload.fp8_to_payload,
    "permute_pad": payload.permute_pad,
    "permute_unpack": payload.permute_unpack,
    "unpermute": payload.unpermute,
    "operand": operand_values,
    "matmul_fp8": products.matmul_fp8,
    "matmul_bf16": products.matmul_bf16,
}
"""The golden functions."""

ROWS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "quantize_mxfp4": (("x",), ("packed", "scales")),
    "dequantize_mxfp4": (("packed", "scales"), ("values",)),
    "quantize_fp8_tiles": (("x",), ("codes", "scales")),
    "dequantize_fp8_tiles": (("codes", "scales"), ("values",)),
    "quantize_nvfp4": (("x", "tensor_amax"), ("packed", "scales", "tensor_amax")),
    "dequantize_nvfp4": (("packed", "scales", "tensor_amax"), ("values",)),
    "hadamard16": (("x",), ("values",)),
    "fp8_to_mxfp4": (("codes", "scales"), ("packed", "scales")),
    "mxfp4_to_fp8": (("packed", "scales"), ("codes", "scales")),
    "swiglu_quantize": (("gate", "up", "prob"), ("codes", "scales")),
    "swiglu_backward": (("grad", "gate", "up", "prob"), ("dgate", "dup", "dprob")),
    "quantize_payload": (("x",), ("payload",)),
    "fp8_to_payload": (("codes", "scales"), ("payload",)),
}
"""Conversion whose rows are independent -> names of its inputs and outputs.

Those of NVFP4 are, once the tensor's maximum is known: a part is given that of the whole tensor.
"""


def of_conversion(
    name: str, given: Sequence[Any], named: Mapping[str, Any], results: Any, most: int, draw: random.Random
) -> Sample | None:
    """Return a part of at most about `most` rows of a call of `Edges.call`; None where there is nothing to compare."""
    if not given[0].numel():
        return None
    outputs = results if isinstance(results, tuple) else (results,)
    if name == "operand":
        return _operand(given[0], named, outputs[0])
    if name.endswith("_columns"):
        return _columns(name, given, outputs, most, draw)
    if name.startswith("permute"):
        return _gathered(name, given, outputs, most, draw)
    if name == "unpermute":
        return _summed(given, outputs[0], most, draw)
    return _rows(name, given, named, outputs, most, draw)


def _operand(x: Tensor, named: Mapping[str, Any], values: Tensor) -> Sample:
    """An operand of one expert as a whole: its scale, or what is cut off, follows from all elements."""
    average = named["average"]
    inputs = {"x": array(x)} | ({} if average is None else {"average": array(average)})
    rule = dataclasses.asdict(named["operand"])
    del rule["before"]
    return Sample("operand", inputs, {"values": array(values)}, {"operand": rule, "philox": named["philox"]})


def of_product(a: Sequence[Tensor], b: Sequence[Tensor], result: Tensor, most: int, draw: random.Random) -> Sample:
    """Return a part of at most `most` rows and 32 columns of a product a @ b.T."""
    rows, columns_ = _range(len(a[0]), most, draw), _range(len(b[0]), 32, draw, 32)
    inputs = {"a": array(a[0][rows]), "b": array(b[0][columns_])}
    if len(a) == 1:
        return Sample("matmul_bf16", inputs, {"values": array(result[rows, columns_])}, {"out": "bfloat16"})
    squares = len(b[1]) != len(b[0])
    of_b = slice(columns_.start // TILE, -(-columns_.stop // TILE)) if squares else columns_
    inputs |= {"a_scales": array(a[1][rows]), "b_scales": array(b[1][of_b])}
    params = {"order": "promote128", "out": "bfloat16", "a_format": "E4M3", "b_format": "E4M3"}
    return Sample("matmul_fp8", inputs, {"values": array(result[rows, columns_])}, params, rows.start, len(a[0]))


class Copy:
    """A part of a device's tensor on its way to the host; the stream goes on."""

    def __init__(self, x: Tensor) -> None:
        self.host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        self.host.copy_(x, non_blocking=True)
        self.event = torch.cuda.Event()
        self.event.record(torch.cuda.current_stream(x.device))

    def array(self) -> np.ndarray:
        """Return the array, when it has arrived."""
        self.event.synchronize()
        return _host_array(self.host)


def array(x: Tensor) -> Any:
    """Return a part of a tensor as an array of its own on the host, or as what becomes one."""
    return Copy(x.detach()) if x.is_cuda else _host_array(x.detach()).copy()


def _landed(x: Any) -> np.ndarray:
    found: np.ndarray = x.array() if isinstance(x, Copy) else x
    return found


def _host_array(x: Tensor) -> np.ndarray:
    found = to_array(x)
    return found.view(BFLOAT16) if x.dtype == torch.bfloat16 else found


def _range(length: int, most: int, draw: random.Random, step: int = 1) -> slice:
    """Return a random range of at most `most` of `length` things, which begins at a multiple of `step`."""
    start = draw.randrange(0, max(length - most, 0) + 1) // step * step
    return slice(start, min(start + most, length))


def _rows(
    name: str, given: Sequence[Any], named: Mapping[str, Any], outputs: Sequence[Tensor], most: int, draw: random.Random
) -> Sample:
    names, made = ROWS[name]
    params = _params(name, given, named)
    tall = params["tile"][0] if "tile" in params else 1
    if params.get("to") == "mxfp4":
        made = ("packed", "scales")
    if name == "quantize_nvfp4":
        given = (given[0], outputs[2])
    length = len(given[0])
    rows = _range(length, max(most, tall), draw, tall)
    inputs = {key: array(_part(x, rows, length)) for key, x in zip(names, given, strict=False)}
    if "philox" in named:
        key, wide = as_key(tuple(named["philox"])), given[0].shape[1]
        key = key._replace(offset=key.offset + rows.start * wide)
        inputs["rbits"] = random_bits((rows.stop - rows.start, wide), 8, **key._asdict())
    observed = dict(zip(made, (array(_part(x, rows, length)) for x in outputs), strict=True))
    return Sample(name, inputs, observed, params, rows.start, length)


def _params(name: str, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a conversion whose rows are independent, but for its random words."""
    params: dict[str, Any] = {}
    if name == "quantize_mxfp4" and len(given) > 1:
        params["profile"] = given[1]
    if name == "quantize_fp8_tiles":
        params["tile"] = [int(given[1][0]) if len(given) > 1 else 1, TILE]
    if name.endswith("_nvfp4"):
        params["tile"] = list(named["tile"])
    if name.startswith("dequantize"):
        params["dtype"] = str(named.get("dtype", given[-1])).removeprefix("torch.")
    if name == "dequantize_fp8_tiles":
        params["tile"] = [1, TILE]
    if name == "swiglu_quantize":
        params["to"] = given[3] if len(given) > 3 else "fp8"
    return params


def _part(x: Tensor, rows: slice, length: int) -> Tensor:
    """Return what an array of so many rows, or of a block of them each, has of some; one number is for all."""
    if len(x) == length:
        return x[rows]
    tall = -(-length // len(x))
    return x if x.dim() == 1 else x[rows.start // tall : -(-rows.stop // tall)]


def _columns(name: str, given: Sequence[Any], outputs: Sequence[Tensor], most: int, draw: random.Random) -> Sample:
    """The whole call where so many rows are wanted, else one block of 128 rows and some columns.

    All blocks are whole, since experts are filled up.
    """
    codes_a_byte, wide = (2, 32) if name.startswith("mxfp4") else (1, TILE)
    rows, k = slice(0, len(given[0])), given[0].shape[1] * codes_a_byte
    part, splits = slice(0, k), list(given[2])
    if most < len(given[0]):
        rows, part = _range(len(given[0]), TILE, draw, TILE), _range(k, WIDE, draw, TILE)
        splits = [rows.stop - rows.start]
    codes = given[0][rows, part.start // codes_a_byte : part.stop // codes_a_byte]
    inputs = {"packed" if codes_a_byte == 2 else "codes": array(codes)}
    inputs["scales"] = array(given[1][rows, part.start // wide : -(-part.stop // wide)])
    segments = slice(rows.start // TILE, rows.stop // TILE)
    observed = {"codes": array(outputs[0][part, rows]), "scales": array(outputs[1][segments, part])}
    params = {"scale": "max"} if codes_a_byte == 2 else {"underflow": "rne"}
    return Sample(name, inputs, observed, {**params, "splits": splits}, rows.start, len(given[0]))


def _gathered(name: str, given: Sequence[Any], outputs: Sequence[Tensor], most: int, draw: random.Random) -> Sample:
    """Some rows of one expert, as a gather of one expert, its last rows with those that fill up."""
    rows, row_map, splits, align = given
    expert = draw.choice([at for at, count in enumerate(splits) if count])
    part = _range(splits[expert], max(most, align), draw, align)
    first = sum(splits[:expert])
    start = sum(-(-count // align) * align for count in splits[:expert]) + part.start
    taken = row_map[first + part.start : first + part.stop]
    count = part.stop - part.start
    inputs = {"payload": array(rows[taken]), "row_map": np.arange(count)}
    stop = start + -(-count // align) * align
    made = ("packed", "scales") if name == "permute_unpack" else ("rows",)
    observed = dict(zip(made, (array(one[start:stop]) for one in outputs), strict=False))
    params = {"splits": [count], "align": align}
    return Sample(name, inputs, observed | {"offsets": np.zeros(1, np.int64)}, params, start, len(outputs[0]))


def _summed(given: Sequence[Any], result: Tensor, most: int, draw: random.Random) -> Sample | None:
    """The sums of some tokens, of their rows alone."""
    rows, row_map, splits, _, tokens, align = given
    if not tokens:
        return None
    part = _range(tokens, most, draw)
    hit = (row_map >= part.start) & (row_map < part.stop)
    counts, places, start = [], [], 0
    for one in hit.split(list(splits)):
        found = one.nonzero()[:, 0]
        counts.append(len(found))
        places.append(found + start)
        start += -(-len(one) // align) * align
    inputs = {"rows": array(rows[torch.cat(places)]), "row_map": array(row_map[hit] - part.start)}
    params = {"splits": counts, "tokens": part.stop - part.start, "align": 1}
    inputs["weights"] = np.ones(sum(counts), np.float32)
    return Sample("unpermute", inputs, {"values": array(result[part])}, params, part.start, tokens)
