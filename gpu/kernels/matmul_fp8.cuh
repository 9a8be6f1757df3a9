// FP8 products as Hopper's tensor cores sum them: a step of 32 products and an accumulator (clause N19).
//
// All terms of a step are multiples of 2**(E - 13) below 2**(E + 2), E the largest exponent. Added to the *magic*
// number 2**(E + 10), whose last place is 2**(E - 13), a magnitude is cut where N19 cuts it, and the sum's bits are
// those of the magic number plus the cut term as an integer. The bits of negative terms are complemented; the low 23
// bits of the integer sum of all words are the sum of the signed terms less the count of negative ones.
//
// Accumulators are zero, or lie in magnitude from 2**-41 to 2**80: those of a sum that began at zero and has fewer than
// 2**31 terms. NaN and Inf count as finite here, and are put in place by `with_special_terms`.
#pragma once

#include "float32.cuh"

namespace refnum {

enum Fp8 { E4M3 = 0, E5M2 = 1 };

constexpr int STEP = 32;  // products of a step
constexpr uint32_t PRODUCT_NAN = 0x7FFFFFFF, PRODUCT_BF16_NAN = 0x7FFF;

// Exponents travel in 16-bit lanes, where a float32 has its own: one of the left operand plus one of the right is the
// upper half of the magic number.
constexpr uint32_t LEFT_BIAS = 68, RIGHT_BIAS = 69, ABSENT_LANE = 0xC000;
constexpr uint32_t LEAST_MAGIC = 33u << 23;  // below any term's: what a step of zeros has

// Four codes as the step takes them.
struct Fp8Word {
    uint32_t magnitude[4];  // float32 bits; NaN and Inf count as the numbers that their fields would be
    uint32_t mask[4];       // all ones where a code is negative
    uint32_t lanes[2];      // (exponent + bias) << 7, the even code's low; of zero, what makes every sum negative
};

// PRMT with a replicated sign: all ones where byte `j` has its top bit set.
template <int j>
REFNUM_HD uint32_t sign_mask(uint32_t codes) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(out) : "r"(codes), "n"(0x1111 * (8 + j)));
    return out;
#else
    return 0u - (codes >> (8 * j + 7) & 1);
#endif
}

// A code's seven low bits, moved to where a float32 has its fields, are the value times a power of two: normal meets
// normal and subnormal meets subnormal. FMUL by the inverse is exact.
template <Fp8 format, int j>
REFNUM_HD uint32_t fp8_magnitude(uint32_t codes) {
    constexpr int move = (format == E4M3 ? 20 : 21) - 8 * j;
    const uint32_t moved = move < 0 ? codes >> (move < 0 ? -move : 0) : codes << (move < 0 ? 0 : move);
    return multiply_floats(moved & 0x7Fu << (format == E4M3 ? 20 : 21), format == E4M3 ? 0x7B800000 : 0x77800000);
}

// Lanes of codes 0 and 1, or 2 and 3.
template <Fp8 format, int pair>
REFNUM_HD uint32_t fp8_lanes(uint32_t codes, uint32_t bias) {
    constexpr uint32_t mantissa = format == E4M3 ? 3 : 2, zero = format == E4M3 ? 7 : 15;
    const uint32_t spread = permute(codes, 0, pair ? 0x4342 : 0x4140) & 0x007F007F;
    const uint32_t fields = (spread << (7 - mantissa)) & 0x0F800F80;
    const uint32_t lanes = max_lanes(fields, 0x00800080) + both_lanes((bias - zero) << 7);
    return choose(lanes, both_lanes(ABSENT_LANE), lane_signs(spread + 0x7FFF7FFF));
}

template <Fp8 format>
REFNUM_HD Fp8Word fp8_word(uint32_t codes, uint32_t bias) {
    return {{fp8_magnitude<format, 0>(codes), fp8_magnitude<format, 1>(codes), fp8_magnitude<format, 2>(codes),
             fp8_magnitude<format, 3>(codes)},
            {sign_mask<0>(codes), sign_mask<1>(codes), sign_mask<2>(codes), sign_mask<3>(codes)},
            {fp8_lanes<format, 0>(codes, bias), fp8_lanes<format, 1>(codes, bias)}};
}

// Signs of the codes of word `i` of a step, in places of their own; which places does not matter.
REFNUM_HD uint32_t word_signs(uint32_t codes, int i) { return (codes & 0x80808080u) >> i; }

// Whether a byte of a word of codes is NaN or Inf.
template <Fp8 format>
REFNUM_HD bool has_special_code(uint32_t codes) {
    return (((codes & 0x7F7F7F7Fu) + (format == E4M3 ? 0x01010101u : 0x04040404u)) & 0x80808080u) != 0;
}

// VIADDMNMX.16x2: the larger of a + b and `most` in each lane, signed.
REFNUM_HD uint32_t larger_sums(uint32_t a, uint32_t b, uint32_t most) {
#ifdef __CUDA_ARCH__
    return __viaddmax_s16x2(a, b, most);
#else
    const int32_t low = (int16_t)(uint16_t)(a + b), high = (int16_t)(uint16_t)((a >> 16) + (b >> 16));
    const int32_t low_most = (int16_t)(uint16_t)most, high_most = (int16_t)(uint16_t)(most >> 16);
    return (uint32_t)(uint16_t)(low > low_most ? low : low_most) |
           (uint32_t)(uint16_t)(high > high_most ? high : high_most) << 16;
#endif
}

// Both lanes at the accumulator's exponent; of a zero, below all others.
REFNUM_HD uint32_t accumulator_lanes(uint32_t c) { return ((c >> 16 & 0x7F80) + (10u << 7)) * 0x00010001u; }

// The magic number's float32 bits from the largest exponents of both lanes.
REFNUM_HD uint32_t magic_bits(uint32_t most) {
    REFNUM_EXPECTS((most & 0x80008000u) == 0);
    const uint32_t high = most & 0xFFFF0000u, low = most << 16;
    const uint32_t larger = high > low ? high : low;
    return larger > LEAST_MAGIC ? larger : LEAST_MAGIC;
}

// FFMA.RZ: bits of magnitude a * b + magic, cut toward zero.
REFNUM_HD uint32_t cut_product(uint32_t a, uint32_t b, uint32_t magic) {
#ifdef __CUDA_ARCH__
    float sum;
    asm("fma.rz.f32 %0, %1, %2, %3;"
        : "=f"(sum) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)), "f"(__uint_as_float(magic)));
    return __float_as_uint(sum);
#else
    // normal numbers or zeros: significands of 24 bits, places of the product's last bit below the magic number's
    const uint64_t product = (uint64_t)float_significand(a) * float_significand(b);
    const int32_t below = float_exponent(magic) + 150 - float_exponent(a) - float_exponent(b);
    REFNUM_EXPECTS((magic & 0x807FFFFF) == 0 && (product == 0 || below > 0));
    const uint64_t cut = product >> (below < 63 ? below : 63);
    REFNUM_EXPECTS(cut < 1u << 23);
    return magic + (uint32_t)cut;
#endif
}

// What a term adds to the sum of words; `signs` is the xor of the masks of its factors.
REFNUM_HD uint32_t term_word(uint32_t a, uint32_t b, uint32_t signs, uint32_t magic) {
    return cut_product(a, b, magic) ^ signs;
}

// What the accumulator adds: its bits, negated where it is negative.
REFNUM_HD uint32_t accumulator_word(uint32_t c, uint32_t magic) {
    const uint32_t mask = (uint32_t)((int32_t)c >> 31), cut = cut_product(c & FLOAT_MAGNITUDE, FLOAT_ONE, magic);
    return (cut ^ mask) - mask;
}

// The step's result from the sum of all words and the count of negative products: 13 fraction bits.
REFNUM_HD uint32_t step_result(uint32_t words, uint32_t negatives, uint32_t magic) {
#ifdef __CUDA_ARCH__
    // a signed integer of 23 bits beside 2**23 + 2**22, so that one subtraction makes it a float
    const uint32_t shifted = ((words + negatives) & 0x7FFFFF) ^ 0x4B400000;
    const uint32_t total = add_floats(shifted, 0xCB400000);
    return multiply_floats(total & 0xFFFFFC00u, magic - (23u << 23));  // times 2**(E - 13), exact
#else
    const int32_t sum = (int32_t)((words + negatives) << 9) >> 9;
    const uint32_t magnitude = (uint32_t)(sum < 0 ? -sum : sum);
    const int32_t up = 23 - leading_place(magnitude);
    const uint32_t found = magic - ((uint32_t)(up + 1) << 23) + (magnitude << up & 0xFFFFFC00u);  // normal
    return magnitude ? found | (sum < 0 ? FLOAT_SIGN : 0) : 0;
#endif
}

// NaN and Inf among a run's terms are kept beside its accumulator, as two bits: plus and minus infinity; both are NaN.
constexpr uint32_t PLUS = 1, MINUS = 2;

// What the products of `count` codes add to these bits.
template <Fp8 left, Fp8 right>
REFNUM_HD uint32_t special_terms(const uint8_t* a, const uint8_t* b, uint32_t count) {
    uint32_t found = 0;
    REFNUM_ROLLED
    for (uint32_t k = 0; k < count; ++k) {
        const uint32_t x = a[k] & 0x7F, y = b[k] & 0x7F;
        const bool x_inf = left == E5M2 && x == 0x7C, y_inf = right == E5M2 && y == 0x7C;
        const bool x_nan = x > (left == E4M3 ? 0x7E : 0x7C), y_nan = y > (right == E4M3 ? 0x7E : 0x7C);
        if (x_nan || y_nan || (x_inf && y == 0) || (y_inf && x == 0)) found |= PLUS | MINUS;
        else if (x_inf || y_inf) found |= (a[k] ^ b[k]) & 0x80 ? MINUS : PLUS;
    }
    return found;
}

// The accumulator of a run with such terms.
REFNUM_HD uint32_t with_special_terms(uint32_t found, uint32_t c) {
    return found == 0 ? c : found == PLUS ? FLOAT_INF : found == MINUS ? FLOAT_INF | FLOAT_SIGN : PRODUCT_NAN;
}

// float32 bits of an E8M0 byte below 255.
REFNUM_HD uint32_t scale_of_byte(uint32_t byte) { return byte ? byte << 23 : 0x00400000; }

// A run's result c, times both scales, added to a sum: the scales are multiplied first, or the right one is fused alone.
REFNUM_HD uint32_t add_scaled(uint32_t sum, uint32_t c, uint32_t left, uint32_t right, bool scales_first) {
    return scales_first ? multiply_add_floats(c, multiply_floats(left, right), sum)
                        : multiply_add_floats(multiply_floats(c, left), right, sum);
}
// A whole sum times both scales: the scales are multiplied first, where +0 is added before the result is rounded, or the
// right one comes before the left one.
REFNUM_HD uint32_t scale_sum(uint32_t sum, uint32_t left, uint32_t right, bool scales_first) {
    return scales_first ? multiply_add_floats(sum, multiply_floats(left, right), 0)
                        : multiply_floats(multiply_floats(sum, right), left);
}

// A finished product: NaN is canonical.
REFNUM_HD uint32_t product_float(uint32_t bits) { return (bits & FLOAT_MAGNITUDE) > FLOAT_INF ? PRODUCT_NAN : bits; }
REFNUM_HD uint32_t product_bfloat16(uint32_t bits) {
    return (bits & FLOAT_MAGNITUDE) > FLOAT_INF ? PRODUCT_BF16_NAN : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

}  // namespace refnum
