"""One block or tile: the scale by its definition, then every element (clauses N3 to N7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..errors import ProfileError
from .tables import NAN, NEG_INF, POS_INF, TABLES, Exact
from .values import decode, encode, float_value, floor_log2, is_finite, number

_TWO = Fraction(2)


@dataclass(frozen=True)
class Policy:
    """The choices of clauses N2 to N4 with their defaults; the fields are those of a Profile."""

    scale_rule: str = "rceil"
    rounding: str = "nearest"
    ties: str = "even"
    random_bits: int = 8
    overflow: str = "saturate"
    negative_zero: str = "keep"
    zero_scale: int = 0
    nonfinite: str = "nosat"
    amax_floor: int | None = None


DEFAULT = Policy()


def scale_byte(rule: str, amax: Fraction, element: str = "E2M1") -> int:
    """Return the E8M0 byte of a block with amax > 0 (N3), by searching the definition; clamped to 0..254."""
    if element not in TABLES:
        raise ProfileError(f"format {element!r} has no value table; the oracle knows {', '.join(TABLES)}")
    table = TABLES[element]
    exponent = floor_log2(amax)
    if rule == "rceil":
        k = min(k for k in range(exponent - table.emax - 2, exponent + 2) if amax <= table.maximum * _TWO**k)
    elif rule == "floor":
        k = exponent - table.emax
    elif rule == "ceil":
        k = exponent + (amax != _TWO**exponent) - table.emax
    elif rule == "even":
        quantum = _TWO ** (exponent - table.mantissa_bits)
        rounded = (amax / quantum + Fraction(1, 2)).__floor__() * quantum
        k = floor_log2(rounded) - table.emax
    else:
        raise ProfileError(f"scale rule {rule!r} is not one of rceil, floor, ceil, even")
    return min(max(k + 127, 0), 254)


def quantize_block(
    values: Sequence[Exact], element: str = "E2M1", policy: Any = DEFAULT, rbits: Sequence[int] | None = None
) -> tuple[list[int], int]:
    """Return (codes, byte) of one MX block of exact values (N3 to N5)."""
    finite = [abs(number(v)) for v in values if is_finite(v)]
    infinite = any(v in (POS_INF, NEG_INF) for v in values)
    if NAN in values or (infinite and policy.nonfinite == "nosat"):
        return [0] * len(values), 255
    amax = max(finite, default=Fraction(0))
    if infinite:
        byte = 254
    elif amax == 0:
        byte = policy.zero_scale
    else:
        if policy.amax_floor is not None:
            amax = max(amax, number(float_value(policy.amax_floor)))
        byte = scale_byte(policy.scale_rule, amax, element)
    draws = [0] * len(values) if rbits is None else rbits
    return [encode_element(v, element, byte, policy, r) for v, r in zip(values, draws, strict=True)], byte


def encode_element(value: Exact, element: str, byte: int, policy: Any, rbits: int = 0) -> int:
    """Return the code of value / 2**(byte - 127) under `policy`, the quotient exact."""
    quotient = number(value) / _TWO ** (byte - 127) if isinstance(value, Fraction) else value
    return encode(
        element, quotient, ties=policy.ties, overflow=policy.overflow, negative_zero=policy.negative_zero,
        rounding=policy.rounding, rbits=rbits, random_bits=policy.random_bits,
    )  # fmt: skip


def quantize_tile(values: Sequence[Exact], policy: Any = DEFAULT) -> tuple[list[int], int]:
    """Return (E4M3 codes, byte) of one FP8 tile given as a flat list of exact values (N4, N6)."""
    amax = max((abs(number(v)) for v in values if is_finite(v)), default=Fraction(0))
    if amax == 0 or not all(is_finite(v) for v in values):
        byte = 127
    else:
        if policy.amax_floor is not None:
            amax = max(amax, number(float_value(policy.amax_floor)))
        byte = scale_byte(policy.scale_rule, amax, "E4M3")
    return [encode_element(v, "E4M3", byte, policy) for v in values], byte


def covered(name: str, code: int, byte: int) -> Exact:
    """Return the exact value of an element code under an E8M0 byte; byte 255 makes it NaN (N0)."""
    value = decode(name, code, signed_zero=True)
    if byte == 255 or value == NAN:
        return NAN
    return value * _TWO ** (byte - 127) if isinstance(value, Fraction) else value
