"""Bit patterns, grids and distributions: exact against fractions, the same on every machine."""

from fractions import Fraction

import numpy as np
import pytest

from refnum.conformance.cases.draw import CODED, VALUES, Draw
from refnum.conformance.cases.draw.bits import as_float, assemble, exact, float_bits, input_format, normalise
from refnum.conformance.cases.draw.coded import Layout
from refnum.conformance.cases.draw.grid import grid, overflow_threshold, scale_thresholds, walking
from refnum.conformance.cases.draw.values import Target
from refnum.errors import ArgumentError
from refnum.formats import BF16, E2M1, E4M3, FP16, FP32, MXINT8

FLOATS = (FP32, BF16, FP16)


def value_of(pattern: int, fmt) -> Fraction:
    """The exact value of a positive finite pattern, from the fields alone."""
    field, fraction = pattern >> fmt.mantissa_bits, pattern & ((1 << fmt.mantissa_bits) - 1)
    lead = 1 << fmt.mantissa_bits if field else 0
    return (lead + fraction) * Fraction(2) ** (max(field, 1) - fmt.bias - fmt.mantissa_bits)


@pytest.mark.parametrize("fmt", FLOATS, ids=lambda f: f.name)
def test_assemble_is_the_largest_pattern_not_above_the_value(fmt):
    rng = np.random.default_rng(1)
    significand = rng.integers(1, 1 << 24, 400).astype(np.uint32)
    exponent = rng.integers(-180, 130, 400).astype(np.int32)
    pattern, kept = exact(fmt, significand, exponent)
    for s, e, p, whole in zip(significand.tolist(), exponent.tolist(), pattern.tolist(), kept.tolist(), strict=True):
        want = s * Fraction(2) ** e
        assert value_of(p, fmt) <= want
        assert p == fmt.max_code or value_of(p + 1, fmt) > want
        assert whole == (value_of(p, fmt) == want)


def test_normalise_counts_bits():
    number = np.arange(1, 1 << 16, dtype=np.uint32)
    lead, fraction = normalise(number)
    assert (lead == [int(n).bit_length() - 1 for n in number]).all()
    assert (((fraction | 1 << 23) >> (23 - lead).astype(np.uint32)) == number).all()


def test_as_float_keeps_every_pattern():
    bits = np.arange(1 << 16, dtype=np.uint16)
    for fmt in (BF16, FP16):
        assert (float_bits(as_float(bits, fmt)) == bits).all()
    with pytest.raises(ArgumentError, match="float64"):
        input_format("float64")


def test_grid_of_e2m1_is_the_published_table():
    values = [str(p.value) for p in grid(E2M1) if p.kind == "value"]
    assert values == ["0", "1/2", "1", "3/2", "2", "3", "4", "6"]
    assert [str(p.value) for p in grid(E2M1) if p.kind == "midpoint"] == ["1/4", "3/4", "5/4", "7/4", "5/2", "7/2", "5"]
    assert overflow_threshold(E2M1) == 7
    assert overflow_threshold(E4M3) == 464
    assert len(grid(E4M3)) == 127 + 126 + 1
    assert all(p.significand % 2 or p.value == 0 for p in grid(MXINT8))


def test_scale_thresholds_hold_every_rule():
    assert set(scale_thresholds(E2M1)) == {1, Fraction(3, 2), Fraction(7, 4), Fraction(31, 16)}
    assert Fraction(127, 64) in scale_thresholds(MXINT8)


def test_walking_has_ones_runs_and_neighbours():
    found = set(walking(7).tolist())
    assert {0, 1, 64, 127, 63, 96, 126, 2, 3} <= found
    assert max(found) == 127


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("fmt", FLOATS, ids=lambda f: f.name)
def test_a_value_distribution_is_deterministic_and_depends_on_the_seed(name, fmt):
    made, target = VALUES[name], Target(fmt, E2M1, 32)
    first, again, other = (made.make(Draw(seed), target, (9, 160), **made.simple) for seed in (3, 3, 4))
    assert first.shape == (9, 160) and first.dtype == (np.uint32 if fmt is FP32 else np.uint16)
    assert (first == again).all()
    assert name == "zero" or (first != other).any()


@pytest.mark.parametrize("name", VALUES)
def test_every_parameter_of_a_value_distribution_is_legal_at_its_limits(name):
    made = VALUES[name]
    for end in (0, 1):
        parameters = {key: limits[end] for key, limits in made.ranges.items()}
        bits = made.make(Draw(1), Target(BF16, E4M3, 128), (3, 96), **parameters)
        assert bits.shape == (3, 96)
    assert set(made.simple) == set(made.ranges)


def digest(bits: np.ndarray) -> int:
    """A position-dependent sum of the words."""
    words = bits.reshape(-1).astype(np.uint64)
    return int((words * (np.arange(words.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1))).sum() & 0xFFFFFFFF)


def test_frozen_numbers_do_not_change():
    """A change here makes every stored recipe mean other data: give the distribution a new name instead."""
    target = Target(FP32, E2M1, 32)
    got = {name: digest(made.make(Draw(2603), target, (4, 64), **made.simple)) for name, made in VALUES.items()}
    assert got == FROZEN


FROZEN = {
    "zero": 0x00000000, "signed_zeros": 0xb3bcb800, "whole": 0x61600000, "normal": 0xb4f3b600, "boundary": 0x7142a0a4,
    "ties": 0x475ff811, "distances": 0x03a591c0, "outlier": 0xa2119540, "tiny": 0x29640f92, "huge": 0xd69af06e,
    "specials": 0xdbf7ffc9, "heavy": 0x76919540, "channels": 0x9d0a5700, "gated": 0x73692b00, "lattice": 0xf95eb4e5,
    "bits": 0xc920f056,
}  # fmt: skip


def test_bell_has_the_stated_spread():
    drawn = Draw(7).bell(1 << 16)
    assert abs(drawn.mean()) < 1000 and abs(drawn.std() / 65536 - 1.02) < 0.01 and abs(drawn).max() < 1 << 19


def test_ties_put_every_element_on_the_grid_or_beside_it():
    made = VALUES["ties"]
    bits = made.make(Draw(5), Target(FP32, E2M1, 32), (64, 256), low=0, span=0)
    magnitude = bits & 0x7FFFFFFF
    grid_bits = {int(exact(FP32, np.uint32(p.significand), np.int32(p.exponent))[0]) for p in grid(E2M1)}
    near = {g + step for g in grid_bits for step in (-1, 0, 1)}
    assert set(magnitude.reshape(-1).tolist()) <= near
    assert (magnitude.reshape(-1, 32).max(axis=1) == 0x40C00000).all()  # 6
    assert len(set(magnitude.reshape(-1).tolist()) & grid_bits) == 15


def test_boundary_maxima_are_steps_and_their_neighbours():
    bits = VALUES["boundary"].make(Draw(5), Target(FP32, E2M1, 32), (64, 256), low=0, span=0)
    top = (bits & 0x7FFFFFFF).reshape(-1, 32).max(axis=1)
    steps = {0x3F800000, 0x3FC00000, 0x3FE00000, 0x3FF80000}
    assert set(top.tolist()) == {s + d for s in steps for d in (-1, 0, 1)}


@pytest.mark.parametrize(("block", "rows"), [(32, 300), (128, 300), (128, 7)])
def test_signed_zeros_hold_blocks_and_tiles_of_one_sign(block, rows):
    make, target = VALUES["signed_zeros"].make, Target(BF16, E4M3, block)
    bits = make(Draw(5), target, (rows, 512), mixed=0, values=0)
    tiles = bits[: rows // 128 * 128 or rows].reshape(-1, min(rows, 128), 512 // block, block)
    whole = np.unique(tiles.swapaxes(1, 2).reshape(-1, min(rows, 128) * block), axis=0)
    assert whole.tolist() == [[0] * whole.shape[1], [0x8000] * whole.shape[1]]
    mixed = make(Draw(5), target, (rows, 512), mixed=128, values=0).reshape(-1, block)
    assert set(np.unique(mixed)) == {0, 0x8000}
    alike = (mixed == mixed[:, :1]).all(axis=1)
    assert 0.3 < alike.mean() < 0.7
    some = make(Draw(5), target, (rows, 512), mixed=0, values=2)
    assert 0 < ((some & 0x7FFF) != 0).mean() < 0.02 and ((some == 0) | (some == 0x8000)).any()


def test_specials_hold_nan_inf_and_zero_blocks():
    bits = VALUES["specials"].make(Draw(5), Target(BF16, E2M1, 32), (64, 256), nan=2, inf=2, zero=32).astype(int)
    magnitude = bits & 0x7FFF
    assert (magnitude > 0x7F80).any() and (magnitude == 0x7F80).any() and (bits == 0x8000).any()
    assert (magnitude.reshape(-1, 32) == 0).all(axis=1).any()


@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize("layout", [Layout(E2M1, 1, 32), Layout(E4M3, 1, 128), Layout(E4M3, 128, 128)], ids=str)
def test_a_coded_distribution_fits_its_layout(name, layout):
    made = CODED[name]
    for end in (0, 1):
        parameters = {key: limits[end] for key, limits in made.ranges.items()}
        codes, scales = made.make(Draw(1), layout, (130, 160), **parameters)
        assert codes.shape == (130, 160) and scales.shape == layout.grid((130, 160))
        assert codes.dtype == scales.dtype == np.uint8 and codes.max() < 1 << layout.element.bits
    first, other = (made.make(Draw(seed), layout, (130, 160), **made.simple) for seed in (1, 2))
    assert name == "zero" or (first[0] != other[0]).any()


def test_apart_keeps_blocks_within_the_spread_and_makes_empty_ones():
    codes, scales = CODED["apart"].make(Draw(3), Layout(E2M1, 1, 32), (64, 1024), base=100, spread=5, empty=64, nan=8)
    empty = ((codes & 7) == 0).reshape(64, 32, 32).all(axis=2)
    ordinary = scales[~empty & (scales != 255)]
    assert ordinary.min() == 95 and ordinary.max() == 100
    assert (scales[empty] > 100).any() and (scales == 255).any()


def test_assemble_saturates_and_cuts():
    pattern = assemble(FP16, np.array([1, 3, (1 << 24) - 1], np.uint32), np.array([200, -40, 0], np.int32))
    assert pattern.tolist() == [0x7BFF, 0, 0x7BFF]
