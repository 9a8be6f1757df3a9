"""The bounds of products (N19.7) hold every admitted order: whole small domains, every order of few steps."""

import functools
import itertools
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from test_tensor_core import codes

from refnum import softfloat
from refnum.bounds import _Places, product_bounds
from refnum.codec import value
from refnum.errors import DtypeError, ProfileError, ScaleError, ShapeError
from refnum.formats import get_format
from refnum.product import matmul_fp8, tensor_core_step
from refnum.tensor_core import INSTRUCTIONS, require_operands

STEP = 32


def chains(blocks):
    """Every partition of blocks into ordered chains: an order of all blocks, cut anywhere."""
    for order in itertools.permutations(blocks):
        for cuts in itertools.product((False, True), repeat=len(order) - 1):
            parts = [[order[0]]]
            for block, cut in zip(order[1:], cuts, strict=True):
                if cut:
                    parts.append([])
                parts[-1].append(block)
            yield tuple(map(tuple, parts))


def trees(items):
    """Every binary tree over items in this order, as nested pairs."""
    if len(items) == 1:
        yield items[0]
        return
    for cut in range(1, len(items)):
        yield from itertools.product(list(trees(items[:cut])), list(trees(items[cut:])))


def results(a, b, formats):
    """The bits of every admitted order of a @ b.T, each order once."""
    name, terms = ("wgmma_bf16", 16) if "BF16" in formats else ("wgmma_fp8", STEP)
    blocks = [slice(k, k + terms) for k in range(0, a.shape[1], terms)]

    @functools.cache
    def chain(numbers):
        c = None if len(numbers) == 1 else chain(numbers[:-1])
        terms = blocks[numbers[-1]]
        return tensor_core_step(a[:, terms], b[:, terms], c, name, *formats)

    def added(tree):
        if isinstance(tree[0], int):
            return chain(tree).view(np.uint32)
        return softfloat.add(added(tree[0]), added(tree[1]))

    for parts in set(chains(range(len(blocks)))):
        for tree in trees(parts):
            yield parts, added(tree).view(np.float32)


def held(low, high, found):
    """Whether every result lies within, is the NaN of both ends, or may be anything."""
    anything = (low == -np.inf) & (high == np.inf)
    return bool((anything | (np.isnan(low) & np.isnan(found)) | ((low <= found) & (found <= high))).all())


def ascending(parts):
    return all(part == tuple(range(part[0], part[0] + len(part))) for part in parts)


@pytest.mark.parametrize("formats", [("E4M3", "E4M3"), ("E5M2", "E4M3"), ("E5M2", "E5M2")])
@pytest.mark.parametrize("kind", ["near", "sparse", "finite"])
def test_every_order_of_four_steps_lies_within(formats, kind):
    rng = np.random.default_rng(len(kind))
    a, b = codes(rng, (5, 100), formats[0], kind), codes(rng, (6, 100), formats[1], kind)
    a[:2, 50:] = a[:2, :50] ^ 0x80  # large sums that cancel
    b[:3, 50:] = b[:3, :50]
    wide, narrow = (
        product_bounds(a, b, None, None, "any", *formats),
        product_bounds(a, b, None, None, "consecutive", *formats),
    )
    seen = 0
    for parts, found in results(a, b, formats):
        assert held(*wide, found), parts
        assert not ascending(parts) or held(*narrow, found), parts
        seen += 1
    assert seen == 24 * (1 + 3 * 1 + 3 * 2 + 5)  # orders of four blocks; cuts into 1 to 4 chains; trees over these


BF16 = ("BF16", "BF16")
RANGES = {
    "near": (0x3F00, 0x4180), "wide": (0x2000, 0x5E00), "subnormal": (0x1C00, 0x2080), "least": (0, 0x0100),
    "edge": (0x1B00, 0x2400), "anything": (0, 0x8000), "large": (0x5E00, 0x5F80),
}  # fmt: skip
"""Bits of |x|: products near each other, far apart, about 2**-126 and 2**-149, below every step, and overflowing."""


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize("sparse", [False, True])
def test_every_order_of_four_steps_of_bfloat16_lies_within(kind, sparse):
    rng = np.random.default_rng(len(kind))
    drawn = [rng.integers(*RANGES[kind], (r, 50)) | rng.integers(0, 2, (r, 50)) << 15 for r in (6, 7)]
    if sparse:
        drawn = [np.where(rng.random(x.shape) < 0.7, x & 0x8000, x) for x in drawn]
    a, b = (x.astype(np.uint16) for x in drawn)
    a[:2, 25:] = a[:2, :25] ^ np.uint16(0x8000)  # large sums that cancel
    b[:3, 25:] = b[:3, :25]
    wide, narrow = (product_bounds(a, b, None, None, chains, *BF16) for chains in ("any", "consecutive"))
    seen = 0
    for parts, found in results(a, b, BF16):
        assert held(*wide, found), parts
        assert not ascending(parts) or held(*narrow, found), parts
        seen += 1
    assert seen == 24 * (1 + 3 * 1 + 3 * 2 + 5)


@pytest.mark.parametrize("kind", ["near", "wide", "subnormal"])
def test_bounds_of_bfloat16_are_narrow(kind):
    """Of sums that do not cancel they are a few units of the last place apart, and the exact sum lies between."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(*RANGES[kind], (r, 256)).astype(np.uint16) for r in (4, 5))
    low, high = product_bounds(a, b, None, None, "any", *BF16)
    exact = [[sum(map(exact_product, x, y)) for y in b] for x in a]
    assert all(Fraction(float(lo)) <= e <= Fraction(float(hi)) for lo, e, hi in flat(low, exact, high))
    assert (high.view(np.int32) - low.view(np.int32)).max() <= 200


def exact_product(x, y):
    return value(get_format("BF16"), int(x)) * value(get_format("BF16"), int(y))


def flat(*arrays):
    return zip(*(np.asarray(x, object).ravel() for x in arrays), strict=True)


def test_specials_of_bfloat16_decide_unless_a_sum_may_overflow():
    a = np.full((6, 32), 0x3F80, np.uint16)
    a[0, 3] = 0x7F80  # Inf
    a[1, 3], a[1, 20] = 0x7F80, 0xFF80  # NaN
    a[2, 3], a[2, 20:24] = 0x7F80, 0xFF00  # Inf, or NaN in orders whose other sums overflow to -Inf
    a[3, 3] = 0x7FC0
    a[5, 20], a[5, 3:7] = 0x7F80, 0xFF00  # Inf after such a sum
    b = np.full((1, 32), 0x4000, np.uint16)
    low, high = (end[:, 0] for end in product_bounds(a, b, None, None, "any", *BF16))
    assert low[0] == high[0] == np.inf and np.isnan([low[1], high[1], low[3], high[3]]).all()
    assert (low[2], high[2]) == (low[5], high[5]) == (-np.inf, np.inf) and low[4] <= 64 <= high[4]
    for parts, found in results(a, b, BF16):
        assert held(low[:, None], high[:, None], found), parts


def test_an_infinity_beside_a_zero_or_the_largest_numbers_has_one_result():
    a = np.array([[np.inf, 1]], ml_dtypes.bfloat16)
    b = np.array([[0, 1], [2.0**127, 1], [-(2.0**127), 0], [2.0**-133, 0]], ml_dtypes.bfloat16)
    for end in product_bounds(a, b, None, None, "any", *BF16):
        np.testing.assert_array_equal(end, [[np.nan, np.inf, -np.inf, np.inf]])


def test_bounds_of_bfloat16_take_no_scales_and_no_other_format():
    a = np.ones((2, 32), ml_dtypes.bfloat16)
    with pytest.raises(ScaleError, match="no scales"):
        product_bounds(a, a, np.ones((1, 1), np.float32), None, "any", *BF16)
    with pytest.raises(ProfileError, match="BF16"):
        product_bounds(a, a, None, None, "any", "E4M3", "BF16")
    with pytest.raises(DtypeError):
        product_bounds(a.view(np.uint8), a.view(np.uint8), None, None, "any", *BF16)
    low, high = product_bounds(a, a, None, None, "any", *BF16)
    assert (low <= 32).all() and (high >= 32).all()


def every_sum(values, terms):
    """Codes [R, terms * 32]: every choice of a value of either sign for the first lane of each block."""
    signed = sorted({*values, *(value | 0x80 for value in values)})
    rows = np.array(list(itertools.product(signed, repeat=terms)), np.uint8)
    out = np.zeros((len(rows), terms * STEP), np.uint8)
    out[:, ::STEP] = rows
    return out


@pytest.mark.parametrize("small", [0x01, 0x09, 0x2F])
def test_every_sum_of_three_steps_in_every_order_lies_within(small):
    """9 codes of either sign and 0 in each of three steps, times 448 and a small number: 6,859 sums, all orders."""
    a = every_sum([0x00, 0x01, 0x07, 0x0B, 0x27, 0x38, 0x39, 0x50, 0x6F, 0x7E], 3)
    b = np.zeros((2, 3 * STEP), np.uint8)
    b[:, ::STEP] = np.array([0x7E, small])[:, None]
    low, high = product_bounds(a, b)
    orders = 0
    for parts, found in results(a, b, ("E4M3", "E4M3")):
        assert held(low, high, found), parts
        orders += 1
    assert orders == 6 * (1 + 2 + 2)


def test_every_pair_beside_a_large_term_lies_within():
    """Every code beside 448 * 448 in one step and in two: 65,536 products each."""
    a = np.zeros((256, 2 * STEP), np.uint8)
    a[:, 0], a[:, 1], a[:, STEP] = np.arange(256), 0x7E, np.arange(256)
    b = a[[0x01, 0x08, 0x38, 0x55, 0x7E, 0xA7, 0xFE]]
    finite = (a[:, 0] & 0x7F) != 0x7F
    low, high = (end[finite] for end in product_bounds(a, b))
    for _, found in results(a[finite], b, ("E4M3", "E4M3")):
        assert held(low, high, found)


def test_some_results_alone_have_the_bounds_of_all():
    rng = np.random.default_rng(1)
    a, b = codes(rng, (9, 300), "E4M3", "anything"), codes(rng, (7, 300), "E4M3", "finite")
    scales = rng.integers(110, 130, (9, 3)).astype(np.uint8)
    where = rng.random((9, 7)) < 0.3
    whole, some = product_bounds(a, b, scales), product_bounds(a, b, scales, where=where)
    decided = np.isnan(matmul_fp8(a, b, scales))
    for one, other in zip(whole, some, strict=True):
        assert np.array_equal(one.view(np.uint32)[where | decided], other.view(np.uint32)[where | decided])
        assert np.isinf(other[~where & ~decided]).all()


def test_where_is_a_mask_of_results():
    a = np.zeros((2, 32), np.uint8)
    for where in (np.ones((2, 3), bool), np.ones((2, 2), np.uint8)):
        with pytest.raises(ShapeError, match="one for each result"):
            product_bounds(a, a, where=where)


def test_products_of_more_than_40_bits_are_integers_of_any_length():
    """So that sums of four million products have room in 64 bits."""
    numbers = np.array([[0x3F80, 0x4C00]], np.uint16)  # 1 and 2**25, of eight bits each
    facts = INSTRUCTIONS["wgmma_bf16"]
    assert _Places.of(facts, *require_operands(numbers, numbers[:, :1].repeat(2, 1), facts, *BF16)).wide is object


FROZEN = Path(__file__).with_name("product_bounds.txt")


def frozen_cases():
    """Label -> arguments of `product_bounds`: finite codes, special ones, scales of every kind."""
    rng = np.random.default_rng(12)
    formats = [("E4M3", "E4M3"), ("E5M2", "E4M3"), ("E4M3", "E5M2"), ("E5M2", "E5M2")]
    kinds = ("none", "row", "float", "block")
    for number, (kind, scaled) in enumerate(itertools.product(("near", "sparse", "finite", "special"), kinds)):
        pair, k = formats[number % 4], (300, 100, 33, 256)[number // 4]
        a, b = (
            codes(rng, (rows, k), name, kind.replace("special", "finite"))
            for rows, name in zip((3, 2), pair, strict=True)
        )
        if kind == "special":
            a[1, 3], a[2, 5] = 0x7F, 0x7C if pair[0] == "E5M2" else 0xFF
            b[1, 7] = 0x7C if pair[1] == "E5M2" else b[1, 7]
        a[0, k // 2 : k // 2 * 2] = a[0, : k // 2] ^ 0x80  # sums that cancel
        b[0, k // 2 : k // 2 * 2] = b[0, : k // 2]
        shapes = [(rows, -(-k // 128) if scaled == "block" else 1) for rows in (3, 2)]
        scales = [rng.integers(100, 150, shape).astype(np.uint8) for shape in shapes]
        if scaled == "float":
            scales = [(s.astype(np.uint32) << 23 | rng.integers(0, 1 << 23, s.shape, np.uint32)).view(np.float32)
                      for s in scales]  # fmt: skip
            scales[1][0] *= -1
        scales = [None, None] if scaled == "none" else scales
        yield f"{kind} {scaled} {pair[0]} {pair[1]}", (a, b, *scales), pair
    for kind, (least, most) in RANGES.items():
        for k in (16, 50, 90):
            a, b = ((rng.integers(least, most, (rows, k)) | rng.integers(0, 2, (rows, k)) << 15).astype(np.uint16)
                    for rows in (3, 2))  # fmt: skip
            a[0, k // 2 : k // 2 * 2] = a[0, : k // 2] ^ np.uint16(0x8000)
            b[0, k // 2 : k // 2 * 2] = b[0, : k // 2]
            a[2] &= np.uint16(0x7FFF)
            b[1] &= np.uint16(0x7FFF)
            yield f"{kind} BF16 {k}", (a, b, None, None), BF16
    for left, right in ((0x5F00, 0x5F00), (0x5F00, 0x5F7F), (0x5F00, 0x5F80), (0x5F7F, 0x5F7F), (0x5F80, 0x5F80)):
        x, y = (np.array([[word, 0x0001], [word | 0x8000, 0]], np.uint16) for word in (left, right))
        yield f"top {left:04X} {right:04X}", (x, y, None, None), BF16
    least = np.array([[0x01, 0x38], [0x01, 0x01]], np.uint8)
    yield "significands of one", (least, least, None, None), ("E4M3", "E4M3")
    beside = (np.array([[0x7F7F, 0x7F7F, 0x7F80], [0x7F7F, 0x7F7F, 0x3F80]], np.uint16),
              np.array([[0x0D80, 0x0D80, 0x0D80]], np.uint16))  # fmt: skip
    yield "largest numbers beside small ones", (*beside, None, None), BF16
    for left, right in ((0x7E800000, 0x00800000), (0x7F000000, 0x00400000), (0x7F7FFFFF, 0x00400000)):
        one, scales = np.array([[0x38]], np.uint8), (np.array([[s]], np.uint32).view(np.float32) for s in (left, right))
        yield f"scales {left:08X} {right:08X}", (one, one, *scales), ("E4M3", "E4M3")
    for scale in (0x00000001, 0x007FFFFF, 0x7E800000, 0x73800000, 0x74000000, 0xF3FFFFFF, 0x7F7FFFFF, 0x40490FDB):
        a = codes(rng, (3, 70), "E4M3", "near")
        one = np.array([[scale]], np.uint32).view(np.float32)
        yield f"one scale 0x{scale:08X}", (a, a[:2], one, None), ("E4M3", "E4M3")
    yield "scales below 1", (a, a[:2], np.float32([[2.0**-75]] * 3), np.float32([[2.0**-74]] * 2)), ("E4M3", "E4M3")
    wide = np.array([[0x3F80, 0x4CFF]], np.uint16)
    yield "products of 68 bits", (wide, wide, None, None), BF16
    steps = rng.integers(0x20, 0x50, (400, STEP), np.uint8) | rng.integers(0, 2, (400, STEP), np.uint8) << 7
    steps[:, :2] = 0x7E, 0xFE  # what cancels leaves room to sharpen the bounds of the accumulators again and again
    yield "many steps", (steps.reshape(1, -1), np.full((1, 400 * STEP), 0x38, np.uint8), None, None), ("E4M3", "E4M3")


def bounds_in_words():
    for label, arguments, pair in frozen_cases():
        for chains_ in ("any", "consecutive"):
            ends = (end.view(np.uint32).ravel().tolist() for end in product_bounds(*arguments, chains_, *pair))
            words = " ".join(f"{low:08X}-{high:08X}" for low, high in zip(*ends, strict=True))
            yield f"{label}, {chains_}: {words}"


def test_bounds_are_neither_wider_nor_narrower_than_they_were():
    """`python tests/refnum/test_product_bounds.py` writes them anew."""
    assert list(bounds_in_words()) == FROZEN.read_text().splitlines()


if __name__ == "__main__":
    FROZEN.write_text("\n".join(bounds_in_words()) + "\n")
