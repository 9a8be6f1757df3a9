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
// Integer significand of finite magnitude bits; the value is that times 2**(float_exponent - 150).
REFNUM_HD uint32_t float_significand(uint32_t magnitude) {
    return magnitude >> 23 ? (magnitude & 0x7FFFFF) | 0x800000 : magnitude;
}
REFNUM_HD int32_t float_exponent(uint32_t magnitude) {
    const int32_t field = (int32_t)(magnitude >> 23);
    return field ? field : 1;
}

// The twins below have no branches, so that compilers make vectors of them.

// The place of the leading one of a word below 2**31, of 0 place 0. The one conversion is exact and normal: no
// floating-point mode can change it.
REFNUM_HD int32_t leading_place(uint32_t word) {
    REFNUM_EXPECTS(word < 1u << 31);
    const float counted = (float)(int32_t)((word | 1) & (word >> 24 ? ~127u : ~0u));
    uint32_t pattern;
    __builtin_memcpy(&pattern, &counted, 4);
    return (int32_t)(pattern >> 23) - 127;
}

// Finite magnitude bits as significand * 2**(field - 150), the leading one at bit 23 unless the significand is zero.
struct NormalFloat {
    uint32_t significand;
    int32_t field;
};
REFNUM_HD NormalFloat normal_float(uint32_t magnitude) {
    const uint32_t fraction = magnitude & 0x7FFFFF;
    const int32_t lift = 23 - leading_place(fraction);
    const bool normal = magnitude >= 1u << 23;
    return {normal ? fraction | 1u << 23 : fraction << lift, normal ? (int32_t)(magnitude >> 23) : 1 - lift};
}

// Magnitude bits of word * 2**(field - 156), the leading one at bit 29, the last bit for what is left: of float32 (24
// digits) or bfloat16 (8).
template <int digits = 24>
REFNUM_HD uint32_t rounded_float(uint32_t word, int32_t field) {
    REFNUM_EXPECTS(word < 1u << 30 && field <= 511);
    constexpr uint32_t infinity = FLOAT_INF >> (24 - digits);
    const int32_t beyond = 30 - digits + (field < 1 ? 1 - field : 0), down = beyond < 31 ? beyond : 31;
    const uint32_t kept = word >> down, rest = word & ((1u << down) - 1);
    const uint32_t rounded = kept + (uint32_t)(2 * rest + (kept & 1) > 1u << down);  // bit digits - 1, or a carry, adds one
    const uint32_t bits = ((uint32_t)(field > 1 ? field - 1 : 0) << (digits - 1)) + rounded;
    return bits < infinity ? bits : infinity;
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
    const NormalFloat left = normal_float(x), right = normal_float(y);
    const uint64_t product = (uint64_t)left.significand * right.significand;  // 47 or 48 bits
    const uint32_t word = (uint32_t)(product >> 17) | (uint32_t)((product & 0x1FFFF) != 0), carry = word >> 30;
    const int32_t field = left.field + right.field - 127 + (int32_t)carry;
    const uint32_t found = rounded_float(word >> carry | (word & carry), field);
    const uint32_t least = x < y ? x : y, most = x < y ? y : x;
    const uint32_t zero = least == 0, special = most + zero > FLOAT_INF ? FLOAT_NAN : sign | FLOAT_INF;
    return choose(special, sign | (found & (zero - 1)), 0u - (uint32_t)(most >= FLOAT_INF));
#endif
}

// FMUL by a power of two, its bits without a sign.
REFNUM_HD uint32_t scale_float(uint32_t bits, uint32_t power) {
#ifdef __CUDA_ARCH__
    return multiply_floats(bits, power);
#else
    const uint32_t magnitude = bits & FLOAT_MAGNITUDE, sign = bits & FLOAT_SIGN;
    const NormalFloat x = normal_float(magnitude);
    const uint32_t found = rounded_float(x.significand << 6, x.field + exponent_of_float(power));
    const uint32_t special = magnitude > FLOAT_INF ? FLOAT_NAN : sign | FLOAT_INF;
    const uint32_t finite = sign | (found & (0u - (uint32_t)(magnitude != 0)));
    return choose(special, finite, 0u - (uint32_t)(magnitude >= FLOAT_INF));
#endif
}

// FADD: bits of a + b. An exact zero is +0, unless both addends carry a minus.
REFNUM_HD uint32_t add_floats(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    float sum;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
    return __float_as_uint(sum);
#else
    const uint32_t swap = (a & FLOAT_MAGNITUDE) < (b & FLOAT_MAGNITUDE), large = swap ? b : a, small = swap ? a : b;
    const uint32_t x = large & FLOAT_MAGNITUDE, y = small & FLOAT_MAGNITUDE, opposite = (a ^ b) >> 31;
    const int32_t field = float_exponent(x), apart = field - float_exponent(y);
    // three places below the larger addend's last: when more of the smaller falls out behind them, the sum keeps a
    // place below the last of its own, and the last bit stands for what fell out
    const uint32_t whole = float_significand(y) << 3, places = (uint32_t)(apart < 31 ? apart : 31);
    const uint32_t cut = whole >> places, aligned = cut | (uint32_t)(cut << places != whole);
    const uint32_t total = (float_significand(x) << 3) + ((aligned ^ (0u - opposite)) + opposite);
    const int32_t up = 29 - leading_place(total);
    const uint32_t found = rounded_float(total << up, field + 3 - up) | (large & FLOAT_SIGN);
    const uint32_t most = x > y + opposite ? x : y + opposite;
    const uint32_t special = most > FLOAT_INF ? FLOAT_NAN : large;  // Inf less Inf as well
    const uint32_t finite = choose(a & b & FLOAT_SIGN, found, 0u - (uint32_t)(total == 0));
    return choose(special, finite, 0u - (uint32_t)(x >= FLOAT_INF));
#endif
}

// FADD: bits of a - b.
REFNUM_HD uint32_t subtract_floats(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    float difference;
    asm("sub.rn.f32 %0, %1, %2;" : "=f"(difference) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
    return __float_as_uint(difference);
#else
    return add_floats(a, b ^ FLOAT_SIGN);
#endif
}

// |x|, which instructions on floats take as it is, while a mask is an instruction of its own.
REFNUM_HD uint32_t absolute_float(uint32_t x) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(fabsf(__uint_as_float(x)));
#else
    return x & FLOAT_MAGNITUDE;
#endif
}

// FFMA: bits of a * b + c, rounded once.
REFNUM_HD uint32_t multiply_add_floats(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
    float sum;
    asm("fma.rn.f32 %0, %1, %2, %3;"
        : "=f"(sum) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)), "f"(__uint_as_float(c)));
    return __float_as_uint(sum);
#else
    const uint32_t x = a & FLOAT_MAGNITUDE, y = b & FLOAT_MAGNITUDE, z = c & FLOAT_MAGNITUDE;
    const uint32_t sign = (a ^ b) & FLOAT_SIGN, opposite = (a ^ b ^ c) >> 31;
    const uint32_t least = x < y ? x : y, most = x < y ? y : x;
    const NormalFloat left = normal_float(x), right = normal_float(y), added = normal_float(z);
    // the leading ones at bit 60; a zero lies below all numbers
    const uint64_t whole = (uint64_t)left.significand * right.significand, carry = whole >> 47;
    const uint64_t product = whole << (14 - carry), addend = (uint64_t)added.significand << 37;
    const int32_t product_field = least == 0 ? -500 : left.field + right.field - 127 + (int32_t)carry;
    const int32_t addend_field = z == 0 ? -500 : added.field, difference = product_field - addend_field;
    const bool swap = difference < 0;
    const uint64_t large = swap ? addend : product, small = swap ? product : addend;
    // what falls out leaves a sticky bit: that takes more than 12 places, and then the sum has 59 bits or more
    const int32_t apart = swap ? -difference : difference, places = apart < 62 ? apart : 62;
    const uint64_t cut = small >> places, aligned = cut | (uint64_t)(cut << places != small);
    const uint64_t minus = opposite, sum = large + ((aligned ^ (0 - minus)) + minus);
    const uint64_t below = sum >> 63, total = (sum ^ (0 - below)) + below;  // of equal exponents either may be larger
    // of 62 bits, or of 12 at least that a difference leaves
    const int32_t low = (uint32_t)(total >> 32) == 0 ? 30 : 0;
    const int32_t up = low + 29 - leading_place((uint32_t)(total << low >> 32));
    const uint64_t moved = total << up;
    const uint32_t word = (uint32_t)(moved >> 32) | (uint32_t)((uint32_t)moved != 0);
    const uint32_t rounded = rounded_float(word, (swap ? addend_field : product_field) + 1 - up);
    const uint32_t larger = (swap ? c & FLOAT_SIGN : sign) ^ (uint32_t)below << 31;
    const uint32_t found = choose(sign & c, larger | rounded, 0u - (uint32_t)(word == 0));
    const uint32_t nan = (uint32_t)(most + (uint32_t)(least == 0) > FLOAT_INF) | (uint32_t)(z > FLOAT_INF);
    const uint32_t infinite = (uint32_t)(most >= FLOAT_INF), beside = (uint32_t)(z >= FLOAT_INF);
    const uint32_t number = choose(sign | FLOAT_INF, choose(c, found, 0u - beside), 0u - infinite);
    return choose(FLOAT_NAN, number, 0u - (nan | (infinite & beside & opposite)));
#endif
}

}  // namespace refnum
