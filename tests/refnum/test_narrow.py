"""The quick path through 16 bits gives the codes of `encode_bits`, and declines whatever it cannot hold.

209 scale bytes x 5 formats x 8 roundings, each on the patterns about every rounding boundary with quotients below
2^16: more than 10^8 comparisons. Float32 that cut to the same upper half but differ below are among them.
"""

import numpy as np
import pytest

import refnum
from refnum import narrow
from refnum.arrays import group_max, pack_nibbles, unpack_nibbles
from refnum.codec import encode_bits
from refnum.conformance.subjects.peers import survey

FORMATS = ("E2M1", "E2M3", "E3M2", "E4M3", "E5M2")
ROUNDINGS = {
    "even": {}, "away": {"ties": "away"}, "up": {"ties": "up"}, "down": {"ties": "down"}, "zero": {"ties": "zero"},
    "toward_zero": {"rounding": "toward_zero"}, "drop": {"negative_zero": "drop"}, "nan": {"overflow": "nan"},
}  # fmt: skip


def policies(fmt):
    return {
        name: refnum.HOPPER.replace(name=f"test/{name}", **changes)
        for name, changes in ROUNDINGS.items()
        if name != "nan" or refnum.FORMATS[fmt].nan_code is not None
    }


def patterns_of(byte):
    """Finite boundary patterns whose quotient by 2^(byte - 127) is below 2^16, subnormals and zeros included."""
    bits = survey.boundary()
    return bits[(bits & np.uint32(0x7FFFFFFF)) < min((byte + 16) << 23, 0x7F800000)]


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_scale_byte_that_is_taken_gives_the_same_codes(fmt):
    target, compared = refnum.FORMATS[fmt], 0
    for byte in range(narrow.LOW_BYTE, narrow.HIGH_BYTE + 1):
        bits = patterns_of(byte)[byte % 7 :: 7]
        scales = np.array([byte], np.uint8)
        for profile in policies(fmt).values():
            quick = narrow.encode_scaled(target, bits[None], scales, profile)
            slow = encode_bits(target, bits, byte - 127, profile, finite=True)
            assert np.array_equal(quick[0], slow), (byte, profile.name)
            compared += bits.size
    assert compared > 5_000_000


@pytest.mark.parametrize("fmt", FORMATS)
def test_plain_encoding_takes_any_exponent_and_infinity(fmt):
    bits = survey.boundary()
    bits = bits[(bits & np.uint32(0x7FFFFFFF)) <= 0x7F800000]
    taken = 0
    for exponent in range(-100, 118):
        for profile in policies(fmt).values():
            quick = narrow.encode_plain(refnum.FORMATS[fmt], bits[exponent % 5 :: 5], exponent, profile)
            if quick is None:
                assert not narrow.LOW_BYTE <= exponent + 127 <= narrow.HIGH_BYTE
                continue
            slow = encode_bits(refnum.FORMATS[fmt], bits[exponent % 5 :: 5], exponent, profile)
            assert np.array_equal(quick, slow), (exponent, profile.name)
            taken += 1
    assert taken == 209 * len(policies(fmt))


@pytest.mark.parametrize("profile", ["HOPPER", "OCP", "TE", "MICROXCALING", "DEEPGEMM"])
def test_bfloat16_is_quantised_as_the_float32_that_it_is(profile):
    """All 65,536 bfloat16 as block maxima, and in turn; short last tiles."""
    led = survey.blocks_led_by(np.arange(1 << 15, dtype=np.uint32) << np.uint32(16)).view(np.uint32) & 0xFFFF0000
    patterns = np.concatenate([(led >> 16).astype(np.uint16).reshape(-1), np.arange(1 << 16, dtype=np.uint16)])
    narrow_x = patterns[: patterns.size // 160 * 160].reshape(-1, 160)
    wide_x = (narrow_x.astype(np.uint32) << np.uint32(16)).view(np.float32)
    for element in (*FORMATS, "MXINT8"):
        for ours, same in zip(refnum.quantize_mx(narrow_x, element, profile),
                              refnum.quantize_mx(wide_x, element, profile), strict=True):  # fmt: skip
            assert np.array_equal(ours, same), element
    for tile in ((1, 128), (128, 128)):
        for ours, same in zip(refnum.quantize_fp8_tiles(narrow_x, tile, profile),
                              refnum.quantize_fp8_tiles(wide_x, tile, profile), strict=True):  # fmt: skip
            assert np.array_equal(ours, same), tile
    assert np.array_equal(refnum.block_class(narrow_x), refnum.block_class(wide_x))


def test_what_does_not_fit_is_declined():
    one = np.full((1, 32), 0x3F800000, np.uint32)
    e4m3, hopper = refnum.E4M3, refnum.HOPPER
    for byte in (0, 31, 241, 254, 255):
        assert narrow.encode_scaled(e4m3, one, np.array([byte], np.uint8), hopper) is None
    packed, _ = refnum.quantize_mxfp4(np.zeros((1, 32), np.float32))  # a byte out of reach, and no element
    assert not packed.any()
    for fmt in ("MXINT8", "BF16", "FP16", "E3M0", "FP4_RADIX4", "INT4"):
        assert not narrow.fits(refnum.FORMATS[fmt], hopper)
    assert not narrow.fits(e4m3, refnum.PROFILES["STOCHASTIC"])
    assert narrow.encode_plain(e4m3, one | 0x7FC00000, 0, hopper) is None
    both = hopper.replace(name="test/both", rounding="toward_zero", overflow="nan")
    assert narrow.encode_plain(e4m3, one, 0, both) is None


def test_rounding_to_odd_keeps_what_lies_below():
    bits = np.array([0x3F800000, 0x3F800001, 0x3F80FFFF, 0x3F810000, 0x00000001, 0xFFFFFFFF, 0x7F800001], np.uint32)
    assert narrow.upper_bits_to_odd(bits).tolist() == [0x3F80, 0x3F81, 0x3F81, 0x3F81, 0x0001, 0xFFFF, 0x7F81]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int32])
@pytest.mark.parametrize("shape", [(0, 64), (1, 32), (5, 96), (3, 2, 64)])
def test_group_max_is_the_maximum_of_each_run(dtype, shape):
    x = np.random.default_rng(3).integers(0, 200, shape).astype(dtype)
    assert np.array_equal(group_max(x, 32), x.reshape(*shape[:-1], shape[-1] // 32, 32).max(axis=-1))


def test_nibbles_of_every_byte_pack_and_unpack():
    packed = np.arange(256, dtype=np.uint8).reshape(8, 32)
    codes = unpack_nibbles(packed)
    assert codes[0, :4].tolist() == [0, 0, 1, 0] and codes.shape == (8, 64) and codes.max() == 15
    assert np.array_equal(pack_nibbles(codes), packed)
    assert np.array_equal(unpack_nibbles(packed.T), unpack_nibbles(np.ascontiguousarray(packed.T)))
    assert np.array_equal(pack_nibbles(codes[:, ::-1]), packed[:, ::-1] << 4 | packed[:, ::-1] >> 4)
    assert pack_nibbles(np.zeros((0, 64), np.uint8)).shape == (0, 32)
