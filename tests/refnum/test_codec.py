"""Codes and values at their edges, and the facts of the formats that no table of values shows."""

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.arrays import CHUNK
from refnum.casts import encode_e8m0
from refnum.codec import code_dtype, ml_dtype, to_float32_bits
from refnum.errors import ArgumentError, ProfileError
from refnum.formats import FORMATS, Format
from refnum.rounding import round_magnitude, split_float32
from refnum.scales import block_scale

SUBNORMALS = sorted({0, 1, 2, 3, *(1 << k for k in range(23)), *((1 << k) - 1 for k in range(1, 24)), 0x555555})


def test_nan_and_infinity_of_each_format() -> None:
    both = {name: (fmt.nan_code, fmt.inf_code) for name, fmt in FORMATS.items() if fmt.nan_code or fmt.inf_code}
    assert both == {
        "E4M3": (0x7F, None),
        "E5M2": (0x7F, 0x7C),
        "E8M0": (0xFF, None),
        "BF16": (0x7FC0, 0x7F80),
        "FP16": (0x7E00, 0x7C00),
        "FP32": (0x7FC00000, 0x7F800000),
    }
    x = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert refnum.encode("E4M3", x).tolist() == [0x7F, 0x7E, 0xFE]  # HOPPER saturates
    assert refnum.encode("E5M2", x).tolist() == [0x7F, 0x7B, 0xFB]
    beyond = refnum.get_profile("HOPPER").replace(name="inf", overflow="nan")
    assert refnum.encode("E5M2", x, 0, beyond).tolist() == [0x7F, 0x7C, 0xFC]
    assert refnum.encode("BF16", x, 0, beyond).tolist() == [0x7FC0, 0x7F80, 0xFF80]
    assert refnum.encode("FP16", x, 0, beyond).tolist() == [0x7E00, 0x7C00, 0xFC00]
    assert [FORMATS[name].bias for name in ("INT4", "MXINT8")] == [0, 0]  # no exponent, no bias


def test_one_code_has_the_smallest_dtype_that_holds_it() -> None:
    widths = {8: np.uint8, 9: np.uint16, 16: np.uint16, 17: np.uint32, 32: np.uint32}
    for bits, dtype in widths.items():
        assert code_dtype(Format("x", 4, bits - 5, 7, 1)) == dtype
    assert [code_dtype(FORMATS[name]) for name in ("E4M3", "BF16", "FP16", "FP32")] == [
        np.uint8, np.uint16, np.uint16, np.uint32,
    ]  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_value_is_asked_for_every_code_and_no_other(name: str) -> None:
    last = (1 << FORMATS[name].bits) - 1
    assert all(refnum.value(name, code) is not None for code in (0, last))
    for code in (-1, last + 1):
        with pytest.raises(
            ArgumentError, match=f"code is {code}; allowed are integers from 0 to 2..{last.bit_length()} - 1"
        ):
            refnum.value(name, code)


def test_exponents_up_to_1024_are_taken() -> None:
    x = np.array([2.0**-149, 1.0, 2.0**127, 0.0, np.inf], np.float32)
    assert refnum.encode("E2M1", x, 1024).tolist() == [0, 0, 0, 0, 7]
    assert refnum.encode("E2M1", -x, -1024).tolist() == [15, 15, 15, 8, 15]
    for exponent in (1024, -1024):
        both = refnum.encode("E2M1", x, np.array([exponent])), refnum.encode("E2M1", x, exponent)
        assert np.array_equal(*both)
    for exponent in (1025, -1025):
        for given in (exponent, np.array([exponent])):
            with pytest.raises(ArgumentError, match=f"{exponent}.*-1024 to 1024"):
                refnum.encode("E2M1", x, given)


def test_mxint8_never_gives_minus_2_though_it_reads_it() -> None:
    x = np.array([-2, -3, -255 / 128, -127 / 64, 2, -np.inf, -1.5], np.float32)
    assert refnum.encode("MXINT8", x).tolist() == [0x81, 0x81, 0x81, 0x81, 0x7F, 0x81, 0xA0]
    assert refnum.value("MXINT8", 0x80) == -2 and FORMATS["MXINT8"].min_code == -127


ENCODED = [name for name in FORMATS if name not in ("E8M0", "FP32")]


@pytest.mark.parametrize("name", ENCODED)
def test_a_zero_stays_zero_under_every_exponent(name: str) -> None:
    exponents = np.arange(-1024, 1025)
    assert not refnum.encode(name, np.zeros(exponents.shape, np.float32), exponents).any()
    assert refnum.encode(name, np.zeros(3, np.float16), -1024).tolist() == [0, 0, 0]
    if FORMATS[name].kind == "float":
        negative = refnum.encode(name, np.full(exponents.shape, -0.0, np.float32), exponents)
        assert (negative == FORMATS[name].sign_mask).all()


def test_an_array_without_axes_gives_one() -> None:
    codes = refnum.encode("E4M3", np.array(1.5, np.float32))
    assert isinstance(codes, np.ndarray) and codes.shape == () and refnum.decode("E4M3", codes) == 1.5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ENCODED)
def test_a_number_without_axes_has_the_code_that_it_has_in_an_array(name: str) -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0, 1e-45, -3e38, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(all="raise"):
        alone = [refnum.encode(name, np.array(each)) for each in x]
    assert all(isinstance(code, np.ndarray) and code.shape == () for code in alone)
    assert [code.item() for code in alone] == refnum.encode(name, x).tolist()
    bits, stochastic = np.array(200, np.uint8), refnum.get_profile("STOCHASTIC")
    if FORMATS[name].radix == 2:
        for each in x:
            alone = refnum.encode(name, np.array(each), 1, stochastic, rbits=bits)
            assert alone == refnum.encode(name, each.reshape(1), 1, stochastic, rbits=bits.reshape(1))


def test_float32_is_decoded_with_one_nan() -> None:
    codes = np.array([0x7F800001, 0xFFC12345, 0x7FC00000, 0x7F800000, 0xFF800000, 1 << 31, 1, 0x3F800000], np.uint32)
    want = [0x7FC00000, 0x7FC00000, *codes[2:].tolist()]
    for given in (codes, codes.astype(np.uint64)):
        assert refnum.decode("FP32", given).view(np.uint32).tolist() == want


@pytest.mark.parametrize("name", FORMATS)
def test_a_code_without_axes_gives_an_array(name: str) -> None:
    found = refnum.decode(name, np.array(1, code_dtype(FORMATS[name])))
    assert isinstance(found, np.ndarray) and found.shape == () and found.dtype == np.float32
    assert found == float(refnum.value(name, 1))


def test_the_dtype_of_each_format() -> None:
    assert ml_dtype("FP16") == np.float16 and ml_dtype("FP32") == np.float32 and ml_dtype("BF16") == ml_dtypes.bfloat16
    assert ml_dtype("E2M1") == ml_dtypes.float4_e2m1fn and ml_dtype("MXINT8") is None


def test_float32_bits_of_exact_values() -> None:
    bits = [
        *SUBNORMALS,
        0x7FFFFF,
        0x800000,
        0x800001,
        0xFFFFFF,
        0x1000000,
        0x3F7FFFFF,
        0x3F800000,
        0x3F800001,
        0x7F7FFFFF,
    ]
    for pattern in bits:
        exact = Fraction(float(np.uint32(pattern).view(np.float32)))
        assert to_float32_bits(exact) == pattern
        assert to_float32_bits(-exact) == (pattern | 1 << 31 if pattern else 0)
    assert to_float32_bits(Fraction(0), negative=True) == 1 << 31
    assert [to_float32_bits(Fraction(2) ** e) for e in (127, 128, 129)] == [0x7F000000, 0x7F800000, 0x7F800000]
    assert to_float32_bits(-(Fraction(2) ** 128)) == 0xFF800000
    assert [to_float32_bits(Fraction(2) ** 128 + more) for more in (Fraction(1, 3), 1 << 127)] == [0x7F800000] * 2
    for wrong in (
        Fraction(2) ** 128 - Fraction(1, 3),
        Fraction(1, 3),
        Fraction(2, 3),
        Fraction(2) ** -150,
        Fraction(3) * Fraction(2) ** -150,
        Fraction((1 << 24) + 1),
    ):
        with pytest.raises(ProfileError, match="is no float32 value"):
            to_float32_bits(wrong)


def test_float32_is_split_exactly() -> None:
    bits = np.array([*SUBNORMALS, 0x7FFFFF, 0x800000, 0x800001, 0xFFFFFF, 0x3F800000, 0x7F7FFFFF], np.uint32)
    for few in (bits, bits[bits >= 1 << 23]):
        exponent, significand = split_float32(few)
        assert exponent.dtype == np.int32 and significand.dtype == np.uint32
        for pattern, e, s in zip(few.tolist(), exponent.tolist(), significand.tolist(), strict=True):
            assert s * Fraction(2) ** (e - 23) == Fraction(float(np.uint32(pattern).view(np.float32)))
            assert s >> 23 == 1 if pattern else s == 0
    assert split_float32(bits[:1])[0][0] < -149  # below every format's range


def test_radix_4_rounds_to_the_nearest_and_halves_to_even_codes() -> None:
    values = [refnum.value("FP4_RADIX4", code) for code in range(8)]
    middles = [(below + above) / 2 for below, above in itertools.pairwise(values)]
    bits = np.array([to_float32_bits(middle) for middle in middles], np.uint32)
    for step in (-1, 0, 1):
        found = refnum.encode("FP4_RADIX4", (bits + np.uint32(step % (1 << 32))).view(np.float32)).tolist()
        assert found == [code + 1 if step > 0 or (step == 0 and code % 2) else code for code in range(7)]
    x = np.array([0, 1e-45, 1.1754942e-38, float(values[7]), 1e30, np.inf, -1e30, -0.0], np.float32)
    assert refnum.encode("FP4_RADIX4", x).tolist() == [0, 0, 0, 7, 7, 7, 15, 8]


@pytest.mark.parametrize("random_bits", [1, 4, 8, 15, 16, 17, 21, 22, 23, 24])
@pytest.mark.parametrize("name", ["E2M1", "E4M3", "BF16", "MXINT8"])
def test_stochastic_rounding_adds_random_bits_below_the_last_place(name: str, random_bits: int) -> None:
    """The magnitude in units of 2^-random_bits of its last place, cut off, plus the random bits, cut off again."""
    rng = np.random.default_rng(random_bits)
    fmt, profile = FORMATS[name], refnum.get_profile("STOCHASTIC").replace(name="k", random_bits=random_bits)
    significand = rng.integers(1 << 23, 1 << 24, 200, np.uint32)
    significand[:4] = (1 << 23, (1 << 24) - 1, (1 << 23) + 1, 0)
    exponent = rng.integers(-30, 2, 200).astype(np.int32)
    exponent[3] = -276
    rbits = rng.integers(0, 1 << random_bits, 200, np.uint64)
    rbits[:2] = (1 << random_bits) - 1, 0
    quantum = [-fmt.fraction_bits if fmt.kind == "integer" else max(e, 1 - fmt.bias) - fmt.mantissa_bits
               for e in exponent.tolist()]  # fmt: skip
    for i in range(4, 200, 2):  # what is just enough, and one less, to carry
        rest = int(significand[i]) * Fraction(2) ** (int(exponent[i]) - 23 - quantum[i]) % 1
        rbits[i] = ((1 << random_bits) - int(rest * 2**random_bits) - i // 2 % 2) % (1 << random_bits)
    negative = np.zeros(200, bool)
    codes = round_magnitude(fmt, exponent, significand, profile, negative=negative, rbits=rbits)
    for s, e, r, code in zip(significand.tolist(), exponent.tolist(), rbits.tolist(), codes.tolist(), strict=True):
        lowest = -fmt.fraction_bits if fmt.kind == "integer" else max(e, 1 - fmt.bias) - fmt.mantissa_bits
        base = 0 if fmt.kind == "integer" else max(e - (1 - fmt.bias), 0) << fmt.mantissa_bits
        units = s * Fraction(2) ** (e - 23 - lowest)
        kept, rest = units // 1, units % 1
        carry = (rest * 2**random_bits // 1 + r) >> random_bits
        assert code == min(base + int(kept) + int(carry), fmt.max_code)


def test_a_block_of_zeros_has_its_own_byte_and_the_smallest_magnitude_another() -> None:
    profile = refnum.get_profile("HOPPER").replace(name="z", zero_scale=77)
    assert block_scale(np.array([0, 1], np.uint32), FORMATS["E2M1"], profile).tolist() == [77, 0]


@pytest.mark.parametrize("rounding", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [False, True])
def test_scale_casts_at_both_ends(rounding: str, saturate: bool) -> None:
    bits = np.array(
        [0, 1 << 31, 1, 0x400000, 0x7F000000, 0x7F000001, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001], np.uint32
    )
    top = 254 if saturate else 255
    over = {"up": [top, top], "down": [254, 254], "nearest": [254, top]}[rounding]
    assert encode_e8m0(bits.view(np.float32), rounding, saturate).tolist() == [0, 0, 0, 0, 254, *over, top, top, 255]


def test_every_nan_of_a_large_array_is_one() -> None:
    x = np.ones(CHUNK + 3, np.float32)
    x.view(np.uint32)[[0, CHUNK + 1, CHUNK + 2]] = 0x7F800001, 0xFF800001, 0x7F800000
    codes = refnum.encode("E4M3", x)
    assert codes[[0, 1, CHUNK, CHUNK + 1, CHUNK + 2]].tolist() == [0x7F, 0x38, 0x38, 0x7F, 0x7E]


def test_random_bits_by_key_go_on_from_pass_to_pass() -> None:
    rows = CHUNK // 512 + 5
    x = np.random.default_rng(3).standard_normal((rows, 512)).astype(np.float32)
    key = (5, 6, 7, 96)
    rbits = refnum.philox.random_bytes(x.size, *key).reshape(x.shape)
    want = refnum.quantize_mxfp4(x, "STOCHASTIC", rbits=rbits)
    found = refnum.quantize_mxfp4(x, "STOCHASTIC", philox=key)
    assert all(np.array_equal(one, other) for one, other in zip(want, found, strict=True))


def test_every_scale_byte_of_one_element() -> None:
    """The levels of E2M1 times the scale of each byte, as far as float32 has them; 255 scales nothing (N4)."""
    for byte in range(255):
        levels = np.ldexp([0, 0.5, 1, 1.5, 2, 3, 4, 6], byte - 127)[: {253: 6, 254: 4}.get(byte)]
        assert refnum.encode_e2m1(levels.astype(np.float32), byte).tolist() == list(range(levels.size)), byte
    assert not refnum.encode_e2m1(np.array([1, -6, np.inf, np.nan, np.finfo(np.float32).max], np.float32), 255).any()
    for byte in (-1, 256):
        with pytest.raises(ArgumentError):
            refnum.encode_e2m1(np.ones(1, np.float32), byte)


def test_a_large_array_may_have_an_exponent_each() -> None:
    x = np.resize(np.array([1.5, -3.0, 0.25, 100.0], np.float32), CHUNK + 4)
    exponent = np.resize(np.arange(5, dtype=np.int32), x.size)
    codes = refnum.encode("E4M3", x, exponent)
    few = [refnum.encode("E4M3", x[:20], exponent[:20]), refnum.encode("E4M3", x[-20:], exponent[-20:])]
    assert np.array_equal(np.concatenate([codes[:20], codes[-20:]]), np.concatenate(few))
    assert refnum.encode("E4M3", x.reshape(2, -1), 1).shape == (2, x.size // 2)


def test_an_integer_format_without_signs_saturates_at_its_largest() -> None:
    exponent, significand = split_float32(np.array([0x40000000, 0x41200000], np.uint32))  # 2 and 10
    assert round_magnitude(FORMATS["INT4"], exponent, significand, refnum.get_profile("HOPPER")).tolist() == [2, 7]
