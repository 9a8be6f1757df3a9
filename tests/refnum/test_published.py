"""Published constants, re-derived by the model: format facts, tie tables, amax vectors, E8M0 conversions (N1 to N3)."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import refnum as R
from refnum.profiles import PROFILES
from refnum.scales import finite_scale

FACTS = {  # max, smallest positive, bits
    "E2M1": (6, 0.5, 4), "E3M0": (16, 0.25, 4), "FP4_RADIX4": (256, 1 / 16, 4), "E2M3": (7.5, 0.125, 6),
    "E3M2": (28, 0.0625, 6), "E4M3": (448, 2.0**-9, 8), "E5M2": (57344, 2.0**-16, 8), "E8M0": (2.0**127, 2.0**-127, 8),
    "BF16": (3.3895313892515355e38, 2.0**-133, 16), "FP16": (65504, 2.0**-24, 16),
    "FP32": (3.4028234663852886e38, 2.0**-149, 32), "INT4": (7, 1, 4), "MXINT8": (127 / 64, 1 / 64, 8),
}  # fmt: skip


@pytest.mark.parametrize("name", list(R.FORMATS))
def test_format_facts(name):
    fmt = R.FORMATS[name]
    largest, smallest, bits = FACTS[name]
    assert float(fmt.max_value) == largest and fmt.bits == bits
    first = R.value(fmt, 0 if name == "E8M0" else 1)
    assert float(first) == smallest


def test_e2m1_values_and_ties():
    values = [float(R.value("E2M1", c)) for c in range(8)]
    assert values == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    ties = {0.25: 0, 0.75: 1, 1.25: 1, 1.75: 2, 2.5: 2, 3.5: 4, 5.0: 4}
    x = np.array(list(ties), np.float32)
    assert [float(v) for v in R.decode("E2M1", R.encode("E2M1", x))] == list(ties.values())
    up = np.nextafter(x, np.float32(9))
    assert R.encode("E2M1", up).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert R.encode("E2M1", np.nextafter(x, np.float32(0))).tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_e4m3_overflow_tie():
    x = np.array([448, 464, np.nextafter(np.float32(464), np.float32(500)), 480, np.inf], np.float32)
    assert R.encode("E4M3", x).tolist() == [0x7E] * 5
    assert R.encode("E4M3", x, 0, R.Profile("n", overflow="nan")).tolist() == [0x7E, 0x7E, 0x7F, 0x7F, 0x7F]


VECTORS = {  # amax bits: FLOOR, CEIL, EVEN, RCEIL for E2M1 (fp4-training-methods, section 1.3)
    0x3F800000: (125, 125, 125, 125), 0x3FC00000: (125, 126, 125, 125), 0x40400000: (126, 127, 126, 126),
    0x40400001: (126, 127, 126, 127), 0x405FFFFF: (126, 127, 126, 127), 0x40600000: (126, 127, 127, 127),
    0x40C00000: (127, 128, 127, 127), 0x40C00001: (127, 128, 127, 128), 0x40E00000: (127, 128, 128, 128),
    0x43E00000: (133, 134, 134, 134),
}  # fmt: skip


@pytest.mark.parametrize("amax", VECTORS, ids=hex)
def test_scale_vectors(amax):
    got = [
        int(finite_scale(np.array([amax], np.uint32), R.E2M1, PROFILES[n])[0])
        for n in ("OCP", "CEIL", "EVEN", "HOPPER")
    ]
    assert tuple(got) == VECTORS[amax]


E8M0 = {  # float32 bits: up saturating, up, nearest, down saturating (CUDA's header; peer-numerics 5.4)
    0x00000000: (0, 0, 0, 0), 0x00000001: (0, 0, 0, 0), 0x00400000: (0, 0, 0, 0), 0x00400001: (1, 1, 0, 0),
    0x005FFFFF: (1, 1, 0, 0), 0x00600000: (1, 1, 1, 0), 0x00800001: (2, 2, 1, 1), 0x3F800001: (128, 128, 127, 127),
    0x3FC00000: (128, 128, 128, 127), 0x40400000: (129, 129, 129, 128), 0x7F000001: (254, 255, 254, 254),
    0x7F400000: (254, 255, 255, 254), 0x7F800000: (254, 255, 255, 254), 0x7FC00000: (255, 255, 255, 255),
    0xBF800000: (127, 127, 127, 127),
}  # fmt: skip


@pytest.mark.parametrize("bits", E8M0, ids=hex)
def test_e8m0_vectors(bits):
    x = np.array([bits], np.uint32).view(np.float32)
    modes = [("up", True), ("up", False), ("nearest", False), ("down", True)]
    assert tuple(int(R.encode_e8m0(x, *mode)[0]) for mode in modes) == E8M0[bits]


STOCHASTIC = [  # value, random byte, E2M1 code (fp4-training-methods, section 10.1)
    (0.25, 127, 0), (0.25, 128, 1), (0.001, 255, 0), (0.00195312, 255, 0), (2.0**-9, 255, 1), (5, 127, 6), (5, 128, 7),
    (-2.5, 128, 0xD), (5.999, 0, 6), (5.999, 1, 7), (-0.0, 255, 8), (7, 0, 7), (0.4999, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize(("x", "r", "code"), STOCHASTIC, ids=str)
def test_stochastic_vectors(x, r, code):
    got = R.encode("E2M1", np.array([x], np.float32), 0, "STOCHASTIC", rbits=np.array([r], np.uint8))
    assert got.tolist() == [code]


@pytest.mark.parametrize("name", ["E2M1", "E2M3", "E3M2", "E4M3", "E5M2", "E8M0", "BF16", "FP16"])
def test_decode_equals_the_public_dtypes(name):
    """Every code against ml_dtypes and NumPy, an implementation that shares nothing with ours."""
    dtype = {"E2M1": ml_dtypes.float4_e2m1fn, "E2M3": ml_dtypes.float6_e2m3fn, "E3M2": ml_dtypes.float6_e3m2fn,
             "E4M3": ml_dtypes.float8_e4m3fn, "E5M2": ml_dtypes.float8_e5m2, "E8M0": ml_dtypes.float8_e8m0fnu,
             "BF16": ml_dtypes.bfloat16, "FP16": np.float16}[name]  # fmt: skip
    fmt = R.FORMATS[name]
    codes = np.arange(1 << fmt.bits).astype(np.uint16 if fmt.bits > 8 else np.uint8)
    theirs, ours = codes.view(dtype).astype(np.float32), R.decode(fmt, codes)
    assert np.array_equal(np.isnan(theirs), np.isnan(ours))
    finite = ~np.isnan(theirs)
    assert np.array_equal(theirs[finite].view(np.uint32), ours[finite].view(np.uint32))


@pytest.mark.parametrize("name", list(R.MX_ELEMENTS))
def test_encode_of_decode_is_the_code(name):
    fmt = R.FORMATS[name]
    for code in range(1 << fmt.bits):
        exact = R.value(fmt, code)
        if isinstance(exact, Fraction) and code != 0x80 * (name == "MXINT8"):
            assert R.encode(fmt, R.decode(fmt, np.array([code], np.uint8))).tolist() == [code]


def test_all_float32_scale_rules_on_stratified_maxima():
    """All 2**23 significands of four binades, each rule by its definition in integers: 33,554,432 maxima a rule."""
    for exponent in (1, 127, 129, 253):
        fraction = np.arange(1 << 23, dtype=np.uint32)
        amax = fraction | np.uint32(exponent << 23)
        floor = np.clip(exponent - 2, 0, 254)
        for name, up in (("OCP", fraction < 0), ("CEIL", fraction > 0), ("HOPPER", fraction > 0x400000),
                         ("EVEN", fraction >= 0x600000)):  # fmt: skip
            got = finite_scale(amax, R.E2M1, PROFILES[name])
            assert np.array_equal(got, np.clip(exponent - 2 + up.astype(int), 0, 254)), (name, exponent, floor)


def test_radix4_and_e3m0_round_trip_and_ties():
    for name in ("E3M0", "FP4_RADIX4"):
        codes = np.arange(16, dtype=np.uint8)
        assert R.encode(name, R.decode(name, codes)).tolist() == codes.tolist()
    assert R.encode("FP4_RADIX4", np.array([2.5, 10, 2.499, 2.501], np.float32)).tolist() == [4, 4, 3, 4]
    assert R.encode("E3M0", np.array([1.5, 3, 6, 0.125], np.float32)).tolist() == [4, 4, 6, 0]


def test_int4_range():
    x = np.array([-9, -8, -7.5, -0.5, 0.5, 1.5, 6.5, 7.5, 99], np.float32)
    assert R.encode("INT4", x).tolist() == [8, 8, 8, 0, 0, 2, 6, 7, 7]


@pytest.mark.parametrize("fmt", ["E2M1", "E3M0", "FP4_RADIX4", "E2M3", "E3M2", "E4M3", "E5M2", "INT4", "MXINT8"])
@pytest.mark.parametrize("exponent", [-127, 0, 127])
def test_infinity_is_an_overflow_at_any_scale(fmt, exponent):
    x = np.array([np.inf, -np.inf, 3e38, -3e38], np.float32)
    at_scale_one = R.encode(fmt, x[2:])
    assert np.array_equal(R.encode(fmt, x[:2], exponent), at_scale_one)
