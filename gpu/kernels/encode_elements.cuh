// Floats -> codes, one a byte (clauses N1 and N2).
//
// E2M1 and E8M0 work on pairs of bfloat16 lanes, float32 and binary16 rounded to odd first (quantize_mxfp4.cuh): all
// that they ask of a float is its upper bits, and whether anything lies below. E4M3 is one conversion of the machine.
#pragma once

#include "float32_codes.cuh"
#include "quantize_mxfp4.cuh"

namespace refnum {

constexpr uint32_t ABOVE_INF = 0x007F007Fu;  // added to bfloat16 magnitudes, sets a lane's top bit where it is NaN

// Pairs of bfloat16 lanes of 2 * `count` loaded floats.
template <int kind, int count>
REFNUM_HD void bfloat16_lanes(const uint32_t* in, uint32_t* w) {
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        if (kind == FLOAT32) w[i] = odd_bfloat16_pair(in[2 * i], in[2 * i + 1]);
        else w[i] = kind == BFLOAT16 ? in[i] : odd_bfloat16_pair(widen_lane<kind>(in[i]), widen_lane<kind>(in[i] >> 16));
    }
}

// How lanes become E2M1 under a scale byte; both lanes of a word are alike.
struct ElementScale {
    uint32_t base;    // exponent taken off every lane, as a negative number
    uint32_t most;    // 6 times the scale, less that exponent
    uint32_t powers;  // what brings E2M1's 1 to binary16's smallest normal
    uint32_t signs;   // which bits are signs
    bool beyond;      // whether 6 times the scale lies beyond the pattern of Inf
};

// Under byte 255 every code is 0 (clause N4).
REFNUM_HD ElementScale element_scale(uint32_t byte) {
    if (byte == NAN_BYTE) return {0, 0, 0, 0, false};
    const BlockScale scale = bfloat16_scale(byte);
    const uint32_t six = ((byte < 8 ? byte : 8) << 7) + 0x140;
    return {negate_lanes(scale.base), both_lanes(six), scale.powers, 0x80008000u, byte > 252};
}

// `count` words of four E2M1 codes from 2 * `count` words of lanes. NaN gives 7, Inf 7 with its sign.
template <int count>
REFNUM_HD void e2m1_elements(const uint32_t* w, const ElementScale& scale, uint32_t* codes) {
    uint32_t lanes[2 * count], signs[2 * count];
    REFNUM_UNROLL
    for (int i = 0; i < 2 * count; ++i) {
        const uint32_t magnitudes = w[i] & LANE_MAGNITUDES;
        lanes[i] = add_and_clamp(magnitudes, scale.base, scale.most);
        signs[i] = w[i] & ~(magnitudes + ABOVE_INF) & scale.signs;
    }
    if (scale.beyond) {
        REFNUM_UNROLL
        for (int i = 0; i < 2 * count; ++i) {
            const uint32_t special = lane_signs((w[i] & LANE_MAGNITUDES) + 0x00800080u);
            lanes[i] = max_lanes(lanes[i], special & scale.most);
        }
    }
    REFNUM_UNROLL
    for (int i = 0; i < 2 * count; ++i) lanes[i] <<= 3;
    scale_all<2 * count>(lanes, scale.powers);
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        const uint32_t first = e2m1_round_lanes(lanes[2 * i]), second = e2m1_round_lanes(lanes[2 * i + 1]);
        const uint32_t signed_bytes = permute(signs[2 * i], signs[2 * i + 1], 0x7531) >> 4;
        codes[i] = choose(permute(first, second, 0x7531) >> 1, signed_bytes, 0x07070707u);
    }
}

// Four E4M3 codes from float32 bits. Above 464, half way from 448 to what would be 480, they are NaN with its sign if
// `nan`, else 448.
template <bool nan>
REFNUM_HD uint32_t e4m3_elements(const uint32_t* bits) {
    const uint32_t codes = permute(e4m3_pair(bits[0], bits[1]), e4m3_pair(bits[2], bits[3]), 0x5410);
    if (!nan) return codes;
    uint32_t above[4];  // the top bit says whether
    REFNUM_UNROLL
    for (int i = 0; i < 4; ++i) above[i] = (bits[i] & FLOAT_MAGNITUDE) + (FLOAT_SIGN - 0x43E80001);
    const uint32_t tops = permute(permute(above[0], above[1], 0x0073), permute(above[2], above[3], 0x0073), 0x5410);
    return codes | (tops >> 7 & 0x01010101u);
}

// How lanes become E8M0; both lanes of a word are alike.
struct ByteRule {
    uint32_t carry;  // what is added to a normal magnitude before its fraction is cut off
    uint32_t less;   // a negative number: it and the magnitude are the carry of a subnormal, if positive
    uint32_t most;   // of a sum
};

REFNUM_HD ByteRule byte_rule(int32_t rounding, bool saturate) {
    const uint32_t carry = rounding == BYTE_UP ? 0x7F : rounding == BYTE_NEAREST ? 0x40 : 0;
    return {both_lanes(carry), negate_lanes(both_lanes(0x80 - carry)), saturate ? 0x7F7F7F7Fu : LANE_MAGNITUDES};
}

// `count` words of four E8M0 bytes of magnitudes from 2 * `count` words of lanes. NaN gives 255, saturating or not.
//
// Byte 0 is 2**-127, half of the smallest normal: subnormals above that go up to byte 1, and with BYTE_NEAREST those
// from its 1.5 times on. Their sum with a carry that grows as they do reaches the smallest normal just there.
template <int count>
REFNUM_HD void e8m0_elements(const uint32_t* w, const ByteRule& rule, uint32_t* codes) {
    uint32_t lanes[2 * count];
    REFNUM_UNROLL
    for (int i = 0; i < 2 * count; ++i) {
        const uint32_t magnitudes = w[i] & LANE_MAGNITUDES, nan = (magnitudes + ABOVE_INF) >> 8 & 0x00800080u;
        const uint32_t carries = add_and_clamp(magnitudes, rule.less, rule.carry);
        lanes[i] = (min_lanes(magnitudes + carries, rule.most) | nan) << 1;
    }
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) codes[i] = permute(lanes[2 * i], lanes[2 * i + 1], 0x7531);
}

}  // namespace refnum
