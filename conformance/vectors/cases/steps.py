"""Questions about MX quantisers where a rule steps by the facts of a format: `even`, and overflow to NaN (N2, N3)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from refnum.formats import Format

from ..draft import INF, NAN, SIGN, Draft, bits, float32, power, row


def even_drafts(fmt: Format) -> Iterator[Draft]:
    """Block maxima around the bound of `even` for every fraction width, the element's own among them."""
    rows = []
    for width in range(1, 8):
        bound = power(3) | (1 << 23) - (1 << 22 - width)
        rows += [row([bound + step, bits(1), SIGN | bits(3)]) for step in (-1, 0, 1)]
    yield Draft(
        {"x": float32(rows)},
        clause="N3",
        flags=("EVEN_INTEGER_WIDTH", "E8M0_MODE"),
        comment=f"block maxima of {fmt.name} at the bound of the rule `even` for 1 to 7 fraction bits",
    )


def overflow_drafts(fmt: Format) -> Iterator[Draft]:
    """Overflow to the format's own Inf or NaN: beside Inf, and where a scale rule leaves room above the maximum."""
    top = power(127, Fraction(3, 2))
    for name, pattern in (("Inf", INF), ("-Inf", SIGN | INF)):
        yield Draft(
            {"x": float32([row([bits(1), pattern, top, SIGN | power(126), power(120), SIGN])])},
            clause="N4",
            flags=("OVERFLOW_SATURATES",),
            comment=f"{name} in the block: byte 254, {name} overflows and finite elements are encoded at 2^127",
        )
    yield Draft(
        {"x": float32([row([INF, NAN, top])])}, clause="N4", flags=("AMAX_DROPS_NAN",), comment="Inf and NaN: byte 255"
    )
    step = Fraction(2) ** (fmt.emax - fmt.mantissa_bits)
    beyond = [fmt.max_value + step * Fraction(n, 4) for n in range(4)]
    lanes = [power(0, Fraction(2) ** fmt.emax * Fraction(127, 64))]
    lanes += [bits(v) + nudge | s for v in beyond for s in (0, SIGN) for nudge in (0, 1)]
    yield Draft(
        {"x": float32([row(lanes)])},
        clause="N2",
        flags=("OVERFLOW_SATURATES",),
        comment="a scale rule that rounds down: magnitudes between the largest value and the next power of two",
    )
