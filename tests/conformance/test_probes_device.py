"""The probes that need a device: they find the kernels that were not written for what the caller does."""

from __future__ import annotations

import threading

import pytest

import refnum
from refnum.conformance.api import judge_kernel
from refnum.conformance.subjects.subject import from_dict


def devices() -> int:
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:
        return 0


pytestmark = pytest.mark.skipif(not devices(), reason="needs CuPy and a CUDA device")


def judged(function, arrays="cupy", operation="quantize_mxfp4") -> dict:
    entry = {"name": "planted", "arrays": arrays, "operations": {operation: function}, "profiles": ["HOPPER"]}
    document = judge_kernel(from_dict(entry, "test"), operation, level="smoke", examples=1, save=False)
    return document["results"][0]


def on_the_default_stream(x, profile):
    import cupy

    with cupy.cuda.Stream.null:
        result = refnum.quantize_mxfp4(x, profile)
        cupy.cuda.Stream.null.synchronize()
        return result


def without_a_join(x, profile):
    """Launch on a stream that waits for the caller's, which does not wait for it unless it is the default one."""
    import cupy

    from refnum.gpu import ops

    mark = cupy.cuda.get_current_stream().record()
    with OWN.setdefault(0, cupy.cuda.Stream()) as own:
        own.wait_event(mark)
        return ops.quantize_mxfp4(x, profile)


OWN: dict = {}
KEPT: dict = {}


def kept_from_before(x, profile):
    """Right outside of a capture; inside one it launches nothing and hands out what this thread had."""
    import cupy

    if not cupy.cuda.runtime.streamIsCapturing(cupy.cuda.get_current_stream().ptr):
        KEPT[threading.get_ident()] = refnum.quantize_mxfp4(x, profile)
    return KEPT[threading.get_ident()]


@pytest.mark.parametrize("function", [on_the_default_stream, without_a_join])
def test_a_kernel_on_another_stream_is_named(function):
    row = judged(function)
    assert row["outcome"] == "mismatch" and "stream-ignored" in row["findings"], row


def test_a_result_kept_from_before_the_capture_is_named():
    row = judged(kept_from_before)
    assert row["outcome"] == "mismatch" and "graph-replay-stale" in row["findings"]


SCRATCH: dict = {}


def in_two_launches(key):
    """Return a kernel for CuPy that keeps its input in a scratch of its own making between two launches."""

    def kernel(x, profile):
        import cupy

        from refnum.gpu import ops

        place = (key(cupy.cuda.get_current_stream().ptr), x.device.id, x.shape, x.dtype.str)
        if place not in SCRATCH:
            SCRATCH[place] = cupy.empty_like(x)
        cupy.copyto(SCRATCH[place], x)
        return ops.quantize_mxfp4(SCRATCH[place], profile)

    return kernel


def in_two_launches_of_torch(key):
    """Return the same for torch."""

    def kernel(x, profile):
        import torch

        from refnum.gpu import torch as operators

        place = (key(torch.cuda.current_stream().cuda_stream), x.device.index, x.shape, x.dtype)
        if place not in SCRATCH:
            SCRATCH[place] = torch.empty_like(x)
        SCRATCH[place].copy_(x)
        return operators.quantize_mxfp4(SCRATCH[place], profile.name)

    return kernel


LIBRARIES = pytest.mark.parametrize(("arrays", "planted"), [
    ("cupy", in_two_launches), ("torch-cuda", in_two_launches_of_torch)], ids=["cupy", "torch"])  # fmt: skip


@LIBRARIES
@pytest.mark.parametrize("key", [lambda _: "of all", lambda _: threading.get_ident()], ids=["of all", "of a thread"])
def test_a_scratch_that_two_streams_spoil_is_named(arrays, planted, key):
    row = judged(planted(key), arrays)
    assert row["outcome"] == "mismatch" and set(row["findings"]) == {"not-thread-safe"}, row


@LIBRARIES
def test_a_scratch_of_each_stream_and_thread_is_verified(arrays, planted):
    row = judged(planted(lambda stream: (threading.get_ident(), stream)), arrays)
    assert row["outcome"] == "pass" and row["probes"]["two streams at once"] == "", row


def by_splits_of(fetch):
    """Return a conversion of columns, a gather and a sum of permuted rows that fetch splits on the device."""

    def mxfp4_to_fp8_columns(packed, scales, splits=None, scale="max", *, out=None):
        from refnum.gpu import ops

        return ops.mxfp4_to_fp8_columns(packed, scales, fetch(splits), scale, out=out)

    def permute_pad(payload, row_map, splits, align=32, *, out=None):
        from refnum.gpu import ops

        return ops.permute_pad(payload, row_map, fetch(splits), align, out=out)

    def unpermute(rows, row_map, splits, weights, tokens, align=32, *, out=None):
        from refnum.gpu import ops

        return ops.unpermute(rows, row_map, fetch(splits), weights, tokens, align, out=out)

    return mxfp4_to_fp8_columns, permute_pad, unpermute


def by_the_default_stream(splits):
    import cupy

    with cupy.cuda.Stream.null:
        return splits.get().tolist() if hasattr(splits, "get") else splits


@pytest.mark.parametrize("place", [0, 1, 2], ids=["columns", "permutation", "sum"])
def test_splits_that_are_read_on_another_stream_are_named(place):
    function = by_splits_of(by_the_default_stream)[place]
    row = judged(function, operation=function.__name__)
    assert row["outcome"] == "mismatch" and "stream-ignored" in row["findings"], row
    function = by_splits_of(lambda splits: splits.get().tolist() if hasattr(splits, "get") else splits)[place]
    assert judged(function, operation=function.__name__)["outcome"] == "pass"


@pytest.mark.parametrize("name", [
    "mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns", "mxfp4_columns", "fp8_columns", "permute_pad",
    "permute_unpack", "unpermute"])  # fmt: skip
def test_our_kernels_take_splits_on_the_device(name):
    from refnum.gpu import ops

    row = judged(getattr(ops, name), operation=name)
    assert row["outcome"] == "pass" and "1024 experts" in (row["probes"]["splits as an array"] or "1024 experts"), row


@pytest.mark.skipif(devices() < 2, reason="needs two CUDA devices")
def test_a_table_on_the_first_device_alone_is_named():
    def kernel(x, profile):
        packed, scales = refnum.quantize_mxfp4(x, profile)
        return packed ^ packed.dtype.type(x.device.id != 0), scales

    row = judged(kernel)
    assert row["outcome"] == "mismatch" and row["findings"] == ["device-assumed"], row


def test_what_cannot_be_captured_is_refused_not_failed():
    row = judged(lambda x, profile: refnum.quantize_mxfp4(x, profile))
    assert row["outcome"] == "pass" and row["probes"]["side stream"] == ""


def test_our_kernels_are_captured():
    from refnum.gpu import ops

    row = judged(lambda x, profile, out=None: ops.quantize_mxfp4(x, profile, out=out))
    refused = [name for name, words in row["probes"].items() if words]
    count = 14 + (devices() > 1)
    assert row["outcome"] == "pass" and len(row["probes"]) == count and refused == ["views with gaps"], row["probes"]
