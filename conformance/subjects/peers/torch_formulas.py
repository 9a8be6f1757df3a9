"""The plain PyTorch formula of each operation, as a user would write it (`formulas`): eager, and
through torch.compile on a GPU, where its own flags for division and subnormals come in.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from . import foreign
from .difference import INF32, POSITIVE_NAN, Difference
from .torch_peer import float32_only, torch_subjects

EAGER, COMPILED = "torch-formula", "torch.compile"


def _formulas() -> Any:
    return importlib.import_module("refnum.conformance.subjects.peers.formulas")


@functools.cache
def _function(name: str, compiled: bool) -> Callable[..., Any]:
    function = getattr(_formulas(), name)
    if not compiled:
        return function
    import torch

    return torch.compile(function, fullgraph=True, dynamic=True)


def _operations(compiled: bool) -> dict[str, Callable[..., Any]]:
    def quantize_mxfp4(x: Any) -> Any:
        return _function("quantize_mxfp4", compiled)(x)

    def quantize_fp8_tiles(x: Any, tile: tuple[int, int] = (1, 128)) -> Any:
        import torch

        codes, scales = _function("quantize_fp8_tiles", compiled)(x, tall=tile[0])
        return codes.view(torch.uint8), scales

    def dequantize_mxfp4(packed: Any, scales: Any, dtype: str = "float32") -> Any:
        import torch

        return _function("dequantize_mxfp4", compiled)(packed, scales, dtype=getattr(torch, dtype))

    def fp8_to_mxfp4(codes: Any, scales: Any) -> Any:
        return _function("fp8_to_mxfp4", compiled)(codes, scales)

    return {f.__name__: f for f in (quantize_mxfp4, quantize_fp8_tiles, dequantize_mxfp4, fp8_to_mxfp4)}


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    return float32_only(operation, profile, params)


def subjects() -> list[dict[str, Any]]:
    """Return the formulas, eager on both devices and compiled on a GPU."""
    described = lambda: {"triton": foreign.version("triton")}  # noqa: E731
    return [
        *torch_subjects(EAGER, _operations(False), ("HOPPER",), _formulas, described, _supports),
        *torch_subjects(COMPILED, _operations(True), ("HOPPER",), _formulas, described, _supports, ("cuda",)),
    ]


_SHARED = tuple(
    difference
    for name in (EAGER, COMPILED)
    for difference in (
        *(
            Difference(
                name,
                operation,
                "finite-formula",
                "the formula is for finite numbers: Inf and NaN give a scale byte as if they were",
                "N4",
                (place,),
                place[0],
                golden,
                byte,
                of="amax",
            )
            for operation, golden, byte in (("quantize_mxfp4", 255, 253), ("quantize_fp8_tiles", 127, 247))
            for place in ((INF32, INF32), POSITIVE_NAN)
        ),
        Difference(
            name,
            "quantize_fp8_tiles",
            "zero-tile-scale",
            "a zero tile has byte 0; in the model a zero tile's scale is 1",
            "N6",
            ((0, 0),),
            0,
            127,
            0,
            of="amax",
        ),
        Difference(
            name,
            "dequantize_mxfp4",
            "decode-scale-shifted",
            "a scale byte is shifted by 23: byte 0 is 0 and byte 255 Inf",
            "N1",
            ((0, 0), (255, 255)),
            0,
            0x00200000,
            0,
            of="scales",
        ),
        Difference(
            name,
            "fp8_to_mxfp4",
            "float32-in-between",
            "it goes through float32: values beyond its range are lost",
            "N7",
            ((0, 11), (240, 254)),
            247,
            254,
            253,
            of="scales",
            exact=False,
        ),
        Difference(
            name,
            "fp8_to_mxfp4",
            "finite-formula",
            "the formula is for finite numbers",
            "N7",
            ((1, 1),),
            1,
            255,
            253,
            of="codes",
            exact=False,
        ),
    )
)

DIFFERENCES = (
    *_SHARED,
    Difference(
        COMPILED,
        "dequantize_mxfp4",
        "minus-zero-lost",
        "torch.compile drops the sign of -0: code 8 decodes to +0",
        "N1",
        ((1, 254),),
        1,
        0x80000000,
        0,
        of="scales",
    ),
)
"""The second kind found in torch 2.11 on an H200; the eager formula keeps the sign."""
