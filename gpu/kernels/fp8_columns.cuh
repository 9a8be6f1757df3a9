// FP8 1x128 tiles -> column tiles without a second quantisation (clause N10).
//
// Per 128x128 tile one byte; a row's codes are lowered by k = byte - row byte, then transposed. Four codes a word.
#pragma once

#include "e4m3.cuh"

namespace refnum {

// What a row brings to its tile's byte: 0 when it takes no part (all zeros, or NaN scale), else 1 + byte.
REFNUM_HD uint32_t row_part(bool nonzero, uint32_t byte) { return nonzero && byte != NAN_BYTE ? byte + 1 : 0; }
REFNUM_HD uint32_t tile_byte(uint32_t part) { return part ? part - 1 : ONE_BYTE; }

// `rne`: how far a row of byte `row` is lowered to the tile's `byte`. A row above the tile's byte is all zeros.
REFNUM_HD uint32_t lowering_distance(uint32_t row, uint32_t byte) {
    const int32_t k = (int32_t)byte - (int32_t)row;
    return (uint32_t)(k < 0 ? 0 : k);
}

// `rne`: `count` words of codes times 2**-k, NaN codes to 0x7F. A lane holds value * 2**-8. The first multiply puts
// E4M3's smallest subnormal on binary16's and so rounds, since results above E4M3's smallest normal are exact at that
// place too; the second one, exact, brings the smallest normals together, and the code lies in bits 7..13.
template <int count>
REFNUM_HD void lower_rne(const uint32_t* codes, uint32_t k, uint32_t* out) {
    REFNUM_EXPECTS(k <= NAN_BYTE);
    uint32_t lanes[2 * count];
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        lanes[2 * i] = e4m3_even_lanes(codes[i]);
        lanes[2 * i + 1] = e4m3_odd_lanes(codes[i]);
    }
    scale_all<2 * count>(lanes, both_lanes(half_power(-7 - (int32_t)(k < 17 ? k : 17))));
    scale_all<2 * count>(lanes, both_lanes(half_power(7)));
    uint32_t nan = 0;
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        out[i] = choose((lanes[2 * i] >> 7) + lanes[2 * i + 1] * 2, codes[i], BYTE_MAGNITUDES);
        nan |= (codes[i] & BYTE_MAGNITUDES) + 0x01010101u;
    }
    if (k > 17) {  // 2**-25 is no binary16; 288 to 448 at 18 lie above half of the smallest subnormal, all else below
        REFNUM_UNROLL
        for (int i = 0; i < count; ++i) {
            const uint32_t one = ((codes[i] & BYTE_MAGNITUDES) + 0x07070707u) >> 7 & 0x01010101u;
            out[i] = choose(k == 18 ? one : 0, codes[i], BYTE_MAGNITUDES);
        }
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
