"""DeepSeek TileKernels: its casts as kernels on a GPU, and the torch reference that stands beside them, on any device.

Its scales are float32 powers of two; they are judged as the bytes that hold them. FP4 lifts amax to 6 * 2^-126 and FP8
to 1e-4, so each kind has the profile with that floor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from . import foreign
from .difference import INF32, POSITIVE_NAN, Difference
from .torch_peer import scale_bytes, torch_subjects

NAME, REFERENCE = "TileKernels", "TileKernels-torch"
CHECKOUTS = ("TileKernels",)
FP4_PROFILE = f"HOPPER+amax_floor={0x01C00000}+zero_scale=1"
FP8_PROFILE = f"HOPPER+amax_floor={0x38D1B717}+zero_scale=105"
_NAMES = (
    "right_shift_unsigned",
    "get_min_clamp_val",
    "get_max_quant_val",
    "transform_sf",
    "cast_back",
    "cast",
    "convert_to_e2m1_bits",
)


@functools.cache
def reference() -> dict[str, Any]:
    """Return the functions of the torch reference."""
    import typing

    import torch

    path = foreign.source("tile_kernels/torch/cast.py", CHECKOUTS)
    common = foreign.excerpt(
        foreign.source("tile_kernels/quant/common.py", CHECKOUTS), ("unpack_from_e2m1fn_x2",), {"torch": torch}
    )
    names = {name: getattr(typing, name) for name in ("Optional", "Union")}
    given = {"torch": torch, "F": torch.nn.functional, "QuantTensor": typing.Any, **names, **common,
             "align": lambda x, y: -(-x // y) * y, "ceil_div": lambda x, y: -(-x // y)}  # fmt: skip
    return foreign.excerpt(path, _NAMES, given)


@functools.cache
def kernels() -> Any:
    """Return `tile_kernels.quant`."""
    return foreign.load("tile_kernels.quant", CHECKOUTS)


def _bytes(found: Any) -> tuple[Any, Any]:
    import torch

    codes, scales = found
    return codes.contiguous().view(torch.uint8), scale_bytes(scales)


def _float_scales(scales: Any) -> Any:
    import torch

    return (scales.to(torch.int32) << 23).view(torch.float32)


def _cast(inputs: Any, to: str, out: int, given: tuple[int, int] | None = None) -> tuple[Any, Any]:
    return _bytes(reference()["cast"](inputs, to, (1, out), x_block_size=given, round_sf=True))


def _token_cast(inputs: Any, to: str, out: int, given: tuple[int, int] | None = None) -> tuple[Any, Any]:
    return _bytes(kernels().per_token_cast(inputs, to, out, x_block_size=given, round_sf=True))


def _quantisers(cast: Callable[..., Any]) -> dict[str, dict[str, Callable[..., Any]]]:
    """Return the operations that give FP4 and those that give FP8, by one of the two casts."""

    def quantize_mxfp4(x: Any) -> tuple[Any, Any]:
        return cast(x, "e2m1", 32)

    def fp8_to_mxfp4(codes: Any, scales: Any) -> tuple[Any, Any]:
        import torch

        return cast((codes.view(torch.float8_e4m3fn), _float_scales(scales)), "e2m1", 32, (1, 128))

    def quantize_fp8_tiles(x: Any, tile: tuple[int, int] = (1, 128)) -> tuple[Any, Any]:
        return cast(x, "e4m3", 128)

    return {"fp4": {f.__name__: f for f in (quantize_mxfp4, fp8_to_mxfp4)},
            "fp8": {"quantize_fp8_tiles": quantize_fp8_tiles}}  # fmt: skip


def _decoders(cast_back: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    names = {"float32": "fp32", "bfloat16": "bf16"}

    def dequantize_mxfp4(packed: Any, scales: Any, dtype: str = "float32") -> Any:
        import torch

        return cast_back((packed.view(torch.int8), _float_scales(scales)), names[dtype], (1, 32))

    def dequantize_fp8_tiles(codes: Any, scales: Any, tile: tuple[int, int] = (1, 128), dtype: str = "float32") -> Any:
        import torch

        return cast_back((codes.view(torch.float8_e4m3fn), _float_scales(scales)), names[dtype], (1, 128))

    return {f.__name__: f for f in (dequantize_mxfp4, dequantize_fp8_tiles)}


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if params.get("input") == "float16":
        return "it takes float32 and bfloat16"
    return "judged on 1x128" if list(params.get("tile", (1, 128))) != [1, 128] else ""


def _version() -> dict[str, str]:
    return {name: foreign.version(name) for name in ("tile-kernels", "tilelang")}


def subjects() -> list[dict[str, Any]]:
    """Return the reference on both devices and the kernels on a GPU, FP4 and FP8 apart."""
    by_reference, by_kernel = _quantisers(_cast), _quantisers(_token_cast)
    back = _decoders(lambda *given: reference()["cast_back"](*given))
    kernel_back = _decoders(lambda *given: kernels().cast_back(*given))
    found: list[dict[str, Any]] = []
    for name, ways, decoders, probe, devices in (
        (REFERENCE, by_reference, back, reference, ("cpu", "cuda")),
        (NAME, by_kernel, kernel_back, kernels, ("cuda",)),
    ):
        for kind, profile in (("fp4", FP4_PROFILE), ("fp8", FP8_PROFILE)):
            operations = {**ways[kind], **(decoders if kind == "fp4" else {})}
            found += torch_subjects(f"{name}-{kind}", operations, (profile,), probe, _version, _supports, devices)
    return found


_ENDS = ((0, 11), (240, 254))
_SHARED = tuple(
    difference
    for name in (REFERENCE, NAME)
    for difference in (
        Difference(
            f"{name}-fp4",
            "quantize_mxfp4",
            "nan-scale-codes",
            "an Inf leaves other codes under byte 255; the model writes zeros",
            "N4",
            ((INF32, INF32),),
            INF32,
            0,
            15,
            of="amax",
            output="codes",
        ),
        Difference(
            f"{name}-fp4",
            "quantize_mxfp4",
            "nan-block-is-zero-scale",
            "NaN plus the rounding constant wraps around",
            "N4",
            (POSITIVE_NAN,),
            POSITIVE_NAN[0],
            255,
            0,
            of="amax",
        ),
        Difference(
            f"{name}-fp8",
            "quantize_fp8_tiles",
            "inf-tile-scale",
            "an Inf gives the scale Inf; in the model a tile with Inf or NaN has scale 1",
            "N6",
            ((INF32, INF32),),
            INF32,
            127,
            255,
            of="amax",
        ),
        Difference(
            f"{name}-fp8",
            "quantize_fp8_tiles",
            "nan-tile-scale",
            "NaN plus the rounding constant wraps around: the scale is 0",
            "N6",
            (POSITIVE_NAN,),
            POSITIVE_NAN[0],
            127,
            0,
            of="amax",
        ),
        Difference(
            f"{name}-fp8",
            "quantize_fp8_tiles",
            "zero-tile-scale",
            "a zero tile has the scale of amax 1e-4, byte 105; in the model a zero tile's scale is 1",
            "N6",
            ((0, 0),),
            0,
            127,
            105,
            of="amax",
        ),
        Difference(
            f"{name}-fp4",
            "dequantize_mxfp4",
            "decode-scale-shifted",
            "scales are float32: byte 0 is 0 and byte 255 Inf when shifted by 23",
            "N1",
            ((0, 0), (255, 255)),
            0,
            0x00200000,
            0,
            of="scales",
        ),
        Difference(
            f"{name}-fp4",
            "dequantize_fp8_tiles",
            "decode-scale-shifted",
            "scales are float32: byte 0 is 0 and byte 255 Inf when shifted by 23",
            "N1",
            ((0, 0), (255, 255)),
            0,
            0x00200000,
            0,
            of="scales",
            exact=False,
        ),
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
