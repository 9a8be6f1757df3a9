"""Payload, permutation and unpermute kernels equal their golden twins bit for bit; named errors before any launch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import kernel_samples as samples
import numpy as np
import pytest

import refnum
from refnum import gpu
from refnum.gpu.device import plans

USABLE, REASON = gpu.available()
pytestmark = pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS RUN: {REASON}")
cupy = pytest.importorskip("cupy") if USABLE else None

WIDTHS = (32, 64, 96, 128, 160, 256, 512, 1280, 1408, 2048, 5120, 7168, 16384)
SPLITS: tuple[list[int], ...] = ([5, 0, 33, 32, 1], [0, 0], [], [64], [0, 7], [1] * 300, [0, 128, 0, 127, 129, 0])


def to_device(x: Any) -> Any:
    return cupy.asarray(x.view(np.uint16) if x.dtype == samples.BFLOAT16 else x)


def raw(x: Any) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(x.get() if isinstance(x, cupy.ndarray) else x).reshape(-1).view(np.uint8)


def equal(want: Any, got: Any) -> None:
    wants, gots = (r if isinstance(r, tuple) else (r,) for r in (want, got))
    assert len(wants) == len(gots)
    for w, g in zip(wants, gots, strict=True):
        assert tuple(g.shape) == w.shape and g.dtype == w.dtype
        assert np.array_equal(raw(w), raw(g))


def check(name: str, inputs: tuple[Any, ...], *args: Any, **options: Any) -> None:
    equal(getattr(refnum, name)(*inputs, *args, **options),
          getattr(gpu, name)(*map(to_device, inputs), *args, **options))  # fmt: skip


def floats(rng: np.random.Generator, m: int, k: int, dtype: Any) -> Any:
    """`samples.floats` of any size."""
    whole = samples.floats(rng, m * k // 32 + 1, 32, dtype)
    return whole.reshape(-1)[: m * k].reshape(m, k)


def octets(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.integers(1, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("k", WIDTHS)
def test_pack_and_unpack(k: int) -> None:
    rng = np.random.default_rng(k)
    for t in (0, 1, 3, 67):
        check("pack_payload", (octets(rng, t, k // 2), octets(rng, t, k // 32)))
        check("unpack_payload", (octets(rng, t, k // 32 * 17),))


@pytest.mark.parametrize("profile", ["HOPPER", "OCP", "CEIL", "EVEN"])
@pytest.mark.parametrize("k", [32, 96, 160, 256, 1280, 7168])
def test_quantised(k: int, profile: str) -> None:
    rng = np.random.default_rng(k)
    for m in (0, 1, 67):
        for dtype in (np.float32, samples.BFLOAT16, np.float16):
            x = samples.floats(rng, m, k, dtype) if m else np.zeros((0, k), dtype)
            check("quantize_payload", (x,), profile=profile)
        codes = samples.fp8_codes(rng, m, k) if m else np.zeros((0, k), np.uint8)
        scales = samples.scale_bytes(rng, m, -(-k // 128)) if m else np.zeros((0, -(-k // 128)), np.uint8)
        check("fp8_to_payload", (codes, scales), profile=profile)


@pytest.mark.parametrize("splits", SPLITS, ids=lambda s: f"{len(s)}of{sum(s)}")
@pytest.mark.parametrize("align", [1, 16, 32, 100])
def test_gathers(splits: list[int], align: int) -> None:
    rng = np.random.default_rng(align)
    for k, dtype in ((32, np.int64), (96, np.int32), (256, np.uint64), (512, np.uint8), (7168, np.int16)):
        payload = octets(rng, 41, k // 32 * 17)
        row_map = rng.integers(0, 41, sum(splits)).astype(dtype)
        for name in ("permute_pad", "permute_unpack"):
            check(name, (payload, row_map), splits, align)
            total = sum(-(-m // align) * align for m in splits)
            want = getattr(refnum, name)(payload, row_map, splits, align)
            out = tuple(cupy.full((total + 5, *w.shape[1:]), 7, w.dtype) for w in want[:-1])
            out = (*out, cupy.full(len(splits), -1, np.int64))
            counts = cupy.asarray(np.array(splits, np.int32))
            got = getattr(gpu, name)(to_device(payload), to_device(row_map), counts, align, out=out)
            equal(want, (*(x[:total] for x in got[:-1]), got[-1]))
            assert all(not x[total:].any() for x in got[:-1]), "rows behind the last expert"
    check("permute_pad", (np.zeros((3, 0), np.uint8), np.zeros(sum(splits), np.int32)), splits, align)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], None]]:
    """Set a size from which on another kernel is taken, and drop the plans that were made under another."""

    def change(name: str, value: int) -> None:
        plans.forget()
        monkeypatch.setattr(name, value)

    yield change
    plans.forget()


@pytest.mark.parametrize("splits", SPLITS, ids=lambda s: f"{len(s)}of{sum(s)}")
def test_gathers_that_read_every_row_once(splits: list[int], limits: Callable[[str, int], None]) -> None:
    limits("refnum.gpu.ops.payload_permute.ONCE", 1)
    rng = np.random.default_rng(sum(splits))
    for tokens in (1, 3, 40):  # one token has more places than a list holds
        for k, align in ((32, 32), (96, 1), (128, 7), (256, 32), (512, 16), (7168, 32), (16384, 32)):
            payload, row_map = octets(rng, tokens, k // 32 * 17), rng.integers(0, tokens, sum(splits))
            for name in ("permute_pad", "permute_unpack"):
                check(name, (payload, row_map), splits, align)
                check(name, (payload, row_map), splits, align)  # from the plan
    payload, row_map = octets(rng, 2, 34), cupy.asarray([0, 5, -1, 1, 0])
    want = np.concatenate([payload[:1], np.zeros((2, 34), np.uint8), payload[[1, 0]]])
    equal(want, gpu.permute_pad(to_device(payload), row_map, [5], 1)[0])


def test_device_splits_beyond_out_and_map() -> None:
    payload, row_map = cupy.full((4, 34), 9, np.uint8), cupy.zeros(40, np.int32)
    guard = cupy.full((100, 34), 7, np.uint8)
    out = (guard[32:64].reshape(32, 34), cupy.zeros(3, np.int64))
    gpu.permute_pad(payload, row_map, cupy.asarray([30, -1, 10]), 32, out=out)
    assert out[0][:30].min() == 9 and not out[0][30:].any() and out[1].tolist() == [0, 32, 32]
    assert (guard[:32] == 7).all() and (guard[64:] == 7).all()


@pytest.mark.parametrize("together", [0, 1 << 20], ids=["lists in memory", "no lists"])
def test_device_splits_beyond_rows_and_map(together: int, limits: Callable[[str, int], None]) -> None:
    limits("refnum.gpu.ops.payload_sum.TOGETHER", together)
    rows = cupy.ones((34, 8), np.float32)
    for count, tokens in ((40, 40), (35, 40), (40, 2)):
        row_map = cupy.arange(count) % tokens
        sums = gpu.unpermute(rows, row_map, cupy.asarray([-1, 30, 50, 10], np.int16), None, tokens)
        want = np.bincount(np.arange(32) % tokens, minlength=tokens)  # 30 rows, and 2 of the 10 behind the padding
        assert sums.max(axis=1).tolist() == sums.min(axis=1).tolist() == want.tolist()
    few = gpu.unpermute(rows, cupy.arange(40), cupy.asarray([5, 0, 1] + [0] * 2000, np.uint8), None, 40)
    assert few.max(axis=1).tolist() == [1] * 6 + [0] * 34


@pytest.mark.parametrize("together", [0, 1 << 20], ids=["lists in memory", "no lists"])
def test_a_graph_of_a_sum_reads_what_splits_on_the_device_hold(
    together: int, limits: Callable[[str, int], None]
) -> None:
    limits("refnum.gpu.ops.payload_sum.TOGETHER", together)
    rng = np.random.default_rng(2)
    rows, row_map = samples.floats(rng, 96, 64, np.float32), rng.integers(0, 8, 50)
    counts, out = cupy.asarray([50, 0]), cupy.empty((8, 64), np.float32)
    given = to_device(rows), to_device(row_map), counts, None, 8
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        gpu.unpermute(*given, out=out)
        stream.begin_capture()
        gpu.unpermute(*given, out=out)
        graph = stream.end_capture()
        for splits in ([50, 0], [3, 47], [0, 50]):
            counts[...] = cupy.asarray(splits)
            graph.launch(stream)
            stream.synchronize()
            padded = sum(-(-n // 32) * 32 for n in splits)
            equal(refnum.unpermute(rows[:padded], row_map, splits, None, 8), out)


def test_map_items_out_of_range_give_zero_rows() -> None:
    payload = cupy.full((4, 34), 9, np.uint8)
    rows, _ = gpu.permute_pad(payload, cupy.asarray([3, 4, -1, 0], cupy.int64), [4], 1)
    assert rows.max(axis=1).tolist() == [9, 0, 0, 9]
    sums = gpu.unpermute(cupy.ones((4, 8), np.float32), cupy.asarray([0, 9, -2, 0]), [4], None, 2, 1)
    assert sums.max(axis=1).tolist() == [2, 0]


@pytest.mark.parametrize("together", [0, 1 << 20], ids=["lists in memory", "one launch"])
@pytest.mark.parametrize("splits", SPLITS, ids=lambda s: f"{len(s)}of{sum(s)}")
@pytest.mark.parametrize("dtype", [np.float32, samples.BFLOAT16], ids=["float32", "bfloat16"])
def test_unpermute(splits: list[int], dtype: Any, together: int, limits: Callable[[str, int], None]) -> None:
    limits("refnum.gpu.ops.payload_sum.TOGETHER", together)
    limits("refnum.gpu.ops.payload_sum.WALKED", 1 << 60)
    rng = np.random.default_rng(len(splits))
    for align, columns, tokens in ((32, 96, 50), (1, 7, 3), (16, 1280, 9), (32, 7168, 200), (8, 130, 1)):
        total = sum(-(-m // align) * align for m in splits)
        rows = floats(rng, total, columns, dtype)
        row_map = rng.integers(0, tokens, sum(splits)).astype(np.int32)
        weights = floats(rng, 1, sum(splits), np.float32)[0]
        for given in (weights, None):
            want = refnum.unpermute(rows, row_map, splits, given, tokens, align)
            held = None if given is None else to_device(given)
            counts = cupy.asarray(np.array(splits, np.int32))
            for where in (splits, counts):
                equal(want, gpu.unpermute(to_device(rows), to_device(row_map), where, held, tokens, align))


@pytest.mark.parametrize("together", [0, 1 << 20], ids=["lists in memory", "one launch"])
def test_unpermute_walks_beyond_its_lists(together: int, limits: Callable[[str, int], None]) -> None:
    limits("refnum.gpu.ops.payload_sum.TOGETHER", together)
    limits("refnum.gpu.ops.payload_sum.WALKED", 1 << 60)
    rng = np.random.default_rng(1)
    for count in (31, 32, 33, 200):
        rows = samples.floats(rng, count, 64, np.float32)
        row_map = np.zeros(count, np.int64)
        weights = rng.standard_normal(count).astype(np.float32)
        want = refnum.unpermute(rows, row_map, [count], weights, 2, 1)
        equal(want, gpu.unpermute(to_device(rows), to_device(row_map), [count], to_device(weights), 2, 1))


def loose(x: Any, start: int) -> Any:
    """The same rows with gaps between, backwards, at an address that is `start` bytes past a multiple of 256."""
    size, (m, n) = x.dtype.itemsize, x.shape
    pitch = n * size + (size if start else 32)
    room = cupy.full(m * pitch + start + 256, 0x5A, np.uint8)
    view = cupy.ndarray((m, n), x.dtype, room.data + start + (m - 1) * pitch, strides=(-pitch, size))
    view[...] = x
    return view


@pytest.mark.parametrize("start", [0, 4, 8, 16])
@pytest.mark.parametrize("k", [32, 256, 512, 7168])
def test_any_rows(k: int, start: int) -> None:
    rng = np.random.default_rng(start)
    payload, row_map, splits = octets(rng, 37, k // 32 * 17), rng.integers(0, 37, 50), [20, 0, 30]
    spread = to_device(np.repeat(row_map, 3))[::3]
    for name in ("permute_pad", "permute_unpack"):
        want = getattr(refnum, name)(payload, row_map, splits)
        equal(want, getattr(gpu, name)(loose(to_device(payload), start), spread, splits))
    equal(refnum.unpack_payload(payload), gpu.unpack_payload(loose(to_device(payload), start)))
    packed, scales = octets(rng, 37, k // 2), octets(rng, 37, k // 32)
    got = gpu.pack_payload(loose(to_device(packed), start), loose(to_device(scales), start))
    equal(refnum.pack_payload(packed, scales), got)
    for dtype in (np.float32, samples.BFLOAT16):
        x = samples.floats(rng, 37, k, dtype)
        equal(refnum.quantize_payload(x), gpu.quantize_payload(loose(to_device(x), start)))
        rows, weights = samples.floats(rng, 64, k, dtype), rng.standard_normal(50).astype(np.float32)
        want = refnum.unpermute(rows, row_map, splits, weights, 37)
        spread_weights = to_device(np.repeat(weights, 2))[::2]
        equal(want, gpu.unpermute(loose(to_device(rows), start), spread, splits, spread_weights, 37))
    codes, tile = samples.fp8_codes(rng, 37, k), samples.scale_bytes(rng, 37, -(-k // 128))
    equal(refnum.fp8_to_payload(codes, tile), gpu.fp8_to_payload(loose(to_device(codes), start), to_device(tile)))


def calls() -> dict[str, tuple[Any, ...]]:
    rng = np.random.default_rng(3)
    k, row_map, splits = 512, rng.integers(0, 40, 90).astype(np.int32), [33, 0, 57]
    weights = rng.standard_normal(90).astype(np.float32)
    return {
        "pack_payload": (octets(rng, 40, k // 2), octets(rng, 40, k // 32)),
        "unpack_payload": (octets(rng, 40, k // 32 * 17),),
        "quantize_payload": (samples.floats(rng, 40, k, np.float32),),
        "fp8_to_payload": (samples.fp8_codes(rng, 40, k), samples.scale_bytes(rng, 40, k // 128)),
        "permute_pad": (octets(rng, 40, k // 32 * 17), row_map, splits),
        "permute_unpack": (octets(rng, 40, k // 32 * 17), row_map, splits),
        "unpermute": (samples.floats(rng, 128, k, np.float32), row_map, splits, weights, 40),
    }  # fmt: skip


NAMES = ("pack_payload", "unpack_payload", "quantize_payload", "fp8_to_payload", "permute_pad", "permute_unpack",
         "unpermute")  # fmt: skip


def given(name: str) -> tuple[Any, list[Any]]:
    inputs = calls()[name]
    return getattr(refnum, name)(*inputs), [to_device(x) if isinstance(x, np.ndarray) else x for x in inputs]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lists", [True, False])
def test_out_is_guarded_and_repeats_agree(name: str, lists: bool, limits: Callable[[str, int], None]) -> None:
    limits("refnum.gpu.ops.payload_permute.ONCE", 1 if lists else 1 << 40)
    limits("refnum.gpu.ops.payload_sum.TOGETHER", 0 if lists else 1 << 40)
    limits("refnum.gpu.ops.payload_sum.WALKED", 1 << 60)
    want, inputs = given(name)
    wants = want if isinstance(want, tuple) else (want,)
    rooms = [cupy.full(w.nbytes + 512, 0xA5, np.uint8) for w in wants]
    outs = tuple(
        room[256 : 256 + w.nbytes].view(w.dtype).reshape(w.shape) for room, w in zip(rooms, wants, strict=True)
    )
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    for _ in range(10):
        with stream:
            for room in rooms:
                room[256:-256] = 0xA5
            got = getattr(gpu, name)(*inputs, out=outs if len(outs) > 1 else outs[0])
        stream.synchronize()
        equal(want, got)
        assert all((room[:256] == 0xA5).all() and (room[-256:] == 0xA5).all() for room in rooms)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lists", [True, False])
def test_graph_replays_on_new_data(name: str, lists: bool, limits: Callable[[str, int], None]) -> None:
    limits("refnum.gpu.ops.payload_permute.ONCE", 1 if lists else 1 << 40)
    limits("refnum.gpu.ops.payload_sum.TOGETHER", 0 if lists else 1 << 40)
    limits("refnum.gpu.ops.payload_sum.WALKED", 1 << 60)
    want, inputs = given(name)
    blank = [cupy.zeros_like(x) if isinstance(x, cupy.ndarray) else x for x in inputs]
    outs = tuple(cupy.empty(w.shape, w.dtype) for w in (want if isinstance(want, tuple) else (want,)))
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        # compiled before the capture, and memory that the launches share is in this stream's pool
        getattr(gpu, name)(*blank, out=outs if len(outs) > 1 else outs[0])
        stream.begin_capture()
        getattr(gpu, name)(*blank, out=outs if len(outs) > 1 else outs[0])
        graph = stream.end_capture()
        for x, y in zip(blank, inputs, strict=True):
            if isinstance(x, cupy.ndarray):
                x[...] = y
        graph.launch(stream)
    stream.synchronize()
    equal(want, outs if len(outs) > 1 else outs[0])


@pytest.mark.parametrize("name", NAMES)
def test_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    inputs = calls()[name]
    want = getattr(refnum, name)(*inputs)
    for _ in range(2):
        got = getattr(gpu, name)(*[torch.from_numpy(x).cuda() if isinstance(x, np.ndarray) else x for x in inputs])
        gots = got if isinstance(got, tuple) else (got,)
        assert all(isinstance(g, torch.Tensor) for g in gots)
        equal(want, tuple(g.cpu().numpy() for g in gots) if len(gots) > 1 else gots[0].cpu().numpy())


def test_more_than_2_31_elements() -> None:
    if cupy.cuda.runtime.memGetInfo()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of free device memory")
    rng = np.random.default_rng(5)
    payload, row_map = octets(rng, 1000, 3808), cupy.asarray(rng.integers(0, 1000, 600_000))
    for once in (1, 1 << 60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("refnum.gpu.ops.payload_permute.ONCE", once)
            plans.forget()
            rows, offsets = gpu.permute_pad(to_device(payload), row_map, [1, 599_999])
            packed, scales, _ = gpu.permute_unpack(to_device(payload), row_map, [1, 599_999])
        assert rows.size > 1 << 31 and offsets.tolist() == [0, 32] and not rows[1:32].any()
        assert (packed == rows[:, :3584]).all() and (scales == rows[:, 3584:]).all()
        for start in range(1, 600_000, 50_000):
            part = row_map[start : start + 50_000]
            assert (rows[31 + start : 31 + start + part.size] == to_device(payload)[part]).all()
        del packed, scales
    again = gpu.pack_payload(*gpu.unpack_payload(rows))
    assert (again == rows).all()
    del again, rows
    x = cupy.resize(to_device(samples.floats(rng, 512, 7168, samples.BFLOAT16)), (300_032, 7168))
    want = gpu.quantize_payload(x[:512])
    got = gpu.quantize_payload(x)
    assert x.size > 1 << 31 and all((got[i : i + 512] == want).all() for i in range(0, 300_032, 512))
    token = cupy.arange(300_032)[::-1]
    sums = gpu.unpermute(x, token, [300_032], None, 300_032, 1)
    want = gpu.unpermute(x[:512], cupy.arange(512), [512], None, 512, 1)[::-1]
    assert all((sums[i : i + 512].view(np.uint32) == want.view(np.uint32)).all() for i in range(0, 300_032, 512))


def test_small_results_share_an_allocation_and_outlive_each_other() -> None:
    """Results of a planned call: contiguous arrays without a base, none over another, each alive without the rest."""
    inputs = [to_device(x) if isinstance(x, np.ndarray) else x for x in calls()["permute_unpack"]]
    want = refnum.permute_unpack(*calls()["permute_unpack"])
    held = [gpu.permute_unpack(*inputs) for _ in range(6)]
    spans = sorted((x.data.ptr, x.data.ptr + x.nbytes) for results in held for x in results)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert all(x.base is None and x.flags.c_contiguous and x.data.ptr % 256 == 0 for results in held for x in results)
    scales = [results[1] for results in held]
    del held
    for _ in range(6):
        gpu.permute_unpack(*(cupy.zeros_like(x) if isinstance(x, cupy.ndarray) else x for x in inputs))
    assert all(np.array_equal(raw(want[1]), raw(x)) for x in scales)
