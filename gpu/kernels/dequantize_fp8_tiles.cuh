// E4M3 codes under a tile byte -> bfloat16 (nearest even) or float32 (exact) (clause N6).
#pragma once

#include "e4m3.cuh"

namespace refnum {

// Whether every finite non-zero code is a normal, finite bfloat16 under this byte: then words take the short way.
REFNUM_HD bool is_plain_tile(uint32_t byte) { return byte >= 10 && byte <= 246; }

// `count` words of four codes -> 2 * `count` words of bfloat16, in order. For plain bytes and no NaN code.
template <int count>
REFNUM_HD void decode_fp8_words(const uint32_t* codes, uint32_t byte, uint32_t* out) {
    uint32_t lanes[2 * count];  // value * 2**-8, first as the codes are, then normal: subnormal codes are lifted
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        lanes[2 * i] = e4m3_even_lanes(codes[i]);
        lanes[2 * i + 1] = e4m3_odd_lanes(codes[i]);
    }
    scale_all<2 * count>(lanes, both_lanes(half_power(8)));
    REFNUM_UNROLL
    for (int i = 0; i < 2 * count; ++i) {  // rebias; lanes of zero stay zero
        lanes[i] = (lanes[i] >> 3) + min_lanes(lanes[i], 0x00010001u) * ((byte - 15) << 7);
    }
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        const uint32_t even = lanes[2 * i] | (codes[i] << 8 & 0x80008000u);
        const uint32_t odd = lanes[2 * i + 1] | (codes[i] & 0x80008000u);
        out[2 * i] = permute(even, odd, 0x5410);
        out[2 * i + 1] = permute(even, odd, 0x7632);
    }
}

// Any byte and code, one element.
REFNUM_HD uint32_t decode_fp8_bfloat16(uint32_t code, uint32_t byte) {
    return round_to_bfloat16(e4m3_decode(code, byte));
}

}  // namespace refnum
