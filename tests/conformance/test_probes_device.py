"""The probes that need a device: a side stream and graph replay find the kernels that were not written for them."""

from __future__ import annotations

import pytest

import refnum
from refnum.conformance.api import judge_kernel
from refnum.conformance.subjects.subject import from_dict


def usable() -> bool:
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount())
    except Exception:
        return False


pytestmark = pytest.mark.skipif(not usable(), reason="needs CuPy and a CUDA device")


def judged(function) -> dict:
    entry = {"name": "planted", "arrays": "cupy", "operations": {"quantize_mxfp4": function}, "profiles": ["HOPPER"]}
    document = judge_kernel(from_dict(entry, "test"), "quantize_mxfp4", level="smoke", examples=1, save=False)
    return document["results"][0]


def on_the_default_stream(x, profile):
    import cupy

    with cupy.cuda.Stream.null:
        result = refnum.quantize_mxfp4(x, profile)
        cupy.cuda.Stream.null.synchronize()
        return result


KEPT: dict = {}


def kept_from_before(x, profile):
    """Right outside of a capture; inside one it launches nothing and hands out what it had."""
    import cupy

    if not cupy.cuda.runtime.streamIsCapturing(cupy.cuda.get_current_stream().ptr):
        KEPT["result"] = refnum.quantize_mxfp4(x, profile)
    return KEPT["result"]


def test_a_kernel_on_another_stream_is_named():
    row = judged(on_the_default_stream)
    assert row["outcome"] == "mismatch" and "stream-ignored" in row["findings"]


def test_a_result_kept_from_before_the_capture_is_named():
    row = judged(kept_from_before)
    assert row["outcome"] == "mismatch" and "graph-replay-stale" in row["findings"]


def test_what_cannot_be_captured_is_refused_not_failed():
    row = judged(lambda x, profile: refnum.quantize_mxfp4(x, profile))
    assert row["outcome"] == "pass" and row["probes"]["side stream"] == ""


def test_our_kernels_are_captured():
    from refnum.gpu import ops

    row = judged(lambda x, profile, out=None: ops.quantize_mxfp4(x, profile, out=out))
    refused = [name for name, words in row["probes"].items() if words]
    assert row["outcome"] == "pass" and len(row["probes"]) == 11 and refused == ["views with gaps"], row["probes"]
