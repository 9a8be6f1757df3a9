"""NVIDIA's cuda_fp4.h, cuda_fp6.h and cuda_fp8.h on the host: the conversions that CUDA kernels start from.

The headers come with the wheels nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl (or a toolkit); a small
C++ file with loops around them is compiled once (`build`). Their scalar conversions are an oracle independent of
this project. The block quantiser built of them is the textbook one: E8M0 of amax / maximum rounded up, element =
conversion of x times the reciprocal of the scale; NOSAT is judged as HOPPER, SATFINITE as TE.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from refnum.arrays import float32_bits
from refnum.errors import ArgumentError, DtypeError, UnsupportedError
from refnum.formats import get_format
from refnum.profiles import Profile, get_profile

from . import build
from .difference import INF32, POSITIVE_NAN, Difference

NAME = "nvidia-headers"
HEADERS = ("cuda_fp4.h", "cuda_fp6.h", "cuda_fp8.h", "crt/host_defines.h", "nv/target")
TARGETS = {"E2M1": 0, "E2M3": 1, "E3M2": 2, "E4M3": 3, "E5M2": 4, "E8M0": 5}
INPUTS = {"float32": 0, "bfloat16": 1, "float16": 2}
TOWARD_ZERO, SATURATE, NEAREST_SCALE = 1, 2, 4


_LOST = {"E2M1": 0x01400001, "E2M3": 0x01700001, "E3M2": 0x02600001, "E4M3": 0x04600001, "E5M2": 0x07E00001}
"""Element -> the one amax (m * 2^k + 1 ulp) whose quotient by m is subnormal and rounds down to a power of two."""

_CODES_OF_NAN = {"E2M1": 0x07, "E2M3": 0x1F, "E3M2": 0x1F, "E4M3": 0x7F, "E5M2": 0x7F}


def _of_quantiser(operation: str, element: str) -> list[Difference]:
    """Both known differences of the block quantiser with one element format."""
    params = {"element": element} if operation == "quantize_mx" else {}
    lost, nan = _LOST[element], _CODES_OF_NAN[element]
    codes = 0x77 if operation == "quantize_mxfp4" else nan
    words = "amax / m in float32 is subnormal and drops the last bit: the scale is 2^-127, not 2^-126"
    unread = "element codes under byte 255 are the conversion of NaN; the model writes zeros"
    return [
        Difference(NAME, operation, "rceil-subnormal-quotient", words, "N3",
                   ((lost, lost),), lost, 1, 0, of="amax", params=params),
        Difference(NAME, operation, "nan-scale-codes", unread, "N4",  ((INF32, INF32),), INF32, 0, codes, of="amax",
                   output="codes", params=params, profile="HOPPER"),
        Difference(NAME, operation, "nan-scale-codes", unread, "N4",  (POSITIVE_NAN,), POSITIVE_NAN[0], 0, codes,
                   of="amax", output="codes", params=params),
    ]  # fmt: skip


DIFFERENCES = (
    *_of_quantiser("quantize_mxfp4", "E2M1"),
    *(difference for element in _LOST for difference in _of_quantiser("quantize_mx", element)),
    *(Difference(NAME, "decode_e4m3", "nan-payload", "NaN decodes with all payload bits set", "N1", 
                 ((0x7F, 0x7F), (0xFF, 0xFF)), 0x7F, golden, peer, of="codes", params={"dtype": dtype})
      for dtype, golden, peer in (("float32", 0x7FC00000, 0x7FFFFFFF), ("bfloat16", 0x7FC0, 0x7FFF))),
    *(Difference(NAME, "decode_e8m0", "nan-payload", "NaN decodes to bfloat16 0x7FFF", "N1",  ((0xFF, 0xFF),), 0xFF,
                 golden, peer, of="codes", params={"dtype": dtype})
      for dtype, golden, peer in (("float32", 0x7FC00000, 0x7FFF0000), ("bfloat16", 0x7FC0, 0x7FFF))),
)  # fmt: skip
"""Found in the headers of CUDA 13.2 and 13.5. Every scalar conversion to a code agrees with the model everywhere."""


@functools.cache
def library() -> ctypes.CDLL:
    """Return the compiled shim; UnsupportedError says what is missing."""
    shim = build.build(Path(__file__).with_suffix(".cpp"), HEADERS)
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    shim.encode.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, pointer, pointer, count]
    shim.encode_patterns.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_uint32, pointer, count]
    shim.decode.argtypes = [ctypes.c_int, pointer, pointer, count]
    shim.quantize.argtypes = [ctypes.c_int, ctypes.c_int, pointer, ctypes.c_float, pointer, pointer, count]
    shim.scale_patterns.argtypes = [ctypes.c_int, ctypes.c_float, ctypes.c_uint32, pointer, count]
    return shim


def available() -> tuple[bool, str]:
    """Return (usable here, the reason why not)."""
    try:
        library()
    except (UnsupportedError, OSError) as error:
        return False, str(error)
    return True, ""


def describe() -> dict[str, Any]:
    """Return the headers' CUDA version, the compiler and its flags."""
    version = library().header_version()
    return {
        "cuda_headers": f"{version // 1000}.{version % 1000 // 10}",
        "compiler": build.compiler_version(build.find_compiler()),
        "flags": " ".join(build.FLAGS),
    }


def _call(status: int) -> None:
    if status:
        raise ArgumentError("The header shim was given a format that it does not know.")


_MODES = {
    **{(target, "nearest"): 0 for target in ("E2M1", "E2M3", "E3M2", "E4M3", "E5M2")},
    **{(target, "toward_zero"): TOWARD_ZERO for target in ("E2M1", "E2M3", "E3M2")},
    ("E8M0", "up"): 0, ("E8M0", "down"): TOWARD_ZERO, ("E8M0", "nearest"): NEAREST_SCALE,
}  # fmt: skip


def _mode(target: str, rounding: str, saturate: bool) -> int:
    if (target, rounding) not in _MODES or (_MODES[target, rounding] == NEAREST_SCALE and not nearest_scale()):
        raise UnsupportedError(f"These CUDA headers do not round {target} {rounding}.")
    return _MODES[target, rounding] + SATURATE * saturate


@functools.cache
def nearest_scale() -> bool:
    """Whether the headers round E8M0 to nearest, as 13.5's do: older ones take that mode for another."""
    x, codes = np.array([1.25, 1.75], np.float32), np.zeros(2, np.uint8)
    _call(library().encode(TARGETS["E8M0"], NEAREST_SCALE, 0, x.ctypes.data, codes.ctypes.data, 2))
    return codes.tolist() == [127, 128]


def _native(x: np.ndarray) -> np.ndarray:
    """Return an array in C order; DtypeError for another byte order, which C++ cannot see."""
    if not x.dtype.isnative:
        raise DtypeError(f"x has dtype {x.dtype}; allowed is the machine's own byte order")
    return np.ascontiguousarray(x)


def encode(target: str, x: np.ndarray, rounding: str = "nearest", saturate: bool = True) -> np.ndarray:
    """Convert each element by the headers: x float32, bfloat16 or float16 of any shape -> codes u8.

    rounding: nearest or toward_zero (E4M3 and E5M2 nearest only), for E8M0 up, down or nearest (CUDA 13.5).
    """
    x = _native(x)
    codes = np.empty(x.shape, np.uint8)
    mode = _mode(target, rounding, saturate)
    _call(library().encode(TARGETS[target], mode, INPUTS[x.dtype.name], x.ctypes.data, codes.ctypes.data, x.size))
    return codes


def encode_patterns(
    target: str, first: int, count: int, rounding: str = "nearest", saturate: bool = True
) -> np.ndarray:
    """Convert the float32 patterns first, first + 1, ..., generated in C++ -> codes u8 [count]."""
    codes = np.empty(count, np.uint8)
    mode = _mode(target, rounding, saturate)
    _call(library().encode_patterns(TARGETS[target], mode, first, codes.ctypes.data, count))
    return codes


def decode(target: str, codes: np.ndarray) -> np.ndarray:
    """Convert codes u8 to float32 by the headers (through half, or bfloat16 for E8M0)."""
    codes = np.ascontiguousarray(codes)
    values = np.empty(codes.shape, np.float32)
    _call(library().decode(TARGETS[target], codes.ctypes.data, values.ctypes.data, codes.size))
    return values


def scale_patterns(maximum: float, first: int, count: int, *, saturate: bool) -> np.ndarray:
    """E8M0 bytes of amax / maximum rounded up for the amax patterns first, first + 1, ... -> u8 [count]."""
    scales = np.empty(count, np.uint8)
    _call(library().scale_patterns(SATURATE * saturate, maximum, first, scales.ctypes.data, count))
    return scales


def quantize_mx(x: np.ndarray, profile: Profile | str, element: str = "E2M1") -> tuple[np.ndarray, np.ndarray]:
    """Block quantiser of the headers' parts: x [M, K] -> (codes u8 [M, K], scales u8 [M, K/32])."""
    profile = get_profile(profile)
    m, k = x.shape
    wide = np.ascontiguousarray(float32_bits(_native(x)))
    codes, scales = np.empty((m, k), np.uint8), np.empty((m, k // 32), np.uint8)
    mode = SATURATE * (profile.nonfinite == "satfinite")
    maximum = float(get_format(element).max_value)
    _call(library().quantize(TARGETS[element], mode, wide.ctypes.data, maximum, codes.ctypes.data, scales.ctypes.data,
                             scales.size))  # fmt: skip
    return codes, scales


def quantize_mxfp4(x: np.ndarray, profile: Profile | str) -> tuple[np.ndarray, np.ndarray]:
    """As `quantize_mx` with E2M1, two codes a byte as __nv_fp4x2_storage_t has them: first in the low nibble."""
    codes, scales = quantize_mx(x, profile)
    return codes[:, 0::2] | codes[:, 1::2] << np.uint8(4), scales


def encode_e2m1(x: np.ndarray) -> np.ndarray:
    """__nv_cvt_*_to_fp4, E2M1, nearest."""
    return encode("E2M1", x)


def encode_e4m3(x: np.ndarray, overflow: str = "saturate") -> np.ndarray:
    """__nv_cvt_*_to_fp8, E4M3; `overflow` saturate is __NV_SATFINITE, nan is __NV_NOSAT."""
    return encode("E4M3", x, saturate=overflow == "saturate")


def encode_e8m0(x: np.ndarray, rounding: str = "up", saturate: bool = False) -> np.ndarray:
    """__nv_cvt_*_to_e8m0 of |x| with cudaRoundPosInf (up), cudaRoundZero (down) or cudaRoundNearest."""
    return encode("E8M0", x, rounding, saturate)


def decode_e2m1(codes: np.ndarray, dtype: str = "float32") -> np.ndarray:
    """__nv_cvt_fp4_to_halfraw, widened."""
    return _as(decode("E2M1", codes), dtype)


def decode_e4m3(codes: np.ndarray, dtype: str = "float32") -> np.ndarray:
    """__nv_cvt_fp8_to_halfraw, widened."""
    return _as(decode("E4M3", codes), dtype)


def decode_e8m0(codes: np.ndarray, dtype: str = "float32") -> np.ndarray:
    """__nv_cvt_e8m0_to_bf16raw, widened."""
    return _as(decode("E8M0", codes), dtype)


def _as(values: np.ndarray, dtype: str) -> np.ndarray:
    """Cut float32 to bfloat16 by its upper half: exact for every value of these formats."""
    if dtype == "float32":
        return values
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(ml_dtypes.bfloat16)


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if operation == "encode_e8m0" and params.get("rounding") == "nearest" and not (available()[0] and nearest_scale()):
        return "cuda_fp8.h of this version converts to E8M0 with cudaRoundPosInf and cudaRoundZero only"
    if operation == "quantize_mx" and params.get("element") == "MXINT8":
        return "the CUDA headers have no MXINT8"
    return ""


def subjects() -> list[dict[str, Any]]:
    """Return the subject of this peer."""
    operations = (encode_e2m1, encode_e4m3, encode_e8m0, decode_e2m1, decode_e4m3, decode_e8m0, quantize_mxfp4,
                  quantize_mx)  # fmt: skip
    return [{
        "name": NAME, "kind": "peer", "operations": {operation.__name__: operation for operation in operations},
        "profiles": ("HOPPER", "TE"), "available": available, "describe": describe, "supports": _supports,
        "levels": {"quantize_mxfp4": 1, "quantize_mx": 1, "decode_e4m3": 3, "decode_e8m0": 3},
    }]  # fmt: skip
