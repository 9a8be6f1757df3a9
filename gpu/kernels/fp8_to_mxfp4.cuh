// FP8 block of 32 under a tile byte -> MXFP4, never through BF16 (clause N7).
//
// Codes become binary16 lanes, one multiply brings E2M1's 1 to the smallest normal, and the seven bits that can
// matter (three of the code, four below) are joined back to four elements a word before the one rounding add.
#pragma once

#include "e4m3.cuh"

namespace refnum {

// log2 of the block scale relative to the tile's, before the clamp, for a largest magnitude code in 1..126.
REFNUM_HD int32_t relative_scale(uint32_t amax, int32_t rule) {
    const int32_t lift = amax < 8 ? leading_zeros(amax) - 28 : 0;  // subnormal codes: leading one to bit 3
    return (int32_t)(((amax << lift) + e2m1_carry(rule, 3)) >> 3) - lift - 7 - E2M1_EMAX;
}

// Rounds four elements a byte. x: bits 4..6 E2M1's code cut off, bits 0..3 what is below, cut off too. An E4M3
// value has four significant bits, so the cut leaves every decision as it was: 7 + odd carries exactly when the
// rest is above half, or half beside an odd code. The code comes out in bits 4..6.
REFNUM_HD uint32_t e2m1_round_bytes(uint32_t x) { return x + (x >> 4 & 0x01010101u) + 0x07070707u; }

// Four elements (four codes of `codes`) -> rounded bytes with the signs on top: the nibble is the upper half.
template <bool saturate>
REFNUM_HD uint32_t recode_bytes(uint32_t codes, uint32_t powers) {
    uint32_t even = scale_halves(e4m3_even_lanes(codes), powers);
    uint32_t odd = scale_halves(e4m3_odd_lanes(codes), powers);
    if (saturate) {
        even = min_lanes(even, HALF_E2M1_MAX);
        odd = min_lanes(odd, HALF_E2M1_MAX);
    }
    return choose(e2m1_round_bytes(choose(even >> 5, odd << 3, 0x00FF00FFu)), codes, BYTE_MAGNITUDES);
}

// Two words of codes -> one packed word. `even` holds elements 0, 2, 4, 6 and `odd` elements 1, 3, 5, 7.
template <bool saturate>
REFNUM_HD uint32_t recode_word(uint32_t even, uint32_t odd, uint32_t powers) {
    return choose(recode_bytes<saturate>(even, powers) >> 4, recode_bytes<saturate>(odd, powers), 0x0F0F0F0Fu);
}

// One block: eight words of codes -> 16 packed bytes; returns the block's byte.
template <bool saturate>
REFNUM_HD uint32_t fp8_block_to_mxfp4(const uint32_t (&codes)[8], uint32_t tile, Policy policy,
                                      uint32_t (&packed)[4]) {
    uint32_t even[4], odd[4], most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < 4; ++i) {  // the lanes of the maximum are the lanes that are scaled below
        even[i] = permute(codes[2 * i], codes[2 * i + 1], 0x6420);
        odd[i] = permute(codes[2 * i], codes[2 * i + 1], 0x7531);
        most = max3_lanes(most, e4m3_even_lanes(even[i]), e4m3_odd_lanes(even[i]));
        most = max3_lanes(most, e4m3_even_lanes(odd[i]), e4m3_odd_lanes(odd[i]));
    }
    const uint32_t amax = larger_lane(most) >> 7;
    if (amax == E4M3_NAN || tile == NAN_BYTE) {
        REFNUM_UNROLL
        for (int i = 0; i < 4; ++i) packed[i] = 0;
        return NAN_BYTE;
    }
    const int32_t relative = amax ? relative_scale(amax, policy.rule) : 7;  // zeros round to zero at any scale
    const int32_t byte = clamp_byte((int32_t)tile + relative);
    // value * 2**-8 is in the lane; value / 2**(byte - tile) * 2**-14 is wanted
    const int32_t shift = (int32_t)tile - byte;
    const uint32_t powers = both_lanes(half_power(shift - 6));
    if (!saturate && shift + relative > 0) {  // the upper clamp acted: elements can pass 6 under every rule
        REFNUM_UNROLL
        for (int i = 0; i < 4; ++i) packed[i] = recode_word<true>(even[i], odd[i], powers);
    } else {
        REFNUM_UNROLL
        for (int i = 0; i < 4; ++i) packed[i] = recode_word<saturate>(even[i], odd[i], powers);
    }
    return amax ? (uint32_t)byte : policy.zero_byte;
}

}  // namespace refnum
