// The host build: the kernels' arithmetic headers behind a C interface (see gpu/host/build.py).
//
// Each function is the loop that a grid is on the device; everything that decides a bit is in kernels/*.cuh.
// Arrays are contiguous and row-major; the caller has checked shapes. Nothing here allocates or throws.
#pragma once

#include <cstring>

#include "../kernels/quantize_mxfp4.cuh"

namespace refnum {

constexpr int64_t BLOCK = 32, TILE = 128;

inline int64_t tiles(int64_t n) { return (n + TILE - 1) / TILE; }

inline uint32_t word_at(const void* p, int64_t i) {
    uint32_t word;
    std::memcpy(&word, static_cast<const uint8_t*>(p) + 4 * i, 4);
    return word;
}

inline uint32_t half_at(const void* p, int64_t i) {
    uint16_t half;
    std::memcpy(&half, static_cast<const uint8_t*>(p) + 2 * i, 2);
    return half;
}

// Where element i lies.
inline const uint8_t* words_at(const void* x, int kind, int64_t i) {
    return static_cast<const uint8_t*>(x) + (kind == FLOAT32 ? 4 : 2) * i;
}

// Element i as float32 bits, exact.
inline uint32_t float_at(const void* x, int kind, int64_t i) {
    if (kind == FLOAT32) return word_at(x, i);
    return kind == BFLOAT16 ? widen_lane<BFLOAT16>(half_at(x, i)) : widen_lane<FLOAT16>(half_at(x, i));
}

}  // namespace refnum
