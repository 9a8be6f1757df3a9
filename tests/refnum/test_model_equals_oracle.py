"""The model equals the exact-rational oracle over every enumerable domain of at most 2**24 cases (N15).

Each test states its domain's exact count and asserts that it compared that many. `PROVED` in the specification
lists them.
"""

import functools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact import oracle_codes, quotient_keys

import refnum as R
from refnum import oracle
from refnum.codec import decode_table
from refnum.profiles import PROFILES, Profile
from refnum.recast import recode_table
from refnum.scales import finite_scale

MX = ("E2M1", "E2M3", "E3M2", "E4M3", "E5M2", "MXINT8")
CODED = ("E2M1", "E2M3", "E3M2", "E4M3", "E5M2", "E8M0", "MXINT8")
TIES = ("even", "away", "up", "down", "zero")
ALL16 = np.arange(1 << 16, dtype=np.uint16)


float_value = functools.cache(oracle.float_value)
"""Asked once for each 16-bit number and each maximum: several rules and formats take the same ones."""
float_bits = functools.lru_cache(1 << 17)(oracle.float_bits)
"""Asked once for each number: most are the value of several codes, each under another scale byte."""


def bits_of(exact):
    return float_bits(exact, "float32")


@functools.cache
def covered(fmt, dtype):
    """The oracle's bits of every code under every scale byte, [scale][code]."""
    codes = range(1 << R.FORMATS[fmt].bits)
    return [[float_bits(oracle.covered(fmt, code, scale), dtype) for code in codes] for scale in range(256)]


@pytest.mark.parametrize("fmt", CODED)
def test_decode_every_code(fmt):
    """16, 64, 64, 256, 256, 256, 256 codes."""
    codes = np.arange(1 << R.FORMATS[fmt].bits, dtype=np.uint8 if fmt != "E8M0" else np.uint16).astype(np.uint8)
    got = R.decode(fmt, codes).view(np.uint32)
    want = [bits_of(oracle.decode(fmt, int(c), signed_zero=True)) for c in codes]
    assert got.tolist() == want


@pytest.mark.parametrize("fmt", ["BF16", "FP16"])
def test_decode_16_bit_formats(fmt):
    """65,536 codes each, against the oracle and against the IEEE dtype itself."""
    name = {"BF16": "bfloat16", "FP16": "float16"}[fmt]
    got = R.decode(fmt, ALL16).view(np.uint32)
    assert got.tolist() == [oracle.float_bits(float_value(int(b), name), "float32") for b in ALL16]


@pytest.mark.parametrize("fmt", MX)
def test_dequantize_every_code_under_every_scale(fmt):
    """E2M1 4,096 cases, FP6 16,384 each, eight-bit elements 65,536 each, to float32 and to bfloat16."""
    width = 1 << R.FORMATS[fmt].bits
    scales = np.arange(256, dtype=np.uint8)
    codes = np.tile(np.arange(width, dtype=np.uint8), (256, 1))
    if width < 32:
        codes = np.tile(codes, (1, 32 // width))
    spread = np.tile(scales[:, None], (1, codes.shape[1] // 32))
    for dtype, word in (("float32", np.uint32), ("bfloat16", np.uint16)):
        got = R.dequantize_mx(codes, spread, fmt, dtype).view(word)[:, :width]
        assert got.tolist() == covered(fmt, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dequantize_mxfp4_every_byte_under_every_scale(dtype):
    """65,536 packed bytes x scales."""
    packed = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
    scales = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, 16))
    got = R.dequantize_mxfp4(packed, scales, dtype).view(np.uint32 if dtype == "float32" else np.uint16)
    one = covered("E2M1", dtype)
    want = [[one[s][nibble] for byte in range(256) for nibble in (byte & 15, byte >> 4)] for s in range(256)]
    assert got.tolist() == want


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dequantize_fp8_every_code_under_every_scale(dtype):
    """65,536 codes x scales."""
    codes = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
    scales = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, 2))
    got = R.dequantize_fp8_tiles(codes, scales, dtype=dtype).view(np.uint32 if dtype == "float32" else np.uint16)
    assert got.tolist() == covered("E4M3", dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("fmt", MX)
def test_encode_every_16_bit_value(fmt, dtype):
    """All 65,536 inputs under every policy.

    bfloat16: five tie rules x the sign-of-zero choice, and toward zero: 720,896 cases a format. float16, whose
    values the bfloat16 run does not all hold: ties to even with both signs of zero: 131,072 cases.
    """
    x = ALL16.view(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16)
    layout = (7, 8) if dtype == "bfloat16" else (10, 5)
    top = (0x7F80, 0x7C00)[dtype == "float16"]
    positive = ALL16[top > ALL16]
    keys = quotient_keys(positive, *layout)
    done = 0
    policies = [{"ties": "even"}]
    if dtype == "bfloat16":
        policies = [{"ties": t} for t in TIES] + [{"rounding": "toward_zero"}]
    for policy in policies:
        plus, _ = oracle_codes(fmt, *keys, **policy)
        mirrored = {"up": "down", "down": "up"}.get(policy.get("ties", ""), policy.get("ties", "even"))
        minus_magnitude, _ = oracle_codes(fmt, *keys, **{**policy, "ties": mirrored})
        for zero in ("keep", "drop"):
            if policy.get("rounding") and zero == "drop":
                continue
            profile = Profile("t", negative_zero=zero, **policy)
            got = R.encode(fmt, x, 0, profile).astype(np.int64)
            assert np.array_equal(got[positive], plus)
            want = negate(fmt, minus_magnitude, zero)
            assert np.array_equal(got[positive | 0x8000], want)
            check_special(fmt, got, top)
            done += got.size
    assert done == (11 if dtype == "bfloat16" else 2) * 65536


def negate(fmt, codes, zero):
    if fmt == "MXINT8":
        return -codes & 0xFF
    return np.where((codes == 0) & (zero == "drop"), 0, codes | R.FORMATS[fmt].sign_mask)


def check_special(fmt, got, top):
    facts = R.FORMATS[fmt]
    assert got[top] == facts.max_code and got[top | 0x8000] == int(negate(fmt, np.array(facts.max_code), "keep"))
    nan = facts.max_code if facts.nan_code is None else facts.nan_code
    assert set(got[top + 1 : 0x8000]) == set(got[(top | 0x8000) + 1 :]) == {nan}
    assert nan == oracle.encode(fmt, oracle.NAN)


def test_negative_values_by_the_oracle_itself():
    """The mirror used above, checked on the oracle: every negative bf16 in one binade around each E2M1 tie."""
    for bits in range(0x3E00, 0x40E1):
        value = float_value(bits | 0x8000, "bfloat16")
        for ties in TIES:
            got = int(R.encode("E2M1", np.array([bits | 0x8000], np.uint16), 0, Profile("t", ties=ties))[0])
            assert got == oracle.encode("E2M1", value, ties=ties)


@pytest.mark.parametrize("overflow", ["nan", "saturate"])
@pytest.mark.parametrize("fmt", ["E4M3", "E5M2"])
def test_overflow_policy(fmt, overflow):
    """Every bf16 of at least the largest value and both infinities, both signs: at least 2 x 15,000 cases."""
    done = 0
    for sign in (0, 0x8000):
        bits = np.arange(0x4300, 0x7F81, dtype=np.uint16) | np.uint16(sign)
        got = R.encode(fmt, bits, 0, Profile("t", overflow=overflow))
        want = [oracle.encode(fmt, float_value(int(b), "bfloat16"), overflow=overflow) for b in bits[::7]]
        assert got[::7].tolist() == want
        done += len(want)
    assert done > 4000


@pytest.mark.parametrize("fmt", ["E2M1", "E4M3"])
def test_every_bfloat16_under_every_scale(fmt):
    """65,536 bf16 x 256 scale exponents = 16,777,216 cases, sign and specials included."""
    significand, exponent = quotient_keys(ALL16[:0x7F80], 7, 8)
    odd, place = np.unique(significand, return_inverse=True)
    binades = np.arange(exponent.min() - 128, exponent.max() + 128)
    answers, asked = oracle_codes(fmt, odd[:, None] + 0 * binades, 0 * odd[:, None] + binades)
    done = 0
    for byte in range(256):
        got = R.encode(fmt, ALL16, byte - 127)
        want = answers[place, exponent - (byte - 127) - binades[0]]
        assert np.array_equal(got[:0x7F80], want)
        assert np.array_equal(got[0x8000:0xFF80], want | R.FORMATS[fmt].sign_mask)
        done += got.size
    assert done == 1 << 24
    assert asked > 40000


@pytest.mark.parametrize("fmt", ["E2M1", "E4M3"])
def test_stochastic_rounding_of_every_bfloat16_with_every_random_byte(fmt):
    """65,536 bf16 x 256 random bytes = 16,777,216 cases.

    The oracle's answer is a step in the random byte: where the model has its step, the oracle is asked on both sides
    of it and at both ends, and every byte is compared.
    """
    profile = PROFILES["STOCHASTIC"]
    draws = np.arange(256, dtype=np.uint8)
    step = {}
    done = 0
    for start in range(0, 1 << 16, 4096):
        bits = ALL16[start : start + 4096]
        got = R.encode(fmt, np.repeat(bits, 256), 0, profile, rbits=np.tile(draws, bits.size)).reshape(-1, 256)
        want = np.stack([stochastic_row(fmt, int(b), row, step) for b, row in zip(bits, got, strict=True)])
        assert np.array_equal(got, want)
        done += got.size
    assert done == 1 << 24


def stochastic_row(fmt, bits, row, cache):
    magnitude = bits & 0x7FFF
    if magnitude > 0x7F80:
        return np.full(256, oracle.encode(fmt, oracle.NAN), np.uint8)
    if magnitude not in cache:
        value = float_value(magnitude, "bfloat16")

        def ask(r):
            return oracle.encode(fmt, value, rounding="stochastic", rbits=r)

        floor, first = ask(0), int((row == row[0]).sum())  # the model's first byte that rounds up, 256 for none
        trivial = magnitude == 0x7F80 or value > oracle.TABLES[fmt].maximum
        if trivial or (first == 256 and ask(255) == floor):
            first = 256
        else:
            assert 0 < first < 256 and ask(first - 1) == floor and ask(first) == ask(255) == floor + 1
        cache[magnitude] = np.where(np.arange(256) >= first, floor + 1, floor).astype(np.uint8)
    return cache[magnitude] | np.uint8(R.FORMATS[fmt].sign_mask if bits & 0x8000 else 0)


@pytest.mark.parametrize("rule", ["rceil", "floor", "ceil", "even"])
@pytest.mark.parametrize("fmt", MX)
def test_scale_of_every_bfloat16_maximum(fmt, rule):
    """Positive finite bf16 maxima and the same one float32 ulp above and below: 97,917 a rule for E2M1.

    The other elements take every 23rd of them, 4,258 a rule.
    """
    middle = np.arange(1, 0x7F80, dtype=np.uint32) << 16
    amax = np.concatenate([middle - 1, middle, middle + 1])
    got = finite_scale(amax, R.FORMATS[fmt], Profile("t", scale_rule=rule))
    stride = 1 if fmt == "E2M1" else 23
    want = [oracle.scale_byte(rule, float_value(int(a)), fmt) for a in amax[::stride]]
    assert got[::stride].tolist() == want


@pytest.mark.parametrize("pair", [("E4M3", "E2M1"), ("E2M1", "E4M3"), ("E4M3", "E4M3"), ("E2M1", "E2M1")])
def test_recode_every_code_at_every_shift(pair):
    """Codes x 512 shifts: 131,072 or 8,192 cases; the tables of N7 to N10, whole."""
    source, target = pair
    width = 1 << R.FORMATS[source].bits
    table = recode_table(R.FORMATS[source], R.FORMATS[target], R.HOPPER).reshape(512, width)
    finite, want = moved(source, target, np.arange(-256, 256))
    assert np.array_equal(table[:, finite], want.T)
    for code in set(range(width)) - set(finite.tolist()):
        want = oracle.encode(target, oracle.decode(source, code))
        assert R.FORMATS[target].nan_code is None or (table[:, code] == want).all()


def moved(source, target, shifts):
    """The finite codes of a format, and the oracle's code of the value of each times 2**shift, [code, shift]."""
    values = [oracle.decode(source, code, signed_zero=True) for code in range(1 << R.FORMATS[source].bits)]
    finite = [code for code, value in enumerate(values) if oracle.values.is_finite(value)]
    significand, exponent, minus = [], [], []
    for value in (values[code] for code in finite):
        magnitude = abs(oracle.values.number(value))
        even = max((magnitude.numerator & -magnitude.numerator).bit_length() - 1, 0)
        significand.append(magnitude.numerator >> even)
        exponent.append(even - (magnitude.denominator.bit_length() - 1))
        minus.append(oracle.values.is_negative(value))
    pairs = np.broadcast_arrays(np.array(significand)[:, None], np.array(exponent)[:, None] + shifts)
    codes, _ = oracle_codes(target, *pairs)
    return np.array(finite), codes | np.where(minus, R.FORMATS[target].sign_mask, 0)[:, None]


def test_fp8_to_mxfp4_every_maximum_code_and_tile_scale():
    """127 block maxima x 256 tile scales x every code not above the maximum: 4,161,536 cases, clamps included.

    With the block's byte from the oracle and each element from the oracle at that byte: N7 by its definition.
    """
    done = 0
    answers = np.zeros((512, 256), np.uint8)  # [shift + 256][code]
    finite, want = moved("E4M3", "E2M1", np.arange(-256, 256))
    answers[:, finite] = want.T
    for amax in range(127):
        codes = np.concatenate([np.arange(amax + 1), 0x80 + np.arange(amax + 1)])
        blocks = -(-codes.size // 31)
        padded = np.zeros(blocks * 31, np.uint8)
        padded[: codes.size] = codes
        row = np.concatenate([np.full((blocks, 1), amax, np.uint8), padded.reshape(blocks, 31)], axis=1).reshape(-1)
        row = np.concatenate([row, np.zeros(-row.size % 128, np.uint8)])
        tile = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, row.size // 128))
        packed, scales = R.fp8_to_mxfp4(np.tile(row, (256, 1)), tile)
        nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(256, -1, 32)
        got = nibbles[:, :blocks, 1:].reshape(256, -1)[:, : codes.size]
        want_bytes = np.array([block_byte(amax, byte) for byte in range(256)])
        assert (scales[:, :blocks] == want_bytes[:, None]).all(), amax
        want = answers[np.arange(256)[:, None] - want_bytes[:, None] + 256, codes]
        assert np.array_equal(got, np.where(want_bytes[:, None] == 255, 0, want)), amax
        done += got.size
    assert done == 256 * sum(2 * (a + 1) for a in range(127)) == 4_161_536


def block_byte(amax, tile):
    if tile == 255:
        return 255
    if amax == 0:
        return 0
    return scale_byte("rceil", oracle.decode("E4M3", amax) * Fraction(2) ** (tile - 127))


scale_byte = functools.cache(oracle.scale_byte)


def test_mxfp4_to_fp8_every_nibble_distance_and_byte():
    """16 nibbles x block bytes 0..255 x largest bytes 0..254 of the tile: 1,044,480 cases."""
    table = recode_table(R.E2M1, R.E4M3, R.HOPPER).reshape(512, 16)  # proved above, whole
    nibbles = np.arange(16, dtype=np.uint8)
    block = np.concatenate([nibbles, nibbles])
    packed_block = block[0::2] | block[1::2] << 4
    largest_block = np.full(16, 0x22, np.uint8)  # ones: not empty
    packed = np.tile(np.concatenate([largest_block, packed_block, largest_block * 0, largest_block * 0]), (256, 1))
    done = 0
    for top in range(255):
        scales = np.zeros((256, 4), np.uint8)
        scales[:, 0], scales[:, 1], scales[:, 2:] = top, np.arange(256), 254  # empty blocks with a huge byte
        codes, tiles = R.mxfp4_to_fp8(packed, scales)
        for byte in (0, top, 255) if top % 16 else range(256):
            emax = top if byte == 255 else max(top, byte)
            assert tiles[byte, 0] == max(emax - 6, 0)
        emax = np.where(np.arange(256) == 255, top, np.maximum(top, np.arange(256)))
        want = table[np.arange(256) - np.maximum(emax - 6, 0) + 256]
        want[255] = 0x7F
        assert np.array_equal(codes[:, 32:48], want) and np.array_equal(codes[:, 48:64], want)
        assert (codes[:, 64:] == 0).all()
        done += want.size
    assert done == 16 * 256 * 255


def test_exact_up_to_distance_14():
    """FP4 -> FP8 is exact for all 16 codes iff the distance is at most 14 (N8); first loss at 15."""
    exact = []
    for distance in range(41):
        codes, tiles = R.mxfp4_to_fp8(*two_blocks(distance))
        got = R.dequantize_fp8_tiles(codes, tiles)
        exact.append(np.array_equal(got, R.dequantize_mxfp4(*two_blocks(distance))))
    assert exact == [d <= 14 for d in range(41)]


def two_blocks(distance):
    nibbles = np.tile(np.arange(16, dtype=np.uint8), 4)
    packed = (nibbles[0::2] | nibbles[1::2] << 4)[None]
    return packed, np.array([[200, 200 - distance]], np.uint8)


def test_decode_tables_are_what_decode_uses():
    assert decode_table(R.E2M1)[7] == bits_of(Fraction(6))
