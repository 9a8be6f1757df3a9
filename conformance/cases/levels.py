"""Outcomes, levels of agreement (N16) and input classes (N17)."""

from __future__ import annotations

import functools
from enum import StrEnum
from fractions import Fraction

import numpy as np

from refnum.arrays import TILE, float32_bits, group_max
from refnum.codec import value
from refnum.errors import ArgumentError

from .case import Case
from .geometry import block_shape
from .operation import OPERATIONS


class Outcome(StrEnum):
    """What became of one subject on one variant; the list is closed."""

    PASS = "pass"
    MISMATCH = "mismatch"
    MALFORMED = "malformed"
    NOT_RUN = "not-run"
    NOT_VERIFIED = "not-verified"
    UNSUPPORTED = "unsupported"
    COMPILE_ERROR = "compile-error"
    FAULT = "fault"
    TIMEOUT = "timeout"
    FLAKY = "flaky"


BAD = frozenset(
    {Outcome.MISMATCH, Outcome.MALFORMED, Outcome.FAULT, Outcome.TIMEOUT, Outcome.FLAKY, Outcome.COMPILE_ERROR}
)
"""Outcomes that make the exit status 1."""

NOT_JUDGED = "not judged"
"""Of what a subject says of itself: functions of its file that may be meant as operations, and are not named so."""

LEVELS: dict[str, str] = {
    "L0": "all bytes identical",
    "L1": "element codes under a NaN scale ignored",
    "L2": "and the sign of zero ignored",
    "L3": "and NaN payload and sign ignored",
    "L4": "decoded values identical",
    "P1": "of a product, results within the bounds over all orders (N19.7)",
}
"""N16: level -> what is compared; each level ignores what the levels before it ignore."""

NO_LEVEL = len(LEVELS)
"""The level of a result that reaches none."""
P1 = NO_LEVEL - 1
"""The level that only operations with bounds have."""
_NAMES = tuple(LEVELS)

CLASSES = "FTHZIN"
"""N17: finite, tiny amax (< 2^-124), huge amax (>= 2^126), zero block, Inf in the block, NaN in the block."""

_TINY, _HUGE = (-124 + 127) << 23, (126 + 127) << 23
_INF = 0x7F800000


def checked_level(level: object, who: str) -> int:
    """Return the number of a level that somebody claims by name or number; ArgumentError for any other than N16's."""
    if isinstance(level, str) and level in LEVELS:
        return _NAMES.index(level)
    if not isinstance(level, int | np.integer) or isinstance(level, bool) or not 0 <= level < NO_LEVEL:
        raise ArgumentError(
            f"{who} claims level {level!r}; a level of agreement is {', '.join(_NAMES)}, or 0 to {P1} (N16)."
        )
    return int(level)


def level_name(level: int) -> str:
    """Return `L0` to `L4` or `P1`, or `none` for results that reach no level."""
    return _NAMES[level] if level < NO_LEVEL else "none"


def failed_level(level: int, operation: str) -> int:
    """Return the last level that a result of an operation fails which reaches `level`; 0 if it fails none."""
    return max(min(level, NO_LEVEL if OPERATIONS[operation].bounded else P1) - 1, 0)


def failed_name(level: int, operation: str) -> str:
    """Return the name of the last level that a result of an operation fails which reaches `level`."""
    return level_name(failed_level(level, operation))


def classify(amax: np.ndarray) -> np.ndarray:
    """Return the class index into CLASSES of each block from its amax as float32 magnitude bits (u32)."""
    index = np.zeros(amax.shape, np.uint8)
    for letter, chosen in (
        ("T", amax < _TINY),
        ("H", amax >= _HUGE),
        ("Z", amax == 0),
        ("I", amax == _INF),
        ("N", amax > _INF),
    ):
        index[chosen] = CLASSES.index(letter)
    return index


def input_classes(case: Case) -> np.ndarray | None:
    """Return the class index of every block of a quantiser's input, in the shape of its row-wise blocks.

    None for an operation that is no quantiser of its own input: it has no input class.
    """
    operation = OPERATIONS[case.operation]
    geometry = next((output.block for output in operation.outputs if output.block), "")
    if not operation.quantises or not {"x", "codes"} & set(operation.inputs):
        return None
    rows, last = block_shape(geometry, case)
    if "x" in case.inputs:
        x = np.ascontiguousarray(case.inputs["x"])
        own = x.view(f"u{x.itemsize}")  # magnitudes are in order in every format, and NaN is the largest
        amax = _reduce(own & own.dtype.type((1 << (8 * x.itemsize - 1)) - 1), rows, last)
        return classify(float32_bits(amax.view(x.dtype)))
    codes, scales = case.inputs["codes"], case.inputs["scales"]
    code = _reduce(codes & np.uint8(0x7F), rows, last)
    wide = np.repeat(scales, TILE // last, axis=1)[:, : code.shape[1]]
    return _classify_scaled(code, wide)


def _reduce(magnitude: np.ndarray, rows: int, last: int) -> np.ndarray:
    """Return the largest magnitude of each block of a [M, K] array; the borders are filled with zeros."""
    height, width = -(-magnitude.shape[0] // rows), -(-magnitude.shape[1] // last)
    if magnitude.shape != (height * rows, width * last):
        padded = np.zeros((height * rows, width * last), magnitude.dtype)
        padded[: magnitude.shape[0], : magnitude.shape[1]] = magnitude
        magnitude = padded
    of_rows = group_max(magnitude, last)
    return of_rows if rows == 1 else of_rows.reshape(height, rows, width).max(axis=1)


@functools.cache
def _e4m3_exponents() -> np.ndarray:
    """floor(log2) of every E4M3 magnitude code, from its exact value."""
    exact = [Fraction(value("E4M3", code)) for code in range(127)]  # a multiple of 2^-9 each; the last code is NaN
    return np.array([*(int(x * 2**9).bit_length() - 10 for x in exact), 0], np.int32)


def _classify_scaled(code: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Class of a block whose largest E4M3 magnitude code and scale byte are given; both classes are powers of two."""
    exponent = _e4m3_exponents()[code] + scales.astype(np.int32) - 127
    index = np.zeros(code.shape, np.uint8)
    for letter, chosen in (
        ("T", exponent < -124),
        ("H", exponent >= 126),
        ("Z", code == 0),
        ("N", (code == 127) | (scales == 255)),
    ):
        index[chosen] = CLASSES.index(letter)
    return index
