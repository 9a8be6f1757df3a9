"""What the array arguments of the public functions hold: the tables that their doors read (clause N0)."""

KINDS: dict[str, str] = {
    "x": "float32", "grad": "float32", "rows": "float32", "prob": "float32", "weights": "float32", "c": "float32",
    "gate": "bfloat16", "up": "bfloat16",
    "codes": "E4M3", "packed": "pairs", "payload": "bytes", "scales": "E8M0", "a_scales": "E8M0", "b_scales": "E8M0",
    "tensor_amax": "float32", "w": "float32", "ema": "float32", "before": "float32", "after": "float32",
    "distance": "float32", "dist_w": "float32", "dist_q": "float32", "total": "float32", "norms": "float32",
    "outer": "float32", "count": "integers", "period": "integers",
    "gradient": "float32", "weight": "float32", "state": "state", "counter": "words", "like": "like",
    "a": "@a_format", "b": "@b_format", "swizzled": "E8M0",
    "rbits": "integers", "row_map": "integers", "scale_exponent": "exponents", "case": "case", "dtype": "dtype",
    "out": "dtype",
}  # fmt: skip
"""Argument -> what it holds: numbers, codes of a format or of the one that an argument names (`@`), bytes, integers."""

OTHERWISE: dict[str, dict[str, str]] = {
    "dequantize_mx": {"codes": "@element"},
    "dequantize_nvfp4": {"scales": "E4M3"},
    "dequantize_tetrajet_v2": {"scales": "E4M3"},
    "osci_reset": {"scales": "E4M3"},
    "luq": {"r_under": "integers", "r_log": "integers"},
    "dequantize_luq": {"alpha": "float32"},
    "dequantize_int4": {"codes": "INT4", "scales": "float32", "zeros": "integers"},
    "hindsight_amax": {"amax": "float32", "previous": "float32"},
    "smp_average": {"samples": "float32"},
    "grad_scale": {"scale": "float32", "amax": "float32", "top": "float32"},
    "llm_fp4": {"maxval": "float32"},
    "stable_spam_factors": {"largest": "measured", "norm": "measured"},
    **{
        name: {"m": "float32", "v": "float32", "factors": "float32"}
        for name in ("adam_apply", "spam_apply", "stable_spam_apply")
    },
    "decode": {"codes": "@fmt"},
    "decode_e2m1": {"codes": "E2M1"},
    "decode_e8m0": {"codes": "E8M0"},
    "matmul_bf16": {"a": "bfloat16", "b": "bfloat16"},
    "scales_from_float32": {"scales": "float32"},
    "scales_from_gemm_float32": {"scales": "float32", "rows": ""},
    "scales_from_packed_ue8m0": {"packed": "int32", "rows": ""},
    "scales_from_swizzled": {"rows": ""},
    "scales_from_layout": {"scales": "@layout", "rows": ""},
    "codes_to_packed": {"codes": "E2M1"},
}
"""Function -> its arguments that hold something else than `KINDS` says; an empty kind is that of no array."""

LAYOUT = {"E8M0": "layout_in", "@layout": "layout"}
"""Kind of scales -> the argument that names their layout."""
STORED = {"float32": "float32", "gemm_float32": "float32", "packed_ue8m0": "int32"}
"""Layout of scales -> what its arrays hold; the others hold E8M0 bytes."""

CODED: dict[str, str] = {
    "float4_e2m1fn": "E2M1", "float6_e2m3fn": "E2M3", "float6_e3m2fn": "E3M2", "float8_e4m3fn": "E4M3",
    "float8_e5m2": "E5M2", "float8_e8m0fnu": "E8M0", "float4_e2m1fn_x2": "pairs", "bfloat16": "BF16",
}  # fmt: skip
"""Name of a dtype of ml_dtypes or torch -> what its bytes are."""

HELD = {
    "float32": "float32, bfloat16 or float16 numbers",
    "bfloat16": "bfloat16 numbers",
    "pairs": "pairs of E2M1 codes: uint8 or float4_e2m1fn_x2",
    "bytes": "bytes: uint8",
    "integers": "integers",
    "int32": "integers of 32 bits",
    "exponents": "integers",
}
"""What an argument holds -> the words of a message."""
