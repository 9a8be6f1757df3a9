"""TetraJet (N24): model against oracle along both axes, theorems by enumeration, known answers."""

from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum import oracle
from refnum.arrays import unpack_nibbles
from refnum.errors import ArgumentError, DtypeError, ScaleError, ShapeError
from refnum.oracle import tetrajet as second
from refnum.tetrajet import RATIOS, RULES, TIES, ZERO_BYTE, block_bytes, neighbour_codes

PATTERNS = np.array([0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x01400001, 0x0140C000,
                     0x40C00000, 0x40C00001, 0x40C0C000, 0x40C0C001, 0x7E967699, 0x0140C001], np.uint32)  # fmt: skip


def words(shape, seed, spread=10, odd=0.02):
    """float32 bits of every size around 1, subnormals, NaN and Inf among them."""
    dice = np.random.default_rng(seed)
    exponent = 127 + dice.integers(-spread, spread + 1, shape)
    found = (dice.integers(0, 1 << 23, shape) | exponent << 23 | dice.integers(0, 2, shape) << 31).astype(np.uint32)
    strange = dice.choice(PATTERNS, shape) | (dice.integers(0, 2, shape) << 31).astype(np.uint32)
    return np.where(dice.random(shape) < odd, strange, found)


def exact(x):
    name = x.dtype.name
    return [[oracle.float_value(int(b), name) for b in row] for row in x.view(f"u{x.dtype.itemsize}").tolist()]


def same(got, want):
    return all(g.tolist() == w for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize(("axis", "rule", "ties", "ratio"), list(itertools.product((1, 0), RULES, TIES, RATIOS)))
def test_the_model_equals_the_oracle(axis, rule, ties, ratio):
    for seed, (spread, odd, dtype) in enumerate(
        ((2, 0, np.float32), (5, 0.003, ml_dtypes.bfloat16), (40, 0, np.float16), (126, 0.003, np.float32))
    ):
        with np.errstate(over="ignore"):
            x = words((33, 32), seed, spread, odd).view(np.float32).astype(dtype)
        assert same(refnum.quantize_tetrajet(x, axis, rule, ties, ratio),
                    second.quantize_tetrajet(exact(x), axis, rule, ties, ratio))  # fmt: skip


@pytest.mark.parametrize(("axis", "rule"), list(itertools.product((1, 0), RULES)))
def test_the_average_decides_as_in_the_oracle(axis, rule):
    for seed, (spread, odd) in enumerate(((2, 0), (4, 0.004), (20, 0.002))):
        w = words((34, 32), seed, spread, odd)
        near = w ^ (np.random.default_rng(9).integers(0, 1 << 23, w.shape).astype(np.uint32) & np.uint32(0x7FFFFF))
        ema = np.where(np.random.default_rng(8).random(w.shape) < 0.8, near, words(w.shape, seed + 50, 3, 0.1))
        w, ema = w.view(np.float32), ema.view(np.float32)
        assert same(refnum.q_ema(w, ema, axis, rule), second.q_ema(exact(w), exact(ema), axis, rule))


@pytest.mark.parametrize("axis", [1, 0])
def test_random_bits_decide_as_in_the_oracle(axis):
    x = words((33, 64), 8, 3, 0.001).view(np.float32)
    rbits = np.random.default_rng(3).integers(0, 256, x.shape).astype(np.uint8)
    assert same(
        refnum.quantize_tetrajet(x, axis, rbits=rbits), second.quantize_tetrajet(exact(x), axis, rbits=rbits.tolist())
    )
    keyed = refnum.quantize_tetrajet(x, axis, philox=(7, 3, 0, 64))
    rbits = refnum.philox.random_bits(x.shape, 8, seed=7, stream=3, offset=64)
    assert same(keyed, [part.tolist() for part in refnum.quantize_tetrajet(x, axis, rbits=rbits)])


@pytest.mark.parametrize("axis", [1, 0])
def test_double_quantisation_is_the_second_quantiser_of_the_first_ones_numbers(axis):
    x = words((64, 64), 4, 4, 0.0005).view(np.float32)
    packed, scales = refnum.quantize_tetrajet(x, 1 - axis)
    rbits = np.random.default_rng(3).integers(0, 256, x.shape).astype(np.uint8)
    got = refnum.double_quantise(packed, scales, axis, rbits=rbits)
    assert same(got, second.double_quantise(packed.tolist(), scales.tolist(), axis, rbits=rbits.tolist()))
    numbers = refnum.dequantize_tetrajet(packed, scales, 1 - axis)
    want = second.dequantize_tetrajet(packed.tolist(), scales.tolist(), 1 - axis)
    assert numbers.view(np.uint32).tolist() == [[oracle.float_bits(v) for v in row] for row in want]


def test_an_axis_is_the_other_one_of_the_transpose():
    x = words((64, 96), 6, 4, 0.001).view(np.float32)
    down, across = refnum.quantize_tetrajet(x, 0), refnum.quantize_tetrajet(np.ascontiguousarray(x.T), 1)
    assert np.array_equal(unpack_nibbles(down[0]).T, unpack_nibbles(across[0]))
    assert np.array_equal(down[1].T, across[1])


def test_along_rows_two_rules_are_those_of_mxfp4():
    x = words((64, 96), 6, 30, 0.001).view(np.float32)
    x[3, :32] = 0
    for rule, profile in (("exact", "HOPPER"), ("microscaling", "OCP")):
        (packed, scales), (same_packed, same_scales) = (
            refnum.quantize_tetrajet(x, 1, rule),
            refnum.quantize_mxfp4(x, profile),
        )
        assert np.array_equal(packed, same_packed)
        assert np.array_equal(np.where(scales == ZERO_BYTE, scales, same_scales), scales)
        assert scales[3, 0] == ZERO_BYTE == 98


def test_a_ratio_in_float32_is_the_exact_rule_but_for_one_number():
    """N24.5: both bytes rise with the maximum, the exact one just above 6 * 2**k; so numbers near these decide all."""
    tops = np.array([oracle.float_bits(6 * Fraction(2) ** k) for k in range(-149, 126)], np.int64)
    near = np.unique(np.clip(tops[:, None] + np.arange(-32, 33), 1, 0x7F7FFFFF)).astype(np.uint32)
    near = np.resize(near, (1, -(-len(near) // 32) * 32))
    both = [block_bytes(near, 0, *chosen)[0] for chosen in (("truncation_free", "float32"), ("exact", "float32"))]
    assert (np.diff(both[0][: near.size - 32].astype(int)) >= 0).all()
    assert set(near[0, both[0] != both[1]].tolist()) == {0x01400001}


def test_a_ratio_in_bfloat16_leaves_out_a_part_in_256():
    """N24.5: the scaled maximum is at most 6 * (1 + 2**-8) where the sixth is a normal number."""
    bits = np.arange(0x40800000, 0x41000000, 3, dtype=np.uint32)
    bits = bits[: len(bits) // 32 * 32].reshape(1, -1)
    byte = block_bytes(bits, 0, "truncation_free", "bfloat16")
    scaled = bits.view(np.float32).astype(np.float64) / np.ldexp(1.0, byte.astype(int) - 127)
    assert scaled.max() <= 6 * (1 + 2**-8) and (scaled > 6).any()
    assert refnum.quantize_tetrajet(np.full((1, 32), 6.0234375, np.float32))[1] == 127
    assert refnum.quantize_tetrajet(np.full((1, 32), 6.0234375, np.float32), rule="exact")[1] == 128


def test_the_mean_over_all_random_bytes_is_the_number():
    """Unbiased, by enumeration: every 16-bit magnitude on the lattice of 2**-8 steps beside a maximum of 6."""
    lattice = np.unique(
        np.concatenate([np.arange(2 * 512) / 512, 2 + np.arange(2 * 256) / 256, 4 + np.arange(257) / 128])
    )
    x = np.full((-(-len(lattice) // 31), 32), 6, np.float32)
    flat = np.zeros(x.shape[0] * 31)
    flat[: len(lattice)] = lattice
    x[:, 1:] = flat.reshape(-1, 31)
    for sign in (1, -1):
        mean = np.zeros(x.shape)
        for byte in range(256):
            packed, scales = refnum.quantize_tetrajet(sign * x, rbits=np.full(x.shape, byte, np.uint8))
            mean += refnum.dequantize_tetrajet(packed, scales).astype(np.float64)
        assert np.array_equal(mean / 256, sign * x)


def test_off_the_lattice_the_mean_is_the_number_cut_to_it():
    x = np.zeros((1, 32), np.float32)
    x[0, :8] = [6, 0.1, 0.0013, 1.1, 2.77, 3.999, 4.4, 5.9999]
    means = np.zeros(32)
    for byte in range(256):
        means += refnum.dequantize_tetrajet(*refnum.quantize_tetrajet(x, rbits=np.full(x.shape, byte, np.uint8)))[0]
    step = np.where(x[0] < 2, 0.5, np.where(x[0] < 4, 1, 2)) / 256
    assert np.array_equal(means / 256, np.floor(x[0].astype(np.float64) / step) * step)


@pytest.mark.parametrize(("x", "average", "y"), [
    (0.3, 0.2, 0), (0.3, 0.25, 0.5), (0.2, 0.3, 0.5), (1.3, 1.2, 1), (1.3, 1.9, 1.5), (2.6, 2.4, 2), (-2.6, -2.4, -2),
    (-2.6, 2.4, -2), (5.1, 4.9, 4), (5.1, 9.0, 6), (1.9, 0.1, 1.5), (2, 2.5, 3), (6, 9, 6), (0, 3, 0), (1, np.nan, 1),
    (1, np.inf, 1.5), (1, -np.inf, 1)])  # fmt: skip
def test_known_answers_of_the_average(x, average, y):
    w, ema = np.full((1, 32), 6, np.float32), np.full((1, 32), 6, np.float32)
    w[0, 1], ema[0, 1] = x, average
    assert refnum.dequantize_tetrajet(*refnum.q_ema(w, ema))[0, 1] == y


def test_the_average_chooses_a_neighbour_of_the_weight():
    """Every weight of 256 lattice points a unit, beside averages everywhere: the result is one of two codes."""
    x = np.arange(6 * 256 + 1, dtype=np.float64) / 256
    averages = np.linspace(-8, 8, 129)
    w, ema = (part.astype(np.float32).view(np.uint32) for part in np.meshgrid(x, averages))
    codes = neighbour_codes(w, ema, np.zeros(w.shape, np.int32)).astype(int)
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    lower = np.searchsorted(levels, x, side="right") - 1
    assert ((codes == lower) | (codes == np.minimum(lower + 1, 7))).all()
    middle = (levels + np.append(levels[1:], np.inf))[lower] / 2
    up = (averages[:, None] >= middle) & (x > 0)
    assert np.array_equal(codes, np.minimum(lower + up, 7))


def test_refusals():
    x = np.zeros((4, 32), np.float32)
    packed, scales = refnum.quantize_tetrajet(x)
    bad = [
        (ArgumentError, lambda: refnum.quantize_tetrajet(x, 2)),
        (ArgumentError, lambda: refnum.quantize_tetrajet(x, True)),
        (ArgumentError, lambda: refnum.quantize_tetrajet(x, rule="ceil")),
        (ArgumentError, lambda: refnum.quantize_tetrajet(x, ties="zero")),
        (ArgumentError, lambda: refnum.quantize_tetrajet(x, ratio="float16")),
        (ArgumentError, lambda: refnum.quantize_tetrajet(x, rbits=np.zeros((4, 32), np.uint8), philox=(1, 0, 0))),
        (ArgumentError, lambda: refnum.quantize_tetrajet(x, rbits=np.full((4, 32), 256, np.uint16))),
        (ShapeError, lambda: refnum.quantize_tetrajet(x[:, :31])),
        (DtypeError, lambda: refnum.quantize_tetrajet(x.astype(np.float64))),
        (ShapeError, lambda: refnum.q_ema(x, x[:2])),
        (ShapeError, lambda: refnum.dequantize_tetrajet(packed, scales, 0)),
        (ScaleError, lambda: refnum.dequantize_tetrajet(packed, scales.astype(np.float32))),
        (ShapeError, lambda: refnum.double_quantise(packed, scales, 1)),
        (ShapeError, lambda: refnum.double_quantise(*refnum.quantize_tetrajet(x, 0))),
    ]
    for error, call in bad:
        with pytest.raises(error):
            call()


@pytest.mark.parametrize("axis", [1, 0])
def test_every_element_ends_in_the_models_code(axis):
    x = words((40, 64), 4, 4, 0.003).view(np.float32)
    x[:, 3] = 0
    ema = np.roll(x, 1)
    random = {"rbits": np.zeros(x.shape, np.uint8)}
    averaged = {"w": x, "ema": ema, "axis": axis}
    for operation, given in (("quantize_tetrajet", {"x": x, "axis": axis}), ("q_ema", averaged),
                             ("quantize_tetrajet", {"x": x, "axis": axis, **random})):  # fmt: skip
        packed, scales = getattr(refnum, operation)(**given)
        for row, column in ((0, 0), (39, 63), (33, 3), (7, 40)):
            told = refnum.explain(operation, given, (row, column))
            assert told.code == unpack_nibbles(packed)[row, column]
            assert told.scale == scales[(row, column // 32) if axis else (row // 32, column)]
            assert told.steps[0].name == "element" and told.steps[-1].name == "code"
