// Packed words: the few machine instructions that every kernel is made of, each with a portable twin.
//
// A word is a uint32_t that holds four bytes, two 16-bit lanes or eight nibbles; element 0 is always lowest.
// On the device each function below is one instruction of sm_90 (named in its comment). On the host the twin
// computes the same word with integers alone, so a host build runs the kernels' own arithmetic.
#pragma once

#ifndef __CUDACC_RTC__
#include <cstdint>
#else
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define REFNUM_HD __host__ __device__ __forceinline__
#else
#define REFNUM_HD inline __attribute__((always_inline))
#endif
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define REFNUM_RARE __host__ __device__ __noinline__  // what few threads call, and shall take no registers of the others
#else
#define REFNUM_RARE inline
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define REFNUM_UNROLL _Pragma("unroll")
#define REFNUM_ROLLED _Pragma("unroll 1")  // rare paths: short code matters more than their speed
#else
#define REFNUM_UNROLL
#define REFNUM_ROLLED
#endif

// What a twin asks of its caller, where the instruction would answer otherwise. Checked in builds for mutation testing.
#ifdef REFNUM_CHECKED
#define REFNUM_EXPECTS(condition) \
    if (!(condition)) __builtin_trap()
#else
#define REFNUM_EXPECTS(condition) (void)0
#endif

namespace refnum {

// PRMT: byte i of the result is byte (selector nibble i, three bits) of the eight bytes {high, low}. Selector
// nibbles must be below 8 here; `sign_bytes` is the one use of the fourth bit.
REFNUM_HD uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) {
#ifdef __CUDA_ARCH__
    return __byte_perm(low, high, selector);
#else
    REFNUM_EXPECTS((selector & 0x8888) == 0);
    const uint64_t both = (uint64_t)high << 32 | low;
    uint32_t out = (uint32_t)(both >> (8 * (selector & 7))) & 0xFF;
    out |= ((uint32_t)(both >> (8 * (selector >> 4 & 7))) & 0xFF) << 8;
    out |= ((uint32_t)(both >> (8 * (selector >> 8 & 7))) & 0xFF) << 16;
    out |= (uint32_t)(both >> (8 * (selector >> 12 & 7))) << 24;
    return out;
#endif
}

// PRMT by the lower half of a selector whose upper half may be anything: `__byte_perm` would mask each half of a word anew.
REFNUM_HD uint32_t permute_low(uint32_t low, uint32_t high, uint32_t selector) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(selector));
    return out;
#else
    return permute(low, high, selector & 0xFFFF);
#endif
}

// PRMT with replicated signs: 0xFF in each byte whose top bit is set, else 0x00.
REFNUM_HD uint32_t sign_bytes(uint32_t x) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("prmt.b32 %0, %1, 0, 0xBA98;" : "=r"(out) : "r"(x));
    return out;
#else
    return (x >> 7 & 0x01010101u) * 0xFFu;
#endif
}

// PRMT with replicated signs: 0xFFFF in each lane whose top bit is set, else 0.
REFNUM_HD uint32_t lane_signs(uint32_t x) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("prmt.b32 %0, %1, 0, 0xBB99;" : "=r"(out) : "r"(x));
    return out;
#else
    return (x >> 15 & 0x00010001u) * 0xFFFFu;
#endif
}

// PRMT: byte `i` of `low` and of `high` as the upper bytes of two lanes, zeros below. Both words' bytes are below 0x80.
template <int i>
REFNUM_HD uint32_t pair_upper(uint32_t low, uint32_t high) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"((4u + i) << 12 | 0x808u | i << 4));
    return out;
#else
    REFNUM_EXPECTS((low & 0x80) == 0);
    return (uint32_t)(uint8_t)(low >> (8 * i)) << 8 | high >> (8 * i) << 24;
#endif
}

// LOP3: bits of `a` where the mask is one, bits of `b` elsewhere. Left to itself, nvcc makes two of it.
REFNUM_HD uint32_t choose(uint32_t a, uint32_t b, uint32_t mask) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xE4;" : "=r"(out) : "r"(a), "r"(b), "r"(mask));
    return out;
#else
    return (a & mask) | (b & ~mask);
#endif
}

// The same 16 bits in both lanes.
REFNUM_HD uint32_t both_lanes(uint32_t x) { return x * 0x00010001u; }

// VIMNMX.U16x2: larger of each pair of unsigned 16-bit lanes.
REFNUM_HD uint32_t max_lanes(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    return __vmaxu2(a, b);
#else
    const uint32_t low_a = (uint16_t)a, low_b = (uint16_t)b, high_a = a >> 16, high_b = b >> 16;
    return (low_a > low_b ? low_a : low_b) | (high_a > high_b ? high_a : high_b) << 16;
#endif
}

// VIMNMX.U16x2: smaller of each pair of unsigned 16-bit lanes.
REFNUM_HD uint32_t min_lanes(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    return __vminu2(a, b);
#else
    const uint32_t low_a = (uint16_t)a, low_b = (uint16_t)b, high_a = a >> 16, high_b = b >> 16;
    return (low_a < low_b ? low_a : low_b) | (high_a < high_b ? high_a : high_b) << 16;
#endif
}

// VIMNMX3.U16x2: largest of three.
REFNUM_HD uint32_t max3_lanes(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
    return __vimax3_u16x2(a, b, c);
#else
    return max_lanes(max_lanes(a, b), c);
#endif
}

// Larger of each pair of unsigned bytes.
REFNUM_HD uint32_t max_bytes(uint32_t a, uint32_t b) {
    return choose(max_lanes(a & 0xFF00FF00u, b & 0xFF00FF00u), max_lanes(a & 0x00FF00FFu, b & 0x00FF00FFu), 0xFF00FF00u);
}

// The larger of the two lanes.
REFNUM_HD uint32_t larger_lane(uint32_t x) {
    const uint32_t low = x & 0xFFFF, high = x >> 16;
    return low > high ? low : high;
}

// Each lane negated as a signed 16-bit integer, for lanes of at most 0x8000.
REFNUM_HD uint32_t negate_lanes(uint32_t x) { return (0x80008000u - x) ^ 0x80008000u; }

// VIADDMNMX.S16x2.RELU: max(a - b, 0) in each lane, for lanes below 0x8000.
REFNUM_HD uint32_t subtract_to_zero(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    return __viaddmax_s16x2_relu(a, negate_lanes(b), 0u);
#else
    return max_lanes(a, b) - b;
#endif
}

// VIADDMNMX.S16x2.RELU: clamp(a + b, 0, top) in each signed lane; no lane sum may leave int16.
REFNUM_HD uint32_t add_and_clamp(uint32_t a, uint32_t b, uint32_t top) {
#ifdef __CUDA_ARCH__
    return __viaddmin_s16x2_relu(a, b, top);
#else
    const int32_t low = (int16_t)a + (int16_t)b, high = (int16_t)(a >> 16) + (int16_t)(b >> 16);
    const int32_t low_top = (uint16_t)top, high_top = (int32_t)(top >> 16);
    REFNUM_EXPECTS(low == (int16_t)low && high == (int16_t)high);
    const int32_t first = low < low_top ? low : low_top, second = high < high_top ? high : high_top;
    return (uint32_t)(first > 0 ? first : 0) | (uint32_t)(second > 0 ? second : 0) << 16;
#endif
}

// Number of zero bits above the leading one; x must not be zero.
REFNUM_HD int32_t leading_zeros(uint32_t x) {
#ifdef __CUDA_ARCH__
    return __clz((int)x);
#else
    REFNUM_EXPECTS(x != 0);
    return __builtin_clz(x);
#endif
}

// binary16 bits of 2**k, k in -24..15.
REFNUM_HD uint32_t half_power(int32_t k) {
    REFNUM_EXPECTS(k >= -24 && k <= 15);
    return k >= -14 ? (uint32_t)(k + 15) << 10 : 1u << (k + 24);
}

#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
// One lane of `scale_halves`: binary16 bits times 2**k, rounded to nearest even, by integers and without branches,
// so that compilers make vectors of it. The one conversion, of an integer below 2**11, is exact and normal: it
// finds the leading one and no floating-point mode can change it.
REFNUM_HD uint32_t scale_half(uint32_t h, int32_t k) {
    const uint32_t normal = h >= 0x400, significand = (h & 0x3FF) | normal << 10;
    const int32_t field = (int32_t)(h >> 10) + 1 - (int32_t)normal + k;  // of the result, were it not subnormal
    const float counted = (float)(int32_t)(significand | 1);
    uint32_t pattern;
    __builtin_memcpy(&pattern, &counted, 4);
    const int32_t lift = 137 - (int32_t)(pattern >> 23);  // brings the leading one to bit 10
    const int32_t moved = field - lift;
    const int32_t up = field > 1 ? field - 1 : 0, low = field < 1 ? 1 - field : 0, down = low < 13 ? low : 13;
    const uint32_t wide = significand << (up & 31), kept = wide >> down, rest = wide & ((1u << down) - 1);
    const uint32_t subnormal = kept + (uint32_t)(2 * rest + (kept & 1) > (1u << down));
    const uint32_t whole = ((uint32_t)moved << 10) + (significand << lift & 0x3FF);
    const uint32_t is_whole = 0u - (uint32_t)(moved > 0), is_some = 0u - (uint32_t)(significand != 0);
    return ((whole & is_whole) | (subnormal & ~is_whole)) & is_some;
}

// k of binary16 bits of 2**k; for 0 one that takes every lane below 2**15 to zero.
REFNUM_HD int32_t exponent_of(uint32_t power) {
    REFNUM_EXPECTS(power < 0x400 ? (power & (power - 1)) == 0 : power <= 0x7800 && power % 0x400 == 0);
    return power >= 0x400 ? (int32_t)(power >> 10) - 15 : power ? 7 - leading_zeros(power) : -64;
}
#endif

// `scale_halves` on `count` words.
template <int count>
REFNUM_HD void scale_all(uint32_t* words, uint32_t powers) {
#ifdef __CUDA_ARCH__
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(words[i]) : "r"(words[i]), "r"(powers));
    }
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
    (void)words, (void)powers;  // the host side of a device compilation runs no kernel arithmetic
#else
    const int32_t low = exponent_of((uint16_t)powers), high = exponent_of(powers >> 16);
    for (int i = 0; i < count; ++i) {
        words[i] = scale_half((uint16_t)words[i], low) | scale_half(words[i] >> 16, high) << 16;
    }
#endif
}

// `count` words, each times its own powers, whose lanes are normal (2**-14 and up) or zero.
template <int count>
REFNUM_HD void scale_each(uint32_t* words, const uint32_t* powers) {
#ifdef __CUDA_ARCH__
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(words[i]) : "r"(words[i]), "r"(powers[i]));
    }
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
    (void)words, (void)powers;
#else
    for (int i = 0; i < count; ++i) {
        const uint32_t low = (uint16_t)powers[i], high = powers[i] >> 16;
        const uint32_t first = scale_half((uint16_t)words[i], (int32_t)(low >> 10) - 15) & (0u - (uint32_t)(low != 0));
        const uint32_t second = scale_half(words[i] >> 16, (int32_t)(high >> 10) - 15) & (0u - (uint32_t)(high != 0));
        words[i] = first | second << 16;
    }
#endif
}

// HMUL2 (no FTZ): both binary16 lanes of `h`, non-negative and finite, times the lanes of `powers`, each a power
// of two or zero; round to nearest even; no lane may overflow. Subnormal operands and results are kept.
REFNUM_HD uint32_t scale_halves(uint32_t h, uint32_t powers) {
    scale_all<1>(&h, powers);
    return h;
}

#ifndef __CUDA_ARCH__
// A significand below 2**24 moved down by `places`, -13 or more, what falls out cut off.
REFNUM_HD uint32_t moved_down(uint32_t significand, int32_t places) {
    REFNUM_EXPECTS(significand < 1u << 24 && places >= -13 && places <= 300);
    if (places > 31) return 0;
    return places >= 0 ? significand >> places : significand << -places;
}

// binary16 bits of float32 magnitude bits times 2**k, cut off toward zero; Inf stays Inf.
REFNUM_HD uint32_t half_below(uint32_t magnitude, int32_t k) {
    if (magnitude >= 0x7F800000) return magnitude > 0x7F800000 ? 0x7FFF : 0x7C00;
    if (magnitude == 0) return 0;
    const uint32_t field = magnitude >> 23, significand = field ? magnitude - ((field - 1) << 23) : magnitude;
    const int32_t unit = (int32_t)(field ? field : 1) - 150 + k;
    const int32_t last = 21 - leading_zeros(significand) + unit;  // place of the last of eleven bits
    if (last > 5) return 0x7BFF;
    const int32_t lowest = last > -24 ? last : -24;
    return ((uint32_t)(lowest + 24) << 10) + moved_down(significand, lowest - unit);  // bit 10 counts as a field
}

// k of float32 bits of 2**k, k in -149..127.
REFNUM_HD int32_t exponent_of_float(uint32_t power) {
    REFNUM_EXPECTS(power < 0x800000 ? (power & (power - 1)) == 0 : power <= 0x7F000000 && power % 0x800000 == 0);
    return power >> 23 ? (int32_t)(power >> 23) - 127 : -118 - leading_zeros(power);
}
#endif

// FMUL and F2FP.RZ: magnitudes of two float32 times `power`, float32 bits of a power of two, as binary16 lanes cut
// off toward zero. The product must be exact or below binary16's last place.
REFNUM_HD uint32_t halves_below(uint32_t low, uint32_t high, uint32_t power) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("{\n\t.reg .f32 a, b;\n\t"
        "abs.f32 a, %1;\n\tabs.f32 b, %2;\n\tmul.rn.f32 a, a, %3;\n\tmul.rn.f32 b, b, %3;\n\t"
        "cvt.rz.f16x2.f32 %0, b, a;\n\t}"
        : "=r"(out)
        : "f"(__uint_as_float(low)), "f"(__uint_as_float(high)), "f"(__uint_as_float(power)));
    return out;
#else
    const int32_t k = exponent_of_float(power);
    return half_below(low & 0x7FFFFFFF, k) | half_below(high & 0x7FFFFFFF, k) << 16;
#endif
}

// Upper half of a 64-bit product.
REFNUM_HD uint64_t high_product(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    return (uint64_t)((unsigned __int128)a * b >> 64);
#endif
}

// 4x4 byte transpose: byte j of word i goes to byte i of word j. Eight PRMT.
REFNUM_HD void transpose_bytes(uint32_t (&w)[4]) {
    const uint32_t a = permute(w[0], w[1], 0x5140), b = permute(w[2], w[3], 0x5140);
    const uint32_t c = permute(w[0], w[1], 0x7362), d = permute(w[2], w[3], 0x7362);
    w[0] = permute(a, b, 0x5410);
    w[1] = permute(a, b, 0x7632);
    w[2] = permute(c, d, 0x5410);
    w[3] = permute(c, d, 0x7632);
}

}  // namespace refnum
