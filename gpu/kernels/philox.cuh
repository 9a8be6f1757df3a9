// Random bits by counter: Philox4x32-10 and the streams that are made of it (clause N13).
#pragma once

#include "words.cuh"

namespace refnum {

// A stream: the key's two words, and the two counter words that do not count.
struct PhiloxKey {
    uint32_t seed_low, seed_high, stream, step;
};

// Elements to which one block gives a byte each.
constexpr uint32_t PHILOX_BYTES = 16;

// Words 4 * block .. 4 * block + 3 of a stream. Byte j of them, lowest first, belongs to element 16 * block + j.
REFNUM_HD void philox_block(uint64_t block, PhiloxKey key, uint32_t* out) {
    uint32_t x = (uint32_t)block, y = (uint32_t)(block >> 32), z = key.stream, w = key.step;
    REFNUM_UNROLL
    for (uint32_t round = 0; round < 10; ++round) {
        const uint64_t left = (uint64_t)x * 0xD2511F53u, right = (uint64_t)z * 0xCD9E8D57u;
        x = (uint32_t)(right >> 32) ^ y ^ (key.seed_low + round * 0x9E3779B9u);
        z = (uint32_t)(left >> 32) ^ w ^ (key.seed_high + round * 0xBB67AE85u);
        y = (uint32_t)right;
        w = (uint32_t)left;
    }
    out[0] = x;
    out[1] = y;
    out[2] = z;
    out[3] = w;
}

}  // namespace refnum
