"""Exhibits of matrix products: another step, another order, scales of other places (N19)."""

from __future__ import annotations

from .exhibit import exhibit

PRODUCT, STEP = "../host/product.cpp", "matmul_fp8.cuh"
_STEP = "uint32_t step(const StepRow& a, const StepRow& b, uint32_t c) {\n"
_MOST = "    for (int k = 0; k < STEP / 2; ++k) most = larger_sums(a.lanes[k], b.lanes[k], most);\n"
_LEFT = "            const uint32_t left_scale = p.scaling == 1 ? p.a_scales.at(i, s / 4) : 0;\n"
_ADDED = "            sum = p.scaling == 1 ? add_scaled(sum, c, left_scale, p.b_scales.at(j, s / 4), p.scales_first)\n"
_MAGIC = "    return larger > LEAST_MAGIC ? larger : LEAST_MAGIC;\n"
_CUT = "    const uint64_t cut = product >> (below < 63 ? below : 63);\n"
_LANES = "    return choose(lanes, both_lanes(ABSENT_LANE), lane_signs(spread + 0x7FFF7FFF));\n"
_TOTAL = "total = s + 1 == in_part ? sum : add_floats(total, sum);"

EXHIBITS = (
    exhibit(
        "a term keeps 12 bits",
        STEP,
        _MAGIC,
        "    return (larger > LEAST_MAGIC ? larger : LEAST_MAGIC) + (1u << 23);\n",
        "PRODUCT_TERM_BITS",
        "deepseek-ai/DeepGEMM#37 deepseek-ai/DeepSeek-V3#197",
        "",
        "matmul_fp8",
    ),
    exhibit(
        "a term keeps 14 bits",
        STEP,
        _MAGIC,
        "    return (larger > LEAST_MAGIC ? larger : LEAST_MAGIC) - (1u << 23);\n",
        "PRODUCT_TERM_BITS",
        "deepseek-ai/DeepGEMM#37 deepseek-ai/DeepSeek-V3#197",
        "",
        "matmul_fp8",
    ),
    exhibit(
        "terms are rounded to nearest",
        STEP,
        _CUT,
        "    const int32_t places = below < 63 ? below : 63;\n"
        "    const uint64_t half = (uint64_t)1 << (places - 1);\n"
        "    const uint64_t cut = (product + half - 1 + (product >> places & 1)) >> places;\n",
        "PRODUCT_ROUNDS_TERMS",
        "deepseek-ai/DeepSeek-V3#197",
        "",
        "matmul_fp8",
    ),
    exhibit(
        "a zero takes part in the largest exponent",
        STEP,
        _LANES,
        "    return lanes;\n",
        "PRODUCT_ZERO_JOINS_MAX",
        "arXiv:2511.10909",
        "",
        "matmul_fp8",
    ),
    exhibit(
        "products are normalised",
        PRODUCT,
        _MOST,
        "    for (int k = 0; k < STEP; ++k) {\n"
        "        const uint32_t product = multiply_floats(a.magnitude[k], b.magnitude[k]);\n"
        "        if (product) most = larger_sums((((product >> 23) + 10) << 7) * 0x10001u, 0, most);\n"
        "    }\n",
        "PRODUCT_NORMALISED",
        "arXiv:2511.10909",
        "",
        "matmul_fp8",
    ),
    exhibit(
        "products added one by one in float32",
        PRODUCT,
        _STEP,
        _STEP + "    if (STEP) {\n"
        "        for (int k = 0; k < STEP; ++k) {\n"
        "            const uint32_t sign = (a.mask[k] ^ b.mask[k]) & FLOAT_SIGN;\n"
        "            c = multiply_add_floats(a.magnitude[k] | sign, b.magnitude[k], c);\n"
        "        }\n"
        "        return c;\n"
        "    }\n",
        "PRODUCT_STEP_IN_FLOAT32",
        "deepseek-ai/DeepSeek-V3#197",
        "",
        "matmul_fp8",
    ),
    exhibit(
        "the accumulator is never promoted",
        PRODUCT,
        "if (++in_run == p.run || ends_part) {",
        "if (++in_run == (p.scaling == 1 ? p.run : INT64_MAX) || ends_part) {",
        "PRODUCT_NEVER_PROMOTED",
        "triton-lang/triton#2804 triton-lang/triton#2300 arXiv:2412.19437",
        "D27",
        "matmul_fp8",
    ),
    exhibit(
        "a part of K overwrites the others",
        PRODUCT,
        _TOTAL,
        "total = sum;",
        "PRODUCT_PART_RACE",
        "ROCm/aiter#5406",
        "",
        "matmul_fp8",
    ),
    exhibit(
        "the last part of K is added twice",
        PRODUCT,
        _TOTAL,
        "total = s + 1 == in_part ? sum : add_floats(add_floats(total, sum), s + 1 == steps ? sum : 0u);",
        "PRODUCT_PART_RACE",
        "ROCm/aiter#5406",
        "",
        "matmul_fp8",
    ),
    exhibit(
        "scales of the left operand transposed",
        PRODUCT,
        _LEFT,
        "            Scales turned = p.a_scales;\n"
        "            if (turned.row_stride && turned.block_stride) {\n"
        "                turned.row_stride = 1, turned.block_stride = (p.m + turned.tall - 1) / turned.tall;\n"
        "            }\n"
        "            const uint32_t left_scale = p.scaling == 1 ? turned.at(i, s / 4) : 0;\n",
        "PRODUCT_SCALES_TRANSPOSED",
        "flashinfer-ai/flashinfer#2147 flashinfer-ai/flashinfer#2614",
        "",
        "matmul_fp8",
    ),
    exhibit(
        "every block of K has the scale of the first",
        PRODUCT,
        _LEFT + _ADDED,
        (_LEFT + _ADDED).replace("s / 4", "0"),
        "PRODUCT_SCALE_OF_OTHER_BLOCK",
        "sgl-project/sglang#20819 sgl-project/sglang#39637 mlc-ai/TIRx-kernels#5",
        "",
        "matmul_fp8",
    ),
    exhibit(
        "swizzled scales read as plain ones",
        PRODUCT,
        _LEFT,
        "            const Scales& plain = p.a_scales;\n"
        "            const int64_t wide = plain.row_stride, tall = (p.m + plain.tall - 1) / plain.tall;\n"
        "            const int64_t place = i / plain.tall * wide + s / 4, inside = place % 512;\n"
        "            const int64_t tile = place / 512, across = (wide + 3) / 4;\n"
        "            const int64_t row = across ? tile / across * 128 + inside / 16 + 32 * (inside % 16 / 4) : 0;\n"
        "            const int64_t block = across ? tile % across * 4 + inside % 4 : 0;\n"
        "            const uint32_t left_scale = p.scaling != 1 ? 0\n"
        "                : !plain.block_stride ? plain.at(i, s / 4)\n"
        "                : row < tall && block < wide ? plain.at(row * plain.tall, block) : scale_of_byte(0);\n",
        "PRODUCT_SCALES_SWIZZLED",
        "pytorch/ao#4929 pytorch/ao#4844",
        "",
        "matmul_fp8",
    ),
)
