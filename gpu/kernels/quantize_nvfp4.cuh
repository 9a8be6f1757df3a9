// Float block of 16 -> NVFP4 in three orders of float32 operations (clause N21).
//
// What a block's scale needs of the tensor is a few numbers, and the factor of its elements follows from those and the
// scale's E4M3 code alone: a table of 128. An element's product is a float32, whose code float32 additions count.
#pragma once

#include "division.cuh"
#include "float32_codes.cuh"
#include "quantize_mxfp4.cuh"

namespace refnum {

enum Nvfp4Order : int {
    NVFP4_TE = 0, NVFP4_TE_2_8 = 1, NVFP4_TORCHAO = 2,
    NVFP4_MODELOPT = 3, NVFP4_FOUR_OVER_SIX = 4, NVFP4_FOUR_OVER_SIX_MSE = 5,  // nvfp4_variants.cuh
};

constexpr uint32_t FLOAT_LARGEST = 0x7F7FFFFF, FLOAT_SIX = 0x40C00000, FLOAT_SIXTH = 0x3E2AAAAB;
constexpr uint32_t FLOAT_2688 = 0x45280000, FLOAT_448 = 0x43E00000, E4M3_LEAST_NORMAL = 0x3C800000;
constexpr uint32_t NVFP4_CODES = 128;  // of a scale: those without a sign

// The tensor's maximum: a magnitude, NaN as 0 (N21.2).
REFNUM_HD uint32_t tensor_maximum(uint32_t bits) {
    const uint32_t magnitude = bits & FLOAT_MAGNITUDE;
    return magnitude > FLOAT_INF ? 0 : magnitude;
}

REFNUM_HD uint32_t at_most_largest(uint32_t bits) { return bits < FLOAT_INF ? bits : FLOAT_LARGEST; }

// What all blocks of a tensor share: W of N21.3, or g in the order of torchao; fl(W * fl(1/6)); and the reciprocal.
struct TensorScale {
    uint32_t whole, sixth, inverse;
};
REFNUM_HD TensorScale tensor_scale(uint32_t amax, int order) {
    if (order == NVFP4_TORCHAO) {
        const uint32_t whole = divide_floats(amax, FLOAT_2688);
        return {whole, 0, divide_floats(FLOAT_ONE, whole)};
    }
    // the quotient is at least 2**-117, and zero only of an infinity
    const uint32_t found = amax == 0 || amax == FLOAT_INF ? FLOAT_ONE : at_most_largest(divide_floats(FLOAT_2688, amax));
    return {found, multiply_floats(found, FLOAT_SIXTH), divide_floats(FLOAT_ONE, found)};
}

// E4M3 code of float32 bits without a sign, to nearest even, saturating; NaN gives 0x7F.
REFNUM_HD uint32_t e4m3_nearest(uint32_t bits) {
#ifdef __CUDA_ARCH__
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
        : "=h"(pair) : "f"(__uint_as_float(0)), "f"(__uint_as_float(bits)));
    return pair;
#else
    if (bits > FLOAT_INF) return E4M3_NAN;
    if (bits >= FLOAT_448) return 0x7E;
    if (bits >= E4M3_LEAST_NORMAL) return ((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - 960;
    const int32_t places = 141 - float_exponent(bits);  // the last place is 2**-9
    if (places > 25) return 0;
    const uint32_t kept = float_significand(bits) >> places, rest = float_significand(bits) - (kept << places);
    return kept + (2 * rest + (kept & 1) > 1u << places);
#endif
}

// Code of the scale of a block whose maximum is `amax`, float32 bits.
REFNUM_HD uint32_t block_code(uint32_t amax, const TensorScale& tensor, int order) {
    if (order == NVFP4_TE) return e4m3_nearest(at_most_largest(multiply_floats(amax, tensor.sixth)));
    const uint32_t sixth = divide_floats(amax, FLOAT_SIX);
    if (order == NVFP4_TE_2_8) return e4m3_nearest(at_most_largest(multiply_floats(sixth, tensor.whole)));
    const uint32_t scale = canonical_float(divide_floats(sixth, tensor.whole));
    return e4m3_nearest(scale < E4M3_LEAST_NORMAL ? E4M3_LEAST_NORMAL : scale);
}

// Factor of the elements under a scale's code, float32 bits.
REFNUM_HD uint32_t block_factor(uint32_t code, const TensorScale& tensor, int order) {
    const uint32_t scale = e4m3_decode(code, 127);
    if (order == NVFP4_TORCHAO) return canonical_float(divide_floats(tensor.inverse, scale));
    return at_most_largest(divide_floats(FLOAT_ONE, multiply_floats(scale, tensor.inverse)));
}

// Largest magnitude among float32 bits, NaN left out; whether one of them is NaN or Inf goes to `odd`.
template <int count>
REFNUM_HD uint32_t largest_number(const uint32_t* bits, bool& odd) {
    uint32_t most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        const uint32_t magnitude = bits[i] & FLOAT_MAGNITUDE;
        most = magnitude > most ? magnitude : most;
    }
    odd = most >= FLOAT_INF;
    if (most <= FLOAT_INF) return most;
    most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        const uint32_t magnitude = tensor_maximum(bits[i]);
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

// The same of words of two bfloat16 or binary16 lanes, as a pattern of the format.
template <int kind, int words>
REFNUM_HD uint32_t largest_lane(const uint32_t* w, bool& odd) {
    constexpr uint32_t infinity = kind == FLOAT16 ? 0x7C00 : 0x7F80;
    uint32_t most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < words; i += 2) most = max3_lanes(most, w[i] & LANE_MAGNITUDES, w[i + 1] & LANE_MAGNITUDES);
    uint32_t found = larger_lane(most);
    odd = found >= infinity;
    if (found <= infinity) return found;
    found = 0;
    REFNUM_UNROLL
    for (int i = 0; i < words; ++i) {
        const uint32_t low = w[i] & 0x7FFF, high = w[i] >> 16 & 0x7FFF;
        found = low <= infinity && low > found ? low : found;
        found = high <= infinity && high > found ? high : found;
    }
    return found;
}

// E2M1 codes as they are gathered: the float32 number 2**23 + n, whose low bits are n.
constexpr uint32_t NO_CODES = 0x4B000000, MINUS_FIFTEEN = 0xCCF00000;  // -15 * 2**23
constexpr uint32_t FLOAT_SIXTEEN = 0x41800000, FLOAT_FOUR = 0x40800000, FLOAT_TWO = 0x40000000;

#ifdef __CUDA_ARCH__
// FFMA.SAT: |y| / 2 - below, clamped to [0, 1]; NaN gives 0.
__device__ __forceinline__ uint32_t share_above(float below, uint32_t y) {
    float share;
    asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(share) : "f"(fabsf(__uint_as_float(y))), "f"(0.5f), "f"(-below));
    return __float_as_uint(share);
}

// 16 * codes + code of |y|, to nearest even, saturating, NaN 0, for at most three codes so far. A code is the sum of what
// y covers of 0 to 2 in halves, of 2 to 4 in ones, and of 4 to 6 in twos: each a float32 from 0 to 1, added to a number
// with units in its last place. At most one of them is no whole number, so the sum is rounded once.
__device__ __forceinline__ uint32_t append_e2m1(uint32_t codes, uint32_t y) {
    uint32_t sum = multiply_add_floats(codes, FLOAT_SIXTEEN, MINUS_FIFTEEN);
    sum = multiply_add_floats(share_above(0, y), FLOAT_FOUR, sum);
    sum = multiply_add_floats(share_above(1, y), FLOAT_TWO, sum);
    return add_floats(share_above(2, y), sum);
}
#else
// Code of |y|, to nearest even, saturating, NaN 0.
REFNUM_HD uint32_t e2m1_of_float(uint32_t y) {
    const uint32_t magnitude = y & FLOAT_MAGNITUDE;
    const uint32_t code = (uint32_t)(magnitude > 0x3E800000) + (uint32_t)(magnitude >= 0x3F400000) +
                          (uint32_t)(magnitude > 0x3FA00000) + (uint32_t)(magnitude >= 0x3FE00000) +
                          (uint32_t)(magnitude > 0x40200000) + (uint32_t)(magnitude >= 0x40600000) +
                          (uint32_t)(magnitude > 0x40A00000);  // 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5
    return magnitude > FLOAT_INF ? 0 : code;
}
#endif

// The signs of eight elements, in the top bit of every nibble: float32, or words of two lanes.
template <int kind>
REFNUM_HD uint32_t nibble_signs(const uint32_t* w) {
    if (kind == FLOAT32) {
        uint32_t signs = 0;
        REFNUM_UNROLL
        for (int j = 7; j >= 0; --j) signs = shift_in<4>(signs, w[j]);
        return signs;
    }
    const uint32_t first = permute(w[0], w[1], 0x7531), second = permute(w[2], w[3], 0x7531);
    const uint32_t even = permute(first, second, 0x6420), odd = permute(first, second, 0x7531);
    return choose(even >> 4, odd, 0x0F0F0F0Fu);
}

// How elements are put under a factor: times it, divided by it, or divided by it through its rounded reciprocal.
enum Nvfp4Scaling : int { TIMES = 0, DIVIDED = 1, BY_INVERSE = 2 };

template <int scaling>
REFNUM_HD uint32_t scaled_element(uint32_t x, uint32_t factor, uint32_t inverse) {
    if (scaling == TIMES) return multiply_floats(x, factor);
    return scaling == DIVIDED ? divide_floats(x, factor) : divide_by_inverse(x, factor, inverse);
}

// Eight elements under a factor -> a packed word. `odd`: a product may be NaN, whose code is 7 without a sign.
template <int kind, int scaling = TIMES>
REFNUM_HD uint32_t nvfp4_word(const uint32_t* w, uint32_t factor, bool odd, uint32_t inverse = 0) {
    uint32_t y[8];
    float_bits<kind, 4>(w, y);
#ifdef __CUDA_ARCH__
    uint32_t halves[2] = {NO_CODES, NO_CODES};
    REFNUM_UNROLL
    for (int j = 7; j >= 0; --j) {
        y[j] = scaled_element<scaling>(y[j], factor, inverse);
        halves[j / 4] = append_e2m1(halves[j / 4], y[j]);
    }
    const uint32_t codes = permute(halves[0], halves[1], 0x5410);
#else
    uint32_t codes = 0;
    for (int j = 0; j < 8; ++j) {
        y[j] = scaled_element<scaling>(y[j], factor, inverse);
        codes |= e2m1_of_float(y[j]) << 4 * j;
    }
#endif
    uint32_t word = choose(codes, nibble_signs<kind>(w), NIBBLE_MAGNITUDES);
    if (!odd) return word;
    REFNUM_UNROLL
    for (int j = 0; j < 8; ++j) {
        if ((y[j] & FLOAT_MAGNITUDE) > FLOAT_INF) word = (word & ~(0xFu << 4 * j)) | 7u << 4 * j;
    }
    return word;
}

// Whether products with a factor may be NaN, of numbers that are not NaN or Inf.
REFNUM_HD bool is_odd_factor(uint32_t factor) { return factor == 0 || factor >= FLOAT_INF; }

// Words that a block of 16 takes in the input.
template <int kind>
constexpr int NVFP4_WORDS = kind == FLOAT32 ? 16 : 8;

// Maximum of a block as float32 bits.
template <int kind>
REFNUM_HD uint32_t nvfp4_maximum(const uint32_t* w, bool& odd) {
    if (kind == FLOAT32) return largest_number<16>(w, odd);
    return widen_lane<kind == FLOAT32 ? BFLOAT16 : kind>(largest_lane<kind, 8>(w, odd));
}

// A block of 16 under a factor -> two packed words.
template <int kind, int scaling = TIMES>
REFNUM_HD void nvfp4_block(const uint32_t* w, uint32_t factor, bool odd, uint32_t* packed, uint32_t inverse = 0) {
    packed[0] = nvfp4_word<kind, scaling>(w, factor, odd, inverse);
    packed[1] = nvfp4_word<kind, scaling>(w + NVFP4_WORDS<kind> / 2, factor, odd, inverse);
}

}  // namespace refnum
