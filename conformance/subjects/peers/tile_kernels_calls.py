"""DeepSeek TileKernels: each call of the library that is judged or timed, in the formats that the library takes.

Its scales are float32 powers of two, its packed codes int8. `inputs` makes arguments of the golden model's arrays (as
torch tensors), `call` gives the function that runs on them, and `results` turns what it returned into the golden
layouts; only the middle step is timed. A cast from rows to columns leaves its codes in rows, so a transpose follows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from . import foreign
from .torch_peer import scale_bytes

CHECKOUTS = ("TileKernels",)
_REFERENCE = (
    "right_shift_unsigned", "get_min_clamp_val", "get_max_quant_val", "transform_sf", "cast_back", "cast",
    "convert_to_e2m1_bits",
)  # fmt: skip
STORED: dict[str, dict[str, bool]] = {
    "bytes": {},
    "float32": {},
    "gemm_float32": {"use_tma_aligned_col_major_sf": True},
    "packed_ue8m0": {"use_tma_aligned_col_major_sf": True, "use_packed_ue8m0": True},
}
"""Layout of the resulting scales -> options that ask the library for it; where bytes are wanted it gives float32."""

Tensors = Mapping[str, Any]
Params = Mapping[str, Any]
Call = Callable[..., Any]


@functools.cache
def kernels() -> Any:
    """Return `tile_kernels.quant`. Raises UnsupportedError when it cannot be imported."""
    return foreign.load("tile_kernels.quant", CHECKOUTS)


@functools.cache
def reference() -> Any:
    """Return the torch reference behind the names and arguments of the kernels.

    Raises UnsupportedError when its file is not found.
    """
    import typing

    import torch

    path = foreign.source("tile_kernels/torch/cast.py", CHECKOUTS)
    common = foreign.excerpt(
        foreign.source("tile_kernels/quant/common.py", CHECKOUTS), ("unpack_from_e2m1fn_x2",), {"torch": torch}
    )
    names = {name: getattr(typing, name) for name in ("Optional", "Union")}
    given = {"torch": torch, "F": torch.nn.functional, "QuantTensor": typing.Any, **names, **common,
             "align": lambda x, y: -(-x // y) * y, "ceil_div": lambda x, y: -(-x // y)}  # fmt: skip
    found = foreign.excerpt(path, _REFERENCE, given)

    def per_token_cast(x: Any, to: str, width: int, x_block_size: Any = None, round_sf: bool = True) -> Any:
        return found["cast"](x, to, (1, width), x_block_size=x_block_size, round_sf=round_sf)

    return SimpleNamespace(per_token_cast=per_token_cast, cast_back=found["cast_back"])


def float_scales(scales: Any) -> Any:
    """Return E8M0 bytes as the float32 scales whose exponent field they are."""
    import torch

    return (scales.to(torch.int32) << 23).view(torch.float32)


def _mxfp4(given: Tensors) -> tuple[Any, ...]:
    import torch

    return given["packed"].view(torch.int8), float_scales(given["scales"])


def _fp8(given: Tensors) -> tuple[Any, ...]:
    import torch

    return given["codes"].view(torch.float8_e4m3fn), float_scales(given["scales"])


def _floats(given: Tensors) -> tuple[Any, ...]:
    return (given["x"],)


def _gate_up(given: Tensors) -> tuple[Any, ...]:
    import torch

    return torch.cat((given["gate"], given["up"]), dim=1), given["prob"]


def _backward_inputs(given: Tensors) -> tuple[Any, ...]:
    return (*_gate_up(given), given["grad"])


def _by_columns(codes: Any, scales: Any) -> tuple[Any, ...]:
    import torch

    return codes.view(torch.uint8).t().contiguous(), scales


def _quantize_mxfp4(q: Any, params: Params) -> Call:
    drawn = {"stochastic_cast": True} if "philox" in params else {}
    options = {**STORED[params.get("layout_out", "bytes")], **drawn}
    return lambda x: q.per_token_cast(x, "e2m1", 32, round_sf=True, **options)


def _quantize_fp8(q: Any, params: Params) -> Call:
    if list(params["tile"]) == [1, 128]:
        options = STORED[params.get("layout_out", "bytes")]
        return lambda x: q.per_token_cast(x, "e4m3", 128, round_sf=True, **options)
    return lambda x: q.per_block_cast(x, "e4m3", (128, 128), round_sf=True)


def _cast_back(q: Any, params: Params, block: tuple[int, int]) -> Call:
    dtype = {"bfloat16": "bf16", "float32": "fp32"}[params["dtype"]]
    return lambda x, sf: q.cast_back((x, sf), dtype, block)


def _fp8_to_mxfp4(q: Any, params: Params) -> Call:
    return lambda x, sf: q.per_token_cast((x, sf), "e2m1", 32, x_block_size=(1, 128), round_sf=True)


def _mxfp4_to_fp8(q: Any, params: Params) -> Call:
    if params["scale"] == "max":
        return lambda x, sf: q.per_block_cast_lossless((x, sf), "e4m3", (1, 32), (1, 128), round_sf=True)
    return lambda x, sf: q.per_token_cast((x, sf), "e4m3", 128, x_block_size=(1, 32), round_sf=True)


def _mxfp4_columns(q: Any, params: Params) -> Call:
    def run(x: Any, sf: Any) -> tuple[Any, ...]:
        values = q.cast_back((x, sf), "bf16", (1, 32))
        return _by_columns(*q.per_channel_cast(values, "e4m3", 128, round_sf=True))

    return run


def _rows_columns(q: Any, params: Params) -> Call:
    rows, columns = _mxfp4_to_fp8(q, params), _mxfp4_columns(q, params)
    return lambda x, sf: (*rows(x, sf), *columns(x, sf))


def _fp8_columns(q: Any, params: Params) -> Call:
    def run(x: Any, sf: Any) -> tuple[Any, ...]:
        return _by_columns(*q.per_channel_cast((x, sf), "e4m3", 128, round_sf=True, num_per_channels=128))

    return run


def _swiglu(q: Any, params: Params) -> Call:
    return lambda x, prob: q.swiglu_forward_and_per_token_cast(x, "e4m3", 128, topk_weights=prob, round_sf=True)


def _swiglu_backward(q: Any, params: Params) -> Call:
    return lambda x, prob, grad: q.swiglu_backward(x, grad, "fp32", topk_weights=prob)


CALLS: dict[str, tuple[Callable[[Tensors], tuple[Any, ...]], Callable[[Any, Params], Call]]] = {
    "quantize_mxfp4": (_floats, _quantize_mxfp4),
    "quantize_fp8_tiles": (_floats, _quantize_fp8),
    "dequantize_mxfp4": (_mxfp4, lambda q, params: _cast_back(q, params, (1, 32))),
    "dequantize_fp8_tiles": (_fp8, lambda q, params: _cast_back(q, params, tuple(params["tile"]))),
    "fp8_to_mxfp4": (_fp8, _fp8_to_mxfp4),
    "mxfp4_to_fp8": (_mxfp4, _mxfp4_to_fp8),
    "mxfp4_to_fp8_columns": (_mxfp4, _mxfp4_columns),
    "mxfp4_to_fp8_rows_columns": (_mxfp4, _rows_columns),
    "fp8_columns": (_fp8, _fp8_columns),
    "swiglu_quantize": (_gate_up, _swiglu),
    "swiglu_backward": (_backward_inputs, _swiglu_backward),
}
"""Operation -> (its arguments from the golden inputs, its call from the library and the parameters)."""


def inputs(operation: str, given: Tensors) -> tuple[Any, ...]:
    """Return an operation's arguments as the library takes them.

    Args:
        operation: a key of `CALLS`.
        given: golden inputs by name, as torch tensors; codes and scales are bytes.
    """
    return CALLS[operation][0](given)


def call(operation: str, library: Any, params: Params) -> Call:
    """Return the function that runs an operation on the arguments that `inputs` made.

    Args:
        operation: a key of `CALLS`.
        library: `kernels()` or `reference()`; the reference has row-wise casts and their inverses only.
        params: the operation's parameters, with `layout_out` and `philox` where a case has them.
    """
    return CALLS[operation][1](library, params)


def results(operation: str, params: Params, found: Any) -> list[Any]:
    """Return what a call returned in the golden layouts: codes as bytes, scales in the layout asked for, or values.

    Args:
        operation: a key of `CALLS`.
        params: the operation's parameters; `layout_out` is the layout of the scales, E8M0 bytes when absent.
        found: what the call returned.

    Raises:
        UnsupportedError: a scale that is to be a byte is no power of two.
    """
    import torch

    parts = list(found) if isinstance(found, tuple | list) else [found]
    if operation == "swiglu_backward":
        gradient, prob = parts
        half = gradient.shape[1] // 2
        return [gradient[:, :half].contiguous(), gradient[:, half:].contiguous(), prob]
    if operation.startswith("dequantize"):
        return parts
    layout = params.get("layout_out", "bytes")
    pairs = zip(parts[::2], parts[1::2], strict=True)
    width = 16 if operation.endswith("_mxfp4") else 128  # bytes of codes a scale
    return [
        part
        for codes, scales in pairs
        for part in (codes.contiguous().view(torch.uint8), _stored(scales, layout, codes.shape[1] // width))
    ]


def _stored(scales: Any, layout: str, columns: int) -> Any:
    if layout == "bytes":
        return scale_bytes(scales)
    if layout == "packed_ue8m0" and columns % 4:  # the bytes that fill the last word are left unwritten
        scales = scales.clone()
        scales[:, -1] &= (1 << 8 * (columns % 4)) - 1
    return scales if layout == "float32" else scales.t()  # the other layouts come transposed
