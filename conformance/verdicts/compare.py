"""Comparison by integer equality, and the levels of agreement as normalisations of both sides (N16).

There is no tolerance here. A level maps the golden and the observed bytes by the same function and then asks for
equality, so what a level forgives is visible in `normalise` and nowhere else.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from refnum.arrays import unpack_nibbles
from refnum.codec import value
from refnum.formats import get_format

from ..cases.case import Case
from ..cases.entry import Output
from ..cases.findings import NO_PROBLEM, SHAPE, Problem
from ..cases.geometry import blocks_hit, spread
from ..cases.layouts import OUT, PLAIN, bytes_of, stored_scales
from ..cases.levels import CLASSES, NO_LEVEL, P1, input_classes
from ..cases.operation import OPERATIONS, as_bits, outputs_of
from ..cases.same_bytes import name_of, same
from .bounds import beyond_bounds, within_bounds
from .kinds import Kind, kinds_of

Bits = dict[str, np.ndarray]

# Storage dtypes by which a result of each kind may come back; the bytes are what is compared.
_STORAGE = {
    "codes": ("uint8", "float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float8_e8m0fnu"),
    "packed": ("uint8",),
    "scales": ("uint8", "float8_e8m0fnu"),
    "bytes": ("uint8",),
    "index": ("int32", "int64", "uint32", "uint64"),
    "flags": ("bool", "uint8"),
}


@dataclass
class Comparison:
    """One judged call.

    problem: a result that cannot be compared byte for byte (count, shape, dtype, padding of a scale layout).
    level: the highest level that passes, NO_LEVEL when even the values differ. compared: elements compared.
    classes: class letter -> [blocks, blocks that differ in any byte, level reached] for quantisers.
    kinds: kind of difference -> items that bear it.
    observed: the observed outputs as unsigned integers.
    """

    problem: Problem = NO_PROBLEM
    level: int = 0
    compared: int = 0
    classes: dict[str, list[int]] = field(default_factory=dict)
    kinds: dict[Kind, int] = field(default_factory=dict)
    observed: Bits = field(default_factory=dict)


def observe(case: Case, golden: Mapping[str, np.ndarray], results: Sequence[np.ndarray]) -> tuple[Bits, Problem]:
    """Return the observed outputs as bits, and how count, shape, dtype or padding is wrong; then there are no bits.

    Scales in a layout come back as the bytes that it holds.
    """
    outputs = outputs_of(case)
    if len(results) != len(outputs):
        return {}, Problem(
            SHAPE,
            f"{len(results)} results came back; {case.operation} gives {len(outputs)}: "
            f"{', '.join(output.name for output in outputs)}",
        )
    observed: Bits = {}
    for output, array in zip(outputs, results, strict=True):
        want = golden[output.name]
        laid = output.name == "scales" and case.params.get(OUT, PLAIN) != PLAIN
        if laid:
            want = stored_scales(case, want)
        allowed = (name_of(want),) if laid else dtypes_allowed(output, want, case)
        if name_of(array) not in allowed:
            words = f"{output.name} has dtype {name_of(array)}; expected {' or '.join(allowed)}"
            return {}, Problem(SHAPE, words)
        if array.shape != want.shape:
            return {}, Problem(SHAPE, f"{output.name} has shape {list(array.shape)}; expected {list(want.shape)}")
        if laid:
            array, problem = bytes_of(case, golden[output.name], array)
            if problem:
                return {}, problem
        if output.kind == "index":
            array = array.astype(want.dtype.name.replace("u", ""))
        observed[output.name] = as_bits(array)
    return observed, NO_PROBLEM


def dtypes_allowed(output: Output, want: np.ndarray, case: Case) -> tuple[str, ...]:
    """Return the names of the dtypes in which an output may come back; want: its bits."""
    if output.kind == "values":
        return ("float32",) if want.itemsize == 4 else ("bfloat16", "uint16")
    if output.kind == "codes":
        own = {
            "E4M3": "float8_e4m3fn",
            "E5M2": "float8_e5m2",
            "E8M0": "float8_e8m0fnu",
            "E2M3": "float6_e2m3fn",
            "E3M2": "float6_e3m2fn",
            "E2M1": "float4_e2m1fn",
            "MXINT8": "int8",
        }
        return "uint8", own.get(output.format(case.params), "uint8")
    return _STORAGE[output.kind]


def compare(case: Case, golden: Mapping[str, np.ndarray], results: Sequence[np.ndarray]) -> Comparison:
    """Judge the results of one call against the golden bytes."""
    observed, problem = observe(case, golden, results)
    if problem:
        return Comparison(problem=problem, level=NO_LEVEL)
    verdict = Comparison(observed=observed, compared=sum(array.size for array in golden.values()))
    while verdict.level < NO_LEVEL and not equal_at(case, golden, observed, verdict.level):
        verdict.level += 1
    verdict.classes = _by_class(case, golden, observed, verdict.level)
    verdict.kinds = kinds_of(case, golden, observed) if verdict.level else {}
    return verdict


def equal_at(case: Case, golden: Mapping[str, np.ndarray], observed: Mapping[str, np.ndarray], level: int) -> bool:
    """Whether both sides are equal at a level."""
    if level == 0:
        return all(same(golden[name], observed[name]) for name in golden)
    left, right = normalise(case, golden, level), normalise(case, observed, level)
    if level == P1 and OPERATIONS[case.operation].bounded:
        return within_bounds(case, observed["values"], left["values"] != right["values"])
    return all(same(left[name], right[name]) for name in left)


def differences(
    case: Case, golden: Mapping[str, np.ndarray], observed: Mapping[str, np.ndarray], level: int = 0
) -> Bits:
    """Return for every output a boolean array, unpacked to elements, of where the sides differ at a level."""
    left, right = normalise(case, golden, level), normalise(case, observed, level)
    wrong = {name: np.asarray(left[name] != right[name]) for name in left}
    if level == P1 and OPERATIONS[case.operation].bounded:
        wrong["values"] = beyond_bounds(case, observed["values"], wrong["values"])
    return wrong


def normalise(case: Case, arrays: Mapping[str, np.ndarray], level: int) -> Bits:
    """Return the arrays, packed codes unpacked, with all that `level` ignores mapped to one representative."""
    outputs = outputs_of(case)
    result: Bits = {}
    for output in outputs:
        array = arrays[output.name]
        result[output.name] = unpack_nibbles(array) if output.kind == "packed" else array
    for coded, scale in coded_outputs(case):
        codes = result[coded.name]
        wide = spread(coded.block, case, result[scale.name], codes.shape) if scale is not None else None
        if level >= 1 and wide is not None:
            codes = np.where(wide == 255, codes.dtype.type(0), codes)
        if level >= 2:
            codes = _table(coded.format(case.params), level)[codes]
        result[coded.name] = codes
        if level >= 4:
            result = {
                **{name: array for name, array in result.items() if scale is None or name != scale.name},
                coded.name: _values(coded.format(case.params), codes, wide),
            }
    for output in outputs:
        if output.kind == "values" and level >= 2:
            result[output.name] = _normal_float(result[output.name], level)
    return {name: np.asarray(array) for name, array in result.items()}  # of no axes: indexing gives a scalar


def coded_outputs(case: Case) -> list[tuple[Output, Output | None]]:
    """Return every output of element codes with that of its scales: the next one of that kind, if any."""
    outputs = outputs_of(case)
    found = []
    for number, output in enumerate(outputs):
        if output.kind in ("codes", "packed"):
            found.append((output, next((other for other in outputs[number:] if other.kind == "scales"), None)))
    return found


@functools.cache
def _table(name: str, level: int) -> np.ndarray:
    """Return the map of codes that ignores the sign of zero (2) and also NaN payload and sign (3 and above)."""
    fmt = get_format(name)
    table = np.arange(256, dtype=np.uint8)
    for code in range(1 << fmt.bits):
        exact = value(fmt, code)
        if exact == 0:
            table[code] = 0
        if level >= 3 and exact == "nan":
            assert fmt.nan_code is not None
            table[code] = fmt.nan_code
    return table


@functools.cache
def _exact(name: str) -> np.ndarray:
    """Return the values of a format's codes as float64, in which every one of them is exact."""
    fmt = get_format(name)
    table = np.full(256, np.nan)
    for code in range(1 << fmt.bits):
        exact = value(fmt, code)
        table[code] = float(exact)  # `nan`, `+inf` and `-inf` are read as what they say
    return table


@functools.cache
def _powers() -> np.ndarray:
    """Return 2^(s-127) for every byte as float64 (normal there), NaN for 255."""
    return np.array([float.fromhex(f"0x1p{byte - 127}") for byte in range(255)] + [np.nan])


def _values(name: str, codes: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    """Return decoded values as float64 bits; one NaN, one zero. Products are exact and normal in float64."""
    values = _exact(name)[codes]
    if scales is not None:
        values = values * _powers()[scales]
    bits = np.where(np.isnan(values), np.float64(np.nan), values)
    return np.where(bits == 0, np.float64(0.0), bits).view(np.uint64)


def _normal_float(bits: np.ndarray, level: int) -> np.ndarray:
    """Return float32 or bfloat16 bits with -0 as +0 and, from level 3, every NaN as the quiet NaN."""
    word = bits.dtype.type
    sign, infinity, quiet = (0x80000000, 0x7F800000, 0x7FC00000) if bits.itemsize == 4 else (0x8000, 0x7F80, 0x7FC0)
    result = np.where(bits == word(sign), word(0), bits)
    if level >= 3:
        result = np.where((result & word(sign - 1)) > word(infinity), word(quiet), result)
    return result


def _by_class(
    case: Case, golden: Mapping[str, np.ndarray], observed: Mapping[str, np.ndarray], level: int
) -> dict[str, list[int]]:
    """Return class letter -> [blocks, blocks with a different byte, level the class reaches]."""
    index = input_classes(case)
    if index is None:
        return {}
    needed = np.zeros(index.shape, np.uint8)
    for at in range(level):
        needed[_wrong_blocks(case, golden, observed, at)] = at + 1
    table = {}
    for number, letter in enumerate(CLASSES):
        chosen = needed[index == number]
        if chosen.size:
            table[letter] = [int(chosen.size), int((chosen > 0).sum()), int(chosen.max())]
    return table


def _wrong_blocks(
    case: Case, golden: Mapping[str, np.ndarray], observed: Mapping[str, np.ndarray], level: int
) -> np.ndarray:
    outputs = outputs_of(case)
    coded = next(output for output in outputs if output.kind in ("codes", "packed"))
    wrong = differences(case, golden, observed, level)
    hit = blocks_hit(coded.block, case, wrong[coded.name])
    for output in outputs:
        if output.kind == "scales" and output.name in wrong:
            hit = hit | wrong[output.name]
    return hit
