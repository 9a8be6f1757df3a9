// Bits of numbers as instructions take and give them: float32, binary16, bfloat16 and E4M3, and their roundings.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulation {

// What an instruction with NaN gives.
inline float cuda_nan(float x) { return x == x ? x : __builtin_bit_cast(float, 0x7FFFFFFFu); }

inline uint32_t byte_permute(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t both = (uint64_t)high << 32 | low;
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i) {
        const uint32_t nibble = selector >> (4 * i) & 0xF, byte = (uint32_t)(both >> (8 * (nibble & 7))) & 0xFF;
        out |= (nibble & 8 ? (byte & 0x80 ? 0xFFu : 0u) : byte) << (8 * i);
    }
    return out;
}

inline float as_float(uint64_t bits) { return __builtin_bit_cast(float, (uint32_t)bits); }
inline double as_double(uint64_t bits) { return __builtin_bit_cast(double, bits); }
inline uint64_t from_float(float x) { return __builtin_bit_cast(uint32_t, cuda_nan(x)); }
inline float half_value(uint64_t bits) { return (float)__builtin_bit_cast(_Float16, (uint16_t)bits); }
inline uint64_t half_bits(float x) {  // a product of two halves is exact in float32, so it is rounded once
    return x == x ? __builtin_bit_cast(uint16_t, (_Float16)x) : 0x7FFFu;
}

inline float bfloat16_value(uint64_t bits) { return __builtin_bit_cast(float, (uint32_t)bits << 16); }
inline uint64_t bfloat16_bits(float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    return x == x ? (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16 : 0x7FFFu;
}

// The smaller magnitude of two bfloat16, NaN left out, under the product of their signs.
inline uint32_t smaller_bfloat16(uint32_t a, uint32_t b) {
    const uint32_t x = a & 0x7FFF, y = b & 0x7FFF;
    return (x < y ? x : y) | ((a ^ b) & 0x8000);
}

// The larger one; NaN without a sign if one is NaN.
inline uint32_t larger_bfloat16(uint32_t a, uint32_t b) {
    const uint32_t x = a & 0x7FFF, y = b & 0x7FFF, larger = x > y ? x : y;
    return larger > 0x7F80 ? 0x7FFF : larger | ((a ^ b) & 0x8000);
}

// a * b + c of numbers with few digits, whose sum is exact or lies nowhere near a tie: rounded to odd, a float rounds as it does.
inline float few_digits_fma(float a, float b, float c) {
    const double sum = (double)a * b + c;
    const float nearest = (float)sum;
    if (nearest == sum || nearest != nearest || __builtin_isinf(nearest)) return nearest;
    const uint64_t bits = from_float(nearest);
    return as_float((__builtin_fabs((double)nearest) > __builtin_fabs(sum) ? bits - 1 : bits) | 1);
}

// Rounded toward zero: the nearest half, or the one below it in magnitude.
inline uint64_t half_bits_down(float x) {
    const uint64_t nearest = half_bits(x);
    const float got = half_value(nearest);
    return (x > 0 && got > x) || (x < 0 && got < x) ? nearest - 1 : nearest;
}

// Finite a * b + c, rounded toward zero: the sum of doubles and what it lost say on which side of it the float lies.
inline float fma_toward_zero(float a, float b, float c) {
    const double product = (double)a * b, sum = product + c, back = sum - product;
    const double lost = (product - (sum - back)) + (c - back);
    const float nearest = (float)sum;
    const bool beyond = sum > 0 ? nearest > sum || (nearest == sum && lost < 0) : nearest < sum || (nearest == sum && lost > 0);
    return beyond && nearest != 0 ? as_float(from_float(nearest) - 1) : nearest;
}

// Finite a + b, rounded up or down: the sum to nearest, and what it lost, say on which side of it the result lies.
inline float directed_sum(float a, float b, bool up) {
    const float sum = a + b, back = sum - a, lost = (a - (sum - back)) + (b - back);
    if (a == -b) return up ? 0.0f : -0.0f;
    if (up ? lost <= 0 : lost >= 0) return sum;
    return __builtin_nextafterf(sum, up ? __builtin_inff() : -__builtin_inff());
}

// E4M3 to nearest even, saturating: codes count eighths of the binade, below 2**-6 of its own lowest.
inline uint64_t e4m3_bits(float x) {
    if (x != x) return 0x7F;
    const float magnitude = __builtin_fabsf(x);
    const int binade = magnitude < 0x1p-6f ? -6 : __builtin_ilogbf(magnitude < 448 ? magnitude : 448.0f);
    const float eighths = __builtin_nearbyintf(__builtin_ldexpf(magnitude < 448 ? magnitude : 448.0f, 3 - binade));
    return (uint64_t)(8 * (binade + 6) + (int)eighths) | (__builtin_signbit(x) ? 0x80 : 0);
}

}  // namespace emulation
