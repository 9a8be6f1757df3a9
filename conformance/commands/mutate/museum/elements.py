"""Exhibits of element rounding, saturation and signs (families C and D)."""

from __future__ import annotations

from .exhibit import exhibit

_ROUND = "    const uint32_t code = cut + (uint32_t)(rest + (cut & 1) > 1u << (places - 1));\n"
_E4M3 = "REFNUM_HD uint32_t e4m3_of_float(uint32_t bits) {\n"
_SIGNS = "        signs[i] = w[i] & ~(magnitudes + ABOVE_INF) & scale.signs;\n"
_CODES = "        codes[i] = choose(permute(first, second, 0x7531) >> 1, signed_bytes, 0x07070707u);\n"
_WEIGHTED = "    return first ? term : add_floats(sum, term);"
_FUSED = (
    "    float s, a, b;\n    __builtin_memcpy(&s, &sum, 4);\n    __builtin_memcpy(&a, &weight, 4);\n"
    "    __builtin_memcpy(&b, &x, 4);\n    s = __builtin_fmaf(a, b, s);\n    uint32_t fused;\n"
    "    __builtin_memcpy(&fused, &s, 4);\n    return first ? term : fused;"
)

EXHIBITS = (
    exhibit(
        "ties up, in the quantiser",
        "e2m1.cuh",
        "return h + (h >> 9 & 0x00010001u) + 0x00FF00FFu;",
        "return h + 0x01000100u;",
        "E2M1_TIES_UP",
        "ROCm/aiter#974 ROCm/aiter#2247 triton-lang/triton#8110 meta-pytorch/MSLK#374",
        "A1 D1 D3 D6",
        "quantize_mxfp4",
    ),
    exhibit(
        "ties up, in the conversion from FP8",
        "fp8_to_mxfp4.cuh",
        "return x + (x >> 4 & 0x01010101u) + 0x07070707u;",
        "return x + 0x08080808u;",
        "E2M1_TIES_UP",
        "ROCm/aiter#3992 ROCm/aiter#4030 ROCm/aiter#5259",
        "D4 D5",
        "fp8_to_mxfp4",
    ),
    exhibit(
        "ties up, in the scalar conversion",
        "float32_codes.cuh",
        _ROUND,
        "    const uint32_t code = cut + (uint32_t)(rest >= 1u << (places - 1));\n",
        "E2M1_TIES_UP E4M3_TIES_UP",
        "ROCm/aiter#3153 ahrefs/ocannl#646",
        "D21 D25",
        "encode_e4m3",
    ),
    exhibit(
        "ties toward zero",
        "e2m1.cuh",
        "return h + (h >> 9 & 0x00010001u) + 0x00FF00FFu;",
        "return h + 0x00FF00FFu;",
        "E2M1_TIES_TO_ZERO",
        "github.com/NVIDIA/Model-Optimizer github.com/ml-explore/mlx",
        "D23 D24",
        "quantize_mxfp4",
    ),
    exhibit(
        "sticky bits lost",
        "quantize_mxfp4.cuh",
        "return permute(low, high, 0x7632) | min_lanes(rest, 0x00010001u);",
        "return permute(low, high, 0x7632) | (rest >> 15 & 0x00010001u);",
        "E2M1_STICKY_LOST DOUBLE_ROUNDING_BF16",
        "ROCm/aiter#974 triton-lang/triton#8610 tenstorrent/tt-metal#51971",
        "D2 D3 D7",
        "quantize_mxfp4",
    ),
    exhibit(
        "sticky bits lost, in the scalar conversion",
        "encode_elements.cuh",
        "w[i] = odd_bfloat16_pair(in[2 * i], in[2 * i + 1]);",
        "w[i] = permute(in[2 * i], in[2 * i + 1], 0x7632);",
        "E2M1_STICKY_LOST",
        "ROCm/rocm-systems#10591 tenstorrent/tt-metal#51975",
        "D7 D9",
        "encode_e2m1",
    ),
    exhibit(
        "through bfloat16",
        "quantize_mxfp4.cuh",
        "    const uint32_t rest = permute(low, high, 0x5410);\n"
        "    return permute(low, high, 0x7632) | min_lanes(rest, 0x00010001u);",
        "    if ((low & 0x7FFFFFFF) < 0x7F7F8000) low += 0x7FFF + (low >> 16 & 1);\n"
        "    if ((high & 0x7FFFFFFF) < 0x7F7F8000) high += 0x7FFF + (high >> 16 & 1);\n"
        "    return permute(low, high, 0x7632);",
        "DOUBLE_ROUNDING_BF16 AMAX_NARROWED",
        "MurrellGroup/Microfloats.jl#25 PTO-ISA/SuperNPUBench#111",
        "A7 A30 D16 D20",
        "quantize_mxfp4",
    ),
    exhibit(
        "through float16",
        "float32_codes.cuh",
        _E4M3,
        _E4M3 + "    const uint32_t low = bits & 0x1FFF;\n"
        "    if ((bits & 0x7FFFFFFF) < 0x7F800000) bits = (bits & ~0x1FFFu) + "
        "((uint32_t)(low > 0x1000 || (low == 0x1000 && (bits >> 13 & 1))) << 13);\n",
        "DOUBLE_ROUNDING_FP16",
        "triton-lang/triton#11753 triton-lang/triton#2583 triton-lang/triton#10846",
        "D17",
        "encode_e4m3",
    ),
    exhibit(
        "carry out of the mantissa lost",
        "float32_codes.cuh",
        _ROUND,
        "    const uint32_t up = rest + (cut & 1) > 1u << (places - 1), code = (cut & ~7u) | ((cut + up) & 7);\n",
        "E4M3_CARRY_LOST",
        "triton-lang/triton#9808 triton-lang/triton#8322",
        "D19",
        "encode_e4m3",
    ),
    exhibit(
        "largest value taken for an overflow",
        "encode_elements.cuh",
        "<< 7) + 0x140;",
        "<< 7) + 0x100;",
        "TOP_VALUE_UNREACHABLE",
        "ROCm/rocm-systems#6870",
        "D8",
        "encode_e2m1",
    ),
    exhibit(
        "what rounds beyond the largest wraps",
        "encode_elements.cuh",
        "<< 7) + 0x140;",
        "<< 7) + 0x180;",
        "OVERFLOW_WRAPS",
        "pytorch/ao#436",
        "A25 A26",
        "encode_e2m1",
    ),
    exhibit(
        "NaN where it should saturate",
        "float32_codes.cuh",
        "(code < 0x7E ? code : 0x7E)",
        "(code < 0x7F ? code : 0x7F)",
        "E4M3_OVERFLOW_POLICY",
        "jax-ml/ml_dtypes#400 pytorch/pytorch#177870 ucb-bar/saturn-vectors#101",
        "C2 C3 C4 C6",
        "encode_e4m3",
    ),
    exhibit(
        "saturation at 256",
        "float32_codes.cuh",
        "(code < 0x7E ? code : 0x7E)",
        "(code < 0x78 ? code : 0x78)",
        "E4M3_SATURATES_EARLY",
        "sgl-project/sglang#40581",
        "C7",
        "encode_e4m3",
    ),
    exhibit(
        "NaN keeps its sign",
        "float32_codes.cuh",
        "magnitude > FLOAT_INF ? E4M3_NAN :",
        "magnitude > FLOAT_INF ? E4M3_NAN | bits >> 31 << 7 :",
        "E4M3_NAN_SIGN",
        "stillwater-sc/universal#1302 leanprover/TensorLib#95",
        "",
        "encode_e4m3",
    ),
    exhibit(
        "sign of zero lost, decoding",
        "e4m3.cuh",
        "    if (magnitude == 0) return sign;\n",
        "    if (magnitude == 0) return 0;\n",
        "E4M3_NEG_ZERO SIGN_OF_ZERO_LOST",
        "ROCm/rocm-libraries#7439",
        "",
        "decode_e4m3",
    ),
    exhibit(
        "sign of zero lost, encoding",
        "float32_codes.cuh",
        "(code < 0x7E ? code : 0x7E) | bits >> 31 << 7;",
        "(code < 0x7E ? code : 0x7E) | (code ? bits >> 31 << 7 : 0);",
        "E4M3_NEG_ZERO SIGN_OF_ZERO_LOST",
        "ROCm/rocm-libraries#7439",
        "",
        "encode_e4m3",
    ),
    exhibit(
        "NaN becomes -0",
        "encode_elements.cuh",
        _SIGNS,
        _SIGNS + "        const uint32_t nan = lane_signs(magnitudes + ABOVE_INF);\n"
        "        lanes[i] &= ~nan;\n        signs[i] |= nan & scale.signs;\n",
        "SPECIAL_INPUT_UNDEFINED",
        "github.com/jax-ml/ml_dtypes",
        "C16",
        "encode_e2m1",
    ),
    exhibit(
        "plus zero becomes minus zero",
        "encode_elements.cuh",
        _CODES,
        _CODES + "        codes[i] |= ~((codes[i] & 0x07070707u) + 0x07070707u) & 0x08080808u;\n",
        "SIGN_OF_ZERO_LOST",
        "github.com/NVIDIA/Model-Optimizer",
        "C15",
        "encode_e2m1",
    ),
    exhibit(
        "subnormal inputs flushed",
        "quantize_mxfp4.cuh",
        "    const uint32_t rest = permute(low, high, 0x5410);",
        "    if ((low & 0x7F800000) == 0) low &= 0x80000000;\n    if ((high & 0x7F800000) == 0) high &= 0x80000000;\n"
        "    const uint32_t rest = permute(low, high, 0x5410);",
        "FTZ_SILENT",
        "cupy/cupy#9576 cupy/cupy#8382 pytorch/pytorch#126848 flashinfer-ai/flashinfer#2440",
        "B7 B13",
        "quantize_mxfp4",
    ),
    exhibit(
        "random bits left out",
        "parts.cuh",
        " + (draws << 1), HALF_E2M1_MAX);",
        ", HALF_E2M1_MAX);",
        "STOCHASTIC_BITS_IGNORED ELEMENT_TRUNCATED",
        "NVIDIA/TransformerEngine#3281",
        "D22",
        "quantize_mxfp4",
    ),
    exhibit(
        "product and sum fused",
        "payload.cuh",
        _WEIGHTED,
        _FUSED,
        "FMA_CONTRACTION",
        "numba/numba#2834 NVIDIA/numba-cuda#118",
        "",
        "unpermute",
    ),
    exhibit(
        "product rounded to bfloat16",
        "swiglu.cuh",
        "        bits[i] = weighted ? multiply_floats(product, prob) : product;",
        "        const uint32_t whole = weighted ? multiply_floats(product, prob) : product;\n"
        "        const bool nan = (whole & FLOAT_MAGNITUDE) > FLOAT_INF;\n"
        "        bits[i] = nan ? whole : (whole + 0x7FFF + (whole >> 16 & 1)) & 0xFFFF0000u;",
        "SWIGLU_BF16_INTERMEDIATE",
        "ROCm/aiter#3147",
        "A7",
        "swiglu_quantize",
    ),
    exhibit(
        "routing weight left out",
        "swiglu.cuh",
        "bits[i] = weighted ? multiply_floats(product, prob) : product;",
        "bits[i] = product;",
        "SWIGLU_PROB_IGNORED",
        "github.com/anonymous-git-2026/MXFP4-Hopper",
        "",
        "swiglu_quantize",
    ),
)
