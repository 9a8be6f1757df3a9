"""What this package offers to be judged, for the entry-point group `refnum.subjects`."""

from __future__ import annotations

from typing import Any

from . import host

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
    "encode_e2m1",
    "encode_e4m3",
    "decode_e2m1",
    "decode_e4m3",
)


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
        }
    ]
