// float32 values in registers -> E4M3 tiles and E2M1 blocks, without a detour by bfloat16 (clauses N2, N4, N5, N6).
//
// A value times the inverse of its scale is exact wherever the code can depend on it: a power of two moves no bit, and
// what falls below the normal range lies far below half of the smallest code. E4M3 is then one conversion of the
// machine. E2M1 has none on Hopper, but an addition to 2**22, 2**23 or 2**24 rounds to halves, ones or twos, to nearest
// even, and leaves the count in the low bits: the code is the smallest of the three counts, shifted to meet at the
// codes of 2 and 4, because the code is concave in the value.
#pragma once

#include "e4m3.cuh"
#include "float32.cuh"

namespace refnum {

// FMNMX.NAN: the larger of a magnitude and |x| as float32 bits; a NaN pattern when one is NaN.
REFNUM_HD uint32_t larger_magnitude(uint32_t most, uint32_t x) {
#ifdef __CUDA_ARCH__
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(__uint_as_float(most)), "f"(fabsf(__uint_as_float(x))));
    return __float_as_uint(larger);
#else
    const uint32_t magnitude = x & FLOAT_MAGNITUDE;  // patterns of NaN lie above all others
    return most > magnitude ? most : magnitude;
#endif
}

// FMUL: |a| * b for b without a sign.
REFNUM_HD uint32_t multiply_magnitude(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(fabsf(__uint_as_float(a))), "f"(__uint_as_float(b)));
    return __float_as_uint(product);
#else
    return multiply_floats(a & FLOAT_MAGNITUDE, b);
#endif
}

// E4M3 code of float32 bits by integers: to nearest even, saturating, NaN 0x7F. Without branches, for vectors. The
// leading one that a subnormal lacks does not matter: it lies far below half of the smallest code.
REFNUM_HD uint32_t e4m3_of_float(uint32_t bits) {
    const uint32_t magnitude = bits & FLOAT_MAGNITUDE;
    const int32_t above = (int32_t)(magnitude >> 23) - 120, clamped = above > 1 ? above : 1;
    const int32_t wanted = clamped - above + 20, places = wanted < 31 ? wanted : 31;
    const uint32_t significand = (magnitude & 0x7FFFFF) | 0x800000, rest = significand & ((1u << places) - 1);
    const uint32_t cut = ((uint32_t)(clamped - 1) << 3) + (significand >> places);
    const uint32_t code = cut + (uint32_t)(rest + (cut & 1) > 1u << (places - 1));
    return magnitude > FLOAT_INF ? E4M3_NAN : (code < 0x7E ? code : 0x7E) | bits >> 31 << 7;
}

// F2FP.SATFINITE.E4M3: two codes from float32 bits, the first one lowest; as `e4m3_of_float`.
REFNUM_HD uint32_t e4m3_pair(uint32_t first, uint32_t second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
        : "=h"(codes) : "f"(__uint_as_float(second)), "f"(__uint_as_float(first)));
    return codes;
#else
    return e4m3_of_float(first) | e4m3_of_float(second) << 8;
#endif
}

// VIADDMNMX: min(a + b, c) of unsigned words.
REFNUM_HD uint32_t add_and_min(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
    return __viaddmin_u32(a, b, c);
#else
    const uint32_t sum = a + b;
    return sum < c ? sum : c;
#endif
}

// SHF: the top `count` bits of `from` moved in below `word`.
template <int count>
REFNUM_HD uint32_t shift_in(uint32_t word, uint32_t from) {
#ifdef __CUDA_ARCH__
    return __funnelshift_l(from, word, count);
#else
    return word << count | from >> (32 - count);
#endif
}

// float32 bits of 2**(127 - byte), byte at most 254.
REFNUM_HD uint32_t inverse_power(uint32_t byte) { return byte == MAX_BYTE ? 0x00400000 : (MAX_BYTE - byte) << 23; }

// Byte of a tile whose largest magnitude is `amax`; `carry` is `e4m3_carry(rule, 23)`. Zeros, and tiles with Inf or
// NaN, take 127.
REFNUM_HD uint32_t float_tile_byte(uint32_t amax, uint32_t carry) {
    if (amax == 0 || amax >= FLOAT_INF) return ONE_BYTE;
    return (uint32_t)clamp_byte((int32_t)((amax + carry) >> 23) - E4M3_EMAX);
}

// `count` words of four E4M3 codes.
template <int count>
REFNUM_HD void e4m3_words(const uint32_t* bits, uint32_t byte, uint32_t* codes) {
    const uint32_t inverse = inverse_power(byte);
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        const uint32_t* x = bits + 4 * i;
        const uint32_t low = e4m3_pair(scale_float(x[0], inverse), scale_float(x[1], inverse));
        const uint32_t high = e4m3_pair(scale_float(x[2], inverse), scale_float(x[3], inverse));
        codes[i] = low | high << 16;
    }
}

// Of a block: the byte that is stored, the one that its elements are scaled by, and whether all codes are zero.
struct BlockByte {
    uint32_t stored, scale;
    bool nan;
};

// `carry` is `e2m1_carry(rule, 23)`.
REFNUM_HD BlockByte float_block_byte(uint32_t amax, uint32_t carry, Policy policy) {
    const bool special = amax >= FLOAT_INF, nan = amax > FLOAT_INF || (special && !policy.satfinite);
    const uint32_t plain = (uint32_t)clamp_byte((int32_t)((amax + carry) >> 23) - E2M1_EMAX);
    const uint32_t byte = special ? MAX_BYTE : plain;
    return {nan ? NAN_BYTE : amax == 0 ? policy.zero_byte : byte, byte, nan};
}

constexpr uint32_t BINADE = 1u << 23, HALVES = 0x4A800000, ONES = HALVES + BINADE, TWOS = ONES + BINADE;

// E2M1 code of a scaled magnitude below 8, above TWOS; with `saturate` at most 7, for any magnitude or Inf.
template <bool saturate>
REFNUM_HD uint32_t e2m1_count(uint32_t scaled) {
    const uint32_t ones = add_and_min(add_floats(scaled, HALVES), BINADE, add_floats(scaled, ONES + 2));
    const uint32_t code = add_and_min(ones, BINADE, add_floats(scaled, TWOS + 4));
    return saturate && code > TWOS + 7 ? TWOS + 7 : code;
}

// `count` packed words of eight E2M1 codes of a block. Without `saturate` no magnitude may reach 7 times the scale.
template <bool saturate, int count>
REFNUM_HD void e2m1_words(const uint32_t* bits, const BlockByte& byte, uint32_t* packed) {
    const uint32_t inverse = inverse_power(byte.scale);
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        uint32_t codes = 0, signs = 0;
#ifndef __CUDA_ARCH__
        uint32_t counts[8];  // by themselves, for vectors
        for (int j = 0; j < 8; ++j) counts[j] = e2m1_count<saturate>(multiply_magnitude(bits[8 * i + j], inverse));
#endif
        REFNUM_UNROLL
        for (int j = 7; j >= 0; --j) {
#ifdef __CUDA_ARCH__
            codes = codes * 16 + e2m1_count<saturate>(multiply_magnitude(bits[8 * i + j], inverse));
#else
            codes = codes * 16 + counts[j];
#endif
            signs = shift_in<4>(signs, bits[8 * i + j]);
        }
        codes = choose(codes - TWOS * 0x11111111u, signs, NIBBLE_MAGNITUDES);
        packed[i] = byte.nan ? 0 : codes;
    }
}

}  // namespace refnum
