// Float tiles -> E4M3 codes with one E8M0 byte a tile of 1x128 or 128x128 (clauses N4 and N6).
//
// Elements are widened to float32 and take the machine's conversion (float32_codes.cuh). A tile's largest magnitude
// is compared as 16-bit patterns, those of float32 as bfloat16 rounded to odd, which decide the byte alike.
#pragma once

#include "float32_codes.cuh"
#include "parts.cuh"

namespace refnum {

// Largest magnitude of `words` words of a tile, in one of two lanes: bfloat16 (of float32, rounded to odd) or binary16.
template <int kind, int words>
REFNUM_HD uint32_t tile_largest(const uint32_t* in) {
    if (kind != FLOAT32) return part_largest<words>(in);
    uint32_t most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < words; ++i) most = larger_magnitude(most, in[i]);
    return odd_bfloat16_pair(most, 0);
}

// Byte of a tile whose largest magnitude is this lane; `carry` is `e4m3_carry(rule, 23)`.
template <int kind>
REFNUM_HD uint32_t tile_byte(uint32_t largest, uint32_t carry) {
    return float_tile_byte(kind == FLOAT16 ? widen_lane<FLOAT16>(largest) : largest << 16, carry);
}

// `count` words of four codes of a tile's elements under its byte.
template <int kind, int count>
REFNUM_HD void quantize_fp8_words(const uint32_t* in, uint32_t byte, uint32_t* codes) {
    uint32_t bits[4 * count];
    float_bits<kind, 2 * count>(in, bits);
    e4m3_words<count>(bits, byte, codes);
}

}  // namespace refnum
