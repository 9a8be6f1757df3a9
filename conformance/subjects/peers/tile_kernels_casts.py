"""DeepSeek TileKernels: its casts as kernels on a GPU, and the torch reference that stands beside them, on any device.

Float32 scales are judged as the bytes that hold them. FP4 lifts amax to 6 * 2^-126 and FP8 to 1e-4, so each kind has
the profile with that floor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import foreign
from . import tile_kernels_calls as calls
from .difference import (
    INF32,
    POSITIVE_NAN,
    Difference,
    decode_scale_shifted,
    nan_block_is_zero_scale,
    nan_scale_codes,
    tile_scale,
    zero_tile_scale,
)
from .torch_peer import torch_subjects

NAME, REFERENCE = "TileKernels", "TileKernels-torch"
FP4_PROFILE = f"HOPPER+amax_floor={0x01C00000}+zero_scale=1"
FP8_PROFILE = f"HOPPER+amax_floor={0x38D1B717}+zero_scale=105"


def _operations(library: Callable[[], Any]) -> dict[str, dict[str, Callable[..., Any]]]:
    """Return the operations that are judged by the profile of FP4, and those judged by that of FP8."""

    def run(operation: str, params: Mapping[str, Any], **given: Any) -> Any:
        found = calls.call(operation, library(), params)(*calls.inputs(operation, given))
        results = calls.results(operation, params, found)
        return tuple(results) if len(results) > 1 else results[0]

    def quantize_mxfp4(x: Any) -> Any:
        return run("quantize_mxfp4", {}, x=x)

    def fp8_to_mxfp4(codes: Any, scales: Any) -> Any:
        return run("fp8_to_mxfp4", {}, codes=codes, scales=scales)

    def dequantize_mxfp4(packed: Any, scales: Any, dtype: str = "float32") -> Any:
        return run("dequantize_mxfp4", {"dtype": dtype}, packed=packed, scales=scales)

    def dequantize_fp8_tiles(codes: Any, scales: Any, tile: tuple[int, int] = (1, 128), dtype: str = "float32") -> Any:
        return run("dequantize_fp8_tiles", {"tile": tile, "dtype": dtype}, codes=codes, scales=scales)

    def quantize_fp8_tiles(x: Any, tile: tuple[int, int] = (1, 128)) -> Any:
        return run("quantize_fp8_tiles", {"tile": tile}, x=x)

    fp4 = (quantize_mxfp4, fp8_to_mxfp4, dequantize_mxfp4, dequantize_fp8_tiles)
    return {"fp4": {f.__name__: f for f in fp4}, "fp8": {"quantize_fp8_tiles": quantize_fp8_tiles}}


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if params.get("input") == "float16":
        return "it takes float32 and bfloat16"
    return "judged on 1x128" if list(params.get("tile", (1, 128))) != [1, 128] else ""


def _version() -> dict[str, str]:
    return {name: foreign.version(name) for name in ("tile-kernels", "tilelang")}


def subjects() -> list[dict[str, Any]]:
    """Return the reference on both devices and the kernels on a GPU, FP4 and FP8 apart."""
    profiles = {"fp4": FP4_PROFILE, "fp8": FP8_PROFILE}
    return [
        subject
        for name, library, devices in ((REFERENCE, calls.reference, ("cpu", "cuda")), (NAME, calls.kernels, ("cuda",)))
        for kind, operations in _operations(library).items()
        for subject in torch_subjects(
            f"{name}-{kind}", operations, (profiles[kind],), library, _version, _supports, devices
        )
    ]


_ENDS = ((0, 11), (240, 254))
_SHARED = tuple(
    difference
    for name in (REFERENCE, NAME)
    for difference in (
        nan_scale_codes(f"{name}-fp4", "quantize_mxfp4", 15),
        nan_block_is_zero_scale(f"{name}-fp4", "quantize_mxfp4", "NaN plus the rounding constant wraps around"),
        tile_scale(
            f"{name}-fp8",
            "inf",
            "an Inf gives the scale Inf; in the model a tile with Inf or NaN has scale 1",
            (INF32, INF32),
            255,
        ),
        tile_scale(
            f"{name}-fp8", "nan", "NaN plus the rounding constant wraps around: the scale is 0", POSITIVE_NAN, 0
        ),
        zero_tile_scale(f"{name}-fp8"),
        decode_scale_shifted(f"{name}-fp4", "dequantize_mxfp4"),
        decode_scale_shifted(f"{name}-fp4", "dequantize_fp8_tiles", exact=False),
        Difference(
            f"{name}-fp4",
            "fp8_to_mxfp4",
            "float32-in-between",
            "it goes through float32: values beyond its range, and "
            "scales that its bytes lack, are lost; amax is lifted to 6 * 2^-126",
            "N7",
            _ENDS,
            247,
            254,
            255,
            of="scales",
            exact=False,
        ),
        Difference(
            f"{name}-fp4",
            "fp8_to_mxfp4",
            "nan-block-policy",
            "NaN in a tile: see quantize_mxfp4",
            "N7",
            ((1, 1),),
            1,
            255,
            0,
            of="codes",
            exact=False,
        ),
    )
)
_KERNEL = Difference(
    f"{NAME}-fp4",
    "fp8_to_mxfp4",
    "zero-times-inf-factor",
    "the factor of an element is the scale given times 2^126 for a block of zeros: Inf from byte 129 on, and 0 * Inf "
    "is NaN, code 7; the reference multiplies by one scale after the other",
    "N7",
    ((129, 255),),
    129,
    0,
    7,
    of="zero_block",
    output="codes",
)
DIFFERENCES = (*_SHARED, _KERNEL)
"""Found in the checkout of 2026-04-23 and in release 2.1.0; the kernel's own on one H200, for every scale byte."""
