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
    if (x > FLOAT_INF || y > FLOAT_INF || (x == y && (x == 0 || x == FLOAT_INF))) return FLOAT_NAN;
    if (x == FLOAT_INF || y == 0) return sign | FLOAT_INF;
    if (x == 0 || y == FLOAT_INF) return sign;
    const int32_t up = leading_zeros(float_significand(x)) - 8, down = leading_zeros(float_significand(y)) - 8;
    const uint64_t left = (uint64_t)float_significand(x) << (up + 28), right = (uint64_t)float_significand(y) << down;
    const uint64_t word = (left / right) << 1 | (left % right != 0);  // 29 or 30 bits, the last for what is left
    return sign | round_to_float(word, float_exponent(x) - up - float_exponent(y) + down - 29);
#endif
}

}  // namespace refnum
