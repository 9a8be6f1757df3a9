// The emulated tensor core: products cut 25 places below the largest exponent, a sum of 24 digits (clause N19.2).
#include "tensor.hpp"

#include <cmath>

#include "engine.hpp"

namespace emulation {

namespace {

constexpr int TERMS = 16, CUT = 25, KEPT = 23;

// A written number: significand * 2**(exponent - 7), or of float32 2**(exponent - 23).
struct Written {
    int64_t significand;
    int exponent;
    bool nan, infinite;
};
Written written(uint32_t bits, int fraction) {
    const uint32_t field = bits >> fraction & 0xFF, rest = bits & ((1u << fraction) - 1);
    const int64_t digits = field ? rest | 1u << fraction : rest;
    return {bits >> (fraction + 8) & 1 ? -digits : digits, (int)(field ? field : 1) - 127, field == 255 && rest,
            field == 255 && !rest};
}

// value * 2**places, cut toward zero.
int64_t moved(int64_t value, int places) {
    const int64_t magnitude = value < 0 ? -value : value;
    const int64_t out = places >= 0 ? magnitude << places : places > -63 ? magnitude >> -places : 0;
    return value < 0 ? -out : out;
}

// One sum: an accumulator, and products of lanes of a and b.
uint32_t step_sum(const uint16_t* a, const uint16_t* b, uint32_t c) {
    const Written sum = written(c, 23);
    Written x[TERMS], y[TERMS];
    bool nan = sum.nan, up = sum.infinite && sum.significand > 0, down = sum.infinite && sum.significand < 0;
    int top = sum.significand && sum.exponent > -133 ? sum.exponent : -133;
    for (int k = 0; k < TERMS; ++k) {
        x[k] = written(a[k], 7), y[k] = written(b[k], 7);
        const bool infinite = x[k].infinite || y[k].infinite, zero = !x[k].significand || !y[k].significand;
        nan |= x[k].nan || y[k].nan || (infinite && zero);
        ((x[k].significand < 0) != (y[k].significand < 0) ? down : up) |= infinite;
        const int exponent = x[k].exponent + y[k].exponent;
        if (!zero && exponent > top) top = exponent;
    }
    if (nan || (up && down)) return 0x7FFFFFFF;
    if (up || down) return 0x7F800000u | (uint32_t)down << 31;
    int64_t total = moved(sum.significand, sum.exponent - 23 - (top - CUT));
    for (int k = 0; k < TERMS; ++k) {
        total += moved(x[k].significand * y[k].significand, x[k].exponent + y[k].exponent - 14 - (top - CUT));
    }
    if (total == 0) return 0;
    const int last = 63 - __builtin_clzll((uint64_t)(total < 0 ? -total : total)) + top - CUT;
    const int unit = (last > -126 ? last : -126) - KEPT;
    const double value = std::ldexp((double)moved(total, top - CUT - unit), unit);
    const float result = std::fabs(value) >= 0x1p128 ? (value < 0 ? -HUGE_VALF : HUGE_VALF) : (float)value;
    return result == 0 ? 0 : __builtin_bit_cast(uint32_t, result);
}

}  // namespace

// Every lane takes what it needs of the others' registers.
void tensor_step(Tensors& own) {
    Seen a[2], b;
    meet(Meeting::SHUFFLE, ~0u, (uint64_t)own.a[2] << 32 | own.a[0], a[0]);
    meet(Meeting::SHUFFLE, ~0u, (uint64_t)own.a[3] << 32 | own.a[1], a[1]);
    meet(Meeting::SHUFFLE, ~0u, (uint64_t)own.b[1] << 32 | own.b[0], b);
    const uint32_t row = lane() / 4, column = lane() % 4 * 2;
    for (int n = 0; n < 4; ++n) {
        uint16_t x[TERMS], y[TERMS];
        for (int k = 0; k < TERMS; ++k) {
            const int place = k / 8 * 32 + k % 2 * 16, quarter = k % 8 / 2;
            x[k] = (uint16_t)(a[n / 2][4 * row + (uint32_t)quarter] >> place);
            y[k] = (uint16_t)(b[4 * (column + (uint32_t)n % 2) + (uint32_t)quarter] >> place);
        }
        own.c[n] = step_sum(x, y, own.c[n]);
    }
}

void load_matrices(uint64_t own, uint32_t (&words)[4], bool transposed) {
    Seen rows;
    meet(Meeting::SHUFFLE, ~0u, own, rows);
    for (uint32_t n = 0; n < 4; ++n) {
        for (uint32_t k = 0; k < 2; ++k) {
            const uint32_t one = lane() / 4, other = 2 * (lane() % 4) + k;
            const uintptr_t row = shared_place(rows[8 * n + (transposed ? other : one)]);
            if (row % 16) fail("ldmatrix of a row that is not at a multiple of 16 bytes");
            const uintptr_t place = row + 2 * (transposed ? one : other);
            check(place, 2, Access::LOAD, true);
            copy((uint8_t*)&words[n] + 2 * k, (const void*)place, 2);
        }
    }
}

}  // namespace emulation
