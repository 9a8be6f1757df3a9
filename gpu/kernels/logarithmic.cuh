// Logarithmic FP4: floats -> packed [1,3,0] codes of LUQ and of radix 4, and back (clause N23).
//
// Quotients by LUQ's step go through its reciprocal. Levels of radix 4 lie two exponents apart, so that a difference of
// bit patterns counts them.
#pragma once

#include "dequantize_nvfp4.cuh"
#include "float32_codes.cuh"

namespace refnum {

enum RadixThreshold : int { RADIX_MIDPOINT = 0, RADIX_04 = 1, RADIX_LOG = 2 };

constexpr uint32_t FLOAT_FRACTION = 0x7FFFFF, FLOAT_2_24 = 0x4B800000, FLOAT_LEAST = 1;

// Step of LUQ from the tensor's maximum, a magnitude (N23.2). `divisor`: float32 bits of a power of two.
REFNUM_HD uint32_t luq_step(uint32_t amax, uint32_t divisor, bool power_of_two) {
    const uint32_t alpha = divide_floats(amax, divisor);
    if (!power_of_two || alpha < 2) return alpha;
    if (alpha > FLOAT_FRACTION) return (alpha + FLOAT_FRACTION) & ~FLOAT_FRACTION;  // Inf stays
    return 2u << (31 - leading_zeros(alpha - 1));
}

// What all elements share: the step, its reciprocal, 128 steps, and the least magnitude whose quotient is not 0.
// `plain`: a step of 2**-78 to 2**100, for which every remainder of a quotient of 2**-24 and more is exact.
struct LuqScale {
    uint32_t alpha, inverse, top, least;
    bool plain;
};
REFNUM_HD LuqScale luq_scale(uint32_t alpha) {
    const uint32_t field = alpha >> 23;
    const bool plain = field >= 49 && field <= 227;
    if (!plain) return {alpha, 0, 0, 0, false};
    const uint32_t half = field > 150 ? alpha - (150u << 23)  // of the step, in units of the least number
                          : field > 119 ? ((alpha & FLOAT_FRACTION) | 0x800000) >> (151 - field) : 0;
    return {alpha, divide_floats(FLOAT_ONE, alpha), alpha + (7u << 23), half + 1, true};
}

// fl(x / step) of a plain step, for a magnitude of at most 128 steps; of less than 2**-24 steps any number of that size.
REFNUM_HD uint32_t luq_quotient(uint32_t x, const LuqScale& scale) {
    return divide_by_inverse(x, scale.alpha, scale.inverse);
}

// I2F: float32 bits of an integer below 2**24, exact.
REFNUM_HD uint32_t float_of_integer(uint32_t n) {
    const float x = (float)(int32_t)n;
#ifdef __CUDA_ARCH__
    return __float_as_uint(x);
#else
    uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
#endif
}

// Magnitude code of a quotient of 1 or more (N23.5), Inf included; elsewhere any word.
REFNUM_HD uint32_t luq_level(uint32_t quotient, uint32_t log) {
    const uint32_t level = (quotient + log - (126u << 23)) >> 23;
    return level < 7 ? level : 7;
}

// Magnitude code of a number under a plain step. One above 128 steps is cut to them, Inf and NaN too.
REFNUM_HD uint32_t luq_plain_code(uint32_t bits, uint32_t under, uint32_t log, const LuqScale& scale) {
    const uint32_t whole = bits & FLOAT_MAGNITUDE, magnitude = whole < scale.top ? whole : scale.top;
    const uint32_t quotient = luq_quotient(magnitude, scale);
    // a quotient is not 0 here, so the least number is added; it is lost in any that is not below a half
    const uint32_t bound = multiply_add_floats(quotient, FLOAT_2_24, FLOAT_LEAST);
    const uint32_t kept = float_of_integer(under) < bound && magnitude >= scale.least;
    return quotient >= FLOAT_ONE ? luq_level(quotient, log) : kept;
}

// The same under any step, by the division itself.
REFNUM_HD uint32_t luq_any_code(uint32_t bits, uint32_t under, uint32_t log, uint32_t alpha) {
    const uint32_t magnitude = bits & FLOAT_MAGNITUDE;
    if (magnitude == 0 || magnitude >= FLOAT_INF) return magnitude ? 7 : 0;
    const uint32_t quotient = divide_floats(magnitude, alpha);
    if (quotient >= FLOAT_ONE) return quotient < FLOAT_INF ? luq_level(quotient, log) : 7;
    return float_of_integer(under) < multiply_floats(quotient, FLOAT_2_24);
}

// Eight codes without the signs of zeros.
REFNUM_HD uint32_t without_zero_signs(uint32_t codes) {
    return codes & (((codes & NIBBLE_MAGNITUDES) + NIBBLE_MAGNITUDES) | NIBBLE_MAGNITUDES);
}

// NaNs of `count` numbers without a sign, when there are some.
template <int count>
REFNUM_HD void unsigned_nans(uint32_t* bits) {
    uint32_t most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        const uint32_t magnitude = bits[i] & FLOAT_MAGNITUDE;
        most = magnitude > most ? magnitude : most;
    }
    if (most <= FLOAT_INF) return;
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) bits[i] = canonical_float(bits[i]);
}

// `count` codes of float32 bits, element 0 lowest; count is at most 8. `plain`: as the scale's.
template <int count, bool plain>
REFNUM_HD uint32_t luq_codes(const uint32_t* bits, const uint32_t* under, const uint32_t* log, const LuqScale& scale) {
    uint32_t codes = 0, signs = 0;
#ifndef __CUDA_ARCH__
    uint32_t found[count];  // by itself, for vectors
    for (int i = 0; i < count; ++i) {
        found[i] = plain ? luq_plain_code(bits[i], under[i], log[i], scale)
                         : luq_any_code(bits[i], under[i], log[i], scale.alpha);
    }
#endif
    REFNUM_UNROLL
    for (int i = count - 1; i >= 0; --i) {
#ifdef __CUDA_ARCH__
        codes = codes * 16 + (plain ? luq_plain_code(bits[i], under[i], log[i], scale)
                                    : luq_any_code(bits[i], under[i], log[i], scale.alpha));
#else
        codes = codes * 16 + found[i];
#endif
        signs = shift_in<4>(signs, bits[i]);
    }
    return without_zero_signs(choose(codes, signs, NIBBLE_MAGNITUDES));
}

// Numbers that the codes of LUQ count steps by, as bytes of bfloat16: 0 and seven powers of two.
REFNUM_HD DecodeTable luq_table() {
    return {{0x40403F00u, 0x42424141u}, {0x80008000u, 0x80008000u}, BYTE_SIGNS};
}

// Eight packed codes times a step -> eight float32, or four pairs of bfloat16 (N23.6).
template <bool wide>
REFNUM_HD void luq_values(uint32_t packed, uint32_t alpha, uint32_t* out) {
    const bool odd = (alpha & FLOAT_MAGNITUDE) >= FLOAT_INF;
    uint32_t pairs[4];
    decode_word(packed, luq_table(), pairs);
    REFNUM_UNROLL
    for (int i = 0; i < 4; ++i) {
        uint32_t low = multiply_floats(low_float(pairs[i]), alpha), high = multiply_floats(high_float(pairs[i]), alpha);
        if (odd) low = canonical_float(low), high = canonical_float(high);
        if (wide) out[2 * i] = low, out[2 * i + 1] = high;
        else out[i] = odd ? nearest_bfloat16(low) | nearest_bfloat16(high) << 16 : bfloat16_pair(low, high);
    }
}

// The largest magnitudes that are below the first and below the second level of radix 4: float32 bits (N23.8).
// `exponent`: that of two of the first level. `lanes`: what is added to bfloat16 patterns,
// so that those of the first level begin with 256.
struct RadixBounds {
    uint32_t first, second, lanes;
    bool narrow;  // whether `lanes` will do: the first bound is normal, and a little above
};
REFNUM_HD uint32_t radix_bound(int32_t exponent, int threshold) {
    const uint32_t part = threshold == RADIX_MIDPOINT ? 0xA00000 : threshold == RADIX_04 ? 0xCCCCCC : 0x800000;
    const int32_t field = exponent + (threshold == RADIX_04 ? 125 : 126);
    return field > 0 ? ((uint32_t)(field - 1) << 23) + part : part >> (1 - field);
}
REFNUM_HD RadixBounds radix_bounds(int32_t exponent, int threshold) {
    const uint32_t first = radix_bound(exponent, threshold);
    return {first, radix_bound(exponent + 2, threshold), both_lanes((255 - (first >> 16)) & 0xFFFF),
            first >= 0x01000000};
}

// Magnitude code of float32 bits.
REFNUM_HD uint32_t radix_level(uint32_t bits, const RadixBounds& bounds) {
    const uint32_t magnitude = bits & FLOAT_MAGNITUDE;
    const int32_t above = ((int32_t)(magnitude - bounds.second - 1) >> 24) + 2;
    const int32_t level = above < 1 ? 1 : above > 7 ? 7 : above;
    return magnitude > bounds.first ? (uint32_t)level : 0;
}

// `count` codes of float32 bits, 8 or fewer.
template <int count>
REFNUM_HD uint32_t radix_codes(const uint32_t* bits, const RadixBounds& bounds) {
    uint32_t codes = 0, signs = 0;
    REFNUM_UNROLL
    for (int i = count - 1; i >= 0; --i) {
        codes = codes * 16 + radix_level(bits[i], bounds);
        signs = shift_in<4>(signs, bits[i]);
    }
    return without_zero_signs(choose(codes, signs, NIBBLE_MAGNITUDES));
}

// Eight codes of four words of bfloat16, under narrow bounds.
REFNUM_HD uint32_t radix_lanes(const uint32_t* w, const RadixBounds& bounds) {
    uint32_t levels[4], signs[4];
    REFNUM_UNROLL
    for (int i = 0; i < 4; ++i) {
        const uint32_t magnitudes = w[i] & LANE_MAGNITUDES;
        levels[i] = add_and_clamp(magnitudes, bounds.lanes, 0x07FF07FFu) << 1;
        signs[i] = w[i] & ~((magnitudes + 0x007F007Fu) & 0x80008000u);  // a NaN has none
    }
    return without_zero_signs(e2m1_pack_lanes(levels, signs));
}

// Bytes of bfloat16 of the levels; `field`: the exponent field of the first one.
REFNUM_HD DecodeTable radix_table(uint32_t field) {
    const uint32_t up = field >> 1, four = up * 0x01010101u, last = field & 1 ? 0x80808080u : 0;
    return {{(four & ~0xFFu) + 0x02010000u, four + 0x06050403u}, {last & ~0xFFu, last}, BYTE_SIGNS};
}

// Eight packed codes -> eight float32, or four pairs of bfloat16 (N23.9).
template <bool wide>
REFNUM_HD void radix_values(uint32_t packed, const DecodeTable& table, uint32_t* out) {
    uint32_t pairs[4];
    decode_word(packed, table, pairs);
    REFNUM_UNROLL
    for (int i = 0; i < 4; ++i) {
        if (wide) out[2 * i] = low_float(pairs[i]), out[2 * i + 1] = high_float(pairs[i]);
        else out[i] = pairs[i];
    }
}

}  // namespace refnum
