"""DeepSeek TileKernels: its casts in the formats that they take, float32 scales, powers of two.

Codes and scales that it reads are made ready outside the timed call. A row-to-column cast leaves its codes in rows, so
a transpose follows, as it would have to.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refnum.arrays import Array

from ....cases import layouts
from ....cases.case import Case
from ....subjects.subject import Subject
from ..contender import Contender, Prepared, as_tuple, from_torch, to_torch
from ..lines import Line

NAME = "TileKernels"


def missing() -> str:
    """Return why it cannot be used here, or an empty string."""
    if importlib.util.find_spec("tile_kernels") is None:
        return "tile-kernels is not installed"
    try:
        import tile_kernels.quant  # noqa: F401
    except Exception as error:  # it loads a compiler, which may fail in any way
        return f"tile_kernels cannot be imported: {type(error).__name__}: {error}"
    return ""


def _quant() -> Any:
    import tile_kernels.quant as quant

    return quant


def _scales(x: Array) -> Any:
    """Return float32 scales of E8M0 bytes."""
    import torch

    return (to_torch(x).to(torch.int32) << 23).view(torch.float32)


def _packed(x: Array) -> Any:
    import torch

    return to_torch(x).view(torch.int8)


def _codes(x: Array) -> Any:
    import torch

    return to_torch(x).view(torch.float8_e4m3fn)


def _mxfp4(case: Case) -> tuple[Any, ...]:
    return _packed(case.inputs["packed"]), _scales(case.inputs["scales"])


def _fp8(case: Case) -> tuple[Any, ...]:
    return _codes(case.inputs["codes"]), _scales(case.inputs["scales"])


def _floats(case: Case) -> tuple[Any, ...]:
    return (to_torch(case.inputs["x"]),)


def _gate_up(case: Case) -> tuple[Any, ...]:
    import torch

    gate, up = to_torch(case.inputs["gate"]), to_torch(case.inputs["up"])
    return torch.cat((gate, up), dim=1), to_torch(case.inputs["prob"])


def _backward_inputs(case: Case) -> tuple[Any, ...]:
    return (*_gate_up(case), to_torch(case.inputs["grad"]))


def _by_columns(codes: Any, scales: Any) -> tuple[Any, ...]:
    import torch

    return codes.view(torch.uint8).t().contiguous(), scales


_STORED: dict[str, dict[str, bool]] = {
    "bytes": {},
    "float32": {},
    "gemm_float32": {"use_tma_aligned_col_major_sf": True},
    "packed_ue8m0": {"use_tma_aligned_col_major_sf": True, "use_packed_ue8m0": True},
}
"""Layout of scales that are handed out -> how TileKernels is asked for it; what it has for bytes is float32."""


def _quantize_mxfp4(params: Mapping[str, Any]) -> Callable[..., Any]:
    options = {**_STORED[params.get(layouts.OUT, "bytes")], **({"stochastic_cast": True} if "philox" in params else {})}
    return lambda x: _quant().per_token_cast(x, "e2m1", 32, round_sf=True, **options)


def _quantize_fp8(params: Mapping[str, Any]) -> Callable[..., Any]:
    if list(params["tile"]) == [1, 128]:
        options = _STORED[params.get(layouts.OUT, "bytes")]
        return lambda x: _quant().per_token_cast(x, "e4m3", 128, round_sf=True, **options)
    return lambda x: _quant().per_block_cast(x, "e4m3", (128, 128), round_sf=True)


def _requantize(params: Mapping[str, Any]) -> Callable[..., Any]:
    if params["scale"] == "max":
        return lambda x, sf: _quant().per_block_cast_lossless((x, sf), "e4m3", (1, 32), (1, 128), round_sf=True)
    return lambda x, sf: _quant().per_token_cast((x, sf), "e4m3", 128, x_block_size=(1, 32), round_sf=True)


def _mxfp4_columns(params: Mapping[str, Any]) -> Callable[..., Any]:
    def run(x: Any, sf: Any) -> tuple[Any, ...]:
        values = _quant().cast_back((x, sf), "bf16", (1, 32))
        return _by_columns(*_quant().per_channel_cast(values, "e4m3", 128, round_sf=True))

    return run


def _rows_columns(params: Mapping[str, Any]) -> Callable[..., Any]:
    rows, columns = _requantize(params), _mxfp4_columns(params)
    return lambda x, sf: (*rows(x, sf), *columns(x, sf))


def _fp8_columns(params: Mapping[str, Any]) -> Callable[..., Any]:
    def run(x: Any, sf: Any) -> tuple[Any, ...]:
        return _by_columns(*_quant().per_channel_cast((x, sf), "e4m3", 128, round_sf=True, num_per_channels=128))

    return run


def _format(params: Mapping[str, Any]) -> str:
    return {"bfloat16": "bf16", "float32": "fp32"}[params["dtype"]]


Way = tuple[Callable[[Case], tuple[Any, ...]], Callable[[Mapping[str, Any]], Callable[..., Any]]]

# operation -> (the inputs as TileKernels takes them, from the line's parameters the call)
_WAYS: dict[str, Way] = {
    "quantize_mxfp4": (_floats, _quantize_mxfp4),
    "quantize_fp8_tiles": (_floats, _quantize_fp8),
    "dequantize_mxfp4": (_mxfp4, lambda p: lambda x, sf: _quant().cast_back((x, sf), _format(p), (1, 32))),
    "dequantize_fp8_tiles": (
        _fp8,
        lambda p: lambda x, sf: _quant().cast_back((x, sf), _format(p), tuple(p["tile"])),
    ),
    "fp8_to_mxfp4": (
        _fp8,
        lambda p: lambda x, sf: _quant().per_token_cast((x, sf), "e2m1", 32, x_block_size=(1, 128), round_sf=True),
    ),
    "mxfp4_to_fp8": (_mxfp4, _requantize),
    "mxfp4_to_fp8_columns": (_mxfp4, _mxfp4_columns),
    "mxfp4_to_fp8_rows_columns": (_mxfp4, _rows_columns),
    "fp8_columns": (_fp8, _fp8_columns),
    "swiglu_quantize": (
        _gate_up,
        lambda p: (
            lambda x, prob: _quant().swiglu_forward_and_per_token_cast(x, "e4m3", 128, topk_weights=prob, round_sf=True)
        ),
    ),
    "swiglu_backward": (
        _backward_inputs,
        lambda p: lambda x, prob, grad: _quant().swiglu_backward(x, grad, "fp32", topk_weights=prob),
    ),
}


def offers(line: Line) -> str:
    """Return why TileKernels does not have a line."""
    if line.operation not in _WAYS:
        return "TileKernels has no such kernel"
    if line.profile == "OCP":
        return "TileKernels rounds scales up, not down"
    if "rbits" in line.optional:
        return "TileKernels draws its random bits itself: see the line by key"
    if line.params.get("input") == "float16":
        return "TileKernels takes bfloat16 and float32"
    if line.operation == "swiglu_quantize" and not line.optional:
        return "TileKernels takes a weight for every row"
    if line.dtypes:
        return "TileKernels takes gradients of the dtype of gate and up"
    if line.params.get("to") == "mxfp4":
        return "TileKernels has SwiGLU to FP8 only"
    if line.params.get("underflow") == "te":
        return "TileKernels rounds to nearest even"
    if line.operation == "mxfp4_to_fp8_columns" and line.params["scale"] == "max":
        return "TileKernels scales columns by their maximum: see amax"
    if layouts.IN in line.params:
        return "its scales are float32 on the line with bytes too"
    if line.params.get(layouts.OUT, "bytes") not in _STORED:
        return "TileKernels has no such layout"
    return "its kernels know no experts" if line.experts else ""


def _canonical(case: Case, found: Any) -> list[Array]:
    """Return results in the golden layouts: bytes of codes, scales in the case's layout, bits of values."""
    like = next(iter(case.inputs.values()))
    results = as_tuple(found)
    if case.operation == "swiglu_backward":
        gradient, prob = results
        half = gradient.shape[1] // 2
        parts = [gradient[:, :half].contiguous(), gradient[:, half:].contiguous(), prob]
        return [from_torch(x, like) for x in parts]
    if case.operation.startswith("dequantize"):
        return [from_torch(x, like) for x in results]
    pairs = zip(results[::2], results[1::2], strict=True)
    return [x for codes, scales in pairs for x in (from_torch(codes, like).view(np.uint8), _scale(case, scales, like))]


def _scale(case: Case, scales: Any, like: Array) -> Array:
    import torch

    layout = case.params.get(layouts.OUT, "bytes")
    if layout == "bytes":
        return from_torch((scales.contiguous().view(torch.int32) >> 23).to(torch.uint8), like)
    columns = case.inputs["x"].shape[1] // (32 if case.operation == "quantize_mxfp4" else 128)
    if layout == "packed_ue8m0" and columns % 4:  # what fills the last word is not written
        scales = scales.clone()
        scales[:, -1] &= (1 << 8 * (columns % 4)) - 1
    return from_torch(scales if layout == "float32" else scales.t(), like)  # the others come transposed


def prepare(line: Line, case: Case) -> Prepared:
    """Make a case ready in TileKernels' formats."""
    inputs, way = _WAYS[case.operation]
    arrays, run = inputs(case), way(case.params)
    return Prepared(lambda: run(*arrays), arrays, lambda found: _canonical(case, found))


def describe() -> dict[str, str]:
    """Return the versions of TileKernels and of the compiler it stands on."""
    return {name: importlib.metadata.version(name) for name in ("tile-kernels", "tilelang")}


def contenders(subject: Subject) -> list[Contender]:
    """Return the one contender."""
    return [
        Contender(NAME, offers, prepare, describe, "DeepSeek TileKernels, float32 scales unless a line names others")
    ]
