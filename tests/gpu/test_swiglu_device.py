"""SwiGLU on the device equals its golden twin bit for bit: every gate, every cast, all shapes, views and streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernel_samples as samples
import numpy as np
import pytest

import refnum
from refnum import gpu
from refnum.errors import ArgumentError, DtypeError, RefnumError, ShapeError, UnsupportedError
from refnum.gpu.device import compile as build
from refnum.gpu.ops import swiglu as launches

USABLE, REASON = gpu.available()
pytestmark = pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS RUN: {REASON}")
cupy = pytest.importorskip("cupy") if USABLE else None

GATES = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
UPS = (0x0000, 0x8000, 0x0001, 0x007F, 0x0080, 0x3F80, 0xBF81, 0x4049, 0x0D55, 0x2000, 0x5FD3, 0x7F7F, 0x7F80, 0x7FC1)
PROBS = np.array([0.0, -0.0, 1.0, 0.1, -1.0, 1e-45, 1.1754942e-38, 3.4028235e38, np.inf, np.nan], np.float32)
PROFILES = ("HOPPER", "OCP", "CEIL", "EVEN", "TE", "OCP+zero_scale=127")
SHAPES = ((1, 32), (3, 96), (130, 128), (7, 160), (129, 256), (5, 1280), (64, 1408), (3, 7168), (257, 992))
WIDTHS = (1, 2, 3, 4, 5, 31, 33, 64, 127, 128, 129, 255, 257, 1000, 1024, 1025, 1028, 4100, 7168)
Host = np.ndarray[Any, Any]


def words(x: Any) -> Host:
    x = x.view(__import__("torch").uint8).cpu().numpy() if hasattr(x, "cpu") else x
    return np.ascontiguousarray(x.get() if hasattr(x, "get") else x).view(np.uint8)


def equal(want: tuple[Any, ...], got: tuple[Any, ...], what: Any = "") -> None:
    assert len(want) == len(got)
    for number, (w, g) in enumerate(zip(want, got, strict=True)):
        if w is None:
            assert g is None
            continue
        assert tuple(g.shape) == w.shape
        a, b = words(w), words(g)
        wrong = np.argwhere(a != b)
        assert not len(wrong), f"{what} output {number}: {len(wrong)} of {a.size} bytes differ, first at {wrong[0]}"


def check(name: str, inputs: tuple[Host | None, ...], *args: Any) -> None:
    given = [None if x is None else cupy.asarray(x) for x in inputs]
    equal(getattr(refnum, name)(*inputs, *args), getattr(gpu, name)(*given, *args), (name, args))


def halves(rng: np.random.Generator, m: int, h: int) -> Host:
    """bfloat16 bits of any width: every kind of block, cut to size."""
    wide = samples.floats(rng, m, -(-h // 32) * 32, samples.BFLOAT16).view(np.uint16)
    return np.ascontiguousarray(wide[:, :h])


def usual(rng: np.random.Generator, m: int, h: int) -> Host:
    return ((rng.standard_normal((m, h)) * 2).astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def weights(rng: np.random.Generator, m: int) -> Host:
    return np.where(rng.integers(0, 8, m) == 0, rng.choice(PROBS, m), rng.random(m)).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("profile", PROFILES)
def test_quantize(profile: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape)
    for make in (halves, usual):
        gate, up = make(rng, *shape), make(rng, *shape)
        for prob in (None, weights(rng, shape[0])):
            for to in ("fp8", "mxfp4"):
                check("swiglu_quantize", (gate, up, prob), to, profile)


@pytest.mark.parametrize("h", WIDTHS)
def test_backward(h: int) -> None:
    rng = np.random.default_rng(h)
    for m in (1, 3, 600):
        for make in (halves, usual):
            gate, up, short = make(rng, m, h), make(rng, m, h), make(rng, m, h)
            grad = short.astype(np.uint32) << np.uint32(16) | rng.integers(0, 1 << 16, (m, h)).astype(np.uint32)
            for received in (short, grad.view(np.float32)):
                for prob in (None, weights(rng, m)):
                    check("swiglu_backward", (received, gate, up, prob))


@pytest.mark.parametrize("h", [32768, 32769, 32772, 65536, 98305, 100004, 300004])
def test_backward_of_rows_of_several_segments(h: int) -> None:
    rng = np.random.default_rng(h)
    gate, up = usual(rng, 3, h), usual(rng, 3, h)
    grad = rng.standard_normal((3, h)).astype(np.float32)
    grad[1] = -0.0
    gate[1], up[1] = 0x4080, 0x3F80  # every term is -0: a last node alone becomes +0
    check("swiglu_backward", (grad, gate, up, rng.random(3).astype(np.float32)))


def test_every_gate() -> None:
    """Forward under ups and weights of every kind; backward with ones, where dup is silu and dgate its derivative."""
    shuffled = np.random.default_rng(4).permutation(GATES)
    for gate in (GATES.reshape(-1, 256), shuffled.reshape(-1, 256)):
        for up in UPS:
            ups = np.full(gate.shape, up, np.uint16)
            for prob in (None, np.resize(PROBS, len(gate))):
                check("swiglu_quantize", (gate, ups, prob), "fp8")
                check("swiglu_quantize", (gate, ups, prob), "mxfp4")
        one = np.full(gate.shape, 0x3F80, np.uint16)
        check("swiglu_backward", (one, gate, one, None))
        check("swiglu_backward", (one, gate, one, np.ones(len(gate), np.float32)))


PROOF = """
#include "encode_elements.cuh"
#include "quantize_nvfp4.cuh"
using namespace refnum;
extern "C" __global__ void proof(unsigned long long* wrong) {
    const uint32_t step = gridDim.x * blockDim.x;
    const ElementScale one = element_scale(127);
    unsigned long long e4m3 = 0, e2m1 = 0, gathered = 0;
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < 1ull << 32; i += step) {
        const uint32_t x = (uint32_t)i, other = x * 2654435761u;
        e4m3 += e4m3_pair(x, other) != (e4m3_of_float(x) | e4m3_of_float(other) << 8);
        const uint32_t before = other & 0xFFF, after = append_e2m1(NO_CODES | before, x);
        if ((x & FLOAT_MAGNITUDE) > FLOAT_INF) {
            gathered += after != (NO_CODES | before << 4);
            continue;
        }
        const uint32_t lanes[2] = {odd_bfloat16_pair(x, 0), 0};
        uint32_t wanted, code = e2m1_count<true>(multiply_magnitude(x, inverse_power(127))) - TWOS;
        e2m1_elements<1>(lanes, one, &wanted);
        e2m1 += code != (wanted & 7);
        gathered += after != (NO_CODES | before << 4 | (wanted & 7));
        if ((x & FLOAT_MAGNITUDE) >= 0x40E00000) continue;
        code = e2m1_count<false>(multiply_magnitude(x, inverse_power(127))) - TWOS;
        e2m1 += code != (wanted & 7);
    }
    atomicAdd(wrong, e4m3);
    atomicAdd(wrong + 1, e2m1);
    atomicAdd(wrong + 2, gathered);
}
"""


def test_every_float32_to_both_formats(tmp_path: Any) -> None:
    """The machine's conversion equals the integer cast, and both sets of three additions equal rounding in packed
    lanes, for all 2**32 float32."""
    headers = build.read_source("swiglu_quantize").headers
    source = build.Source("proof.cu", PROOF.encode(), headers)
    (tmp_path / "proof.cubin").write_bytes(build.nvrtc().compile(source, build.options(), "cubin"))
    wrong = cupy.zeros(3, np.uint64)
    cupy.RawModule(path=str(tmp_path / "proof.cubin")).get_function("proof")((132 * 8,), (256,), (wrong,))
    assert wrong.tolist() == [0, 0, 0]


def every_call(rng: np.random.Generator, m: int, h: int) -> list[tuple[str, tuple[Host, ...], dict[str, Any]]]:
    gate, up, grad, prob = halves(rng, m, h), usual(rng, m, h), usual(rng, m, h), weights(rng, m)
    wide = rng.standard_normal((m, h)).astype(np.float32)
    made: list[tuple[str, tuple[Host, ...], dict[str, Any]]] = [
        ("swiglu_quantize", (gate, up, *more), {"to": to}) for to in ("fp8", "mxfp4") for more in ((), (prob,))
    ]  # fmt: skip
    return made + [("swiglu_backward", (x, gate, up, *more), {}) for x in (grad, wide) for more in ((), (prob,))]


def results(got: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x for x in got if x is not None)


def test_strided_and_offset_views() -> None:
    for name, inputs, options in every_call(np.random.default_rng(1), 37, 256):
        want = getattr(refnum, name)(*inputs, **options)
        for pad in (1, 2, 3, 4, 8, 64):
            views = []
            for x in inputs:
                wide = cupy.full((x.shape[0], (x.shape[1] if x.ndim > 1 else 1) + 2 * pad), 77, x.dtype)
                inner = wide[:, pad:-pad] if x.ndim > 1 else wide[:, pad]
                inner[...] = cupy.asarray(x)
                views.append(inner)
            equal(want, getattr(gpu, name)(*views, **options), (name, pad))
        turned = [cupy.asarray(np.ascontiguousarray(x[::-1]))[::-1] for x in inputs]
        equal(want, getattr(gpu, name)(*turned, **options), name)


def test_gate_and_up_of_one_array() -> None:
    rng = np.random.default_rng(2)
    for h in (256, 1408, 7168):
        both = np.concatenate([halves(rng, 50, h), usual(rng, 50, h)], axis=1)
        place = cupy.asarray(both)
        for to in ("fp8", "mxfp4"):
            want = refnum.swiglu_quantize(both[:, :h], both[:, h:], to=to)
            equal(want, gpu.swiglu_quantize(place[:, :h], place[:, h:], to=to))


def test_poisoned_outputs_and_guard_zones() -> None:
    for m, h in ((131, 416), (530, 32)):
        for name, inputs, options in every_call(np.random.default_rng(h), m, h):
            wants = results(getattr(refnum, name)(*inputs, **options))
            for poison in (0xA5, 0x5A):
                stores = [cupy.full(w.nbytes + 512, poison, np.uint8) for w in wants]
                outs = tuple(
                    s[256:-256].view(w.dtype).reshape(w.shape) for s, w in zip(stores, wants, strict=True)
                )  # fmt: skip
                got = getattr(gpu, name)(*map(cupy.asarray, inputs), **options, out=outs)
                equal(wants, results(got), name)
                assert got[0] is outs[0]
                for store in stores:
                    assert int((store[:256] != poison).sum() + (store[-256:] != poison).sum()) == 0, name


def test_side_stream_repeats_and_second_calls() -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    rng = np.random.default_rng(3)
    for name, inputs, options in every_call(rng, 300, 1280):
        for data in (inputs, tuple(rng.permutation(x) for x in inputs)):
            want = getattr(refnum, name)(*data, **options)
            with stream:
                given = [cupy.asarray(x) for x in data]
                found = [getattr(gpu, name)(*given, **options) for _ in range(10)]
            stream.synchronize()
            for got in found:
                equal(want, got, name)


def test_graph_replay_with_new_data() -> None:
    rng = np.random.default_rng(5)
    stream = cupy.cuda.Stream(non_blocking=True)
    for name, inputs, options in every_call(rng, 64, 256):
        given = [cupy.asarray(x) for x in inputs]
        out = results(getattr(gpu, name)(*given, **options))
        with stream:
            stream.begin_capture()
            getattr(gpu, name)(*given, **options, out=out)
            graph = stream.end_capture()
        for _ in range(3):
            fresh = tuple(rng.permutation(x) for x in inputs)
            for place, x in zip(given, fresh, strict=True):
                place.set(x)
            cupy.cuda.Device().synchronize()
            graph.launch(stream)
            stream.synchronize()
            equal(results(getattr(refnum, name)(*fresh, **options)), out, name)


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    for name, inputs, options in every_call(np.random.default_rng(6), 40, 384):
        given = [torch.from_numpy(x).cuda() for x in inputs]
        for _ in range(2):
            got = getattr(gpu, name)(*given, **options)
            assert all(isinstance(x, torch.Tensor) and x.is_cuda for x in results(got))
            equal(getattr(refnum, name)(*inputs, **options), got, name)


@pytest.mark.parametrize("pattern", ["zeros", "some zeros", "tiny", "large", "special"])
def test_gates_outside_of_the_window(pattern: str) -> None:
    """Padding, pruned gates, outliers: what the window does not hold, in whole warps and alone."""
    rng = np.random.default_rng(9)
    gate, up, grad = usual(rng, 70, 1408), usual(rng, 70, 1408), usual(rng, 70, 1408)
    sign = gate & np.uint16(0x8000)
    drawn = {
        "zeros": sign,
        "some zeros": np.where(rng.integers(0, 2, gate.shape) == 0, sign, gate),
        "tiny": sign | rng.integers(0, 0x3C40, gate.shape).astype(np.uint16),
        "large": sign | rng.integers(0x4180, 0x7F81, gate.shape).astype(np.uint16),
        "special": np.where(rng.integers(0, 300, gate.shape) == 0, sign | np.uint16(0x7F80), gate),
    }[pattern].astype(np.uint16)
    drawn[1::2] = np.where(rng.integers(0, 100, drawn[1::2].shape) == 0, drawn[1::2], gate[1::2])
    for prob in (None, weights(rng, 70)):
        check("swiglu_quantize", (drawn, up, prob), "fp8")
        check("swiglu_quantize", (drawn, up, prob), "mxfp4")
        check("swiglu_backward", (grad, drawn, up, prob))


def test_zero_rows() -> None:
    for name, inputs, options in every_call(np.random.default_rng(7), 0, 256):
        equal(getattr(refnum, name)(*inputs, **options), getattr(gpu, name)(*map(cupy.asarray, inputs), **options))


def test_more_than_two_to_the_31_elements() -> None:
    """Every row is the same one: the stride of the inputs is zero."""
    rng = np.random.default_rng(8)
    m, h = (1 << 31) // 7168 + 77, 7168
    rows = [usual(rng, 1, h) for _ in range(3)]
    grad, gate, up = (cupy.broadcast_to(cupy.asarray(x), (m, h)) for x in rows)
    prob = cupy.full(m, 0.7, np.float32)
    for name, given, options in (
        ("swiglu_quantize", (gate, up, prob), {"to": "fp8"}),
        ("swiglu_quantize", (gate, up), {"to": "mxfp4"}),
        ("swiglu_backward", (grad, gate, up, prob), {}),
    ):
        first = [cupy.asnumpy(x[:1]) for x in given]
        got = results(getattr(gpu, name)(*given, **options))
        equal(results(getattr(refnum, name)(*first, **options)), tuple(x[-1:] for x in got), name)
        for x in got:
            bits = x.view({1: np.uint8, 4: np.uint32}[x.dtype.itemsize])
            assert all(bool((bits[i : i + 4096] == bits[-1]).all()) for i in range(0, m, 4096)), name
        del got
        cupy.get_default_memory_pool().free_all_blocks()


def test_other_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    from refnum.gpu.device import plans

    for forward, backward in (((128, 1, 0), (32, 1, 0)), ((1024, 1), (1024, 1)), ((256, 2), (256, 3, 0, 1))):
        monkeypatch.setitem(launches.TUNING, "swiglu_quantize", launches.Stay(*forward))
        monkeypatch.setitem(launches.TUNING, "swiglu_backward", launches.Stay(*backward))
        plans.forget()
        for m, h in ((700, 416), (3, 7168), (2, 140000)):
            for name, inputs, options in every_call(np.random.default_rng(h), m, h):
                if len(inputs) > 2:
                    check(name, inputs, *options.values())
    plans.forget()


def test_named_errors_before_any_launch() -> None:
    gate = cupy.zeros((4, 64), np.uint16)
    wide, prob = cupy.zeros((4, 64), np.float32), cupy.zeros(4, np.float32)
    out = (cupy.empty((4, 64), np.uint8), cupy.empty((4, 1), np.uint8))
    quantize, backward = gpu.swiglu_quantize, gpu.swiglu_backward
    wrong: list[tuple[type[RefnumError], Callable[[], Any]]] = [
        (DtypeError, lambda: quantize(np.zeros((4, 64), np.uint16), gate)),
        (DtypeError, lambda: quantize(gate, np.zeros((4, 64), np.uint16))),
        (DtypeError, lambda: quantize(wide, gate)),
        (DtypeError, lambda: quantize(gate, wide)),
        (ShapeError, lambda: quantize(gate[:, :40], gate[:, :40])),
        (ShapeError, lambda: quantize(gate, gate[:3])),
        (ShapeError, lambda: quantize(gate.T[:, ::2], gate.T[:, ::2])),
        (ShapeError, lambda: quantize(gate, gate, prob[:3])),
        (ShapeError, lambda: quantize(gate, gate, prob[:, None])),
        (DtypeError, lambda: quantize(gate, gate, prob.astype(np.float64))),
        (DtypeError, lambda: quantize(gate, gate, np.zeros(4, np.float32))),
        (ArgumentError, lambda: quantize(gate, gate, to="bf16")),
        (UnsupportedError, lambda: quantize(gate, gate, None, "mxfp4", "MLX")),
        (ArgumentError, lambda: quantize(gate, gate, out=out[:1])),
        (ShapeError, lambda: quantize(gate, gate, out=(out[0], out[1][:2]))),
        (ArgumentError, lambda: quantize(gate, gate, out=(gate.view(np.uint8)[:, :64], out[1]))),
        (DtypeError, lambda: backward(wide.astype(np.float64), gate, gate)),
        (DtypeError, lambda: backward(wide, wide, gate)),
        (ShapeError, lambda: backward(wide[:3], gate, gate)),
        (ShapeError, lambda: backward(wide[:, :0], gate[:, :0], gate[:, :0])),
        (ShapeError, lambda: backward(wide, gate, gate, prob[:3])),
        (ArgumentError, lambda: backward(wide, gate, gate, out=(cupy.empty_like(wide),))),
        (ArgumentError, lambda: backward(wide, gate, gate, out=(wide, cupy.empty_like(wide)))),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()
