"""The second oracle against published tables, known answers and ml_dtypes: it must not be wrong itself."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from refnum import oracle
from refnum.errors import ArgumentError, ProfileError, ShapeError

PUBLISHED = {
    "E2M1": (ml_dtypes.float4_e2m1fn, 4),
    "E2M3": (ml_dtypes.float6_e2m3fn, 6),
    "E3M2": (ml_dtypes.float6_e3m2fn, 6),
    "E4M3": (ml_dtypes.float8_e4m3fn, 8),
    "E5M2": (ml_dtypes.float8_e5m2, 8),
    "E8M0": (ml_dtypes.float8_e8m0fnu, 8),
    "INT4": (ml_dtypes.int4, 4),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_value_table_is_the_published_one(name: str) -> None:
    dtype, bits = PUBLISHED[name]
    values = np.arange(1 << bits, dtype=np.uint8).view(dtype).astype(np.float64)
    assert len(oracle.TABLES[name].values) == 1 << bits
    for code, value in enumerate(values):
        mine = oracle.decode(name, code, signed_zero=True)
        if np.isnan(value):
            assert mine == oracle.NAN
        elif np.isinf(value):
            assert mine == (oracle.NEG_INF if value < 0 else oracle.POS_INF)
        elif value == 0 and np.signbit(value):
            assert mine == oracle.NEG_ZERO
        else:
            assert mine == Fraction(float(value))


def test_mxint8_is_twos_complement_over_64() -> None:
    assert oracle.decode("MXINT8", 0x7F) == Fraction(127, 64)
    assert oracle.decode("MXINT8", 0x80) == -2
    assert oracle.encode("MXINT8", Fraction(-2)) == 0x81  # -2 is decoded but never produced
    assert oracle.encode("MXINT8", Fraction(-3, 128)) == 0xFE  # a tie, to the even code


def test_log_formats_are_zero_and_seven_powers() -> None:
    assert [oracle.decode("E3M0", c) for c in range(8)] == [0, *(Fraction(2) ** k for k in range(-2, 5))]
    assert [oracle.decode("FP4_RADIX4", c) for c in range(8)] == [
        0,
        *(Fraction(4) ** k for k in range(-2, 5)),
    ]


@pytest.mark.parametrize("name", ["E2M1", "E2M3", "E3M2", "E5M2"])
def test_encode_agrees_with_ml_dtypes_on_float16(name: str) -> None:
    """Every 7th float16 pattern; ml_dtypes rounds to nearest even, saturates where there is no Inf."""
    dtype, bits = PUBLISHED[name]
    patterns = np.arange(0, 1 << 16, 7, dtype=np.uint16)
    with np.errstate(all="ignore"):
        theirs = patterns.view(np.float16).astype(dtype).view(np.uint8)
    for pattern, code in zip(patterns.tolist(), theirs.tolist(), strict=True):
        value = oracle.float_value(pattern, "float16")
        if value != oracle.NAN:
            mine = oracle.encode(name, value, overflow="nan" if name == "E5M2" else "saturate")
            assert mine == code & (1 << bits) - 1, (hex(pattern), name)


def test_encode_e4m3_edges() -> None:
    known = {464: 0x7E, 448: 0x7E, 2: 0x40, -448: 0xFE}
    assert {v: oracle.encode("E4M3", Fraction(v), overflow="nan") for v in known} == known
    assert oracle.encode("E4M3", Fraction(4641, 10), overflow="nan") == 0x7F
    assert oracle.encode("E4M3", Fraction(10**9)) == 0x7E
    assert oracle.encode("E4M3", oracle.NEG_INF) == 0xFE
    assert oracle.encode("E4M3", oracle.NAN) == 0x7F
    assert oracle.encode("E4M3", Fraction(1, 1024)) == 0  # half the smallest: tie to even
    assert oracle.encode("E4M3", Fraction(3, 1024)) == 2
    assert oracle.encode("E4M3", Fraction(-1, 10**6)) == 0x80
    assert oracle.encode("E4M3", Fraction(-1, 10**6), negative_zero="drop") == 0


def test_e2m1_thresholds_and_every_tie_rule() -> None:
    thresholds = [Fraction(t, 4) for t in (1, 3, 5, 7, 10, 14, 20)]
    even = [0, 2, 2, 4, 4, 6, 6]
    assert [oracle.encode("E2M1", t) for t in thresholds] == even
    assert [oracle.encode("E2M1", -t) for t in thresholds] == [8 + c for c in even]
    assert [oracle.encode("E2M1", t, ties="away") for t in thresholds] == [1, 2, 3, 4, 5, 6, 7]
    assert [oracle.encode("E2M1", t, ties="zero") for t in thresholds] == [0, 1, 2, 3, 4, 5, 6]
    assert [oracle.encode("E2M1", -t, ties="up") for t in thresholds] == [8, 9, 10, 11, 12, 13, 14]
    assert [oracle.encode("E2M1", -t, ties="down") for t in thresholds] == [9, 10, 11, 12, 13, 14, 15]
    nudge = Fraction(1, 10**9)
    assert [oracle.encode("E2M1", t - nudge) for t in thresholds] == [0, 1, 2, 3, 4, 5, 6]
    assert [oracle.encode("E2M1", t + nudge) for t in thresholds] == [1, 2, 3, 4, 5, 6, 7]
    assert oracle.encode("E2M1", Fraction(599, 100), rounding="toward_zero") == 6
    assert oracle.encode("E2M1", oracle.NAN) == 7


def test_stochastic_rounding_goes_up_with_the_exact_probability() -> None:
    for eighths in range(9):
        value = 2 + Fraction(eighths, 8)  # between 2 (code 4) and 3 (code 5)
        ups = sum(oracle.encode("E2M1", value, rounding="stochastic", random_bits=3, rbits=r) == 5 for r in range(8))
        assert ups == eighths


SCALE_ROWS = [  # float32 bits of amax; FLOOR, CEIL, EVEN, RCEIL for E2M1
    (0x3F800000, 125, 125, 125, 125),
    (0x3FC00000, 125, 126, 125, 125),
    (0x40400000, 126, 127, 126, 126),
    (0x40400001, 126, 127, 126, 127),
    (0x405FFFFF, 126, 127, 126, 127),
    (0x40600000, 126, 127, 127, 127),
    (0x40C00000, 127, 128, 127, 127),
    (0x40C00001, 127, 128, 127, 128),
    (0x40E00000, 127, 128, 128, 128),
    (0x43E00000, 133, 134, 134, 134),
]


@pytest.mark.parametrize("row", SCALE_ROWS, ids=lambda r: f"{r[0]:08x}")
def test_scale_rules_on_known_amaxes(row: tuple[int, ...]) -> None:
    amax = oracle.float_value(row[0])
    assert isinstance(amax, Fraction)
    assert [oracle.scale_byte(rule, amax) for rule in ("floor", "ceil", "even", "rceil")] == list(row[1:])


def test_scale_byte_is_clamped() -> None:
    assert oracle.scale_byte("rceil", Fraction(1, 2**149)) == 0
    assert oracle.scale_byte("ceil", Fraction(2) ** 128, "MXINT8") == 254
    with pytest.raises(ProfileError, match="nearest_even"):
        oracle.scale_byte("nearest_even", Fraction(1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_float_bits_undoes_float_value(dtype: str) -> None:
    width = 32 if dtype == "float32" else 16
    rng = np.random.default_rng(1)
    for pattern in [0, 1, 1 << (width - 1), *rng.integers(0, 1 << width, 3000).tolist()]:
        value = oracle.float_value(pattern, dtype)
        if value != oracle.NAN:
            assert oracle.float_bits(value, dtype) == pattern


def test_float_bits_rounds_as_the_hardware_does() -> None:
    rng = np.random.default_rng(2)
    doubles = np.concatenate(
        [
            rng.standard_normal(2000) * 2.0 ** rng.integers(-160, 140, 2000),
            np.ldexp(1.0 + 2.0**-24, rng.integers(-150, 127, 200)),  # ties and their neighbours
            np.ldexp(1.0 + 3 * 2.0**-24, rng.integers(-150, 127, 200)),
            [2.0**-150, 2.0**-149 * 1.5, 2.0**128, 2.0**128 - 2.0**103, 2.0**128 - 2.0**102],
        ]
    )
    with np.errstate(all="ignore"):
        theirs = doubles.astype(np.float32).view(np.uint32)
    for value, bits in zip(doubles.tolist(), theirs.tolist(), strict=True):
        assert oracle.float_bits(Fraction(value)) == bits, value


def test_block_policies_for_zero_nan_and_inf() -> None:
    one, zero = Fraction(1), Fraction(0)
    assert oracle.quantize_block([zero, oracle.NEG_ZERO]) == ([0, 8], 0)
    assert oracle.quantize_block([zero], policy=oracle.Policy(zero_scale=94)) == ([0], 94)
    assert oracle.quantize_block([one, oracle.NAN]) == ([0, 0], 255)
    assert oracle.quantize_block([one, oracle.NEG_INF]) == ([0, 0], 255)
    satfinite = oracle.Policy(nonfinite="satfinite")
    assert oracle.quantize_block([one, oracle.NEG_INF], policy=satfinite) == ([0, 15], 254)
    assert oracle.quantize_block([oracle.POS_INF, oracle.NAN], policy=satfinite) == ([0, 0], 255)
    floor = oracle.Policy(amax_floor=0x38D1B717)  # 1e-4: never a byte below 112
    assert oracle.quantize_block([Fraction(1, 2**40)], policy=floor) == ([0], 112)


def test_tile_policies_for_zero_nan_and_inf() -> None:
    values = [oracle.NAN, oracle.POS_INF, oracle.NEG_INF, Fraction(1000), Fraction(1), oracle.NEG_ZERO]
    assert oracle.quantize_tile(values) == ([0x7F, 0x7E, 0xFE, 0x7E, 0x38, 0x80], 127)
    assert oracle.quantize_tile([Fraction(0), oracle.NEG_ZERO]) == ([0, 0x80], 127)
    assert oracle.quantize_tile([Fraction(449)]) == ([0x76], 128)


def test_row_conversion_by_hand() -> None:
    """One tile of two blocks, bytes 130 and 127: max gives 124, element 6 -> 384, distance 3."""
    packed = [[0x97] + [0] * 15 + [0x71] + [0] * 15]
    codes, scales = oracle.mxfp4_to_fp8(packed, [[130, 127]])
    assert scales == [[124]]
    assert codes[0][:3] == [0x7C, 0xE0, 0x00]  # 6 * 2**6 = 384, -0.5 * 2**6 = -32
    assert codes[0][32:34] == [0x48, 0x64]  # 0.5 * 2**3 = 4, 6 * 2**3 = 48
    assert oracle.mxfp4_to_fp8(packed, [[130, 255]])[0][0][32:34] == [0x7F, 0x7F]
    assert oracle.mxfp4_to_fp8([[0x80] * 16], [[200]]) == ([[0x00, 0x80] * 16], [[127]])


def test_row_to_column_by_hand() -> None:
    packed = [[0x11] * 16, [0x11] * 16, [0x00] * 16]
    codes, scales = oracle.mxfp4_to_fp8_columns(packed, [[127], [128], [200]])
    assert scales == [[122] * 32] and codes == [[0x58, 0x60, 0x00]] * 32  # 16, 32, 0
    codes, scales = oracle.mxfp4_to_fp8_columns(packed, [[127], [128], [200]], splits=[1, 0, 2])
    assert scales == [[121] * 32, [122] * 32] and codes == [[0x60, 0x60, 0x00]] * 32


def test_te_underflow_keeps_the_mantissa_bits() -> None:
    """448 moved down by 20 binades becomes mantissa 6 among the subnormals, as in the published kernel."""
    codes = [[0x7E] + [0] * 127, [0x38] + [0x07] * 127]
    out, scales = oracle.fp8_columns(codes, [[107], [127]], underflow="te")
    assert scales == [[127] * 128]
    assert out[0] == [0x06, 0x38] and out[1] == [0x00, 0x00]
    assert oracle.fp8_columns(codes, [[107], [127]])[0][0] == [0x00, 0x38]
    codes[0][1] = 0xFF  # the published kernel moves a NaN like a number
    assert oracle.fp8_columns(codes, [[124], [127]], underflow="te")[0][1] == [0xE7, 0x00]
    assert oracle.fp8_columns(codes, [[124], [127]])[0][1] == [0x7F, 0x07]
    assert oracle.fp8_columns(codes, [[255], [127]], underflow="te")[0][1] == [0x7F, 0x00]


def test_float32_arithmetic_special_cases() -> None:
    one, inf, nan, neg_zero = 0x3F800000, 0x7F800000, 0x7FC00000, 0x80000000
    assert oracle.float32_multiply(inf, 0) == nan and oracle.float32_add(inf, inf | neg_zero) == nan
    assert oracle.float32_add(neg_zero, neg_zero) == neg_zero and oracle.float32_add(neg_zero, 0) == 0
    assert oracle.float32_add(one, one | neg_zero) == 0
    assert oracle.float32_multiply(neg_zero, one) == neg_zero
    assert oracle.float32_multiply(1, 0x3F000000) == 0  # half the smallest subnormal: tie to even


def test_errors_name_what_was_given() -> None:
    with pytest.raises(ProfileError, match="E9M9"):
        oracle.decode("E9M9", 0)
    with pytest.raises(ArgumentError, match="code 16"):
        oracle.decode("E2M1", 16)
    with pytest.raises(ProfileError, match="ties='odd'"):
        oracle.encode("E2M1", Fraction(1, 4), ties="odd")
    with pytest.raises(ProfileError, match="rounding='up'"):
        oracle.encode("E2M1", Fraction(1, 3), rounding="up")
    with pytest.raises(ProfileError, match="overflow='nan'"):
        oracle.encode("E2M1", Fraction(1), overflow="nan")
    with pytest.raises(ShapeError, match="splits sum to 2"):
        oracle.mxfp4_to_fp8_columns([[0] * 16], [[0]], splits=[2])
    with pytest.raises(ArgumentError, match="scale='mean'"):
        oracle.mxfp4_to_fp8([[1] * 16], [[127]], scale="mean")
    with pytest.raises(ArgumentError, match="underflow='flush'"):
        oracle.fp8_columns([[1] * 32], [[127]], underflow="flush")


def test_any_object_with_the_fields_is_a_policy() -> None:
    fields = {**vars(oracle.DEFAULT), "scale_rule": "floor", "name": "mine"}
    packed, scales = oracle.quantize_mxfp4([[Fraction(7)] + [Fraction(0)] * 31], SimpleNamespace(**fields))
    assert scales == [[127]] and packed[0][0] == 7
