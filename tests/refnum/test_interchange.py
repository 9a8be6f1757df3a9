"""Golden functions take torch tensors, lists, numbers and arrays of other libraries, by their bits (N0)."""

import contextlib
import inspect
import re
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_dispatch import CALLS as ONE_PLACE
from test_dispatch import CODES, PACKED, PROB, SCALES, TILES, X

import refnum as R
from refnum import interchange
from refnum.arrays import BFLOAT16
from refnum.errors import ArgumentError, DtypeError

torch = pytest.importorskip("torch")

PAYLOAD = R.pack_payload(PACKED, SCALES)
MAP = np.array([3, 0, 5])
CALLS = {
    **ONE_PLACE,
    "permute_pad": (R.permute_pad, (PAYLOAD, MAP, [1, 2]), {}),
    "permute_unpack": (R.permute_unpack, (PAYLOAD, MAP, [1, 2]), {}),
    "unpermute": (R.unpermute, (np.ones((64, 32), np.float32), MAP, [1, 2], PROB[:3], 6), {}),
    "matmul_fp8": (R.matmul_fp8, (CODES, CODES), {}),
    "matmul_bf16": (R.matmul_bf16, (X.astype(BFLOAT16), X.astype(BFLOAT16)), {}),
    "product_bounds": (R.product_bounds, (CODES, CODES), {}),
    "tensor_core_step": (R.tensor_core_step, (CODES[:, :32], CODES[:, :32]), {}),
}
DEVICES = ("cpu", *(("cuda",) if torch.cuda.is_available() else ()))


def tensor(x, device="cpu"):
    """The same bits as a tensor, by way of integers."""
    if not isinstance(x, np.ndarray):
        return x
    made = torch.from_numpy(x.view(np.int16) if x.dtype == BFLOAT16 else x.copy()).to(device)
    return made.view(torch.bfloat16) if x.dtype == BFLOAT16 else made


def bits(x):
    """Bytes and dtype's name of an array or a tensor."""
    if isinstance(x, torch.Tensor):
        name = str(x.dtype).removeprefix("torch.")
        x = x.cpu().contiguous()
        return name, tuple(x.shape), x.reshape(-1).view(torch.uint8).numpy().tobytes() if x.numel() else b""
    return x.dtype.name, x.shape, x.tobytes()


def parts(result):
    return [part for part in (result if isinstance(result, tuple) else (result,)) if part is not None]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
def test_tensors_give_tensors_of_the_same_bits(name, device):
    function, arguments, keywords = CALLS[name]
    if device == "cuda" and function is R.product_bounds:
        pytest.skip("its codes lie on the host")
    want = parts(function(*arguments, **keywords))
    got = parts(
        function(*(tensor(a, device) for a in arguments), **{k: tensor(a, device) for k, a in keywords.items()})
    )
    assert all(isinstance(part, torch.Tensor) and part.device.type == device for part in got)
    assert [bits(part) for part in got] == [bits(part) for part in want]


def test_bfloat16_is_taken_by_its_bits():
    """All 65,536 patterns: no NaN is made quiet and no subnormal flushed on the way."""
    every = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 64)
    for x in (tensor(every.view(BFLOAT16)), tensor(every.view(BFLOAT16)).t().contiguous().t()):
        assert [bits(part) for part in R.quantize_mxfp4(x, "OCP")] == [
            bits(part) for part in R.quantize_mxfp4(every, "OCP")
        ]
    assert bits(R.encode("BF16", tensor(every.view(BFLOAT16)))) == bits(R.encode("BF16", every))
    assert bits(R.decode("BF16", tensor(every.view(BFLOAT16)))) == bits(R.decode("BF16", every))


TYPED = {
    "fp8_to_mxfp4": (R.fp8_to_mxfp4, (CODES, TILES), ("float8_e4m3fn", "float8_e8m0fnu"), ()),
    "dequantize_fp8_tiles": (R.dequantize_fp8_tiles, (CODES, TILES), ("float8_e4m3fn", "float8_e8m0fnu"), ()),
    "dequantize_mxfp4": (R.dequantize_mxfp4, (PACKED, SCALES), ("float4_e2m1fn_x2", "float8_e8m0fnu"), ()),
    "mxfp4_columns": (R.mxfp4_columns, (PACKED, SCALES), ("float4_e2m1fn_x2", "float8_e8m0fnu"), ()),
    "dequantize_mx": (R.dequantize_mx, (CODES, SCALES), ("float8_e5m2", "float8_e8m0fnu"), ("E5M2",)),
    "decode": (R.decode, ("E5M2", CODES), (None, "float8_e5m2"), ()),
    "decode_e4m3": (R.decode_e4m3, (CODES,), ("float8_e4m3fn",), ()),
    "decode_e8m0": (R.decode_e8m0, (SCALES,), ("float8_e8m0fnu",), ()),
    "matmul_fp8": (R.matmul_fp8, (CODES, CODES), ("float8_e4m3fn", "float8_e4m3fn"), ()),
}


@pytest.mark.parametrize("name", TYPED)
def test_tensors_of_torch_s_own_narrow_dtypes_are_codes(name):
    function, arguments, dtypes, more = TYPED[name]
    if any(dtype and not hasattr(torch, dtype) for dtype in dtypes):
        pytest.skip("this torch lacks a dtype")
    want = parts(function(*arguments, *more))
    typed = [tensor(a).view(getattr(torch, d)) if d else a for a, d in zip(arguments, dtypes, strict=True)]
    assert [bits(part) for part in parts(function(*typed, *more))] == [bits(part) for part in want]
    if "float4_e2m1fn_x2" not in dtypes:
        typed = [a.view(getattr(ml_dtypes, d)) if d else a for a, d in zip(arguments, dtypes, strict=True)]
        assert [bits(part) for part in parts(function(*typed, *more))] == [bits(part) for part in want]


def test_codes_of_another_format_are_refused():
    e5m2, e4m3 = (tensor(CODES).view(dtype) for dtype in (torch.float8_e5m2, torch.float8_e4m3fn))
    for call in (
        lambda: R.fp8_to_mxfp4(e5m2, TILES),
        lambda: R.quantize_mxfp4(e4m3),
        lambda: R.decode("E4M3", e5m2),
        lambda: R.matmul_fp8(e4m3, e4m3, b_format="E5M2"),
        lambda: R.decode_e4m3(CODES.view(ml_dtypes.float8_e5m2)),
        lambda: R.quantize_mxfp4(torch.zeros(2, 32, dtype=torch.float64)),
        lambda: R.quantize_mxfp4(torch.zeros(2, 32, dtype=torch.complex64)),
        lambda: R.quantize_mxfp4(torch.zeros(2, 32).to_sparse()),
        lambda: R.quantize_mxfp4(torch.zeros(2, 32, device="meta")),
    ):
        with pytest.raises(DtypeError):
            call()
    with pytest.raises(ArgumentError, match=r"rbits on cpu, x on meta"):
        R.quantize_mxfp4(torch.zeros(2, 32, device="meta"), "STOCHASTIC", rbits=torch.zeros(2, 32, dtype=torch.uint8))


def test_the_first_words_of_what_torch_says_are_passed_on(monkeypatch):
    def broken(tensor):
        raise RuntimeError("%" * 300 + "\nand more")

    monkeypatch.setattr(torch.Tensor, "cpu", broken)
    with pytest.raises(DtypeError, match=r"x is a tensor of torch\.float32 that cannot be read") as caught:
        R.quantize_mxfp4(torch.zeros(2, 32))
    assert str(caught.value).count("%") == 200 and "and more" not in str(caught.value)


def test_a_tensor_among_arrays_and_a_torch_dtype():
    values = R.dequantize_mxfp4(tensor(PACKED), SCALES, torch.bfloat16)
    assert values.dtype is torch.bfloat16
    assert bits(values) == bits(R.dequantize_mxfp4(PACKED, SCALES, "bfloat16"))
    assert R.dequantize_mxfp4(PACKED, SCALES, torch.float32).dtype == np.float32
    with pytest.raises(ArgumentError, match="float16"):
        R.dequantize_mxfp4(PACKED, SCALES, torch.float16)
    learned = torch.ones(1, 32, requires_grad=True)
    assert bits(R.quantize_mxfp4(learned)[0]) == bits(R.quantize_mxfp4(np.ones((1, 32), np.float32))[0])


def test_lists_and_numbers():
    assert R.encode_e2m1(2.5) == 4 and R.encode_e2m1(3) == 5
    codes = R.encode_e2m1([0.3, 2.5, -6])
    assert type(codes) is np.ndarray and codes.tolist() == [1, 4, 15]
    assert R.decode_e2m1([1, 2, 15]).tolist() == [0.5, 1.0, -6.0]
    rows = [[0.1] * 32, [1e-45] * 32]
    for got, want in zip(R.quantize_mxfp4(rows), R.quantize_mxfp4(np.array(rows, np.float32)), strict=True):
        assert bits(got) == bits(want)
    assert bits(R.dequantize_mxfp4(PACKED.tolist(), SCALES.tolist())) == bits(R.dequantize_mxfp4(PACKED, SCALES))
    moved = R.permute_pad(PAYLOAD.tolist(), MAP.tolist(), [1, 2])
    assert list(map(bits, moved)) == list(map(bits, R.permute_pad(PAYLOAD, MAP, [1, 2])))
    gate = [[1.0, -0.5] * 16]
    swiglu = R.swiglu_quantize(gate, gate, [0.5])
    assert list(map(bits, swiglu)) == list(
        map(bits, R.swiglu_quantize(*[np.array(gate).astype(BFLOAT16)] * 2, np.array([0.5], np.float32)))
    )
    assert bits(R.encode("E2M1", [4.0, 4.0], [0, 1])) == bits(np.array([6, 4], np.uint8))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (1e300, "2\\*\\*128 or more"), ([[1.0], [1.0, 2.0]], "no array of numbers"), (["1"], "no array of numbers"),
        ([10**30], "no array of numbers"), ([None], "no array of numbers"), ({1.0}, "x is a set; give"),
        (np.float64(1), "float64"), (bytearray(4), "x is a bytearray"), (True, "x is a bool"),
    ],
)  # fmt: skip
def test_numbers_that_are_none(given, says):
    with pytest.raises(DtypeError, match=says):
        R.encode_e2m1(given)


def test_a_number_that_is_no_bfloat16_is_refused_where_bfloat16_is_needed():
    with pytest.raises(DtypeError, match="gate holds a number that is no bfloat16"):
        R.swiglu_quantize([[0.1] * 32], [[1.0] * 32])


class Exporter:
    """Speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Shown:
    """Has `__array__` and nothing else."""

    def __init__(self, array):
        self.array = array

    def __array__(self, *given, **named):
        return np.asarray(self.array, *given, **named)


class Typed(Shown):
    """Has a dtype of NumPy's besides, and is no array of its kind."""

    @property
    def dtype(self):
        return self.array.dtype


@pytest.mark.parametrize("kind", [Exporter, Shown, Typed])
def test_what_speaks_dlpack_or_has_array_is_taken(kind):
    got, want = R.quantize_mxfp4(kind(X)), R.quantize_mxfp4(X)
    assert all(type(part) is np.ndarray for part in got) and list(map(bits, got)) == list(map(bits, want))


def test_jax_arrays_are_taken_by_their_bits():
    jax = pytest.importorskip("jax")
    every = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 64)
    for given in (every.view(BFLOAT16), X):
        assert list(map(bits, R.quantize_mxfp4(jax.numpy.asarray(given)))) == list(map(bits, R.quantize_mxfp4(given)))
    typed = jax.numpy.asarray(CODES.view(ml_dtypes.float8_e4m3fn))
    assert bits(R.decode_e4m3(typed)) == bits(R.decode_e4m3(CODES))


def test_explain_takes_what_its_golden_function_takes():
    want = str(R.explain("quantize_mxfp4", {"x": X}, (0, 3)))
    assert str(R.explain("quantize_mxfp4", {"x": tensor(X)}, (0, 3))) == want
    assert str(R.explain("quantize_mxfp4", {"x": X.tolist()}, (0, 3))) == want


def test_lists_are_narrowed_by_their_largest_number():
    assert bits(R.decode_e4m3([1, 0x38])) == bits(R.decode_e4m3(np.array([1, 0x38], np.uint8)))
    for wrong in ([1, 300], [300, 1], [1, 1 << 32], [-1, 1]):
        with pytest.raises((ArgumentError, DtypeError)):
            R.decode_e4m3(wrong)


def test_a_list_of_floats_is_no_list_of_integers():
    payload = R.pack_payload(*R.quantize_mxfp4(X))
    assert bits(R.permute_pad(payload, [0, 1], [2])[0]) == bits(
        R.permute_pad(payload, np.array([0, 1], np.int32), [2])[0]
    )
    with pytest.raises(DtypeError):
        R.permute_pad(payload, [0.0, 1.0], [2])
    assert R.permute_pad(payload, [], [0])[0].shape[0] == 0
    stored = R.layouts.scales_to_layout(R.quantize_fp8_tiles(X)[1], "packed_ue8m0")
    rows, columns = R.quantize_fp8_tiles(X)[1].shape
    back = R.layouts.scales_from_packed_ue8m0(stored.tolist(), rows, columns)
    assert bits(back) == bits(R.layouts.scales_from_packed_ue8m0(stored, rows, columns))
    with pytest.raises(DtypeError):
        R.layouts.scales_from_packed_ue8m0(np.float64(stored).tolist(), rows, columns)


@pytest.mark.parametrize("word", ["a", None, True, np.float32(4), 1.5])
def test_what_is_no_counter_word_is_for_philox_to_judge(word):
    with pytest.raises(ArgumentError, match=re.escape(f"counter word is {word!r};")):
        R.philox.philox4x32([1, np.uint32(2), 3, word], (1, 2))


@dataclass
class OnlyM:
    m: Any


@dataclass
class OnlyV:
    v: Any


@pytest.mark.parametrize("state", [OnlyM(X), OnlyV(X), SimpleNamespace(m=X, v=X), SimpleNamespace(v=X), OnlyM, OnlyV])
def test_what_is_no_state_is_for_the_step_to_judge(state):
    with pytest.raises(ArgumentError, match="state is"):
        R.adam_step(state, X, torch.from_numpy(X.copy()) if isinstance(state, OnlyM) else X.tolist())


def test_tensors_on_the_host_ask_for_no_cupy(monkeypatch):
    monkeypatch.setattr(interchange, "_cupy", lambda: pytest.fail("CuPy was asked for"))
    assert list(map(bits, R.quantize_mxfp4(tensor(X)))) == list(map(bits, R.quantize_mxfp4(X)))


def test_arrays_beside_tensors_on_a_device_go_there_by_their_bits():
    place = interchange._Place({})
    place.cupy = SimpleNamespace(asarray=lambda x: x.dtype, cuda=SimpleNamespace(Device=contextlib.nullcontext))
    place.device, other = SimpleNamespace(index=0), object()
    assert place.put(X) == np.float32 and place.put(X.astype(BFLOAT16)) == np.uint16 and place.put(other) is other


def test_tensors_of_a_case_on_several_devices_are_refused():
    case = {
        "codes": torch.zeros(2, 128, dtype=torch.uint8),
        "scales": torch.zeros(2, 1, dtype=torch.uint8, device="meta"),
    }
    with pytest.raises(ArgumentError, match="several devices"):
        R.explain("fp8_to_mxfp4", case, 0)


class Loud:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError("x" * 300)


def test_words_of_another_library_are_cut():
    with pytest.raises(DtypeError) as told:
        R.quantize_mxfp4(Loud())
    assert str(told.value).count("x" * 200) == 1 and "x" * 201 not in str(told.value)


def test_signatures_name_the_profile():
    shown = str(inspect.signature(R.quantize_mxfp4))
    assert "profile: 'Profile | str' = 'HOPPER'" in shown and "rceil" not in shown
    assert R.get_profile is R.profiles.get_profile, "what takes no array is no other function"
    assert R.quantize_mxfp4.__module__ == "refnum"


def test_every_array_argument_of_a_public_function_has_a_kind():
    """An argument that a golden function annotates as an Array is one that its door knows."""
    from refnum.argument_kinds import KINDS, OTHERWISE

    for home in (R, R.layouts, R.philox):
        for name in getattr(home, "__all__", None) or [n for n in vars(home) if not n.startswith("_")]:
            function = inspect.unwrap(getattr(home, name))
            if not inspect.isfunction(function) or (home is not R and function.__module__ != home.__name__):
                continue
            arrays = {p.name for p in inspect.signature(function).parameters.values() if "Array" in str(p.annotation)}
            assert arrays <= KINDS.keys() | OTHERWISE.get(name, {}).keys(), name
            assert not arrays or getattr(home, name) is not function, f"{name} has no door"


def test_torch_is_not_imported_for_other_arrays():
    code = (
        "import sys, numpy, refnum\n"
        "refnum.quantize_mxfp4(numpy.ones((1, 32), numpy.float32), 'OCP'); refnum.encode_e2m1([1.0, 2.0])\n"
        "assert not {'torch', 'cupy', 'jax'} & set(sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""
