"""Inputs that are one element all over: zeros, ones, the least and the largest number, Inf, NaN; one input at a time.

A kernel that leaves out a product by one, or knows a tensor of nothing but zeros or NaN, may be right for every other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.formats import Format, get_format

from ..draw.bits import as_float
from ..entry import WORDS
from ..operation import OPERATIONS
from ..recipes.distributions import layout_of
from . import values

E8M0 = {"least": 0, "one": 127, "largest": 254, "NaN": 255}
"""Scale bytes."""
BYTES = {"zero": 0, "largest": 255}
"""Bytes of a payload, whose parts an operation moves and does not read."""
ZEROS = {"one": 1, "largest": 15}
"""Whole zero points."""
OF_TENSORS = ("tensor_amax", "alpha")
"""Inputs of one number, which is any."""
COMMON = ("one", "largest")
"""Elements, beside one without a bit, of inputs whose dtype is drawn, scales of a product and zero points: each dtype
has them."""


def levels(operation: str, params: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> list[str]:
    """Return the name of an input and of an element, for every input of a case that has several elements."""
    every = {name: elements(operation, params, name, array) for name, array in inputs.items()}
    return [f"{name} {element}" for name, elements in every.items() for element in elements]


def uniform(
    operation: str, params: Mapping[str, Any], inputs: Mapping[str, np.ndarray], level: str
) -> dict[str, np.ndarray]:
    """Return inputs of which one is an element all over. level: as `levels` gives it; an input of one element stays."""
    name, _, element = level.partition(" ")
    array = inputs[name]
    pattern = elements(operation, params, name, array).get(element)
    if pattern is None:
        return dict(inputs)
    whole = np.full(array.shape, pattern, f"u{array.itemsize}")
    return {**inputs, name: whole if array.dtype.kind == "u" else as_float(whole, values.FORMATS[array.dtype.name])}


def elements(operation: str, params: Mapping[str, Any], name: str, array: np.ndarray) -> dict[str, int]:
    """Return the elements that an input is made of, each with its pattern."""
    kind = OPERATIONS[operation].kind(name)
    if name == "zeros" or (kind == "scales" and OPERATIONS[operation].family == "product"):
        own = _of(values.FORMATS[array.dtype.name]) if array.dtype.kind != "u" else E8M0 if kind == "scales" else ZEROS
        return {"no bit": 0} | {element: own[element] for element in COMMON}
    if (array.size < 2 and name not in OF_TENSORS) or kind == "index" or name == "factors":
        return {}
    if array.dtype.kind != "u":
        return _of(values.FORMATS[array.dtype.name])
    if name in WORDS:
        return {"zero": 0, "largest": (1 << WORDS[name]) - 1}
    if name in ("a", "b"):
        return _of(get_format(str(params[f"{name}_format"])))
    if name == "packed":
        return {element: 0x11 * code for element, code in _of(layout_of(operation, params).element).items()}
    if name == "codes":
        return _of(layout_of(operation, params).element)
    if kind == "scales":
        return E8M0
    if name == "scales":
        return _of(get_format("E4M3"))
    return BYTES


def _of(fmt: Format) -> dict[str, int]:
    """Return the elements of a format that it has."""
    if fmt.kind == "scale":
        return E8M0
    one = 1 << fmt.fraction_bits if fmt.kind == "integer" else fmt.bias << fmt.mantissa_bits
    ends = {"Inf": fmt.inf_code, "NaN": fmt.nan_code}
    found = {"zero": 0, "one": one, "largest": fmt.max_code}
    found |= {element: code for element, code in ends.items() if code is not None}
    if fmt.kind == "integer":
        found |= {f"minus {element}": (1 << fmt.bits) - code for element, code in found.items() if code}
        found["least"] = 1 << fmt.bits - 1  # two's complement has one more below zero
    if fmt.kind == "float":
        found["least"] = 1
        found |= {f"minus {element}": fmt.sign_mask | code for element, code in found.items()}
    return found
