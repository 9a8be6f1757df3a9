"""Where a kernel differs, as points: an element in units of its block's scale, and the two codes it was given.

A picture is drawn from these points (`reports/picture.py`); they decide nothing. They are numbers and not bits, since
a place on an axis is all that they are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from refnum.arrays import unpack_nibbles
from refnum.codec import value
from refnum.formats import get_format

from ..cases.case import Case
from ..cases.draw.bits import float_bits
from ..cases.entry import Output
from ..cases.geometry import spread
from ..cases.operation import OPERATIONS
from ..verdicts.compare import coded_outputs, differences
from .page import source_index

MOST_WRONG, MOST_RIGHT = 40, 80
LARGEST = 1 << 22
"""Elements of the largest case that points are taken from."""

_FLOATS = {"float32": "FP32", "bfloat16": "BF16", "float16": "FP16"}
Bits = Mapping[str, np.ndarray]


def grid(case: Case, golden: Bits, observed: Bits, level: int) -> dict[str, Any]:
    """Return {"output", "element", "points"} of a case that fails `level`; empty where an operation has no picture.

    A point is [quotient, expected, observed]: the input over the golden scale, and the values of both codes in the
    same unit, each once; a code without a value, such as NaN, is None. At most 40 elements that differ come first, then
    at most 80 that agree, both evenly spread over the case.
    """
    output = _pictured(case)
    if output is None or case.elements > LARGEST:
        return {}
    wrong = differences(case, golden, observed, level).get(output.name)
    if wrong is None or not wrong.any():
        return {}
    fmt = get_format(output.format(case.params))
    sides = [_Side(output, case, arrays) for arrays in (golden, observed)]
    points = []
    for index in (*_spread(wrong, MOST_WRONG), *_spread(~wrong, MOST_RIGHT)):
        exact = _quotient(output, case, sides[0], index)
        if exact is not None:
            unit = sides[0].scale(index)
            points.append([_number(exact), *(_number(side.value(fmt, index, unit)) for side in sides)])
    once = list({tuple(point): point for point in points}.values())
    if not any(left != right for _, left, right in once):
        return {}
    return {"output": output.name, "element": fmt.name, "points": once}


def _pictured(case: Case) -> Output | None:
    """Return the coded output whose elements come from one input element each, or None."""
    operation = OPERATIONS[case.operation]
    if not {"x", "codes", "packed"} & set(case.inputs):
        return None
    coded = next((o for o in operation.outputs if o.kind in ("codes", "packed")), None)
    return None if coded is None or coded.format(case.params) in ("", "E8M0") else coded


class _Side:
    """The codes and the scale exponents of one side."""

    def __init__(self, output: Output, case: Case, arrays: Bits) -> None:
        self.codes = unpack_nibbles(arrays[output.name]) if output.kind == "packed" else arrays[output.name]
        scales = dict(coded_outputs(case)).get(output)
        self.scales = None if scales is None else spread(output.block, case, arrays[scales.name], self.codes.shape)

    def scale(self, index: tuple[int, ...]) -> Fraction | None:
        """Return the scale at an element; 1 where there is none, None for NaN."""
        return Fraction(1) if self.scales is None else _exact("E8M0", int(self.scales[index]))

    def value(self, fmt: Any, index: tuple[int, ...], unit: Fraction | None) -> Fraction | None:
        """Return the element's value in a unit."""
        exact, scale = _exact(fmt.name, int(self.codes[index])), self.scale(index)
        return None if exact is None or scale is None or unit is None else exact * scale / unit


def _exact(name: str, code: int) -> Fraction | None:
    exact = value(get_format(name), code)
    return None if isinstance(exact, str) else exact


def _quotient(output: Output, case: Case, golden: _Side, index: tuple[int, ...]) -> Fraction | None:
    """Return the input element over the golden scale, None for NaN and Inf."""
    where = source_index(output, case, index) if output.block else tuple(index)
    unit = golden.scale(index)
    if where is None or not unit:
        return None
    exact = _input(case, where)
    return None if exact is None else exact / unit


def _input(case: Case, where: tuple[int, ...]) -> Fraction | None:
    """Return the exact value of an input element, its own scale included."""
    if "x" in case.inputs:
        array = case.inputs["x"]
        return _exact(_FLOATS[array.dtype.name], int(float_bits(np.ascontiguousarray(array[where])).reshape(-1)[0]))
    packed = "packed" in case.inputs
    codes = unpack_nibbles(case.inputs["packed"]) if packed else case.inputs["codes"]
    exact = _exact(OPERATIONS[case.operation].reads.format(case.params).name, int(codes[where]))
    scales = case.inputs.get("scales")
    if scales is None or exact is None or OPERATIONS[case.operation].kind("scales") != "scales":
        return exact
    scale = _exact("E8M0", int(scales[where[0], where[1] // (32 if packed else 128)]))
    return None if scale is None else exact * scale


def _spread(mask: np.ndarray, most: int) -> Iterator[tuple[int, ...]]:
    """Yield at most so many places of a mask, evenly spread."""
    places = np.flatnonzero(mask)
    for place in places[:: -(-places.size // most) or 1]:
        yield tuple(int(i) for i in np.unravel_index(place, mask.shape))


def _number(exact: Fraction | None) -> float | None:
    try:
        return None if exact is None else float(f"{float(exact):.9g}")
    except OverflowError:
        return None
