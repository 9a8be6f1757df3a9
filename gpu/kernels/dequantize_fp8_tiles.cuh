// E4M3 codes under a tile byte -> bfloat16 (nearest even) or float32 (exact) (clause N6).
#pragma once

#include "e4m3.cuh"

namespace refnum {

// Whether every finite non-zero code is a normal, finite bfloat16 under this byte: then words take the short way.
REFNUM_HD bool is_plain_tile(uint32_t byte) { return byte >= 10 && byte <= 246; }

// Two magnitudes in binary16 lanes (times 2**-8) -> bfloat16 lanes under a plain byte.
REFNUM_HD uint32_t bfloat16_lanes(uint32_t h, uint32_t byte) {
    const uint32_t normal = scale_halves(h, both_lanes(half_power(8)));  // subnormal codes become normal, exactly
    return (normal >> 3) + min_lanes(normal, 0x00010001u) * ((byte - 15) << 7);  // zero lanes stay zero
}

// Four codes -> two words of bfloat16, elements (0, 1) and (2, 3). For plain bytes and no NaN code.
REFNUM_HD void decode_fp8_word(uint32_t codes, uint32_t byte, uint32_t (&out)[2]) {
    const uint32_t even = bfloat16_lanes(e4m3_even_lanes(codes), byte) | (codes << 8 & 0x80008000u);
    const uint32_t odd = bfloat16_lanes(e4m3_odd_lanes(codes), byte) | (codes & 0x80008000u);
    out[0] = permute(even, odd, 0x5410);
    out[1] = permute(even, odd, 0x7632);
}

// Any byte and code, one element.
REFNUM_HD uint32_t decode_fp8_bfloat16(uint32_t code, uint32_t byte) {
    return round_to_bfloat16(e4m3_decode(code, byte));
}

}  // namespace refnum
