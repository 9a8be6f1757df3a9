// Float block of 32 -> MXFP4 (clauses N3, N4, N5).
//
// bfloat16 and float32 share one path. A float32 pair is first cut to two bfloat16 lanes whose last bit also
// stands for everything cut off (round to odd): E2M1 keeps at most two significant bits, so nothing that the
// scale or the rounding asks is lost. A lane then loses the block's exponent, becomes a binary16 and is scaled so
// that E2M1's 1 is binary16's smallest normal; the hardware multiply makes the subnormals.
#pragma once

#include "e2m1.cuh"

namespace refnum {

enum FloatKind : int { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2 };

// Two float32 as bfloat16 lanes rounded to odd: (bits `low`, bits `high`) -> one word. NaN stays NaN.
REFNUM_HD uint32_t odd_bfloat16_pair(uint32_t low, uint32_t high) {
    const uint32_t rest = permute(low, high, 0x5410);
    return permute(low, high, 0x7632) | min_lanes(rest, 0x00010001u);
}

// What one block shares: its scale byte and how its lanes become scaled binary16.
struct BlockScale {
    uint32_t byte;
    uint32_t base;    // exponent taken off every lane before the lane becomes a binary16
    uint32_t powers;  // what brings E2M1's 1 to the smallest normal
    uint32_t sticky;  // binary16 input: low bits that are folded into one before the multiply
};

// Lanes of bfloat16 under a scale byte.
REFNUM_HD BlockScale bfloat16_scale(uint32_t byte) {
    const uint32_t base = byte > 8 ? byte - 8 : 0;  // lanes below 2**-8 of the scale become 0, as they round to
    return {byte, both_lanes(base << 7), both_lanes(half_power(1 - (int32_t)(byte - base))), 0};
}

// bfloat16 (rounded to odd or exact): amax is a magnitude pattern below Inf.
REFNUM_HD BlockScale bfloat16_block_scale(uint32_t amax, Policy policy) {
    BlockScale scale = bfloat16_scale(
        (uint32_t)clamp_byte((int32_t)((amax + e2m1_carry(policy.rule, 7)) >> 7) - E2M1_EMAX));
    if (amax == 0) scale.byte = policy.zero_byte;
    return scale;
}

// binary16: amax is a magnitude pattern below Inf. The byte lies in 101..141, no clamp can act.
REFNUM_HD BlockScale half_block_scale(uint32_t amax, Policy policy) {
    int32_t lift = 0;
    if (amax != 0 && amax < 0x400) {
        lift = leading_zeros(amax) - 21;
        amax <<= lift;
    }
    const int32_t rounded = (int32_t)((amax + e2m1_carry(policy.rule, 10)) >> 10);
    const int32_t one = rounded - E2M1_EMAX - (lift > 0 ? lift : 0);  // exponent field of the scale itself
    const int32_t base = one > 8 ? one - 8 : 0;
    return {amax == 0 ? policy.zero_byte : (uint32_t)(one + 112), both_lanes((uint32_t)base << 10),
            both_lanes(half_power(amax == 0 ? 0 : 1 - (one - base))), one >= 2 ? 0x00070007u : 0};
}

// Two binary16 lanes, not yet scaled, from a word of two inputs; signs dropped.
template <int kind>
REFNUM_HD uint32_t block_lanes(uint32_t word, const BlockScale& scale) {
    REFNUM_EXPECTS(kind == FLOAT16 || larger_lane(word & LANE_MAGNITUDES) < (scale.byte + 3) << 7);
    const uint32_t lanes = subtract_to_zero(word & LANE_MAGNITUDES, scale.base);
    if (kind != FLOAT16) return lanes << 3;
    // up to three bits are lost to a subnormal: keep them as one sticky bit
    return (lanes & ~scale.sticky) | (((lanes & scale.sticky) + scale.sticky) & 0x00080008u);
}

// Float32 bits of a bfloat16 (rounded to odd or exact) or binary16 lane.
template <int kind>
REFNUM_HD uint32_t widen_lane(uint32_t lane) {
    if (kind != FLOAT16) return lane << 16;
#ifdef __CUDA_ARCH__
    uint32_t bits;  // exact, subnormals kept; a NaN stays one
    asm("cvt.f32.f16 %0, %1;" : "=r"(bits) : "h"((uint16_t)lane));
    return bits;
#else
    const uint32_t sign = (lane & 0x8000) << 16, field = lane >> 10 & 0x1F, fraction = lane & 0x3FF;
    if (field == 31) return sign | (fraction ? 0x7FC00000 : 0x7F800000);
    if (field) return sign | (field + 112) << 23 | fraction << 13;
    if (fraction == 0) return sign;
    const int32_t lift = leading_zeros(fraction) - 21;
    return sign | (uint32_t)(113 - lift) << 23 | (fraction << lift & 0x3FF) << 13;
#endif
}

// Float32 bits of 2 * `count` loaded floats.
template <int kind, int count>
REFNUM_HD void float_bits(const uint32_t* in, uint32_t* bits) {
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        bits[2 * i] = kind == FLOAT32 ? in[2 * i] : widen_lane<kind>(in[i] & 0xFFFF);
        bits[2 * i + 1] = kind == FLOAT32 ? in[2 * i + 1] : widen_lane<kind>(in[i] >> 16);
    }
}

}  // namespace refnum
