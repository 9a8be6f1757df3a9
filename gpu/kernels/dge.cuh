// The slope of DGE at float32 numbers (clause N25.1 to N25.3).
//
// An estimate in float64 gives the slope to within 2^-44 (2^-37 for the released code's places) and decides, unless it
// lies that near to the middle of two numbers of the target: then integers decide (N25.2), on one in 10^5 numbers.
#pragma once

#include "float32.cuh"
#include "quantize_mxfp4.cuh"

namespace refnum {

enum DgeCompat : int { PAPER = 0, MS_AMP = 1 };

constexpr uint32_t DGE_SIX = 0x40C00000;
constexpr uint32_t FLOAT_EVENS = 0x4BC00000;  // 1.5 * 2**24: the sum with a float below 8 is the nearest even number
constexpr int DGE_LIMBS = 46, DGE_LIMB = 28;

// What is the same for all numbers of a call. gpu/interface/estimators.py makes it.
struct DgeRule {
    double inverse, second;  // 1 / k, (k + 1) / (2 k**2)
    float exponent;          // 1 / k - 1
    int32_t k;
    uint32_t cap;  // in the target
};

// A place: t as float32 bits, rounded for an estimate only and of either sign, and the exact |t|.
struct DgePlace {
    uint32_t near;
    double t;
};

REFNUM_HD uint64_t double_bits(double x) {
#ifdef __CUDA_ARCH__
    return (uint64_t)__double_as_longlong(x);
#else
    uint64_t bits;
    __builtin_memcpy(&bits, &x, 8);
    return bits;
#endif
}

REFNUM_HD double bits_double(uint64_t bits) {
#ifdef __CUDA_ARCH__
    return __longlong_as_double((long long)bits);
#else
    double x;
    __builtin_memcpy(&x, &bits, 8);
    return x;
#endif
}

// The float64 of float32 magnitude bits of a normal number; a smaller one becomes some number below 2**-126.
REFNUM_HD double widened_float(uint32_t magnitude) {
    return bits_double(((uint64_t)magnitude << 29) + ((uint64_t)896 << 52));
}

REFNUM_HD double magnitude_of(double x) {
#ifdef __CUDA_ARCH__
    return fabs(x);
#else
    return x < 0 ? -x : x;
#endif
}

// a * b + c: DFMA. Only how near an estimate comes depends on whether it rounds once.
REFNUM_HD double fused_double(double a, double b, double c) {
#ifdef __CUDA_ARCH__
    double sum;
    asm("fma.rn.f64 %0, %1, %2, %3;" : "=d"(sum) : "d"(a), "d"(b), "d"(c));
    return sum;
#else
    return a * b + c;
#endif
}

// A magnitude of at most 6 times 4 below 2, times 2 below 4: the bounds of intervals become even integers. From 1 on the
// exponent becomes that of 4.
REFNUM_HD uint32_t dge_stretched(uint32_t magnitude) {
    const uint32_t small = magnitude + (2u << 23), large = (magnitude & 0x7FFFFF) | 0x40800000;
    return small < large ? small : large;
}

// The even integer at which the interval of a stretched magnitude begins. At a bound either interval will do, and the
// sum with minus 1 rounds nothing but what lies in the first interval.
REFNUM_HD uint32_t dge_begin(uint32_t stretched) {
    return subtract_floats(add_floats(subtract_floats(stretched, FLOAT_ONE), FLOAT_EVENS), FLOAT_EVENS);
}

// `bits` of a magnitude of at most 6 (the paper's) or of any number but those above 6 and NaN (the released code's).
template <int compat>
REFNUM_HD DgePlace dge_place(uint32_t bits) {
    const uint32_t magnitude = bits & FLOAT_MAGNITUDE, inside = magnitude < DGE_SIX ? magnitude : DGE_SIX;
    const uint32_t stretched = dge_stretched(inside), stretch = stretched - inside;
#ifndef __CUDA_ARCH__
    if (compat == PAPER) {  // the middle is the odd integer next to it: its own whole part or the one above
        const int32_t places = 150 - float_exponent(stretched);
        const int32_t whole = (int32_t)(float_significand(stretched) >> (places < 31 ? places : 31));
        const double t = magnitude_of(widened_float(stretched) - (whole | 1));
        return {t == 0 ? 0 : (uint32_t)((double_bits(t) - ((uint64_t)896 << 52)) >> 29), t};
    }
#endif
    const uint32_t begin = dge_begin(stretched);
    if (compat == PAPER) {
        const uint32_t middle = add_floats(begin, FLOAT_ONE);
        const double apart = widened_float(stretched) - bits_double((uint64_t)((middle >> 3) + (896u << 20)) << 32);
        return {subtract_floats(stretched, middle), magnitude_of(apart)};
    }
    const bool negative = bits > FLOAT_SIGN;
    const uint32_t bound = negative ? add_floats(begin, 0x40000000) : begin;  // in units of the stretch, less its sign
    const uint32_t lower = bound ? bound - stretch : 0;
    const uint32_t from = add_floats(bits, negative ? lower : lower | FLOAT_SIGN);
    const uint32_t part = multiply_floats(add_floats(from, from), (126u << 23) + stretch);
    const uint32_t near = add_floats(part, FLOAT_ONE | FLOAT_SIGN) & FLOAT_MAGNITUDE;
    return {near, widened_float(near)};
}

// z * u**(k - 1), k `fixed` unless that is 0.
template <int fixed>
REFNUM_HD double dge_power(double z, double u, int32_t k) {
    if (fixed == 5) {
        const double square = u * u;
        return square * square * z;
    }
    REFNUM_ROLLED
    for (uint32_t left = (uint32_t)k - 1; left; left >>= 1) {
        if (left & 1) z *= u;
        u *= u;
    }
    return z;
}

// float32 bits near |t|**(1/k - 1), to within 2**-15 of it for any |t|, 2**-17 for those above 2**-25 and below 2.
REFNUM_HD uint32_t dge_estimate(uint32_t near, const DgeRule& rule) {
#ifdef __CUDA_ARCH__
    float power, found;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(fabsf(__uint_as_float(near))));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(__fmul_rn(power, rule.exponent)));
    return __float_as_uint(found);
#else
    // a cubic comes within 2**-10 of the logarithm and of the power, and a step cubes what is left
    const double t = widened_float(near & FLOAT_MAGNITUDE);
    const uint64_t bits = double_bits(t), one = (uint64_t)1023 << 52;
    const double part = bits_double((bits & ((uint64_t)1 << 52) - 1) | one) - 1;
    const double logarithm = (int32_t)(bits >> 52) - 1023 + part + part * (1 - part) * (0.4229 - 0.1592 * part);
    const double power = rule.exponent * logarithm;
    const int32_t whole = (int32_t)power - (power < 0);
    const double rest = power - whole;
    double z = bits_double(one + ((uint64_t)whole << 52)) * (1 + rest - rest * (1 - rest) * (0.3041 + 0.0792 * rest));
    for (int i = 0; i < 7; ++i) {
        const double excess = dge_power<0>(z, z * t, rule.k) - 1;
        z *= 1 + excess * (rule.second * excess - rule.inverse);
        if (magnitude_of(excess) < 1.0 / 64) break;
    }
    return (uint32_t)((double_bits(z) - ((uint64_t)896 << 52)) >> 29);
#endif
}

// The float64 near |t|**(1/k - 1) / k.
template <int fixed>
REFNUM_HD double dge_refined(double t, uint32_t estimate, const DgeRule& rule) {
    const double z = widened_float(estimate), u = z * t;
    const double excess = dge_power<fixed>(z, u, rule.k) - 1;
    const double change = excess * fused_double(rule.second, excess, -rule.inverse), slope = z * rule.inverse;
    return fused_double(slope, change, slope);
}

// Bits of a float64 as the target of `digits` has them, to nearest; ties are the caller's.
template <int digits>
REFNUM_HD uint32_t narrowed_double(double x) {
#ifdef __CUDA_ARCH__
    if (digits == 24) {
        float found;
        asm("cvt.rn.f32.f64 %0, %1;" : "=f"(found) : "d"(x));
        return __float_as_uint(found);
    }
#endif
    const uint64_t word = double_bits(x) - ((uint64_t)896 << 52);
    return (uint32_t)(word >> (53 - digits)) + (uint32_t)(word >> (52 - digits) & 1);
}

// Whether the slope at t = `place` * 2**`exponent` is above `middle` * 2**`below`: (k m)**k t**(k - 1) < 1 (N25.2).
REFNUM_HD bool dge_is_above(uint64_t place, int32_t exponent, uint32_t middle, int32_t below, int32_t k) {
    constexpr uint32_t mask = (1u << DGE_LIMB) - 1;
    uint32_t limbs[DGE_LIMBS] = {1};
    const uint32_t low = (uint32_t)place & mask, high = (uint32_t)(place >> DGE_LIMB), factor = (uint32_t)k * middle;
    REFNUM_ROLLED
    for (int32_t step = 1; step < 2 * k; ++step) {  // k times k m, and between them k - 1 times t
        const bool odd = step & 1;
        const uint32_t first = odd ? factor & mask : low, second = odd ? factor >> DGE_LIMB : high;
        uint32_t before = 0;
        uint64_t carry = 0;
        REFNUM_ROLLED
        for (int i = 0; i < DGE_LIMBS; ++i) {
            const uint32_t limb = limbs[i];
            carry += (uint64_t)limb * first + (uint64_t)before * second;
            limbs[i] = (uint32_t)carry & mask;
            carry >>= DGE_LIMB;
            before = limb;
        }
    }
    int32_t length = 0;
    REFNUM_ROLLED
    for (int i = 0; i < DGE_LIMBS; ++i) {
        if (limbs[i]) length = DGE_LIMB * i + 32 - leading_zeros(limbs[i]);
    }
    return length + k * below + (k - 1) * exponent <= 0;
}

// Bits of the target of `digits` from `dge_refined` by integers.
template <int digits>
REFNUM_HD uint32_t dge_decided(double t, double refined, int32_t k) {
    const uint64_t word = double_bits(refined) - ((uint64_t)896 << 52);
    constexpr int drop = 53 - digits;
    constexpr uint64_t hidden = (uint64_t)1 << 52, fraction = hidden - 1;
    const uint64_t place = double_bits(t), cut = word >> drop, middle = (cut << drop) + ((uint64_t)1 << (drop - 1));
    const int32_t below = (int32_t)(middle >> 52) + 896 - 1075 + drop - 1;
    const uint32_t significand = (uint32_t)(((middle & fraction) | hidden) >> (drop - 1));
    const bool up = dge_is_above((place & fraction) | hidden, (int32_t)(place >> 52) - 1075, significand, below, k);
    return (uint32_t)cut + up;
}

// Bits of the slope in the target of `digits`. `doubt` becomes true where they may be wrong.
template <int digits, int compat, int fixed>
REFNUM_HD uint32_t dge_slope(const DgePlace& place, const DgeRule& rule, bool& doubt, double& refined) {
    constexpr uint64_t half = (uint64_t)1 << (52 - digits);
    // beyond 1 lie the places of the released code below -6
    const uint64_t near = compat == PAPER || place.near <= FLOAT_ONE ? 1 << 10 : 1 << 16;
    constexpr uint32_t near_float = compat == PAPER ? 1 << 7 : 1 << 9;
    const uint32_t estimate = dge_estimate(place.near, rule);
    if (digits == 8) {  // of 16 bits beyond the target's the estimate has eight or more
#ifdef __CUDA_ARCH__
        const uint32_t slope = __float_as_uint(__fmul_rn(__uint_as_float(estimate), (float)rule.inverse));
#else
        const uint32_t slope = narrowed_double<24>(widened_float(estimate) * rule.inverse);
#endif
        if ((slope + near_float - 0x8000 & 0xFFFF) >= 2 * near_float) return (slope + 0x8000) >> 16;
    }
    refined = dge_refined<fixed>(place.t, estimate, rule);
    doubt |= ((double_bits(refined) + near - half) & (2 * half - 1)) < 2 * near;
    return narrowed_double<digits>(refined);
}

// The slope with the cap and the edges: bits of the target from bits of a slope at float32 bits, NaN aside.
template <int digits, int compat>
REFNUM_HD uint32_t dge_edged(uint32_t bits, uint32_t capped) {
    const uint32_t magnitude = bits & FLOAT_MAGNITUDE;
    return magnitude > DGE_SIX && (compat == PAPER || bits < FLOAT_SIGN) ? 0 : capped;
}

// dge at float32 bits, for k of 2 or more. `doubt` becomes true where the result may be wrong. With k `fixed` the cap is
// below 2**100: a place of 0, whose estimate is infinite, has a slope beyond that.
template <int digits, int compat, int fixed>
REFNUM_HD uint32_t dge_quick(uint32_t bits, const DgeRule& rule, bool& doubt) {
    double refined;
    const DgePlace place = dge_place<compat>(bits);
    const uint32_t slope = dge_slope<digits, compat, fixed>(place, rule, doubt, refined);
    uint32_t capped = slope < rule.cap ? slope : rule.cap;
    if (fixed == 0 && (place.near & FLOAT_MAGNITUDE) == 0) capped = rule.cap;
    if (compat == MS_AMP && place.near == FLOAT_INF) capped = 0;
    return dge_edged<digits, compat>(bits, capped);
}

// dge at float32 bits.
template <int digits, int compat>
REFNUM_HD uint32_t dge_exact(uint32_t bits, const DgeRule& rule) {
    if ((bits & FLOAT_MAGNITUDE) > FLOAT_INF) return compat == PAPER ? FLOAT_NAN >> (24 - digits) : 0;
    bool doubt = false;
    double refined;
    DgePlace place = dge_place<compat>(bits);
    if (rule.k == 1) place = {FLOAT_ONE, 1.0};
    uint32_t slope = dge_slope<digits, compat, 0>(place, rule, doubt, refined);
    if (doubt) slope = dge_decided<digits>(place.t, refined, rule.k);
    if (place.near == FLOAT_INF) slope = 0;
    if (slope > rule.cap || (place.near & FLOAT_MAGNITUDE) == 0) slope = rule.cap;
    return dge_edged<digits, compat>(bits, slope);
}

}  // namespace refnum
