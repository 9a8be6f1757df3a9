"""The defaults of public functions are those that the specification and the guides name."""

from __future__ import annotations

import inspect

import pytest

import refnum

STABLE_SPAM = {
    "lr": 0.001,
    "betas": (0.9, 0.999),
    "eps": 1e-08,
    "weight_decay": 0.0,
    "gammas": (0.7, 0.9),
    "theta": 0.999,
    "gap": 1000,
    "least": 0.5,
    "mode": "code",
}
DEFAULTS = {
    "adam_step": {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-08, "weight_decay": 0.0},
    "decode_e2m1": {"dtype": "float32"},
    "decode_e4m3": {"dtype": "float32"},
    "decode_e8m0": {"dtype": "float32"},
    "dequantize_fp8_tiles": {"tile": (1, 128), "dtype": "float32", "layout_in": "bytes"},
    "dequantize_luq": {"dtype": "float32"},
    "dequantize_mx": {"element": "E2M1", "dtype": "float32"},
    "dequantize_mxfp4": {"dtype": "float32", "layout_in": "bytes"},
    "dequantize_nvfp4": {"order": "te", "tile": (1, 16), "dtype": "float32", "layout_in": "bytes"},
    "dequantize_radix4": {"phase": "even", "dtype": "float32"},
    "dequantize_tetrajet": {"axis": 1, "dtype": "float32"},
    "dequantize_tetrajet_v2": {"dtype": "float32"},
    "dge": {"k": 5, "cap": 3, "target": "bfloat16", "compat": "paper"},
    "double_quantise": {"axis": 0, "rule": "truncation_free", "ties": "even", "ratio": "bfloat16"},
    "ema_update": {"beta": 0.998},
    "encode": {"scale_exponent": 0, "profile": "HOPPER"},
    "encode_e2m1": {"scale_byte": 127},
    "encode_e4m3": {"overflow": "saturate"},
    "encode_e8m0": {"rounding": "up", "saturate": False},
    "fp8_columns": {"underflow": "rne"},
    "fp8_to_mxfp4": {"profile": "HOPPER", "layout_in": "bytes", "layout_out": "bytes"},
    "fp8_to_payload": {"profile": "HOPPER"},
    "hadamard16": {"signs": 55272, "axis": -1, "order": "exact", "dtype": "bfloat16"},
    "hadamard_quantize_nvfp4": {"signs": 55272, "axis": -1, "order": "exact", "variant": "TE", "layout_out": "bytes"},
    "hindsight_amax": {"eta": 0.1},
    "llm_fp4": {"exponent_bits": 2},
    "llm_qat": {"bits": 4, "symmetric": True, "layerwise": False},
    "luq": {"divisor": 64, "step": "real"},
    "matmul_bf16": {"order": "chain", "out": "float32"},
    "matmul_fp8": {"order": "promote128", "out": "float32", "a_format": "E4M3", "b_format": "E4M3"},
    "mxfp4_columns": {"scale": "amax"},
    "mxfp4_to_fp8": {"scale": "max", "layout_in": "bytes", "layout_out": "bytes"},
    "mxfp4_to_fp8_columns": {"scale": "max"},
    "mxfp4_to_fp8_rows_columns": {"scale": "max"},
    "occ": {"alpha": (99, 100), "axis": "tensor"},
    "osci_reset": {"threshold": (495, 1000)},
    "osci_reset_by_distance": {"threshold": (16, 1)},
    "out_control": {"share": (1, 10)},
    "permute_pad": {"align": 32},
    "permute_unpack": {"align": 32},
    "product_bounds": {"chains": "any", "a_format": "E4M3", "b_format": "E4M3"},
    "q_ema": {"axis": 1, "rule": "truncation_free", "ratio": "bfloat16"},
    "q_ramping": {"alpha": (16, 1), "beta": 5, "most": 2147483647},
    "quantize_fp8_tiles": {"tile": (1, 128), "profile": "HOPPER", "layout_out": "bytes"},
    "quantize_mx": {"element": "E2M1", "profile": "HOPPER"},
    "quantize_mxfp4": {"profile": "HOPPER", "layout_out": "bytes"},
    "quantize_nvfp4": {"variant": "TE", "tile": (1, 16), "layout_out": "bytes"},
    "quantize_payload": {"profile": "HOPPER"},
    "quantize_tetrajet": {"axis": 1, "rule": "truncation_free", "ties": "even", "ratio": "bfloat16"},
    "radix4": {"phase": "even", "threshold": "midpoint"},
    "spam_apply": {"clip": True, "reset": False, "decay": False},
    "spam_step": {
        "lr": 0.001,
        "betas": (0.9, 0.999),
        "eps": 1e-06,
        "weight_decay": 0.0,
        "threshold": 5000.0,
        "gap": 500,
        "warmup": 150,
        "quiet": 20,
    },
    "stable_spam_apply": {"forget": ""},
    "stable_spam_factors": STABLE_SPAM,
    "stable_spam_step": STABLE_SPAM,
    "swiglu_quantize": {"to": "fp8", "profile": "HOPPER"},
    "tensor_core_step": {"instruction": "wgmma_fp8", "a_format": "E4M3", "b_format": "E4M3"},
    "tpr": {"threshold": "midpoint"},
    "unpermute": {"align": 32},
    "vector_scales": {"axis": "token", "rule": "real"},
}
"""Function -> its arguments that may be left out, but for those that are None then; a profile or a format by name."""


def defaults(name):
    parameters = inspect.signature(inspect.unwrap(getattr(refnum, name))).parameters.values()
    found = {one.name: one.default for one in parameters if one.default not in (one.empty, None)}
    return {key: getattr(value, "name", value) for key, value in found.items()}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults(name):
    assert defaults(name) == DEFAULTS[name]


def test_every_function_with_a_default_is_here():
    functions = [name for name in refnum.__all__ if inspect.isfunction(getattr(refnum, name))]
    assert {name for name in functions if defaults(name)} == {*DEFAULTS}
