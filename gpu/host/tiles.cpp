// FP8 tiles of 1x128 and of 128x128, quantised and dequantised (clause N6).
#include "common.hpp"

#include "../kernels/dequantize_mxfp4.cuh"
#include "../kernels/parts.cuh"
#include "../kernels/quantize_fp8_tiles.cuh"

using namespace refnum;

namespace {

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

}  // extern "C"
