// MXFP4 blocks of a row: quantised, also with stochastic rounding, and dequantised (clauses N5 and N13).
#include "common.hpp"

#include "../kernels/dequantize_mxfp4.cuh"
#include "../kernels/parts.cuh"
#include "../kernels/philox.cuh"

using namespace refnum;

namespace {

// Words of two bfloat16 (rounded to odd) or binary16 lanes from `count` pairs of the input.
template <int kind>
void load_lanes(const void* x, int64_t first, int count, uint32_t* w) {
    if (kind != FLOAT32) {
        std::memcpy(w, static_cast<const uint8_t*>(x) + 2 * first, 4 * (size_t)count);
        return;
    }
    for (int i = 0; i < count; ++i) {
        w[i] = odd_bfloat16_pair(word_at(x, first + 2 * i), word_at(x, first + 2 * i + 1));
    }
}

// Words of lanes that a thread of the device takes (gpu/ops/rowwise.py): half a block of float32, else a whole one.
template <int kind>
constexpr int share = kind == FLOAT32 ? 8 : 16;

// Largest magnitude of a block, as its threads find it: each in its part, then the largest of those.
template <int kind>
uint32_t block_amax(const uint32_t (&w)[16]) {
    uint32_t most = 0;
    for (int i = 0; i < 16; i += share<kind>) most = max_lanes(most, part_largest<share<kind>>(w + i));
    return larger_lane(most);
}

template <int kind, bool saturate>
void quantize_blocks(const void* x, int64_t blocks, Policy policy, uint8_t* packed, uint8_t* scales) {
    for (int64_t b = 0; b < blocks; ++b) {
        uint32_t w[16], out[4], byte = 0;
        load_lanes<kind>(x, b * BLOCK, 16, w);
        const uint32_t amax = block_amax<kind>(w);
        for (int i = 0; i < 16; i += share<kind>) {
            byte = quantize_part<kind, saturate, share<kind>>(w + i, amax, policy, out + i / 4);
        }
        scales[b] = (uint8_t)byte;
        std::memcpy(packed + b * 16, out, 16);
    }
}

// `draw(b, words)` gives the 32 random bytes of block b.
template <int kind, class Draw>
void quantize_stochastic(const void* x, int64_t blocks, Policy policy, uint8_t* packed, uint8_t* scales, Draw draw) {
    for (int64_t b = 0; b < blocks; ++b) {
        uint32_t in[32], w[16], out[4], random[8], byte = 0;
        load_lanes<kind>(x, b * BLOCK, 16, w);
        std::memcpy(in, static_cast<const uint8_t*>(x) + (kind == FLOAT32 ? 128 : 64) * b, kind == FLOAT32 ? 128 : 64);
        draw(b, random);
        const uint32_t amax = block_amax<kind>(w);
        for (int i = 0; i < 16; i += share<kind>) {
            byte = quantize_part_stochastic<kind, share<kind>>(in + (kind == FLOAT32 ? 2 * i : i), w + i, amax,
                                                               random + i / 2, policy, out + i / 4);
        }
        scales[b] = (uint8_t)byte;
        std::memcpy(packed + b * 16, out, 16);
    }
}

template <class Draw>
void quantize_stochastic(int kind, const void* x, int64_t blocks, Policy policy, uint8_t* packed, uint8_t* scales,
                         Draw draw) {
    if (kind == FLOAT32) quantize_stochastic<FLOAT32>(x, blocks, policy, packed, scales, draw);
    if (kind == BFLOAT16) quantize_stochastic<BFLOAT16>(x, blocks, policy, packed, scales, draw);
    if (kind == FLOAT16) quantize_stochastic<FLOAT16>(x, blocks, policy, packed, scales, draw);
}

}  // namespace

extern "C" {

void refnum_quantize_mxfp4(int kind, const void* x, int64_t blocks, int rule, int satfinite, int zero_byte,
                           uint8_t* packed, uint8_t* scales) {
    const Policy policy = {rule, (uint32_t)satfinite, (uint32_t)zero_byte};
    const bool saturate = e2m1_saturates(rule);
    if (kind == FLOAT32 && saturate) quantize_blocks<FLOAT32, true>(x, blocks, policy, packed, scales);
    if (kind == FLOAT32 && !saturate) quantize_blocks<FLOAT32, false>(x, blocks, policy, packed, scales);
    if (kind == BFLOAT16 && saturate) quantize_blocks<BFLOAT16, true>(x, blocks, policy, packed, scales);
    if (kind == BFLOAT16 && !saturate) quantize_blocks<BFLOAT16, false>(x, blocks, policy, packed, scales);
    if (kind == FLOAT16 && saturate) quantize_blocks<FLOAT16, true>(x, blocks, policy, packed, scales);
    if (kind == FLOAT16 && !saturate) quantize_blocks<FLOAT16, false>(x, blocks, policy, packed, scales);
}

void refnum_quantize_mxfp4_stochastic(int kind, const void* x, const uint8_t* random, int64_t blocks, int rule,
                                      int satfinite, int zero_byte, uint8_t* packed, uint8_t* scales) {
    quantize_stochastic(kind, x, blocks, {rule, (uint32_t)satfinite, (uint32_t)zero_byte}, packed, scales,
                        [=](int64_t b, uint32_t* words) { std::memcpy(words, random + b * BLOCK, BLOCK); });
}

void refnum_quantize_mxfp4_keyed(int kind, const void* x, uint64_t seed, uint64_t stream, uint64_t step,
                                 uint64_t offset, int64_t blocks, int rule, int satfinite, int zero_byte,
                                 uint8_t* packed, uint8_t* scales) {
    const PhiloxKey key = {(uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)stream, (uint32_t)step};
    quantize_stochastic(kind, x, blocks, {rule, (uint32_t)satfinite, (uint32_t)zero_byte}, packed, scales,
                        [=](int64_t b, uint32_t* words) {
                            const uint64_t first = (offset + (uint64_t)b * BLOCK) / PHILOX_BYTES;
                            for (uint64_t i = 0; i < BLOCK / PHILOX_BYTES; ++i) philox_block(first + i, key, words + 4 * i);
                        });
}

void refnum_dequantize_mxfp4(const uint8_t* packed, const uint8_t* scales, int64_t blocks, int kind, void* out) {
    for (int64_t b = 0; b < blocks; ++b) {
        const DecodeTable table = decode_table(scales[b]);
        uint32_t lanes[16];
        for (int i = 0; i < 4; ++i) {
            uint32_t four[4];
            decode_word(word_at(packed, 4 * b + i), table, four);
            std::memcpy(lanes + 4 * i, four, 16);
        }
        if (kind == BFLOAT16) {
            std::memcpy(static_cast<uint8_t*>(out) + 64 * b, lanes, 64);
        } else {
            uint32_t wide[32];
            for (int i = 0; i < 16; ++i) {
                wide[2 * i] = low_float(lanes[i]);
                wide[2 * i + 1] = high_float(lanes[i]);
            }
            std::memcpy(static_cast<uint8_t*>(out) + 128 * b, wide, 128);
        }
    }
}

}  // extern "C"
