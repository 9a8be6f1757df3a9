"""PyTorch's own float8 dtypes, on the CPU. torch is imported when an operation is called, never before.

`encode_e4m3` saturates since torch 2.13 and gave NaN before: the installed one is asked. There is no float4 cast.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from typing import Any

from .difference import NEGATIVE_NAN, Difference

NAME = "torch"

_NEAREST = {"rounding": "nearest", "saturate": False}

DIFFERENCES = (
    Difference(NAME, "encode_e4m3", "e4m3-nan-sign", "a NaN keeps its sign: 0xFF; the model gives the canonical 0x7F",
               "N2",  (NEGATIVE_NAN,), 0xFF800001, 0x7F, 0xFF),
    Difference(NAME, "encode_e8m0", "e8m0-nearest-bottom-binade", "rounded by the mantissa's top bit, as if normal: "
               "subnormals between 2^-127 and their midpoint 1.5*2^-127 go up", "N1", 
               ((0x00400001, 0x005FFFFF), (0x80400001, 0x805FFFFF)), 0x00400001, 0, 1, params=_NEAREST),
    Difference(NAME, "decode_e4m3", "nan-payload", "NaN codes decode with other payload or sign bits", "N1", 
               ((0x7F, 0x7F), (0xFF, 0xFF)), 0x7F, 0x7FC00000, 0x7FF00000, of="codes", exact=False,
               params={"dtype": "float32"}),
    Difference(NAME, "decode_e8m0", "e8m0-nan-is-signalling", "byte 255 decodes to the signalling NaN 0x7F800001", "N1",
                ((0xFF, 0xFF),), 0xFF, 0x7FC00000, 0x7F800001, of="codes", params={"dtype": "float32"}),
)  # fmt: skip
"""Found in 2.13.0 on x86-64; the payload of a decoded NaN may depend on the vector unit: only its place is asserted."""


def available() -> tuple[bool, str]:
    """Return (installed here with the dtypes, the reason why not)."""
    if importlib.util.find_spec("torch") is None:
        return False, "torch is not installed; install refnum[torch]"
    import torch

    missing = [name for name in ("float8_e4m3fn", "float8_e8m0fnu") if not hasattr(torch, name)]
    return not missing, f"torch {torch.__version__} has no {', '.join(missing)}" if missing else ""


@functools.cache
def e4m3_overflow() -> str:
    """Return the installed torch's policy for a float8_e4m3fn overflow: `saturate` or `nan`."""
    import torch

    code = int(torch.tensor([1e30]).to(torch.float8_e4m3fn).view(torch.uint8)[0])
    return "saturate" if code == 0x7E else "nan"


def encode_e4m3(x: Any, overflow: str = "saturate") -> Any:
    """to(float8_e4m3fn)."""
    import torch

    return x.to(torch.float8_e4m3fn).view(torch.uint8)


def encode_e8m0(x: Any, rounding: str = "nearest", saturate: bool = False) -> Any:
    """to(float8_e8m0fnu): nearest, midpoint up, of |x|; overflow and Inf are NaN."""
    import torch

    return x.to(torch.float8_e8m0fnu).view(torch.uint8)


def decode_e4m3(codes: Any, dtype: str = "float32") -> Any:
    """float8_e4m3fn to float32 or bfloat16."""
    import torch

    return codes.view(torch.float8_e4m3fn).to(getattr(torch, dtype))


def decode_e8m0(codes: Any, dtype: str = "float32") -> Any:
    """float8_e8m0fnu to float32 or bfloat16."""
    import torch

    return codes.view(torch.float8_e8m0fnu).to(getattr(torch, dtype))


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    usable, reason = available()
    if not usable:  # what it would do here cannot be asked
        return reason
    if operation == "encode_e4m3" and params.get("overflow") != e4m3_overflow():
        return f"this torch's float8_e4m3fn cast does overflow={e4m3_overflow()}"
    if operation == "encode_e8m0" and (params.get("rounding") != "nearest" or params.get("saturate")):
        return "torch's float8_e8m0fnu rounds to nearest and does not saturate"
    return ""


def subjects() -> list[dict[str, Any]]:
    """Return the subject of this peer."""
    operations = (encode_e4m3, encode_e8m0, decode_e4m3, decode_e8m0)
    return [{
        "name": NAME, "kind": "peer", "arrays": "torch", "available": available, "supports": _supports,
        "operations": {operation.__name__: operation for operation in operations},
        "levels": {"decode_e4m3": 3, "decode_e8m0": 3, "encode_e4m3": 3},
        "describe": lambda: {"torch": importlib.metadata.version("torch")},
    }]  # fmt: skip
