// E2M1: rounding on packed halves and on single floats, and decoding by byte permute (clauses N1 and N2).
#pragma once

#include "e8m0.cuh"

namespace refnum {

constexpr uint32_t NIBBLE_MAGNITUDES = 0x77777777u;
constexpr uint32_t BYTE_SIGNS = 0x80808080u;
constexpr uint32_t LANE_MAGNITUDES = 0x7FFF7FFFu;
constexpr uint32_t HALF_E2M1_MAX = 0x0E000E00u;  // 6 in both lanes where 1 is binary16's smallest normal

// Nearest E2M1 magnitudes of two binary16 lanes in which E2M1's 1 is the smallest normal: subnormal meets
// subnormal, so one add of the bit patterns rounds both ranges. The code is in bits 9..11 of each lane, and
// bits 12..15 are clear if the lane is at most 6.
REFNUM_HD uint32_t e2m1_round_lanes(uint32_t h) { return h + (h >> 9 & 0x00010001u) + 0x00FF00FFu; }

// Eight codes from four words of rounded lanes r[i] = elements (2i, 2i + 1) and signs at the top of w[i]'s lanes.
REFNUM_HD uint32_t e2m1_pack_lanes(const uint32_t* r, const uint32_t* w) {
    const uint32_t a = permute(r[0], r[1], 0x7531) << 3, b = permute(r[2], r[3], 0x7531) << 3;
    const uint32_t first = choose(permute(w[0], w[1], 0x7531), a, BYTE_SIGNS);
    const uint32_t second = choose(permute(w[2], w[3], 0x7531), b, BYTE_SIGNS);
    const uint32_t even = permute(first, second, 0x6420), odd = permute(first, second, 0x7531);
    return choose(even >> 4, odd, 0x0F0F0F0Fu);
}

// Magnitude code of significand * 2**(exponent - 23), leading one at bit 23 (or zero), in a float format of
// `mantissa` bits and that bias, rounded stochastically, saturating at `most`: `random`, below 256, is added to the
// top eight discarded bits.
template <int mantissa, int bias>
REFNUM_HD uint32_t round_float(int32_t exponent, uint32_t significand, uint32_t most, uint32_t random) {
    REFNUM_EXPECTS(significand == 0 || (significand >> 23 == 1 && exponent >= -410 && exponent <= 410));
    REFNUM_EXPECTS(random < 256);
    const int32_t biased = exponent + bias, clamped = biased > 1 ? biased : 1;
    const int32_t wanted = clamped - biased + 23 - mantissa, places = wanted < 31 ? wanted : 31;
    uint32_t code = ((uint32_t)(clamped - 1) << mantissa) + (significand >> places);
    if (clamped > 64) return most;
    const uint32_t rest = significand & ((1u << places) - 1);
    code += ((rest >> (wanted < 39 ? wanted - 8 : 31)) + random) >> 8;
    return code < most ? code : most;
}

// Exponent and significand (leading one at bit 23; 0 for zero) of finite float32 magnitude bits.
REFNUM_HD void split_float(uint32_t magnitude, int32_t& exponent, uint32_t& significand) {
    REFNUM_EXPECTS(magnitude <= 0x7F800000);
    if (magnitude >= 1u << 23) {
        exponent = (int32_t)(magnitude >> 23) - 127;
        significand = (magnitude & 0x7FFFFF) | 0x800000;
    } else if (magnitude == 0) {
        exponent = -1000;
        significand = 0;
    } else {
        const int32_t lift = leading_zeros(magnitude) - 8;
        exponent = -126 - lift;
        significand = magnitude << lift;
    }
}

// E2M1 code of float32 bits divided by 2**scale, rounded stochastically (clauses N2 and N13). NaN gives 7, Inf 7 with
// its sign.
REFNUM_HD uint32_t e2m1_encode(uint32_t bits, int32_t scale, uint32_t random) {
    const uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return 7;
    int32_t exponent;
    uint32_t significand;
    split_float(magnitude, exponent, significand);
    const uint32_t code =
        magnitude == 0x7F800000 ? 7 : round_float<1, 1>(exponent - scale, significand, 7, random);
    return code | bits >> 31 << 3;
}

// Float32 bits of an E2M1 code times 2**(byte - 127), exact; 2**128 and more is Inf, byte 255 NaN (clause N5).
REFNUM_HD uint32_t e2m1_decode(uint32_t code, uint32_t byte) {
    if (byte == NAN_BYTE) return 0x7FC00000;
    const uint32_t sign = (code & 8) << 28, magnitude = code & 7;
    if (magnitude == 0) return sign;
    const int32_t field = (int32_t)byte + (int32_t)(magnitude >> 1) - 1;
    if (field >= 255) return sign | 0x7F800000;
    const uint32_t fraction = (0xA8u >> magnitude & 1) << 22;  // of 1.5, 3 and 6
    return sign | (field > 0 ? (uint32_t)field << 23 | fraction : (0x800000 | fraction) >> (1 - field));
}

// A byte table of eight E2M1 magnitudes, the source of `permute`: `low` holds codes 0..3, `high` 4..7.
struct Table {
    uint32_t low, high;
};

// The four bytes of a table picked by the low four nibbles of `magnitudes` (each below 8).
REFNUM_HD uint32_t look_up(Table table, uint32_t magnitudes) { return permute(table.low, table.high, magnitudes); }

// Signs of nibbles 0..3 (`first`) and 4..7 of a packed word at the top bits of four bytes; other bits are junk.
REFNUM_HD uint32_t nibble_signs_low(uint32_t packed) { return permute(packed << 4, packed, 0x5140); }
REFNUM_HD uint32_t nibble_signs_high(uint32_t packed) { return permute(packed << 4, packed, 0x7362); }

// Whether every magnitude of a block of four packed words is zero (clause N8: the block is empty).
REFNUM_HD bool is_empty(const uint32_t (&packed)[4]) {
    return ((packed[0] | packed[1] | packed[2] | packed[3]) & NIBBLE_MAGNITUDES) == 0;
}

// Largest floor(log2) + 2 of the magnitudes of a block, 1 (0.5) to 4 (4 and 6), or 0 for an empty block.
REFNUM_HD int32_t largest_binade(const uint32_t (&packed)[4]) {
    uint32_t any = 0, top = 0;
    REFNUM_UNROLL
    for (int i = 0; i < 4; ++i) {
        any |= packed[i];
        top |= packed[i] & packed[i] << 1;  // bit 2 of a nibble: magnitude bits 2 and 1 both set
    }
    if (top & 0x44444444u) return 4;
    if (any & 0x44444444u) return 3;
    if (any & 0x22222222u) return 2;
    return any & 0x11111111u ? 1 : 0;
}

}  // namespace refnum
