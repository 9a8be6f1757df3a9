// A step of Stable-SPAM at one weight, given the scalars of the step (clause N27.4): every operation rounds once.
#pragma once

#include "division.cuh"

namespace refnum {

// FSQRT: bits of the square root, rounded to nearest even. A NaN has any payload until `canonical_float`.
REFNUM_HD uint32_t root_of_float(uint32_t a) {
#ifdef __CUDA_ARCH__
    float root;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(root) : "f"(__uint_as_float(a)));
    return __float_as_uint(root);
#else
    if ((a & FLOAT_MAGNITUDE) == 0 || a == FLOAT_INF) return a;
    if (a > FLOAT_INF) return FLOAT_NAN;
    const int32_t up = leading_zeros(float_significand(a)) - 8, exponent = float_exponent(a) - 150 - up;
    const bool odd = exponent & 1;  // the square has an even one, and 53 or 54 bits
    const uint64_t square = (uint64_t)float_significand(a) << (up + 30 - odd);
    uint64_t root = (uint64_t)__builtin_sqrt((double)square) - 1;  // too small in every mode, by two at most
    while ((root + 1) * (root + 1) <= square) ++root;
    return round_to_float(root << 1 | (root * root != square), (exponent - 30 + odd) / 2 - 1);
#endif
}

// The scalars of a step as float32 bits, in the order of `refnum.StableSpamFactors`.
struct SpamFactors {
    uint32_t decay, limit, largest, norm, wanted, beta1, rest1, beta2, rest2, root, eps, rate;
};

enum SpamForget : int { KEEP = 0, BEFORE = 1, AFTER = 2 };

// Bits of a weight with its moments.
struct SpamWeight {
    uint32_t weight, m, v;
};

REFNUM_HD uint32_t averaged(uint32_t old, uint32_t beta, uint32_t next, uint32_t rest) {
    return add_floats(multiply_floats(old, beta), multiply_floats(next, rest));
}

REFNUM_HD SpamWeight stable_spam_weight(uint32_t gradient, SpamWeight old, const SpamFactors& by, int forget) {
    const uint32_t magnitude = gradient & FLOAT_MAGNITUDE;
    // as signed numbers a negative limit is below every magnitude; -0 is no less than 0, and NaN is in no order
    const int32_t limit = by.limit == FLOAT_SIGN ? 0 : (int32_t)by.limit;
    if (magnitude <= FLOAT_INF && (int32_t)magnitude > limit && (by.limit & FLOAT_MAGNITUDE) <= FLOAT_INF) {
        gradient = multiply_floats(divide_floats(gradient, by.largest), by.limit);
    }
    if (by.norm - 1 < FLOAT_INF) gradient = multiply_floats(divide_floats(gradient, by.norm), by.wanted);
    if (forget == BEFORE) old.m = old.v = 0;
    const uint32_t m = averaged(old.m, by.beta1, gradient, by.rest1);
    const uint32_t v = averaged(old.v, by.beta2, multiply_floats(gradient, gradient), by.rest2);
    const uint32_t below = add_floats(divide_floats(root_of_float(v), by.root), by.eps);
    const uint32_t step = multiply_floats(by.rate, divide_floats(m, below));
    const uint32_t weight = add_floats(multiply_floats(old.weight, by.decay), step ^ FLOAT_SIGN);
    return {canonical_float(weight), forget == AFTER ? 0 : canonical_float(m), forget == AFTER ? 0 : canonical_float(v)};
}

}  // namespace refnum
