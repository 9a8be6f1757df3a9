"""Distributions of floating-point inputs for block quantisers, by integer arithmetic on Philox words.

Each function takes (draw, target, shape, **parameters) and returns bit patterns, u16 or u32 [M, K], of the format
`target.input`. No function uses a logarithm, a root or host floats, so CPU and GPU agree bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refnum.formats import Format

from . import device
from .bits import assemble, signed, word
from .grid import as_arrays, grid, scale_thresholds, walking
from .words import Draw, repeated

Array = Any


@dataclass(frozen=True)
class Target:
    """What values are drawn for: input format, element format of the result, block length along K."""

    input: Format
    element: Format
    block: int


def zero(draw: Draw, target: Target, shape: tuple[int, int]) -> Array:
    """All +0."""
    return draw.zeros(shape, word(target.input))


def signed_zeros(draw: Draw, target: Target, shape: tuple[int, int], mixed: int = 0, values: int = 0) -> Array:
    """Blocks of +0 and of -0 in equal numbers; 128 rows share their signs, so that a tile has one sign.

    Args:
        draw: the source of random integers.
        target: formats and block length.
        shape: [M, K].
        mixed: chance in 256 that each zero of a block has a sign of its own.
        values: chance in 256 that a zero is replaced by a bell-shaped value with standard deviation 1.
    """
    rows, columns = shape
    blocks = -(-columns // target.block)
    negative = repeated(draw.chance(128, -(-rows // 128), blocks), target.block, 128)[:rows, :columns]
    own = per_element(draw, draw.chance(mixed, rows, blocks), target, columns)
    negative = np.where(own, draw.chance(128, rows, columns), negative)
    number = np.where(draw.chance(values, rows, columns), draw.bell(rows, columns), np.int32(0))
    sign = word(target.input)(target.input.sign_mask)
    out = from_integer(target, number, -16)
    return np.where(negative & (number == 0), out | sign, out)


def whole(draw: Draw, target: Target, shape: tuple[int, int], limit: int = 8, exponent: int = 0) -> Array:
    """Integers -limit..limit times 2**exponent, for readable counter-examples."""
    number = draw.between(-limit, limit, *shape)
    return from_integer(target, number, exponent)


def from_integer(target: Target, number: Array, exponent: Array | int) -> Array:
    """Return the bit patterns of number * 2**exponent, |number| < 2**24 (i32); bits that do not fit are truncated."""
    if isinstance(exponent, int):
        exponent = np.int32(exponent)
    if device.serves(number):
        return device.from_integer(target.input, number, exponent)
    return signed(target.input, assemble(target.input, np.abs(number).astype(np.uint32), exponent), number < 0)


def bits(draw: Draw, target: Target, shape: tuple[int, int]) -> Array:
    """Uniform bit patterns of every class, including NaN and Inf."""
    return (draw.words(*shape) >> np.uint32(32 - target.input.bits)).astype(word(target.input))


def normal(draw: Draw, target: Target, shape: tuple[int, int], exponent: int = 0) -> Array:
    """Bell-shaped with standard deviation 2**exponent: the usual test data, which most defects survive."""
    return from_integer(target, draw.bell(*shape), exponent - 16)


def heavy(draw: Draw, target: Target, shape: tuple[int, int], tail: int = 3, exponent: int = 0) -> Array:
    """Heavy-tailed like Student's t: a bell times 2**(leading zeros of a word // tail).

    P(|x| > t) falls as t**-tail, in whole binades.
    """
    word_ = draw.words(*shape)
    field = (word_.astype(np.float64).view(np.uint64) >> np.uint64(52)).astype(np.int32)  # exact: 32 bits of 53
    leading = np.minimum(np.int32(31 + 1023) - field, np.int32(30))  # zeros before the first one, of 30 bits
    return from_integer(target, draw.bell(*shape), np.int32(exponent - 16) + leading // np.int32(tail))


def channels(draw: Draw, target: Target, shape: tuple[int, int], spread: int = 2, exponent: int = 0) -> Array:
    """Activations with lognormal channel scales: bell times 2**(spread * bell) a column, in steps of 1/8 binade.

    The fractional binade is a significand 8..15 of eighths; its product with the bell stays below 2**24.
    """
    rows, columns = shape
    log = (draw.bell(columns) * np.int32(spread)) >> np.int32(13)  # eighths of a binade
    eighths = (log & np.int32(7)) + np.int32(8)
    number = draw.bell(rows, columns) * eighths[None, :]
    return from_integer(target, number, (log >> np.int32(3))[None, :] + np.int32(exponent - 19))


def gated(draw: Draw, target: Target, shape: tuple[int, int], exponent: int = 0) -> Array:
    """Products as of SwiGLU: gate times up, negative gates damped by about e**gate; many are tiny, few large.

    gate, up: bells in steps of 2**-8. exp(g) is taken as 2**(3g/2 rounded down), which only shapes the data.
    """
    gate, up = draw.bell(*shape) >> np.int32(8), draw.bell(*shape) >> np.int32(8)
    damping = np.minimum(gate * np.int32(3), np.int32(0)) >> np.int32(9)
    return from_integer(target, gate * up, damping + np.int32(exponent - 16))


def lattice(draw: Draw, target: Target, shape: tuple[int, int], low: int = 0, span: int = 254) -> Array:
    """Exponent fields low..low+span, with significands of walking bits and runs of ones."""
    fmt = target.input
    top = fmt.max_code >> fmt.mantissa_bits
    low = min(low, top)
    field = draw.between(low, min(low + span, top), *shape).astype(np.uint32)
    fraction = draw.pick(walking(fmt.mantissa_bits), *shape)
    return signed(fmt, (field << np.uint32(fmt.mantissa_bits)) | fraction, draw.chance(128, *shape))


def ties(draw: Draw, target: Target, shape: tuple[int, int], low: int = -127, span: int = 252) -> Array:
    """Every element at a midpoint or a value of the element format, or one ulp beside, at its block's scale 2**k.

    k is drawn for each block from low..low+span. One drawn lane holds the element format's largest value times 2**k,
    the block maximum, which fixes the scale for every rule but `ceil`.
    """
    rows, columns = shape
    blocks = -(-columns // target.block)
    k = draw.between(low, low + span, rows, blocks)
    significand, exponent = as_arrays(tuple(p for p in grid(target.element) if p.kind != "overflow"))
    index = draw.below(len(significand), rows, columns).astype(np.int64)
    wide = per_element(draw, k, target, columns)
    pattern = assemble(
        target.input, np.take(draw.table(significand), index), np.take(draw.table(exponent), index) + wide
    )
    nudge = draw.between(-1, 1, rows, columns)
    pattern = np.maximum(pattern.astype(np.int64) + nudge, 0).astype(np.uint32)
    top = as_arrays((grid(target.element)[-2],))
    pin = assemble(target.input, draw.table(top[0]), draw.table(top[1]) + wide)
    lane = per_element(draw, draw.below(target.block, rows, blocks).astype(np.int32), target, columns)
    here = draw.arange(columns)[None, :] % np.int32(target.block) == lane
    pattern = np.where(here, pin, np.minimum(pattern, pin))
    return signed(target.input, pattern, draw.chance(128, rows, columns))


def boundary(draw: Draw, target: Target, shape: tuple[int, int], low: int = -149, span: int = 276) -> Array:
    """Block maxima at 2**k times a step of a scale rule, or one ulp beside it; the other elements are smaller."""
    rows, columns = shape
    fmt, blocks = target.input, -(-columns // target.block)
    steps = np.array([int(step * 2**23) for step in scale_thresholds(target.element)], np.uint32)
    k = draw.between(low, low + span, rows, blocks)
    top = assemble(fmt, draw.pick(steps, rows, blocks), k - np.int32(23)).astype(np.int64)
    top = np.clip(top + draw.between(-1, 1, rows, blocks), 0, fmt.max_code).astype(np.uint32)
    wide = per_element(draw, top, target, columns)
    drop = draw.below(6 << fmt.mantissa_bits, rows, columns)
    lane = per_element(draw, draw.below(target.block, rows, blocks).astype(np.int32), target, columns)
    here = draw.arange(columns)[None, :] % np.int32(target.block) == lane
    return signed(fmt, np.where(here, wide, wide - np.minimum(drop, wide)), draw.chance(128, rows, columns))


def outlier(draw: Draw, target: Target, shape: tuple[int, int], binades: int = 6, exponent: int = 0) -> Array:
    """Bell-shaped, with one element of each block 2**binades larger, so that most of the block underflows."""
    rows, columns = shape
    blocks = -(-columns // target.block)
    lane = per_element(draw, draw.below(target.block, rows, blocks).astype(np.int32), target, columns)
    here = draw.arange(columns)[None, :] % np.int32(target.block) == lane
    raised = np.where(here, np.int32(binades), np.int32(0)) + np.int32(exponent - 16)
    return from_integer(target, draw.bell(rows, columns), raised)


def tiny(draw: Draw, target: Target, shape: tuple[int, int], binades: int = 1) -> Array:
    """Subnormals of the input format and its lowest binades, which flush-to-zero destroys."""
    fmt = target.input
    bound = min(binades << fmt.mantissa_bits, fmt.max_code)
    return signed(fmt, draw.below(bound, *shape), draw.chance(128, *shape))


def huge(draw: Draw, target: Target, shape: tuple[int, int], binades: int = 1) -> Array:
    """The input format's highest binades, up to its largest finite value."""
    fmt = target.input
    bound = min(binades << fmt.mantissa_bits, fmt.max_code)
    return signed(fmt, np.uint32(fmt.max_code) - draw.below(bound, *shape), draw.chance(128, *shape))


def specials(draw: Draw, target: Target, shape: tuple[int, int], nan: int = 2, inf: int = 2, zero: int = 32) -> Array:
    """Bell-shaped, with NaN (any payload and sign), Inf and signed zeros at chances in 256, and with zero blocks."""
    rows, columns = shape
    fmt = target.input
    blocks = -(-columns // target.block)
    out = normal(draw, target, shape).astype(np.uint32)
    sign = draw.words(rows, columns) & np.uint32(fmt.sign_mask)
    infinity = np.uint32((fmt.max_code >> fmt.mantissa_bits) + 1 << fmt.mantissa_bits)
    payload = draw.below((1 << fmt.mantissa_bits) - 1, rows, columns) + np.uint32(1)
    empty = per_element(draw, draw.chance(zero, rows, blocks), target, columns)
    out = np.where(empty | draw.chance(zero, rows, columns), sign, out)
    out = np.where(draw.chance(nan, rows, columns) & ~empty, sign | infinity | payload, out)
    return np.where(draw.chance(inf, rows, columns) & ~empty, sign | infinity, out).astype(word(fmt))


def distances(
    draw: Draw, target: Target, shape: tuple[int, int], spread: int = 14, empty: int = 32, exponent: int = 0
) -> Array:
    """Blocks of one row with maxima up to `spread` binades apart; some blocks are all zero."""
    rows, columns = shape
    blocks = -(-columns // 32)
    mx = Target(target.input, target.element, 32)
    lower = per_element(draw, draw.between(-spread, 0, rows, blocks), mx, columns)
    blank = per_element(draw, draw.chance(empty, rows, blocks), mx, columns)
    number = np.where(blank, np.int32(0), draw.bell(rows, columns))
    return from_integer(target, number, lower + np.int32(exponent - 16))


def per_element(draw: Draw, values: Array, target: Target, columns: int) -> Array:
    """Repeat one value a block, [M, blocks], for each element, [M, columns]."""
    return repeated(values, target.block)[:, :columns]
