"""cuda_fp4.h and cuda_fp8.h as device code, and the FP8 conversion instructions of Hopper, through CuPy and NVRTC."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refnum.errors import UnsupportedError

from . import build
from .difference import Difference

HEADERS, CVT = "nvidia-headers/cuda", "hopper-cvt"
_THREADS = 256


def include_options() -> tuple[str, ...]:
    """Return the compiler's include options: every folder of CUDA headers here, and what CCCL keeps beside them."""
    roots = build.include_roots()
    return tuple(f"-I{path}" for root in roots for path in (root, root / "cccl") if path.is_dir())


@functools.cache
def module() -> Any:
    """Return the compiled kernels; UnsupportedError with NVRTC's first complaint."""
    import cupy

    source = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
    try:
        compiled = cupy.RawModule(code=source, options=("--std=c++17", *include_options()), backend="nvrtc")
        compiled.compile()
    except cupy.cuda.compiler.CompileException as error:
        first = next((line for line in str(error).splitlines() if "error" in line), "no message")
        raise UnsupportedError(f"NVRTC could not compile the headers: {first[:200]}") from error
    return compiled


def available() -> tuple[bool, str]:
    """Return (usable here, the reason why not)."""
    if importlib.util.find_spec("cupy") is None:
        return False, "CuPy is not installed: install refnum[gpu]"
    import cupy

    try:
        if not cupy.cuda.is_available():
            return False, "CuPy sees no GPU"
        module()
    except UnsupportedError as error:
        return False, str(error)
    except Exception as error:  # a driver may fail in any way
        return False, f"{type(error).__name__}: {error}"
    return True, ""


def describe() -> dict[str, Any]:
    """Return the device, and the versions of the driver and of NVRTC."""
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return {"device": name, "cuda_driver": cupy.cuda.runtime.driverGetVersion(), "nvrtc": cupy.cuda.nvrtc.getVersion()}


def _run(kernel: str, given: Any, dtype: str, mode: int = 0) -> Any:
    import cupy

    given = cupy.ascontiguousarray(given)
    result = cupy.empty(given.shape, dtype)
    if given.size:
        grid = (-(-given.size // _THREADS),)
        module().get_function(kernel)(grid, (_THREADS,), (given, result, given.size, mode))
    return result


def _encode(kernel: str, x: Any, mode: int = 0) -> Any:
    name = {"float32": "float32", "float16": "float16", "uint16": "bfloat16"}[x.dtype.name]
    return _run(f"{kernel}_{name}", x, "uint8", mode)


def encode_e2m1(x: Any) -> Any:
    """__nv_cvt_float_to_fp4."""
    return _encode("encode_e2m1", x)


def encode_e4m3(x: Any, overflow: str = "saturate") -> Any:
    """__nv_cvt_float_to_fp8, SATFINITE or NOSAT."""
    return _encode("encode_e4m3", x, int(overflow == "saturate"))


def encode_e8m0(x: Any, rounding: str = "up", saturate: bool = False) -> Any:
    """__nv_cvt_float_to_e8m0, cudaRoundPosInf or cudaRoundZero."""
    return _encode("encode_e8m0", x, int(saturate) | 2 * (rounding == "down"))


def decode_e2m1(codes: Any, dtype: str = "float32") -> Any:
    """__nv_cvt_fp4_to_halfraw, widened."""
    return _run("decode_e2m1", codes, "float32")


def decode_e4m3(codes: Any, dtype: str = "float32") -> Any:
    """__nv_cvt_fp8_to_halfraw, widened."""
    return _run("decode_e4m3", codes, "float32")


def decode_e8m0(codes: Any, dtype: str = "float32") -> Any:
    """__nv_cvt_e8m0_to_bf16raw, widened."""
    return _run("decode_e8m0", codes, "float32")


def cvt_encode_e4m3(x: Any, overflow: str = "saturate") -> Any:
    """cvt.rn.satfinite.e4m3x2.f32."""
    return _encode("cvt_e4m3", x)


def cvt_decode_e4m3(codes: Any, dtype: str = "float32") -> Any:
    """cvt.rn.f16x2.e4m3x2, widened."""
    return _run("cvt_from_e4m3", codes, "float32")


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if params.get("dtype") == "bfloat16":
        return "judged on float32"
    if params.get("rounding") == "nearest":
        return "judged with cudaRoundPosInf and cudaRoundZero"
    return ""


def _supports_cvt(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if params.get("overflow") == "nan":
        return "the instruction saturates"
    return _supports(operation, profile, params)


def subjects() -> list[dict[str, Any]]:
    """Return the headers on the device, and the instructions."""
    shared = {"kind": "peer", "arrays": "cupy", "available": available, "describe": describe, "profiles": ("HOPPER",)}
    functions = (encode_e2m1, encode_e4m3, encode_e8m0, decode_e2m1, decode_e4m3, decode_e8m0)
    return [
        {**shared, "name": HEADERS, "supports": _supports, "operations": {f.__name__: f for f in functions}},
        {
            **shared,
            "name": CVT,
            "supports": _supports_cvt,
            "operations": {"encode_e4m3": cvt_encode_e4m3, "decode_e4m3": cvt_decode_e4m3},
        },
    ]


_PAYLOAD = "NaN decodes with all payload bits set"

DIFFERENCES = (
    *(
        Difference(
            name,
            "decode_e4m3",
            "nan-payload",
            _PAYLOAD,
            "N1",
            ((0x7F, 0x7F), (0xFF, 0xFF)),
            0x7F,
            0x7FC00000,
            0x7FFFFFFF,
            of="codes",
        )
        for name in (HEADERS, CVT)
    ),
    Difference(
        HEADERS,
        "decode_e8m0",
        "nan-payload",
        "NaN decodes to bfloat16 0x7FFF",
        "N1",
        ((0xFF, 0xFF),),
        0xFF,
        0x7FC00000,
        0x7FFF0000,
        of="codes",
    ),
)
"""Found on an H200 with CUDA 13.0: every conversion to a code agrees with the model everywhere."""
