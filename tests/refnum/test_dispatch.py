"""The model's lines run unchanged on any array that answers NEP 13 and NEP 18: nothing falls back to NumPy.

`DeviceArray` stands in for a CuPy array on a machine without a GPU: it refuses to become a NumPy array, and knows
only functions and methods that CuPy has. np.repeat and np.tile are not among them, because CuPy takes a launch for each
item of the axis. It refuses every operation on float32 numbers, for CuPy compiles its kernels with subnormal numbers
flushed to zero: the model works on their bits. That CuPy itself gives the same bits is shown on a GPU by test_cupy.py.
"""

import numpy as np
import pytest

import refnum as R
from refnum.arrays import spread
from refnum.nvfp4_scales import VARIANTS

FUNCTIONS = {
    np.where, np.take, np.empty, np.zeros, np.asarray, np.arange, np.concatenate,
    np.broadcast_to, np.clip, np.ascontiguousarray, np.stack, np.transpose, np.reshape, np.max, np.any, np.all,
    np.zeros_like, np.ones_like, np.full_like, np.array, np.ones, np.argsort, np.cumsum, np.bincount, np.unique,
    np.broadcast_arrays, np.searchsorted, np.sort, np.flatnonzero, np.empty_like, np.moveaxis,
}  # fmt: skip


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    def __init__(self, host):
        self.host = host

    def __array__(self, *_, **__):
        raise TypeError("implicit copy from the device")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        assert method == "__call__", f"{ufunc.__name__}.{method} is not relied on"
        assert not any(getattr(x, "dtype", None) == np.float32 for x in inputs), f"{ufunc.__name__} of float32"
        if out is not None:
            kwargs["out"] = tuple(map(unwrap, out))
        return wrap(getattr(ufunc, method)(*map(owned, inputs), **kwargs))

    def __array_function__(self, function, types, args, kwargs):
        assert function in FUNCTIONS, f"{function.__name__} is not on the list of functions that CuPy has"
        return wrap(function(*unwrap(args), **{k: unwrap(v) for k, v in kwargs.items()}))

    shape = property(lambda self: self.host.shape)
    dtype = property(lambda self: self.host.dtype)
    ndim = property(lambda self: self.host.ndim)
    size = property(lambda self: self.host.size)
    flags = property(lambda self: self.host.flags)
    T = property(lambda self: DeviceArray(self.host.T))

    def __len__(self):
        return len(self.host)

    def __bool__(self):
        return bool(self.host)

    def __int__(self):
        return int(self.host)

    def __getitem__(self, key):
        return wrap(self.host[unwrap(key)])

    def __setitem__(self, key, value):
        self.host[unwrap(key)] = owned(value)


METHODS = ("reshape", "view", "astype", "max", "min", "any", "all", "copy", "sum", "transpose", "argmax", "ravel",
           "swapaxes", "tolist")  # fmt: skip
for name in METHODS:

    def method(self, *args, _name=name, **kwargs):
        return wrap(getattr(self.host, _name)(*unwrap(args), **kwargs))

    setattr(DeviceArray, name, method)


def wrap(x):
    if isinstance(x, tuple):
        return tuple(map(wrap, x))
    return DeviceArray(np.asarray(x)) if isinstance(x, np.ndarray | np.generic) else x


def unwrap(x):
    if isinstance(x, tuple | list):
        return type(x)(map(unwrap, x))
    return x.host if isinstance(x, DeviceArray) else x


def owned(x):
    """A device operand, or a scalar; a host array would be an implicit copy to the device."""
    assert isinstance(x, DeviceArray) or np.ndim(x) == 0, "a host array met a device array"
    return unwrap(x)


X = (R.philox.random_words(6 * 160, 1) & 0x8FFFFFFF | 0x30000000).astype(np.uint32).view(np.float32).reshape(6, 160)
X[1, :40], X[2, 3], X[3, 7] = 0, np.nan, -np.inf
SPECIAL = X.copy()
SPECIAL[4] = 1e-40
PACKED, SCALES = R.quantize_mxfp4(SPECIAL)
CODES, TILES = R.quantize_fp8_tiles(SPECIAL)
BF16 = SPECIAL.astype(R.arrays.BFLOAT16)
PROB = np.linspace(0, 1, 6, dtype=np.float32)
FACTORS = np.linspace(0.1, 2, 12, dtype=np.float32)
WORDS = [R.philox.random_bits(X.shape, bits, seed=3, stream=bits) for bits in (24, 23)]

CALLS = {
    "quantize_mxfp4": (R.quantize_mxfp4, (SPECIAL,), {}),
    "quantize_mxfp4 TE": (R.quantize_mxfp4, (SPECIAL, "TE"), {}),
    "quantize_mxfp4 RECIPE": (R.quantize_mxfp4, (SPECIAL, "RECIPE"), {}),
    "quantize_mxfp4 bfloat16": (R.quantize_mxfp4, (BF16,), {}),
    "quantize_mxfp4 float16": (R.quantize_mxfp4, (X[:2].astype(np.float16),), {}),
    "quantize_mxfp4 STOCHASTIC": (
        R.quantize_mxfp4,
        (SPECIAL, "STOCHASTIC"),
        {"rbits": R.philox.random_bytes(X.size, 1).reshape(X.shape)},
    ),
    **{f"quantize_mx {e}": (R.quantize_mx, (SPECIAL, e), {}) for e in R.MX_ELEMENTS},
    "dequantize_mxfp4": (R.dequantize_mxfp4, (PACKED, SCALES), {}),
    "dequantize_mx": (R.dequantize_mx, (CODES & 63, SCALES, "E2M3"), {}),
    "quantize_fp8_tiles": (R.quantize_fp8_tiles, (SPECIAL,), {}),
    "quantize_fp8_tiles 128x128": (R.quantize_fp8_tiles, (SPECIAL, (128, 128)), {}),
    "dequantize_fp8_tiles": (R.dequantize_fp8_tiles, (CODES, TILES), {}),
    **{f"quantize_nvfp4 {v}": (R.quantize_nvfp4, (SPECIAL, v), {}) for v in VARIANTS},
    "quantize_nvfp4 16x16": (R.quantize_nvfp4, (BF16, "FOUR_OVER_SIX", PROB[5:], (16, 16)), {}),
    "quantize_nvfp4 by key": (R.quantize_nvfp4, (BF16,), {"philox": (1, 2, 3), "layout_out": "swizzled"}),
    "quantize_nvfp4 no rows": (R.quantize_nvfp4, (BF16[:0],), {}),
    **{
        f"dequantize_nvfp4 {o}": (R.dequantize_nvfp4, (PACKED, np.repeat(SCALES, 2, axis=1), PROB[5:], o), {})
        for o in ("te", "product", "four_over_six")
    },
    **{
        f"hadamard16 {o} {a}": (R.hadamard16, (SPECIAL, 3, a, o, d), {})
        for o in ("exact", "sequential")
        for a, d in ((-1, "bfloat16"), (0, "float32"))
    },
    "hadamard16 wide": (R.hadamard16, (np.ldexp(X[:1, 64:96], np.arange(32) * 7 - 99).astype(np.float32),), {}),
    "hadamard16 no rows": (R.hadamard16, (BF16[:0],), {}),
    "hadamard_quantize_nvfp4": (R.hadamard_quantize_nvfp4, (BF16,), {"axis": 0, "layout_out": "swizzled"}),
    **{
        f"quantize_tetrajet {axis} {rule}": (R.quantize_tetrajet, (SPECIAL, axis, rule), {})
        for axis in (0, 1)
        for rule in ("truncation_free", "exact")
    },
    "quantize_tetrajet by key": (R.quantize_tetrajet, (BF16, 0), {"philox": (1, 2, 3)}),
    "q_ema": (R.q_ema, (SPECIAL, X), {}),
    "double_quantise": (R.double_quantise, (PACKED, SCALES), {}),
    **{f"quantize_tetrajet_v2 {seed}": (R.quantize_tetrajet_v2, (X[:, :128].copy(), seed), {}) for seed in (None, 7)},
    "dequantize_tetrajet_v2": (R.dequantize_tetrajet_v2, R.quantize_tetrajet_v2(X[:, :128].copy()), {}),
    "osci_reset": (R.osci_reset, (X[:, :128].copy(), *R.quantize_tetrajet_v2(X[:, :128].copy())), {}),
    "osci_reset_by_distance": (R.osci_reset_by_distance, (X, X[::-1].copy()), {}),
    "out_control": (R.out_control, (np.tile(SPECIAL, 5), (1, 3)), {}),
    "ema_update": (R.ema_update, (X, BF16), {}),
    "distance_update": (R.distance_update, (X, X[::-1].copy(), X), {}),
    "q_ramping": (R.q_ramping, (X, X[::-1].copy()), {}),
    "ramping_step": (R.ramping_step, (X, X.view(np.int32) & 15, X[::-1].copy(), 1 + (X.view(np.int32) & 3)), {}),
    **{
        f"luq {step}": (R.luq, (SPECIAL, *WORDS, 64, given, step), {})
        for step in ("real", "power_of_two")
        for given in (PROB[5:], None)
    },
    "luq bfloat16": (R.luq, (BF16, *WORDS, 128), {}),
    "luq no rows": (R.luq, (BF16[:0], *(words[:0] for words in WORDS)), {}),
    **{f"dequantize_luq {d}": (R.dequantize_luq, (PACKED, PROB[5:], d), {}) for d in ("float32", "bfloat16")},
    **{f"tpr {t}": (R.tpr, (SPECIAL, -3, t), {}) for t in ("midpoint", "0.4", "log")},
    **{f"dequantize_radix4 {p}": (R.dequantize_radix4, (PACKED, 4, p), {}) for p in ("even", "odd")},
    "sawb": (R.sawb, (SPECIAL,), {}),
    "int4_affine": (R.int4_affine, (SPECIAL, 32), {}),
    "int4_keep_two": (R.int4_keep_two, (SPECIAL, 32), {}),
    "efficient_qat": (R.efficient_qat, (BF16, 32), {}),
    "dequantize_int4": (R.dequantize_int4, (CODES & 15, *(a for a in R.int4_affine(SPECIAL, 32)[1:])), {}),
    **{f"llm_fp4 {e}": (R.llm_fp4, (SPECIAL, PROB + 1, e), {}) for e in (1, 2)},
    **{f"llm_qat {s} {w}": (R.llm_qat, (SPECIAL, 4, s, w), {}) for s in (True, False) for w in (True, False)},
    "adam_apply": (R.adam_apply, (SPECIAL,) * 4 + (FACTORS[:8],), {}),
    **{f"spam_apply {f}": (R.spam_apply, (SPECIAL,) * 4 + (FACTORS[:8], f, f, f), {}) for f in (False, True)},
    **{
        f"stable_spam_apply {f}".strip(): (R.stable_spam_apply, (SPECIAL,) * 4 + (FACTORS, f), {})
        for f in ("", "before", "after")
    },
    "hindsight_amax": (R.hindsight_amax, (PROB, PROB[::-1].copy()), {}),
    "smp_average": (R.smp_average, (SPECIAL,), {}),
    "grad_scale": (R.grad_scale, (np.exp2(np.arange(6, dtype=np.float32)), PROB, PROB + 1), {}),
    "dge": (R.dge, (SPECIAL,), {"target": "float32"}),
    "dge ms-amp": (R.dge, (SPECIAL,), {"compat": "ms-amp", "k": 16}),
    "dge bfloat16": (R.dge, (BF16,), {}),
    **{f"occ {a}": (R.occ, (SPECIAL, (9, 10), a), {}) for a in ("tensor", "token", "channel")},
    "occ bfloat16": (R.occ, (BF16,), {}),
    "occ no rows": (R.occ, (BF16[:0],), {}),
    **{f"vector_scales {a}": (R.vector_scales, (SPECIAL, a), {}) for a in ("tensor", "token", "channel")},
    "vector_scales power_of_two": (R.vector_scales, (BF16, "token", "power_of_two"), {}),
    "vector_scales no rows": (R.vector_scales, (BF16[:0], "channel"), {}),
    "fp8_to_mxfp4": (R.fp8_to_mxfp4, (CODES, TILES), {}),
    "mxfp4_to_fp8": (R.mxfp4_to_fp8, (PACKED, SCALES), {}),
    "mxfp4_to_fp8 amax": (R.mxfp4_to_fp8, (PACKED, SCALES, "amax"), {}),
    "mxfp4_to_fp8_columns": (R.mxfp4_to_fp8_columns, (PACKED, SCALES, [1, 0, 5]), {}),
    "mxfp4_to_fp8_columns amax": (R.mxfp4_to_fp8_columns, (PACKED, SCALES, [1, 0, 5], "amax"), {}),
    "mxfp4_to_fp8_rows_columns": (R.mxfp4_to_fp8_rows_columns, (PACKED, SCALES, [1, 0, 5], "amax"), {}),
    "mxfp4_columns": (R.mxfp4_columns, (PACKED, SCALES, [2, 0, 4]), {}),
    "mxfp4_columns max": (R.mxfp4_columns, (PACKED, SCALES, [2, 0, 4], "max"), {}),
    "fp8_columns": (R.fp8_columns, (CODES, TILES, [5, 1]), {}),
    "fp8_columns te": (R.fp8_columns, (CODES, TILES, None, "te"), {}),
    "swiglu_quantize": (R.swiglu_quantize, (BF16, BF16), {}),
    "swiglu_quantize mxfp4": (R.swiglu_quantize, (BF16, BF16, PROB, "mxfp4"), {}),
    "swiglu_backward": (R.swiglu_backward, (BF16, BF16, BF16, PROB), {}),
    "pack_payload": (R.pack_payload, (PACKED, SCALES), {}),
    "unpack_payload": (R.unpack_payload, (R.pack_payload(PACKED, SCALES),), {}),
    "quantize_payload": (R.quantize_payload, (BF16,), {}),
    "fp8_to_payload": (R.fp8_to_payload, (CODES, TILES), {}),
    "encode_e8m0": (R.encode_e8m0, (SPECIAL,), {}),
    **{f"encode {f}": (R.encode, (f, SPECIAL), {}) for f in ("E2M1", "E4M3", "INT4", "FP4_RADIX4")},
    "decode": (R.decode, ("E4M3", CODES), {}),
    "block_class": (R.block_class, (SPECIAL,), {}),
}


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize(("shape", "axis"), [((3, 5), 0), ((3, 5), 1), ((2, 3, 4), -2), ((0, 4), 1), ((1, 1), 0)])
def test_spread_is_repeat(shape, axis, count):
    x = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    want = np.repeat(x, count, axis=axis)
    for got in (spread(x, count, axis), spread(DeviceArray(x), count, axis).host):
        assert got.shape == want.shape and np.array_equal(got, want)


@pytest.mark.parametrize("name", CALLS)
def test_same_lines_on_a_device_array(name):
    function, arguments, keywords = CALLS[name]
    put = [DeviceArray(a.copy()) if isinstance(a, np.ndarray) else a for a in arguments]
    put_keywords = {k: DeviceArray(v) if isinstance(v, np.ndarray) else v for k, v in keywords.items()}
    got, want = function(*put, **put_keywords), function(*arguments, **keywords)
    for left, right in zip(
        got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True
    ):
        assert isinstance(left, DeviceArray), f"{name} left the device"
        assert left.dtype == right.dtype and np.array_equal(left.host.view(np.uint8), right.view(np.uint8))


@pytest.mark.parametrize("gradient", [SPECIAL, SPECIAL[4:] * np.float32(0.3), SPECIAL[:0]])
def test_scalars_of_a_step_of_stable_spam_on_a_device_array(gradient):
    states = [R.StableSpamState.start(x) for x in (DeviceArray(gradient), gradient)]
    got, want = (R.stable_spam_factors(s, x) for s, x in zip(states, (DeviceArray(gradient), gradient), strict=True))
    assert got[0].array.tobytes() == want[0].array.tobytes() and got[2] == want[2]


def test_results_on_a_device_are_row_major_whatever_the_order_of_axes():
    x = X.reshape(2, 3, 160).transpose(2, 0, 1)
    got = R.encode_e8m0(DeviceArray(x))
    assert got.flags.c_contiguous and np.array_equal(got.host, R.encode_e8m0(np.ascontiguousarray(x)))


def test_the_stand_in_refuses_the_host():
    x = DeviceArray(np.ones(3))
    with pytest.raises(TypeError, match="implicit copy"):
        np.asarray(x)
    with pytest.raises(AssertionError, match="host array met"):
        x + np.ones(3)
    with pytest.raises(AssertionError, match="multiply of float32"):
        DeviceArray(PROB) * np.float32(2)
