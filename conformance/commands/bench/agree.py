"""Are a contender's results the golden model's? All elements of one set of buffers, compared where they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import refnum
from refnum.arrays import Array, contiguous, unpack_nibbles
from refnum.errors import ShapeError

from ...cases import layouts
from ...cases.case import Case
from ...cases.entry import Output
from ...cases.geometry import column_block, spread
from ...cases.operation import as_bits, outputs_of, run_golden

STEP = {0: 2048, 1: 1024}
"""Rows, or columns, of the inputs that the model works on at a time; whole tiles of 128."""

# operation, and its `axis` where that differs -> the axis by which its inputs are cut, and of each output the axis that
# goes with it (None: not cut)
CUTS: dict[str, tuple[int, tuple[int | None, ...]]] = {
    "mxfp4_to_fp8_columns": (1, (0, 1)),
    "mxfp4_columns": (1, (0, 1)),
    "fp8_columns": (1, (0, 1)),
    "mxfp4_to_fp8_rows_columns": (1, (1, 1, 0, 1)),
    "permute_pad": (1, (1, None)),
    "permute_unpack": (1, (1, 1, None)),
    "unpermute": (1, (1,)),
    "quantize_nvfp4": (0, (0, 0, None)),
    "quantize_tetrajet": (0, (0, 0)),
    "q_ema": (0, (0, 0)),
    "luq": (0, (0, None)),
    "dequantize_luq": (0, (0,)),
    "hadamard_quantize_nvfp4": (0, (0, 0, None)),
    "hadamard_quantize_nvfp4 0": (1, (0, 0, None)),
    "occ": (0, (0, 0, 1)),
    "occ channel": (1, (1, 1, 1)),
}
ROWWISE: tuple[int, tuple[int | None, ...]] = (0, (0, 0, 0))
WHOLE = frozenset({"row_map", "weights", "b", "b_scales", "tensor_amax", "alpha"})
"""Inputs that are not cut."""
STORED = {"bytes": 0, "float32": 0, "gemm_float32": 1, "packed_ue8m0": 1, "swizzled": 0}
"""Layout of an operation's scales -> the axis along which parts of whole tiles of 128 rows lie one after another."""
UNCUT = {
    "permute_unpack": "",
    "quantize_nvfp4": "tensor_amax",
    "luq": "tensor_amax",
    "hadamard_quantize_nvfp4": "tensor_amax",
}
"""Operations whose parts are not alike -> the input with which they are: codes, then scales; one maximum of all."""


@dataclass
class Agreement:
    """Items compared (packed codes count as bytes), how many differ, and how many of the values they stand for."""

    compared: int = 0
    differing: int = 0
    values_differing: int = 0

    @property
    def verdict(self) -> str:
        """`equal` byte for byte, `values` for other bytes of equal value, or `differs`."""
        if not self.compared:
            return "not compared"
        if not self.differing:
            return "equal"
        return "differs" if self.values_differing else "values"


@dataclass(frozen=True)
class Part:
    """A part of a case, where it lies in each output (None: another part has it), and its golden bits."""

    case: Case
    places: tuple[tuple[slice, ...] | None, ...]
    golden: Mapping[str, Array]


class Golden:
    """The golden outputs of a case, in parts that the device has room to work out."""

    def __init__(self, case: Case) -> None:
        self.parts = list(_parts(case))

    def compare(self, results: Sequence[Array]) -> Agreement:
        """Compare a contender's results, arrays of the case's own library; ShapeError when they do not fit."""
        found = Agreement()
        for part in self.parts:
            if len(results) != len(part.golden):
                raise ShapeError(f"{len(results)} results were given; {part.case.operation} has {len(part.golden)}.")
            mine: dict[str, Array] = {}
            for (name, wanted), result, place in zip(part.golden.items(), results, part.places, strict=True):
                if place is None:
                    mine[name] = wanted
                    continue
                found.compared += wanted.size
                mine[name] = as_bits(result[place])
                if mine[name].shape != wanted.shape:
                    raise ShapeError(f"{name} has {result.shape}; of this part {wanted.shape} is wanted at {place}.")
            wrong = sum(int((mine[name] != wanted).sum()) for name, wanted in part.golden.items())
            found.differing += wrong
            stored = layouts.OUT in part.case.params  # their values are not read back
            found.values_differing += (wrong if stored else _values_differing(part, mine)) if wrong else 0
        return found


def _parts(case: Case) -> Iterator[Part]:
    axis, axes = CUTS.get(f"{case.operation} {case.params.get('axis')}", CUTS.get(case.operation, ROWWISE))
    if layouts.OUT in case.params:
        axes = (0, STORED[case.params[layouts.OUT]])
    length = next(x for name, x in case.inputs.items() if name not in WHOLE).shape[axis]
    step = STEP[axis] // 2 if axis and "packed" in case.inputs else STEP[axis]  # two codes a byte
    step = step if UNCUT.get(case.operation, next(iter(case.inputs))) in case.inputs else length
    done = [0] * len(axes)
    for start in range(0, length, step):
        part = case.with_inputs(
            {
                name: x if name in WHOLE or x.ndim <= axis else _cut(x, axis, start, min(start + step, length), length)
                for name, x in case.inputs.items()
            },
            _key(case, axis, start),
        )
        golden = run_golden(part)
        if layouts.OUT in case.params:
            golden["scales"] = as_bits(layouts.stored_scales(case, golden["scales"]))
        places: list[tuple[slice, ...] | None] = []
        for number, wanted in enumerate(golden.values()):
            at = axes[number]
            if at is None:
                places.append(None if start else (slice(None),))
                continue
            places.append((*(slice(None),) * at, slice(done[number], done[number] + wanted.shape[at])))
            done[number] += wanted.shape[at]
        yield Part(part, tuple(places), golden)


def _key(case: Case, axis: int, start: int) -> dict[str, Any]:
    """Return the key by which the results from this row on have the random bits that they have in the whole (N13.5).

    A row of what is cut along columns is a column of the input, filled up to whole groups of 16.
    """
    if "philox" not in case.params:
        return {}
    seed, stream, step, *offset = case.params["philox"]
    rows, columns = case.inputs["x"].shape
    return {"philox": [seed, stream, step, sum(offset) + start * (-(-rows // 16) * 16 if axis else columns)]}


def _cut(x: Array, axis: int, start: int, stop: int, length: int) -> Array:
    """Return the part of an input that goes with [start, stop) of the first input's `length`."""
    n = x.shape[axis]
    place = slice(start * n // length, n if stop == length else stop * n // length)
    return contiguous(x[place] if axis == 0 else x[:, place])


def _values_differing(part: Part, mine: Mapping[str, Array]) -> int:
    """Count elements whose value differs; two zeros are equal, and so are two NaNs."""
    wrong = 0
    outputs = {output.name: output for output in outputs_of(part.case)}
    for output in outputs.values():
        if output.kind == "scales":
            continue
        pair = [_values(part.case, output, outputs, side) for side in (part.golden, mine)]
        same = (pair[0] == pair[1]) | ((pair[0] != pair[0]) & (pair[1] != pair[1]))
        wrong += int((~same).sum())
    return wrong


def _values(case: Case, output: Output, outputs: Mapping[str, Output], bits: Mapping[str, Array]) -> Array:
    x = bits[output.name]
    if output.kind == "values":
        return (x.astype(np.uint32) << np.uint32(16) if x.itemsize == 2 else x).view(np.float32)
    if not output.block:
        return x
    codes = unpack_nibbles(x) if output.kind == "packed" else x
    names = list(outputs)
    scales = bits[names[names.index(output.name) + 1]]  # scales follow their codes
    if output.block.startswith("column"):
        tall = int(output.block.removeprefix("column"))
        block = np.asarray(column_block(case, tall, codes.shape[1]), like=scales)
        byte: Any = scales[block].T
    else:
        byte = spread(output.block, case, scales, codes.shape)
    values = refnum.decode(output.format(case.params) or output.element, codes).astype(np.float64)
    return np.where(byte == 255, np.nan, np.ldexp(values, byte.astype(np.int32) - 127))
