// Rotation of a group of 16 floats by a Hadamard matrix with signs (clause N22).
//
// A group whose numbers lie close together is summed in float32, where no addition rounds (N22.4); otherwise in double;
// and a group of more than 25 binades in limbs of 36 bits. The host has 64-bit integers for both of the former, and sums
// all 16 rows at once.
#pragma once

#include "dequantize_nvfp4.cuh"

namespace refnum {

enum RotationOrder : int { ROTATION_EXACT = 0, ROTATION_SEQUENTIAL = 1 };

typedef long long sum_t;  // of significands that were moved up

constexpr int GROUP = 16, LIMB = 36, LIMBS = 8;
constexpr uint32_t FLOAT_QUARTER = 0x3E800000;

// Bits of a word up to its leading one.
REFNUM_HD int32_t bit_length(uint64_t word) {
    const uint32_t high = (uint32_t)(word >> 32), low = (uint32_t)word;
    return high ? 64 - leading_zeros(high) : low ? 32 - leading_zeros(low) : 0;
}

// Magnitude bits of word * 2**exponent, word below 2**63, to nearest even: of float32 (24 digits) or bfloat16 (8).
template <int digits>
REFNUM_HD uint32_t rounded_word(uint64_t word, int32_t exponent) {
    constexpr int32_t least = -125 - digits;
    const int32_t length = bit_length(word);
    const int32_t below = least - exponent, beyond = length - digits, drop = beyond > below ? beyond : below;
    if (word == 0 || drop > 63) return 0;
    const uint64_t kept = drop > 0 ? word >> drop : word << -drop, rest = drop > 0 ? word - (kept << drop) : 0;
    const bool up = drop > 0 && 2 * rest + (kept & 1) > (uint64_t)1 << drop;
    const int32_t field = exponent + drop - least;
    if (field > 253) return 255u << (digits - 1);
    return ((uint32_t)field << (digits - 1)) + (uint32_t)kept + up;
}

// The first and the last exponent field of a group, zeros aside, and whether all numbers are bfloat16.
struct GroupSpan {
    int32_t top, low;
    bool narrow;
};

// min(a - 1, b) of 16-bit lanes, where 0 - 1 is the largest.
REFNUM_HD uint32_t least_lanes(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    return __viaddmin_u16x2(a, 0xFFFFFFFFu, b);
#else
    return min_lanes(((a | 0x80008000u) - 0x00010001u) ^ (~a & 0x80008000u), b);
#endif
}

// Of float32 bits, or of words of two bfloat16 lanes.
template <int kind>
REFNUM_HD GroupSpan group_span(const uint32_t* w) {
    uint32_t most = 0, least = ~0u, rest = 0;
    if (kind == BFLOAT16) {
        REFNUM_UNROLL
        for (int i = 0; i < GROUP / 2; i += 2) {
            const uint32_t first = w[i] & LANE_MAGNITUDES, second = w[i + 1] & LANE_MAGNITUDES;
            most = max3_lanes(most, first, second);
            least = least_lanes(second, least_lanes(first, least));
        }
        const uint32_t fewest = (least & 0xFFFF) < least >> 16 ? least & 0xFFFF : least >> 16;
        const int32_t low = (int32_t)((fewest + 1 & 0xFFFF) >> 7);
        return {(int32_t)(larger_lane(most) >> 7), low ? low : 1, true};
    }
    REFNUM_UNROLL
    for (int i = 0; i < GROUP; ++i) {
        const uint32_t magnitude = w[i] & FLOAT_MAGNITUDE;
        most = magnitude > most ? magnitude : most;
        least = magnitude - 1 < least ? magnitude - 1 : least;  // zero becomes the largest
        rest |= w[i];
    }
    const int32_t low = (int32_t)((least + 1) >> 23);
    return {(int32_t)(most >> 23), low ? low : 1, (rest & 0xFFFF) == 0};
}

// The sums of a group under all 16 sign patterns, where no float32 addition rounds.
REFNUM_HD void float_butterflies(uint32_t* bits) {
    REFNUM_UNROLL
    for (int half = 1; half < GROUP; half *= 2) {
        REFNUM_UNROLL
        for (int i = 0; i < GROUP; ++i) {
            if (i & half) continue;
            const uint32_t a = bits[i], b = bits[i + half];
            bits[i] = add_floats(a, b);
            bits[i + half] = add_floats(a, b ^ FLOAT_SIGN);
        }
    }
}

// A finite number as an integer times 2**(low - 150).
REFNUM_HD sum_t placed_number(uint32_t bits, int32_t place) {
    const uint32_t magnitude = bits & FLOAT_MAGNITUDE;
    const uint32_t significand = magnitude >> 23 ? (magnitude & 0x7FFFFF) | 0x800000 : magnitude;
    const sum_t word = (sum_t)((uint64_t)significand << place);
    return bits >> 31 ? -word : word;
}
REFNUM_HD int32_t place_of(uint32_t bits, int32_t low) {
    const int32_t field = (int32_t)((bits & FLOAT_MAGNITUDE) >> 23);
    return (bits & FLOAT_MAGNITUDE) == 0 ? 0 : (field ? field : 1) - low;
}

// A quarter of a sum, rounded: bits of the result's format.
template <int digits>
REFNUM_HD uint32_t rounded_sum(bool minus, uint64_t word, int32_t exponent) {
    return rounded_word<digits>(word, exponent - 2) | (uint32_t)(minus && word) << (digits + 7);
}

#ifdef __CUDA_ARCH__
// A quarter of a sum, rounded once: bits of the result's format.
template <int digits>
REFNUM_HD uint32_t quarter_of(double sum) {
    double quarter;  // a zero is +0
    asm("fma.rn.f64 %0, %1, %2, %3;" : "=d"(quarter) : "d"(sum), "d"(0.25), "d"(0.0));
    const float cut = digits == 24 ? __double2float_rn(quarter) : __double2float_rz(quarter);
    const uint32_t odd = __float_as_uint(cut) | (uint32_t)((double)cut != quarter);
    return digits == 24 ? __float_as_uint(cut) : round_to_bfloat16(odd);
}

// The sums of a group of at most 25 binades: 24 digits, 25 places and four carries are the 53 digits of a double.
template <int digits>
REFNUM_HD void middle_sums(const uint32_t* bits, uint32_t* out) {
    double sums[GROUP];
    REFNUM_UNROLL
    for (int i = 0; i < GROUP; ++i) sums[i] = (double)__uint_as_float(bits[i]);
    REFNUM_UNROLL
    for (int half = 1; half < GROUP; half *= 2) {
        REFNUM_UNROLL
        for (int i = 0; i < GROUP; ++i) {
            if (i & half) continue;
            const double a = sums[i], b = sums[i + half];
            sums[i] = a + b;
            sums[i + half] = a - b;
        }
    }
    REFNUM_UNROLL
    for (int i = 0; i < GROUP; ++i) out[i] = quarter_of<digits>(sums[i]);
}
#endif

REFNUM_HD bool is_odd_row(int i, int j) {
    const int both = i & j;
    return ((both ^ both >> 1 ^ both >> 2 ^ both >> 3) & 1) != 0;
}

// One sum of a group of any span, in limbs: rare.
template <int digits>
REFNUM_HD uint32_t wide_sum(const uint32_t* bits, int j, int32_t low) {
    sum_t limbs[LIMBS + 1] = {};
    bool nan = false, up = false, down = false;
    REFNUM_ROLLED
    for (int i = 0; i < GROUP; ++i) {
        const uint32_t term = bits[i] ^ (is_odd_row(i, j) ? FLOAT_SIGN : 0), magnitude = term & FLOAT_MAGNITUDE;
        nan |= magnitude > FLOAT_INF;
        up |= term == FLOAT_INF;
        down |= term == (FLOAT_INF | FLOAT_SIGN);
        if (magnitude >= FLOAT_INF) continue;
        const int32_t place = place_of(term, low);
        limbs[place / LIMB] += placed_number(term, place % LIMB);
    }
    if (nan || (up && down)) return FLOAT_NAN >> (24 - digits);
    if (up || down) return (FLOAT_INF | (down ? FLOAT_SIGN : 0)) >> (24 - digits);
    sum_t sign = 0;
    REFNUM_ROLLED
    for (int n = 0; n < LIMBS; ++n) sign = (limbs[n] + sign) >> LIMB;  // what is carried out of the last limb
    const bool minus = sign < 0;
    sum_t carry = 0;
    REFNUM_ROLLED
    for (int n = 0; n <= LIMBS; ++n) {
        const sum_t total = (minus ? -limbs[n] : limbs[n]) + carry;
        limbs[n] = n < LIMBS ? total & ((1ll << LIMB) - 1) : total;
        carry = total >> LIMB;
    }
    uint64_t word = 0;
    int32_t exponent = low - 150;
    REFNUM_ROLLED
    for (int n = LIMBS; n >= 0; --n) {
        if (word < 1u << 27) word = word << LIMB | (uint64_t)limbs[n], exponent = low - 150 + LIMB * n;
        else word |= limbs[n] != 0;
    }
    return rounded_sum<digits>(minus, word, exponent);
}

// One sum in float32, in ascending order.
template <int digits>
REFNUM_HD uint32_t sequential_sum(const uint32_t* quarters, int j) {
    uint32_t total = 0;
    REFNUM_UNROLL
    for (int i = 0; i < GROUP; ++i) total = add_floats(total, quarters[i] ^ (is_odd_row(i, j) ? FLOAT_SIGN : 0));
    total = canonical_float(total);
    return digits == 24 ? total : round_to_bfloat16(total);
}

#ifndef __CUDA_ARCH__
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define REFNUM_APART REFNUM_HD
#else
#define REFNUM_APART __attribute__((noinline)) static  // so that compilers make vectors of its loop
#endif

constexpr sum_t LIMB_MASK = ((sum_t)1 << LIMB) - 1;

// The sign of term i in sum j: of the four bits that i and j share, whether an odd number is set.
REFNUM_HD uint32_t row_sign(int i, int j) { return 0x6996u >> (i & j) << 31; }

// The sums of a group of integers under all 16 sign patterns, in place. A step brings sums of neighbours to the lower half
// and differences to the upper one; after four each is where it belongs.
REFNUM_APART void butterflies(sum_t* sums) {
    for (int step = 0; step < 4; ++step) {
        sum_t found[GROUP];
        for (int i = 0; i < GROUP / 2; ++i) {
            found[i] = sums[2 * i] + sums[2 * i + 1];
            found[i + GROUP / 2] = sums[2 * i] - sums[2 * i + 1];
        }
        for (int i = 0; i < GROUP; ++i) sums[i] = found[i];
    }
}

// A quarter of a sum, rounded: bits of the result's format. The word, below 2**62, is the sum's magnitude.
template <int digits>
REFNUM_HD uint32_t rounded_quarter(uint32_t minus, uint64_t word, int32_t exponent) {
    const uint32_t high = (uint32_t)(word >> 32), top = high ? high : (uint32_t)word;
    const uint32_t half = top >> 31;  // of 32 bits one too many for the conversion
    const int32_t up = (high ? 29 : 61) - leading_place(top >> half) - (int32_t)half;
    const uint64_t moved = word << up;  // the leading one at bit 61
    const uint32_t cut = (uint32_t)(moved >> 32) | (uint32_t)((uint32_t)moved != 0);
    const uint32_t found = rounded_float<digits>(cut, exponent + 186 - up) | minus << (digits + 7);
    return found & (0u - (uint32_t)(cut != 0));
}
template <int digits>
REFNUM_APART void rounded_sums(const uint64_t* minus, const uint64_t* words, const int32_t* exponents, uint32_t* out) {
    for (int j = 0; j < GROUP; ++j) out[j] = rounded_quarter<digits>((uint32_t)minus[j], words[j], exponents[j]);
}

// Of a group with NaN or Inf.
template <int digits>
REFNUM_HD void special_sums(const uint32_t* bits, uint32_t* out) {
    for (int j = 0; j < GROUP; ++j) {
        uint32_t nan = 0, up = 0, down = 0;
        for (int i = 0; i < GROUP; ++i) {
            const uint32_t term = bits[i] ^ row_sign(i, j);
            nan |= (uint32_t)((term & FLOAT_MAGNITUDE) > FLOAT_INF);
            up |= (uint32_t)(term == FLOAT_INF);
            down |= (uint32_t)(term == (FLOAT_INF | FLOAT_SIGN));
        }
        out[j] = ((nan | (up & down)) ? FLOAT_NAN : FLOAT_INF | down << 31) >> (24 - digits);
    }
}

// In limbs: each number is placed once.
template <int digits>
REFNUM_HD void wide_sums(const uint32_t* bits, const GroupSpan& span, uint32_t* out) {
    sum_t limbs[LIMBS + 1][GROUP] = {}, carries[GROUP] = {};
    for (int i = 0; i < GROUP; ++i) {
        const int32_t place = place_of(bits[i], span.low);
        limbs[place / LIMB][i] = placed_number(bits[i], place % LIMB);
    }
    const int last = (span.top - span.low) / LIMB + 1;
    for (int n = 0; n <= last; ++n) {
        butterflies(limbs[n]);
        for (int j = 0; j < GROUP; ++j) {
            const sum_t total = limbs[n][j] + carries[j];
            limbs[n][j] = total & LIMB_MASK;
            carries[j] = total >> LIMB;
        }
    }
    uint64_t words[GROUP] = {}, minus[GROUP];
    int32_t exponents[GROUP];
    for (int j = 0; j < GROUP; ++j) {  // of a negative sum -1 is carried out of the last limb
        minus[j] = (uint64_t)carries[j] >> 63;
        carries[j] = (sum_t)minus[j];
    }
    for (int n = 0; n <= last; ++n) {
        for (int j = 0; j < GROUP; ++j) {
            const sum_t total = (limbs[n][j] ^ (LIMB_MASK & -(sum_t)minus[j])) + carries[j];
            limbs[n][j] = total & LIMB_MASK;
            carries[j] = total >> LIMB;
        }
    }
    for (int n = last; n >= 0; --n) {  // 27 bits and more, and what is left
        for (int j = 0; j < GROUP; ++j) {
            const uint64_t limb = (uint64_t)limbs[n][j], few = words[j] >> 26 == 0;
            words[j] = few ? words[j] << LIMB | limb : words[j] | (uint64_t)(limb != 0);
            exponents[j] = few ? span.low - 150 + LIMB * n : exponents[j];
        }
    }
    rounded_sums<digits>(minus, words, exponents, out);
}

// In float32, in ascending order.
template <int digits>
REFNUM_HD void sequential_sums(const uint32_t* bits, uint32_t* out) {
    uint32_t quarters[GROUP], totals[GROUP] = {};
    for (int i = 0; i < GROUP; ++i) quarters[i] = multiply_floats(bits[i], FLOAT_QUARTER);
    for (int i = 0; i < GROUP; ++i) {
        for (int j = 0; j < GROUP; ++j) totals[j] = add_floats(totals[j], quarters[i] ^ row_sign(i, j));
    }
    for (int j = 0; j < GROUP; ++j) {
        const uint32_t total = canonical_float(totals[j]);
        out[j] = digits == 24 ? total : round_to_bfloat16(total);
    }
}

// The sums of a group under all 16 sign patterns, a quarter of each.
template <int digits>
REFNUM_HD void group_sums(const uint32_t* bits, const GroupSpan& span, int order, uint32_t* out) {
    const bool exact = span.narrow && span.top < 250 && span.top - span.low <= 12;  // in any order
    if (order == ROTATION_SEQUENTIAL && !exact) return sequential_sums<digits>(bits, out);
    if (span.top == 255) return special_sums<digits>(bits, out);
    if (span.top - span.low > 25) return wide_sums<digits>(bits, span, out);
    sum_t sums[GROUP];
    uint64_t minus[GROUP], words[GROUP];
    int32_t exponents[GROUP];
    for (int i = 0; i < GROUP; ++i) sums[i] = placed_number(bits[i], place_of(bits[i], span.low));
    butterflies(sums);
    for (int j = 0; j < GROUP; ++j) {
        minus[j] = (uint64_t)sums[j] >> 63;
        words[j] = ((uint64_t)sums[j] ^ (0 - minus[j])) + minus[j];
        exponents[j] = span.low - 150;
    }
    rounded_sums<digits>(minus, words, exponents, out);
}
#endif

// Words of a rotated group.
template <int digits>
constexpr int ROTATED_WORDS = digits == 24 ? GROUP : GROUP / 2;

// The signs of a word of the input: of one float32 element, or of two bfloat16 lanes.
template <int kind>
REFNUM_HD uint32_t word_signs(uint32_t signs, int i) {
    if (kind == FLOAT32) return signs << (31 - i) & FLOAT_SIGN;
    return (signs << (30 - 2 * i) & FLOAT_SIGN) | (signs << 15 >> 2 * i & 0x8000);
}

// A group as it is stored, which is overwritten -> results of 24 digits, a word each, or of 8, two a word.
template <int kind, int digits>
REFNUM_HD void rotate_group(uint32_t* w, uint32_t signs, int order, uint32_t* out) {
    REFNUM_UNROLL
    for (int i = 0; i < NVFP4_WORDS<kind>; ++i) w[i] ^= word_signs<kind>(signs, i);
    const GroupSpan span = group_span<kind>(w);
    uint32_t bits[GROUP];
    float_bits<kind, GROUP / 2>(w, bits);
#ifdef __CUDA_ARCH__
    if (span.narrow && span.top < 250 && span.top - span.low <= 12) {
        float_butterflies(bits);
        REFNUM_UNROLL
        for (int i = 0; i < GROUP; ++i) bits[i] = multiply_add_floats(bits[i], FLOAT_QUARTER, 0);  // a zero is +0
        REFNUM_UNROLL
        for (int i = 0; i < ROTATED_WORDS<digits>; ++i) {
            out[i] = digits == 24 ? bits[i] : bfloat16_pair(bits[2 * i], bits[2 * i + 1]);
        }
        return;
    }
    uint32_t found[GROUP];
    if (order == ROTATION_SEQUENTIAL) {
        REFNUM_UNROLL
        for (int i = 0; i < GROUP; ++i) bits[i] = multiply_floats(bits[i], FLOAT_QUARTER);
        REFNUM_UNROLL
        for (int j = 0; j < GROUP; ++j) found[j] = sequential_sum<digits>(bits, j);
    } else if (span.top < 255 && span.top - span.low <= 25) {
        middle_sums<digits>(bits, found);
    } else {
        REFNUM_ROLLED
        for (int j = 0; j < GROUP; ++j) found[j] = wide_sum<digits>(bits, j, span.low);
    }
#else
    uint32_t found[GROUP];
    group_sums<digits>(bits, span, order, found);
#endif
    REFNUM_UNROLL
    for (int i = 0; i < ROTATED_WORDS<digits>; ++i) {
        out[i] = digits == 24 ? found[i] : found[2 * i] | found[2 * i + 1] << 16;
    }
}

}  // namespace refnum
