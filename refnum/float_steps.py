"""float32 operations one by one, on exact rationals: each result before it is rounded, and what rounding does (N0)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from . import codec
from .arrays import float32_bits
from .exact_means import nearest_bits, root_bits
from .formats import BF16, FP32, Format
from .softfloat import INF, NAN, SIGN
from .steps import Step, fields, show

Place = tuple[int, ...]
Explained = tuple[list[Step], dict[str, int]]
"""The steps of an element, and the bits that they end in, of each output by name."""
Shape = Callable[[Mapping[str, Any]], tuple[int, ...]]
Room = dict[str, tuple[Shape, Callable[[Mapping[str, Any], Place], Explained]]]
"""Operation -> of its arguments the shape that an index is of, and the function that explains an element of it."""
_NEAREST = {
    "at": "at the middle of {}, to even", "below": "nearer to the first of {}", "above": "nearer to the second of {}"
}  # fmt: skip
"""Where a number lies between two others -> the words for it."""
value = functools.lru_cache(codec.value)  # one step shows and compares the same few numbers ten times
_INF, _NAN, _SIGN, _MAGNITUDE = int(INF), int(NAN), int(SIGN), 0x7FFFFFFF


def float_text(bits: int) -> str:
    """float32 bits and their value."""
    return bits_text(FP32, bits)


def exact_text(exact: Fraction, negative: bool = False) -> str:
    """An exact number, or about what it is where it is no short decimal and has more than 53 bits."""
    text = show(exact, negative)
    n, below = abs(exact.numerator), exact.denominator
    digits = n.bit_length() - (n & -n).bit_length()
    whole = digits < 53 and not below & below - 1
    return text if whole or (" " not in text and Fraction(text) == exact) else f"about {text}"


def number(bits: int) -> Fraction:
    """The exact value of float32 bits that are finite."""
    exact = value(FP32, bits)
    assert isinstance(exact, Fraction), f"0x{bits:08X} is not finite"
    return exact


def is_nan(bits: int) -> bool:
    """Whether float32 bits are NaN."""
    return bits & _MAGNITUDE > _INF


def is_finite(bits: int) -> bool:
    """Whether float32 bits are a number."""
    return bits & _MAGNITUDE < _INF


def is_above(a: int, b: int) -> bool:
    """Whether a > b, of float32 bits; a comparison with NaN does not hold."""
    return not is_nan(a) and not is_nan(b) and order_of(a) > order_of(b)


def order_of(bits: int) -> int:
    """A number in the order of float32 bits that are not NaN, the same for both zeros."""
    return -(bits & _MAGNITUDE) if bits & _SIGN else bits


def bits_at(array: Any, at: tuple[int, ...]) -> int:
    """float32 bits of one element of an array of any float dtype that widens to float32 exactly."""
    return int(float32_bits(np.asarray(array)[at].reshape(1))[0])


def result_bits(array: Any, at: tuple[int, ...]) -> int:
    """The bits of one element of a result: of a float and a signed integer the pattern."""
    one = np.asarray(array)[at]
    return int(one.view(f"u{one.dtype.itemsize}")) if one.dtype.kind in "fVi" else int(one)


def taken(arguments: Mapping[str, Any], required: str, optional: str = "") -> dict[str, Any]:
    """The arguments of a golden function by their names, divided by spaces. KeyError without a required one."""
    given = {name: arguments[name] for name in required.split()}
    return {**given, **{name: arguments[name] for name in optional.split() if name in arguments}}


def of(name: str) -> Shape:
    """The shape of the elements of an argument, of packed codes two a byte."""
    each = 2 if name == "packed" else 1

    def shape(arguments: Mapping[str, Any]) -> tuple[int, ...]:
        found = np.shape(arguments[name])
        return (*found[:-1], *(each * last for last in found[-1:]))

    return shape


def agreed(found: dict[str, int], **golden: int) -> dict[str, int]:
    """Return the bits that the steps end in; an AssertionError unless they are the model's."""
    assert found == golden, f"the steps end in {found}, the model in {golden}"
    return found


@dataclass
class Chain:
    """Steps that are float32 operations on bits: each method appends one and returns the bits of its result."""

    clause: str
    steps: list[Step] = field(default_factory=list)

    def say(self, name: str, text: str, clause: str = "") -> None:
        """Append a step that is no float32 operation."""
        self.steps.append(Step(name, text, clause or self.clause))

    def element(self, **given: int) -> None:
        """Append the step that shows the bits of what is given."""
        alone = len(given) == 1
        texts = [f"bits {float_text(b)}" if alone else f"{name} {float_text(b)}" for name, b in given.items()]
        self.say("element", ", ".join(texts), "N0")

    def add(self, name: str, a: int, b: int) -> int:
        """fl(a + b)."""
        return self._sum(name, f"{_shown(a)} + {_operand(b)}", a, b)

    def subtract(self, name: str, a: int, b: int) -> int:
        """fl(a - b)."""
        return self._sum(name, f"{_shown(a)} - {_operand(b)}", a, b ^ _SIGN)

    def multiply(self, name: str, a: int, b: int) -> int:
        """fl(a b)."""
        text, sign = f"{_shown(a)} * {_operand(b)}", (a ^ b) & _SIGN
        if is_finite(a) and is_finite(b):
            return self.round(name, number(a) * number(b), sign, text)
        zero = not a & _MAGNITUDE or not b & _MAGNITUDE
        return self._special(name, text, _NAN if is_nan(a) or is_nan(b) or zero else _INF | sign)

    def divide(self, name: str, a: int, b: int) -> int:
        """fl(a / b)."""
        text, sign = f"{_shown(a)} / {_operand(b)}", (a ^ b) & _SIGN
        if is_finite(a) and is_finite(b) and b & _MAGNITUDE:
            return self.round(name, number(a) / number(b), sign, text)
        if is_nan(a) or is_nan(b) or (is_finite(a) == is_finite(b) and not (is_finite(a) and a & _MAGNITUDE)):
            return self._special(name, text, _NAN)
        return self._special(name, text, sign if is_finite(a) and not is_finite(b) else _INF | sign)

    def root(self, name: str, a: int) -> int:
        """fl of the square root."""
        text = f"the root of {_shown(a)}"
        if is_nan(a) or (a & _SIGN and a & _MAGNITUDE):
            return self._special(name, text, _NAN)
        if not a & _MAGNITUDE or not is_finite(a):
            return self._special(name, text, a)
        bits, square = root_bits(a), number(a)
        if number(bits) ** 2 == square:
            self.say(name, f"{text} = {_shown(bits)}, exactly 0x{bits:08X}")
            return bits
        low = bits - (number(bits) ** 2 > square)
        middle = (number(low) + number(low + 1)) / 2
        assert (middle**2 < square) == (bits > low), "the root is not the nearest"  # a middle is never a root
        self.say(name, f"{text}, {_between(low, 'below' if bits == low else 'above', bits)}")
        return bits

    def whole(self, name: str, a: int) -> int:
        """R(a), the nearest whole number, ties to even, with the sign of a."""
        if not is_finite(a):
            return self._special(name, f"R({_shown(a)})", a)
        size = abs(number(a))
        down, rest = divmod(size, 1)
        bits = nearest_bits(Fraction(round(size))) | a & _SIGN
        minus = "-" if a & _SIGN else ""
        where = _where(rest, Fraction(1, 2)).split()[0] if rest else ""
        how = _NEAREST[where].format(f"{minus}{down} and {minus}{down + 1}") if rest else "whole"
        self.say(name, f"R({_shown(a)}), {how}: {float_text(bits)}")
        return bits

    def round(self, name: str, exact: Fraction, sign: int = 0, text: str = "", narrow: bool = False) -> int:
        """fl of an exact number; sign: the sign bit, which only a zero needs; narrow: to bfloat16, whose bits it gives.

        text: what the number is, in words.
        """
        sign = _SIGN if exact < 0 else sign if exact == 0 else 0
        fmt, low, size = (BF16 if narrow else FP32), _floor_bits(abs(exact)), abs(exact)
        infinite, sign = (_INF >> 16, sign >> 16) if narrow else (_INF, sign)
        low = low >> 16 if narrow else low
        lead = f"{text} = {exact_text(exact, bool(sign))}" if text else exact_text(exact)
        if low >= infinite:
            bits, how = infinite, f"2^128 or more: {bits_text(fmt, infinite | sign)}"
        elif value(fmt, low) == size:
            bits, how = low, f"exactly 0x{low | sign:0{fmt.bits // 4}X}"
        else:
            middle = (_magnitude(fmt, low) + _magnitude(fmt, low + 1)) / 2
            where = _where(size, middle)
            bits = low + (where == "above the middle" or (where == "at the middle" and low & 1))
            how = _between(low, where.split()[0], bits, sign, fmt)
        assert narrow or bits == nearest_bits(size), f"{exact} is not rounded to 0x{bits:X}"
        self.say(name, f"{lead}, {how}")
        return int(bits | sign)

    def result(self, name: str, wide: int, dtype: Any) -> int:
        """float32 bits as they are, or rounded once more to bfloat16, whose bits it returns."""
        if np.dtype(dtype).itemsize == 4:
            self.say(name, f"bits {float_text(wide)} of float32")
            return wide
        if is_finite(wide):
            return self.round(name, number(wide), wide & _SIGN, narrow=True)
        bits = _NAN >> 16 if is_nan(wide) else wide >> 16
        self.say(name, f"bits {bits_text(BF16, bits)} of bfloat16")
        return bits

    def encode(self, name: str, fmt: Format, a: int) -> int:
        """The code of a float32 number: to nearest, ties to even, saturating (N2)."""
        if is_nan(a):
            code = fmt.max_code if fmt.nan_code is None else fmt.nan_code
            self.say(name, f"NaN: {fields(fmt, code)}", "N2")
            return code
        negative = bool(a & _SIGN)
        numbers = _numbers(fmt, negative)
        ends = numbers[0], numbers[-1]
        if not is_finite(a) or not ends[0][0] <= number(a) <= ends[1][0]:
            code = ends[0 if negative else 1][1]
            self.say(name, f"{_shown(a)} lies beyond {show(ends[0 if negative else 1][0])}, which it becomes", "N2")
            return code
        x = number(a)
        (low, below), (high, above) = (max(one for one in numbers if one[0] <= x),
                                       min(one for one in numbers if one[0] >= x))  # fmt: skip
        if low == high:
            code, where = below, "exactly"
        elif x - low == high - x:
            code = above if below & 1 else below
            where = f"at the middle of {show(low)} and {show(high)}, to the even code"
        else:
            code = below if x - low < high - x else above
            where = f"between {show(low)} and {show(high)}, nearer to the {'first' if code == below else 'second'}:"
        self.say(name, f"{_shown(a)} is {where} {_code(fmt, code)}", "N2")
        return code

    def _sum(self, name: str, text: str, a: int, b: int) -> int:
        if is_finite(a) and is_finite(b):
            return self.round(name, number(a) + number(b), a & b & _SIGN, text)
        opposite = not is_finite(a) and not is_finite(b) and a != b
        nan = is_nan(a) or is_nan(b) or opposite
        return self._special(name, text, _NAN if nan else b if is_finite(a) else a)

    def _special(self, name: str, text: str, bits: int) -> int:
        self.say(name, f"{text} = {_shown(bits)}: 0x{bits:08X}")
        return bits


@functools.cache
def _numbers(fmt: Format, negative: bool) -> list[tuple[Fraction, int]]:
    """The numbers of a format in order, each with its code; of a float those of one sign."""
    known = ((value(fmt, code), code) for code in range(1 << fmt.bits))
    return sorted((x, code) for x, code in known if isinstance(x, Fraction)
                  and (fmt.kind == "integer" or bool(code & fmt.sign_mask) == negative))  # fmt: skip


def _shown(bits: int) -> str:
    return show(value(FP32, bits), bool(bits & _SIGN))


def _code(fmt: Format, code: int) -> str:
    return f"{fields(fmt, code)}, value {show(value(fmt, code), fmt.kind == 'float' and bool(code & fmt.sign_mask))}"


def _operand(bits: int) -> str:
    text = _shown(bits)
    return f"({text})" if text.startswith("-") or " " in text else text


def bits_text(fmt: Any, bits: int) -> str:
    """The bits of a float and their value."""
    return f"0x{bits:0{fmt.bits // 4}X} = {show(value(fmt, bits), bool(bits >> fmt.bits - 1))}"


def _floor_bits(size: Fraction) -> int:
    """Bits of the largest float32 that is at most a number, Inf from 2**128 on."""
    bits = nearest_bits(size)
    if bits >= _INF:
        return _INF if size >= 2**128 else _INF - 1
    return bits - (number(bits) > size)


def _magnitude(fmt: Any, bits: int) -> Fraction:
    """The value of a magnitude; 2**128 of Inf."""
    exact = value(fmt, bits)
    return exact if isinstance(exact, Fraction) else Fraction(2**128)


def _where(x: Fraction, middle: Fraction) -> str:
    return f"{'at' if x == middle else 'below' if x < middle else 'above'} the middle"


def _between(low: int, where: str, bits: int, sign: int = 0, fmt: Any = FP32) -> str:
    """Where a magnitude lies between the bits below it and the next, and what it is rounded to."""
    ends = " and ".join(f"0x{end | sign:0{fmt.bits // 4}X}" for end in (low, low + 1))
    return f"{_NEAREST[where].format(ends)}: {bits_text(fmt, bits | sign)}"
