// float32 quotients on bit patterns, rounded once to nearest even (clauses N0, N21). As float32.cuh: one instruction on
// the device, integers on the host.
#pragma once

#include "float32.cuh"

namespace refnum {

// Bits of a / b. A NaN that comes out has any payload until `canonical_float` makes it 0x7FC00000.
REFNUM_HD uint32_t divide_floats(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    float quotient;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(quotient) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
    return __float_as_uint(quotient);
#else
    const uint32_t x = a & FLOAT_MAGNITUDE, y = b & FLOAT_MAGNITUDE, sign = (a ^ b) & FLOAT_SIGN;
    const NormalFloat left = normal_float(x), right = normal_float(y);
    const uint32_t divisor = right.significand | 0x800000;  // for a zero some number
    // A quotient of 27 bits at most lies 2**-24 from a whole number, or on it; one of float64 is within 2**-25 of it in
    // every mode, and cut to the same integer. Of what is left 32 bits say whether it is zero.
    const uint32_t quotient = (uint32_t)(int32_t)((double)(int32_t)left.significand * (1 << 26) / (double)(int32_t)divisor);
    const uint32_t rest = (left.significand << 26) - quotient * divisor, carry = quotient >> 26;
    const uint32_t word = quotient << (4 - carry) | (uint32_t)(rest != 0);
    const uint32_t found = rounded_float(word, left.field - right.field + 126 + (int32_t)carry);
    const uint32_t infinite = (uint32_t)(x >= FLOAT_INF) | (uint32_t)(y == 0);
    const uint32_t zero = (uint32_t)(x == 0) | (uint32_t)(y >= FLOAT_INF);
    const uint32_t nan = (infinite & zero) | (uint32_t)(x > FLOAT_INF) | (uint32_t)(y > FLOAT_INF);
    const uint32_t number = choose(FLOAT_INF, found & (zero - 1), 0u - infinite);
    return choose(FLOAT_NAN, sign | number, 0u - nan);
#endif
}

// fl(x / y) for the rounded reciprocal of y, both ordinary: no product here leaves the normal range, or the quotient is
// below what is asked of it. One correction by the exact remainder rounds as a division does: for the significands of all
// 16-bit floats, and of float32, over every divisor (tests/gpu/test_division_device.py).
REFNUM_HD uint32_t divide_by_inverse(uint32_t x, uint32_t y, uint32_t inverse) {
#ifdef __CUDA_ARCH__
    const uint32_t guess = multiply_floats(x, inverse);
    return multiply_add_floats(multiply_add_floats(y ^ FLOAT_SIGN, guess, x), inverse, guess);
#else
    return divide_floats(x, y);
#endif
}

}  // namespace refnum
