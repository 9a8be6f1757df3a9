"""Host time of a launcher's call on one GPU: every launcher, CuPy's arrays and torch's, fresh results and `out`.

    python benchmarks/device_calls.py --json calls.json

A time is the median of nine rounds of 300 calls on small arrays, from the second call of a kind on, each round started
with an idle device. What a call is made of is timed beside it, and so are calls that everybody knows: a sum of two
arrays, and an empty kernel of CuPy's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from refnum.gpu import ops
from refnum.gpu.device import plans
from refnum.gpu.device.driver import driver

ROWS, K, EXPERTS = 32, 1024, 4
KEY = (0x0123456789ABCDEF, 7, 9)
ROUNDS, CALLS = 9, 300
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def host_time(call: Callable[[], Any]) -> float:
    """Return the median microseconds of a call."""
    rounds = []
    for _ in range(ROUNDS + 1):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - start) / CALLS * 1e6)
    return round(statistics.median(rounds[1:]), 2)


def calls() -> dict[str, Call]:
    """Return name -> (launcher, its arguments, its options) on a matrix of 32 x 1024."""
    x = cupy.ones((ROWS, K), np.float32)
    half = (x.view(np.uint32) >> 16).astype(np.uint16)
    fp4, fp8, payload = ops.quantize_mxfp4(x), ops.quantize_fp8_tiles(x), ops.quantize_payload(x)
    splits, share = [ROWS // EXPERTS] * EXPERTS, cupy.ones(ROWS, np.float32)
    order = cupy.arange(ROWS)
    return {
        "quantize_mxfp4": ("quantize_mxfp4", (x,), {}),
        "quantize_mxfp4 by key": ("quantize_mxfp4", (x, "STOCHASTIC"), {"philox": KEY}),
        "quantize_mxfp4 packed_ue8m0": ("quantize_mxfp4", (x,), {"layout_out": "packed_ue8m0"}),
        "quantize_fp8_tiles": ("quantize_fp8_tiles", (x,), {}),
        "dequantize_mxfp4": ("dequantize_mxfp4", fp4, {}),
        "dequantize_fp8_tiles": ("dequantize_fp8_tiles", fp8, {}),
        "fp8_to_mxfp4": ("fp8_to_mxfp4", fp8, {}),
        "mxfp4_to_fp8": ("mxfp4_to_fp8", fp4, {}),
        "mxfp4_to_fp8_columns": ("mxfp4_to_fp8_columns", fp4, {}),
        "mxfp4_to_fp8_columns experts": ("mxfp4_to_fp8_columns", (*fp4, splits), {}),
        "mxfp4_to_fp8_rows_columns": ("mxfp4_to_fp8_rows_columns", fp4, {}),
        "mxfp4_to_fp8_rows_columns experts": ("mxfp4_to_fp8_rows_columns", (*fp4, splits), {}),
        "mxfp4_columns": ("mxfp4_columns", fp4, {}),
        "fp8_columns": ("fp8_columns", fp8, {}),
        "swiglu_quantize": ("swiglu_quantize", (half, half), {}),
        "swiglu_quantize prob": ("swiglu_quantize", (half, half, share), {}),
        "swiglu_backward": ("swiglu_backward", (half, half, half), {}),
        "swiglu_backward prob": ("swiglu_backward", (half, half, half, share), {}),
        "pack_payload": ("pack_payload", fp4, {}),
        "unpack_payload": ("unpack_payload", (payload,), {}),
        "quantize_payload": ("quantize_payload", (x,), {}),
        "fp8_to_payload": ("fp8_to_payload", fp8, {}),
        "permute_pad": ("permute_pad", (payload, order, splits), {}),
        "permute_unpack": ("permute_unpack", (payload, order, splits), {}),
        "unpermute": ("unpermute", (cupy.ones((4 * ROWS, K), np.float32), order, splits, None, ROWS), {}),
        "unpermute weights": ("unpermute", (cupy.ones((4 * ROWS, K), np.float32), order, splits, share, ROWS), {}),
    }  # fmt: skip


def to_torch(value: Any) -> Any:
    """Return torch's view of a CuPy array; anything else as it is."""
    import torch

    return torch.from_dlpack(value) if isinstance(value, cupy.ndarray) else value


def libraries() -> dict[str, Callable[[Any], Any]]:
    """Return library -> how its arrays are made of CuPy's; torch is left out where it is not installed."""
    found: dict[str, Callable[[Any], Any]] = {"CuPy": lambda x: x}
    try:
        import torch  # noqa: F401

        found["torch"] = to_torch
    except ImportError:
        pass
    return found


def call_times() -> list[dict[str, Any]]:
    """Return a row for every library and kind of call."""
    rows = []
    for library, turned in libraries().items():
        for name, (operation, arrays, options) in calls().items():
            function, given = getattr(ops, operation), tuple(turned(x) for x in arrays)
            out = function(*given, **options)
            if isinstance(out, tuple):
                out = tuple(x for x in out if x is not None)
            fresh = host_time(lambda f=function, a=given, o=options: f(*a, **o))
            into = host_time(lambda f=function, a=given, o=options, w=out: f(*a, **o, out=w))
            rows.append({"library": library, "call": name, "fresh_us": fresh, "out_us": into})
            print(f"{library:6s} {name:36s} fresh {fresh:6.2f} out {into:6.2f}", flush=True)
    return rows


def parts() -> dict[str, float]:
    """Return microseconds of what a call is made of, CuPy's side."""
    x, shape, u8 = cupy.zeros((ROWS, K), np.float32), (ROWS, K), np.dtype(np.uint8)
    place = cupy.cuda.alloc(ROWS * K)
    plans.forget()  # so that the plan below is this call's
    ops.quantize_mxfp4(x), ops.quantize_mxfp4(x), ops.quantize_mxfp4(x)
    ((key, plan),) = plans._plans.items()
    frame = plan._launches[0]._frames[-1]
    device = driver()
    return {
        "launch": host_time(lambda: device.fire(frame, 0)),
        "memory from the pool and back": host_time(lambda: cupy.cuda.alloc(ROWS * K)),
        "array in fresh memory": host_time(lambda: cupy.ndarray(shape, u8)),
        "array in given memory": host_time(lambda: cupy.ndarray(shape, u8, place)),
        "place in given memory": host_time(lambda: place + 512),
        "shape, strides and address": host_time(
            lambda: (x.shape, x.strides, x.data.ptr, x.dtype.num, x.data.device_id)
        ),
        "current stream": host_time(lambda: plan._stream(0)),
        "looking up the plan": host_time(lambda: plans._plans.get(key)),
    }


def yardsticks() -> dict[str, float]:
    """Return microseconds of calls that are not ours, on arrays as small."""
    x, out = cupy.ones((ROWS, K), np.float32), cupy.empty((ROWS, K), np.float32)
    empty = cupy.RawKernel('extern "C" __global__ void empty(const float* x, float* out, long long n) {}', "empty")
    found = {
        "CuPy, x + x": host_time(lambda: x + x),
        "CuPy, add(x, x, out)": host_time(lambda: cupy.add(x, x, out)),
        "CuPy, an empty RawKernel": host_time(lambda: empty((1,), (128,), (x, out, ROWS * K))),
    }
    if "torch" in libraries():
        import torch

        a, b = to_torch(x), to_torch(out)
        found["torch, x + x"] = host_time(lambda: a + a)
        found["torch, add(x, x, out=out)"] = host_time(lambda: torch.add(a, a, out=b))
        found["torch, frexp(x), two results"] = host_time(lambda: torch.frexp(a))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    plans.forget()
    report = {"calls": call_times(), "parts": parts(), "yardsticks": yardsticks()}
    print(report["parts"])
    print(report["yardsticks"])
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
