"""Make or check the frozen table of silu and sigmoid (clause N11): `python -m refnum.make_silu --check`.

For each of the 65,536 bfloat16 inputs both functions are rounded once to float32, to nearest even, by integer
interval arithmetic. With t = |x|, exp(-t) = exp(-r) * 2**-k, where t = k ln 2 + r, is enclosed between two
integers over 2**(P+k); so are then sigmoid and silu, as ratios of integers. When both ends of an enclosure
round to the same float32, rounding being monotone, that is the result; otherwise P is doubled. It ends, since
exp of a non-zero rational is transcendental and so never a midpoint. No floating point is used.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import struct
import sys
from pathlib import Path

PATH = Path(__file__).with_name("silu_bf16.bin")
INPUTS = 1 << 16
FIRST_PRECISION = 64
NAN, INF, ONE, SIGN = 0x7FC00000, 0x7F800000, 0x3F800000, 0x80000000
_TINY_FROM, _TINY = 400, 577
"""For t >= 400, exp(-t) < 2**-577."""


def silu_and_sigmoid(pattern: int, precision: int = FIRST_PRECISION) -> tuple[int, int]:
    """Return the float32 bits of silu(x) and sigmoid(x) for the bfloat16 pattern of x.

    silu(+-0) = +-0, silu(+Inf) = +Inf, silu(-Inf) = -0 (its limit), sigmoid(+Inf) = 1, sigmoid(-Inf) = +0, and
    NaN gives 0x7FC00000. `precision` is the P of the first attempt.
    """
    magnitude, negative = pattern & 0x7FFF, pattern >> 15
    if magnitude > 0x7F80:
        return NAN, NAN
    if magnitude == 0x7F80:
        return (SIGN, 0) if negative else (INF, ONE)
    if magnitude == 0:
        return SIGN * negative, 0x3F000000
    field = magnitude >> 7
    significand = (magnitude & 0x7F) | (0x80 if field else 0)
    exponent = max(field, 1) - 134  # t = significand * 2**exponent
    while True:
        bits = _attempt(significand, exponent, negative, precision)
        if bits is not None:
            return bits[0] | SIGN * negative, bits[1]
        precision *= 2


def _attempt(significand: int, exponent: int, negative: int, precision: int) -> tuple[int, int] | None:
    """Magnitude bits of silu and sigmoid, or None when the enclosure at this precision does not decide."""
    low, high, scale = exp_minus(significand, exponent, precision)
    one = 1 << scale
    if negative:  # sigmoid(-t) = E / (1 + E) grows with E
        ends = ((low, one + low), (high, one + high))
    else:  # sigmoid(t) = 1 / (1 + E) falls with E
        ends = ((one, one + high), (one, one + low))
    sigmoid = {round_ratio(n, d, 0) for n, d in ends}
    silu = {round_ratio(n * significand, d, exponent) for n, d in ends}
    return (silu.pop(), sigmoid.pop()) if len(silu) == len(sigmoid) == 1 else None


def exp_minus(significand: int, exponent: int, precision: int) -> tuple[int, int, int]:
    """Return integers (low, high, scale) with low <= exp(-t) * 2**scale <= high; t = significand * 2**exponent > 0.

    Error bound, in units of 2**-P: r is known to k + 1 units, and exp(-r) has a slope of at most 1. With
    0 <= r < 1 each Taylor term, the one before it times r over n and cut off, is at most 2 units below its true
    value (e_n <= e_(n-1) / n + 1); the terms alternate and fall, so that the rest of the series is at most the
    first one left out, less than 1 + 2 units. N terms are therefore within 2 N + 3 of exp(-r).
    """
    if exponent >= 0 and significand << exponent >= _TINY_FROM:
        return 0, 1, _TINY
    at = precision + exponent
    t_low = significand << at if at >= 0 else significand >> -at
    t_high = t_low if at >= 0 else t_low + 1
    ln2 = ln_two(precision)
    k = t_low // (ln2 + 1)
    r, width = t_low - k * (ln2 + 1), t_high - t_low + k
    total, term, n = 0, 1 << precision, 0
    while term:
        total += -term if n & 1 else term
        n += 1
        term = term * r // (n << precision)
    bound = 2 * n + 3
    return max(total - bound - width, 0), total + bound, precision + k


@functools.cache
def ln_two(precision: int) -> int:
    """Return L with L <= ln 2 * 2**precision < L + 1, from the sum of 1 / (n 2**n)."""
    guard = 32
    terms = precision + guard
    total = sum((1 << (terms - n)) // n for n in range(1, terms))
    # each term is cut off by less than 1, and the terms left out add up to less than 1
    assert total % (1 << guard) + terms < 1 << guard, "ln 2 is too close to an integer: raise `guard`"
    return total >> guard


def round_ratio(numerator: int, denominator: int, exponent: int) -> int:
    """float32 bits of numerator / denominator * 2**exponent >= 0, to nearest even; 2**128 and more is Inf."""
    if numerator == 0:
        return 0
    log2 = numerator.bit_length() - denominator.bit_length()
    shifted = (numerator, denominator << log2) if log2 >= 0 else (numerator << -log2, denominator)
    place = max(log2 - (shifted[0] < shifted[1]) + exponent, -126)  # exponent of the result's leading bit
    up = 23 - place + exponent
    n, d = (numerator << up, denominator) if up >= 0 else (numerator, denominator << -up)
    units, rest = divmod(n, d)
    units += 2 * rest > d or (2 * rest == d and units & 1)
    return min(((place + 126) << 23) + units, INF)


def make(precision: int = FIRST_PRECISION) -> bytes:
    """Return the file: 65,536 little-endian u32 of silu, then as many of sigmoid, in the order of the inputs."""
    pairs = [silu_and_sigmoid(pattern, precision) for pattern in range(INPUTS)]
    return struct.pack(f"<{2 * INPUTS}I", *(silu for silu, _ in pairs), *(sigmoid for _, sigmoid in pairs))


def main(arguments: list[str] | None = None) -> int:
    """Write the table, or check the one there; the exit status is 1 when it is missing or differs."""
    parser = argparse.ArgumentParser(prog="python -m refnum.make_silu", description=__doc__.split("\n")[0])
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--check", action="store_true", help="compare the frozen file with a fresh computation")
    choice.add_argument("--write", action="store_true", help="write the frozen file")
    options = parser.parse_args(arguments)
    table = make()
    print(f"{PATH.name}: {INPUTS} inputs, sha256 {hashlib.sha256(table).hexdigest()}")
    if options.write:
        temporary = PATH.with_suffix(".tmp")
        temporary.write_bytes(table)
        os.replace(temporary, PATH)
        return 0
    if not PATH.exists() or PATH.read_bytes() != table:
        print(f"{PATH} is missing or differs: run with --write, and look at why", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
