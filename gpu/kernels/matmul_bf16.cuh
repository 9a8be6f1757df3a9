// BF16 products as Hopper's tensor cores sum them: a step of 16 products and an accumulator (clause N19).
//
// A term is an integer of units of 2**(E - 25), E the largest exponent: a product's significand has 16 bits, 14 of them
// behind the point, so it is moved up by 11 and down by its distance to E. Sixteen of these stay below 2**31. NaN and
// Inf count as finite here; like a sum that overflows they are kept as the bits of `special_terms`.
#pragma once

#include "matmul_fp8.cuh"

namespace refnum {

constexpr int BF16_STEP = 16, BF16_LIFT = 11, TERM_BITS = 25;
constexpr int32_t LEAST_EXPONENT = -133;  // of the largest: what a zero term has
constexpr int32_t ABSENT_EXPONENT = -4096;

// A code as the step takes it: |significand|, all ones where it is negative, and its exponent, far below of a zero.
struct Bf16Term {
    uint32_t magnitude, mask;
    int32_t exponent;
};

REFNUM_HD Bf16Term bf16_term(uint32_t code, int lift) {
    const uint32_t field = code >> 7 & 255, fraction = code & 0x7F;
    const uint32_t significand = field ? fraction | 0x80 : fraction;
    const int32_t exponent = (int32_t)(field ? field : 1) - 127;
    return {significand << lift, 0u - (code >> 15 & 1), significand ? exponent : ABSENT_EXPONENT};
}

// Whether a word of two codes holds a NaN or Inf.
REFNUM_HD bool has_special_bf16(uint32_t codes) {
    return (codes & 0x7F80u) == 0x7F80u || (codes & 0x7F800000u) == 0x7F800000u;
}

// SHR.U32, which gives 0 for 32 places and more.
REFNUM_HD uint32_t shifted_down(uint32_t x, uint32_t places) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("shr.u32 %0, %1, %2;" : "=r"(out) : "r"(x), "r"(places));
    return out;
#else
    return places < 32 ? x >> places : 0;
#endif
}

// The exponent with which an accumulator takes part in the largest.
REFNUM_HD int32_t accumulator_exponent(uint32_t c) {
    const int32_t field = (int32_t)(c >> 23 & 255), exponent = (field ? field : 1) - 127;
    return (c & FLOAT_MAGNITUDE) && exponent > LEAST_EXPONENT ? exponent : LEAST_EXPONENT;
}

// What a product adds to the sum of a step's words, less one where it is negative.
REFNUM_HD uint32_t bf16_word(uint32_t a, uint32_t b, uint32_t signs, uint32_t places) {
    return shifted_down(a * b, places) ^ signs;
}

// A step's result: `words` is the sum of the products, whose negative ones are counted beside it; Inf if it overflows.
REFNUM_HD uint32_t bf16_step_result(uint32_t words, uint32_t negatives, uint32_t c, int32_t top) {
    const uint32_t field = c >> 23 & 255, fraction = c & 0x7FFFFF, significand = field ? fraction | 0x800000 : fraction;
    const uint32_t own = shifted_down(significand << 2, (uint32_t)(top - (int32_t)(field ? field : 1) + 127));
    const long long whole = (long long)own, sum = (int32_t)(words + negatives) + (c & FLOAT_SIGN ? -whole : whole);
    const uint32_t magnitude = (uint32_t)(sum < 0 ? -sum : sum), sign = sum < 0 ? FLOAT_SIGN : 0;
    if (magnitude == 0) return 0;
    const int32_t first = top - TERM_BITS + 31 - leading_zeros(magnitude), exponent = first > -126 ? first : -126;
    const int32_t places = exponent - top + TERM_BITS - 23;
    const uint32_t kept = places > 0 ? shifted_down(magnitude, (uint32_t)places) : magnitude << -places;
    if (exponent > 127) return sign | FLOAT_INF;
    return kept ? sign | (((uint32_t)(exponent + 126) << 23) + kept) : 0;
}

// What the products of `count` codes add to the bits of `special_terms`.
REFNUM_HD uint32_t special_bf16_terms(const uint16_t* a, const uint16_t* b, uint32_t count) {
    uint32_t found = 0;
    REFNUM_ROLLED
    for (uint32_t k = 0; k < count; ++k) {
        const uint32_t x = a[k] & 0x7FFF, y = b[k] & 0x7FFF;
        if (x < 0x7F80 && y < 0x7F80) continue;
        const bool invalid = x > 0x7F80 || y > 0x7F80 || x == 0 || y == 0;
        found |= invalid ? PLUS | MINUS : (a[k] ^ b[k]) & 0x8000 ? MINUS : PLUS;
    }
    return found;
}

}  // namespace refnum
