"""Random and corner tensors: against the float64 oracle where it is fast enough, and against the golden model."""

import float64_oracle as oracle
import ml_dtypes
import numpy as np
import pytest

import refnum

RULES = {"rceil": "HOPPER", "floor": "OCP", "ceil": "CEIL", "even": "EVEN"}
PROFILES = ("HOPPER", "OCP", "CEIL", "EVEN", "TE")
SHAPES = ((0, 32), (1, 32), (3, 160), (130, 96), (257, 256))


def equal(got, wanted, what):
    got, wanted = (x if isinstance(x, tuple) else (x,) for x in (got, wanted))
    for number, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape, what
        bits = f"u{a.itemsize}"
        bad = np.argwhere(np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits))
        assert bad.size == 0, f"{what}, output {number}: {len(bad)} differ, first at {bad[0]}"


def float_inputs(rng, m, k):
    """Arrays of every input dtype: all bit patterns, normals of every size, subnormals, signed zeros."""
    bits = rng.integers(0, 1 << 32, (m, k), dtype=np.uint32)
    signs = bits & 0x80000000
    sized = rng.standard_normal((m, k)) * np.exp2(rng.integers(-150, 128, (m, 1)))
    with np.errstate(over="ignore"):
        float32 = [
            bits.view(np.float32),
            sized.astype(np.float32),
            (bits & 0x800001FF).view(np.float32),
            (bits & 0x80FFFFFF).view(np.float32),
            signs.view(np.float32),
        ]
        yield from float32
        yield from (x.astype(ml_dtypes.bfloat16) for x in float32[1:])
    yield (bits >> 16).astype(np.uint16)
    yield bits.astype(np.uint16).view(np.float16)
    for mask in (0x83FF, 0x800F, 0x8003, 0x8FFF, 0xBFFF):
        yield (bits & mask).astype(np.uint16).view(np.float16)


def code_arrays(rng, m, n, run=32):
    """Bytes: all, small magnitudes, no NaN, blocks of `run` bytes of zeros, rows of zeros, all zero."""
    codes = rng.integers(0, 256, (m, n), dtype=np.uint8)
    blocks = np.repeat(rng.integers(0, 2, (m, n // run), dtype=np.uint8) * 0xFF, run, axis=1)
    rows = rng.integers(0, 2, (m, 1), dtype=np.uint8) * 0xFF
    yield codes
    yield codes & (0x83 if run == 32 else 0x99)
    yield np.where(codes & 0x7F == 0x7F, 0, codes).astype(np.uint8)
    yield codes & (blocks | 0x88)
    yield codes & rows
    yield codes & 0x88


def scale_arrays(rng, shape):
    """Scale bytes: all, close together, at each clamp."""
    for low, high in ((0, 256), (120, 132), (0, 14), (244, 256), (100, 150)):
        yield rng.integers(low, high, shape, dtype=np.uint8)


@pytest.mark.parametrize("rule", RULES)
def test_quantise_small_tensors_against_float64(host, rule):
    rng = np.random.default_rng(1)
    for x in float_inputs(rng, 5, 160):
        v = oracle.as_float64(x)
        equal(host.quantize_mxfp4(x, RULES[rule]), oracle.quantize_mxfp4(v, rule=rule), x.dtype)
        for tall in (1, 128):
            got = host.quantize_fp8_tiles(x, (tall, 128), RULES[rule])
            equal(got, oracle.quantize_fp8_tiles(v, tall, rule), (x.dtype, tall))
    special = np.array([[np.inf] + [2.0**e for e in range(97, 128)], [-np.inf] * 32, [np.nan, np.inf] * 16])
    for dtype in (np.float32, ml_dtypes.bfloat16):
        got = host.quantize_mxfp4(special.astype(dtype), "TE")
        equal(got, oracle.quantize_mxfp4(special, nonfinite="satfinite"), dtype)


@pytest.mark.parametrize("mode", ["max", "amax"])
def test_recast_small_tensors_against_float64(host, mode):
    rng = np.random.default_rng(2)
    for m, splits in ((6, [2, 0, 4]), (140, [132, 0, 8])):
        for packed in code_arrays(rng, m, 96, 16):
            for scales in scale_arrays(rng, (m, 6)):
                equal(host.mxfp4_to_fp8(packed, scales, mode), oracle.mxfp4_to_fp8(packed, scales, mode), "rows")
                if m == 6 or scales.min() > 99:
                    got = host.mxfp4_to_fp8_columns(packed, scales, splits, mode)
                    equal(got, oracle.mxfp4_to_fp8_columns(packed, scales, splits, mode), "FP8 columns")
                    got = host.mxfp4_columns(packed, scales, splits, mode)
                    equal(got, oracle.mxfp4_columns(packed, scales, splits, mode), "MXFP4 columns")


@pytest.mark.parametrize("underflow", ["rne", "te"])
def test_fp8_columns_small_tensors_against_float64(host, underflow):
    rng = np.random.default_rng(3)
    for codes in code_arrays(rng, 7, 160):
        for scales in scale_arrays(rng, (7, 2)):
            got = host.fp8_columns(codes, scales, [3, 0, 1, 3], underflow)
            equal(got, oracle.fp8_columns(codes, scales, [3, 0, 1, 3], underflow), underflow)


@pytest.mark.parametrize("shape", SHAPES)
def test_quantise_equals_golden(host, shape):
    rng = np.random.default_rng(4)
    for x in float_inputs(rng, *shape):
        for profile in PROFILES:
            equal(host.quantize_mxfp4(x, profile), refnum.quantize_mxfp4(x, profile), (x.dtype, profile))
            for tile in ((1, 128), (128, 128)):
                got = host.quantize_fp8_tiles(x, tile, profile)
                equal(got, refnum.quantize_fp8_tiles(x, tile, profile), (x.dtype, profile, tile))
        rbits = rng.integers(0, 256, shape, dtype=np.uint16)
        got = host.quantize_mxfp4(x, "STOCHASTIC", rbits=rbits)
        equal(got, refnum.quantize_mxfp4(x, "STOCHASTIC", rbits=rbits), (x.dtype, "stochastic"))


@pytest.mark.parametrize("shape", SHAPES)
def test_fp8_inputs_equal_golden(host, shape):
    rng = np.random.default_rng(5)
    m, k = shape
    for codes in code_arrays(rng, m, k):
        for scales in scale_arrays(rng, (m, -(-k // 128))):
            for profile in PROFILES:
                equal(host.fp8_to_mxfp4(codes, scales, profile), refnum.fp8_to_mxfp4(codes, scales, profile), profile)
            for dtype in ("float32", "bfloat16"):
                got = host.dequantize_fp8_tiles(codes, scales, (1, 128), dtype)
                equal(got, refnum.dequantize_fp8_tiles(codes, scales, (1, 128), dtype), dtype)
                wide = scales[: -(-m // 128)]
                got = host.dequantize_fp8_tiles(codes, wide, (128, 128), dtype)
                equal(got, refnum.dequantize_fp8_tiles(codes, wide, (128, 128), dtype), dtype)
            for splits in (None, [0, m // 3, 0, m - m // 3]):
                for underflow in ("rne", "te"):
                    got = host.fp8_columns(codes, scales, splits, underflow)
                    equal(got, refnum.fp8_columns(codes, scales, splits, underflow), (splits, underflow))


@pytest.mark.parametrize("shape", [(0, 32), (2, 32), (4, 160), (130, 96), (258, 256)])
def test_mxfp4_inputs_equal_golden(host, shape):
    rng = np.random.default_rng(6)
    m, k = shape
    for packed in code_arrays(rng, m, k // 2, 16):
        for scales in scale_arrays(rng, (m, k // 32)):
            for dtype in ("float32", "bfloat16"):
                got = host.dequantize_mxfp4(packed, scales, dtype)
                equal(got, refnum.dequantize_mxfp4(packed, scales, dtype), dtype)
            third = m // 6 * 2
            for mode in ("max", "amax"):
                equal(host.mxfp4_to_fp8(packed, scales, mode), refnum.mxfp4_to_fp8(packed, scales, mode), mode)
                for splits in (None, [0, third, 0, m - third], [m // 2, m - m // 2]):
                    got = host.mxfp4_to_fp8_columns(packed, scales, splits, mode)
                    equal(got, refnum.mxfp4_to_fp8_columns(packed, scales, splits, mode), (splits, mode))
                for splits in (None, [0, third, 0, m - third]):
                    got = host.mxfp4_columns(packed, scales, splits, mode)
                    equal(got, refnum.mxfp4_columns(packed, scales, splits, mode), (splits, mode))


@pytest.mark.parametrize("zero_scale", [0, 94, 254])
def test_zero_scale_is_the_profile_s(host, zero_scale):
    profile = refnum.HOPPER.replace(name="zero", zero_scale=zero_scale)
    packed, scales = host.quantize_mxfp4(np.full((1, 32), -0.0, np.float32), profile)
    assert scales.tolist() == [[zero_scale]] and (packed == 0x88).all()
    packed, scales = host.fp8_to_mxfp4(np.full((1, 32), 0x80, np.uint8), np.array([[127]], np.uint8), profile)
    assert scales.tolist() == [[zero_scale]] and (packed == 0x88).all()
