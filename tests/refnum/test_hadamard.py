"""Rotations (N22): model against oracle, known answers, and the matrix's own laws."""

from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum import oracle
from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.nvfp4_scales import VARIANTS
from refnum.oracle import hadamard as second

ORDERS, DTYPES = ("exact", "sequential"), ("float32", "bfloat16")
KNOWN = [-15.5, -7.5, 7.5, -0.5, 7.5, -0.5, -15.5, 8.5, 8.5, 16.5, 1.5, 1.5, 1.5, -2.5, 10.5, -17.5]
ODD = np.array([0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F000000, 0x00400001, 0x3F800001], np.uint32)
SPECIAL = np.array([0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001], np.uint32)


def words(shape, seed, spread=3, odd=0.0, special=0.0):
    """float32 bits of both signs around 1, with numbers at the ends of the range, Inf and NaN among them."""
    dice = np.random.default_rng(seed)
    exponent = 127 + dice.integers(-spread, spread + 1, shape)
    bits = (dice.integers(0, 1 << 23, shape) | exponent << 23 | dice.integers(0, 2, shape) << 31).astype(np.uint32)
    strange = dice.choice(ODD, shape) | (dice.integers(0, 2, shape) << 31).astype(np.uint32)
    bits = np.where(dice.random(shape) < odd, strange, bits)
    return np.where(dice.random(shape) < special, dice.choice(SPECIAL, shape), bits)


def as_input(bits, dtype):
    return bits.view(np.float32) if dtype == "float32" else (bits >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)


def exact(x):
    return [[oracle.float_value(int(b), x.dtype.name) for b in row] for row in x.view(f"u{x.dtype.itemsize}").tolist()]


def bits_of(x):
    return x.view(f"u{x.dtype.itemsize}").tolist()


@pytest.mark.parametrize("order", ORDERS)
def test_the_published_signs_give_the_known_answer(order):
    x = np.arange(1, 17, dtype=np.float32)[None]
    assert refnum.hadamard16(x, order=order).astype(np.float32).tolist() == [KNOWN]
    assert refnum.hadamard16(x.T.copy(), axis=0, order=order).astype(np.float32).T.tolist() == [KNOWN]


def test_a_basis_vector_gives_its_row_of_the_matrix():
    found = refnum.hadamard16(np.eye(16, dtype=np.float32), dtype="float32")
    signs = [-1 if 0xD7E8 >> i & 1 else 1 for i in range(16)]
    assert found.tolist() == [[signs[i] * (-1) ** (i & j).bit_count() / 4 for j in range(16)] for i in range(16)]


def test_every_mask_negates_the_elements_of_its_bits():
    x = np.arange(1, 17, dtype=np.float32)[None]
    for signs in range(0, 1 << 16, 97):
        flipped = x * np.array([-1 if signs >> i & 1 else 1 for i in range(16)], np.float32)
        assert np.array_equal(refnum.hadamard16(x, signs), refnum.hadamard16(flipped, 0))


def test_a_rotation_without_signs_undoes_itself_where_nothing_is_rounded():
    x = np.random.default_rng(1).integers(-4096, 4096, (40, 64)).astype(np.float32)
    for axis in (-1, 0):
        x = x[: 32 if axis == 0 else 40]
        once = refnum.hadamard16(x, 0, axis, dtype="float32")
        assert np.array_equal(refnum.hadamard16(once, 0, axis, dtype="float32"), x)


def test_the_sum_over_rotated_operands_is_that_of_the_plain_ones():
    dice = np.random.default_rng(2)
    a, b = (dice.integers(-64, 64, (40, 8)).astype(np.float32) for _ in range(2))
    turned = [refnum.hadamard16(x, axis=0, dtype="float32").astype(np.float64) for x in (a, b)]
    assert turned[0].shape == (48, 8)
    assert np.array_equal(turned[0].T @ turned[1], a.astype(np.float64).T @ b.astype(np.float64))


@pytest.mark.parametrize(("order", "dtype", "given"), list(itertools.product(ORDERS, DTYPES, DTYPES)))
def test_the_model_equals_the_oracle(order, dtype, given):
    kinds = [(2, 0, 0), (8, 0, 0), (30, 0, 0), (126, 0, 0), (20, 0.3, 0), (126, 0.5, 0), (3, 0.1, 0.05)]
    for seed, (spread, odd, special) in enumerate(kinds):
        x = as_input(words((2, 16), seed, spread, odd, special), given)
        for axis, signs in ((-1, 0xD7E8), (0, 0x0001)):
            want = second.hadamard16(exact(x), signs, axis, order, dtype)[0]
            assert bits_of(refnum.hadamard16(x, signs, axis, order, dtype)) == want


@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_sums_are_rounded_once_where_large_terms_cancel(dtype):
    """A tie of the result's last place, with a smallest number beside it that decides, under terms that cancel."""
    tie = 0x3F800080 if dtype == "float32" else 0x3F808000
    rows = []
    for small in (0, 1, 0x80000001, 0x00800000):
        for large in (0, 0x7F000000, 0x5F000000, 0x30000000):
            row = np.zeros(16, np.uint32)
            row[[0, 3, 5, 9]] = tie, small, large, large ^ (0x80000000 if large else 0)
            rows.append(row)
    rows.append(np.zeros(16, np.uint32))
    rows[-1][[0, 3, 5]] = tie, 0x20000000, 0xA0000000  # nothing is left below the tie, which is of the upper places
    x = np.array(rows, np.uint32).view(np.float32)
    for signs in (0, 0xD7E8, 0x0208):
        want = second.hadamard16(exact(x), signs, -1, "exact", dtype)[0]
        assert bits_of(refnum.hadamard16(x, signs, -1, "exact", dtype)) == want


def test_the_two_orders_give_one_result_where_a_group_spans_few_binades():
    bits = words((2000, 16), 11, 2) & np.uint32(0xFFFF0000)
    x = as_input(bits, "bfloat16")
    assert np.array_equal(*(refnum.hadamard16(x, order=order).view(np.uint16) for order in ORDERS))
    wide = as_input(words((2000, 16), 11, 20), "bfloat16")
    assert not np.array_equal(*(refnum.hadamard16(wide, order=order).view(np.uint16) for order in ORDERS))


@pytest.mark.parametrize(("variant", "axis"), [*itertools.product(VARIANTS, (0,)), ("TE", -1)])
def test_the_fused_operation_equals_the_oracle(variant, axis):
    for dtype, order in zip(DTYPES, ORDERS, strict=True):
        x = as_input(words((18, 16), 5, 4, 0.02), dtype)[: 2 if variant.startswith("FOUR") or axis else 18]
        for amax in (None, np.array([9.3], np.float32)):
            given = None if amax is None else oracle.float_value(int(amax.view(np.uint32)[0]))
            shape = x.shape if axis else (16, -(-len(x) // 16) * 16)
            rbits = np.random.default_rng(3).integers(0, 256, shape).astype(np.uint8) if amax is None else None
            draws = None if rbits is None else rbits.tolist()
            want = second.hadamard_quantize_nvfp4(exact(x), 0x35A1, axis, order, variant, given, draws)
            got = refnum.hadamard_quantize_nvfp4(x, 0x35A1, axis, order, variant, amax, rbits=rbits)
            assert [got[0].tolist(), got[1].tolist(), got[2].view(np.uint32).tolist()] == list(want)


def test_the_column_operand_is_that_of_the_transpose_where_groups_are_whole():
    x = as_input(words((64, 48), 8, 4), "bfloat16")
    for more in ({}, {"layout_out": "swizzled"}, {"philox": (1, 2, 3)}):
        along = refnum.hadamard_quantize_nvfp4(x, axis=0, **more)
        across = refnum.hadamard_quantize_nvfp4(np.ascontiguousarray(x.T), **more)
        assert all(np.array_equal(a, b) for a, b in zip(along, across, strict=True))


def test_the_maximum_is_that_after_the_rotation():
    x = np.ones((1, 16), np.float32)
    assert refnum.hadamard_quantize_nvfp4(x, 0)[2].tolist() == [4]
    assert refnum.hadamard_quantize_nvfp4(x, 0xD7E8)[2].tolist() == [2]


def test_the_mean_over_all_random_bytes_is_the_scaled_number_cut_to_the_lattice():
    """The expectation of each code, by enumeration of its 256 bytes: unbiased down to 1/256 of a step (N22.6)."""
    row = as_input(words((1, 16), 4, 1), "bfloat16")
    x = np.repeat(row.view(np.uint16), 256, axis=0).view(ml_dtypes.bfloat16)
    rbits = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 16, axis=1)
    packed, scales, amax = refnum.hadamard_quantize_nvfp4(x, rbits=rbits)
    codes = refnum.layouts.codes_from_packed(packed)
    rotated = refnum.hadamard16(row).astype(np.float32)
    ((scale, factor),) = second.nvfp4.candidates("TE", *[int(amax.view(np.uint32)[0])] * 2)
    assert set(scales.ravel().tolist()) == {scale}
    grid = [Fraction(v).limit_denominator(2) for v in (0, 0.5, 1, 1.5, 2, 3, 4, 6)]
    for lane in range(16):
        bits = oracle.float32_multiply(int(rotated.view(np.uint32)[0, lane]), factor)
        y = abs(oracle.float_value(bits))
        mean = sum((grid[int(code) & 7] for code in codes[:, lane]), Fraction(0)) / 256
        step = Fraction(1, 2) if y < 2 else 1 if y < 4 else 2
        assert 0 <= y - mean < step / 256


@pytest.mark.parametrize(("change", "error"), [
    ({"signs": 1 << 16}, ArgumentError), ({"signs": -1}, ArgumentError), ({"signs": True}, ArgumentError),
    ({"axis": 1}, ArgumentError), ({"axis": -2}, ArgumentError),
    ({"axis": True}, ArgumentError), ({"axis": 0.0}, ArgumentError),
    ({"order": "tree"}, ArgumentError), ({"x": np.zeros((2, 24), np.float32)}, ShapeError),
    ({"x": np.zeros(16, np.float32)}, ShapeError), ({"x": np.zeros((2, 16), np.float16)}, DtypeError),
    ({"x": np.zeros((2, 16), np.float64)}, DtypeError)])  # fmt: skip
@pytest.mark.parametrize("function", [refnum.hadamard16, refnum.hadamard_quantize_nvfp4])
def test_bad_arguments_are_refused(function, change, error):
    with pytest.raises(error):
        function(**{"x": np.zeros((2, 32), np.float32), **change})
    if function is refnum.hadamard16:
        with pytest.raises(ArgumentError):
            function(np.zeros((2, 32), np.float32), dtype="float16")


@pytest.mark.parametrize("axis", [-1, 0])
def test_empty_tensors(axis):
    for shape in ((0, 32), (3, 0)):
        x = np.zeros(shape, np.float32)
        tall = shape[0] if axis else 16 * (shape[0] > 0)
        assert refnum.hadamard16(x, axis=axis).shape == (tall, shape[1])
        packed, scales, amax = refnum.hadamard_quantize_nvfp4(x, axis=axis)
        wide = (tall, shape[1]) if axis else (shape[1], tall)
        assert packed.shape == (wide[0], wide[1] // 2) and scales.shape == (wide[0], wide[1] // 16)
        assert amax.tolist() == [0]


def squares(tiles, variant, amax=None):
    """Codes and scales of each 16x16 tile [n, 16, 16]."""
    packed, scales, _ = refnum.quantize_nvfp4(tiles.reshape(-1, 16), variant, amax, (16, 16))
    return refnum.layouts.codes_from_packed(packed).reshape(tiles.shape), scales[:, 0]


@pytest.mark.parametrize("variant", ["TE", "TE_2_8", "TORCHAO", "MODELOPT"])
def test_one_quantisation_in_squares_serves_both_products(variant):
    """The copy for the other axis has the transposed codes and the same scales (N22.8)."""
    tiles = words((200, 16, 16), 41, 6, 0.02, 0.005).view(np.float32)
    turned = np.ascontiguousarray(tiles.transpose(0, 2, 1))
    (codes, scales), (other, same) = squares(tiles, variant), squares(turned, variant)
    assert np.array_equal(codes, other.transpose(0, 2, 1)) and np.array_equal(scales, same)


def test_four_over_six_can_choose_another_scale_for_the_transpose():
    amax = np.array([0x41110000], np.uint32).view(np.float32)  # both scales of a block often have the same error
    bits = words((1 << 14, 16), 42, 1) & np.uint32(0x80FFF000) | np.uint32(0x3F000000)
    rows = bits.view(np.float32)
    turned = np.ascontiguousarray(rows[:, ::-1])
    chosen = [refnum.quantize_nvfp4(x, "FOUR_OVER_SIX", amax)[1] for x in (rows, turned)]
    telling = rows[(chosen[0] != chosen[1])[:, 0]]  # where the order of a sum decides
    lane, line, way = np.arange(16), np.arange(16)[:, None], np.arange(120)[:, None, None]
    tiles = telling[:, ((way // 15 * 2 + 1) * lane + (way % 15 + 1) * line) % 16].reshape(-1, 16, 16)
    other = np.ascontiguousarray(tiles.transpose(0, 2, 1))
    assert not np.array_equal(*(squares(x, "FOUR_OVER_SIX", amax)[1] for x in (tiles, other)))


@pytest.mark.parametrize("pattern", [0x7F800001, 0xFF800001, 0x7FC00000, 0x7FFFFFFF])
@pytest.mark.parametrize("order", ["exact", "sequential"])
def test_every_nan_is_one_whatever_its_payload(pattern, order):
    x = np.ones((2, 16), np.float32)
    x.view(np.uint32)[1, 5] = pattern
    assert np.isnan(refnum.hadamard16(x, order=order, dtype="float32")).tolist() == [[False] * 16, [True] * 16]


def last_place_is_lost():
    """Return a bfloat16 number of the least binade before fifteen of the 14th, whose sum grows and shrinks again."""
    x = np.full((16, 16), 0x077F0000, np.uint32)  # a row for each row of the matrix, in the signs of its column
    x[:, 0] = 0x00810000
    minus = np.array([[(0xD7E8 >> i & 1) ^ ((i & j).bit_count() & 1) for i in range(16)] for j in range(16)])
    falling = np.arange(16) > 9
    return x | (minus ^ falling).astype(np.uint32) << np.uint32(31)


@pytest.mark.parametrize("bits", [last_place_is_lost(), words((64, 16), 8, 6) & np.uint32(0xFFFF0000) | np.uint32(1)])
def test_what_may_round_is_added_in_order(bits):
    """Numbers of one binade more than whose sums are exact; and numbers of 24 bits that differ in few low ones."""
    x = bits.view(np.float32)
    want, sums = (second.hadamard16(exact(x), 0xD7E8, -1, order, "float32")[0] for order in ORDERS[::-1])
    assert bits_of(refnum.hadamard16(x, order="sequential", dtype="float32")) == want != sums
