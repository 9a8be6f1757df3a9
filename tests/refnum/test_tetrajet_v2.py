"""TetraJet-v2 (N24): model against oracle, known answers, enumeration."""

from __future__ import annotations

import functools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from test_tetrajet import exact, same, words

import refnum
from refnum import oracle
from refnum.arrays import unpack_nibbles
from refnum.codec import decode_table, encode_bits
from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.formats import E2M1
from refnum.oracle import tetrajet_v2 as second_v2
from refnum.profiles import HOPPER
from refnum.tetrajet_v2 import _with_noise, noise_bits, scale_products


def bits_of(x):
    return np.ascontiguousarray(x).view(np.uint32)


@pytest.mark.parametrize("seed", [None, 0, 12345, 0xFFFFFFFF])
def test_the_model_equals_the_oracle(seed):
    for number, (spread, odd, dtype) in enumerate(
        ((3, 0, np.float32), (12, 0.01, ml_dtypes.bfloat16), (126, 0.01, np.float32), (1, 0, np.float16))
    ):
        with np.errstate(over="ignore"):
            x = words((3, 256), number, spread, odd).view(np.float32).astype(dtype)
        x[1, 128:] = 0
        x[2, 16:32] = x[2, :16] * x.dtype.type(0.0001)
        packed, scales, outer = refnum.quantize_tetrajet_v2(x, seed)
        assert same((packed, scales, bits_of(outer)), second_v2.quantize_tetrajet_v2(exact(x), seed))
        for dtype in ("float32", "bfloat16"):
            got = refnum.dequantize_tetrajet_v2(packed, scales, outer, dtype)
            want = second_v2.dequantize_tetrajet_v2(packed.tolist(), scales.tolist(), bits_of(outer).tolist(), dtype)
            assert got.view(f"u{got.dtype.itemsize}").tolist() == want


def test_zero_and_tiny_blocks_have_the_least_scale_or_none():
    x = np.zeros((1, 256), np.float32)
    x[0, 128], x[0, 144] = 2688, 2.0**-9
    packed, scales, outer = refnum.quantize_tetrajet_v2(x)
    assert outer.tolist() == [[1, 1]]
    assert scales[0].tolist() == [1] * 8 + [0x7E, 0, *[1] * 6]
    assert unpack_nibbles(packed)[0, 128] == 7 and not unpack_nibbles(packed)[0, 144:].any()


def test_known_noise():
    noise = bits_of(refnum.tetrajet_v2_noise((1, 8), 12345))
    assert [f"{word:08X}" for word in noise[0, 4:]] == ["3EBD8920", "BEEF0B04", "3EC2192C", "BDC358E0"]
    for place, word in enumerate(noise[0].tolist()):
        assert oracle.float_bits(second_v2.noise(12345, place)) == word


def test_the_ends_of_shapes_and_seeds_are_taken():
    assert refnum.tetrajet_v2_noise((1, 4), (1 << 32) - 1).shape == refnum.tetrajet_v2_noise((1, 4), 0).shape == (1, 4)
    assert refnum.tetrajet_v2_noise(((1 << 31) - 1, 0), 1).shape == ((1 << 31) - 1, 0)


def test_the_noise_of_rows_is_that_of_the_whole():
    x = words((2100, 128), 3, 3, 0).view(np.float32)  # more elements than the model takes at once
    noise = bits_of(refnum.tetrajet_v2_noise(x.shape, 77))
    assert np.array_equal(noise[1500:], noise_bits((600, 128), 77, 1500 * 128))
    packed, scales, outer = refnum.quantize_tetrajet_v2(x, 77)
    product = scale_products(scales, bits_of(outer))
    inverse = np.float32(1) / product.view(np.float32)
    scaled = (x * np.repeat(inverse, 16, axis=1)).view(np.uint32)
    assert np.array_equal(unpack_nibbles(packed), encode_bits(E2M1, _with_noise(scaled, noise), 0, HOPPER))


def test_noise_that_leads_to_a_tie_leaves_a_tie():
    scaled = np.array([1.25 + 2.0**-23, -1.25 - 2.0**-23, 2.5 + 2.0**-22, 3.5 - 2.0**-22, 1.75 - 2.0**-23], np.float32)
    noise = np.array([-(2.0**-22), -(2.0**-22), -(2.0**-22), 2.0**-22, 2.0**-22], np.float32)
    moved = _with_noise(bits_of(scaled), bits_of(noise))
    assert moved.view(np.float32).tolist() == [1.25, -1.25, 2.5, 3.5, 1.75]
    assert encode_bits(E2M1, moved, 0, HOPPER).tolist() == [2, 10, 4, 6, 4]


def test_noise_is_scaled_by_half_a_step_exactly():
    """Sums half a unit above a quarter, which are rounded to it, and a little more, which are not."""
    noise = np.float32(round(0.475 * 2**23) / 2**23)
    scaled = np.float32(0.25) + np.array([2.0**-26, 2.0**-26 + 2.0**-30]) - noise / 2
    assert scaled.astype(np.float32).tolist() == scaled.tolist()
    moved = _with_noise(bits_of(scaled.astype(np.float32)), bits_of(np.full(2, noise)))
    assert moved.view(np.float32).tolist() == [0.25, 0.25 + 2.0**-25]


def test_the_largest_seed_is_a_seed():
    assert [refnum.tetrajet_v2_signs(seed) >> i & 1 for seed in ((1 << 32) - 1, 1 << 31) for i in range(16)] == [
        sign < 0 for seed in ((1 << 32) - 1, 1 << 31) for sign in second_v2.signs(seed)]  # fmt: skip
    x = words((2, 128), 5, 2, 0).view(np.float32)
    assert not np.array_equal(*(refnum.quantize_tetrajet_v2(x, (1 << 32) - n)[0] for n in (1, 2)))


@pytest.mark.parametrize(("seed", "signs"), [(0, "+++++-++++-+-+-+"), (12345, "+-++--+---+-+-++")])
def test_known_signs(seed, signs):
    mask = refnum.tetrajet_v2_signs(seed)
    assert "".join("-" if mask >> i & 1 else "+" for i in range(16)) == signs
    assert mask < 1 << 16
    assert [-1 if mask >> i & 1 else 1 for i in range(16)] == second_v2.signs(seed)


@functools.cache
def all_noise():
    """Bits of the 2**23 noises."""
    noise = np.arange(1 << 23, dtype=np.uint32)
    return ((noise | np.uint32(0x3F800000)).view(np.float32) - np.float32(1.5)).view(np.uint32)


@pytest.mark.parametrize(
    "v", [0, 0.3, 0.25, 0.75, 1.1, 1.97, 2, 2.3, 2.5, 3.9, 4, 4.4, 5, 5.999, 6, -1.3, -4.01, -0.01]
)
def test_the_mean_over_all_noise_is_the_number(v):
    """Unbiased to the lattice, by enumeration of all 2**23 noises: off by at most two of them, 2**-22 steps."""
    value = np.float32(v)
    count = np.zeros(16, np.int64)
    for part in np.array_split(all_noise(), 64):
        scaled = np.full(part.shape, value.view(np.uint32), np.uint32)
        count += np.bincount(encode_bits(E2M1, _with_noise(scaled, part), 0, HOPPER), minlength=16)
    levels = decode_table(E2M1).view(np.float32).astype(object)
    mean = sum(Fraction(float(level)) * int(n) for level, n in zip(levels, count, strict=True)) / (1 << 23)
    step = Fraction(1, 2) if abs(v) < 2 else 1 if abs(v) < 4 else 2
    assert abs(mean - Fraction(float(value))) <= step / (1 << 22)


def test_refusals():
    x = np.zeros((2, 128), np.float32)
    packed, scales, outer = refnum.quantize_tetrajet_v2(x)
    bad = [
        (ShapeError, lambda: refnum.quantize_tetrajet_v2(x[:, :64])),
        (ArgumentError, lambda: refnum.quantize_tetrajet_v2(x, 1 << 32)),
        (ArgumentError, lambda: refnum.quantize_tetrajet_v2(x, -1)),
        (ShapeError, lambda: refnum.dequantize_tetrajet_v2(packed, scales[:, :2], outer)),
        (DtypeError, lambda: refnum.dequantize_tetrajet_v2(packed, scales, outer.astype(np.float16))),
        (ShapeError, lambda: refnum.tetrajet_v2_noise((2, 6), 1)),
        (ArgumentError, lambda: refnum.tetrajet_v2_noise((2, 8), 1 << 32)),
        (ArgumentError, lambda: refnum.tetrajet_v2_noise((1 << 31, 0), 1)),
        (ArgumentError, lambda: refnum.tetrajet_v2_signs(1 << 32)),
        (ArgumentError, lambda: refnum.tetrajet_v2_signs(1.5)),
    ]
    for error, call in bad:
        with pytest.raises(error):
            call()
