"""Tables of formats, values and rounding decisions, computed from `refnum` (clauses N1 and N2)."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

import refnum


class Table(NamedTuple):
    """A header and rows of text cells; a cell in backticks is shown as code."""

    header: list[str]
    rows: list[list[str]]


def show(exact: Fraction | str) -> str:
    """Write an exact value: a short decimal, or an odd integer times a power of two."""
    if isinstance(exact, str):
        return {"nan": "NaN", "+inf": "Inf", "-inf": "-Inf"}[exact]
    if exact.denominator <= 64 and abs(exact) < 1 << 20:
        return f"{float(exact):.10g}"
    numerator, shift = exact.numerator, 1 - exact.denominator.bit_length()
    while numerator % 2 == 0 and numerator:
        numerator, shift = numerator // 2, shift + 1
    return f"2^{shift}" if numerator == 1 else f"{numerator} x 2^{shift}"


def code(value: int, digits: int = 2) -> str:
    """Write a code as hexadecimal, shown as code."""
    return f"`0x{value:0{digits}X}`"


def digits(fmt: refnum.Format) -> int:
    """Hexadecimal digits of a code of the format."""
    return -(-fmt.bits // 4)


def formats() -> Table:
    """Every format of N1 with its facts."""
    rows = []
    for fmt in refnum.FORMATS.values():
        is_float = fmt.kind == "float"
        largest = show(fmt.max_value) if fmt.bits <= 16 else "(2^24 - 1) x 2^104"
        integer = fmt.kind == "integer"
        fields = "integer" if integer else f"{int(fmt.signed)}.{fmt.exponent_bits}.{fmt.mantissa_bits}"
        rows.append([
            f"`{fmt.name}`", str(fmt.bits), fields, str(fmt.fraction_bits if integer else fmt.mantissa_bits),
            "-" if integer else str(fmt.bias), largest, code(fmt.max_code, digits(fmt)),
            show(refnum.value(fmt, 1 << fmt.mantissa_bits)) if is_float else "-",
            show(refnum.value(fmt, 1)) if is_float and fmt.mantissa_bits else "-",
            "-" if fmt.nan_code is None else code(fmt.nan_code, digits(fmt)),
            "-" if fmt.inf_code is None else code(fmt.inf_code, digits(fmt)),
        ])  # fmt: skip
    header = ["format", "bits", "S.E.M", "p", "bias", "largest", "its code", "least normal", "least subnormal",
              "NaN", "Inf"]  # fmt: skip
    return Table(header, rows)


def format_sources() -> Table:
    """Where the facts of each format come from."""
    return Table(["format", "source"], [[f"`{fmt.name}`", fmt.source] for fmt in refnum.FORMATS.values()])


def values(name: str) -> Table:
    """All values of a small float format: a row per exponent field, a column per fraction."""
    fmt = refnum.get_format(name)
    columns = 1 << fmt.mantissa_bits
    rows = []
    for start in range(0, 1 << (fmt.exponent_bits + fmt.mantissa_bits), columns):
        cells = [show(refnum.value(fmt, magnitude)) for magnitude in range(start, start + columns)]
        rows.append([code(start, digits(fmt)), f"`{start >> fmt.mantissa_bits:0{fmt.exponent_bits}b}`", *cells])
    fractions = [f"`{i:0{fmt.mantissa_bits}b}`" if fmt.mantissa_bits else "value" for i in range(columns)]
    return Table(["from code", "exponent", *fractions], rows)


def e2m1_codes() -> Table:
    """The sixteen codes of E2M1, bit by bit."""
    rows = []
    for value in range(16):
        exact = refnum.value("E2M1", value)
        text = "-0" if value == 8 else show(exact)
        rows.append([code(value, 1), f"`{value >> 3:b} {value >> 1 & 3:02b} {value & 1:b}`", text])
    return Table(["code", "S EE M", "value"], rows)


def e8m0_codes() -> Table:
    """The E8M0 bytes that are easy to get wrong, and their float32 bits."""
    rows = []
    bits = refnum.decode("E8M0", np.arange(256, dtype=np.uint8)).view(np.uint32)
    notes = {0: "a float32 subnormal, not zero", 1: "the least float32 normal", 127: "one",
             254: "the largest scale", 255: "NaN"}  # fmt: skip
    for byte, note in notes.items():
        rows.append([f"`{byte}`", show(refnum.value("E8M0", byte)), code(int(bits[byte]), 8), note])
    return Table(["byte", "value", "as float32", "note"], rows)


TIES = ("even", "away", "up", "down", "zero")


def midpoints(name: str) -> Table:
    """Each midpoint between neighbours of a format, and the code that each tie rule gives it."""
    fmt = refnum.get_format(name)
    rows = []
    for low in range(fmt.max_code):
        below, above = refnum.value(fmt, low), refnum.value(fmt, low + 1)
        assert isinstance(below, Fraction) and isinstance(above, Fraction)
        middle = (below + above) / 2
        x = np.array([middle, -middle], np.float32)
        row = [show(middle), f"{show(below)} | {show(above)}"]
        for ties in TIES:
            both = refnum.encode(fmt, x, profile=refnum.HOPPER.replace(name=ties, ties=ties))
            row.append(" / ".join(code(int(c), digits(fmt)) for c in both))
        rows.append(row)
    return Table(["midpoint", "between", *(f"`{t}`" for t in TIES)], rows)


def stochastic() -> Table:
    """Eight random bits, E2M1: what each value and random byte give (N2.6)."""
    profile = refnum.get_profile("STOCHASTIC")
    published = [(0.25, 127), (0.25, 128), (0.001, 255), (2.0**-9, 255), (5.0, 127), (5.0, 128), (-2.5, 128),
                 (5.999, 0), (5.999, 1), (-0.0, 255), (7.0, 0), (0.4999, 1)]  # fmt: skip
    rows = []
    for x, r in published:
        got = refnum.encode("E2M1", np.array([x], np.float32), profile=profile, rbits=np.array([r], np.uint8))
        shown = "-0" if got[0] == 8 else show(refnum.value("E2M1", int(got[0])))
        rows.append([f"{x:.9g}", str(r), code(int(got[0]), 1), shown])
    return Table(["x", "random byte", "code", "value"], rows)


def e4m3_overflow() -> Table:
    """What E4M3 gives at and beyond its largest value, saturating and not."""
    rows = []
    inputs = [("448", 0x43E00000), ("464, the tie to the absent 480", 0x43E80000), ("464 + 1 ulp", 0x43E80001),
              ("Inf", 0x7F800000), ("-Inf", 0xFF800000), ("NaN", 0x7FC00000), ("-NaN", 0xFFC00000)]  # fmt: skip
    for text, bits in inputs:
        x = np.array([bits], np.uint32).view(np.float32)
        row = [text, code(bits, 8)]
        for overflow in ("saturate", "nan"):
            profile = refnum.HOPPER.replace(name=overflow, overflow=overflow)
            row.append(code(int(refnum.encode("E4M3", x, profile=profile)[0])))
        rows.append(row)
    return Table(["input", "float32 bits", "`saturate`", "`nan`"], rows)
