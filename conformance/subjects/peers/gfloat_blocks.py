"""gfloat: generic small formats in Python. Blocks by OCP's floor rule, judged as OCP; casts by its array functions.

Two subjects, because gfloat computes the scale in the dtype that it is given: `gfloat` widens its input to float64,
where log2 of every float32 has the right floor; `gfloat-float32` hands over float32. A block goes through
`compute_scale_amax`, one call a block as its interface has it; its elements through `round_ndarray` and
`encode_ndarray`, the array twins of what `encode_block` calls (the tests compare the two).
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from refnum.errors import UnsupportedError

from ...cases.case import Case
from .difference import INF32, NANS, POSITIVE_NAN, Difference

NAME, NAME32 = "gfloat", "gfloat-float32"
MAX_ELEMENTS = 1 << 20
"""Elements a block call takes: gfloat's scale function takes one block, some 10 us of Python."""
MAX_SCALARS = 1 << 17
"""Elements an E8M0 cast takes: its array functions have no E8M0 below 2^-127, so the scalar ones are judged."""

_LARGEST = {
    "quantize_mxfp4": (MAX_ELEMENTS, "gfloat takes one block a call"),
    "quantize_mx": (MAX_ELEMENTS, "gfloat takes one block a call"),
    "encode_e8m0": (MAX_SCALARS, "gfloat's E8M0 cast takes one number a call"),
}
"""Operation -> the most elements that are judged at once, and why."""

_FORMATS = {"E2M1": "ocp_e2m1", "E2M3": "ocp_e2m3", "E3M2": "ocp_e3m2", "E4M3": "ocp_e4m3", "E5M2": "ocp_e5m2",
            "MXINT8": "ocp_int8", "E8M0": "ocp_e8m0"}  # fmt: skip
_ROUNDING = {"nearest": "TiesToEven", "up": "TowardPositive", "down": "TowardZero"}


def _e8m0(rounding: str, saturate: bool, zero_to: int, negative_to: int) -> list[Difference]:
    """gfloat's E8M0 takes signed numbers and has no place for what lies below 2^-127."""
    params = {"rounding": rounding, "saturate": saturate}
    return [
        Difference(NAME, "encode_e8m0", "e8m0-small-is-nan", "zero, and what would round below 2^-127, is NaN", "N1",
                    ((0, zero_to),), 0, 0, 255, params=params),
        Difference(NAME, "encode_e8m0", "e8m0-negative-is-nan", "a negative number is NaN; the model takes |x|", "N1",
                    ((0x80000000, negative_to),), 0x80000000, 0, 255, params=params),
    ]  # fmt: skip


_LOG2_SLACK = 64
"""ulps below a power of two within which a float32 log2 may already be whole; 44 were measured."""

_EMAX = {"E2M1": 2, "E2M3": 2, "E3M2": 4, "E4M3": 8, "E5M2": 15, "MXINT8": 0}

DIFFERENCES = (
    *_e8m0("up", False, 0x00200000, 0xFF000000), *_e8m0("up", True, 0x00200000, 0xFF7FFFFF),
    *_e8m0("down", False, 0x003FFFFF, 0xFF7FFFFF), *_e8m0("down", True, 0x003FFFFF, 0xFF7FFFFF),
    *_e8m0("nearest", False, 0x002FFFFF, 0xFF3FFFFF), *_e8m0("nearest", True, 0x002FFFFF, 0xFF7FFFFF),
    *(Difference(NAME, "encode_e8m0", "e8m0-ties-to-even-code", "1.5*2^k goes to the even code, in the model up", "N1",
                  ((0x00600000,) * 2, *(((field << 23) | 0x400000,) * 2 for field in range(2, top, 2))),
                 0x00600000, 1, 0, params={"rounding": "nearest", "saturate": saturate})
      for saturate, top in ((False, 255), (True, 254))),
    Difference(NAME, "encode_e4m3", "e4m3-nan-code", "NaN is 0xFF, the one NaN code of the format; the model's is 0x7F",
               "N2",  NANS, 0x7F800001, 0x7F, 0xFF),
    Difference(NAME, "encode_e4m3", "e4m3-nan-code", "an overflow is 0xFF; the model's NaN keeps the sign", "N2", 
               ((0x43E80001, INF32),), 0x43E80001, 0x7F, 0xFF, params={"overflow": "nan"}),
    *(Difference(name, operation, "inf-block-clips", "an Inf in a block clips its scale to 2^127, byte 254; in the "
                 "model the block is NaN", "N4",  ((INF32, INF32),), INF32, 255, 254, of="amax")
      for name in (NAME, NAME32) for operation in ("quantize_mxfp4", "quantize_mx")),
    *(Difference(NAME32, operation, "log2-below-power-of-two", "floor(log2(amax)) in float32 is one too large just "
                 "below a power of two", "N3", 
                 tuple(((field << 23) - _LOG2_SLACK, (field << 23) - 1) for field in range(1, 256)),
                 0x0D7FFFFF, 26 - emax, 27 - emax, of="amax", exact=False, params=params)
      for operation, emax, params in (("quantize_mxfp4", 2, {}), *(("quantize_mx", emax, {"element": element})
                                                                   for element, emax in _EMAX.items()))),
    *(Difference(name, "quantize_mx", "nan-scale-codes", "element codes under byte 255 are the code of NaN; the model "
                 "writes zeros", "N4",  (POSITIVE_NAN,), POSITIVE_NAN[0], 0, code, of="amax", output="codes",
                 params={"element": element})
      for name in (NAME, NAME32) for element, code in (("E4M3", 0xFF), ("E5M2", 0xFF))),
    *(Difference(name, "quantize_mx", "mxint8-minus-two", "a negative element that rounds to 2 becomes -2, 0x80; the "
                 "model's MXINT8 is symmetric and gives -127/64, 0x81", "N1", 
                 ((0x007F8000, 0x007FFFFF), *(((field << 23) | 0x7F0000, (field << 23) | 0x7FFFFF)
                                              for field in range(1, 255))),
                 0x807F8000, 0x81, 0x80, of="amax", output="codes", exact=False, params={"element": "MXINT8"})
      for name in (NAME, NAME32)),
)  # fmt: skip
"""Found in 0.5.2 with NumPy 2.4. `gfloat` widens to float64 and there differs from OCP on no finite block
but MXINT8's -2."""


def available() -> tuple[bool, str]:
    """Return (installed here, the reason why not)."""
    found = importlib.util.find_spec("gfloat") is not None
    return found, "" if found else "gfloat is not installed; install refnum[peers]"


def describe() -> dict[str, Any]:
    """Return gfloat's version."""
    return {"gfloat": importlib.metadata.version("gfloat")}


def outside(case: Case) -> str:
    """Return why a case is too large to be judged, or an empty string."""
    most, why = _LARGEST.get(case.operation, (case.elements, ""))
    return f"{why}; at most {most} elements are judged at once" if case.elements > most else ""


def _info(element: str) -> Any:
    import gfloat.formats

    return getattr(gfloat.formats, f"format_info_{_FORMATS[element]}")


def _encode(element: str, x: np.ndarray, rounding: str, saturate: bool) -> np.ndarray:
    import gfloat

    info = _info(element)
    mode = getattr(gfloat.RoundMode, _ROUNDING[rounding])
    with np.errstate(all="ignore"):
        rounded = gfloat.round_ndarray(info, x, mode, saturate)
        return gfloat.encode_ndarray(info, rounded).astype(np.uint8)


def _widen(x: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # a signalling NaN is quieted, with a warning
        return x.astype(np.float32).astype(dtype)


def quantize_blocks(x: np.ndarray, element: str, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Quantise [M, K] block by block in `dtype` -> (codes u8 [M, K], scales u8 [M, K/32])."""
    import gfloat.block

    info, wide = _info(element), _widen(x, dtype)
    blocks = wide.reshape(-1, 32)
    if info.num_nans == 0 and np.isnan(blocks).any():
        raise UnsupportedError(f"gfloat raises ValueError for a NaN in a block of {element}.")
    with np.errstate(all="ignore"):
        scales = np.array([gfloat.block.compute_scale_amax(info.emax, block) for block in blocks], np.float64)
        scaled = (blocks / scales[:, None].astype(dtype)) if blocks.size else blocks
    if info.is_twos_complement and np.isinf(scaled).any():
        raise UnsupportedError("gfloat has no code for an infinite element of MXINT8.")
    codes = _encode(element, scaled, "nearest", True)
    return codes.reshape(x.shape), scale_codes(scales).reshape(x.shape[0], x.shape[1] // 32)


def scale_codes(scales: np.ndarray) -> np.ndarray:
    """E8M0 codes of the scales as `encode_block` encodes them: the scalar functions, once for each distinct scale."""
    distinct, inverse = np.unique(scales, return_inverse=True)
    return np.array([_scale_code(float(scale)) for scale in distinct], np.uint8)[inverse]


@functools.cache
def _scale_code(scale: float) -> int:
    import gfloat

    info = _info("E8M0")
    return int(gfloat.encode_float(info, gfloat.round_float(info, scale, gfloat.RoundMode.TiesToEven, True)))


def encode_e2m1(x: np.ndarray) -> np.ndarray:
    """round_ndarray and encode_ndarray in float64, saturating."""
    if np.isnan(x.astype(np.float32)).any():
        raise UnsupportedError("gfloat has no E2M1 code for NaN and refuses it.")
    return _encode("E2M1", _widen(x, np.float64), "nearest", True)


def encode_e4m3(x: np.ndarray, overflow: str = "saturate") -> np.ndarray:
    """round_ndarray and encode_ndarray in float64; `overflow` is gfloat's `sat`."""
    return _encode("E4M3", _widen(x, np.float64), "nearest", overflow == "saturate")


def encode_e8m0(x: np.ndarray, rounding: str = "up", saturate: bool = False) -> np.ndarray:
    """round_float and encode_float, one number at a time: TowardPositive, TowardZero or TiesToEven."""
    import gfloat

    info, mode = _info("E8M0"), getattr(gfloat.RoundMode, _ROUNDING[rounding])
    wide = _widen(x, np.float64)
    rounded = (gfloat.round_float(info, value, mode, saturate) for value in wide.reshape(-1).tolist())
    return np.array([gfloat.encode_float(info, value) for value in rounded], np.uint8).reshape(x.shape)


def _decode(element: str, codes: np.ndarray, dtype: str) -> np.ndarray:
    import gfloat

    values = gfloat.decode_ndarray(_info(element), codes)
    return values.astype(np.float32).astype(np.float32 if dtype == "float32" else ml_dtypes.bfloat16)


def decode_e2m1(codes: np.ndarray, dtype: str = "float32") -> np.ndarray:
    """decode_ndarray, then float32 or bfloat16."""
    return _decode("E2M1", codes, dtype)


def decode_e4m3(codes: np.ndarray, dtype: str = "float32") -> np.ndarray:
    """decode_ndarray, then float32 or bfloat16."""
    return _decode("E4M3", codes, dtype)


def decode_e8m0(codes: np.ndarray, dtype: str = "float32") -> np.ndarray:
    """decode_ndarray, then float32 or bfloat16."""
    return _decode("E8M0", codes, dtype)


def _quantisers(dtype: Any) -> dict[str, Callable[..., Any]]:
    def quantize_mx(x: np.ndarray, element: str = "E2M1") -> tuple[np.ndarray, np.ndarray]:
        return quantize_blocks(x, element, dtype)

    def quantize_mxfp4(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, scales = quantize_blocks(x, "E2M1", dtype)
        return codes[:, 0::2] | codes[:, 1::2] << np.uint8(4), scales

    return {"quantize_mx": quantize_mx, "quantize_mxfp4": quantize_mxfp4}


def subjects() -> list[dict[str, Any]]:
    """Return both subjects of this peer."""
    casts: tuple[Callable[..., Any], ...] = (encode_e2m1, encode_e4m3, encode_e8m0, decode_e2m1, decode_e4m3,
                                             decode_e8m0)  # fmt: skip
    shared: Mapping[str, Any] = {
        "kind": "peer",
        "profiles": ("OCP",),
        "available": available,
        "describe": describe,
        "outside": outside,
    }
    named = {operation.__name__: operation for operation in casts}
    return [{**shared, "name": NAME, "operations": {**named, **_quantisers(np.float64)}},
            {**shared, "name": NAME32, "operations": _quantisers(np.float32)}]  # fmt: skip
