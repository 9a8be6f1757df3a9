// FP8 block of 32 under a tile byte -> MXFP4, never through BF16 (clause N7).
//
// Codes become binary16 lanes, one multiply brings E2M1's 1 to the smallest normal, and the seven bits that can
// matter (three of the code, four below) are joined back to four elements a word before the one rounding add.
#pragma once

#include "e4m3.cuh"

namespace refnum {

// log2 of the block scale relative to the tile's, before the clamp, for a largest magnitude code in 1..126.
REFNUM_HD int32_t relative_scale(uint32_t amax, int32_t rule) {
    REFNUM_EXPECTS(amax >= 1 && amax <= 127);
    const int32_t lift = amax < 8 ? leading_zeros(amax) - 28 : 0;  // subnormal codes: leading one to bit 3
    return (int32_t)(((amax << lift) + e2m1_carry(rule, 3)) >> 3) - lift - 7 - E2M1_EMAX;
}

// Rounds four elements a byte. x: bits 4..6 E2M1's code cut off, bits 0..3 what is below, cut off too. An E4M3
// value has four significant bits, so the cut leaves every decision as it was: 7 + odd carries exactly when the
// rest is above half, or half beside an odd code. The code comes out in bits 4..6.
REFNUM_HD uint32_t e2m1_round_bytes(uint32_t x) { return x + (x >> 4 & 0x01010101u) + 0x07070707u; }

// Eight elements of a packed word from four words of scaled lanes: `lanes` holds elements (0, 4), (2, 6), (1, 5)
// and (3, 7), `even` and `odd` the codes of elements 0, 2, 4, 6 and 1, 3, 5, 7, for their signs.
REFNUM_HD uint32_t join_nibbles(const uint32_t* lanes, uint32_t even, uint32_t odd) {
    const uint32_t a = e2m1_round_bytes(choose(lanes[0] >> 5, lanes[1] << 3, 0x00FF00FFu));
    const uint32_t b = e2m1_round_bytes(choose(lanes[2] >> 5, lanes[3] << 3, 0x00FF00FFu));
    return choose(choose(a, even, BYTE_MAGNITUDES) >> 4, choose(b, odd, BYTE_MAGNITUDES), 0x0F0F0F0Fu);
}

}  // namespace refnum
