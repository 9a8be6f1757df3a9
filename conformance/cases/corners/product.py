"""Corners of the matrix products (N19): what the alignment of terms, the cuts, the orders and the scales decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import BFLOAT16
from refnum.formats import Format, get_format
from refnum.tiles import tile_count

from ..draw import CODED, Draw
from ..draw.coded import Layout
from ..draw.products import scale_kinds, scales_of_kind, terms_for
from ..operation import OPERATIONS

Corner = tuple[str, dict[str, np.ndarray]]
INF, NAN = 0x7F80, 0x7FC0
"""Bits of bfloat16."""
CODES = np.arange(256, dtype=np.uint8)
OTHER_ORDERS = ("promote32", "promote64", "split3", "split2-chain")
"""Orders of summation that no variant has (N19.4)."""
LENGTHS = (1, 2, 31, 32, 33, 64, 127, 128, 129, 160, 255, 256, 257, 385, 513)
SHAPES = ((0, 0), (0, 3), (3, 0), (1, 1), (1, 17), (17, 1), (5, 7))


def matmul_fp8(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Cuts at every distance, cancellation, zeros, NaN and Inf in every lane, lengths, shapes, scales of every kind."""
    left, right = get_format(str(params["a_format"])), get_format(str(params["b_format"]))
    order = str(params["order"])
    for label, a, b in (
        ("one large among many small", *one_large(left, right)),
        ("every code beside every power of two, both signs", *beside_powers(left, right)),
        ("large terms that cancel around small ones", *cancelling(left, right)),
        ("zeros of both signs", *zeros(right)),
        ("NaN, infinity and zero in every lane", *specials(left, right)),
        ("whole steps of NaN, and in every word of a step", *whole_steps(left, right)),
        ("blocks of zeros in a, NaN and Inf in b", *blank((0x7F, 0x7C), np.uint8)),
        ("blocks of zeros in b, NaN and Inf in a", *blank((0x7F, 0x7C), np.uint8)[::-1]),
    ):
        yield label, {"a": _lengthened(a, order), "b": _lengthened(b, order)}
    for k in LENGTHS:
        if terms_for(order, k) == k:
            yield f"{k} terms", {"a": finite(left, (4, k), k), "b": finite(right, (5, k), k + 1)}
    for rows, columns in SHAPES:
        yield f"{rows} by {columns}", {"a": finite(left, (rows, 192), 1), "b": finite(right, (columns, 192), 2)}
    yield from _scaled(left, right, order)
    yield from _orders(operation, params, {"a": finite(left, (4, 600), 7), "b": finite(right, (5, 600), 8)})


def _orders(
    operation: str, params: Mapping[str, Any], operands: dict[str, np.ndarray]
) -> Iterator[tuple[str, dict[str, np.ndarray], dict[str, Any]]]:
    """Orders that no variant has, in the variants of the first one."""
    if params["order"] == OPERATIONS[operation].params["order"][0]:
        for order in OTHER_ORDERS:
            yield f"order {order}", operands, {"order": order}


def matmul_bf16(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Cuts at every distance, cancellation, overflow, subnormal sums, NaN and Inf, lengths and shapes."""
    order = str(params["order"])
    k = terms_for(order, 40)
    fields = np.arange(1, 255, dtype=np.uint16) << np.uint16(7)
    for label, other in (("1.9921875", 0x3FFF), ("the largest number", 0x7F7F), ("-2**-126", 0x8080)):
        a = np.zeros((254, k), np.uint16)
        a[:, 0], a[:, 1], a[:, 17], a[:, 33] = fields | 0x55, 0x3F80, fields, fields | 0x8001
        b = np.full((3, k), 0x3F80, np.uint16)
        b[1, 0], b[2, 17] = other, other
        yield f"every exponent beside 1, times {label}", _bf16(a, b)
    a, b = np.full((6, k), 0x7F7F, np.uint16), np.full((4, k), 0x3F80, np.uint16)
    a[1::2, 1::2] |= 0x8000
    a[4:, 20], b[1, 20], b[2, ::3], b[3] = 0x7F80, 0, 0xC000, 0x0001
    yield "sums that overflow, and infinities", _bf16(a, b)
    kinds = np.array([0x7FC0, 0xFF81, 0x7F80, 0xFF80, 0, 0x8000, 1, 0x8001], np.uint16)
    a, b = np.full((8, k), 0x3F80, np.uint16), np.full((8, k), 0x3F80, np.uint16)
    a[:, 3], b[:, 3], b[4:, 19] = kinds, kinds, kinds[:4]
    yield "NaN, infinities, zeros and subnormals in a lane", _bf16(a, b)
    tiny = np.arange(1, 129, dtype=np.uint16)[:, None] | (np.arange(k, dtype=np.uint16) % 4 // 3 << np.uint16(15))
    yield "subnormal sums", _bf16(tiny, np.repeat(np.array([[0x3F80], [0x3E00], [0x3C00]], np.uint16), k, axis=1))
    a, b = np.zeros((2, k), np.uint16), np.full((2, k), 0x3280, np.uint16)
    a[:, 0], a[0, 1:5], a[1, 1:4], b[:, 0] = 0x00FF, 1, 1, 0x3380
    yield "exponents below -133, which cut as -133 does", _bf16(a, b)
    a, b = np.zeros((3, k), np.uint16), np.full((2, k), 0x1980, np.uint16)
    a[0, :16], a[1:, 0], a[1, 16:20], a[2, 16:32] = 0x1980, 0x1F80, 0x1A00, 0x1980
    yield "products of 2**-152 and 2**-151, alone and beside a subnormal sum", _bf16(a, b)
    a, b = np.full((7, k), 0x3F80, np.uint16), np.full((6, k), 0x3F80, np.uint16)
    a[0, :32], a[1, 1:32:2], a[2, 15], a[3, k - 1], a[4, 0], a[4, 5], a[5, 5] = NAN, NAN, INF, NAN, INF, 0xBF80, 0x7F40
    b[0, :32], b[1, 1:32:2], b[2, 15], b[3, 5], b[4, 0], b[4, 5] = NAN, NAN, INF, 0x7F40, INF, 0xBF80
    yield "whole steps of NaN, the last lane, an infinity beside the largest numbers", _bf16(a, b)
    a, b = (_lengthened(one, order) for one in blank((NAN, INF), np.uint16))
    yield "blocks of zeros in a, NaN and Inf in b", _bf16(a, b)
    yield "blocks of zeros in b, NaN and Inf in a", _bf16(b, a)
    for terms in (1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 256, 257):
        if terms_for(order, terms) == terms:
            yield f"{terms} terms", _bf16(near((4, terms), terms), near((5, terms), terms + 1))
    for rows, columns in SHAPES:
        yield f"{rows} by {columns}", _bf16(near((rows, 192), 1), near((columns, 192), 2))
    a, b = np.zeros((8, k), np.uint16), np.full((3, k), 0x1A00, np.uint16)
    a[:, 3], b[1], b[2] = 0x1980 + np.arange(8) * 0x40, 0x9A00, 0x9A40
    yield "one product of 2**-151 to 2**-148, of either sign, and zeros", _bf16(a, b)
    yield from _orders(operation, params, _bf16(near((4, 600), 7), near((5, 600), 8)))


def _bf16(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(x, np.uint16).view(BFLOAT16) for name, x in (("a", a), ("b", b))}


def near(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return bits of bfloat16 of near exponents and both signs."""
    words = Draw(seed).below(1 << 16, *shape)
    return (0x3C00 + words % 0x500 | (words >> 15 & 1) << 15).astype(np.uint16)


def finite(fmt: Format, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return finite codes [rows, K] of every magnitude."""
    found: np.ndarray = CODED["apart"].make(Draw(seed), Layout(fmt, 1, 128), shape, base=127, spread=0, empty=0, nan=0)[
        0
    ]
    return found


def _lengthened(codes: np.ndarray, order: str) -> np.ndarray:
    """Put zeros behind the terms where the order has two parts."""
    return np.pad(codes, ((0, 0), (0, terms_for(order, codes.shape[1]) - codes.shape[1])))


def power(fmt: Format, exponent: int) -> int:
    """Return the code of a power of two that is a normal number."""
    return (exponent + fmt.bias) << fmt.mantissa_bits


def one_large(left: Format, right: Format) -> tuple[np.ndarray, np.ndarray]:
    """Every code in 39 lanes of a row and the largest power of two in one, whose place moves; four columns."""
    a = np.repeat(CODES[:, None], 40, axis=1)
    a[CODES, CODES % 40] = power(left, (left.max_code >> left.mantissa_bits) - left.bias)
    lane = np.arange(40)
    b = np.full((4, 40), power(right, 0), np.uint8)
    b[1, 1::2] |= 0x80
    b[2] = 1 + lane % 3
    b[3] = power(right, -3) + lane % 5
    return a, b


def beside_powers(left: Format, right: Format) -> tuple[np.ndarray, np.ndarray]:
    """Two terms: a code times 1, and 1 times each power of two of either sign, so that every distance is cut at."""
    one = np.full(256, power(left, 0), np.uint8)
    fields = np.arange(1, right.max_code >> right.mantissa_bits, dtype=np.int64) << right.mantissa_bits
    powers = np.concatenate([fields, fields | 0x80, np.array([1, 0x81])]).astype(np.uint8)
    return np.stack([CODES, one], axis=1), np.stack([np.full_like(powers, power(right, 0)), powers], axis=1)


def cancelling(left: Format, right: Format) -> tuple[np.ndarray, np.ndarray]:
    """A large term, one of every small code, and the large one's negative: in one step, in two, in another run."""
    large = power(left, 7)
    rows = [(first, place, code) for first, place in ((0, 31), (0, 40), (5, 133)) for code in range(128)]
    a = np.zeros((len(rows), 140), np.uint8)
    for row, (first, place, code) in enumerate(rows):
        a[row, first], a[row, first + 3 :: 32], a[row, place] = large, code, large | 0x80
    b = np.full((2, 140), power(right, 0), np.uint8)
    b[1] = power(right, 3) + 1
    return a, b


def zeros(right: Format) -> tuple[np.ndarray, np.ndarray]:
    """Rows of +0, -0 and both, times 1, -1 and zeros of both signs."""
    a = np.array([[0] * 33, [0x80] * 33, [0, 0x80, 0] * 11], np.uint8)
    one = power(right, 0)
    return a, np.repeat(np.array([[one], [one | 0x80], [0], [0x80]], np.uint8), 33, axis=1)


def whole_steps(left: Format, right: Format) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose first step is NaN in every lane, or in one lane of each word of four codes, beside ones."""
    pair = []
    for fmt in (left, right):
        rows = np.full((6, 64), fmt.bias << fmt.mantissa_bits, np.uint8)
        rows[0, :32] = fmt.sign_mask - 1
        for lane in range(4):
            rows[lane + 1, lane:32:4] = fmt.sign_mask - 1
        pair.append(rows)
    return pair[0], pair[1]


def blank(kinds: tuple[int, int], dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """One side zero in a whole block of 128 terms, the other with a NaN or an Inf there: no such block adds nothing."""
    one = 0x38 if dtype is np.uint8 else 0x3F80
    zero: np.ndarray = np.zeros((4, 256), dtype)
    other: np.ndarray = np.full((5, 256), one, dtype)
    zero[:, 128:] = one
    other[(0, 1), (5, 127)] = kinds
    return zero, other


def specials(left: Format, right: Format) -> tuple[np.ndarray, np.ndarray]:
    """NaN, Inf of both signs (the largest code where there is none) and zeros, each in lanes 0 to 39 of ones."""
    inf = left.max_code if left.inf_code is None else left.inf_code
    kinds = np.array([left.nan_code, inf, inf | 0x80, 0], np.uint8)
    a = np.full((4, 40, 40), power(left, 0), np.uint8)
    a[:, np.arange(40), np.arange(40)] = kinds[:, None]
    b = np.full((5, 40), power(right, 0), np.uint8)
    b[1, 3], b[2, 7], b[3, 11] = 0x7F, right.max_code if right.inf_code is None else right.inf_code, 0
    b[4] |= 0x80
    return a.reshape(-1, 40), b


def _scaled(left: Format, right: Format, order: str) -> Iterator[Corner]:
    """Scales of every kind on either side, ordinary, and where results overflow and vanish."""
    sides = {"a": finite(left, (130, 300), 5), "b": finite(right, (6, 300), 6)}
    for number, kind in enumerate(scale_kinds(order)):
        for other in dict.fromkeys((kind, "", scale_kinds(order)[-1])):
            inputs = dict(sides)
            for name, one in (("a", kind), ("b", other)):
                if one:
                    scales = _bytes(len(sides[name]), number)
                    inputs[f"{name}_scales"] = np.ascontiguousarray(scales_of_kind(scales, one))
            yield f"scales of a {kind or 'none'}, of b {other or 'none'}", inputs
    tiny, unit = np.array([[0x12800000]], np.uint32).view(np.float32), np.ones((1, 1), np.float32)
    yield "scales whose product is zero", {"a": sides["a"][:8], "b": sides["b"], "a_scales": tiny, "b_scales": -tiny}
    zero = np.zeros_like(sides["a"][:2])
    yield "sums of zero, a negative scale", {"a": zero, "b": sides["b"], "a_scales": -tiny, "b_scales": unit}
    low, high = (np.array([[bits]], np.uint32).view(np.float32) for bits in (0x00300001, 0x5E800001))
    for name, left_scale, right_scale in (("a", low, high), ("b", high, low)):
        for rows in (1, 6):
            given = {"a_scales": left_scale.repeat(rows, axis=0), "b_scales": right_scale.repeat(rows, axis=0)}
            yield f"{rows} subnormal scales of {name}", {"a": sides["a"][:6], "b": sides["b"], **given}
    for byte in (252, 2):
        scale = np.full((1, 1), byte, np.uint8)
        yield f"scales of byte {byte}", {"a": sides["a"][:8], "b": sides["b"], "a_scales": scale}


def _bytes(rows: int, seed: int) -> np.ndarray:
    row, block = np.arange(rows)[:, None], np.arange(tile_count(300))[None, :]
    return (110 + (5 * (row + row // 128) + 7 * block + seed) % 31).astype(np.uint8)
