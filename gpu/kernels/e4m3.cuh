// E4M3: packed bytes to binary16 lanes and back, and single floats (clauses N1 and N2).
//
// A magnitude code moved to bits 7..13 of a lane is, as binary16, the code's value times 2**-8: normal meets
// normal and subnormal meets subnormal.
#pragma once

#include "e2m1.cuh"

namespace refnum {

constexpr uint32_t BYTE_MAGNITUDES = 0x7F7F7F7Fu;
constexpr uint32_t LANE_CODES = 0x3F803F80u;
constexpr uint32_t E4M3_NAN = 0x7F;
constexpr uint32_t HALF_E4M3_MAX = 0x3F003F00u;  // 448 * 2**-8 in both lanes

// Magnitudes of bytes 0 and 2 (`even`) or 1 and 3 of a word as binary16 lanes, times 2**-8.
REFNUM_HD uint32_t e4m3_even_lanes(uint32_t codes) { return codes << 7 & LANE_CODES; }
REFNUM_HD uint32_t e4m3_odd_lanes(uint32_t codes) { return codes >> 1 & LANE_CODES; }

// Nearest E4M3 magnitudes of two lanes that hold value * 2**-8, at most 448: code in bits 7..13, bit 14 and up
// clear, bits 0..6 junk.
REFNUM_HD uint32_t e4m3_round_lanes(uint32_t h) { return h + (h >> 7 & 0x00010001u) + 0x003F003Fu; }

// Inverse of the two expansions: bytes (even 0, odd 0, even 1, odd 1) from rounded lanes, signs from a word.
REFNUM_HD uint32_t e4m3_join_lanes(uint32_t even, uint32_t odd, uint32_t signs) {
    return choose(choose(even >> 7, odd << 1, 0x00FF00FFu), signs, BYTE_MAGNITUDES);
}

// Whether a byte of a word is a NaN code.
REFNUM_HD bool has_nan_code(uint32_t codes) {
    return (((codes & BYTE_MAGNITUDES) + 0x01010101u) & BYTE_SIGNS) != 0;
}

// Float32 bits of an E4M3 code times 2**(byte - 127), exact; 2**128 and more is Inf (clause N6). A NaN code and
// byte 255 give the quiet NaN.
REFNUM_HD uint32_t e4m3_decode(uint32_t code, uint32_t byte) {
    const uint32_t sign = (code & 0x80) << 24;
    uint32_t magnitude = code & 0x7F;
    if (byte == NAN_BYTE || magnitude == E4M3_NAN) return 0x7FC00000;
    if (magnitude == 0) return sign;
    int32_t field = (int32_t)byte - 7;
    if (magnitude < 8) {
        const int32_t lift = leading_zeros(magnitude) - 28;
        magnitude <<= lift;
        field -= lift;
    }
    field += (int32_t)(magnitude >> 3);
    if (field >= 255) return sign | 0x7F800000;
    const uint32_t fraction = (magnitude & 7) << 20;
    return sign | (field > 0 ? (uint32_t)field << 23 | fraction : (0x800000 | fraction) >> (1 - field));
}

// bfloat16 bits of exact float32 bits, to nearest even; of NaNs only the quiet one, 0x7FC00000.
REFNUM_HD uint32_t round_to_bfloat16(uint32_t bits) {
    REFNUM_EXPECTS((bits & 0x7FFFFFFF) <= 0x7F800000 || bits == 0x7FC00000);
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

// Bytes of all eight E2M1 magnitudes times 2**shift. Codes above what the caller's block holds may be junk.
REFNUM_HD Table e4m3_table(int32_t shift) {
    REFNUM_EXPECTS(shift >= -300 && shift <= 300);
    if (shift >= -5) {  // no subnormal: every byte but that of zero moves by whole binades
        return {0x3C383000u + 0x08080800u * (uint32_t)shift, 0x4C484440u + 0x08080808u * (uint32_t)shift};
    }
    // binary16 lanes of codes (0, 2), (1, 3), (4, 6) and (5, 7), times 2**-8. The first multiply puts E4M3's smallest
    // subnormal on binary16's and so rounds, the second one brings the smallest normals together.
    uint32_t lanes[4] = {0x1C000000u, 0x1E001800u, 0x24002000u, 0x26002200u};
    scale_all<4>(lanes, both_lanes(half_power(shift > -17 ? shift - 7 : -24)));
    scale_all<4>(lanes, both_lanes(half_power(7)));
    return {(lanes[0] >> 7) + lanes[1] * 2, (lanes[2] >> 7) + lanes[3] * 2};
}

}  // namespace refnum
