"""The launchers as torch operators, `torch.ops.refnum.*`, so that torch.compile and CUDA graphs take them whole.

Importing this registers one operator for each launcher of `gpu.ops`, with the launcher's name, argument order and
defaults, and gives it as a function of this module. Where torch has its own words, they are used: a profile is its
name, a dtype is a `torch.dtype`, a tile is a list of two integers and splits are a list of integers. Results are
fresh contiguous tensors on the input's device, codes and scale bytes torch.uint8. No operator has a gradient.

Shapes and dtypes of the results are given without a device (fake tensors), dynamic sizes included; the launchers'
own checks raise `refnum.errors` when the operator runs. Adding a launcher is one entry of `OPERATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from refnum.errors import ShapeError, UnsupportedError

from . import checks, ops

NAMESPACE = "refnum"
TALL = {"fp8": 128, "mxfp4": 32}
"""Target of a columns conversion -> rows that share a scale."""

Wanted = list[tuple[tuple[Any, ...], torch.dtype]]
"""Shape and dtype of every result."""


@dataclass(frozen=True)
class Operator:
    """One launcher as torch sees it.

    arguments: in torch's schema language. results: shapes and dtypes of the results, from the same arguments.
    returns: how many results. words: argument -> what the launcher is given in its place. differentiable: whether
    inputs and results are floating point, so that autograd would ask for a gradient.
    """

    arguments: str
    results: Callable[..., Wanted]
    returns: int = 2
    words: tuple[tuple[str, Callable[[Any], Any]], ...] = ()
    differentiable: bool = False


def _dtype_name(dtype: torch.dtype | None) -> str:
    return str(dtype or torch.float32).removeprefix("torch.")


def _up(n: Any, step: int) -> Any:
    """Return ceil(n / step) of integers, symbolic ones included."""
    return (n + step - 1) // step


def _size(name: str, x: torch.Tensor, multiple: int) -> tuple[Any, Any]:
    if x.dim() != 2 or x.shape[1] % multiple != 0:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; allowed is [rows, n] with n a multiple of {multiple}")
    return x.shape[0], x.shape[1]


def _segments(splits: Iterable[Any] | None, m: Any, tall: int) -> Any:
    return sum((_up(n, tall) for n in ([m] if splits is None else splits)), 0)


def _scales(rows: Any, columns: Any, layout: str) -> tuple[tuple[Any, ...], torch.dtype]:
    checks.choice("layout_out", layout, checks.LAYOUTS)
    shape, dtype = checks.layout_of(rows, columns, layout)
    return shape, getattr(torch, dtype.name)


def _mxfp4(m: Any, k: Any, layout: str = "bytes") -> Wanted:
    return [((m, k // 2), torch.uint8), _scales(m, k // 32, layout)]


def _fp8(m: Any, k: Any, tall: int = 1, layout: str = "bytes") -> Wanted:
    return [((m, k), torch.uint8), _scales(_up(m, tall), _up(k, 128), layout)]


def _fp8_columns(m: Any, k: Any, splits: Any) -> Wanted:
    return [((k, m), torch.uint8), ((_segments(splits, m, TALL["fp8"]), k), torch.uint8)]


def _quantize_mxfp4(x: Any, profile: str, rbits: Any, philox: Any, layout_out: str) -> Wanted:
    return _mxfp4(*_size("x", x, 32), layout_out)


def _dequantize_mxfp4(packed: Any, scales: Any, dtype: Any, layout_in: str) -> Wanted:
    m, half = _size("packed", packed, 16)
    return [((m, 2 * half), dtype or torch.float32)]


def _quantize_fp8_tiles(x: Any, tile: list[int], profile: str, layout_out: str) -> Wanted:
    return _fp8(*_size("x", x, 32), tall=tile[0], layout=layout_out)


def _dequantize_fp8_tiles(codes: Any, scales: Any, tile: list[int], dtype: Any, layout_in: str) -> Wanted:
    return [(_size("codes", codes, 32), dtype or torch.float32)]


def _fp8_to_mxfp4(codes: Any, scales: Any, profile: str, layout_in: str, layout_out: str) -> Wanted:
    return _mxfp4(*_size("codes", codes, 32), layout_out)


def _mxfp4_to_fp8(packed: Any, scales: Any, scale: str, layout_in: str, layout_out: str) -> Wanted:
    m, half = _size("packed", packed, 16)
    return _fp8(m, 2 * half, layout=layout_out)


def _mxfp4_to_fp8_rows_columns(packed: Any, scales: Any, splits: Any, scale: str) -> Wanted:
    m, half = _size("packed", packed, 16)
    return _fp8(m, 2 * half) + _fp8_columns(m, 2 * half, splits)


def _mxfp4_to_fp8_columns(packed: Any, scales: Any, splits: Any, scale: str) -> Wanted:
    m, half = _size("packed", packed, 16)
    return _fp8_columns(m, 2 * half, splits)


def _mxfp4_columns(packed: Any, scales: Any, splits: Any, scale: str) -> Wanted:
    m, half = _size("packed", packed, 16)
    return [((2 * half, m // 2), torch.uint8), ((_segments(splits, m, TALL["mxfp4"]), 2 * half), torch.uint8)]


def _columns_of_fp8(codes: Any, scales: Any, splits: Any, underflow: str) -> Wanted:
    return _fp8_columns(*_size("codes", codes, 32), splits)


def _swiglu_quantize(gate: Any, up: Any, prob: Any, to: str, profile: str) -> Wanted:
    size = _size("gate", gate, 32)
    return _fp8(*size) if to == "fp8" else _mxfp4(*size)


def _swiglu_backward(grad: Any, gate: Any, up: Any, prob: Any) -> Wanted:
    size = _size("gate", gate, 1)
    return [(size, torch.float32), (size, torch.float32), ((0 if prob is None else size[0],), torch.float32)]


def _pack_payload(packed: Any, scales: Any) -> Wanted:
    m, half = _size("packed", packed, 16)
    return [((m, half // 16 * 17), torch.uint8)]


def _unpack_payload(payload: Any) -> Wanted:
    t, width = _size("payload", payload, 17)
    return _mxfp4(t, width // 17 * 32)


def _quantize_payload(x: Any, profile: str) -> Wanted:
    t, k = _size("x", x, 32)
    return [((t, k // 32 * 17), torch.uint8)]


def _fp8_to_payload(codes: Any, scales: Any, profile: str) -> Wanted:
    t, k = _size("codes", codes, 32)
    return [((t, k // 32 * 17), torch.uint8)]


def _padded(splits: Any, align: Any) -> Any:
    return sum((_up(n, align) * align for n in splits), 0)


def _permute_pad(payload: Any, row_map: Any, splits: Any, align: Any) -> Wanted:
    width = _size("payload", payload, 1)[1]
    return [((_padded(splits, align), width), torch.uint8), ((len(splits),), torch.int64)]


def _permute_unpack(payload: Any, row_map: Any, splits: Any, align: Any) -> Wanted:
    blocks = _size("payload", payload, 17)[1] // 17
    return [*_mxfp4(_padded(splits, align), 32 * blocks), ((len(splits),), torch.int64)]


def _encode(x: Any, **options: Any) -> Wanted:
    return [(tuple(x.shape), torch.uint8)]


def _unpermute(rows: Any, row_map: Any, splits: Any, weights: Any, tokens: Any, align: Any) -> Wanted:
    return [((tokens, _size("rows", rows, 1)[1]), torch.float32)]


_DTYPE = ("dtype", _dtype_name)
_TILE = ("tile", tuple)

OPERATORS: dict[str, Operator] = {
    "quantize_mxfp4": Operator(
        'Tensor x, str profile="HOPPER", *, Tensor? rbits=None, int[]? philox=None, str layout_out="bytes"',
        _quantize_mxfp4, words=(("philox", lambda key: key and tuple(key)),),
    ),
    "dequantize_mxfp4": Operator(
        'Tensor packed, Tensor scales, ScalarType? dtype=None, *, str layout_in="bytes"', _dequantize_mxfp4,
        returns=1, words=(_DTYPE,),
    ),
    "quantize_fp8_tiles": Operator(
        'Tensor x, int[] tile=[1, 128], str profile="HOPPER", *, str layout_out="bytes"', _quantize_fp8_tiles,
        words=(_TILE,),
    ),
    "dequantize_fp8_tiles": Operator(
        'Tensor codes, Tensor scales, int[] tile=[1, 128], ScalarType? dtype=None, *, str layout_in="bytes"',
        _dequantize_fp8_tiles, returns=1, words=(_TILE, _DTYPE),
    ),
    "fp8_to_mxfp4": Operator(
        'Tensor codes, Tensor scales, str profile="HOPPER", *, str layout_in="bytes", str layout_out="bytes"',
        _fp8_to_mxfp4,
    ),
    "mxfp4_to_fp8": Operator(
        'Tensor packed, Tensor scales, str scale="max", *, str layout_in="bytes", str layout_out="bytes"',
        _mxfp4_to_fp8,
    ),
    "mxfp4_to_fp8_columns": Operator(
        'Tensor packed, Tensor scales, SymInt[]? splits=None, str scale="max"', _mxfp4_to_fp8_columns
    ),
    "mxfp4_to_fp8_rows_columns": Operator(
        'Tensor packed, Tensor scales, SymInt[]? splits=None, str scale="max"', _mxfp4_to_fp8_rows_columns, returns=4
    ),
    "mxfp4_columns": Operator(
        'Tensor packed, Tensor scales, SymInt[]? splits=None, str scale="amax"', _mxfp4_columns
    ),
    "fp8_columns": Operator(
        'Tensor codes, Tensor scales, SymInt[]? splits=None, str underflow="rne"', _columns_of_fp8
    ),
    "swiglu_quantize": Operator(
        'Tensor gate, Tensor up, Tensor? prob=None, str to="fp8", str profile="HOPPER"', _swiglu_quantize
    ),
    "swiglu_backward": Operator(
        "Tensor grad, Tensor gate, Tensor up, Tensor? prob=None", _swiglu_backward, returns=3, differentiable=True
    ),
    "pack_payload": Operator("Tensor packed, Tensor scales", _pack_payload, returns=1),
    "unpack_payload": Operator("Tensor payload", _unpack_payload),
    "quantize_payload": Operator('Tensor x, str profile="HOPPER"', _quantize_payload, returns=1),
    "fp8_to_payload": Operator('Tensor codes, Tensor scales, str profile="HOPPER"', _fp8_to_payload, returns=1),
    "permute_pad": Operator("Tensor payload, Tensor row_map, SymInt[] splits, SymInt align=32", _permute_pad),
    "permute_unpack": Operator(
        "Tensor payload, Tensor row_map, SymInt[] splits, SymInt align=32", _permute_unpack, returns=3
    ),
    "unpermute": Operator(
        "Tensor rows, Tensor row_map, SymInt[] splits, Tensor? weights, SymInt tokens, SymInt align=32", _unpermute,
        returns=1, differentiable=True,
    ),
    "encode_e2m1": Operator("Tensor x, *, int scale_byte=127", _encode, returns=1),
    "encode_e4m3": Operator('Tensor x, str overflow="saturate"', _encode, returns=1),
    "encode_e8m0": Operator('Tensor x, str rounding="up", bool saturate=False', _encode, returns=1),
}  # fmt: skip
"""Name of a launcher -> its operator; a launcher that this version lacks is left out when they are registered."""

_library = torch.library.Library(NAMESPACE, "FRAGMENT")


def _bound(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gets every argument of an operator by name, defaults filled in.

    torch leaves out what is at its default, at the end of the positional arguments as well as among the keywords.
    """
    arguments = getattr(torch.ops.refnum, name).default._schema.arguments
    names = [argument.name for argument in arguments]
    defaults = {argument.name: argument.default_value for argument in arguments}  # None where there is none

    def call(*given: Any, **named: Any) -> Any:
        return function({**defaults, **dict(zip(names, given, strict=False)), **named})

    return call


def _register(name: str, operator: Operator) -> Callable[..., Any]:
    """Register one operator for CUDA tensors and for fake ones, and return it."""
    qualified = f"{NAMESPACE}::{name}"
    results = ", ".join(["Tensor"] * operator.returns)
    schema = f"{name}({operator.arguments}) -> " + (f"({results})" if operator.returns > 1 else results)
    # not torch.library.custom_op: its wrapper costs a call 10 us of host time, this way 2 us
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    launcher, words = getattr(ops, name), dict(operator.words)
    found = getattr(torch.ops.refnum, name).default._schema.arguments
    defaults = {argument.name: argument.default_value for argument in found if argument.kwarg_only}

    def launch(arguments: dict[str, Any]) -> Any:
        wanted = {key: words[key](value) if key in words else value for key, value in arguments.items()}
        given = [value for key, value in wanted.items() if key not in defaults]
        found = launcher(*given, **{key: wanted[key] for key, value in defaults.items() if wanted[key] != value})
        if operator.returns == 1:
            return found
        # an operator cannot return None: what was not asked for is an empty tensor
        return tuple(torch.empty(0, device=found[0].device) if item is None else item for item in found)

    def fake(arguments: dict[str, Any]) -> Any:
        first = next(iter(arguments.values()))
        found = tuple(first.new_empty(shape, dtype=dtype) for shape, dtype in operator.results(**arguments))
        return found[0] if operator.returns == 1 else found

    _library.impl(name, _bound(name, launch), "CUDA")
    torch.library.register_fake(qualified, _bound(name, fake), lib=_library)
    if operator.differentiable:
        torch.library.register_autograd(qualified, _no_gradient(name), lib=_library)
    overload: Callable[..., Any] = getattr(torch.ops.refnum, name).default
    return overload


def _no_gradient(name: str) -> Callable[..., Any]:
    def backward(context: Any, *gradients: Any) -> Any:
        raise UnsupportedError(f"{name} has no gradient; write the backward pass with the operators themselves")

    return backward


REGISTERED = {name: _register(name, operator) for name, operator in OPERATORS.items() if hasattr(ops, name)}
"""Name -> `torch.ops.refnum.<name>.default`, for the launchers of this version."""


def __getattr__(name: str) -> Callable[..., Any]:
    if name in REGISTERED:
        return REGISTERED[name]
    raise AttributeError(f"module {__name__!r} has no operator {name!r}; it has {', '.join(REGISTERED)}")
