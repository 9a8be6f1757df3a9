"""Wrong input gets its named error; strided and read-only input works and is never written to (N0)."""

import ctypes
import platform
import shutil
import subprocess

import numpy as np
import pytest

import refnum as R
from refnum.arguments import require_integer
from refnum.errors import ArgumentError, DtypeError, ProfileError, RefnumError, ScaleError, ShapeError, shown

X = np.ones((4, 128), np.float32)
PACKED, SCALES = R.quantize_mxfp4(X)
CODES, TILES = R.quantize_fp8_tiles(X)
BITS = np.zeros(X.shape, np.uint8)
BEYOND = R.HOPPER.replace(name="beyond", overflow="nan")
TINY_FLOOR = R.HOPPER.replace(name="tiny", amax_floor=1)
LAST_ROW = np.array([2**64 - 1], np.uint64)

WRONG = [
    ("float64", DtypeError, "round it to float32 yourself, once", lambda: R.quantize_mxfp4(X.astype(np.float64))),
    ("float64 tiles", DtypeError, "float64", lambda: R.quantize_fp8_tiles(X.astype(np.float64))),
    ("int32", DtypeError, "int32", lambda: R.quantize_mxfp4(X.astype(np.int32))),
    ("a list", DtypeError, "no array of numbers", lambda: R.quantize_mxfp4([["1.0"] * 32])),
    ("K = 33", ShapeError, "multiple of 32", lambda: R.quantize_mxfp4(np.ones((2, 33), np.float32))),
    ("K = 48 tiles", ShapeError, "multiple of 32", lambda: R.quantize_fp8_tiles(np.ones((2, 48), np.float32))),
    ("one axis", ShapeError, "two axes", lambda: R.quantize_mxfp4(np.ones(64, np.float32))),
    ("three axes", ShapeError, "two axes", lambda: R.quantize_mx(np.ones((2, 2, 32), np.float32))),
    ("tile", ArgumentError, "(1, 128)", lambda: R.quantize_fp8_tiles(X, (64, 64))),
    ("tile of a bool", ArgumentError, "(True, 128)", lambda: R.quantize_fp8_tiles(X, (True, 128))),
    ("tile of floats", ArgumentError, "(1.0, 128)", lambda: R.dequantize_fp8_tiles(CODES, TILES, (1.0, 128))),
    ("tile of three", ArgumentError, "(1, 128, 3)", lambda: R.quantize_fp8_tiles(X, (1, 128, 3))),
    ("tile of words", ArgumentError, "'ab'", lambda: R.dequantize_fp8_tiles(CODES, TILES, "ab")),
    ("no tile", ArgumentError, "tile=128", lambda: R.quantize_fp8_tiles(X, 128)),
    ("profile", ProfileError, "HOPPER", lambda: R.quantize_mxfp4(X, "hopper")),
    ("a number as profile", ProfileError, "5, of type int", lambda: R.get_profile(5)),
    ("bytes as profile", ProfileError, "b'HOPPER', of type bytes", lambda: R.quantize_fp8_tiles(X, profile=b"HOPPER")),
    ("no profile", ProfileError, "None, of type NoneType", lambda: R.fp8_to_mxfp4(CODES, TILES, None)),
    ("element", ProfileError, "MXINT8", lambda: R.quantize_mx(X, "INT4")),
    ("format", ProfileError, "E2M1", lambda: R.decode("E9M9", CODES)),
    ("scale shape", ShapeError, "(4, 4)", lambda: R.dequantize_mxfp4(PACKED, SCALES[:, :3])),
    ("float32 scales", ScaleError, "layouts first", lambda: R.dequantize_mxfp4(PACKED, SCALES.astype(np.float32))),
    ("float packed", DtypeError, "uint8", lambda: R.dequantize_mxfp4(PACKED.astype(np.float32), SCALES)),
    ("packed width", ShapeError, "multiple of 16", lambda: R.mxfp4_to_fp8(PACKED[:, :10], SCALES)),
    ("tile scales", ShapeError, "(4, 1)", lambda: R.fp8_to_mxfp4(CODES, SCALES)),
    ("dtype out", ArgumentError, "bfloat16", lambda: R.dequantize_mxfp4(PACKED, SCALES, "float64")),
    ("mode", ArgumentError, "'amax'", lambda: R.mxfp4_to_fp8(PACKED, SCALES, "min")),
    ("underflow", ArgumentError, "'te'", lambda: R.fp8_columns(CODES, TILES, None, "rtz")),
    ("splits sum", ShapeError, "4", lambda: R.fp8_columns(CODES, TILES, [1, 2])),
    ("negative split", ArgumentError, "a split is -1", lambda: R.fp8_columns(CODES, TILES, [-1, 5])),
    ("fractional split", ArgumentError, "a split is 1.5", lambda: R.fp8_columns(CODES, TILES, [1.5, 2.5])),
    ("a bool as split", ArgumentError, "True", lambda: R.fp8_columns(CODES, TILES, [True, 3])),
    ("a word as split", ArgumentError, "'a'", lambda: R.fp8_columns(CODES, TILES, ["a", 3])),
    ("no splits", ArgumentError, "splits=4", lambda: R.mxfp4_columns(PACKED, SCALES, 4)),
    ("odd split", ShapeError, "even", lambda: R.mxfp4_columns(PACKED, SCALES, [1, 3])),
    ("code range", ArgumentError, "below 16", lambda: R.dequantize_mx(CODES | 0x10, SCALES, "E2M1")),
    ("signed codes", DtypeError, "unsigned", lambda: R.decode("E4M3", CODES.astype(np.int8))),
    ("rbits missing", ArgumentError, "missing", lambda: R.quantize_mxfp4(X, "STOCHASTIC")),
    ("rbits in vain", ArgumentError, "stochastic", lambda: R.quantize_mxfp4(X, rbits=np.zeros(X.shape, np.uint8))),
    ("rbits shape", ShapeError, "(4, 128)", lambda: R.quantize_mxfp4(X, "STOCHASTIC", rbits=np.zeros(4, np.uint8))),
    (
        "rbits range",
        ArgumentError,
        "8 bits",
        lambda: R.quantize_mxfp4(X, "STOCHASTIC", rbits=np.full(X.shape, 256, np.uint16)),
    ),
    ("rbits dtype", DtypeError, "unsigned", lambda: R.quantize_mxfp4(X, "STOCHASTIC", rbits=np.zeros(X.shape))),
    ("rbits in vain, radix 4", ArgumentError, "rbits was given", lambda: R.encode("FP4_RADIX4", X, rbits=BITS)),
    ("philox in vain", ArgumentError, "philox was given", lambda: R.quantize_mxfp4(X, philox=(1, 2, 3))),
    ("nan of INT4", ProfileError, "neither Inf nor NaN", lambda: R.encode("INT4", X, 0, BEYOND)),
    ("nan of radix 4", ProfileError, "neither Inf nor NaN", lambda: R.encode("FP4_RADIX4", X, 0, BEYOND)),
    ("nan of MXINT8", ProfileError, "neither Inf nor NaN", lambda: R.quantize_mx(X, "MXINT8", BEYOND)),
    ("no tokens", ArgumentError, "allowed are none", lambda: R.permute_pad(PACKED[:0], np.zeros(1, int), [1])),
    ("encode to FP32", ProfileError, "at most 22", lambda: R.encode("FP32", X)),
    ("oracle's float", ArgumentError, "'float64' is not one of float32", lambda: R.oracle.float_bits(1, "float64")),
    ("oracle's bits", ArgumentError, "'E4M3' is not one of float32", lambda: R.oracle.float_value(1, "E4M3")),
    ("row beyond 2**63", ArgumentError, "is 18446744073709551615;", lambda: R.permute_pad(PACKED, LAST_ROW, [1])),
    ("scale rule", ProfileError, "rceil", lambda: R.Profile("x", scale_rule="round")),
    ("zero scale", ProfileError, "0..254", lambda: R.Profile("x", zero_scale=255)),
    ("amax floor", ProfileError, "amax_floor", lambda: R.Profile("x", amax_floor=0x7F800000)),
    ("random bits", ProfileError, "1..24", lambda: R.Profile("x", random_bits=0)),
    ("overflow", ProfileError, "saturate", lambda: R.encode("E2M1", X, 0, R.Profile("x", overflow="nan"))),
    ("e8m0 rounding", ArgumentError, "'up'", lambda: R.encode_e8m0(X, "even")),
    ("e8m0 float64", DtypeError, "float64", lambda: R.encode_e8m0(X.astype(np.float64))),
    ("encode float64", DtypeError, "float64", lambda: R.encode("E2M1", X.astype(np.float64))),
    ("explain what", ArgumentError, "EXPLAINED", lambda: R.explain("pack_payload", {}, 0)),
    ("explain where", ArgumentError, "outside", lambda: R.explain("quantize_mxfp4", {"x": X}, (4, 0))),
    ("explain nothing", ArgumentError, "outside", lambda: R.explain("quantize_mxfp4", {"x": X[:, :0]}, 0)),
    ("explain without", ArgumentError, "'x'", lambda: R.explain("quantize_mxfp4", {}, 0)),
]


@pytest.mark.parametrize(("error", "says", "call"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong_input(error, says, call):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, RefnumError)
    assert says in str(caught.value)


CALLS = {
    "quantize_mxfp4": (R.quantize_mxfp4, (X,)),
    "quantize_mx": (R.quantize_mx, (X,)),
    "quantize_fp8_tiles": (R.quantize_fp8_tiles, (X,)),
    "dequantize_mxfp4": (R.dequantize_mxfp4, (PACKED, SCALES)),
    "dequantize_fp8_tiles": (R.dequantize_fp8_tiles, (CODES, TILES)),
    "fp8_to_mxfp4": (R.fp8_to_mxfp4, (CODES, TILES)),
    "mxfp4_to_fp8": (R.mxfp4_to_fp8, (PACKED, SCALES)),
    "mxfp4_to_fp8_columns": (R.mxfp4_to_fp8_columns, (PACKED, SCALES)),
    "mxfp4_to_fp8_rows_columns": (R.mxfp4_to_fp8_rows_columns, (PACKED, SCALES)),
    "mxfp4_columns": (R.mxfp4_columns, (PACKED, SCALES)),
    "fp8_columns": (R.fp8_columns, (CODES, TILES)),
    "quantize_payload": (R.quantize_payload, (X,)),
    "fp8_to_payload": (R.fp8_to_payload, (CODES, TILES)),
}


@pytest.mark.parametrize("name", CALLS)
def test_strided_and_read_only_input(name):
    function, arguments = CALLS[name]
    noise = [np.asarray(R.philox.random_bytes(a.size, 5)).reshape(a.shape) for a in arguments]
    arguments = [
        (a + n % 8).astype(a.dtype) if a.dtype == np.float32 else n for a, n in zip(arguments, noise, strict=True)
    ]
    plain = function(*[a.copy() for a in arguments])
    wide = [np.repeat(np.repeat(a, 2, axis=0), 3, axis=1)[::2, ::3] for a in arguments]
    fortran = [np.asfortranarray(a) for a in arguments]
    backwards = [a[::-1, ::-1].copy()[::-1, ::-1] for a in arguments]
    for variant in (wide, fortran, backwards):
        before = [a.copy() for a in variant]
        for a in variant:
            a.flags.writeable = False
        got = function(*variant)
        for left, right in zip(
            got if isinstance(got, tuple) else (got,), plain if isinstance(plain, tuple) else (plain,), strict=True
        ):
            assert left.tobytes() == right.tobytes() and left.shape == right.shape
        for a, b in zip(variant, before, strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", CALLS)
def test_no_rows(name):
    function, arguments = CALLS[name]
    empty = [a[:0] for a in arguments]
    got = function(*empty)
    for array in got if isinstance(got, tuple) else (got,):
        assert array.size == 0 and array.ndim == 2
    columns = name.endswith("columns") and "rows" not in name  # whose first output lies column by column
    first = got[0] if isinstance(got, tuple) else got
    assert first.shape[1 if columns else 0] == 0


NEVER = {
    "tiles": (ProfileError, "STOCHASTIC is stochastic", lambda x: R.quantize_fp8_tiles(x, profile="STOCHASTIC")),
    "recast": (ProfileError, "STOCHASTIC is stochastic", lambda x: R.fp8_to_mxfp4(*fp8(x), "STOCHASTIC")),
    "payload": (ProfileError, "STOCHASTIC is stochastic", lambda x: R.quantize_payload(x, "STOCHASTIC")),
    "swiglu": (ProfileError, "is stochastic", lambda x: R.swiglu_quantize(*bf16(x), to="mxfp4", profile="STOCHASTIC")),
    "rbits missing": (ArgumentError, "rbits is missing", lambda x: R.quantize_mxfp4(x, "STOCHASTIC")),
    "rbits in vain": (ArgumentError, "rbits was given", lambda x: R.quantize_mx(x, rbits=BITS[: x.shape[0]])),
    "philox in vain": (ArgumentError, "philox was given", lambda x: R.quantize_mxfp4(x, "OCP", philox=(1, 2, 3))),
    "nan": (ProfileError, "neither Inf nor NaN", lambda x: R.quantize_mxfp4(x, BEYOND)),
    "nan of a recast": (ProfileError, "neither Inf nor NaN", lambda x: R.fp8_to_mxfp4(*fp8(x), BEYOND)),
    "floor of a recast": (ProfileError, "amax_floor is a subnormal", lambda x: R.fp8_to_mxfp4(*fp8(x), TINY_FLOOR)),
}


def fp8(x):
    return CODES[: x.shape[0]], TILES[: x.shape[0]]


def bf16(x):
    return [x.astype(R.arrays.BFLOAT16)] * 2


@pytest.mark.parametrize("rows", [0, 4])
@pytest.mark.parametrize("name", NEVER)
def test_what_is_refused_is_refused_without_rows_too(name, rows):
    error, says, call = NEVER[name]
    with pytest.raises(error, match=says):
        call(X[:rows])


@pytest.fixture(params=[0x9FC0, 0x9F80, 0x1FC0], ids=["both", "FTZ", "DAZ"])
def flushing(tmp_path, request):
    """FTZ, DAZ or both set for the thread that runs the test."""
    compiler = shutil.which("cc")
    if compiler is None or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("needs a C compiler and x86's MXCSR")
    source, library = tmp_path / "mode.c", tmp_path / "mode.so"
    source.write_text(
        "#include <xmmintrin.h>\n"
        "unsigned swap_mode(unsigned m) { unsigned old = _mm_getcsr(); _mm_setcsr(m); return old; }\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    swap_mode = ctypes.CDLL(str(library)).swap_mode
    old = swap_mode(request.param)
    yield
    swap_mode(old)


def test_flushing_is_noticed_under_every_error_state_of_numpy(flushing):
    """A flushed product raises the underflow flag, of which NumPy may be told to make an error."""
    with np.errstate(all="raise"):
        assert R.environment.flushes_subnormals()


def test_flushed_subnormals_are_noticed(monkeypatch):
    from refnum import environment

    assert not environment.flushes_subnormals()
    monkeypatch.setattr(environment, "flushes_subnormals", lambda: True)
    with pytest.warns(RuntimeWarning, match="flushes float32 subnormals") as told:
        environment.check_host()
    assert [one.filename for one in told] == [__file__], "the warning is that of whoever calls"


def test_a_message_shows_the_start_of_what_was_given():
    assert shown("a" * 78) == repr("a" * 78) and shown("a" * 79) == "'" + "a" * 76 + "..."
    assert shown(1 << 9999) == str(1 << 9999)[:77] + "..." and shown(1 << 10_000) == "an integer of 10001 bits"
    assert (
        shown(np.zeros((2, 3), np.int8)) == "a ndarray of int8, shape (2, 3)"
        and shown(np.float32(2)) == "np.float32(2.0)"
    )


def test_an_integer_may_have_no_upper_bound() -> None:
    assert [require_integer("n", n, 3) for n in (3, 1 << 80, np.int8(4))] == [3, 1 << 80, 4]
    for below in (2, np.int8(2)):
        with pytest.raises(ArgumentError, match="of at least 3"):
            require_integer("n", below, 3)
