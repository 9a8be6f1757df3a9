"""The launchers as torch operators, `torch.ops.refnum.*`, for torch.compile and CUDA graphs.

Importing this module registers one operator for each launcher of `gpu.ops`, with the launcher's name, argument order
and defaults, and makes it a function of this module. Arguments have torch's types: a profile is its name, a dtype is a
`torch.dtype`, a tile is a list of two integers, and splits are a list of integers. torch's integers have 63 bits and a
sign, so give a seed of 2**63 or more as seed - 2**64. Results are new contiguous tensors on the input's device, codes
and scale bytes torch.uint8. No operator has a gradient: autograd raises UnsupportedError for the results of
`swiglu_backward` and `unpermute`, and treats all other results as constants.

Fake tensors give the shapes and dtypes of the results without a device, with dynamic sizes too; the launchers' checks
raise `refnum.errors` when an operator runs. A new launcher needs one entry of `OPERATORS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from refnum.errors import UnsupportedError

from .. import ops
from ..operations import LAUNCHED
from . import shapes as shapes
from .shapes import Wanted

NAMESPACE = "refnum"


@dataclass(frozen=True)
class Operator:
    """One launcher as a torch operator.

    arguments: in torch's schema language. results: the function for shapes and dtypes of the results, with the same
    arguments. returns: the number of results. words: argument -> the function from torch's value to the launcher's.
    differentiable: whether inputs and results are numbers, not codes and scales, so that a request for a gradient is an
    error.
    """

    arguments: str
    results: Callable[..., Wanted]
    returns: int = 2
    words: tuple[tuple[str, Callable[[Any], Any]], ...] = ()
    differentiable: bool = False


def _dtype_name(dtype: torch.dtype | None) -> str:
    return str(dtype or torch.float32).removeprefix("torch.")


def _key(philox: list[int] | None) -> tuple[int, ...] | None:
    """Return a key of N13.5; torch's integers have a sign, so the upper half of the seeds are negative."""
    return philox and (philox[0] % (1 << 64), *philox[1:])  # type: ignore[return-value]


def _rotated_name(dtype: torch.dtype | None) -> str:
    return _dtype_name(dtype or torch.bfloat16)


def _whole(cap: float) -> float:
    """Return a whole number as an int, which a plan can have among its options."""
    return int(cap) if cap.is_integer() else cap


_DTYPE = ("dtype", _dtype_name)
_TILE = ("tile", tuple)

OPERATORS: dict[str, Operator] = {
    "quantize_mxfp4": Operator(
        'Tensor x, str profile="HOPPER", *, Tensor? rbits=None, int[]? philox=None, str layout_out="bytes"',
        shapes.quantize_mxfp4, words=(("philox", _key),),
    ),
    "dequantize_mxfp4": Operator(
        'Tensor packed, Tensor scales, ScalarType? dtype=None, *, str layout_in="bytes"', shapes.dequantize_mxfp4,
        returns=1, words=(_DTYPE,),
    ),
    "quantize_fp8_tiles": Operator(
        'Tensor x, int[] tile=[1, 128], str profile="HOPPER", *, str layout_out="bytes"', shapes.quantize_fp8_tiles,
        words=(_TILE,),
    ),
    "dequantize_fp8_tiles": Operator(
        'Tensor codes, Tensor scales, int[] tile=[1, 128], ScalarType? dtype=None, *, str layout_in="bytes"',
        shapes.dequantize_fp8_tiles, returns=1, words=(_TILE, _DTYPE),
    ),
    "quantize_nvfp4": Operator(
        'Tensor x, str variant="TE", Tensor? tensor_amax=None, int[] tile=[1, 16], *, Tensor? rbits=None, '
        'int[]? philox=None, str layout_out="bytes"',
        shapes.quantize_nvfp4, returns=3, words=(_TILE, ("philox", _key)),
    ),
    "dequantize_nvfp4": Operator(
        'Tensor packed, Tensor scales, Tensor tensor_amax, str order="te", int[] tile=[1, 16], '
        'ScalarType? dtype=None, *, str layout_in="bytes"',
        shapes.dequantize_nvfp4, returns=1, words=(_TILE, _DTYPE),
    ),
    "hadamard16": Operator(
        'Tensor x, int signs=55272, int axis=-1, str order="exact", ScalarType? dtype=None', shapes.hadamard16,
        returns=1, words=(("dtype", _rotated_name),), differentiable=True,
    ),
    "hadamard_quantize_nvfp4": Operator(
        'Tensor x, int signs=55272, int axis=-1, str order="exact", str variant="TE", Tensor? tensor_amax=None, *, '
        'Tensor? rbits=None, int[]? philox=None, str layout_out="bytes"',
        shapes.hadamard_quantize_nvfp4, returns=3, words=(("philox", _key),),
    ),
    "luq": Operator(
        'Tensor x, Tensor r_under, Tensor r_log, int divisor=64, Tensor? tensor_amax=None, str step="real"', shapes.luq
    ),
    "dequantize_luq": Operator(
        "Tensor packed, Tensor alpha, ScalarType? dtype=None", shapes.dequantize_luq, returns=1, words=(_DTYPE,)
    ),
    "radix4": Operator(
        'Tensor x, int n0, str phase="even", str threshold="midpoint"', shapes.radix4, returns=1
    ),
    "dequantize_radix4": Operator(
        'Tensor packed, int n0, str phase="even", ScalarType? dtype=None', shapes.dequantize_radix4, returns=1,
        words=(_DTYPE,),
    ),
    "quantize_tetrajet": Operator(
        'Tensor x, int axis=1, str rule="truncation_free", str ties="even", str ratio="bfloat16", *, '
        "Tensor? rbits=None, int[]? philox=None",
        shapes.quantize_tetrajet, words=(("philox", _key),),
    ),
    "q_ema": Operator(
        'Tensor w, Tensor ema, int axis=1, str rule="truncation_free", str ratio="bfloat16"', shapes.q_ema
    ),
    "dge": Operator(
        'Tensor x, int k=5, float cap=3, str target="bfloat16", str compat="paper"', shapes.dge, returns=1,
        words=(("cap", _whole),), differentiable=True,
    ),
    "occ": Operator(
        'Tensor x, int[] alpha=[99, 100], str axis="tensor"', shapes.occ, returns=3, words=(("alpha", tuple),),
        differentiable=True,
    ),
    "stable_spam_apply": Operator(
        'Tensor gradient, Tensor weight, Tensor m, Tensor v, Tensor factors, str forget=""', shapes.stable_spam_apply,
        returns=3,
    ),
    "fp8_to_mxfp4": Operator(
        'Tensor codes, Tensor scales, str profile="HOPPER", *, str layout_in="bytes", str layout_out="bytes"',
        shapes.fp8_to_mxfp4,
    ),
    "mxfp4_to_fp8": Operator(
        'Tensor packed, Tensor scales, str scale="max", *, str layout_in="bytes", str layout_out="bytes"',
        shapes.mxfp4_to_fp8,
    ),
    "mxfp4_to_fp8_columns": Operator(
        'Tensor packed, Tensor scales, SymInt[]? splits=None, str scale="max"', shapes.mxfp4_to_fp8_columns
    ),
    "mxfp4_to_fp8_rows_columns": Operator(
        'Tensor packed, Tensor scales, SymInt[]? splits=None, str scale="max"', shapes.mxfp4_to_fp8_rows_columns,
        returns=4,
    ),
    "mxfp4_columns": Operator(
        'Tensor packed, Tensor scales, SymInt[]? splits=None, str scale="amax"', shapes.mxfp4_columns
    ),
    "fp8_columns": Operator(
        'Tensor codes, Tensor scales, SymInt[]? splits=None, str underflow="rne"', shapes.fp8_columns
    ),
    "swiglu_quantize": Operator(
        'Tensor gate, Tensor up, Tensor? prob=None, str to="fp8", str profile="HOPPER"', shapes.swiglu_quantize
    ),
    "swiglu_backward": Operator(
        "Tensor grad, Tensor gate, Tensor up, Tensor? prob=None", shapes.swiglu_backward, returns=3, differentiable=True
    ),
    "pack_payload": Operator("Tensor packed, Tensor scales", shapes.pack_payload, returns=1),
    "unpack_payload": Operator("Tensor payload", shapes.unpack_payload),
    "quantize_payload": Operator('Tensor x, str profile="HOPPER"', shapes.quantize_payload, returns=1),
    "fp8_to_payload": Operator('Tensor codes, Tensor scales, str profile="HOPPER"', shapes.fp8_to_payload, returns=1),
    "permute_pad": Operator("Tensor payload, Tensor row_map, SymInt[] splits, SymInt align=32", shapes.permute_pad),
    "permute_unpack": Operator(
        "Tensor payload, Tensor row_map, SymInt[] splits, SymInt align=32", shapes.permute_unpack, returns=3
    ),
    "unpermute": Operator(
        "Tensor rows, Tensor row_map, SymInt[] splits, Tensor? weights, SymInt tokens, SymInt align=32",
        shapes.unpermute, returns=1, differentiable=True,
    ),
    "matmul_fp8": Operator(
        'Tensor a, Tensor b, Tensor? a_scales=None, Tensor? b_scales=None, str order="promote128", '
        'ScalarType? out=None, SymInt[]? splits=None, str a_format="E4M3", str b_format="E4M3"',
        shapes.matmul_fp8, returns=1, words=(("out", _dtype_name),),
    ),
    "matmul_bf16": Operator(
        'Tensor a, Tensor b, str order="chain", ScalarType? out=None, SymInt[]? splits=None',
        shapes.matmul_bf16, returns=1, words=(("out", _dtype_name),),
    ),
    "encode_e2m1": Operator("Tensor x, *, int scale_byte=127", shapes.encode, returns=1),
    "encode_e4m3": Operator('Tensor x, str overflow="saturate"', shapes.encode, returns=1),
    "encode_e8m0": Operator('Tensor x, str rounding="up", bool saturate=False', shapes.encode, returns=1),
}  # fmt: skip
"""Name of a launcher -> its operator; `gpu.operations` says which there must be."""

_library = torch.library.Library(NAMESPACE, "FRAGMENT")


def _bound(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gets every argument of an operator by name, with its defaults.

    torch omits arguments that have their default, at the end of the positional ones and among the keywords.
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
    else:  # or autograd would follow float32 scales, and lose their gradient with a warning
        _library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    overload: Callable[..., Any] = getattr(torch.ops.refnum, name).default
    return overload


def _no_gradient(name: str) -> Callable[..., Any]:
    def backward(context: Any, *gradients: Any) -> Any:
        raise UnsupportedError(f"{name} has no gradient; write the backward pass with the operators themselves")

    return backward


REGISTERED = {name: _register(name, OPERATORS[name]) for name in LAUNCHED}
"""Name of a launcher -> `torch.ops.refnum.<name>.default`."""


def __getattr__(name: str) -> Callable[..., Any]:
    if name in REGISTERED:
        return REGISTERED[name]
    raise AttributeError(f"module {__name__!r} has no operator {name!r}; it has {', '.join(REGISTERED)}")
