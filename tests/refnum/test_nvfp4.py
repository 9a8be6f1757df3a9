"""NVFP4 (N21): model against oracle, known answers, and the seven least inputs against the definition."""

from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum import oracle, softfloat
from refnum.codec import encode_bits
from refnum.conformance.cases.corners.nvfp4 import endless_blocks
from refnum.division import divide
from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.formats import E2M1
from refnum.nvfp4_codes import block_codes
from refnum.nvfp4_errors import less
from refnum.nvfp4_scales import VARIANTS
from refnum.oracle import nvfp4 as second

BLOCKS = ((1, 16), (16, 16))
KNOWN = [0, -0.0, 0.1, -0.1, 0.25, -0.33, 0.5, -0.75, 1, -1.25, 1.5, -2, 2.5, -3, 3.25, -3.75]
PATTERNS = np.array([0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x00400001, 0x3E2AAAAB,
                     0x40C00000, 0x45280000, 0x1, 0x0E000000, 0x7E967699, 0x34149B93], np.uint32)  # fmt: skip


def words(shape, seed, spread=10, odd=0.02):
    """float32 bits of every size around 1, subnormals, NaN and Inf among them."""
    dice = np.random.default_rng(seed)
    exponent = 127 + dice.integers(-spread, spread + 1, shape)
    bits = dice.integers(0, 1 << 23, shape) | exponent << 23 | dice.integers(0, 2, shape) << 31
    found = bits.astype(np.uint32)
    strange = dice.choice(PATTERNS, shape) | (dice.integers(0, 2, shape) << 31).astype(np.uint32)
    return np.where(dice.random(shape) < odd, strange, found)


def exact(x):
    name = x.dtype.name
    return [[oracle.float_value(int(b), name) for b in row] for row in x.view(f"u{x.dtype.itemsize}").tolist()]


def test_division_equals_the_exact_quotient():
    a, b = words(4000, 1, 126, 0.3), words(4000, 2, 126, 0.3)
    for x, y, q in zip(a.tolist(), b.tolist(), divide(a, b).tolist(), strict=True):
        assert second.float32_divide(x, y) == q, (hex(x), hex(y))


@pytest.mark.parametrize(("amax", "scale", "codes"), [
    (3.75, 0x7E, "0808192a3c4d6e7f"), (10, 0x72, "0808192b3c5d6f7f")])  # fmt: skip
def test_known_answers(amax, scale, codes):
    packed, scales, tensor = refnum.quantize_nvfp4([KNOWN], tensor_amax=[amax])
    assert "".join(f"{byte & 15:x}{byte >> 4:x}" for byte in packed[0]) == codes
    assert scales.tolist() == [[scale]] and tensor.tolist() == [amax]


def test_a_zero_tensor_has_scale_0():
    packed, scales, tensor = refnum.quantize_nvfp4(np.zeros((3, 32), np.float32))
    assert not packed.any() and not scales.any() and tensor.tolist() == [0]


@pytest.mark.parametrize(("variant", "block"), list(itertools.product(VARIANTS, BLOCKS)))
def test_the_model_equals_the_oracle(variant, block):
    dear = variant.startswith("FOUR")
    for seed, spread in enumerate((3, 40) if dear else (2, 5, 40, 126)):
        for dtype in (np.float32,) if dear else (np.float32, ml_dtypes.bfloat16, np.float16):
            bits = words((18 if block[0] == 16 else 5, 32 >> dear), seed, spread, 0.02 * (seed % 2))
            with np.errstate(over="ignore"):
                x = bits.view(np.float32).astype(dtype)
            for amax in (None, np.array([(seed + 1) * 3.1], np.float32)):
                given = None if amax is None else oracle.float_value(int(amax.view(np.uint32)[0]))
                want = second.quantize_nvfp4(exact(x), variant, given, block)
                got = refnum.quantize_nvfp4(x, variant, amax, block)
                assert got[0].tolist() == want[0] and got[1].tolist() == want[1]
                assert got[2].view(np.uint32).tolist() == want[2]


@pytest.mark.parametrize("variant", VARIANTS)
def test_random_bits_decide_as_in_the_oracle(variant):
    x = words((6, 32), 8, 3).view(np.float32)
    rbits = np.random.default_rng(3).integers(0, 256, x.shape).astype(np.uint8)
    want = second.quantize_nvfp4(exact(x), variant, rbits=rbits.tolist())
    got = refnum.quantize_nvfp4(x, variant, rbits=rbits)
    assert got[0].tolist() == want[0] and got[1].tolist() == want[1]


def test_keyed_bits_are_those_of_the_stream():
    x = words((40, 64), 5, 3, 0).view(np.float32)
    rbits = refnum.philox.random_bits(x.shape, 8, seed=7, stream=3, offset=64)
    by_key, by_bits = refnum.quantize_nvfp4(x, philox=(7, 3, 0, 64)), refnum.quantize_nvfp4(x, rbits=rbits)
    assert all(np.array_equal(a, b) for a, b in zip(by_key, by_bits, strict=True))


def test_the_mean_over_all_random_bytes_is_the_scaled_number_cut_to_the_lattice():
    x = np.zeros((256, 16), np.float32)
    x[:, :15] = np.array([0.1, 0.3, 0.7, 1.1, 1.9, 2.2, 2.9, 3.3, 4.4, 5.9, 0.26, 0.49, 1.51, 5.01, 0.013], np.float32)
    x[:, 15] = 6
    rbits = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 16, axis=1)
    packed, scales, tensor = refnum.quantize_nvfp4(x, tensor_amax=[2688], rbits=rbits)
    assert set(scales.ravel().tolist()) == {0x38} and tensor[0] == 2688  # scale 1 of a factor 1
    values = refnum.dequantize_nvfp4(packed, scales, tensor)
    step = np.where(x[0] < 2, 0.5, np.where(x[0] < 4, 1, 2)).astype(np.float64) / 256
    mean = values.astype(np.float64).mean(axis=0)
    assert (mean <= x[0]).all() and (x[0] < mean + step).all()


@pytest.mark.parametrize("divides", [False, True])
def test_the_least_inputs_are_those_of_the_definition(divides):
    factor = np.concatenate([words(3000, 4, 126, 0.1) & np.uint32(0x7FFFFFFF), PATTERNS])
    sides = np.array([0x3E800000, 0x3F400000, 0x3FA00000, 0x3FE00000, 0x40200000, 0x40600000, 0x40A00000, 0x40C00000])
    other = np.full_like(factor[:, None], 0x3F800000) if divides else factor[:, None]
    near = (
        softfloat.multiply(sides.astype(np.uint32), factor[:, None])
        if divides
        else divide(np.broadcast_to(sides.astype(np.uint32), (len(factor), 8)).copy(), other)
    )
    steps = np.array([-1, 0], np.int64)[:, None, None] + np.minimum(near, 0x7F7FFFFE).astype(np.int64)
    bits = np.maximum(steps, 0).astype(np.uint32).transpose(1, 0, 2).reshape(len(factor), 16)
    bits[::2] ^= np.uint32(1 << 31)
    bits[::5, 3] = PATTERNS[np.arange(len(bits[::5])) % 16]
    for shift in (0, 1, 2):
        shifted = bits + np.uint32(shift)
        scaled = (divide if divides else softfloat.multiply)(shifted, factor[:, None])
        want = encode_bits(E2M1, scaled, 0, refnum.HOPPER)
        assert np.array_equal(block_codes(shifted, factor, divides), want)
        half = (shifted >> np.uint32(16)).astype(np.uint16)
        scaled = (divide if divides else softfloat.multiply)(half.astype(np.uint32) << np.uint32(16), factor[:, None])
        assert np.array_equal(block_codes(half, factor, divides), encode_bits(E2M1, scaled, 0, refnum.HOPPER))


@pytest.mark.parametrize(("order", "block", "dtype"), list(itertools.product(
    ("te", "product", "four_over_six"), BLOCKS, ("float32", "bfloat16"))))  # fmt: skip
def test_dequantise_equals_the_oracle(order, block, dtype):
    dice = np.random.default_rng(11)
    packed = dice.integers(0, 256, (18, 24)).astype(np.uint8)
    scales = dice.integers(0, 256, (18 if block[0] == 1 else 2, 3)).astype(np.uint8)
    for bits in (0, 1, 0x3F9E3779, 0x45280000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x00300001, 0xC0000000):
        amax = np.array([bits], np.uint32).view(np.float32)
        got = refnum.dequantize_nvfp4(packed, scales, amax, order, block, dtype)
        want = second.dequantize_nvfp4(packed.tolist(), scales.tolist(), oracle.float_value(bits), order, block, dtype)[
            0
        ]
        assert got.view(f"u{got.dtype.itemsize}").tolist() == want


@pytest.mark.parametrize("divides", [False, True])
@pytest.mark.parametrize("odd", [0, 1, 0x7F7FFFFF, 0x7F800000, 0x7FC00000])
def test_one_block_with_an_odd_factor_among_others(odd, divides):
    """Whether a quotient or a product is NaN is asked of each block, where no element is Inf or NaN too."""
    bits = np.tile(np.array([0, 1 << 31, 0x3F800000, 0xC0C00000], np.uint32), (3, 4))
    factor = np.array([0x3F800000, odd, 0x40000000], np.uint32)
    scaled = (divide if divides else softfloat.multiply)(bits, factor[:, None])
    assert np.array_equal(block_codes(bits, factor, divides), encode_bits(E2M1, scaled, 0, refnum.HOPPER))


def test_an_endless_error_is_above_every_other():
    ends = np.array([0, 1, 0x7F7FFFFF, 0x7F800000, 0x7FC00000], np.uint32)
    first, second_ = np.meshgrid(ends, ends, indexing="ij")
    with np.errstate(invalid="ignore"):
        assert np.array_equal(less(first, second_), first.view(np.float32) < second_.view(np.float32))


@pytest.mark.parametrize("variant", ["FOUR_OVER_SIX", "FOUR_OVER_SIX_MSE"])
def test_errors_beyond_float32_equal_the_oracle(variant):
    x = endless_blocks()
    packed, scales, _ = refnum.quantize_nvfp4(x, variant, x[:1, 0])
    want = second.quantize_nvfp4(exact(x), variant, Fraction(1 << 66))
    assert [packed.tolist(), scales.tolist()] == [want[0], want[1]]


def test_a_scale_half_as_large_again_that_is_a_tie_is_rounded_to_even():
    """928 / 6 / 4 * 3 / 2 is 58, between 56 and 60; by the scale of 56 the block errs less than by that of six."""
    x = np.array([[928, 100, *[0] * 14, 6144, *[0] * 15]], np.float32)
    packed, scales, _ = refnum.quantize_nvfp4(x, "FOUR_OVER_SIX")
    assert scales.tolist() == [[0x66, 0x78]] and packed[0, 0] == 0x16


def test_square_blocks_give_the_transpose_the_same_codes():
    x = words((64, 48), 21, 4, 0).view(np.float32)
    one, two = (refnum.quantize_nvfp4(np.ascontiguousarray(a), tile=(16, 16)) for a in (x, x.T))
    assert np.array_equal(one[1], two[1].T)
    codes = [refnum.layouts.codes_from_packed(a[0]) for a in (one, two)]
    assert np.array_equal(codes[0], codes[1].T)


def test_swizzled_scales_hold_the_same_bytes():
    x = words((130, 80), 22, 4, 0).view(np.float32)
    packed, scales, amax = refnum.quantize_nvfp4(x)
    stored = refnum.quantize_nvfp4(x, layout_out="swizzled")[1]
    assert np.array_equal(stored, refnum.layouts.scales_to_swizzled(scales))
    plain = refnum.dequantize_nvfp4(packed, scales, amax)
    assert np.array_equal(plain, refnum.dequantize_nvfp4(packed, stored, amax, layout_in="swizzled"))


@pytest.mark.parametrize(("change", "error"), [
    ({"variant": "NVIDIA"}, ArgumentError), ({"tile": (16, 1)}, ArgumentError), ({"tile": True}, ArgumentError),
    ({"tile": (1.0, 16)}, ArgumentError),
    ({"tensor_amax": np.ones(1, np.float64)}, DtypeError), ({"tensor_amax": np.ones((1, 1), np.float32)}, ShapeError),
    ({"layout_out": "float32"}, ArgumentError), ({"x": np.zeros((2, 24), np.float32)}, ShapeError),
    ({"rbits": np.zeros((2, 32), np.uint16) + np.uint16(256)}, ArgumentError),
    ({"rbits": np.zeros((2, 32), np.uint8), "philox": (1, 2, 3)}, ArgumentError)])  # fmt: skip
def test_bad_arguments_are_refused(change, error):
    with pytest.raises(error):
        refnum.quantize_nvfp4(**{"x": np.zeros((2, 32), np.float32), **change})


@pytest.mark.parametrize(("variant", "tile"), list(itertools.product(VARIANTS, BLOCKS)))
def test_an_explanation_ends_in_the_model_s_code(variant, tile):
    x = words((3, 32), 30, 6, 0.1).view(np.float32)
    packed, scales, amax = refnum.quantize_nvfp4(x, variant, tile=tile)
    codes = refnum.layouts.codes_from_packed(packed)
    back = refnum.dequantize_nvfp4(packed, scales, amax, tile=tile).view(np.uint32)
    for row, column in ((0, 0), (1, 17), (2, 31)):
        told = refnum.explain("quantize_nvfp4", {"x": x, "variant": variant, "tile": tile}, (row, column))
        assert told.code == codes[row, column] and told.scale == scales[row // tile[0], column // 16]
        given = {"packed": packed, "scales": scales, "tensor_amax": amax, "tile": tile}
        assert refnum.explain("dequantize_nvfp4", given, (row, column)).code == back[row, column]
        assert "N21" in str(told)


@pytest.mark.parametrize("tile", [(1, 16), (16, 16)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_empty_tensors(variant, tile):
    for rows, columns in ((0, 32), (3, 0), (33, 0)):
        packed, scales, amax = refnum.quantize_nvfp4(np.zeros((rows, columns), np.float32), variant, tile=tile)
        assert packed.shape == (rows, columns // 2) and scales.shape == (-(-rows // tile[0]), columns // 16)
        assert amax.tolist() == [0]
        assert refnum.dequantize_nvfp4(packed, scales, amax, tile=tile).shape == (rows, columns)
