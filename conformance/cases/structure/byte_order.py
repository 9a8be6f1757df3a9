"""Calls with arrays of the byte order that the machine does not have, which NumPy alone has.

Floats in that order, and scales in a layout, must be refused (N0.11); whole numbers are refused or read by their value.
A case holds native arrays: the dtype of its form, e.g. `x.dtype >f4`, says how a call is given them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ..case import FORM, Case
from ..entry import is_random
from ..layouts import IN, PLAIN, stored_inputs
from ..operation import OPERATIONS, outputs_of
from ..same_bytes import name_of

OTHER = "another byte order"
"""The level of `out` with arrays of that order."""
ORDER: Final = ">"
"""What the names of its dtypes begin with."""
INDICES, RANDOM, CODES = (">i4", ">i8", ">u2"), (">u2", ">u4", ">u8"), (">u2", ">u4")
"""Dtypes of row maps, of random bits and of codes that are decoded, where they may be of any width."""
SPLITS = (">i4 array", ">i8 array")


def swapped(case: Case) -> bool:
    """Whether a case gives a call an array of the other byte order."""
    form = case.params.get(FORM) or {}
    return form.get("out") == OTHER or any(str(level).startswith(ORDER) for level in form.values())


def other_dtype(array: np.ndarray) -> str:
    """Return the dtype of an array in the other byte order, that of the bits of bfloat16; empty where none has one."""
    dtype = np.dtype(np.uint16) if name_of(array) == "bfloat16" else array.dtype
    return dtype.newbyteorder(ORDER).str if dtype.itemsize > 1 else ""


def refused(legal: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the calls beside a legal one that must be refused: what is wrong, and the parameters that are.

    Of an operation with layouts of its scales, those of each.
    """
    row = OPERATIONS[legal.operation]
    stored = row.stored_as if IN in row.layouts and IN not in legal.params else ()
    cases = [legal, *(legal.with_inputs({}, {IN: layout}) for layout in stored if layout != PLAIN)]
    for case in cases:
        for name, array in stored_inputs(case).items():
            dtype, extra = other_dtype(array), {IN: case.params[IN]} if case is not legal else {}
            if dtype and row.kind(name) not in ("index", "bits") and (case is legal or name == "scales"):
                where = f" of the layout {case.params[IN]}" if extra else ""
                yield f"{name} in {dtype}{where}", {**extra, FORM: {f"{name}.dtype": dtype}}
    if "zeros" in legal.inputs:  # of either dtype
        yield "zeros in >f4", {FORM: {"zeros.dtype": ">f4"}}
    if "out" not in row.params and any(output.kind in ("values", "index") for output in outputs_of(legal)):
        yield f"out with {OTHER}", {FORM: {"out": OTHER}}


def readable(legal: Case) -> Iterator[Case]:
    """Yield the calls beside a legal one that are refused or right: row maps, splits, random bits, codes of a cast."""
    for name, array in legal.inputs.items():
        levels: tuple[str, ...] = ()
        if name == "row_map":
            levels = INDICES
        elif is_random(name):
            levels = tuple(level for level in RANDOM if np.dtype(level).itemsize >= array.itemsize)
        elif name == "codes" and legal.operation.startswith("decode_"):
            levels = CODES
        for level in levels:
            yield legal.with_inputs({}, {FORM: {f"{name}.dtype": level}}, label=f"{name} in {level}")
    for level in SPLITS if legal.params.get("splits") else ():
        yield legal.with_inputs({}, {FORM: {"splits": level}}, label=f"splits in {level}")
