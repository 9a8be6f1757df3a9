// FP8 1x128 tiles -> column tiles without a second quantisation (clause N10).
//
// Per 128x128 tile one byte; a row's codes are lowered by k = byte - row byte, then transposed. Four codes a word.
#pragma once

#include "e4m3.cuh"

namespace refnum {

// What a row brings to its tile's byte: 0 when it takes no part (all zeros, or NaN scale), else 1 + byte.
REFNUM_HD uint32_t row_part(bool nonzero, uint32_t byte) { return nonzero && byte != NAN_BYTE ? byte + 1 : 0; }
REFNUM_HD uint32_t tile_byte(uint32_t part) { return part ? part - 1 : ONE_BYTE; }

// `rne`: what lowers a row of byte `row` to the tile's `byte`, as binary16 powers. A row above the tile's byte is
// all zeros; from 19 on every value is below half of the smallest subnormal.
REFNUM_HD uint32_t lowering_powers(uint32_t row, uint32_t byte) {
    const int32_t k = (int32_t)byte - (int32_t)row;
    return both_lanes(half_power(k < 0 ? 0 : k > 19 ? -19 : -k));
}

// `rne`: `count` words of codes times the powers, NaN codes to 0x7F.
template <int count>
REFNUM_HD void lower_rne(const uint32_t* codes, uint32_t powers, uint32_t* out) {
    uint32_t lanes[2 * count];
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        lanes[2 * i] = e4m3_even_lanes(codes[i]);
        lanes[2 * i + 1] = e4m3_odd_lanes(codes[i]);
    }
    scale_all<2 * count>(lanes, powers);
    uint32_t nan = 0;
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        const uint32_t even = e4m3_round_lanes(lanes[2 * i]), odd = e4m3_round_lanes(lanes[2 * i + 1]);
        out[i] = e4m3_join_lanes(even, odd, codes[i]);
        nan |= (codes[i] & BYTE_MAGNITUDES) + 0x01010101u;
    }
    if ((nan & BYTE_SIGNS) == 0) return;  // NaN codes are rare
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        const uint32_t here = sign_bytes((codes[i] & BYTE_MAGNITUDES) + 0x01010101u);
        out[i] = choose(BYTE_MAGNITUDES, out[i], here);
    }
}

// `te`: eight times the exponent step in every byte, at most 15 steps.
REFNUM_HD uint32_t lowering_steps(uint32_t row, uint32_t byte) {
    const int32_t k = (int32_t)byte - (int32_t)row;
    return (uint32_t)(k < 0 ? 0 : k > 15 ? 15 : k) * 0x08080808u;
}

// `te`: E' = E - k; below 1 the exponent is 0 and the mantissa bits stay; a source exponent of 0 gives 0x00.
REFNUM_HD uint32_t lower_te(uint32_t codes, uint32_t steps) {
    const uint32_t moved = (codes | BYTE_SIGNS) - steps;  // top bit: the exponent did not go below 0
    const uint32_t magnitudes = moved & (sign_bytes(moved) | 0x07070707u) & BYTE_MAGNITUDES;
    const uint32_t normal = sign_bytes((codes & BYTE_MAGNITUDES) + 0x78787878u);
    return (magnitudes | (codes & BYTE_SIGNS)) & normal;
}

}  // namespace refnum
