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
    const NormalFloat x = normal_float(a & FLOAT_MAGNITUDE);
    const uint32_t odd = (uint32_t)x.field & 1, significand = x.significand | 0x800000;  // for a zero some number
    const uint64_t square = (uint64_t)significand << (36 - odd);  // 59 or 60 bits, and an even exponent
    const double whole = (double)(int32_t)significand * (odd ? 1ll << 35 : 1ll << 36);
    uint64_t root = (uint64_t)((int32_t)__builtin_sqrt(whole) - 1);  // too small in every mode, by two at most
    root += (root + 1) * (root + 1) <= square;
    root += (root + 1) * (root + 1) <= square;
    const uint32_t word = (uint32_t)root | (uint32_t)(root * root != square);
    const uint32_t found = rounded_float(word, (x.field + 126 + (int32_t)odd) / 2);
    const uint32_t itself = (uint32_t)((a & FLOAT_MAGNITUDE) == 0) | (uint32_t)(a == FLOAT_INF);
    return choose(a, choose(FLOAT_NAN, found, 0u - (uint32_t)(a > FLOAT_INF)), 0u - itself);
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

REFNUM_HD uint32_t clipped_gradient(uint32_t gradient, const SpamFactors& by) {
    const uint32_t magnitude = gradient & FLOAT_MAGNITUDE;
    // as signed numbers a negative limit is below every magnitude; -0 is no less than 0, and NaN is in no order
    const int32_t limit = by.limit == FLOAT_SIGN ? 0 : (int32_t)by.limit;
    if (magnitude <= FLOAT_INF && (int32_t)magnitude > limit && (by.limit & FLOAT_MAGNITUDE) <= FLOAT_INF) {
        return multiply_floats(divide_floats(gradient, by.largest), by.limit);
    }
    return gradient;
}

REFNUM_HD bool scales_gradients(const SpamFactors& by) { return by.norm - 1 < FLOAT_INF; }
REFNUM_HD uint32_t scaled_gradient(uint32_t gradient, const SpamFactors& by) {
    return multiply_floats(divide_floats(gradient, by.norm), by.wanted);
}

// Given the gradient after both.
REFNUM_HD SpamWeight updated_weight(uint32_t gradient, SpamWeight old, const SpamFactors& by, int forget) {
    if (forget == BEFORE) old.m = old.v = 0;
    const uint32_t m = averaged(old.m, by.beta1, gradient, by.rest1);
    const uint32_t v = averaged(old.v, by.beta2, multiply_floats(gradient, gradient), by.rest2);
    const uint32_t below = add_floats(divide_floats(root_of_float(v), by.root), by.eps);
    const uint32_t step = multiply_floats(by.rate, divide_floats(m, below));
    const uint32_t weight = add_floats(multiply_floats(old.weight, by.decay), step ^ FLOAT_SIGN);
    return {canonical_float(weight), forget == AFTER ? 0 : canonical_float(m), forget == AFTER ? 0 : canonical_float(v)};
}

REFNUM_HD SpamWeight stable_spam_weight(uint32_t gradient, const SpamWeight& old, const SpamFactors& by, int forget) {
    gradient = clipped_gradient(gradient, by);
    return updated_weight(scales_gradients(by) ? scaled_gradient(gradient, by) : gradient, old, by, forget);
}

}  // namespace refnum
