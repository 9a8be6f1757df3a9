"""The catalogue of real cases that is not on show: why a row has no exhibit in our kernels.

Rows are those of the catalogue of 113 cases of implementations that the project surveyed (families A scale, B tiny
values, C specials, D element rounding, L layout). Every other row is named by an exhibit (`Exhibit.rows`).
"""

from __future__ import annotations

_FREE = "our kernels never hold a scale that is no power of two"
_OTHER = "a format that our kernels do not have"
_PLAIN = "our kernels have no such step: scales are bit fields, without log2, exp2, pow or division"

ABSENT: dict[str, str] = {
    "A9": "exponents are biased fields and never negative: truncation is the floor",
    "A10": _PLAIN, "A11": _PLAIN, "A12": _PLAIN,
    "A15": "no frexp: the exponent is the field itself",
    "A24": _PLAIN,
    "A27": _OTHER, "A28": _OTHER,
    "B8": _FREE, "B11": _FREE,
    "C5": "the standard defines round to nearest even alone, and so do our kernels",
    "D12": _FREE, "D13": _FREE, "D14": _FREE,
    "D15": "no kernel takes float64",
    "D18": _OTHER,
    "D26": "a bug of a compiler, not of a source",
    "L4": _FREE,
    "L12": "dtypes are checked by the launchers, in Python, before a kernel runs",
    "L16": "needs an array above 2^31 elements: tests/gpu/test_payload_kernels.py has one, on a device",
    "L17": "an architecture guard of a launcher, in Python",
}  # fmt: skip
"""Row -> why it is no exhibit."""

COUNTS = {"A": 30, "B": 20, "C": 18, "D": 27, "L": 18}
"""Rows of each family."""


def every_row() -> tuple[str, ...]:
    """Return the names of all rows."""
    return tuple(f"{family}{i}" for family, count in COUNTS.items() for i in range(1, count + 1))
