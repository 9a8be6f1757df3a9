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
    // a float64 comes within one of the quotient in every mode; what is left of the dividend decides
    const int32_t near = (int32_t)((double)(int32_t)left.significand * (1 << 30) / (double)(int32_t)divisor);
    int32_t rest = (int32_t)((left.significand << 30) - (uint32_t)near * divisor);
    const int32_t over = rest < 0, under = rest >= (int32_t)divisor;
    rest += (over - under) * (int32_t)divisor;
    const uint32_t quotient = (uint32_t)(near + under - over), carry = quotient >> 30;  // 30 or 31 bits
    const uint32_t word = quotient >> carry | (quotient & carry) | (uint32_t)(rest != 0);
    const uint32_t found = rounded_float(word, left.field - right.field + 126 + (int32_t)carry);
    const uint32_t infinite = (uint32_t)(x >= FLOAT_INF) | (uint32_t)(y == 0);
    const uint32_t zero = (uint32_t)(x == 0) | (uint32_t)(y >= FLOAT_INF);
    const uint32_t nan = (infinite & zero) | (uint32_t)(x > FLOAT_INF) | (uint32_t)(y > FLOAT_INF);
    const uint32_t number = choose(FLOAT_INF, found & (zero - 1), 0u - infinite);
    return choose(FLOAT_NAN, sign | number, 0u - nan);
#endif
}

}  // namespace refnum
