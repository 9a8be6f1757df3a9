"""The operators' fake implementations against the golden model's shapes and dtypes, without a device."""

import inspect

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.errors import ArgumentError, DtypeError, ShapeError, UnsupportedError
from refnum.gpu import checks, emulate, ops
from refnum.gpu.device import arrays, plans

torch = pytest.importorskip("torch", reason="needs torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from refnum.gpu import torch as operators  # noqa: E402

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {
    np.dtype(np.float32): torch.float32,
    BF16: torch.bfloat16,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.uint32): torch.uint32,
}


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


WORDS = {"dtype": name_of, "out": name_of, "tile": tuple}


def zeros(*shape, dtype=np.uint8):
    return np.zeros(shape, dtype)


ROWS = [5, 0, 130, 57]
CASES = [
    ("quantize_mxfp4", {"x": zeros(192, 256, dtype=BF16)}),
    ("quantize_mxfp4", {"x": zeros(3, 32, dtype=np.float32), "profile": "OCP"}),
    ("quantize_mxfp4", {"x": zeros(0, 64, dtype=np.float32)}),
    ("dequantize_mxfp4", {"packed": zeros(6, 48), "scales": zeros(6, 3)}),
    ("dequantize_mxfp4", {"packed": zeros(6, 48), "scales": zeros(6, 3), "dtype": torch.bfloat16}),
    ("quantize_fp8_tiles", {"x": zeros(130, 160, dtype=BF16)}),
    ("quantize_fp8_tiles", {"x": zeros(130, 160, dtype=BF16), "tile": [128, 128]}),
    ("dequantize_fp8_tiles", {"codes": zeros(130, 160), "scales": zeros(130, 2)}),
    (
        "dequantize_fp8_tiles",
        {"codes": zeros(130, 160), "scales": zeros(2, 2), "tile": [128, 128], "dtype": torch.bfloat16},
    ),
    ("quantize_nvfp4", {"x": zeros(130, 176, dtype=BF16)}),
    ("quantize_nvfp4", {"x": zeros(3, 32, dtype=np.float32), "variant": "TORCHAO",
                        "tensor_amax": zeros(1, dtype=np.float32), "layout_out": "swizzled"}),
    ("dequantize_nvfp4", {"packed": zeros(6, 40), "scales": zeros(6, 5), "tensor_amax": zeros(1, dtype=np.float32)}),
    ("hadamard16", {"x": zeros(130, 48, dtype=BF16), "dtype": torch.bfloat16}),
    ("hadamard16", {"x": zeros(7, 5, dtype=np.float32), "axis": 0, "order": "sequential", "dtype": torch.float32}),
    ("hadamard_quantize_nvfp4", {"x": zeros(7, 48, dtype=BF16)}),
    ("hadamard_quantize_nvfp4", {"x": zeros(18, 5, dtype=np.float32), "axis": 0, "signs": 3,
                                 "tensor_amax": zeros(1, dtype=np.float32), "layout_out": "swizzled"}),
    ("luq", {"x": zeros(7, 6, dtype=BF16), "r_under": zeros(7, 6, dtype=np.uint32),
             "r_log": zeros(7, 6, dtype=np.uint32)}),
    ("luq", {"x": zeros(3, 4, dtype=np.float32), "r_under": zeros(3, 4, dtype=np.uint32),
             "r_log": zeros(3, 4, dtype=np.uint32), "divisor": 16, "tensor_amax": zeros(1, dtype=np.float32),
             "step": "power_of_two"}),
    ("dequantize_luq", {"packed": zeros(6, 5), "alpha": zeros(1, dtype=np.float32), "dtype": torch.bfloat16}),
    ("radix4", {"x": zeros(7, 6, dtype=BF16), "n0": -3}),
    ("radix4", {"x": zeros(7, 6, dtype=np.float32), "n0": 2, "phase": "odd", "threshold": "log"}),
    ("dequantize_radix4", {"packed": zeros(6, 5), "n0": 2, "phase": "odd"}),
    ("quantize_tetrajet", {"x": zeros(70, 96, dtype=BF16)}),
    ("quantize_tetrajet", {"x": zeros(70, 96, dtype=np.float32), "axis": 0, "rule": "exact", "ties": "away",
                           "rbits": zeros(70, 96)}),
    ("q_ema", {"w": zeros(33, 32, dtype=BF16), "ema": zeros(33, 32, dtype=np.float32), "axis": 0}),
    ("q_ema", {"w": zeros(5, 64, dtype=BF16), "ema": zeros(5, 64, dtype=BF16)}),
    ("dge", {"x": zeros(3, 5, 7, dtype=BF16)}),
    ("dge", {"x": zeros(9, dtype=np.float32), "k": 3, "cap": 1.5, "target": "float32", "compat": "ms-amp"}),
    ("occ", {"x": zeros(6, 40, dtype=BF16)}),
    ("occ", {"x": zeros(6, 40, dtype=np.float32), "alpha": (9, 10), "axis": "token"}),
    ("occ", {"x": zeros(6, 40, dtype=np.float32), "axis": "channel"}),
    ("stable_spam_apply", {**{name: zeros(3, 5, dtype=np.float32) for name in ("gradient", "weight", "m", "v")},
                           "factors": zeros(12, dtype=np.float32), "forget": "after"}),
    ("fp8_to_mxfp4", {"codes": zeros(7, 160), "scales": zeros(7, 2), "profile": "OCP"}),
    ("mxfp4_to_fp8", {"packed": zeros(7, 80), "scales": zeros(7, 5), "scale": "amax"}),
    ("mxfp4_to_fp8_columns", {"packed": zeros(192, 80), "scales": zeros(192, 5)}),
    ("mxfp4_to_fp8_columns", {"packed": zeros(192, 80), "scales": zeros(192, 5), "splits": ROWS}),
    ("mxfp4_to_fp8_rows_columns", {"packed": zeros(192, 80), "scales": zeros(192, 5), "splits": ROWS}),
    ("mxfp4_columns", {"packed": zeros(192, 80), "scales": zeros(192, 5), "splits": [6, 0, 130, 56]}),
    ("fp8_columns", {"codes": zeros(192, 160), "scales": zeros(192, 2), "splits": ROWS, "underflow": "te"}),
    ("swiglu_quantize", {"gate": zeros(5, 160, dtype=BF16), "up": zeros(5, 160, dtype=BF16)}),
    (
        "swiglu_quantize",
        {"gate": zeros(5, 64, dtype=BF16), "up": zeros(5, 64, dtype=BF16), "prob": zeros(5, dtype=np.float32),
         "to": "mxfp4"},
    ),
    ("swiglu_backward", {name: zeros(5, 48, dtype=BF16) for name in ("grad", "gate", "up")}),
    (
        "swiglu_backward",
        {**{name: zeros(5, 48, dtype=BF16) for name in ("grad", "gate", "up")}, "prob": zeros(5, dtype=np.float32)},
    ),
    ("pack_payload", {"packed": zeros(9, 80), "scales": zeros(9, 5)}),
    ("quantize_payload", {"x": zeros(9, 160, dtype=BF16)}),
    ("fp8_to_payload", {"codes": zeros(9, 160), "scales": zeros(9, 2), "profile": "OCP"}),
    ("unpack_payload", {"payload": zeros(9, 85)}),
    (
        "permute_pad",
        {"payload": zeros(9, 85), "row_map": zeros(192, dtype=np.int64), "splits": ROWS, "align": 16},
    ),
    ("permute_unpack", {"payload": zeros(9, 85), "row_map": zeros(192, dtype=np.int64), "splits": ROWS}),
    ("matmul_fp8", {"a": zeros(9, 160), "b": zeros(7, 160)}),
    (
        "matmul_fp8",
        {"a": zeros(9, 160), "b": zeros(2, 7, 160), "splits": [5, 4], "out": torch.bfloat16, "order": "chain"},
    ),
    ("matmul_bf16", {"a": zeros(9, 160, dtype=BF16), "b": zeros(7, 160, dtype=BF16)}),
    (
        "matmul_bf16",
        {"a": zeros(9, 40, dtype=BF16), "b": zeros(2, 7, 40, dtype=BF16), "splits": [5, 4], "out": torch.bfloat16},
    ),
    ("encode_e2m1", {"x": zeros(2, 3, 5, dtype=np.float32)}),
    ("encode_e4m3", {"x": zeros(7, dtype=BF16), "overflow": "nan"}),
    ("encode_e8m0", {"x": zeros(2, 3, dtype=np.float32), "saturate": True}),
    (
        "unpermute",
        {"rows": zeros(256, 8, dtype=BF16), "row_map": zeros(192, dtype=np.int64), "splits": ROWS, "weights": None,
         "tokens": 11},
    ),
]  # fmt: skip


def golden(name, arguments):
    words = {key: WORDS.get(key, lambda value: value)(value) for key, value in arguments.items()}
    found = getattr(refnum, name)(**words)
    found = found if isinstance(found, tuple) else (found,)
    return [np.zeros(0, np.float32) if x is None else x for x in found]


def fake_of(value):
    if not isinstance(value, np.ndarray):
        return value
    return torch.empty(value.shape, dtype=DTYPES[value.dtype], device="cuda")


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])
def test_a_fake_result_has_the_golden_shapes_and_dtypes(name, arguments):
    wanted = golden(name, arguments)
    with FakeTensorMode():
        given = {key: fake_of(value) for key, value in arguments.items()}
        results = getattr(torch.ops.refnum, name)(**given)
        results = results if isinstance(results, tuple) else (results,)
        assert all(result.is_contiguous() and result.device.type == "cuda" for result in results)
        found = [(tuple(result.shape), result.dtype) for result in results]
    assert found == [(x.shape, DTYPES[x.dtype]) for x in wanted]


def test_every_launcher_has_an_operator_and_a_case():
    launchers = {name for name in ops.__all__ if name != "available"}
    assert set(operators.REGISTERED) == launchers
    assert {name for name, _ in CASES} == set(operators.OPERATORS)


@pytest.mark.parametrize("name", sorted(operators.REGISTERED))
def test_an_operator_has_its_launchers_arguments_and_defaults(name):
    launcher = [p for p in inspect.signature(getattr(ops, name)).parameters.values() if p.name != "out" or p.default]
    arguments = operators.REGISTERED[name]._schema.arguments
    assert [a.name for a in arguments] == [p.name for p in launcher]
    dtype = "bfloat16" if name == "hadamard16" else "float32"
    words = {"dtype": dtype, "out": "float32", "profile": refnum.HOPPER}
    for argument, parameter in zip(arguments, launcher, strict=True):
        assert argument.kwarg_only == (parameter.kind is parameter.KEYWORD_ONLY), argument.name
        assert argument.has_default_value() == (parameter.default is not parameter.empty), argument.name
        if argument.has_default_value():
            told = argument.default_value
            wanted = tuple(told) if argument.name in ("tile", "alpha") else words.get(argument.name, told)
            assert parameter.default == wanted


@pytest.mark.parametrize("layout", checks.LAYOUTS)
@pytest.mark.parametrize(("name", "block"), [("quantize_mxfp4", 32), ("quantize_fp8_tiles", 128)])
def test_a_fake_layout_is_that_of_the_golden_conversion(name, block, layout):
    scales = np.zeros((130, -(-160 // block)), np.uint8)
    convert = getattr(refnum.layouts, f"scales_to_{layout}", lambda x: x)
    wanted = convert(scales)
    with FakeTensorMode():
        x = torch.empty(130, 160, dtype=torch.float32, device="cuda")
        found = getattr(torch.ops.refnum, name)(x, layout_out=layout)[1]
    assert (tuple(found.shape), str(found.dtype)) == (wanted.shape, f"torch.{wanted.dtype.name}")


def test_sizes_may_be_symbolic():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    packed = mode.from_tensor(torch.empty(192, 80, dtype=torch.uint8), static_shapes=False)
    scales = mode.from_tensor(torch.empty(192, 5, dtype=torch.uint8), static_shapes=False)
    with mode:
        codes, bytes_ = torch.ops.refnum.mxfp4_to_fp8_columns(packed, scales)
    assert isinstance(codes.shape[1], torch.SymInt)
    assert isinstance(bytes_.shape[0], torch.SymInt)
    assert (codes.shape[0], codes.shape[1], bytes_.shape[0]) == (160, 192, 2)


def test_a_wrong_shape_is_named_while_tracing():
    with FakeTensorMode(), pytest.raises(ShapeError, match="multiple of 32"):
        torch.ops.refnum.quantize_mxfp4(torch.empty(4, 40, dtype=torch.float32, device="cuda"))


def test_a_tensor_on_the_host_is_refused():
    with pytest.raises(NotImplementedError, match="refnum::quantize_mxfp4"):
        torch.ops.refnum.quantize_mxfp4(torch.zeros(4, 32))


def test_an_unknown_name_says_what_there_is():
    with pytest.raises(AttributeError, match="quantize_mxfp4"):
        operators.convert2  # noqa: B018


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("dequantize_mxfp4", {"packed": zeros(6, 48), "scales": zeros(6, 3), "dtype": torch.float16}),
        ("dequantize_fp8_tiles", {"codes": zeros(6, 96), "scales": zeros(6, 1), "dtype": torch.float64}),
        ("dequantize_fp8_tiles", {"codes": zeros(6, 96), "scales": zeros(6, 1), "tile": [7, 128]}),
        ("quantize_fp8_tiles", {"x": zeros(6, 96, dtype=np.float32), "tile": [7, 128]}),
        ("swiglu_quantize", {**dict.fromkeys(("gate", "up"), zeros(5, 64, dtype=BF16)), "to": "nvfp4"}),
    ],
    ids=lambda value: value if isinstance(value, str) else next(reversed(value)),
)
def test_a_fake_refuses_as_its_launcher_what_decides_a_result(name, arguments):
    with FakeTensorMode(), pytest.raises(ArgumentError, match="allowed are"):
        getattr(torch.ops.refnum, name)(**{key: fake_of(value) for key, value in arguments.items()})


@pytest.mark.parametrize("seed", [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_every_seed_has_an_integer_of_torchs(seed):
    signed = seed - (seed >> 63 << 64)
    assert operators._key([signed, 3, 5, 64]) == (seed, 3, 5, 64)
    assert checks.philox_key(operators._key([signed, 3, 5])) == (seed, 3, 5, 0)
    with FakeTensorMode():
        x = torch.empty(2, 32, device="cuda")
        assert torch.ops.refnum.quantize_mxfp4(x, "STOCHASTIC", philox=[signed, 3, 5])[0].shape == (2, 16)


def test_torchs_dtypes_are_taken_by_the_launchers_and_planned():
    if not emulate.available()[0]:
        pytest.skip(emulate.available()[1])
    packed, scales = refnum.quantize_mxfp4(np.linspace(-8, 8, 64, dtype=np.float32).reshape(2, 32))
    with emulate.Emulator().running():
        plans.forget()
        for dtype in (torch.float32, torch.bfloat16):
            want = refnum.dequantize_mxfp4(packed, scales, str(dtype).removeprefix("torch."))
            for _ in range(2):
                got = ops.dequantize_mxfp4(emulate.array(packed), emulate.array(scales), dtype)
                assert got.dtype == want.dtype and got.tobytes() == want.tobytes()
        assert len(plans._plans) == 2
        with pytest.raises(ArgumentError, match="allowed are 'float32', 'bfloat16'"):
            ops.dequantize_mxfp4(emulate.array(packed), emulate.array(scales), torch.float16)


def asks_for_a_gradient(value):
    if not isinstance(value, np.ndarray):
        return value
    dtype = DTYPES[value.dtype]
    return torch.empty(value.shape, dtype=dtype, device="meta", requires_grad=dtype.is_floating_point)


LAID = [
    ("quantize_mxfp4", {"x": zeros(4, 64, dtype=np.float32), "layout_out": "float32"}),
    ("quantize_fp8_tiles", {"x": zeros(4, 64, dtype=np.float32), "layout_out": "gemm_float32"}),
    ("dequantize_mxfp4", {"packed": zeros(4, 32), "scales": zeros(4, 2, dtype=np.float32), "layout_in": "float32"}),
    ("dequantize_fp8_tiles", {"codes": zeros(4, 64), "scales": zeros(1, 4, dtype=np.float32),
                              "layout_in": "gemm_float32"}),
    ("fp8_to_mxfp4", {"codes": zeros(4, 64), "scales": zeros(4, 1, dtype=np.float32), "layout_in": "float32",
                      "layout_out": "float32"}),
    ("mxfp4_to_fp8", {"packed": zeros(4, 32), "scales": zeros(4, 2, dtype=np.float32), "layout_in": "float32",
                      "layout_out": "float32"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), [*CASES, *LAID], ids=lambda value: value if type(value) is str else "")
def test_a_gradient_is_never_lost_on_the_way(name, arguments):
    results = getattr(torch.ops.refnum, name)(**{key: asks_for_a_gradient(x) for key, x in arguments.items()})
    results = results if isinstance(results, tuple) else (results,)
    if not operators.OPERATORS[name].differentiable:
        assert not any(result.requires_grad for result in results)  # constants to autograd, which says so
        return
    assert all(result.requires_grad for result in results)
    with pytest.raises(UnsupportedError, match=f"{name} has no gradient"):
        results[0].sum().backward()


class Wrapper(torch.Tensor):
    """A tensor on a device that holds others in place of memory, as distributed and quantised ones do."""

    @staticmethod
    def __new__(cls, *shape):
        return torch.Tensor._make_wrapper_subclass(cls, shape, device="cuda")

    def __init__(self, *shape):
        pass

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(function)


class Sparse:
    """What of a sparse tensor on a device is asked."""

    is_cuda, dtype, shape = True, torch.float32, torch.Size((4, 64))

    def data_ptr(self):
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")


Sparse.__module__ = "torch"


class Nested(Sparse):
    """One of rows of several lengths, which has no shape."""

    @property
    def shape(self):
        raise RuntimeError("Internal error: NestedTensorImpl doesn't support sizes")


Nested.__module__ = "torch"


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("kind", ["fake", "wrapper", "sparse", "nested"])
def test_a_tensor_without_memory_is_refused_by_a_launcher(kind):
    with FakeTensorMode():
        fake = torch.empty(4, 64, device="cuda")
    x = {"fake": fake, "wrapper": Wrapper(4, 64), "sparse": Sparse(), "nested": Nested()}[kind]
    with pytest.raises(DtypeError, match=f"x is a {type(x).__name__} without memory of its own"):
        ops.quantize_mxfp4(x)


def test_a_tensor_of_a_class_of_the_users_is_torchs():
    class Mine(torch.Tensor):
        is_cuda = True

    x = torch.zeros(4, 64).as_subclass(Mine)
    try:
        view = arrays.look("x", x)
    finally:
        arrays.SIGNATURES.pop(Mine, None)
    assert view.library is arrays.TORCH and view.address == x.data_ptr() and view.strides == (256, 4)
