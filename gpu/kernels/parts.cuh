// A thread's part of a block or tile that several threads share: everything before and after the shared maximum.
//
// Pure functions like the other headers; `words` counts the thread's words of input.
#pragma once

#include "dequantize_fp8_tiles.cuh"
#include "fp8_to_mxfp4.cuh"
#include "mxfp4_to_fp8.cuh"
#include "quantize_mxfp4.cuh"

namespace refnum {

// Largest magnitudes of some words of 16-bit floats, one in each lane.
template <int words>
REFNUM_HD uint32_t part_largest(const uint32_t* w) {
    uint32_t most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < words; i += 2) most = max3_lanes(most, w[i] & LANE_MAGNITUDES, w[i + 1] & LANE_MAGNITUDES);
    return most;
}

// Part of a block of 16-bit floats whose largest magnitude is `amax` -> words/4 packed words; returns the block's
// byte. A block with Inf is encoded as if under byte 254 and then keeps or loses its codes by the policy.
template <int kind, bool saturate, int words>
REFNUM_HD uint32_t quantize_part(const uint32_t* w, uint32_t amax, Policy policy, uint32_t* packed) {
    constexpr uint32_t infinity = kind == FLOAT16 ? 0x7C00 : 0x7F80;
    const bool special = amax >= infinity, nan = special && (amax > infinity || !policy.satfinite);
    BlockScale scale;
    if (kind == FLOAT16) {  // every finite binary16 is below 2**16 and so a zero under 2**127
        scale = half_block_scale(amax, policy);
        if (special) scale.powers = 0;
    } else {
        scale = bfloat16_block_scale(special ? 0x8000 : amax, policy);
    }
    uint32_t lanes[words];
    REFNUM_UNROLL
    for (int i = 0; i < words; ++i) lanes[i] = block_lanes<kind>(w[i], scale);
    scale_all<words>(lanes, scale.powers);
    if (special && policy.satfinite) {
        REFNUM_UNROLL
        for (int i = 0; i < words; ++i) {
            const uint32_t inf = ((w[i] & LANE_MAGNITUDES) + (0x8000u - infinity) * 0x00010001u) >> 15 & 0x00010001u;
            lanes[i] = choose(HALF_E2M1_MAX, lanes[i], inf * 0xFFFFu);
        }
    }
    REFNUM_UNROLL
    for (int i = 0; i < words; ++i) {
        lanes[i] = e2m1_round_lanes(saturate ? min_lanes(lanes[i], HALF_E2M1_MAX) : lanes[i]);
    }
    REFNUM_UNROLL
    for (int i = 0; i < words / 4; ++i) packed[i] = nan ? 0 : e2m1_pack_lanes(lanes + 4 * i, w + 4 * i);
    return nan ? NAN_BYTE : special ? MAX_BYTE : scale.byte;
}

// float32 bits of 2**(113 - byte), byte up to 254: under it a block's elements become binary16 lanes in which E2M1's 1
// is the smallest normal.
REFNUM_HD uint32_t lane_power(uint32_t byte) { return byte < 240 ? (240 - byte) << 23 : 0x400000u >> (byte - 240); }

// As `quantize_part` with stochastic rounding of eight bits an element (clause N2.6). `in` holds the input's own words
// (two float32 a word of `w`; else `w` itself); byte j of `random` belongs to element j. A lane has nine bits below
// E2M1's last, so a random byte one place up adds to the top eight of them, and the carry is the rounding.
template <int kind, int words>
REFNUM_HD uint32_t quantize_part_stochastic(const uint32_t* in, const uint32_t* w, uint32_t amax,
                                            const uint32_t* random, Policy policy, uint32_t* packed) {
    constexpr uint32_t infinity = kind == FLOAT16 ? 0x7C00 : 0x7F80;
    const bool special = amax >= infinity, nan = special && (amax > infinity || !policy.satfinite);
    const uint32_t plain = kind == FLOAT16 ? half_block_scale(special ? 0 : amax, policy).byte
                                           : bfloat16_block_scale(special ? 0 : amax, policy).byte;
    const uint32_t byte = special ? MAX_BYTE : plain, power = lane_power(byte);
    uint32_t lanes[words];
    REFNUM_UNROLL
    for (int i = 0; i < words; ++i) {
        const uint32_t low = kind == FLOAT32 ? in[2 * i] : widen_lane<kind>(w[i] & 0xFFFF);
        const uint32_t high = kind == FLOAT32 ? in[2 * i + 1] : kind == FLOAT16 ? widen_lane<kind>(w[i] >> 16)
                                                                                : w[i] & 0xFFFF0000u;
        const uint32_t draws = permute(random[i / 2], 0, i & 1 ? 0x4342 : 0x4140);
        lanes[i] = min_lanes(halves_below(low, high, power) + (draws << 1), HALF_E2M1_MAX);
    }
    REFNUM_UNROLL
    for (int i = 0; i < words / 4; ++i) packed[i] = nan ? 0 : e2m1_pack_lanes(lanes + 4 * i, w + 4 * i);
    return nan ? NAN_BYTE : byte;
}

// Part of a block of FP8 codes, as the lanes that both the maximum and the scaling take.
template <int words>
struct CodeLanes {
    uint32_t even[words / 2], odd[words / 2], lanes[2 * words];
};

template <int words>
REFNUM_HD CodeLanes<words> code_lanes(const uint32_t* codes) {
    CodeLanes<words> part;
    REFNUM_UNROLL
    for (int i = 0; i < words / 2; ++i) {
        part.even[i] = permute(codes[2 * i], codes[2 * i + 1], 0x6420);
        part.odd[i] = permute(codes[2 * i], codes[2 * i + 1], 0x7531);
        part.lanes[4 * i] = e4m3_even_lanes(part.even[i]);
        part.lanes[4 * i + 1] = e4m3_odd_lanes(part.even[i]);
        part.lanes[4 * i + 2] = e4m3_even_lanes(part.odd[i]);
        part.lanes[4 * i + 3] = e4m3_odd_lanes(part.odd[i]);
    }
    return part;
}

template <int words>
REFNUM_HD uint32_t code_largest(const CodeLanes<words>& part) {
    uint32_t most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < 2 * words; i += 2) most = max3_lanes(most, part.lanes[i], part.lanes[i + 1]);
    return most;
}

// Part of a block whose largest lane is `largest` -> words/2 packed words; returns the block's byte.
template <bool saturate, int words>
REFNUM_HD uint32_t recode_part(CodeLanes<words>& part, uint32_t largest, uint32_t tile, Policy policy,
                               uint32_t* packed) {
    const uint32_t amax = largest >> 7;
    const bool nan = amax == E4M3_NAN || tile == NAN_BYTE;
    const int32_t relative = amax ? relative_scale(amax, policy.rule) : 7;  // zeros round to zero at any scale
    const int32_t byte = clamp_byte((int32_t)tile + relative);
    const int32_t shift = (int32_t)tile - byte;
    scale_all<2 * words>(part.lanes, both_lanes(half_power(shift - 6)));
    if (saturate || shift + relative > 0) {  // when the upper clamp acted, elements pass 6 under every rule
        REFNUM_UNROLL
        for (int i = 0; i < 2 * words; ++i) part.lanes[i] = min_lanes(part.lanes[i], HALF_E2M1_MAX);
    }
    REFNUM_UNROLL
    for (int i = 0; i < words / 2; ++i) {
        packed[i] = nan ? 0 : join_nibbles(part.lanes + 4 * i, part.even[i], part.odd[i]);
    }
    return nan ? NAN_BYTE : amax ? (uint32_t)byte : policy.zero_byte;
}

}  // namespace refnum
