"""Contracts of inputs: what a subject says of the data that it is made for, decided on bit patterns.

A contract is a set of the names in `CONTRACTS`. A case is inside when every element of every input that the operation
reads as a number is; one element outside puts the whole case outside. Elements are floating-point numbers, codes, both
codes of a packed byte, and scale bytes. Random bits, row maps, splits and payload bytes are no numbers, and an
operation that only moves bytes reads none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

import refnum
from refnum.errors import ArgumentError, shown

from .case import Case
from .operation import OPERATIONS

CONTRACTS: dict[str, str] = {
    "finite": "NaN or Inf",
    "nonzero": "a zero",
    "normal": "a subnormal number, one whose block scale may be subnormal, or the scale byte 0",
}
"""Name of a contract -> what lies outside of it. A number of an `x` that is quantised to blocks is normal from 2**-126
times the largest power of two of the element format on: then no scale rule gives a scale below 2**-126."""

Contract = tuple[str, ...]
_FLAG = {name: np.uint8(1 << place) for place, name in enumerate(CONTRACTS)}
_FIELDS: dict[str, tuple[int, int, int]] = {
    "float32": (32, 0x7F800000, 0x3F800000),
    "bfloat16": (16, 0x7F80, 0x3F80),
    "uint16": (16, 0x7F80, 0x3F80),
    "float16": (16, 0x7C00, 0x3C00),
}
"""Dtype of a floating-point input, uint16 for bfloat16 bits -> width, mask of the exponent field, bits of 1."""


def checked_contract(given: Any, who: str) -> Contract:
    """Return a contract from a name, several names or None; ArgumentError for a name that is none."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else given
    known = isinstance(names, tuple) and all(isinstance(name, str) and name in CONTRACTS for name in names)
    if names is not None and not known:
        raise ArgumentError(f"{who} has inputs={shown(given)}; choose from {', '.join(CONTRACTS)}.")
    return tuple(name for name in CONTRACTS if name in (names or ()))


def contract_words(contract: Iterable[str]) -> str:
    """Return a contract as reports write it, `inputs=finite+nonzero`, or an empty string for none."""
    names = "+".join(contract)
    return f"inputs={names}" if names else ""


def outside(case: Case, contract: Contract) -> str:
    """Return which input puts a case outside of a contract, and by what, or an empty string for one that is inside."""
    for name, array in case.inputs.items():
        flags = _flags(case, name, array) if contract else None
        if flags is None:
            continue
        for one in contract:
            if bool((flags & _FLAG[one]).any()):
                return f"{name} holds {CONTRACTS[one]}"
    return ""


def rows_inside(case: Case, contract: Contract) -> np.ndarray:
    """Return for each item of the inputs' first axis, which all of them share, whether a contract holds it: bool."""
    inside = np.ones(len(next(iter(case.inputs.values()))), bool)
    wrong = np.uint8(sum(int(_FLAG[name]) for name in contract))
    for name, array in case.inputs.items():
        flags = _flags(case, name, array)
        if flags is not None:
            inside &= ~(flags & wrong != 0).reshape(len(array), -1).any(axis=1)
    return inside


def brought_inside(case: Case, contract: Contract) -> Case:
    """Return a case with those elements replaced that lie outside of a contract; the others keep their bits.

    An Inf or NaN loses the top bit of its exponent, a zero becomes 1, a number too small gets the least exponent. A
    code becomes its format's largest, 1, or one with the least exponent; the scale bytes 255 and 0 become 127.
    """
    wrong = np.uint8(sum(int(_FLAG[name]) for name in contract))
    inputs = {}
    for name, array in case.inputs.items():
        flags = _flags(case, name, array)
        if flags is not None and bool((flags & wrong).any()):
            inputs[name] = _replaced(case, name, array, flags & wrong)
    label = f"{case.label}, elements outside of {contract_words(contract)} replaced"
    return case.with_inputs(inputs, label=label) if inputs else case


# ------------------------------------------------------------------------------------------- elements of an input


def _format(case: Case, name: str) -> str:
    """Return the element format of an input of codes, packed codes or scale bytes."""
    operation = OPERATIONS[case.operation]
    kind, params = operation.kind(name), {**operation.defaults(), **case.params}
    if kind == "scales":
        return "E8M0"
    if kind == "packed":
        return "E2M1"
    return str(params["b_format"]) if name == "b" else operation.reads.format(params).name


def _flags(case: Case, name: str, array: np.ndarray) -> np.ndarray | None:
    """Return what each element is, as bits of `_FLAG`; None for an input that holds no numbers."""
    kind = OPERATIONS[case.operation].kind(name)
    if OPERATIONS[case.operation].moves_only or kind not in ("values", "codes", "packed", "scales"):
        return None
    if array.dtype.name in _FIELDS:
        return _float_flags(array, _least_field(case, name, array))
    return np.take(_code_table(_format(case, name), kind == "packed")[0], array)


def _replaced(case: Case, name: str, array: np.ndarray, flags: np.ndarray) -> np.ndarray:
    if array.dtype.name in _FIELDS:
        return _float_inside(array, flags, _least_field(case, name, array))
    fmt = _format(case, name)
    if OPERATIONS[case.operation].kind(name) == "packed":
        return np.take(_packed_inside(fmt, int(np.bitwise_or.reduce(flags, axis=None))), array)
    return np.where(flags != 0, np.take(_code_table(fmt, False)[1], array), array)


def _least_field(case: Case, name: str, array: np.ndarray) -> int:
    """Return the least exponent field of a normal number: of float16 and of what no block scale is made from, 1."""
    operation = OPERATIONS[case.operation]
    if name != "x" or operation.scalar or operation.rounds_to.width == 1 or array.dtype == np.float16:
        return 1
    return max(1, 1 + operation.rounds_to.format({**operation.defaults(), **case.params}).emax)


def _float_flags(array: np.ndarray, least: int) -> np.ndarray:
    width, exponent, _ = _FIELDS[array.dtype.name]
    bits = array.view(f"u{width // 8}")
    number = bits.dtype.type
    magnitude, field = bits & number((1 << width - 1) - 1), bits & number(exponent)
    flags = np.where(field == number(exponent), _FLAG["finite"], np.uint8(0))
    flags |= np.where(magnitude == number(0), _FLAG["nonzero"], np.uint8(0))
    small = field < number(least * (exponent & -exponent))
    return flags | np.where(small & (magnitude != number(0)), _FLAG["normal"], np.uint8(0))


def _float_inside(array: np.ndarray, flags: np.ndarray, least: int) -> np.ndarray:
    width, exponent, one = _FIELDS[array.dtype.name]
    bits = array.view(f"u{width // 8}")
    number = bits.dtype.type
    lowest, top = least * (exponent & -exponent), exponent - (exponent >> 1 & exponent)
    bits = np.where(flags & _FLAG["finite"], bits & ~number(top), bits)
    bits = np.where(flags & _FLAG["nonzero"], bits | number(one), bits)
    return np.where(flags & _FLAG["normal"], bits & ~number(exponent) | number(lowest), bits).view(array.dtype)


@functools.cache
def _code_table(name: str, packed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (flags, what it becomes) of every byte: one code of a format, or two codes of four bits."""
    fmt = refnum.get_format(name)
    pairs = [_code(fmt, code % (1 << fmt.bits)) for code in range(256)]
    flags, inside = (np.array(column, np.uint8) for column in zip(*pairs, strict=True))
    if not packed:
        return flags, inside
    low, high = np.arange(256) & 15, np.arange(256) >> 4
    return flags[low] | flags[high], inside[low] | inside[high] << np.uint8(4)


@functools.cache
def _packed_inside(name: str, wrong: int) -> np.ndarray:
    """Return what each byte of two codes becomes: only the codes that are outside by `wrong` change."""
    flags, inside = _code_table(name, False)
    code = np.where(flags & np.uint8(wrong), inside, np.arange(256, dtype=np.uint8))
    low, high = np.arange(256) & 15, np.arange(256) >> 4
    return code[low] | code[high] << np.uint8(4)


def _code(fmt: refnum.Format, code: int) -> tuple[int, int]:
    """Return (flags, what it becomes) of one code."""
    if fmt.name == "E8M0":
        flag = {255: int(_FLAG["finite"]), 0: int(_FLAG["normal"])}.get(code, 0)
        return flag, 127 if flag else code
    if fmt.kind == "integer":
        return (0, code) if code else (int(_FLAG["nonzero"]), 1)
    sign, magnitude, least = code & fmt.sign_mask, code & ~fmt.sign_mask, 1 << fmt.mantissa_bits
    if magnitude > fmt.max_code:
        return int(_FLAG["finite"]), sign | fmt.max_code
    if magnitude == 0:
        return int(_FLAG["nonzero"]), sign | fmt.bias << fmt.mantissa_bits
    return (int(_FLAG["normal"]), sign | magnitude | least) if magnitude < least else (0, code)
