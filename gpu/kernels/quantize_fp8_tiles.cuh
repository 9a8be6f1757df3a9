// Float tiles -> E4M3 codes with one E8M0 byte a tile of 1x128 or 128x128 (clauses N4 and N6).
//
// As quantize_mxfp4.cuh: lanes of bfloat16 (float32 rounded to odd first) lose the tile's exponent, become
// binary16, and are scaled so that E4M3's smallest normal meets binary16's.
#pragma once

#include "e4m3.cuh"
#include "quantize_mxfp4.cuh"

namespace refnum {

struct TileScale {
    uint32_t byte;
    uint32_t base;
    uint32_t powers;
    uint32_t sticky;
    bool scalar;  // elements take `quantize_fp8_scalar_word` on their float32 bits
};

// Lanes of bfloat16 under a tile byte.
REFNUM_HD TileScale bfloat16_tile_scale(uint32_t byte) {
    const int32_t one = (int32_t)byte - 6;  // exponent field of E4M3's smallest normal
    const int32_t base = one > 8 ? one - 8 : 0;
    // from field 5 on, the smallest tie (2**-10) is normal and a last fraction bit would fall out: make it sticky
    return {byte, both_lanes((uint32_t)base << 7), both_lanes(half_power(1 - (one - base))),
            one >= 5 ? 0x00080008u : 0, false};
}

// amax: largest magnitude pattern of the tile as bfloat16 (rounded to odd where it was float32 or binary16).
// Scalar tiles are those with NaN or Inf, and float32 ones of a byte below 6: there E4M3's smallest tie lies below
// bfloat16's last place.
REFNUM_HD TileScale tile_scale(uint32_t amax, Policy policy, int kind) {
    if (amax == 0 || amax >= 0x7F80) return {ONE_BYTE, 0, 0, 0, amax != 0};
    const int32_t byte = (int32_t)((amax + e4m3_carry(policy.rule, 7)) >> 7) - E4M3_EMAX;
    TileScale scale = bfloat16_tile_scale((uint32_t)clamp_byte(byte));
    scale.scalar = kind == FLOAT32 && byte < 6;
    return scale;
}

// `count` words of four E4M3 codes from 2 * `count` words of bfloat16 lanes. Not for a scalar tile.
template <bool saturate, int count>
REFNUM_HD void quantize_fp8_words(const uint32_t* w, const TileScale& scale, uint32_t* codes) {
    uint32_t lanes[2 * count];
    REFNUM_UNROLL
    for (int i = 0; i < 2 * count; ++i) {
        REFNUM_EXPECTS(larger_lane(w[i] & LANE_MAGNITUDES) < (scale.byte + 9) << 7);
        const uint32_t h = subtract_to_zero(w[i] & LANE_MAGNITUDES, scale.base) << 3;
        lanes[i] = (h & ~scale.sticky) | (h & scale.sticky) << 1;
    }
    scale_all<2 * count>(lanes, scale.powers);
    REFNUM_UNROLL
    for (int i = 0; i < 2 * count; ++i) {
        lanes[i] = e4m3_round_lanes(saturate ? min_lanes(lanes[i], HALF_E4M3_MAX) : lanes[i]) << 1;
    }
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        const uint32_t magnitudes = permute(lanes[2 * i], lanes[2 * i + 1], 0x7531);
        codes[i] = choose(magnitudes, permute(w[2 * i], w[2 * i + 1], 0x7531), BYTE_MAGNITUDES);
    }
}

// Four float32 -> one word, any tile: NaN 0x7F, Inf and whatever passes 448 at this byte saturates.
REFNUM_HD uint32_t quantize_fp8_scalar_word(const uint32_t (&bits)[4], uint32_t byte) {
    uint32_t out = 0;
    REFNUM_UNROLL
    for (int i = 0; i < 4; ++i) out |= e4m3_encode(bits[i], (int32_t)byte - 127) << (8 * i);
    return out;
}

// Two binary16 lanes as bfloat16 lanes rounded to odd.
REFNUM_HD uint32_t odd_bfloat16_from_half(uint32_t word) {
    return odd_bfloat16_pair(widen_lane<FLOAT16>(word & 0xFFFF), widen_lane<FLOAT16>(word >> 16));
}

}  // namespace refnum
