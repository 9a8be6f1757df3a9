"""One step of a Hopper tensor core: products and an accumulator summed in fixed point, to the bit (clause N19)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .arguments import require_choice
from .arrays import Array, empty, is_host, require_matrix, table_like
from .codec import code_dtype
from .errors import DtypeError, ProfileError, ShapeError
from .formats import FP32, Format, get_format
from .softfloat import INF, SIGN, _fields


@dataclass(frozen=True)
class Instruction:
    """The facts of one instruction's step (clause N19.3): all else is the same for every instruction."""

    formats: tuple[str, ...]
    terms: int
    """Products that one step sums, beside the accumulator."""
    fraction_bits: int
    """A term is cut to a multiple of 2**(E - fraction_bits), E the largest exponent of the terms."""
    result_bits: int
    """Fraction bits of the result's significand; what lies below is cut off."""


# fmt: off
INSTRUCTIONS: dict[str, Instruction] = {
    #                          operands            terms  fraction  result
    "wgmma_fp8":  Instruction(("E4M3", "E5M2"),      32,       13,     13),
    "wgmma_bf16": Instruction(("BF16",),             16,       25,     23),
    "wgmma_fp16": Instruction(("FP16",),             16,       25,     23),
    "mma_bf16":   Instruction(("BF16",),             16,       25,     23),
    "mma_fp16":   Instruction(("FP16",),             16,       25,     23),
}
# fmt: on

# What a device showed, one line each (clause N19.6).
NAN = np.uint32(0x7FFFFFFF)  # every NaN result, whatever the payload or the sign of its cause
OVERFLOW = INF  # the magnitude of a result of 2**128 or more, whose bits are otherwise cut off
ZERO_EXPONENT = -133  # the exponent that a zero term has when the largest is sought
# a sum that is zero or whose bits are all cut off is +0, whatever the signs

_ABSENT = -(1 << 14)
"""Exponent that stands for a zero term: below any other, also when two are added."""
_FINITE, _INFINITE, _NAN = 0, 1, 2
_NORMAL = np.int64(1 << 23)
"""Bits of the least normal float32."""
_HOST_PASS, _DEVICE_PASS = 1 << 17, 1 << 25
"""Products that a pass works on at once: its temporaries stay in a host's cache, or in a device's memory."""


@functools.cache
def _decoded(fmt: Format) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(signed significand, exponent, class) of every code, i32; value = significand * 2**(exponent - mantissa_bits)."""
    codes = np.arange(1 << fmt.bits)
    magnitude = codes & (fmt.sign_mask - 1)
    field, fraction = magnitude >> fmt.mantissa_bits, magnitude & ((1 << fmt.mantissa_bits) - 1)
    significand = fraction + np.where(field > 0, 1 << fmt.mantissa_bits, 0)
    exponent = np.where(significand == 0, _ABSENT, np.maximum(field, 1) - fmt.bias)
    kind = np.where(magnitude <= fmt.max_code, _FINITE, np.where(magnitude == fmt.inf_code, _INFINITE, _NAN))
    significand = np.where(codes & fmt.sign_mask, -significand, significand)
    return significand.astype(np.int32), exponent.astype(np.int32), kind.astype(np.int32)


def _part(fmt: Format, index: int) -> np.ndarray:
    return _decoded(fmt)[index]


_significands = functools.cache(functools.partial(_part, index=0))
_exponents = functools.cache(functools.partial(_part, index=1))
_classes = functools.cache(functools.partial(_part, index=2))


@dataclass(frozen=True)
class Operand:
    """A matrix of codes, decoded: terms on the first axis, [K, R]; `kinds` is None where every code is finite.

    Several runs of terms at once have an axis of their own behind that of the terms, [K, runs, R].
    """

    fmt: Format
    significands: Array
    exponents: Array
    kinds: Array | None

    def cut(self, terms: slice, rows: slice | Array) -> Operand:
        """Return some terms of some rows."""
        kinds = None if self.kinds is None else self.kinds[terms, rows]
        return Operand(self.fmt, self.significands[terms, rows], self.exponents[terms, rows], kinds)

    def runs(self, start: int, count: int, length: int) -> Operand:
        """Return `count` runs of `length` terms, the first beginning at term `start`: [length, count, R]."""

        def apart(x: Array) -> Array:
            return x[start : start + count * length].reshape(count, length, x.shape[1]).swapaxes(0, 1)

        kinds = None if self.kinds is None else apart(self.kinds)
        return Operand(self.fmt, apart(self.significands), apart(self.exponents), kinds)

    def steps(self, start: int, count: int, terms: int) -> Operand:
        """Return `count` steps of so many terms, the first beginning at term `start`: [terms, count, ..., R]."""

        def apart(x: Array) -> Array:
            return x[start : start + count * terms].reshape(count, terms, *x.shape[1:]).swapaxes(0, 1)

        kinds = None if self.kinds is None else apart(self.kinds)
        return Operand(self.fmt, apart(self.significands), apart(self.exponents), kinds)


def decode_operand(fmt: Format, codes: Array) -> Operand:
    """Decode codes [R, K]."""
    turned = codes.T
    kinds = np.take(table_like(_classes, codes, fmt), turned)
    return Operand(
        fmt,
        np.take(table_like(_significands, codes, fmt), turned),
        np.take(table_like(_exponents, codes, fmt), turned),
        kinds if bool(kinds.any()) else None,
    )


def tensor_core_step(
    a: Array,
    b: Array,
    c: Array | None = None,
    instruction: str = "wgmma_fp8",
    a_format: str = "E4M3",
    b_format: str = "E4M3",
) -> Array:
    """Return c + a @ b.T as one step of a tensor core computes it (clause N19.2).

    Args:
        a: codes [M, T], T from 1 to the step's terms; u8 for FP8, u16 bits for BF16 and FP16.
        b: codes [N, T].
        c: float32 [M, N], the accumulator; None is +0.
        instruction: a key of `INSTRUCTIONS`.
        a_format: the format of `a`, one of the instruction's.
        b_format: the format of `b`.

    Returns:
        float32 [M, N].

    Raises:
        DtypeError, ShapeError, ArgumentError, ProfileError.
    """
    require_choice("instruction", instruction, tuple(INSTRUCTIONS))
    facts = INSTRUCTIONS[instruction]
    left, right = require_operands(a, b, facts, a_format, b_format)
    if a.shape[1] > facts.terms:
        raise ShapeError(f"a has {a.shape[1]} columns; a step of {instruction} takes 1 to {facts.terms} products")
    m, n = a.shape[0], b.shape[0]
    if c is not None:
        require_matrix("c", c)
        if c.dtype != np.float32:
            raise DtypeError(f"c has dtype {c.dtype}; allowed is float32")
        if c.shape != (m, n):
            raise ShapeError(f"c has shape {tuple(c.shape)}; a and b give {(m, n)}")
    start = np.zeros((m, n), np.uint32, like=a) if c is None else c.view(np.uint32)
    out = empty((m, n), np.uint32, a)
    every = slice(0, a.shape[1])
    for rows, columns in tiles(m, n, facts.terms, a):
        terms = terms_of(facts, left.cut(every, rows), right.cut(every, columns))
        out[rows, columns] = step(facts, terms, start[rows, columns])
    return out.view(np.float32)


def require_operands(a: Array, b: Array, facts: Instruction, a_format: str, b_format: str) -> tuple[Operand, Operand]:
    """Decode a [M, K] and b [N, K]; raise unless both hold codes of the instruction's formats and K is at least 1."""
    formats = [_require_format("a_format", a_format, facts), _require_format("b_format", b_format, facts)]
    for name, x, fmt in (("a", a, formats[0]), ("b", b, formats[1])):
        require_matrix(name, x)
        if x.dtype != code_dtype(fmt):
            raise DtypeError(f"{name} has dtype {x.dtype}; allowed is {code_dtype(fmt)} ({fmt.name} codes, not values)")
    if a.shape[1] != b.shape[1]:
        raise ShapeError(f"a has K = {a.shape[1]} and b has K = {b.shape[1]}; both are K-major, [M, K] and [N, K]")
    if a.shape[1] == 0:
        raise ShapeError("a and b have K = 0; a product needs at least one term")
    return decode_operand(formats[0], a), decode_operand(formats[1], b)


def _require_format(name: str, given: str, facts: Instruction) -> Format:
    fmt = get_format(given)
    if fmt.name not in facts.formats:
        raise ProfileError(f"{name} is {fmt.name}; this instruction takes {', '.join(facts.formats)}")
    return fmt


def pass_outputs(terms: int, like: Array) -> int:
    """Return the results that a pass of steps of so many terms works on at once."""
    return max(1, (_HOST_PASS if is_host(like) else _DEVICE_PASS) // terms)


def tiles(m: int, n: int, terms: int, like: Array) -> Iterator[tuple[slice, slice]]:
    """Yield the (rows, columns) of the passes over an [m, n] result."""
    outputs = pass_outputs(terms, like)
    wide = min(n, outputs)
    tall = max(1, outputs // max(1, wide))
    for row in range(0, m, tall):
        for column in range(0, n, max(1, wide)):
            yield slice(row, min(row + tall, m)), slice(column, min(column + wide, n))


class Terms(NamedTuple):
    """The products of a step, [T, ..., M, N], or of several, which are the second axis, [T, steps, ..., M, N].

    magnitude: of a product, i32, in units of 2**(exponent - fraction_bits). minus: -1 for a negative one, else 0. top:
    the largest exponent, at least that of a zero. special: None where every factor is finite; else where a product is
    NaN, where one is +Inf, and where one is -Inf.
    """

    magnitude: Array
    minus: Array
    exponent: Array
    top: Array
    special: tuple[Array, Array, Array] | None

    def of(self, number: int) -> Terms:
        """Return those of one of several steps."""
        special = self.special and tuple(x[number] for x in self.special)
        magnitude, minus, exponent = (x[:, number] for x in (self.magnitude, self.minus, self.exponent))
        return Terms(magnitude, minus, exponent, self.top[number], special)


def terms_of(facts: Instruction, a: Operand, b: Operand) -> Terms:
    """Return the products of operands [T, ..., M] and [T, ..., N]: [T, ..., M, N]."""
    exponent = a.exponents[..., :, None] + b.exponents[..., None, :]
    product = a.significands[..., :, None] * b.significands[..., None, :]
    lift = facts.fraction_bits - a.fmt.mantissa_bits - b.fmt.mantissa_bits
    return Terms(
        abs(product) << np.int32(lift),
        product >> np.int32(31),
        exponent,
        np.maximum(exponent.max(axis=0), np.int32(ZERO_EXPONENT)),
        None if a.kinds is None and b.kinds is None else _special(product, a.kinds, b.kinds),
    )


def steps(facts: Instruction, a: Operand, b: Operand, most: int) -> Iterator[Terms]:
    """Yield the terms of one step after another of operands [K, ..., M] and [K, ..., N]; of `most` made at once."""
    k, start = a.significands.shape[0], 0
    while start < k:
        size = min(facts.terms, k - start)
        count = max(1, min(most, (k - start) // size))
        several = terms_of(facts, a.steps(start, count, size), b.steps(start, count, size))
        yield from (several.of(number) for number in range(count))
        start += count * size


def step(facts: Instruction, terms: Terms, c: Array | None) -> Array:
    """Return the float32 bits of one step, u32 [..., M, N]. c: the accumulators' bits; None is +0."""
    top, special = terms.top, terms.special is not None
    if c is not None:
        magnitude = c & ~SIGN
        significand, exponent = _accumulator(magnitude)
        top = np.maximum(top, exponent)
        special = special or bool((magnitude >= INF).any())
    cut = terms.magnitude >> np.minimum(top - terms.exponent, np.int32(31))
    # every product is below 2**(fraction_bits + 2), so that all of a step's are below 2**31
    total = _signed(cut, terms.minus).sum(axis=0, dtype=np.int32).astype(np.int64)
    if c is not None:
        places = top - exponent + np.int32(25 - facts.fraction_bits)
        cut = (significand << np.int32(2)) >> np.minimum(places, np.int32(31))
        total = total + _signed(cut, c.view(np.int32) >> np.int32(31))
    out = _result(facts, total, top)
    return _with_specials(out, terms.special, np.zeros_like(out) if c is None else c) if special else out


def _accumulator(magnitude: Array) -> tuple[Array, Array]:
    """(significand with 23 fraction bits, exponent), i32, of float32 magnitude bits; NaN and Inf have any."""
    field, significand = _fields(magnitude)
    absent = (significand == np.uint32(0)) * np.int32(_ABSENT)
    return significand.view(np.int32), field.view(np.int32) - np.int32(126) + absent


def _signed(magnitude: Array, minus: Array) -> Array:
    """A magnitude, negated where `minus` is -1 and not 0."""
    return (magnitude ^ minus) - minus


def _result(facts: Instruction, total: Array, top: Array) -> Array:
    """float32 bits of total * 2**(top - fraction_bits), i64 below 2**53 and i32, cut to the bits that are kept."""
    # the conversion is exact and normal: its bits are those of the result but for the bias and the power of two
    wide = total.astype(np.float64).view(np.int64)
    cut = (wide & np.int64((1 << 63) - (1 << (52 - facts.result_bits)))) >> np.int64(29)
    bits = cut + ((top + np.int32(FP32.bias - 1023 - facts.fraction_bits)).astype(np.int64) << np.int64(23))
    sign = (wide >> np.int64(32)) & np.int64(SIGN)
    if bool((bits < _NORMAL).any()):
        places = np.minimum(np.maximum(np.int64(1) - (bits >> np.int64(23)), np.int64(0)), np.int64(31))
        low = ((cut & (_NORMAL - np.int64(1))) | _NORMAL) >> places & np.int64(-1 << (23 - facts.result_bits))
        bits = np.where(bits < _NORMAL, low, bits)
        sign = sign * (bits != np.int64(0))
    return (np.minimum(bits, np.int64(OVERFLOW)) | sign).astype(np.uint32)


def _special(product: Array, left: Array | None, right: Array | None) -> tuple[Array, Array, Array]:
    """Where a sum of products is NaN, +Inf and -Inf: NaN and Inf times zero give NaN. left, right: kinds of factors."""
    zero = np.zeros((1, 1), np.int32, like=product)
    left = (zero if left is None else left)[..., :, None]
    right = (zero if right is None else right)[..., None, :]
    infinite = (left == np.int32(_INFINITE)) | (right == np.int32(_INFINITE))
    nan = (left == np.int32(_NAN)) | (right == np.int32(_NAN)) | (infinite & (product == np.int32(0)))
    plus, minus = infinite & (product > np.int32(0)), infinite & (product < np.int32(0))
    return nan.any(axis=0), plus.any(axis=0), minus.any(axis=0)


def _with_specials(out: Array, special: tuple[Array, Array, Array] | None, c: Array) -> Array:
    """Put NaN and Inf where a term is one; Inf minus Inf gives NaN."""
    is_nan, is_plus, is_minus = (c & ~SIGN) > INF, c == INF, c == (INF | SIGN)
    if special is not None:
        is_nan, is_plus, is_minus = (x | y for x, y in zip((is_nan, is_plus, is_minus), special, strict=True))
    out = np.where(is_plus, INF, np.where(is_minus, INF | SIGN, out))
    return np.where(is_nan | (is_plus & is_minus), NAN, out)
