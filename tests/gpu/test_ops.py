"""Every launcher equals its golden twin bit for bit: dtypes, profiles, tails, strides, offsets, streams, poison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernel_samples as samples
import numpy as np
import pytest

import refnum
from refnum import gpu
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.operation import OPERATIONS, arguments_of, call_golden
from refnum.errors import ArgumentError, DtypeError, RefnumError, ScaleError, ShapeError, UnsupportedError

USABLE, REASON = gpu.available()
pytestmark = pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS RUN: {REASON}")
cupy = pytest.importorskip("cupy") if USABLE else None

FLOATS = (np.float32, samples.BFLOAT16, np.float16)
PROFILES = ("HOPPER", "OCP", "CEIL", "EVEN", "TE")
SHAPES = ((1, 32), (3, 96), (130, 128), (7, 160), (129, 256), (5, 1280), (64, 1408), (3, 7168), (257, 992))


def to_device(x: np.ndarray[Any, Any]) -> Any:
    """Copy to the GPU; bfloat16 travels as its bits."""
    return cupy.asarray(x.view(np.uint16) if x.dtype == samples.BFLOAT16 else x)


def raw(x: Any) -> np.ndarray[Any, Any]:
    """Return the bytes of an array of any library, rows kept."""
    if hasattr(x, "cpu"):
        x = x.view(__import__("torch").uint8).cpu().numpy()
    elif cupy is not None and isinstance(x, cupy.ndarray):
        x = x.get()
    return np.ascontiguousarray(x).view(np.uint8)


def equal(want: Any, got: Any) -> None:
    """Compare results, a tuple or one array, by bytes, shape and dtype width."""
    wants, gots = (r if isinstance(r, tuple) else (r,) for r in (want, got))
    assert len(wants) == len(gots)
    for number, (w, g) in enumerate(zip(wants, gots, strict=True)):
        assert tuple(g.shape) == w.shape
        a, b = raw(w), raw(g)
        assert a.shape == b.shape
        wrong = np.argwhere(a != b)
        assert not len(wrong), (
            f"output {number}: {len(wrong)} of {a.size} bytes differ, first at {wrong[0]}: "
            f"{a[tuple(wrong[0])]:#04x} wanted, {b[tuple(wrong[0])]:#04x} got"
        )


def check(name: str, inputs: tuple[np.ndarray[Any, Any], ...], **options: Any) -> None:
    """Run both twins on the same inputs."""
    equal(getattr(refnum, name)(*inputs, **options), getattr(gpu, name)(*map(to_device, inputs), **options))


def fp8(rng: np.random.Generator, m: int, k: int, tall: int = 1) -> tuple[np.ndarray[Any, Any], ...]:
    return samples.fp8_codes(rng, m, k), samples.scale_bytes(rng, -(-m // tall), -(-k // 128))


def fp4(rng: np.random.Generator, m: int, k: int) -> tuple[np.ndarray[Any, Any], ...]:
    return samples.fp4_codes(rng, m, k), samples.scale_bytes(rng, m, k // 32)


CASES: dict[str, tuple[Callable[..., Any], tuple[dict[str, Any], ...]]] = {
    "dequantize_mxfp4": (fp4, ({"dtype": "float32"}, {"dtype": "bfloat16"})),
    "dequantize_fp8_tiles": (fp8, ({"dtype": "float32"}, {"dtype": "bfloat16"})),
    "fp8_to_mxfp4": (fp8, tuple({"profile": p} for p in PROFILES)),
    "mxfp4_to_fp8": (fp4, ({"scale": "max"}, {"scale": "amax"})),
    "mxfp4_to_fp8_columns": (fp4, ({"scale": "max"}, {"scale": "amax"})),
    "fp8_columns": (fp8, ({"underflow": "rne"}, {"underflow": "te"})),
}
COLUMNS = ("mxfp4_to_fp8_columns", "fp8_columns")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("profile", PROFILES)
def test_quantize_mxfp4(profile: str, dtype: Any, shape: tuple[int, int]) -> None:
    check("quantize_mxfp4", (samples.floats(np.random.default_rng(shape), *shape, dtype),), profile=profile)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("tile", [(1, 128), (128, 128)], ids=str)
@pytest.mark.parametrize("profile", ["HOPPER", "OCP", "CEIL", "EVEN"])
def test_quantize_fp8_tiles(profile: str, tile: tuple[int, int], dtype: Any, shape: tuple[int, int]) -> None:
    x = samples.floats(np.random.default_rng(shape), *shape, dtype)
    check("quantize_fp8_tiles", (x,), tile=tile, profile=profile)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", list(CASES))
def test_codes(name: str, shape: tuple[int, int]) -> None:
    make, variants = CASES[name]
    for options in variants:
        check(name, make(np.random.default_rng(shape), *shape), **options)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(
    "splits",
    [
        (0, 128, 0, 1, 127, 129, 0),
        (16, 48, 256, 80),
        (4, 12, 100),
        (3,),
        (1,) * 300,
        (32,) * 300,
        (0, 0),
        (640, 0, 512),
        (1,) * 2000,
    ],
    ids=lambda s: f"{len(s)}of{sum(s)}",
)
def test_ragged_columns(name: str, splits: tuple[int, ...]) -> None:
    make, variants = CASES[name]
    for k in (96, 128, 416):
        for options in variants:
            check(name, make(np.random.default_rng(k), sum(splits), k), splits=list(splits), **options)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_square_tiles_back(dtype: str) -> None:
    for m, k in ((128, 128), (130, 160), (300, 1280)):
        check("dequantize_fp8_tiles", fp8(np.random.default_rng(k), m, k, 128), tile=(128, 128), dtype=dtype)


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("order", ["exact", "sequential"])
@pytest.mark.parametrize("shape", [(1, 16), (17, 48), (130, 160), (64, 2064)])
def test_rotations(axis: int, order: str, shape: tuple[int, int]) -> None:
    """Groups of few, of many and of nearly all binades, Inf and NaN among them, along rows and down columns."""
    rng = np.random.default_rng(shape[1])
    for binades in (2, 20, 240):
        exponent = rng.integers(127 - binades // 2, 128 + binades // 2, shape, dtype=np.uint32)
        bits = rng.integers(0, 1 << 32, shape, dtype=np.uint32) & np.uint32(0x807FFFFF) | exponent << np.uint32(23)
        bits[rng.random(shape) < 0.002] = 0x7F800000
        x = bits.view(np.float32)
        half = (bits >> np.uint32(16)).astype(np.uint16).view(samples.BFLOAT16)
        for given, dtype in ((x, "float32"), (x, "bfloat16"), (half, "bfloat16"), (half, "float32")):
            check("hadamard16", (given,), signs=0x35A1, axis=axis, order=order, dtype=dtype)
        for given in (x, half):
            check("hadamard_quantize_nvfp4", (given,), axis=axis, order=order)
            amax = to_device(np.array([9.5], np.float32))
            got = gpu.hadamard_quantize_nvfp4(to_device(given), axis=axis, tensor_amax=amax, layout_out="swizzled")
            equal(refnum.hadamard_quantize_nvfp4(given, axis=axis, tensor_amax=[9.5], layout_out="swizzled"), got)


METHODS = ("luq", "dequantize_luq", "radix4", "dequantize_radix4", "quantize_tetrajet", "q_ema")


@pytest.mark.parametrize("name", METHODS)
def test_corners_of_other_methods(name: str) -> None:
    """Corners of every variant of LUQ, radix 4, TetraJet and Q-EMA."""
    for params in OPERATIONS[name].variants():
        for case in corner_cases(name, "HOPPER", params):
            given = {key: to_device(x) if isinstance(x, np.ndarray) else x for key, x in arguments_of(case).items()}
            equal(call_golden(case), getattr(gpu, name)(**given))


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(1, 32), (70, 96), (257, 992), (130, 1056)], ids=str)
def test_tetrajet_by_random_bytes(dtype: Any, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape)
    x, rbits = samples.floats(rng, *shape, dtype), rng.integers(0, 256, shape, dtype=np.uint8)
    for axis in (1, 0):
        want = refnum.quantize_tetrajet(x, axis, rbits=rbits)
        equal(want, gpu.quantize_tetrajet(to_device(x), axis, rbits=to_device(rbits)))
        for key in ((5 << 40, 1, 2), (3, 4, 5, (1 << 36) - 32)):  # the second call is planned
            got = gpu.quantize_tetrajet(to_device(x), axis, philox=key)
            equal(refnum.quantize_tetrajet(x, axis, philox=key), got)
        near = np.roll(x, 1, 1)
        for ema in (near, near.astype(np.float32)):
            check("q_ema", (x, ema), axis=axis)


@pytest.mark.parametrize("compat", ["paper", "ms-amp"])
@pytest.mark.parametrize("target", ["bfloat16", "float32"])
def test_slopes(target: str, compat: str) -> None:
    """Every 16-bit pattern, the rows' k and others, float32 beside each bound and anywhere, ends that fill no chunk."""
    every, rng = np.arange(1 << 16, dtype=np.uint16), np.random.default_rng(1)
    near = (np.arange(0, 0x41, dtype=np.uint32)[:, None] << np.uint32(22)) + np.arange(-2000, 2000, dtype=np.int32)
    some = rng.integers(0, 1 << 32, 40003, dtype=np.uint32)
    close = (rng.integers(0x37800000, 0x40C10000, 400003, dtype=np.uint32) | some[:1] & np.uint32(1 << 31)).view(
        np.float32
    )
    for k, cap in ((5, 3), (1, 3), (2, 0.125), (16, 1024), (5, 2.0**127)):
        for x in (every.view(samples.BFLOAT16), every.view(np.float16), near.astype(np.uint32).view(np.float32)):
            check("dge", (x,), k=k, cap=cap, target=target, compat=compat)
        for x in (some.view(np.float32), close, -close[:999]):
            check("dge", (x,), k=k, cap=cap, target=target, compat=compat)
    for count in (1, 7, 8, 9, 4095, 33000):
        x = np.resize(close, count)
        check("dge", (x,), target=target, compat=compat)
        check("dge", (x.astype(samples.BFLOAT16),), target=target, compat=compat)
    moved = to_device(close)[1:]
    equal(refnum.dge(close[1:], target=target, compat=compat), gpu.dge(moved, target=target, compat=compat))


@pytest.mark.parametrize("axis", ["tensor", "token", "channel"])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint16], ids=["float32", "bfloat16"])
def test_clamps(axis: str, dtype: Any) -> None:
    """Shapes that fill chunks and that do not, all patterns, few numbers, gaps between rows."""
    rng = np.random.default_rng(2)
    for shape in (
        (1, 1),
        (3, 0),
        (0, 3),
        (7, 5),
        (130, 160),
        (33, 1001),
        (500, 64),
        (2, 40000),
        (20000, 3),
        (300, 2048),
    ):
        for alpha in ((99, 100), (1, 2), (1, 1)):
            bits = rng.integers(0, 1 << 8 * dtype().itemsize, shape, dtype=dtype)
            few = rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> np.uint32(32 - 8 * dtype().itemsize)
            for x in (bits, few.astype(dtype)):
                x = x.view(np.float32) if dtype is np.uint32 else x.view(samples.BFLOAT16)
                check("occ", (x,), alpha=alpha, axis=axis)
                whole = to_device(np.pad(x, ((0, 0), (3, 2))))[:, 3 : 3 + shape[1]]
                equal(refnum.occ(x, alpha, axis), gpu.occ(whole, alpha, axis))


def test_every_half_and_bfloat16_pattern() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    for dtype in (np.float16, samples.BFLOAT16):
        alone = np.zeros((1 << 16, 32), np.uint16)  # each pattern alone in a block, and beside a larger one
        alone[:, 5] = every
        beside = alone.copy()
        beside[:, 9] = every & 0x7C00 if dtype == np.float16 else every & 0x7F80
        for bits in (alone, beside):
            check("quantize_mxfp4", (bits.view(dtype),))
            check("quantize_fp8_tiles", (bits.view(dtype),))


def every_operation(rng: np.random.Generator, m: int, k: int) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    x = samples.floats(rng, m, k, np.float32)
    half = samples.floats(rng, m, k, np.float16)
    made: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("quantize_mxfp4", (x,), {}), ("quantize_mxfp4", (half,), {}), ("quantize_fp8_tiles", (x,), {}),
        ("quantize_fp8_tiles", (half,), {}), ("quantize_fp8_tiles", (x,), {"tile": (128, 128)}),
    ]  # fmt: skip
    return made + [(n, make(rng, m, k), dict(o)) for n, (make, variants) in CASES.items() for o in variants]


def test_strided_and_offset_views() -> None:
    for name, inputs, options in every_operation(np.random.default_rng(1), 37, 256):
        want = getattr(refnum, name)(*inputs, **options)
        for pad in (1, 3, 16, 64):  # odd pads make every address misaligned for vectors
            views = []
            for x in inputs:
                wide = cupy.full((x.shape[0], x.shape[1] + 2 * pad), 77, x.dtype)
                wide[:, pad:-pad] = cupy.asarray(x)
                views.append(wide[:, pad:-pad])
            equal(want, getattr(gpu, name)(*views, **options))
        turned = [cupy.asarray(np.ascontiguousarray(x[::-1]))[::-1] for x in inputs]
        equal(want, getattr(gpu, name)(*turned, **options))


def test_poisoned_outputs_and_guard_zones() -> None:
    for name, inputs, options in every_operation(np.random.default_rng(2), 131, 416):
        want = getattr(refnum, name)(*inputs, **options)
        wants = want if isinstance(want, tuple) else (want,)
        for poison in (0xA5, 0x5A):
            stores, outs = [], []
            for w in wants:
                store = cupy.full(w.nbytes + 512, poison, np.uint8)
                dtype = np.uint16 if w.dtype == samples.BFLOAT16 else w.dtype
                stores.append(store)
                outs.append(store[256:-256].view(dtype).reshape(w.shape))
            given = tuple(outs) if len(outs) > 1 else outs[0]
            got = getattr(gpu, name)(*map(to_device, inputs), **options, out=given)
            equal(want, got)
            assert (got if len(wants) == 1 else got[0]) is outs[0]
            for store in stores:
                assert int((store[:256] != poison).sum() + (store[-256:] != poison).sum()) == 0, name


def test_side_stream_and_repeats() -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    for name, inputs, options in every_operation(np.random.default_rng(3), 300, 1280):
        want = getattr(refnum, name)(*inputs, **options)
        with stream:
            given = [to_device(x) for x in inputs]
            results = [getattr(gpu, name)(*given, **options) for _ in range(10)]
        stream.synchronize()
        for got in results:
            equal(want, got)


def test_graph_replay_with_new_data() -> None:
    rng = np.random.default_rng(4)
    x = cupy.asarray(samples.floats(rng, 64, 256, np.float32))
    out = (cupy.empty((64, 128), np.uint8), cupy.empty((64, 8), np.uint8))
    gpu.quantize_mxfp4(x, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        gpu.quantize_mxfp4(x, out=out)
        graph = stream.end_capture()
    for _ in range(3):
        fresh = samples.floats(rng, 64, 256, np.float32)
        x.set(fresh)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        equal(refnum.quantize_mxfp4(fresh), out)


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    for name, inputs, options in every_operation(np.random.default_rng(5), 40, 384):
        given = [torch.from_numpy(x).cuda() for x in inputs]
        got = getattr(gpu, name)(*given, **options)
        assert all(isinstance(g, torch.Tensor) and g.is_cuda for g in (got if isinstance(got, tuple) else (got,)))
        equal(getattr(refnum, name)(*inputs, **options), got)
    x = torch.randn(64, 256, device="cuda").to(torch.bfloat16)
    equal(refnum.quantize_mxfp4(x.view(torch.uint16).cpu().numpy()), gpu.quantize_mxfp4(x))
    assert gpu.dequantize_mxfp4(*gpu.quantize_mxfp4(x), dtype="bfloat16").dtype == torch.bfloat16


def test_zero_rows() -> None:
    for name, inputs, options in every_operation(np.random.default_rng(6), 0, 256):
        equal(getattr(refnum, name)(*inputs, **options), getattr(gpu, name)(*map(to_device, inputs), **options))


def test_named_errors_before_any_launch() -> None:
    x = cupy.zeros((4, 64), np.float32)
    packed, scales = cupy.zeros((4, 32), np.uint8), cupy.zeros((4, 2), np.uint8)
    wrong: list[tuple[type[RefnumError], Callable[[], Any]]] = [
        (DtypeError, lambda: gpu.quantize_mxfp4(np.zeros((4, 64), np.float32))),
        (DtypeError, lambda: gpu.quantize_mxfp4([[0.0] * 64])),
        (DtypeError, lambda: gpu.quantize_mxfp4(x.astype(np.float64))),
        (ShapeError, lambda: gpu.quantize_mxfp4(x[:, :40])),
        (ShapeError, lambda: gpu.quantize_mxfp4(x.reshape(2, 2, 64))),
        (ShapeError, lambda: gpu.quantize_mxfp4(cupy.zeros((64, 64), np.float32).T[:, ::2])),
        (UnsupportedError, lambda: gpu.quantize_mxfp4(x, profile="MLX")),
        (ScaleError, lambda: gpu.dequantize_mxfp4(packed, scales.astype(np.float32))),
        (ShapeError, lambda: gpu.dequantize_mxfp4(packed, scales[:3])),
        (ArgumentError, lambda: gpu.dequantize_mxfp4(packed, scales, dtype="float64")),
        (ArgumentError, lambda: gpu.mxfp4_to_fp8(packed, scales, scale="min")),
        (ArgumentError, lambda: gpu.quantize_fp8_tiles(x, tile=(64, 64))),
        (ShapeError, lambda: gpu.quantize_mxfp4(x, out=(packed, scales[:2]))),
        (DtypeError, lambda: gpu.quantize_mxfp4(x, out=(packed.view(np.int8), scales))),
        (ArgumentError, lambda: gpu.quantize_mxfp4(x, out=(packed,))),
        (ArgumentError, lambda: gpu.mxfp4_to_fp8(packed, scales, out=(x.view(np.uint8)[:, :64], scales))),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()


def test_second_calls_take_the_plan_and_still_check() -> None:
    from refnum.gpu.device import plans

    rng = np.random.default_rng(7)
    for name, inputs, options in every_operation(rng, 33, 256):
        first = getattr(gpu, name)(*map(to_device, inputs), **options)
        before = len(plans._plans)
        fresh = tuple(rng.permutation(x) for x in inputs)  # the same kind of call with other data
        equal(getattr(refnum, name)(*fresh, **options), getattr(gpu, name)(*map(to_device, fresh), **options))
        assert before and len(plans._plans) == before, name
        out = first if isinstance(first, tuple) else (first,)
        given = tuple(map(to_device, inputs))
        for _ in range(2):
            got = getattr(gpu, name)(*given, **options, out=out if len(out) > 1 else out[0])
            equal(getattr(refnum, name)(*inputs, **options), got)
    x = cupy.zeros((4, 64), np.uint8)
    scales = cupy.zeros((4, 1), np.uint8)
    out = (cupy.empty((4, 32), np.uint8), cupy.empty((4, 2), np.uint8))
    gpu.fp8_to_mxfp4(x, scales, out=out)
    store = cupy.zeros(512, np.uint8)
    with pytest.raises(ArgumentError, match="shares memory"):
        gpu.fp8_to_mxfp4(store[:256].reshape(4, 64), scales, out=(store[128:256].reshape(4, 32), out[1]))
