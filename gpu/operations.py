"""The table of our operations: every list of their names is made from it."""

from __future__ import annotations

from typing import NamedTuple


class Operation(NamedTuple):
    """One operation.

    family: the name of its module in `gpu.interface`, `gpu.ops` and `gpu.host`. launched: whether it has a kernel, and
    so a launcher in `gpu.ops` and an operator in `gpu.torch`; every operation has a host twin.
    """

    name: str
    family: str
    launched: bool = True


OPERATIONS = (
    Operation("quantize_mxfp4", "blocks"),
    Operation("dequantize_mxfp4", "blocks"),
    Operation("quantize_fp8_tiles", "tiles"),
    Operation("dequantize_fp8_tiles", "tiles"),
    Operation("quantize_nvfp4", "nvfp4"),
    Operation("dequantize_nvfp4", "nvfp4"),
    Operation("hadamard16", "hadamard"),
    Operation("hadamard_quantize_nvfp4", "hadamard"),
    Operation("luq", "logarithmic"),
    Operation("dequantize_luq", "logarithmic"),
    Operation("radix4", "logarithmic"),
    Operation("dequantize_radix4", "logarithmic"),
    Operation("quantize_tetrajet", "tetrajet"),
    Operation("q_ema", "tetrajet"),
    Operation("dge", "estimators"),
    Operation("occ", "estimators"),
    Operation("stable_spam_apply", "optimisers"),
    Operation("fp8_to_mxfp4", "recast"),
    Operation("mxfp4_to_fp8", "recast"),
    Operation("mxfp4_to_fp8_columns", "columns"),
    Operation("mxfp4_to_fp8_rows_columns", "columns"),
    Operation("mxfp4_columns", "columns"),
    Operation("fp8_columns", "columns"),
    Operation("swiglu_quantize", "swiglu"),
    Operation("swiglu_backward", "swiglu"),
    Operation("pack_payload", "payload"),
    Operation("unpack_payload", "payload"),
    Operation("quantize_payload", "payload"),
    Operation("fp8_to_payload", "payload"),
    Operation("permute_pad", "payload"),
    Operation("permute_unpack", "payload"),
    Operation("unpermute", "payload"),
    Operation("matmul_fp8", "product"),
    Operation("matmul_bf16", "product"),
    Operation("encode_e2m1", "casts"),
    Operation("encode_e4m3", "casts"),
    Operation("encode_e8m0", "casts"),
    Operation("decode_e2m1", "casts", launched=False),
    Operation("decode_e4m3", "casts", launched=False),
    Operation("decode_e8m0", "casts", launched=False),
)

NAMES = tuple(one.name for one in OPERATIONS)
LAUNCHED = tuple(one.name for one in OPERATIONS if one.launched)
"""Operations with a kernel."""
