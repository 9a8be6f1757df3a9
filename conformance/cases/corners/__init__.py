"""The corner set: a fixed list of hand-aimed cases for every operation, run before anything drawn at random.

`CORNERS` maps an operation to the function that yields (label, inputs) or (label, inputs, extra parameters).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from refnum.errors import ArgumentError

from ..case import Case
from ..recipes.random_bits import by_key, with_random_bits
from . import columns, decode, floats, payload, recast, swiglu
from .pairs import pair_corners

CORNERS: dict[str, Callable[..., Iterator[Any]]] = {
    "quantize_mxfp4": floats.quantizer_corners,
    "quantize_mx": floats.quantizer_corners,
    "quantize_fp8_tiles": floats.quantizer_corners,
    "dequantize_mxfp4": decode.dequantize_mxfp4_corners,
    "dequantize_mx": decode.dequantize_mx_corners,
    "dequantize_fp8_tiles": decode.dequantize_tiles_corners,
    "fp8_to_mxfp4": recast.fp8_to_mxfp4_corners,
    "mxfp4_to_fp8": recast.mxfp4_to_fp8_corners,
    "mxfp4_to_fp8_columns": columns.fp4_columns_corners,
    "mxfp4_to_fp8_rows_columns": columns.rows_columns_corners,
    "mxfp4_columns": columns.fp4_columns_corners,
    "fp8_columns": columns.fp8_columns_corners,
    "swiglu_quantize": swiglu.swiglu_quantize_corners,
    "swiglu_backward": swiglu.swiglu_backward_corners,
    "pack_payload": payload.pack_corners,
    "unpack_payload": payload.unpack_corners,
    "quantize_payload": floats.quantizer_corners,
    "fp8_to_payload": recast.fp8_to_mxfp4_corners,
    "permute_pad": payload.permute_corners,
    "permute_unpack": payload.permute_corners,
    "unpermute": payload.unpermute_corners,
    "encode_e2m1": floats.encoder_corners,
    "encode_e4m3": floats.encoder_corners,
    "encode_e8m0": floats.encoder_corners,
    "decode_e2m1": decode.decoder_corners,
    "decode_e4m3": decode.decoder_corners,
    "decode_e8m0": decode.decoder_corners,
}


def corner_cases(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the corner cases of one variant, always the same and in the same order.

    Cases of ragged operations choose their own `splits`; any in `params` are left out. Stochastic profiles get
    fixed Philox bits, or fixed keys. Raises ArgumentError for an operation without corners.
    """
    if operation not in CORNERS:
        raise ArgumentError(f"Operation {operation!r} has no corner set; choose from {', '.join(CORNERS)}.")
    fixed = {name: value for name, value in params.items() if name != "splits"}
    found = chain(CORNERS[operation](operation, fixed), pair_corners(operation, fixed))
    for number, (label, inputs, *extra) in enumerate(found):
        inputs = with_random_bits(operation, profile, inputs, number)
        params = {**fixed, **(extra[0] if extra else {})}
        yield by_key(Case(operation, profile, params, inputs, None, f"corner: {label}"), number)
