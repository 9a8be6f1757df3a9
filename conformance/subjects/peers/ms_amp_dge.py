"""MS-AMP's slope of DGE: the text of its kernel, compiled for the host with the C library's `powf` (N25.3)."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from refnum.errors import UnsupportedError

from . import build, foreign
from .difference import Difference

NAME, KERNEL = "MS-AMP", "differentiable_quantize_derivative"
FILE, CHECKOUTS = "msamp/operators/fp4_quantize/quantize.cu", ("MS-AMP",)
_FIRST, _AFTER = "__device__ float power_derivative", f"void launch_{KERNEL}"
_PRELUDE = """
#include <cmath>
#include <cstdint>
#include <cstring>
#define __device__
#define __global__ static
struct __nv_bfloat16 { uint16_t bits; };
struct Place { int x; };
static Place blockIdx{0}, blockDim{1}, threadIdx{0};
static float __bfloat162float(__nv_bfloat16 x) {
    const uint32_t wide = (uint32_t)x.bits << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}
static __nv_bfloat16 __float2bfloat16(float x) {
    uint32_t wide;
    std::memcpy(&wide, &x, 4);
    if (x != x) return {0x7FFF};
    return {(uint16_t)((wide + 0x7FFF + (wide >> 16 & 1)) >> 16)};
}
"""
_LOOP = f"""
extern "C" void slopes(const uint16_t* x, uint16_t* out, float k, float most, int n) {{
    for (blockIdx.x = 0; blockIdx.x < n; ++blockIdx.x) {{
        {KERNEL}((const __nv_bfloat16*)x, (__nv_bfloat16*)out, k, most, n);
    }}
}}
"""


@functools.cache
def slopes() -> Callable[..., None]:
    """Return the kernel as a function of arrays; UnsupportedError when its text or a compiler is missing."""
    text = foreign.source(FILE, CHECKOUTS).read_text(encoding="utf-8")
    first, after = text.find(_FIRST), text.find(_AFTER)
    if not 0 <= first < after:
        raise UnsupportedError(f"{FILE} no longer has {KERNEL}")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "ms_amp_dge.cpp"
        source.write_text(_PRELUDE + text[first:after] + _LOOP, encoding="utf-8")
        function = build.build(source, ()).slopes
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_float, ctypes.c_int]
    return function


def dge(x: Any, k: int = 5, cap: float = 3, target: str = "bfloat16", compat: str = "ms-amp") -> Any:
    """differentiable_quantize_derivative."""
    given = np.ascontiguousarray(x)
    found = np.empty(given.shape, np.uint16)
    slopes()(given.ctypes.data, found.ctypes.data, k, cap, given.size)
    return found.view(ml_dtypes.bfloat16)


def available() -> tuple[bool, str]:
    """Return (usable here, the reason why not)."""
    try:
        slopes()
    except UnsupportedError as error:
        return False, str(error)
    return True, ""


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    kept = params.get("compat") == "ms-amp" and params.get("target") == params.get("input") == "bfloat16"
    return "" if kept else "its kernel takes and gives bfloat16, by its own edges"


def subjects() -> list[dict[str, Any]]:
    """Return the subject."""
    return [{
        "name": NAME, "kind": "peer", "available": available, "supports": _supports, "operations": {"dge": dge},
        "profiles": ("HOPPER",),
        "describe": lambda: {"MS-AMP": "checkout", "compiler": build.compiler_version(build.find_compiler())},
    }]  # fmt: skip


_PLACES = (0xC13D, 0xC35F, 0xCD5A, 0xCFDA, *range(0xD25A, 0xFD00, 0x280))
DIFFERENCES = (
    Difference(
        NAME,
        "dge",
        "rounded-power",
        "the exponent, the power and the quotient are rounded to float32: 22 slopes are one step off",
        "N25",
        tuple((place << 16, place << 16) for place in _PLACES),
        _PLACES[0] << 16,
        0x3D31,
        0x3D30,
    ),
)
"""Found in the checkout of 2025-12-01 with the powf of glibc 2.36."""
