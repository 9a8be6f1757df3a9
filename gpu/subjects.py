"""What this package offers to be judged, for the entry-point group `refnum.subjects`."""

from __future__ import annotations

import importlib.util
from typing import Any

from . import compile as build
from . import driver, host, ops

HOST_OPERATIONS = (
    "quantize_mxfp4",
    "dequantize_mxfp4",
    "quantize_fp8_tiles",
    "dequantize_fp8_tiles",
    "fp8_to_mxfp4",
    "mxfp4_to_fp8",
    "mxfp4_to_fp8_columns",
    "mxfp4_columns",
    "fp8_columns",
    "swiglu_quantize",
    "swiglu_backward",
    "pack_payload",
    "unpack_payload",
    "permute_pad",
    "unpermute",
    "encode_e2m1",
    "encode_e4m3",
    "encode_e8m0",
    "decode_e2m1",
    "decode_e4m3",
    "decode_e8m0",
)

GPU_OPERATIONS = tuple(name for name in ops.__all__ if name != "available")


def describe_gpu() -> dict[str, str]:
    """Return the device, the compiler and its flags, or the reason why no kernel can run."""
    usable, reason = ops.available()
    if not usable:
        return {"available": "no", "reason": reason}
    return {
        "available": "yes",
        "compute_capability": ".".join(map(str, driver.driver().capability(0))),
        "compiler": f"NVRTC {build.nvrtc().version}",
        "flags": " ".join(build.FLAGS),
        "source_sha256": " ".join(build.read_source(name).digest[:16] for name in build.kernel_names()),
    }


def available_gpu() -> tuple[bool, str]:
    """Return (kernels can be judged here, reason if not): they are given CuPy arrays."""
    if importlib.util.find_spec("cupy") is None:
        return False, "CuPy is not installed: install refnum[gpu]"
    return ops.available()


def subjects() -> list[dict[str, Any]]:
    """Return the declarations of our kernels: a name, operation -> callable, claimed profiles, availability."""
    return [
        {
            "name": "host",
            "kind": "host",
            "operations": {name: getattr(host, name) for name in HOST_OPERATIONS},
            "profiles": ["HOPPER", "OCP"],
            "available": host.available,
            "describe": host.describe,
        },
        {
            "name": "gpu",
            "kind": "gpu",
            "operations": {name: getattr(ops, name) for name in GPU_OPERATIONS},
            "profiles": ["HOPPER", "OCP"],
            "arrays": "cupy",
            "available": available_gpu,
            "describe": describe_gpu,
        },
    ]
