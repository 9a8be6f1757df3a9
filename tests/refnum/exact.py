"""How a domain of up to 2**24 cases is proved equal to the oracle, which takes some 100 us a value.

The oracle maps an exact quotient to a code. Every case of a domain is reduced, by integers here in the test and
not by the model, to its quotient `significand * 2**exponent`; the oracle is asked once for each distinct quotient,
and its answer is compared with the model's for every case.
"""

import functools
from fractions import Fraction

import numpy as np

import refnum as R
from refnum import oracle

BF16_FRACTION, F16_FRACTION = 7, 10


def quotient_keys(bits, fraction_bits, exponent_bits):
    """Reduce finite non-negative binary floats to (odd significand or 0, exponent): two int64 arrays."""
    bias = (1 << (exponent_bits - 1)) - 1
    field = (bits >> fraction_bits).astype(np.int64)
    significand = (bits & ((1 << fraction_bits) - 1)).astype(np.int64) + np.where(field > 0, 1 << fraction_bits, 0)
    exponent = np.maximum(field, 1) - bias - fraction_bits
    for _ in range(fraction_bits + 1):  # strip trailing zeros, so that equal quotients have equal keys
        even = (significand & 1 == 0) & (significand != 0)
        significand, exponent = np.where(even, significand >> 1, significand), exponent + even
    return significand, np.where(significand == 0, 0, exponent)


def oracle_codes(fmt, significand, exponent, **policy):
    """Oracle codes of significand * 2**exponent, asked once for each distinct pair; u8, same shape."""
    keys = (exponent.astype(np.int64) + 4096 << 32) + significand
    distinct, inverse = np.unique(keys, return_inverse=True)
    return _answers(fmt, distinct.tobytes(), tuple(policy.items()))[inverse.reshape(keys.shape)], len(distinct)


@functools.lru_cache(maxsize=8)
def _answers(fmt, keys, policy):
    """The oracle's codes of distinct pairs, kept: most rules treat both signs alike."""
    answers = []
    for key in np.frombuffer(keys, np.int64).tolist():
        significand, exponent = key & 0xFFFFFFFF, (key >> 32) - 4096
        quotient = Fraction(significand << exponent) if exponent >= 0 else Fraction(significand, 1 << -exponent)
        answers.append(quick_oracle(fmt, quotient, **dict(policy)))
    return np.array(answers, np.int64)


def quick_oracle(fmt, quotient, **policy):
    """The oracle, spared the quotients beyond the largest value and below half the smallest positive one."""
    if quotient > limits(fmt)[1]:
        return R.FORMATS[fmt].max_code
    if quotient < limits(fmt)[0]:
        return 0
    return oracle.encode(fmt, quotient, **policy)


@functools.cache
def limits(fmt):
    table = oracle.TABLES[fmt]
    return min(v for v in table.values if isinstance(v, Fraction) and v > 0) / 2, table.maximum
