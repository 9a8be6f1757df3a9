"""Whole operations against the oracle on small, nasty matrices: every mode, ragged splits, every policy (N5 to N10)."""

import numpy as np
import pytest

import refnum as R
from refnum import oracle
from refnum.profiles import PROFILES

SHAPES = [(0, 64), (1, 32), (3, 96), (5, 160), (130, 32)]
DETERMINISTIC = [p for p in PROFILES.values() if p.rounding != "stochastic"]


def floats(shape, seed):
    """float32 bits over the whole range: zeros, subnormals, specials, wide exponents, exact ties."""
    words = R.philox.random_words(int(np.prod(shape)) * 2, seed).reshape(2, *shape)
    bits, choice = words[0].copy(), words[1] % 16
    row_exponent = (words[1][:, :1] >> 8) % 250
    near = (bits & 0x807FFFFF) | ((row_exponent + (bits >> 23) % 5) << 23)
    tied = near & 0xFFE00000
    bits = np.where(choice < 9, near, np.where(choice < 13, tied, bits))
    bits = np.where(choice == 13, bits & 0x80000000, bits)
    bits = np.where((choice == 14) & (words[1] >> 28 == 0), 0x7F800000 | (bits & 0x80000001), bits)
    return bits.astype(np.uint32).view(np.float32)


def codes_and_scales(shape, seed, kind):
    """Random codes; scale bytes close together with a few far, 0, 254 and 255; some empty blocks."""
    m, k = shape
    groups = -(-k // (128 if kind == "E4M3" else 32))
    words = R.philox.random_words(m * (k + 2 * groups) + 1, seed)
    codes = (words[: m * k] & (0xFF if kind == "E4M3" else 0x0F)).astype(np.uint8).reshape(m, k)
    byte = 120 + (words[m * k : m * (k + groups)] % 12).reshape(m, groups)
    odd = words[m * (k + groups) : m * (k + 2 * groups)].reshape(m, groups)
    byte = np.where(odd % 8 == 0, odd >> 24, byte)
    byte = np.where(odd % 40 == 1, 255, np.where(odd % 40 == 2, 0, np.where(odd % 40 == 3, 254, byte)))
    width = 128 if kind == "E4M3" else 32
    empty = np.repeat((odd >> 8) % 5 == 0, width, axis=1)[:, :k]
    codes = np.where(empty, codes & np.uint8(0x80 if kind == "E4M3" else 8), codes)
    if kind == "E4M3":
        nan = (codes & 0x7F) == 0x7F
        codes = np.where(nan & (codes > 0x7F), codes - 1, codes).astype(np.uint8)  # half of the NaN codes stay
    return codes, byte.astype(np.uint8)


def exact(x):
    return [[oracle.float_value(int(b)) for b in row] for row in x.view(np.uint32)]


def same(got, want):
    for array, expected in zip(got, want, strict=True):
        assert array.dtype == np.uint8
        assert array.reshape(array.shape).tolist() == expected or (array.size == 0 and not sum(map(len, expected)))


def splits_of(m, seed, even=False):
    """Some ragged splits of m rows, with an empty expert first, last or in the middle."""
    if m == 0:
        return [None, [0, 0], []]
    cut = (seed * 7 + 1) % m
    cut -= cut % 2 if even else 0
    return [None, [m], [0, cut, 0, m - cut], [cut, m - cut, 0]]


@pytest.mark.parametrize("profile", DETERMINISTIC, ids=lambda p: p.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_quantize_mxfp4(shape, profile):
    if shape[0] % 2 and shape != (0, 64) and profile.ties in ("up", "down"):
        shape = (shape[0] + 1, shape[1])
    for seed in range(3):
        x = floats(shape, seed)
        same(R.quantize_mxfp4(x, profile), oracle.quantize_mxfp4(exact(x), profile))


@pytest.mark.parametrize("element", list(R.MX_ELEMENTS))
@pytest.mark.parametrize("profile", ["HOPPER", "OCP", "TE", "EVEN", "CEIL"])
def test_quantize_mx(element, profile):
    x = floats((6, 96), 11)
    same(R.quantize_mx(x, element, profile), oracle.quantize_mx(exact(x), element, PROFILES[profile]))


@pytest.mark.parametrize("ties", ["even", "away", "up", "down", "zero"])
def test_quantize_ties(ties):
    profile = R.Profile("t", ties=ties)
    x = floats((8, 128), 5)
    same(R.quantize_mxfp4(x, profile), oracle.quantize_mxfp4(exact(x), profile))


def test_quantize_stochastic():
    profile = PROFILES["STOCHASTIC"]
    x = floats((8, 128), 6)
    rbits = R.philox.random_bytes(x.size, 3).reshape(x.shape)
    same(R.quantize_mxfp4(x, profile, rbits=rbits), oracle.quantize_mxfp4(exact(x), profile, rbits.tolist()))


@pytest.mark.parametrize("tile", [(1, 128), (128, 128)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_quantize_fp8_tiles(shape, tile):
    x = floats(shape, 21)
    same(R.quantize_fp8_tiles(x, tile), oracle.quantize_fp8_tiles(exact(x), tile))


@pytest.mark.parametrize("tile", [(1, 128), (128, 128)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dequantize_fp8_tiles(shape, tile):
    codes, scales = codes_and_scales(shape, 3, "E4M3")
    scales = scales[:: tile[0]]
    for dtype, word in (("float32", np.uint32), ("bfloat16", np.uint16)):
        got = R.dequantize_fp8_tiles(codes, scales, tile, dtype).view(word).tolist()
        assert got == oracle.dequantize_fp8_tiles(codes.tolist(), scales.tolist(), tile, dtype)


@pytest.mark.parametrize("profile", DETERMINISTIC, ids=lambda p: p.name)
@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
def test_fp8_to_mxfp4(shape, profile):
    for seed in range(3):
        codes, scales = codes_and_scales(shape, seed, "E4M3")
        want = oracle.fp8_to_mxfp4(codes.tolist(), scales.tolist(), profile)
        same(R.fp8_to_mxfp4(codes, scales, profile), want)


@pytest.mark.parametrize("mode", ["max", "amax"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mxfp4_to_fp8(shape, mode):
    for seed in range(3):
        codes, scales = codes_and_scales(shape, seed, "E2M1")
        packed = R.arrays.pack_nibbles(codes)
        same(R.mxfp4_to_fp8(packed, scales, mode), oracle.mxfp4_to_fp8(packed.tolist(), scales.tolist(), mode))


@pytest.mark.parametrize("mode", ["max", "amax"])
@pytest.mark.parametrize("shape", [(7, 64), (130, 32), (258, 32)], ids=str)
def test_mxfp4_to_fp8_columns(shape, mode):
    codes, scales = codes_and_scales(shape, 4, "E2M1")
    packed = R.arrays.pack_nibbles(codes)
    for splits in splits_of(shape[0], 4):
        want = oracle.mxfp4_to_fp8_columns(packed.tolist(), scales.tolist(), splits, mode)
        same(R.mxfp4_to_fp8_columns(packed, scales, splits, mode), want)


@pytest.mark.parametrize("mode", ["max", "amax"])
def test_mxfp4_to_fp8_rows_columns(mode):
    codes, scales = codes_and_scales((40, 160), 4, "E2M1")
    packed = R.arrays.pack_nibbles(codes)
    for splits in splits_of(40, 4):
        want = oracle.mxfp4_to_fp8_rows_columns(packed.tolist(), scales.tolist(), splits, mode)
        same(R.mxfp4_to_fp8_rows_columns(packed, scales, splits, mode), want)


@pytest.mark.parametrize("mode", ["max", "amax"])
@pytest.mark.parametrize("shape", [(2, 64), (70, 32), (130, 32)], ids=str)
def test_mxfp4_columns(shape, mode):
    for seed in (4, 5):
        codes, scales = codes_and_scales(shape, seed, "E2M1")
        packed = R.arrays.pack_nibbles(codes)
        for splits in splits_of(shape[0], 5, even=True):
            want = oracle.mxfp4_columns(packed.tolist(), scales.tolist(), splits, mode)
            same(R.mxfp4_columns(packed, scales, splits, mode), want)


@pytest.mark.parametrize("underflow", ["rne", "te"])
@pytest.mark.parametrize("shape", [(7, 160), (130, 32)], ids=str)
def test_fp8_columns(shape, underflow):
    for seed in (4, 5):
        codes, scales = codes_and_scales(shape, seed, "E4M3")
        for splits in splits_of(shape[0], 6):
            want = oracle.fp8_columns(codes.tolist(), scales.tolist(), splits, underflow)
            same(R.fp8_columns(codes, scales, splits, underflow), want)


@pytest.mark.parametrize("mode", ["max", "amax"])
def test_ragged_columns_equal_one_expert_at_a_time(mode):
    codes, scales = codes_and_scales((300, 64), 8, "E2M1")
    packed = R.arrays.pack_nibbles(codes)
    splits = [0, 129, 1, 0, 128, 42]
    got = R.mxfp4_to_fp8_columns(packed, scales, splits, mode)
    ends = np.cumsum(splits)
    parts = [
        R.mxfp4_to_fp8_columns(packed[e - m : e], scales[e - m : e], None, mode)
        for e, m in zip(ends, splits, strict=True)
    ]
    assert np.array_equal(got[0], np.concatenate([p[0] for p in parts], axis=1))
    assert np.array_equal(got[1], np.concatenate([p[1] for p in parts], axis=0))


def test_max_and_amax_give_equal_values_up_to_distance_14():
    codes, _ = codes_and_scales((256, 64), 9, "E2M1")
    packed = R.arrays.pack_nibbles(codes)
    scales = (100 + R.philox.random_words(512, 1).reshape(256, 2) % 15).astype(np.uint8)
    values = []
    for mode in ("max", "amax"):
        out, tiles = R.mxfp4_to_fp8_columns(packed, scales, None, mode)
        values.append(R.decode("E4M3", out).astype(np.float64) * 2.0 ** (np.repeat(tiles.T, 128, axis=1) - 127.0))
    assert np.array_equal(values[0], values[1])
    assert np.array_equal(values[0].T, R.dequantize_mxfp4(packed, scales))


def test_sixteen_bit_inputs_are_their_float32():
    for dtype in (np.float16, R.arrays.BFLOAT16):
        bits = (R.philox.random_words(64 * 256, 77) & 0xFFFF).astype(np.uint16).reshape(64, 256)
        x = bits.view(dtype)
        wide = R.arrays.float32_bits(x).view(np.float32)
        for function in (R.quantize_mxfp4, R.quantize_fp8_tiles):
            for got, want in zip(function(x), function(wide), strict=True):
                assert np.array_equal(got, want)
    assert np.array_equal(R.quantize_mxfp4(bits)[0], R.quantize_mxfp4(bits.view(R.arrays.BFLOAT16))[0])


def test_chunks_do_not_show():
    """A tensor of many cache-size passes equals its rows quantised one by one."""
    x = floats((700, 96), 2)
    packed, scales = R.quantize_mxfp4(x)
    for row in (0, 1, 340, 341, 342, 699):
        one = R.quantize_mxfp4(x[row : row + 1])
        assert np.array_equal(packed[row : row + 1], one[0]) and np.array_equal(scales[row : row + 1], one[1])
    tall, tall_scales = R.quantize_fp8_tiles(x, (128, 128))
    one = R.quantize_fp8_tiles(x[640:], (128, 128))
    assert np.array_equal(tall[640:], one[0]) and np.array_equal(tall_scales[5:], one[1])
