"""What a call may be given: named errors, odd memory layouts, `out`, inputs that are never written."""

import inspect

import launcher_calls
import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.errors import ArgumentError, DtypeError, ProfileError, ScaleError, ShapeError, UnsupportedError


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)


@pytest.fixture
def fp8():
    rng = np.random.default_rng(1)
    return rng.integers(0, 127, (6, 160), dtype=np.uint8), rng.integers(120, 130, (6, 2), dtype=np.uint8)


@pytest.fixture
def mx():
    rng = np.random.default_rng(2)
    return rng.integers(0, 256, (6, 80), dtype=np.uint8), rng.integers(120, 130, (6, 5), dtype=np.uint8)


TWINS = (
    "quantize_mxfp4", "dequantize_mxfp4", "quantize_fp8_tiles", "dequantize_fp8_tiles", "fp8_to_mxfp4",
    "quantize_nvfp4", "dequantize_nvfp4", "hadamard16", "hadamard_quantize_nvfp4",
    "luq", "dequantize_luq", "radix4", "dequantize_radix4", "quantize_tetrajet", "q_ema", "dge", "occ",
    "stable_spam_apply",
    "mxfp4_to_fp8", "mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns", "mxfp4_columns", "fp8_columns",
    "swiglu_quantize", "swiglu_backward",
    "pack_payload", "unpack_payload", "quantize_payload", "fp8_to_payload", "permute_pad", "permute_unpack",
    "unpermute",
)  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_signature_is_the_twin_s_plus_out(host, name):
    ours = dict(inspect.signature(getattr(host, name)).parameters)
    golden = inspect.signature(inspect.unwrap(getattr(refnum, name))).parameters
    assert ours.pop("out").default is None
    assert [(n, p.kind, p.default) for n, p in ours.items()] == [(n, p.kind, p.default) for n, p in golden.items()]


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.int16, ">f4"])
def test_quantisers_refuse_other_dtypes(host, x, dtype):
    for call in (host.quantize_mxfp4, host.quantize_fp8_tiles):
        with pytest.raises(DtypeError, match="x has dtype"):
            call(x.astype(dtype))


@pytest.mark.parametrize("name", TWINS)
def test_an_array_with_a_mask_is_no_array(host, name):
    arguments = launcher_calls.make(name)
    for key in [key for key, value in arguments.items() if isinstance(value, np.ndarray)]:
        masked = np.ma.array(arguments[key], mask=True)
        with pytest.raises(DtypeError, match=f"{key} .*MaskedArray"):
            getattr(host, name)(**{**arguments, key: masked})
    results = getattr(host, name)(**arguments)
    out = tuple(np.ma.array(x) for x in (results if isinstance(results, tuple) else (results,)) if x is not None)
    with pytest.raises(DtypeError, match=r"out\[0\] is a MaskedArray"):
        getattr(host, name)(**arguments, out=out)


@pytest.mark.parametrize("name", [f"{way}_{code}" for way in ("encode", "decode") for code in ("e2m1", "e4m3", "e8m0")])
def test_a_cast_takes_no_array_with_a_mask(host, name):
    x = np.ma.array(np.zeros(4, np.uint8 if name.startswith("decode") else np.float32), mask=True)
    with pytest.raises(DtypeError, match=r"(x|codes) is a MaskedArray"):
        getattr(host, name)(x)


def test_random_bits_with_a_mask_are_refused(host, x):
    with pytest.raises(DtypeError, match="rbits is a MaskedArray"):
        host.quantize_mxfp4(x, "STOCHASTIC", rbits=np.ma.array(np.zeros(x.shape, np.uint8), mask=True))


def test_lists_and_other_libraries_are_refused(host, x):
    with pytest.raises(DtypeError, match="list"):
        host.quantize_mxfp4(x.tolist())
    with pytest.raises(DtypeError, match="list"):
        host.dequantize_mxfp4([[0] * 16], np.zeros((1, 1), np.uint8))


@pytest.mark.parametrize("shape", [(6, 33), (6, 16), (64,), (2, 3, 32)])
def test_shapes_are_checked(host, shape):
    for call in (host.quantize_mxfp4, host.quantize_fp8_tiles):
        with pytest.raises(ShapeError, match="shape"):
            call(np.zeros(shape, np.float32))
    with pytest.raises(ShapeError, match="codes has shape"):
        host.fp8_to_mxfp4(np.zeros(shape, np.uint8), np.zeros((6, 1), np.uint8))


def test_scales_are_checked(host, fp8, mx):
    codes, scales = fp8
    packed, blocks = mx
    for call in (host.fp8_to_mxfp4, host.dequantize_fp8_tiles, host.fp8_columns):
        with pytest.raises(ShapeError, match=r"\(6, 1\).*\(6, 2\)"):
            call(codes, scales[:, :1])
        with pytest.raises(ScaleError, match="float32"):
            call(codes, np.exp2(scales - 127.0).astype(np.float32))
    for call in (host.dequantize_mxfp4, host.mxfp4_to_fp8, host.mxfp4_to_fp8_columns, host.mxfp4_columns):
        with pytest.raises(ShapeError, match="scales has shape"):
            call(packed, blocks[:5])
        with pytest.raises(ScaleError, match="int64"):
            call(packed, blocks.astype(np.int64))
        with pytest.raises(DtypeError, match="packed has dtype"):
            call(packed.astype(np.int8), blocks)
    with pytest.raises(ShapeError):
        host.dequantize_fp8_tiles(codes, scales, (128, 128))


def test_choices_are_checked(host, x, fp8, mx):
    for call in (
        lambda: host.mxfp4_to_fp8(*mx, scale="mean"),
        lambda: host.mxfp4_to_fp8_columns(*mx, scale="MAX"),
        lambda: host.mxfp4_columns(*mx, None, ""),
        lambda: host.fp8_columns(*fp8, None, "flush"),
        lambda: host.quantize_fp8_tiles(x, (128, 1)),
        lambda: host.quantize_fp8_tiles(x, 128),
        lambda: host.quantize_fp8_tiles(x, (True, 128)),
        lambda: host.quantize_fp8_tiles(x, (1.0, 128)),
        lambda: host.dequantize_fp8_tiles(*fp8, tile=(1, 128.0)),
        lambda: host.fp8_columns(*fp8, [True, 5]),
        lambda: host.fp8_columns(*fp8, 6),
        lambda: host.dequantize_mxfp4(*mx, "float16"),
        lambda: host.dequantize_fp8_tiles(*fp8, dtype=np.float64),
        lambda: host.encode_e2m1(x, scale_byte=256),
        lambda: host.encode_e4m3(x, "inf"),
        lambda: host.encode_e8m0(x, "even"),
        lambda: host.encode_e8m0(x, saturate=1),
        lambda: host.decode_e8m0(np.zeros(2, np.uint8), "float16"),
        lambda: host.decode_e2m1(np.full(2, 16, np.uint8)),
    ):
        with pytest.raises(ArgumentError):
            call()
    with pytest.raises(ProfileError):
        host.quantize_mxfp4(x, "HOPER")
    with pytest.raises(ProfileError, match="type int"):
        host.quantize_mxfp4(x, 5)
    for tile in ([1, 128], (np.int64(1), np.int32(128))):
        for ours, golden in zip(host.quantize_fp8_tiles(x, tile), refnum.quantize_fp8_tiles(x, tile), strict=True):
            assert np.array_equal(ours, golden)


def test_splits_are_checked(host, fp8, mx):
    for call, arrays in ((host.fp8_columns, fp8), (host.mxfp4_to_fp8_columns, mx), (host.mxfp4_columns, mx)):
        with pytest.raises(ShapeError, match=r"5.*6"):
            call(*arrays, [2, 3])
        with pytest.raises(ArgumentError, match="a split is -2"):
            call(*arrays, [8, -2])
        with pytest.raises(ArgumentError, match="integers"):
            call(*arrays, [2.5, 3.5])
    with pytest.raises(ShapeError, match="even"):
        host.mxfp4_columns(*mx, [3, 3])
    assert host.fp8_columns(*fp8, np.array([6, 0], np.int32))[1].shape == (1, 160)


UNSUPPORTED = {
    "rounding": "toward_zero", "ties": "away", "negative_zero": "drop", "overflow": "nan", "amax_floor": 0x3024ED3F,
}  # fmt: skip


@pytest.mark.parametrize("field", UNSUPPORTED)
def test_profile_fields_without_a_kernel_are_named(host, x, fp8, field):
    profile = refnum.HOPPER.replace(name="OTHER", **{field: UNSUPPORTED[field]})
    for call in (
        lambda: host.quantize_mxfp4(x, profile),
        lambda: host.quantize_fp8_tiles(x, (1, 128), profile),
        lambda: host.fp8_to_mxfp4(*fp8, profile),
    ):
        with pytest.raises(UnsupportedError, match=f"OTHER.*{field}"):
            call()


def test_stochastic_only_where_there_is_a_kernel(host, x, fp8):
    with pytest.raises(UnsupportedError, match="rounding"):
        host.quantize_fp8_tiles(x, profile="STOCHASTIC")
    with pytest.raises(UnsupportedError, match="rounding"):
        host.fp8_to_mxfp4(*fp8, "STOCHASTIC")
    wide = refnum.PROFILES["STOCHASTIC"].replace(name="S16", random_bits=16)
    rbits = np.zeros(x.shape, np.uint8)
    with pytest.raises(UnsupportedError, match="random_bits"):
        host.quantize_mxfp4(x, wide, rbits=rbits)
    with pytest.raises(ArgumentError, match="missing"):
        host.quantize_mxfp4(x, "STOCHASTIC")
    with pytest.raises(ArgumentError, match="given"):
        host.quantize_mxfp4(x, rbits=rbits)
    with pytest.raises(ShapeError):
        host.quantize_mxfp4(x, "STOCHASTIC", rbits=rbits[:, :32])
    with pytest.raises(DtypeError):
        host.quantize_mxfp4(x, "STOCHASTIC", rbits=rbits.astype(np.int32))
    with pytest.raises(ArgumentError, match="256"):
        host.quantize_mxfp4(x, "STOCHASTIC", rbits=rbits + np.uint16(256))


def calls(host, x, fp8, mx):
    """Every operation with valid inputs."""
    return {
        "quantize_mxfp4": (host.quantize_mxfp4, (x,)),
        "quantize_mxfp4 bfloat16": (host.quantize_mxfp4, (x.astype(ml_dtypes.bfloat16),)),
        "dequantize_mxfp4": (host.dequantize_mxfp4, mx),
        "quantize_fp8_tiles": (host.quantize_fp8_tiles, (x,)),
        "dequantize_fp8_tiles": (host.dequantize_fp8_tiles, fp8),
        "fp8_to_mxfp4": (host.fp8_to_mxfp4, fp8),
        "mxfp4_to_fp8": (host.mxfp4_to_fp8, mx),
        "mxfp4_to_fp8_columns": (host.mxfp4_to_fp8_columns, mx),
        "mxfp4_to_fp8_rows_columns": (host.mxfp4_to_fp8_rows_columns, mx),
        "mxfp4_columns": (host.mxfp4_columns, mx),
        "fp8_columns": (host.fp8_columns, fp8),
        "quantize_payload": (host.quantize_payload, (x,)),
        "fp8_to_payload": (host.fp8_to_payload, fp8),
    }


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def spread_out(a):
    """The same elements with gaps in both axes, reversed rows, read-only."""
    wide = np.zeros((2 * a.shape[0], 3 * a.shape[1]), a.dtype)
    view = wide[::-2, ::3]
    view[...] = a
    view.flags.writeable = False
    return view


def test_layout_of_inputs_does_not_matter_and_they_stay(host, x, fp8, mx):
    for name, (call, arrays) in calls(host, x, fp8, mx).items():
        wanted = as_tuple(call(*arrays))
        for change in (spread_out, np.asfortranarray, lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape)):
            given = [change(a) for a in arrays]
            kept = [a.copy() for a in given]
            for got, one in zip(as_tuple(call(*given)), wanted, strict=True):
                assert np.array_equal(got.view(np.uint8), one.view(np.uint8)), name
            for before, after in zip(kept, given, strict=True):
                assert np.array_equal(
                    before.view(np.uint16 if before.itemsize == 2 else before.dtype),
                    after.view(np.uint16 if after.itemsize == 2 else after.dtype),
                ), name


def test_out_is_filled_and_returned(host, x, fp8, mx):
    for name, (call, arrays) in calls(host, x, fp8, mx).items():
        wanted = as_tuple(call(*arrays))
        for make in (np.empty_like, lambda a: np.empty((a.shape[0], 2 * a.shape[1]), a.dtype)[:, ::2]):
            out = tuple(make(a) for a in wanted)
            got = as_tuple(call(*arrays, out=out if len(out) > 1 else out[0]))
            assert all(a is b for a, b in zip(got, out, strict=True)), name
            assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(got, wanted, strict=True)), name


def test_out_that_does_not_fit_is_refused_before_a_byte_is_written(host, x, fp8, mx):
    for call, arrays in calls(host, x, fp8, mx).values():
        good = as_tuple(call(*arrays))
        first, rest = good[0], tuple(a.copy() for a in good[1:])

        def give(array, rest=rest):
            return (array, *rest) if rest else array

        locked = np.zeros_like(first)
        locked.flags.writeable = False
        for bad, error in (
            (np.zeros(first.shape, np.int64), DtypeError),
            (np.zeros((first.shape[0] + 1, first.shape[1]), first.dtype), ShapeError),
            (locked, ArgumentError),
            ("first", DtypeError),
        ):
            before = [a.copy() for a in rest]
            with pytest.raises(error, match="out"):
                call(*arrays, out=give(bad))
            assert all(np.array_equal(a, b) for a, b in zip(before, rest, strict=True))
        with pytest.raises(ArgumentError, match="arrays"):
            call(*arrays, out=(*good, first))


def test_out_may_not_be_an_input(host):
    codes, scales = np.zeros((32, 32), np.uint8), np.zeros((32, 1), np.uint8)
    with pytest.raises(ArgumentError, match="shares memory"):
        host.fp8_columns(codes, scales, out=(codes, np.zeros((1, 32), np.uint8)))


@pytest.mark.parametrize("shape", [(), (7,), (2, 3, 5)])
def test_scalar_functions_take_any_shape(host, shape):
    x = np.full(shape, 3.0, np.float32)
    assert (host.encode_e2m1(x) == 5).all() and host.encode_e2m1(x).shape == shape
    assert (host.encode_e4m3(x.astype(np.float16)) == 0x44).all()
    assert (host.decode_e2m1(np.full(shape, 13, np.uint8)) == -3).all()
    assert (host.decode_e4m3(np.full(shape, 0x44, np.uint8)) == 3).all()
    with pytest.raises(DtypeError):
        host.encode_e4m3(x.astype(np.float64))
    with pytest.raises(DtypeError):
        host.decode_e4m3(x)


def test_a_scale_byte_may_be_a_number_of_numpy(host):
    x = np.full(3, 3.0, np.float32)
    assert np.array_equal(host.encode_e2m1(x, scale_byte=np.uint8(126)), host.encode_e2m1(x, scale_byte=126))
    for wrong in (np.bool_(True), np.float32(126), np.int64(-1)):
        with pytest.raises(ArgumentError):
            host.encode_e2m1(x, scale_byte=wrong)
