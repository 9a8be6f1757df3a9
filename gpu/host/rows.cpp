// Row-wise operations: quantisers, dequantisers and the two recasts (clauses N5 to N8).
#include "common.hpp"

#include "../kernels/dequantize_mxfp4.cuh"
#include "../kernels/layouts.cuh"
#include "../kernels/parts.cuh"
#include "../kernels/philox.cuh"
#include "../kernels/quantize_fp8_tiles.cuh"

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

// Words of lanes that a thread of the device takes (gpu/ops/launch.py): half a block of float32, else a whole one.
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

// Words of the input that hold `elements` of it.
template <int kind>
constexpr int words_of(int elements) {
    return kind == FLOAT32 ? elements : elements / 2;
}

// Tiles of `tall` rows, 32 elements at a time, as threads of the device take eight or 16.
template <int kind>
void quantize_tiles(const void* x, int64_t m, int64_t k, int64_t tall, uint32_t carry, uint8_t* codes,
                    uint8_t* scales) {
    constexpr int words = words_of<kind>(BLOCK);
    for (int64_t top = 0; top < m; top += tall) {
        const int64_t bottom = top + tall < m ? top + tall : m;
        for (int64_t t = 0; t < tiles(k); ++t) {
            const int64_t left = k - t * TILE, wide = left < TILE ? left : TILE;
            uint32_t most = 0, in[words], out[BLOCK / 4];
            for (int64_t r = top; r < bottom; ++r) {
                for (int64_t c = 0; c < wide; c += BLOCK) {
                    std::memcpy(in, words_at(x, kind, r * k + t * TILE + c), sizeof in);
                    most = max_lanes(most, tile_largest<kind, words>(in));
                }
            }
            const uint32_t byte = tile_byte<kind>(larger_lane(most), carry);
            for (int64_t r = top; r < bottom; ++r) {
                for (int64_t c = 0; c < wide; c += BLOCK) {
                    std::memcpy(in, words_at(x, kind, r * k + t * TILE + c), sizeof in);
                    quantize_fp8_words<kind, BLOCK / 4>(in, byte, out);
                    std::memcpy(codes + r * k + t * TILE + c, out, sizeof out);
                }
            }
            scales[top / tall * tiles(k) + t] = (uint8_t)byte;
        }
    }
}

// Eight codes, a thread's part, under one byte as bfloat16 lanes and as float32.
void decode_fp8_part(const uint32_t* w, uint32_t byte, uint32_t* lanes, uint32_t* wide) {
    if (is_plain_tile(byte) && !has_nan_code(w[0]) && !has_nan_code(w[1])) {
        decode_fp8_words<2>(w, byte, lanes);
        for (int i = 0; i < 8; ++i) wide[i] = i & 1 ? high_float(lanes[i >> 1]) : low_float(lanes[i >> 1]);
        return;
    }
    for (int i = 0; i < 8; ++i) wide[i] = e4m3_decode(w[i >> 2] >> (8 * (i & 3)) & 0xFF, byte);
    for (int i = 0; i < 4; ++i) {
        lanes[i] = round_to_bfloat16(wide[2 * i]) | round_to_bfloat16(wide[2 * i + 1]) << 16;
    }
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

// Storage of E8M0 bytes [rows, columns] in a layout, padding written as zero, and the way back.
void refnum_lay_scales(const uint8_t* scales, int64_t rows, int64_t columns, int layout, uint8_t* out) {
    const uint32_t high = stored_rows(layout, (uint32_t)rows), wide = stored_columns(layout, (uint32_t)columns);
    for (uint32_t r = 0; r < high; ++r) {
        for (uint32_t c = 0; c < wide; ++c) {
            const bool own = r < rows && c < columns;
            const uint32_t byte = own ? scales[r * columns + c] : 0;
            const uint32_t value = is_float_layout(layout) && own ? e8m0_decode(byte) : byte;
            std::memcpy(out + scale_place(layout, (uint32_t)rows, (uint32_t)columns, r, c), &value,
                        is_float_layout(layout) ? 4 : 1);
        }
    }
}

void refnum_read_scales(const uint8_t* from, int64_t rows, int64_t columns, int layout, uint8_t* scales) {
    for (uint32_t r = 0; r < rows; ++r) {
        for (uint32_t c = 0; c < columns; ++c) {
            const uint8_t* at = from + scale_place(layout, (uint32_t)rows, (uint32_t)columns, r, c);
            scales[r * columns + c] = (uint8_t)(is_float_layout(layout) ? byte_of_scale(word_at(at, 0)) : *at);
        }
    }
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

void refnum_quantize_fp8_tiles(int kind, const void* x, int64_t m, int64_t k, int64_t tall, int rule, uint8_t* codes,
                               uint8_t* scales) {
    const uint32_t carry = e4m3_carry(rule, 23);
    if (kind == FLOAT32) quantize_tiles<FLOAT32>(x, m, k, tall, carry, codes, scales);
    if (kind == BFLOAT16) quantize_tiles<BFLOAT16>(x, m, k, tall, carry, codes, scales);
    if (kind == FLOAT16) quantize_tiles<FLOAT16>(x, m, k, tall, carry, codes, scales);
}

void refnum_dequantize_fp8_tiles(const uint8_t* codes, const uint8_t* scales, int64_t m, int64_t k, int64_t tall,
                                 int kind, void* out) {
    for (int64_t r = 0; r < m; ++r) {
        for (int64_t b = 0; b < k / BLOCK; ++b) {
            const uint32_t byte = scales[r / tall * tiles(k) + b / 4];
            uint32_t w[8], lanes[16], wide[32];
            std::memcpy(w, codes + r * k + b * BLOCK, 32);
            for (int i = 0; i < 8; i += 2) decode_fp8_part(w + i, byte, lanes + 2 * i, wide + 4 * i);
            uint8_t* at = static_cast<uint8_t*>(out) + (r * k + b * BLOCK) * (kind == BFLOAT16 ? 2 : 4);
            if (kind == BFLOAT16) std::memcpy(at, lanes, 64);
            else std::memcpy(at, wide, 128);
        }
    }
}

void refnum_fp8_to_mxfp4(const uint8_t* codes, const uint8_t* scales, int64_t m, int64_t k, int rule, int zero_byte,
                         uint8_t* packed, uint8_t* out_scales) {
    const Policy policy = {rule, 0, (uint32_t)zero_byte};
    const bool saturate = e2m1_saturates(rule);
    for (int64_t r = 0; r < m; ++r) {
        for (int64_t b = 0; b < k / BLOCK; ++b) {
            uint32_t w[8], out[4];
            std::memcpy(w, codes + r * k + b * BLOCK, 32);
            const uint32_t tile = scales[r * tiles(k) + b / 4];
            CodeLanes<8> part = code_lanes<8>(w);
            const uint32_t most = larger_lane(code_largest(part));
            const uint32_t byte = saturate ? recode_part<true>(part, most, tile, policy, out)
                                           : recode_part<false>(part, most, tile, policy, out);
            std::memcpy(packed + (r * k + b * BLOCK) / 2, out, 16);
            out_scales[r * (k / BLOCK) + b] = (uint8_t)byte;
        }
    }
}

void refnum_mxfp4_to_fp8(const uint8_t* packed, const uint8_t* scales, int64_t m, int64_t k, int amax, uint8_t* codes,
                         uint8_t* out_scales) {
    for (int64_t r = 0; r < m; ++r) {
        for (int64_t t = 0; t < tiles(k); ++t) {
            const int64_t first = r * (k / BLOCK) + 4 * t;  // block; a thread of the device takes half of one
            const int halves = 2 * (int)(k / BLOCK - 4 * t < 4 ? k / BLOCK - 4 * t : 4);
            uint32_t w[8][4] = {}, part = 0, out[4];
            for (int h = 0; h < halves; ++h) {
                std::memcpy(w[h], packed + 16 * first + 8 * h, 8);
                const uint32_t byte = scales[first + h / 2];
                const uint32_t own = amax ? block_part_amax(w[h], byte) : block_part_max(w[h], byte);
                part = own > part ? own : part;
            }
            const uint32_t tile = amax ? tile_byte_amax(part) : tile_byte_max(part);
            for (int h = 0; h < halves; ++h) {
                const RecodeTable table = recode_table(scales[first + h / 2], tile);
                for (int i = 0; i < 2; ++i) e4m3_words(w[h][i], table, out[2 * i], out[2 * i + 1]);
                std::memcpy(codes + 32 * first + 16 * h, out, 16);
            }
            out_scales[r * tiles(k) + t] = (uint8_t)tile;
        }
    }
}

}  // extern "C"
