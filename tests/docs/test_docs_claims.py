"""Closed forms and claims that the specification states beside its definitions, worked out here from the prose."""

from fractions import Fraction

import numpy as np
import pytest

import refnum
from refnum import layouts, philox

SMALL = ["E2M1", "E3M0", "FP4_RADIX4", "E2M3", "E3M2", "E4M3", "E5M2"]


@pytest.mark.parametrize("name", SMALL)
def test_n1_2_value_of_a_code(name):
    fmt = refnum.get_format(name)
    for code in range(fmt.max_code + 1):
        e, f = code >> fmt.mantissa_bits, Fraction(code % (1 << fmt.mantissa_bits), 1 << fmt.mantissa_bits)
        r = Fraction(4 if name == "FP4_RADIX4" else 2)
        expected = f * r ** (1 - fmt.bias) if e == 0 else (1 + f) * r ** (e - fmt.bias)
        assert refnum.value(fmt, code) == expected


def test_n2_2_subnormals_use_all_discarded_bits():
    x = np.array([0x3E800000, 0x3E800001, 0x3E7FFFFF], np.uint32).view(np.float32)
    assert list(refnum.encode("E2M1", x)) == [0, 1, 0]


def test_n3_3_each_rule_is_the_floor_rule_plus_zero_or_one():
    bounds = {"ceil": 1, "rceil": 0x400001, "even": 0x600000}
    for fraction in [0, 1, 0x3FFFFF, 0x400000, 0x400001, 0x5FFFFF, 0x600000, 0x7FFFFF]:
        block = np.zeros((1, 32), np.uint32)
        block[0, 7] = 0x3F800000 | fraction
        for rule, bound in bounds.items():
            profile = refnum.HOPPER.replace(name=rule, scale_rule=rule)
            byte = refnum.quantize_mxfp4(block.view(np.float32), profile)[1][0, 0]
            assert byte == 125 + (fraction >= bound), (rule, hex(fraction))


def test_n3_2_only_mxint8_reaches_the_clamp_and_saturates():
    block = np.zeros((1, 32), np.uint32)
    block[0, 0] = 0x7F7FFFFF
    clamped = set()
    for name, fmt in refnum.MX_ELEMENTS.items():
        codes, scales = refnum.quantize_mx(block.view(np.float32), name)
        largest = Fraction(2**24 - 1) * Fraction(2) ** 104
        if fmt.max_value * Fraction(2) ** (int(scales[0, 0]) - 127) < largest:
            clamped.add((name, int(scales[0, 0]), int(codes[0, 0])))
    assert clamped == {("MXINT8", 254, 0x7F)}


def test_n4_3_and_n4_4_overflow_is_the_profile_s():
    x = np.array([[np.inf, -np.inf, 465, 1] + [0] * 124], np.float32)
    strict = refnum.HOPPER.replace(name="strict", overflow="nan", nonfinite="satfinite")
    codes, scales = refnum.quantize_fp8_tiles(x, profile=strict)
    assert codes[0, :4].tolist() == [0x7F, 0xFF, 0x7F, 0x38] and scales.tolist() == [[127]]
    assert refnum.quantize_fp8_tiles(x)[0][0, :4].tolist() == [0x7E, 0xFE, 0x7E, 0x38]
    for element, beyond in (("E4M3", [0x7F, 0xFF]), ("E5M2", [0x7C, 0xFC])):
        codes, scales = refnum.quantize_mx(x[:, :32], element, strict)
        assert codes[0, :2].tolist() == beyond and scales.tolist() == [[254]]


def test_n6_3_and_n6_5_read_bytes_0_and_255_in_operations_only():
    stored = layouts.scales_to_float32(np.array([[0, 255]], np.uint8))
    assert layouts.scales_from_layout(stored, "float32", 1, 2).tolist() == [[0, 255]]
    for one in (stored[:, :1], stored[:, 1:]):
        with pytest.raises(refnum.errors.ScaleError):
            layouts.scales_from_float32(np.ascontiguousarray(one))


def test_n5_4_formats_that_are_exact_in_bfloat16():
    exact = {}
    for name, fmt in refnum.MX_ELEMENTS.items():
        codes = np.zeros((255, 256), np.uint8)
        codes[:] = np.arange(256) % (1 << fmt.bits)
        scales = np.repeat(np.arange(255, dtype=np.uint8)[:, None], 8, axis=1)
        narrow = refnum.dequantize_mx(codes, scales, name, "bfloat16").view(np.uint16).astype(np.uint32) << 16
        exact[name] = bool((narrow == refnum.dequantize_mx(codes, scales, name).view(np.uint32)).all())
    assert {name for name, same in exact.items() if same} == {"E2M1", "E2M3", "E3M2", "MXINT8"}


def test_n6_2_address_of_the_swizzle():
    rows, columns = 130, 5
    scales = (np.arange(rows * columns) % 251 + 1).astype(np.uint8).reshape(rows, columns)
    flat = layouts.scales_to_swizzled(scales)
    for r in range(rows):
        for c in range(columns):
            at = ((r // 128) * -(-columns // 4) + c // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + c % 4
            assert flat[at] == scales[r, c]


def test_n7_3_integer_form_of_the_block_exponent():
    subnormal = [None, -11, -10, -10, -9, -9, -9, -8]
    for largest in range(1, 127):
        t = subnormal[largest] if largest < 8 else ((largest + 3) >> 3) - 9
        codes = np.zeros((255, 32), np.uint8)
        codes[:, largest % 32] = largest
        tiles = np.arange(255, dtype=np.uint8)[:, None]
        expected = np.clip(tiles.astype(int) + t, 0, 254)
        assert (refnum.fp8_to_mxfp4(codes, tiles)[1] == expected).all(), largest


def test_n7_5_round_trip_keeps_values():
    rng = np.random.default_rng(1)
    packed = rng.integers(0, 256, (64, 64), np.uint8)
    scales = rng.integers(120, 134, (64, 4), np.uint8)
    back = refnum.fp8_to_mxfp4(*refnum.mxfp4_to_fp8(packed, scales))
    assert (refnum.dequantize_mxfp4(*back) == refnum.dequantize_mxfp4(packed, scales)).all()


def test_n8_8_closed_form():
    for d in range(31):
        codes = np.zeros((1, 64), np.uint8)
        codes[0, 0], codes[0, 32:40] = 7, np.arange(8)
        packed = codes[:, 0::2] | codes[:, 1::2] << 4
        got = refnum.mxfp4_to_fp8(packed, np.array([[200, 200 - d]], np.uint8))[0][0, 32:40]
        for n in range(1, 8):
            e, f = (12 - d, 0) if n == 1 else (n // 2 + 12 - d, 4 * (n % 2))
            expected = 8 * e + f if e >= 1 else round(Fraction(8 + f, 2 ** (1 - e)))  # round() goes to even
            assert got[n] == expected, (n, d)
        assert got[0] == 0


def test_n9_5_modes_agree_in_value_within_distance_14():
    rng = np.random.default_rng(2)
    packed = rng.integers(0, 256, (130, 32), np.uint8)
    scales = rng.integers(100, 115, (130, 2), np.uint8)
    values = []
    for mode in ("max", "amax"):
        codes, byte = refnum.mxfp4_to_fp8_columns(packed, scales, [128, 2], mode)
        each = np.concatenate([np.repeat(byte[:1], 128, axis=0), np.repeat(byte[1:], 2, axis=0)]).T
        values.append(refnum.decode("E4M3", codes).astype(float) * 2.0 ** (each.astype(int) - 127))
    assert (values[0] == values[1]).all()
    assert (values[0] == refnum.dequantize_mxfp4(packed, scales).T).all()


def test_n10_5_te_rule_on_bits():
    codes = np.zeros((2, 256), np.uint8)
    codes[0], codes[1] = 0x7E, np.arange(256)
    for k in range(20):
        out, _ = refnum.fp8_columns(codes, np.array([[150, 150], [150 - k, 150 - k]], np.uint8), underflow="te")
        for code in range(256):
            sign, e, f = code & 0x80, (code >> 3) & 15, code & 7
            assert out[code, 1] == (0 if e == 0 else sign | max(e - k, 0) << 3 | f), (hex(code), k)


def test_n11_1_and_n11_5_special_gates():
    import ml_dtypes

    gate = np.array([[np.inf, -np.inf, np.nan, 0, -0.0]], ml_dtypes.bfloat16)
    ones = np.ones((1, 5), ml_dtypes.bfloat16)
    dgate, dup, _ = refnum.swiglu_backward(np.ones((1, 5), np.float32), gate, ones)
    assert [hex(b) for b in dup.view(np.uint32)[0]] == ["0x7f800000", "0x80000000", "0x7fc00000", "0x0", "0x80000000"]
    assert [hex(b) for b in dgate.view(np.uint32)[0]] == [*["0x7fc00000"] * 3, "0x3f000000", "0x3f000000"]


def test_n11_4_order_of_the_sum():
    import ml_dtypes

    gate = np.full((1, 3), 8, ml_dtypes.bfloat16)
    up = np.array([[1, 2**-24, 2**-24]], ml_dtypes.bfloat16)
    grad = np.ones((1, 3), np.float32)
    dprob = refnum.swiglu_backward(grad, gate, up, np.ones(1, np.float32))[2]
    y = refnum.swiglu_backward(grad, gate, up)[1][0, 0]
    small = np.float32(y * np.float32(2**-24))
    assert dprob[0] == np.float32(np.float32(y + small) + np.float32(small + np.float32(0)))


def test_n12_3_order_and_defaults():
    rows = np.array([[1], [0], [2**-24], [0], [2**-24], [0]], np.float32)
    got = refnum.unpermute(rows, np.array([0, 0, 0]), [1, 1, 1], None, tokens=2, align=2)
    assert got[0, 0] == np.float32(np.float32(1 + 2**-24) + np.float32(2**-24)) and got[1, 0] == 0


def test_n12_1_bytes_of_a_row():
    assert 7168 // 2 + 7168 // 32 == 17 * 7168 // 32 == 3808


def test_n13_2_counter_layout():
    words = philox.random_words(12, seed=0x1234567890ABCDEF, stream=3, step=9)
    for block in range(3):
        lane = philox.philox4x32((block, 0, 3, 9), (0x90ABCDEF, 0x12345678))
        assert [int(w) for w in lane] == [int(w) for w in words[4 * block : 4 * block + 4]]
    octets = philox.random_bytes(16, seed=0x1234567890ABCDEF, stream=3, step=9)
    assert all(int(octets[j]) == int(words[j // 4]) >> 8 * (j % 4) & 255 for j in range(16))


def test_n17_bounds_of_the_classes():
    bits = [0, 1, 0x017FFFFF, 0x01800000, 0x7E7FFFFF, 0x7E800000, 0x7F800000, 0x7F800001]
    letters = ""
    for pattern in bits:
        block = np.zeros((1, 32), np.uint32)
        block[0, 0] = pattern
        letters += chr(int(refnum.block_class(block.view(np.float32))[0, 0]))
    assert letters == "ZTTFFHIN"
