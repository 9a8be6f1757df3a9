"""Every input of the domains that can be enumerated, against float64 value tables. The model is not imported."""

import float64_oracle as oracle
import ml_dtypes
import numpy as np
import pytest

RULES = ("rceil", "floor", "ceil", "even")
PROFILE_OF = {"rceil": "HOPPER", "floor": "OCP", "ceil": "CEIL", "even": "EVEN"}
BF16 = np.arange(1 << 16, dtype=np.uint16)
BF16_VALUES = oracle.as_float64(BF16)
FINITE = np.isfinite(BF16_VALUES)


def call(host, name, *arguments):
    from refnum.gpu.host.build import library

    getattr(library(), f"refnum_{name}")(*(a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments))


def same(got, wanted, what):
    bad = np.argwhere(np.asarray(got) != np.asarray(wanted))
    assert bad.size == 0, f"{what}: {len(bad)} differ, first at {bad[0]}"


def test_half_product_twin_every_half_and_power(host):
    halves = np.arange(0x7C00, dtype=np.uint16)
    products = np.empty_like(halves)
    for k in range(-24, 16):
        call(host, "scale_half", halves, k, products, halves.size)
        exact = halves.view(np.float16).astype(np.float64) * 2.0**k
        fits = exact < 65520
        same(products[fits], exact[fits].astype(np.float16).view(np.uint16), f"k={k}")


def test_packed_rounding_every_bfloat16_under_every_byte(host):
    """The packed path to E2M1 takes lanes below twice the format's largest binade; the scale rules promise that."""
    codes, seen = np.empty(BF16.size, np.uint8), 0
    for byte in range(255):
        call(host, "encode_e2m1_lanes", BF16, byte, codes, codes.size)
        scaled = BF16_VALUES / 2.0 ** (byte - 127)
        fits = FINITE & (np.abs(scaled) < 8)
        same(codes[fits], oracle.encode("E2M1", scaled[fits]), f"byte {byte}")
        seen += int(fits.sum())
    assert seen > 8_000_000


@pytest.mark.parametrize("kind", [1, 2], ids=["bfloat16", "float16"])
def test_fp8_words_every_half_under_every_byte(host, kind):
    """Elements of FP8 tiles, specials and those that no tile has under this byte included."""
    with np.errstate(invalid="ignore"):
        values = BF16_VALUES if kind == 1 else BF16.view(np.float16).astype(np.float64)
    finite, infinite, codes = np.isfinite(values), np.isinf(values), np.empty(BF16.size, np.uint8)
    signs = (BF16 >> 8 & 0x80).astype(np.uint8)
    for byte in range(255):
        call(host, "encode_e4m3_words", kind, BF16, byte, codes, codes.size)
        same(codes[finite], oracle.encode("E4M3", values[finite] / 2.0 ** (byte - 127)), f"byte {byte}")
        same(codes[infinite], 0x7E | signs[infinite], f"byte {byte}")
        same(codes[np.isnan(values)], 0x7F, f"byte {byte}")


def test_fp8_words_float32_around_every_cut(host):
    """Every sign, exponent and upper 7 fraction bits, with low bits nothing, least, half and all."""
    bits = ((BF16.astype(np.uint32) << 16)[:, None] | np.array([0, 1, 0x8000, 0xFFFF], np.uint32)).reshape(-1)
    x, codes = bits[(bits & 0x7F800000) != 0x7F800000].view(np.float32), np.empty(bits.size, np.uint8)
    for byte in (0, 1, 2, 5, 6, 7, 100, 127, 200, 253, 254):
        call(host, "encode_e4m3_words", 0, x, byte, codes, x.size)
        same(codes[: x.size], oracle.encode("E4M3", x.astype(np.float64) / 2.0 ** (byte - 127)), f"byte {byte}")


def test_scalar_encode_every_bfloat16_to_e2m1_under_every_byte(host):
    x = BF16.view(ml_dtypes.bfloat16)
    for byte in range(255):
        codes = host.encode_e2m1(x, scale_byte=byte)
        same(codes[FINITE], oracle.encode("E2M1", BF16_VALUES[FINITE] / 2.0 ** (byte - 127)), f"byte {byte}")
        assert (codes[0x7F80], codes[0xFF80], codes[0xFFC1]) == (7, 0xF, 7)


def test_scalar_encode_float32_to_e2m1_around_every_cut(host):
    """Every sign, exponent and upper 7 fraction bits, with low bits nothing, least, half and all."""
    bits = ((BF16.astype(np.uint32) << 16)[:, None] | np.array([0, 1, 0x8000, 0xFFFF], np.uint32)).reshape(-1)
    x = bits[(bits & 0x7F800000) != 0x7F800000].view(np.float32)
    for byte in (0, 1, 2, 100, 127, 200, 253, 254):
        exact = x.astype(np.float64) / 2.0 ** (byte - 127)
        same(host.encode_e2m1(x, scale_byte=byte), oracle.encode("E2M1", exact), f"byte {byte}")


def test_scalar_encode_to_e4m3(host):
    """Every bfloat16, and float32 around every cut; other scale bytes are asked of the words of tiles."""
    codes = host.encode_e4m3(BF16.view(ml_dtypes.bfloat16))
    same(codes[FINITE], oracle.encode("E4M3", BF16_VALUES[FINITE]), "bfloat16")
    assert (codes[0x7F80], codes[0xFF80], codes[0xFFC1]) == (0x7E, 0xFE, 0x7F)
    bits = ((BF16.astype(np.uint32) << 16)[:, None] | np.array([0, 1, 0x8000, 0xFFFF], np.uint32)).reshape(-1)
    x = bits[(bits & 0x7F800000) != 0x7F800000].view(np.float32)
    same(host.encode_e4m3(x), oracle.encode("E4M3", x.astype(np.float64)), "float32")


def test_decode_every_code_under_every_byte(host):
    byte, code = np.meshgrid(np.arange(256), np.arange(256), indexing="ij")
    codes = np.repeat(code.astype(np.uint8)[:, None, :], 1, axis=1).reshape(256, 256)
    scales = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2, axis=1)
    exact = oracle.values("E4M3", codes, byte)
    got = host.dequantize_fp8_tiles(codes, scales)
    same(got.view(np.uint32), oracle.float32_bits(exact), "float32")
    narrow = host.dequantize_fp8_tiles(codes, scales, (1, 128), "bfloat16")
    same(narrow.view(np.uint16), oracle.bfloat16_bits(exact), "bfloat16")


def test_decode_words_without_nan_under_every_byte(host):
    """The packed path, which a NaN code in a block would leave: all codes but NaN, 32 at a time."""
    plain = np.array([c for c in range(256) if c & 0x7F != 0x7F] + [0, 0x80], np.uint8)
    codes = np.repeat(plain[None, :], 256, axis=0)
    scales = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2, axis=1)
    exact = oracle.values("E4M3", codes, scales[:, :1].astype(np.int64))
    same(host.dequantize_fp8_tiles(codes, scales).view(np.uint32), oracle.float32_bits(exact), "float32")
    narrow = host.dequantize_fp8_tiles(codes, scales, (1, 128), "bfloat16")
    same(narrow.view(np.uint16), oracle.bfloat16_bits(exact), "bfloat16")


def test_dequantize_mxfp4_every_packed_byte_under_every_scale(host):
    packed = np.repeat(np.arange(256, dtype=np.uint8)[None, :], 256, axis=0)
    scales = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 16, axis=1)
    exact = oracle.values("E2M1", oracle.unpack(packed), scales[:, :1].astype(np.int64))
    same(host.dequantize_mxfp4(packed, scales).view(np.uint32), oracle.float32_bits(exact), "float32")
    narrow = host.dequantize_mxfp4(packed, scales, "bfloat16")
    same(narrow.view(np.uint16), oracle.bfloat16_bits(exact), "bfloat16")


@pytest.mark.parametrize("rule", RULES)
def test_fp8_to_mxfp4_every_maximum_code_and_tile_byte(host, rule):
    """All 127 block maxima, all codes up to each, both signs, all 256 tile bytes with both clamps (N7)."""
    blocks, largest = [], []
    for amax in range(127):
        below = np.arange(amax + 1, dtype=np.uint8)
        below = np.concatenate([below, below | 0x80])
        below = np.concatenate([below, np.zeros(-below.size % 31, np.uint8)]).reshape(-1, 31)
        blocks.append(np.concatenate([np.full((len(below), 1), amax | 0x80, np.uint8), below], axis=1))
        largest += [amax] * len(below)
    block = np.concatenate(blocks)
    codes = np.repeat(block[None], 256, axis=0).reshape(-1, 32)
    tile = np.repeat(np.arange(256), len(block))
    packed, scales = host.fp8_to_mxfp4(codes, tile.astype(np.uint8)[:, None], PROFILE_OF[rule])
    amax = np.tile(oracle.E4M3[np.array(largest)], 256) * oracle.two(np.where(tile == 255, 0, tile) - 127)
    byte = np.where(amax > 0, oracle.scale_byte("E2M1", np.where(amax > 0, amax, 1), rule), 0)
    exact = oracle.decode("E4M3", codes) * oracle.two(tile - byte)[:, None]
    wanted = np.where((tile == 255)[:, None], 0, oracle.encode("E2M1", exact))
    same(scales[:, 0], np.where(tile == 255, 255, byte), "scales")
    same(oracle.unpack(packed), wanted, "codes")


def test_fp8_to_mxfp4_nan_anywhere_makes_a_nan_block(host):
    codes = np.full((64, 32), 0x38, np.uint8)
    codes[np.arange(64), np.arange(64) % 32] = np.where(np.arange(64) < 32, 0x7F, 0xFF)
    packed, scales = host.fp8_to_mxfp4(codes, np.full((64, 1), 127, np.uint8))
    assert (scales == 255).all() and not packed.any()


@pytest.mark.parametrize("mode", ["max", "amax"])
def test_mxfp4_to_fp8_every_code_distance_and_byte(host, mode):
    """Two live blocks of every pair of bytes (254 apart at most), an empty one and a NaN one (N8)."""
    first, second = (a.reshape(-1) for a in np.meshgrid(np.arange(256), np.arange(256), indexing="ij"))
    near = (np.abs(first - second) < 24) | (np.minimum(first, second) < 2) | (np.maximum(first, second) > 253)
    first, second = first[near], second[near]
    rng = np.random.default_rng(5)
    codes = np.zeros((first.size, 128), np.uint8)
    top = rng.integers(1, 8, first.size, dtype=np.uint8)  # the first block's largest code varies
    codes[:, :32] = np.minimum(rng.integers(0, 8, (first.size, 32), dtype=np.uint8), top[:, None])
    codes[:, 0] = top | 8
    codes[:, 32:64] = np.tile(np.arange(16, dtype=np.uint8), 2)
    codes[:, 64:96] = np.tile(np.array([0, 8], np.uint8), 16)
    codes[:, 96:] = 7
    scales = np.stack([first, second, rng.integers(0, 255, first.size), np.full(first.size, 255)], axis=1)
    out, tiles = host.mxfp4_to_fp8(oracle.pack(codes), scales.astype(np.uint8), mode)
    live = np.where((scales == 255) | (np.arange(4) == 2), -1, scales)
    if mode == "max":
        tile = np.maximum(live.max(axis=1) - 6, 0)
    else:
        largest = np.stack([oracle.E2M1[top], np.full(first.size, 6.0)], axis=1)
        amax = np.where(live[:, :2] >= 0, largest * oracle.two(live[:, :2] - 127), 0).max(axis=1)
        tile = oracle.scale_byte("E4M3", np.where(amax > 0, amax, 1))
    tile = np.where((live < 0).all(axis=1), 127, tile)
    same(tiles[:, 0], tile, "tile bytes")
    byte = np.repeat(scales, 32, axis=1)
    same(out, oracle.shared_fp8(codes, byte, tile[:, None]), "codes")


@pytest.mark.parametrize("underflow", ["rne", "te"])
def test_fp8_columns_every_code_and_distance(host, underflow):
    """Rows 0 to 127 binades below the tile's byte, all 256 codes as columns."""
    codes = np.repeat(np.arange(256, dtype=np.uint8)[None], 128, axis=0)
    for top in (254, 127, 60):
        row = np.maximum(top - np.arange(128), 0)
        scales = np.repeat(row.astype(np.uint8)[:, None], 2, axis=1)
        out, bytes_ = host.fp8_columns(codes, scales, None, underflow)
        wanted, wanted_bytes = oracle.fp8_columns(codes, scales, [128], underflow)
        same(out, wanted, f"top {top}")
        same(bytes_, wanted_bytes, "bytes")


@pytest.mark.parametrize("mode", ["max", "amax"])
def test_columns_every_code_and_distance(host, mode):
    """32 columns hold all 16 codes twice; rows fall away from each group's top byte, clamps at 0 included."""
    codes = np.repeat(np.tile(np.arange(16, dtype=np.uint8), 10)[None], 128, axis=0)
    top = np.array([254, 130, 20, 9, 3])
    scales = np.maximum(top[None] - np.arange(128)[:, None] // 2, 0).astype(np.uint8)
    packed = oracle.pack(codes)
    for name in ("mxfp4_to_fp8_columns", "mxfp4_columns"):
        got = getattr(host, name)(packed, scales, None, mode)
        wanted = getattr(oracle, name)(packed, scales, [128], mode)
        same(got[0], wanted[0], "codes")
        same(got[1], wanted[1], "bytes")


def test_stochastic_every_bfloat16_and_random_byte(host):
    """The carry rule by its words: top eight discarded bits, relative to E2M1's own grid, plus eight random ones."""
    v = np.abs(BF16_VALUES[(BF16_VALUES >= 0) & (BF16_VALUES < 8)])
    x = v.astype(np.float32)
    code = np.searchsorted(oracle.E2M1, v, "right") - 1
    step = np.where(v < 2, 0.5, np.where(v < 4, 1.0, 2.0))
    discarded = np.floor((v - oracle.E2M1[code]) / step * 256)
    for random in range(256):
        got = host.encode_e2m1(x, rbits=np.full(x.shape, random, np.uint8))
        same(got, np.minimum(code + (discarded + random >= 256), 7), f"random {random}")
