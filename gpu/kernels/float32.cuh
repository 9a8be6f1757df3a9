// float32 products and sums on bit patterns, each rounded once to nearest even (clauses N0, N11, N12).
//
// On the device each is one instruction, named with its rounding and without .ftz, so that no compiler flag can
// flush or fuse it. On the host the twin computes the same bits with integers alone, whatever the process's
// floating-point mode. A NaN that comes out has any payload until `canonical_float` makes it 0x7FC00000.
#pragma once

#include "words.cuh"

namespace refnum {

constexpr uint32_t FLOAT_SIGN = 0x80000000, FLOAT_MAGNITUDE = ~FLOAT_SIGN, FLOAT_INF = 0x7F800000;
constexpr uint32_t FLOAT_NAN = 0x7FC00000, FLOAT_ONE = 0x3F800000;

REFNUM_HD uint32_t canonical_float(uint32_t bits) {
    return (bits & FLOAT_MAGNITUDE) > FLOAT_INF ? FLOAT_NAN : bits;
}

#ifndef __CUDA_ARCH__
// float32 magnitude bits of word * 2**exponent. The word is zero, or has more than 24 bits, or lies so low that
// all of it falls below the last place.
REFNUM_HD uint32_t round_to_float(uint64_t word, int32_t exponent) {
    if (word == 0) return 0;
    const int32_t length = 64 - __builtin_clzll(word);
    const int32_t lowest = -149 - exponent;  // places below the last one of a subnormal
    const int32_t beyond = length - 24, places = beyond > lowest ? beyond : lowest;
    if (places > length) return 0;
    const uint64_t kept = word >> places, rest = word - (kept << places);
    const uint64_t rounded = kept + (2 * rest + (kept & 1) > (uint64_t)1 << places);
    const int32_t field = exponent + places + 149;  // 0: subnormal; kept bit 23, or a carry, adds one by itself
    if (field > 253) return FLOAT_INF;
    return ((uint32_t)field << 23) + (uint32_t)rounded;
}

// Integer significand of finite magnitude bits; the value is that times 2**(float_exponent - 150).
REFNUM_HD uint32_t float_significand(uint32_t magnitude) {
    return magnitude >> 23 ? (magnitude & 0x7FFFFF) | 0x800000 : magnitude;
}
REFNUM_HD int32_t float_exponent(uint32_t magnitude) {
    const int32_t field = (int32_t)(magnitude >> 23);
    return field ? field : 1;
}

// A significand moved up by 27 places, then down by `apart`, as far as two exponents can lie apart.
REFNUM_HD uint64_t aligned_significand(uint32_t significand, int32_t apart) {
    REFNUM_EXPECTS(significand < 1u << 24 && apart >= 0 && apart <= 253);
    return ((uint64_t)significand << 27) >> (apart < 60 ? apart : 60);
}

// A mask of ones if a condition holds.
REFNUM_HD uint32_t all_if(bool condition) { return 0u - (uint32_t)condition; }

// Bits up to the leading one of a word below 2**31, of zero 1. The conversion is exact: no mode can change it.
REFNUM_HD int32_t length_of_word(uint32_t word) {
    const uint32_t spare = all_if(word >= 1u << 24) & 0x7F;
    const float counted = (float)(int32_t)((word | 1) & ~spare);
    uint32_t pattern;
    __builtin_memcpy(&pattern, &counted, 4);
    return (int32_t)(pattern >> 23) - 126;
}

// Places that bring the leading one of finite magnitude bits' significand to bit 23, 23 for zero.
REFNUM_HD int32_t places_to_raise(uint32_t magnitude) { return 24 - length_of_word(float_significand(magnitude)); }

// As `round_to_float` of a word below 2**30 that is not zero, without branches.
REFNUM_HD uint32_t rounded_float(uint32_t word, int32_t exponent) {
    const int32_t beyond = length_of_word(word) - 24, lowest = -149 - exponent;
    const int32_t places = beyond > lowest ? beyond : lowest, field = exponent + places + 149;
    const int32_t up = places < 0 ? -places : 0, down = places < 0 ? 0 : places < 31 ? places : 31;
    const uint32_t kept = word >> down, rest = word - (kept << down);
    const uint32_t rounded = (kept + (uint32_t)(2 * rest + (kept & 1) > 1u << down)) << up;
    return choose(FLOAT_INF, ((uint32_t)field << 23) + rounded, all_if(field > 253));
}
#endif

// FMUL: bits of a * b.
REFNUM_HD uint32_t multiply_floats(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
    return __float_as_uint(product);
#else
    const uint32_t x = a & FLOAT_MAGNITUDE, y = b & FLOAT_MAGNITUDE, sign = (a ^ b) & FLOAT_SIGN;
    if (x >= FLOAT_INF || y >= FLOAT_INF) {
        const bool invalid = x > FLOAT_INF || y > FLOAT_INF || x == 0 || y == 0;
        return invalid ? FLOAT_NAN : sign | FLOAT_INF;
    }
    // doubled, so that a normal times the smallest subnormal has more than 24 bits
    const uint64_t product = (uint64_t)float_significand(x) * float_significand(y) * 2;
    return sign | round_to_float(product, float_exponent(x) + float_exponent(y) - 301);
#endif
}

// FMUL by a power of two, its bits without a sign. The twin has no branches, so that compilers make vectors of it.
REFNUM_HD uint32_t scale_float(uint32_t bits, uint32_t power) {
#ifdef __CUDA_ARCH__
    return multiply_floats(bits, power);
#else
    const uint32_t magnitude = bits & FLOAT_MAGNITUDE, sign = bits & FLOAT_SIGN;
    const int32_t exponent = float_exponent(magnitude) + exponent_of_float(power) - 150;
    const uint32_t product = rounded_float(float_significand(magnitude), exponent) & all_if(magnitude != 0);
    const uint32_t special = choose(FLOAT_NAN, bits, all_if(magnitude > FLOAT_INF));
    return choose(sign | product, special, all_if(magnitude < FLOAT_INF));
#endif
}

// FADD: bits of a + b. An exact zero is +0, unless both addends carry a minus.
REFNUM_HD uint32_t add_floats(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    float sum;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
    return __float_as_uint(sum);
#else
    const bool swap = (a & FLOAT_MAGNITUDE) < (b & FLOAT_MAGNITUDE);
    const uint32_t large = swap ? b : a, small = swap ? a : b;
    const uint32_t x = large & FLOAT_MAGNITUDE, y = small & FLOAT_MAGNITUDE;
    const bool opposite = ((a ^ b) & FLOAT_SIGN) != 0;
    if (x >= FLOAT_INF) return x > FLOAT_INF || (y == FLOAT_INF && opposite) ? FLOAT_NAN : large;
    // 27 places below the larger addend's last: when bits of the smaller fall out behind them, all of it lies far
    // below half a place and they cannot decide
    const uint64_t left = aligned_significand(float_significand(x), 0);
    const uint64_t aligned = aligned_significand(float_significand(y), float_exponent(x) - float_exponent(y));
    const uint64_t total = opposite ? left - aligned : left + aligned;
    if (total == 0) return a & b & FLOAT_SIGN;
    return (large & FLOAT_SIGN) | round_to_float(total, float_exponent(x) - 177);
#endif
}

#ifndef __CUDA_ARCH__
// A number other than zero as a word whose leading one is bit 60, times 2**exponent.
struct LeadingOne {
    uint64_t word;
    int32_t exponent;
};
REFNUM_HD LeadingOne leading_one(uint64_t word, int32_t exponent) {
    const int32_t places = __builtin_clzll(word) - 3;
    return {word << places, exponent - places};
}
#endif

// FFMA: bits of a * b + c, rounded once.
REFNUM_HD uint32_t multiply_add_floats(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
    float sum;
    asm("fma.rn.f32 %0, %1, %2, %3;"
        : "=f"(sum) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)), "f"(__uint_as_float(c)));
    return __float_as_uint(sum);
#else
    const uint32_t x = a & FLOAT_MAGNITUDE, y = b & FLOAT_MAGNITUDE, z = c & FLOAT_MAGNITUDE;
    const uint32_t sign = (a ^ b) & FLOAT_SIGN;
    if (x == 0 || y == 0 || x >= FLOAT_INF || y >= FLOAT_INF) return add_floats(multiply_floats(a, b), c);
    if (z == 0) return multiply_floats(a, b);
    if (z >= FLOAT_INF) return c;
    LeadingOne large = leading_one((uint64_t)float_significand(x) * float_significand(y),
                                   float_exponent(x) + float_exponent(y) - 300);
    LeadingOne small = leading_one(float_significand(z), float_exponent(z) - 150);
    const bool swap = large.exponent < small.exponent || (large.exponent == small.exponent && large.word < small.word);
    if (swap) {
        const LeadingOne other = large;
        large = small;
        small = other;
    }
    // what falls out leaves a sticky bit: that takes more than 12 places, and then the difference has 59 bits or more
    const int32_t apart = large.exponent - small.exponent, places = apart < 62 ? apart : 62;
    const uint64_t cut = small.word >> places, aligned = cut | ((cut << places) != small.word);
    const uint64_t total = ((c ^ sign) & FLOAT_SIGN) ? large.word - aligned : large.word + aligned;
    if (total == 0) return 0;
    const int32_t up = __builtin_clzll(total) - 1;
    return (swap ? c & FLOAT_SIGN : sign) | round_to_float(total << up, large.exponent - up);
#endif
}

#ifndef __CUDA_ARCH__
// As `multiply_floats` and `add_floats`, without branches: compilers make vectors of loops of these.
REFNUM_HD uint32_t multiply_lane(uint32_t a, uint32_t b) {
    const uint32_t x = a & FLOAT_MAGNITUDE, y = b & FLOAT_MAGNITUDE, sign = (a ^ b) & FLOAT_SIGN;
    // 29 or 30 bits of the product of two significands whose leading one is bit 23
    const int32_t up = places_to_raise(x), other = places_to_raise(y);
    const uint32_t left = float_significand(x) << up, right = float_significand(y) << other;
    const uint32_t word = (uint32_t)((uint64_t)left * right >> 18) | (uint32_t)((left * right & 0x3FFFF) != 0);
    const uint32_t product = rounded_float(word, float_exponent(x) - up + float_exponent(y) - other - 282);
    const uint32_t zero = all_if((x == 0) | (y == 0)), nan = all_if((x > FLOAT_INF) | (y > FLOAT_INF)) | zero;
    const uint32_t special = choose(FLOAT_NAN, sign | FLOAT_INF, nan);
    return choose(special, sign | (product & ~zero), all_if((x >= FLOAT_INF) | (y >= FLOAT_INF)));
}
REFNUM_HD uint32_t add_lane(uint32_t a, uint32_t b) {
    // Three places below the larger addend's last, the third of which stands for all that falls out, decide: a
    // difference loses more than one leading place only where nothing falls out.
    const uint32_t swap = all_if((a & FLOAT_MAGNITUDE) < (b & FLOAT_MAGNITUDE));
    const uint32_t large = choose(b, a, swap), small = choose(a, b, swap), sign = large & FLOAT_SIGN;
    const uint32_t x = large & FLOAT_MAGNITUDE, y = small & FLOAT_MAGNITUDE, minus = all_if((a ^ b) >> 31);
    const int32_t apart = float_exponent(x) - float_exponent(y), down = apart < 27 ? apart : 27;
    const uint32_t left = float_significand(x) << 3, right = float_significand(y) << 3;
    const uint32_t moved = right >> down, aligned = moved | (uint32_t)((moved << down) != right);
    const uint32_t total = left + ((aligned ^ minus) - minus);
    const uint32_t sum = sign | rounded_float(total, float_exponent(x) - 153);
    const uint32_t finite = choose(a & b & FLOAT_SIGN, sum, all_if(total == 0));
    const uint32_t nan = all_if(x > FLOAT_INF) | (all_if(y == FLOAT_INF) & minus);
    return choose(choose(FLOAT_NAN, large, nan), finite, all_if(x >= FLOAT_INF));
}
#endif

}  // namespace refnum
