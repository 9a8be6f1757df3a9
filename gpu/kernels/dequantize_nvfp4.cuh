// NVFP4 block of 16 -> bfloat16 or float32: one float32 product an element (clause N21.7).
#pragma once

#include "dequantize_mxfp4.cuh"
#include "quantize_nvfp4.cuh"

namespace refnum {

enum Nvfp4Product : int { PRODUCT_TE = 0, PRODUCT_DIRECT = 1, PRODUCT_FOUR_OVER_SIX = 2 };

constexpr uint32_t FLOAT_PART_2688 = 0x39C30C31, FLOAT_PART_1536 = 0x3A2AAAAB;  // fl(1/2688), fl(1/1536)

// The number that the codes of a block are multiplied by; `amax` is a `tensor_maximum`.
REFNUM_HD uint32_t nvfp4_number(uint32_t code, uint32_t amax, int order) {
    const uint32_t scale = e4m3_decode(code, 127);
    if (order == PRODUCT_DIRECT) return multiply_floats(scale, divide_floats(amax, FLOAT_2688));
    const uint32_t part = order == PRODUCT_TE ? FLOAT_PART_2688 : FLOAT_PART_1536;
    return multiply_floats(multiply_floats(scale, amax), part);
}

// bfloat16 bits of any float32 bits, to nearest even; NaN gives 0x7FC0.
REFNUM_HD uint32_t nearest_bfloat16(uint32_t bits) { return round_to_bfloat16(canonical_float(bits)); }

// Two bfloat16 of two finite float32, or of infinities: bits `low` in the lower half.
REFNUM_HD uint32_t bfloat16_pair(uint32_t low, uint32_t high) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
    return out;
#else
    return round_to_bfloat16(low) | round_to_bfloat16(high) << 16;
#endif
}

// Eight elements of a packed word times a block's number -> eight float32, or four words of two bfloat16.
template <bool wide>
REFNUM_HD void nvfp4_values(uint32_t packed, uint32_t number, uint32_t* out) {
    const DecodeTable plain = {{0x3F3F3F00u, 0x40404040u}, {0xC0800000u, 0xC0804000u}, BYTE_SIGNS};  // under scale 1
    const bool odd = (number & FLOAT_MAGNITUDE) >= FLOAT_INF;
    uint32_t pairs[4];
    decode_word(packed, plain, pairs);
    REFNUM_UNROLL
    for (int i = 0; i < 4; ++i) {
        uint32_t low = multiply_floats(low_float(pairs[i]), number);
        uint32_t high = multiply_floats(high_float(pairs[i]), number);
        if (odd) low = canonical_float(low), high = canonical_float(high);
        if (wide) out[2 * i] = low, out[2 * i + 1] = high;
        else out[i] = odd ? nearest_bfloat16(low) | nearest_bfloat16(high) << 16 : bfloat16_pair(low, high);
    }
}

}  // namespace refnum
