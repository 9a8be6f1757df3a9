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
#define REFNUM_UNROLL _Pragma("unroll")
#else
#define REFNUM_UNROLL
#endif

namespace refnum {

// PRMT: byte i of the result is byte (selector nibble i, three bits) of the eight bytes {high, low}. Selector
// nibbles must be below 8 here; `sign_bytes` is the one use of the fourth bit.
REFNUM_HD uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) {
#ifdef __CUDA_ARCH__
    return __byte_perm(low, high, selector);
#else
    const uint64_t both = (uint64_t)high << 32 | low;
    uint32_t out = (uint32_t)(both >> (8 * (selector & 7))) & 0xFF;
    out |= ((uint32_t)(both >> (8 * (selector >> 4 & 7))) & 0xFF) << 8;
    out |= ((uint32_t)(both >> (8 * (selector >> 8 & 7))) & 0xFF) << 16;
    out |= (uint32_t)(both >> (8 * (selector >> 12 & 7))) << 24;
    return out;
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

// LOP3: bits of `a` where the mask is one, bits of `b` elsewhere.
REFNUM_HD uint32_t choose(uint32_t a, uint32_t b, uint32_t mask) { return (a & mask) | (b & ~mask); }

// The same 16 bits in both lanes.
REFNUM_HD uint32_t both_lanes(uint32_t x) { return x * 0x00010001u; }

// VIMNMX.U16x2: larger of each pair of unsigned 16-bit lanes.
REFNUM_HD uint32_t max_lanes(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    return __vmaxu2(a, b);
#else
    const uint32_t low_a = a & 0xFFFF, low_b = b & 0xFFFF, high_a = a >> 16, high_b = b >> 16;
    return (low_a > low_b ? low_a : low_b) | (high_a > high_b ? high_a : high_b) << 16;
#endif
}

// VIMNMX.U16x2: smaller of each pair of unsigned 16-bit lanes.
REFNUM_HD uint32_t min_lanes(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    return __vminu2(a, b);
#else
    const uint32_t low_a = a & 0xFFFF, low_b = b & 0xFFFF, high_a = a >> 16, high_b = b >> 16;
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
    uint32_t out = 0;
    for (int lane = 0; lane < 32; lane += 16) {
        int32_t sum = (int16_t)(uint16_t)(a >> lane) + (int16_t)(uint16_t)(b >> lane);
        const int32_t most = (int32_t)(top >> lane & 0xFFFF);
        sum = sum > most ? most : sum;
        out |= (uint32_t)(sum < 0 ? 0 : sum) << lane;
    }
    return out;
#endif
}

// Number of zero bits above the leading one; x must not be zero.
REFNUM_HD int32_t leading_zeros(uint32_t x) {
#ifdef __CUDA_ARCH__
    return __clz((int)x);
#else
    return __builtin_clz(x);
#endif
}

// binary16 bits of 2**k, k in -24..15.
REFNUM_HD uint32_t half_power(int32_t k) { return k >= -14 ? (uint32_t)(k + 15) << 10 : 1u << (k + 24); }

#ifndef __CUDA_ARCH__
// One lane of `scale_halves`: binary16 bits times 2**k, rounded to nearest even, by integers.
REFNUM_HD uint32_t scale_half(uint32_t h, int32_t k) {
    const int32_t field = (int32_t)(h >> 10), moved = field + k;
    if (field > 0 && moved > 0) return h + ((uint32_t)k << 10);
    if (h == 0) return 0;
    uint32_t significand = field > 0 ? (h & 0x3FF) | 0x400 : h;
    int32_t up = (field > 0 ? moved : k + 1) - 1;  // the result in units of 2**-24 is significand * 2**up
    if (up <= 0) {
        const int32_t down = -up;
        if (down > 12) return 0;
        const uint32_t kept = significand >> down, rest = significand & ((1u << down) - 1);
        return kept + (2 * rest + (kept & 1) > (1u << down));
    }
    const int32_t lift = leading_zeros(significand) - 21;  // left shift that makes the leading one implicit
    return up > lift ? ((uint32_t)(up - lift + 1) << 10) + ((significand << lift) & 0x3FF) : significand << up;
}
#endif

// HMUL2 (no FTZ): both binary16 lanes of `h`, non-negative and finite, times the lanes of `powers`, each a power
// of two or zero; round to nearest even; no lane may overflow. Subnormal operands and results are kept.
REFNUM_HD uint32_t scale_halves(uint32_t h, uint32_t powers) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(h), "r"(powers));
    return out;
#else
    uint32_t out = 0;
    for (int lane = 0; lane < 32; lane += 16) {
        const uint32_t power = powers >> lane & 0xFFFF;
        if (power == 0) continue;
        const int32_t k = power >= 0x400 ? (int32_t)(power >> 10) - 15 : 7 - leading_zeros(power);
        out |= scale_half(h >> lane & 0xFFFF, k) << lane;
    }
    return out;
#endif
}

// Largest lane of `count` words (a multiple of two) of 16-bit magnitudes.
template <int count>
REFNUM_HD uint32_t largest_lane(const uint32_t* words) {
    uint32_t most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < count; i += 2) most = max3_lanes(most, words[i], words[i + 1]);
    return larger_lane(most);
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
