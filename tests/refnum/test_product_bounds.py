"""The bounds of products (N19.7) hold every admitted order: whole small domains, every order of few steps."""

import functools
import itertools

import numpy as np
import pytest
from test_tensor_core import codes

from refnum import softfloat
from refnum.bounds import product_bounds
from refnum.errors import ShapeError
from refnum.product import matmul_fp8, tensor_core_step

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
    blocks = [slice(k, k + STEP) for k in range(0, a.shape[1], STEP)]

    @functools.cache
    def chain(numbers):
        c = None if len(numbers) == 1 else chain(numbers[:-1])
        terms = blocks[numbers[-1]]
        return tensor_core_step(a[:, terms], b[:, terms], c, "wgmma_fp8", *formats)

    def added(tree):
        if isinstance(tree[0], int):
            return chain(tree).view(np.uint32)
        return softfloat.add(added(tree[0]), added(tree[1]))

    for parts in set(chains(range(len(blocks)))):
        for tree in trees(parts):
            yield parts, added(tree).view(np.float32)


def held(low, high, found):
    return bool(((low <= found) & (found <= high)).all())


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
