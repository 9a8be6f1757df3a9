"""The host's integer twins of the float32 multiply and add, and the scalar casts that other formats take.

Every result is held against NumPy's float32 in a process that keeps subnormals, and against exact rationals; the
model is not imported.
"""

import ctypes
import platform
import subprocess
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from float64_oracle import as_float64

NAN, INF = np.uint32(0x7FC00000), np.uint32(0x7F800000)
MODES = {"flush": 0x9FC0, "up": 0x5F80, "down": 0x3F80, "to zero and flush": 0xFFC0}
"""MXCSR: all exceptions masked, with FTZ and DAZ, or another rounding."""


def call(name, a, b):
    from refnum.gpu.host.build import library

    a, b = (np.ascontiguousarray(x, np.uint32) for x in (a, b))
    out = np.empty(a.shape, np.uint32)
    places = a.ctypes.data, b.ctypes.data, out.ctypes.data
    if name.endswith("_lane"):  # the twin without branches, an instruction of three words
        getattr(library(), f"refnum_instruction_{name}")(*places[:2], *places[1:], out.size)
    else:
        getattr(library(), f"refnum_{name}_floats")(*places, out.size)
    return np.where((out & np.uint32(0x7FFFFFFF)) > INF, NAN, out)


def numpy_result(name, a, b):
    smallest = np.array([1], np.uint32).view(np.float32)
    assert (smallest * np.float32(2)).view(np.uint32)[0] == 2, "the host flushes subnormals: it is no reference"
    with np.errstate(all="ignore"):
        bits = getattr(np, name.removesuffix("_lane"))(a.view(np.float32), b.view(np.float32)).view(np.uint32)
    return np.where((bits & np.uint32(0x7FFFFFFF)) > INF, NAN, bits)


def exact_result(name, a, b):
    """Of finite bits: the nearest of the neighbours of NumPy's float64 result, decided on rationals."""
    x, y = (Fraction(float(np.uint32(v).view(np.float32))) for v in (a, b))
    product = name.startswith("multiply")
    exact = x * y if product else x + y
    negative = bool((a ^ b) >> 31) if product else exact < 0 or (exact == 0 and bool(a & b & 0x80000000))
    below, above = 0, 0x7F800000  # as magnitudes; the one above the largest stands for 2**128
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if magnitude(middle) <= abs(exact) else (below, middle)
    down, up = abs(exact) - magnitude(below), magnitude(above) - abs(exact)
    chosen = below if down < up or (down == up and below % 2 == 0) else above
    return chosen | negative << 31


def magnitude(bits):
    field, fraction = bits >> 23, bits & 0x7FFFFF
    return Fraction(fraction | (field > 0) << 23) * Fraction(2) ** (max(field, 1) - 150)


def corners():
    fractions = [0, 1, 2, 0x400000, 0x400001, 0x3FFFFF, 0x7FFFFE, 0x7FFFFF, 0x555555, 0x200000]
    fields = [
        *range(4),
        22,
        23,
        24,
        25,
        26,
        63,
        64,
        *range(100, 105),
        *range(125, 131),
        150,
        151,
        152,
        190,
        191,
        230,
        252,
        253,
        254,
        255,
    ]
    positive = [e << 23 | f for e in fields for f in fractions] + [1 << k for k in range(23)]
    return np.array(positive + [p | 1 << 31 for p in positive], np.uint32)


def random_pairs(kind, n, rng):
    a, b = (rng.integers(0, 1 << 32, n, dtype=np.uint32) for _ in range(2))
    if kind == "near":  # exponents at most 30 apart: alignment, cancellation and carries
        field = (a >> 23 & 255).astype(np.int64) + rng.integers(-30, 31, n)
        b = b & np.uint32(0x807FFFFF) | np.clip(field, 0, 255).astype(np.uint32) << np.uint32(23)
    if kind == "cancel":  # a few units apart with opposite signs
        b = (a + rng.integers(-9, 10, n).astype(np.uint32)) ^ np.uint32(1 << 31)
    if kind == "subnormal":  # products around and below 2**-126
        low, total = rng.integers(0, 129, n), rng.integers(90, 153, n)
        fields = [low, np.clip(total - low, 0, 254)]
        a, b = (
            v & np.uint32(0x807FFFFF) | f.astype(np.uint32) << np.uint32(23)
            for v, f in zip((a, b), fields, strict=True)
        )
    if kind == "short":  # few significand bits: exact results and exact ties
        a &= (np.uint32(0xFFFFFFFF) << rng.integers(8, 23, n).astype(np.uint32)) | np.uint32(1 << 31)
        b &= np.uint32(0xFFFFF800)
    return a, b


NAMES = ("multiply", "add", "multiply_lane", "add_lane")
KINDS = ("any", "near", "cancel", "subnormal", "short")


def same(got, wanted, a, b):
    wrong = np.flatnonzero(got != wanted)
    first = [f"{int(v[wrong[0]]):08x}" for v in (a, b, got, wanted)] if wrong.size else []
    assert not wrong.size, f"{wrong.size} of {got.size} differ; a, b, got, wanted = {first}"


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_of_corners(host, name):
    values = corners()
    a, b = np.repeat(values, values.size), np.tile(values, values.size)
    same(call(name, a, b), numpy_result(name, a, b), a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_random_pairs(host, name, kind):
    a, b = random_pairs(kind, 1 << 20, np.random.default_rng([len(name), len(kind)]))
    same(call(name, a, b), numpy_result(name, a, b), a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_against_exact_rationals(host, name, kind):
    a, b = random_pairs(kind, 400, np.random.default_rng(len(kind)))
    finite = ((a & np.uint32(0x7FFFFFFF)) < INF) & ((b & np.uint32(0x7FFFFFFF)) < INF)
    a, b = a[finite], b[finite]
    assert a.size > 300
    wanted = [exact_result(name, int(x), int(y)) for x, y in zip(a, b, strict=True)]
    same(call(name, a, b), np.array(wanted, np.uint32), a, b)


@pytest.fixture(scope="module")
def set_mode(tmp_path_factory):
    """A function that sets this thread's MXCSR and returns what it was."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("MXCSR is x86's")
    from refnum.gpu.host.build import find_compiler

    folder = tmp_path_factory.mktemp("mode")
    source = folder / "mode.cpp"
    source.write_text(
        '#include <xmmintrin.h>\nextern "C" unsigned swap_mode(unsigned m) '
        "{ unsigned old = _mm_getcsr(); _mm_setcsr(m); return old; }\n"
    )
    subprocess.run([*find_compiler(), "-shared", "-fPIC", "-o", str(folder / "mode.so"), str(source)], check=True)
    return ctypes.CDLL(str(folder / "mode.so")).swap_mode


@pytest.mark.parametrize("mode", MODES)
def test_no_floating_point_mode_changes_a_bit(host, set_mode, mode):
    """The twins, a quantiser that scales lanes, and SwiGLU; the mode itself is seen to act."""
    rng = np.random.default_rng(8)
    a, b = (np.concatenate(pair) for pair in zip(*(random_pairs(kind, 20000, rng) for kind in KINDS), strict=True))
    x = a[: a.size // 32 * 32].reshape(-1, 32)
    gate, up = (a >> 16).astype(np.uint16)[:99840].reshape(-1, 96), (b >> 16).astype(np.uint16)[:99840].reshape(-1, 96)
    prob, grad = b[: gate.shape[0]].view(np.float32), a[: gate.size].reshape(gate.shape).view(np.float32)

    def results():
        return [
            *(call(name, a, b) for name in NAMES),
            *host.quantize_mxfp4(x.view(np.float32)),
            *host.quantize_fp8_tiles(x.view(np.float32)),
            *host.swiglu_quantize(gate, up, prob),
            *host.swiglu_quantize(gate, up, prob, "mxfp4"),
            *host.swiglu_backward(grad, gate, up, prob),
        ]

    plain = results()
    operands = np.array([1 << 23, 0x3F000001], np.uint32).view(np.float32)
    before = (operands * np.float32(0.7)).view(np.uint32).tolist()
    old = set_mode(MODES[mode])
    try:
        changed, after = results(), (operands * np.float32(0.7)).view(np.uint32).tolist()
    finally:
        set_mode(old)
    assert after != before, "the mode did not act: this test proves nothing"
    for got, wanted in zip(changed, plain, strict=True):
        assert got.tobytes() == wanted.tobytes()


FLOATS = {
    "bfloat16": np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(ml_dtypes.bfloat16),
    "float16": np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16),
    "float32": ((np.arange(1 << 16, dtype=np.uint32) << np.uint32(16))[:, None]
                | np.array([0, 1, 0x7FFF, 0x8000, 0xFFFF], np.uint32)).reshape(-1).view(np.float32),
}  # fmt: skip


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("rounding", ["up", "down", "nearest"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_encode_e8m0(host, dtype, rounding, saturate):
    x = FLOATS[dtype]
    v = np.abs(as_float64(x))
    powers = np.exp2(np.arange(256) - 127.0)  # the last is what no byte holds
    cuts = {"up": powers, "down": powers[1:], "nearest": powers[:-1] * 1.5}[rounding]
    byte = np.searchsorted(cuts, v, "left" if rounding == "up" else "right")
    top = 254 if saturate else 255
    byte = np.where(np.isnan(v), 255, np.minimum(np.where(np.isinf(v), 255, byte), top))
    assert np.array_equal(host.encode_e8m0(x, rounding, saturate), byte)


def test_decode_e8m0(host):
    codes = np.arange(256, dtype=np.uint8)
    for dtype, nan in (("float32", 0x7FC00000), ("bfloat16", 0x7FC0)):
        got = host.decode_e8m0(codes, dtype)
        assert np.array_equal(got[:255].astype(np.float64), np.exp2(np.arange(255) - 127.0))
        assert got.view(f"u{got.itemsize}")[255] == nan


@pytest.mark.parametrize("dtype", FLOATS)
def test_encode_e4m3_that_overflows_to_nan(host, dtype):
    """From 464 on, the tie of 448 with what would be 480, everything above is NaN and keeps its sign."""
    x = FLOATS[dtype]
    v = as_float64(x)
    over = np.abs(v) > 464
    got, saturated = host.encode_e4m3(x, "nan"), host.encode_e4m3(x)
    assert np.array_equal(got[over], 0x7F | (v[over] < 0) << 7)
    assert np.array_equal(got[~over], saturated[~over])  # NaN among them
    assert over.sum() > 1000 and (got[np.abs(v) == 464] & 0x7F == 0x7E).all()


@pytest.mark.parametrize("fmt", ["e2m1", "e4m3"])
def test_decode_to_bfloat16_is_the_same_value(host, fmt):
    codes = np.arange(16 if fmt == "e2m1" else 256, dtype=np.uint8)
    decode = getattr(host, f"decode_{fmt}")
    wide, narrow = decode(codes), decode(codes, "bfloat16")
    assert narrow.dtype == ml_dtypes.bfloat16
    assert np.array_equal(wide.view(np.uint32), narrow.view(np.uint16).astype(np.uint32) << np.uint32(16))
    assert np.isnan(wide).sum() == (0 if fmt == "e2m1" else 2)
