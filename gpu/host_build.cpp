// The host build: the kernels' arithmetic headers behind a C interface (see gpu/host.py).
//
// Each function is the loop that a grid is on the device; everything that decides a bit is in kernels/*.cuh.
// Arrays are contiguous and row-major; the caller has checked shapes. Nothing here allocates or throws.
#include <cstring>

#include "kernels/dequantize_fp8_tiles.cuh"
#include "kernels/dequantize_mxfp4.cuh"
#include "kernels/fp8_columns.cuh"
#include "kernels/fp8_to_mxfp4.cuh"
#include "kernels/mxfp4_columns.cuh"
#include "kernels/mxfp4_to_fp8.cuh"
#include "kernels/mxfp4_to_fp8_columns.cuh"
#include "kernels/quantize_fp8_tiles.cuh"
#include "kernels/quantize_mxfp4.cuh"

using namespace refnum;

namespace {

constexpr int64_t BLOCK = 32, TILE = 128;

int64_t tiles(int64_t n) { return (n + TILE - 1) / TILE; }

uint32_t word_at(const void* p, int64_t i) {
    uint32_t word;
    std::memcpy(&word, static_cast<const uint8_t*>(p) + 4 * i, 4);
    return word;
}

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

template <int kind, bool saturate>
void quantize_blocks(const void* x, int64_t blocks, Policy policy, uint8_t* packed, uint8_t* scales) {
    for (int64_t b = 0; b < blocks; ++b) {
        uint32_t w[16], out[4];
        load_lanes<kind>(x, b * BLOCK, 16, w);
        scales[b] = (uint8_t)quantize_block<kind, saturate>(w, policy, out);
        std::memcpy(packed + b * 16, out, 16);
    }
}

uint32_t float_at(const void* x, int kind, int64_t i) {
    if (kind == FLOAT32) return word_at(x, i);
    uint16_t lane;
    std::memcpy(&lane, static_cast<const uint8_t*>(x) + 2 * i, 2);
    return kind == BFLOAT16 ? widen_lane<BFLOAT16>(lane) : widen_lane<FLOAT16>(lane);
}

// Lanes of bfloat16 for FP8, which takes binary16 by way of bfloat16 rounded to odd.
void load_tile_lanes(const void* x, int kind, int64_t first, int count, uint32_t* w) {
    if (kind == FLOAT32) return load_lanes<FLOAT32>(x, first, count, w);
    load_lanes<BFLOAT16>(x, first, count, w);
    if (kind == FLOAT16) {
        for (int i = 0; i < count; ++i) w[i] = odd_bfloat16_from_half(w[i]);
    }
}

uint32_t tile_amax(const uint32_t* w, int count) {
    uint32_t most = 0;
    for (int i = 0; i < count; ++i) most = max_lanes(most, w[i] & LANE_MAGNITUDES);
    return larger_lane(most);
}

// One row of a tile, 32 elements at a time. `w` are its lanes; a scalar tile reads the input again, one by one.
void encode_tile_row(const void* x, int kind, int64_t first, const uint32_t* w, int words, const TileScale& scale,
                     bool saturate, uint8_t* codes) {
    for (int i = 0; i < words; i += 8) {
        uint32_t out[8], bits[4];
        if (scale.scalar) {
            for (int e = 0; e < 32; ++e) {
                bits[e & 3] = float_at(x, kind, first + 4 * i + e);
                if ((e & 3) == 3) out[e >> 2] = quantize_fp8_scalar_word(bits, scale.byte);
            }
        } else if (saturate) {
            quantize_fp8_words<true, 8>(w + 2 * i, scale, out);
        } else {
            quantize_fp8_words<false, 8>(w + 2 * i, scale, out);
        }
        std::memcpy(codes + 4 * i, out, 32);
    }
}

// Rows of an [M, K] array in column blocks that restart at every split.
template <typename Visit>
void for_each_segment(const int64_t* splits, int64_t count, int64_t tall, Visit visit) {
    int64_t row = 0, segment = 0;
    for (int64_t i = 0; i < count; ++i) {
        for (int64_t done = 0; done < splits[i]; done += tall, ++segment) {
            const int64_t left = splits[i] - done;
            visit(segment, row + done, left < tall ? left : tall);
        }
        row += splits[i];
    }
}

// rows x 32 codes, eight words a row (zero below the last row) -> `out`, a column every `stride` bytes.
void store_columns(const uint32_t (*tile)[8], int64_t rows, uint8_t* out, int64_t stride) {
    uint32_t columns[32][32];
    for (int64_t r = 0; r < (rows + 3) / 4; ++r) {
        for (int j = 0; j < 8; ++j) {
            uint32_t w[4] = {tile[4 * r][j], tile[4 * r + 1][j], tile[4 * r + 2][j], tile[4 * r + 3][j]};
            transpose_bytes(w);
            for (int i = 0; i < 4; ++i) columns[4 * j + i][r] = w[i];
        }
    }
    for (int c = 0; c < 32; ++c) std::memcpy(out + c * stride, columns[c], (size_t)rows);
}

struct Group {  // 32 columns of some rows of an MXFP4 array
    const uint8_t *packed, *scales;
    int64_t packed_stride, scale_stride;
    void row(int64_t r, uint32_t (&w)[4], uint32_t& byte) const {
        std::memcpy(w, packed + r * packed_stride, 16);
        byte = scales[r * scale_stride];
    }
};

Group group_at(const uint8_t* packed, const uint8_t* scales, int64_t k, int64_t row, int64_t g) {
    return {packed + row * (k / 2) + 16 * g, scales + row * (k / BLOCK) + g, k / 2, k / BLOCK};
}

uint32_t largest_part(const Group& group, int64_t rows) {
    uint32_t part = 0, w[4], byte;
    for (int64_t r = 0; r < rows; ++r) {
        group.row(r, w, byte);
        const uint32_t own = block_part_max(w, byte);
        part = own > part ? own : part;
    }
    return part;
}

// Column bytes of 32 columns (four a word) by `amax`.
void column_bytes(const Group& group, int64_t rows, int32_t emax, uint32_t absent, uint32_t (&bytes)[8]) {
    ColumnMaxima maxima[8] = {};
    for (int64_t r = 0; r < rows; ++r) {
        uint32_t w[4], byte;
        group.row(r, w, byte);
        const Table table = column_part_table(byte, emax);
        for (int j = 0; j < 4; ++j) {
            const uint32_t magnitudes = w[j] & NIBBLE_MAGNITUDES;
            raise_maxima(maxima[2 * j], look_up(table, magnitudes));
            raise_maxima(maxima[2 * j + 1], look_up(table, magnitudes >> 16));
        }
    }
    for (int j = 0; j < 8; ++j) {
        const uint32_t parts = column_parts(maxima[j]);
        bytes[j] = 0;
        for (int i = 0; i < 32; i += 8) bytes[j] |= column_byte(parts >> i & 0xFF, absent) << i;
    }
}

void fp8_column_group(const Group& group, int64_t rows, bool amax, uint8_t* codes, int64_t stride, uint8_t* scales) {
    uint32_t tile[128][8] = {};
    uint32_t bytes[8];
    ColumnBytes negated[8];
    if (amax) {
        column_bytes(group, rows, E4M3_EMAX, ONE_BYTE, bytes);
        for (int j = 0; j < 8; ++j) negated[j] = negated_columns(bytes[j]);
    } else {
        const uint32_t byte = tile_byte_max(largest_part(group, rows));
        for (int j = 0; j < 8; ++j) bytes[j] = byte * 0x01010101u;
    }
    for (int64_t r = 0; r < rows; ++r) {
        uint32_t w[4], byte;
        group.row(r, w, byte);
        if (amax) {
            column_codes(w, byte, negated, tile[r]);
        } else {
            const RecodeTable table = recode_table(byte, bytes[0] & 0xFF);
            for (int j = 0; j < 4; ++j) e4m3_words(w[j], table, tile[r][2 * j], tile[r][2 * j + 1]);
        }
    }
    store_columns(tile, rows, codes, stride);
    std::memcpy(scales, bytes, 32);
}

// Nibbles (upper halves of bytes) of one row of a group.
void nibble_row(const Group& group, int64_t r, bool amax, const ColumnBytes* negated, uint32_t shared,
                uint32_t (&out)[8]) {
    uint32_t w[4], byte;
    group.row(r, w, byte);
    if (amax) column_nibbles_amax(w, byte, negated, out);
    else column_nibbles_max(w, e2m1_table((int32_t)byte - (int32_t)shared), out);
}

void mxfp4_column_group(const Group& group, int64_t rows, bool amax, uint8_t* packed, int64_t stride, uint8_t* scales) {
    uint32_t tile[16][8] = {};
    uint32_t bytes[8];
    ColumnBytes negated[8];
    bool nan = false;
    for (int64_t r = 0; r < rows; ++r) nan = nan || group.scales[r * group.scale_stride] == NAN_BYTE;
    if (nan) {
        std::memset(bytes, 0xFF, 32);
    } else if (amax) {
        column_bytes(group, rows, E2M1_EMAX, 0, bytes);
        for (int j = 0; j < 8; ++j) negated[j] = negated_columns(bytes[j]);
    } else {
        const uint32_t shared = group_byte_max(largest_part(group, rows));
        for (int j = 0; j < 8; ++j) bytes[j] = shared * 0x01010101u;
    }
    for (int64_t r = 0; !nan && r < rows; r += 2) {
        uint32_t even[8], odd[8];
        nibble_row(group, r, amax, negated, bytes[0] & 0xFF, even);
        nibble_row(group, r + 1, amax, negated, bytes[0] & 0xFF, odd);
        for (int j = 0; j < 8; ++j) tile[r / 2][j] = join_rows(even[j], odd[j]);
    }
    store_columns(tile, rows / 2, packed, stride);
    std::memcpy(scales, bytes, 32);
}

// One 32-column group of a 128x128 tile; `byte` is the tile's.
void lower_group(const uint8_t* codes, const uint8_t* scales, int64_t k, int64_t rows, uint32_t byte, bool te,
                 uint8_t* out, int64_t stride) {
    uint32_t tile[128][8] = {};
    for (int64_t r = 0; r < rows; ++r) {
        const uint32_t own = scales[r * tiles(k)];
        uint32_t w[8];
        std::memcpy(w, codes + r * k, 32);
        if (own == NAN_BYTE) std::memset(tile[r], 0x7F, 32);
        else if (!te) lower_rne<8>(w, lowering_powers(own, byte), tile[r]);
        else for (int j = 0; j < 8; ++j) tile[r][j] = lower_te(w[j], lowering_steps(own, byte));
    }
    store_columns(tile, rows, out, stride);
}

bool has_nonzero(const uint8_t* codes, int64_t bytes) {
    uint32_t any = 0;
    for (int64_t i = 0; i < bytes / 4; ++i) any |= word_at(codes, i);
    return (any & BYTE_MAGNITUDES) != 0;
}

// 32 codes under one byte as bfloat16 lanes and as float32.
void decode_fp8_block(const uint32_t (&w)[8], uint32_t byte, uint32_t (&lanes)[16], uint32_t (&wide)[32]) {
    bool plain = is_plain_tile(byte);
    for (int i = 0; i < 8; ++i) plain = plain && !has_nan_code(w[i]);
    if (plain) {
        decode_fp8_words<8>(w, byte, lanes);
        for (int i = 0; i < 32; ++i) wide[i] = i & 1 ? high_float(lanes[i >> 1]) : low_float(lanes[i >> 1]);
        return;
    }
    for (int i = 0; i < 32; ++i) wide[i] = e4m3_decode(w[i >> 2] >> (8 * (i & 3)) & 0xFF, byte);
    for (int i = 0; i < 16; ++i) {
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
    const Policy policy = {rule, (uint32_t)satfinite, (uint32_t)zero_byte};
    for (int64_t b = 0; b < blocks; ++b) {
        uint32_t bits[32], out[4];
        for (int i = 0; i < 32; ++i) bits[i] = float_at(x, kind, b * BLOCK + i);
        scales[b] = (uint8_t)quantize_block_stochastic(bits, random + b * BLOCK, policy, out);
        std::memcpy(packed + b * 16, out, 16);
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
    const Policy policy = {rule, 0, 0};
    const bool saturate = e4m3_saturates(rule);
    for (int64_t top = 0; top < m; top += tall) {
        const int64_t bottom = top + tall < m ? top + tall : m;
        for (int64_t t = 0; t < tiles(k); ++t) {
            const int words = (int)((k - t * TILE < TILE ? k - t * TILE : TILE) / 4);
            uint32_t amax = 0, w[64];
            for (int64_t r = top; r < bottom; ++r) {
                load_tile_lanes(x, kind, r * k + t * TILE, 2 * words, w);
                const uint32_t own = tile_amax(w, 2 * words);
                amax = own > amax ? own : amax;
            }
            const TileScale scale = tile_scale(amax, policy, kind);
            for (int64_t r = top; r < bottom; ++r) {
                if (tall > 1) load_tile_lanes(x, kind, r * k + t * TILE, 2 * words, w);
                encode_tile_row(x, kind, r * k + t * TILE, w, words, scale, saturate, codes + r * k + t * TILE);
            }
            scales[top / tall * tiles(k) + t] = (uint8_t)scale.byte;
        }
    }
}

void refnum_dequantize_fp8_tiles(const uint8_t* codes, const uint8_t* scales, int64_t m, int64_t k, int64_t tall,
                                 int kind, void* out) {
    for (int64_t r = 0; r < m; ++r) {
        for (int64_t b = 0; b < k / BLOCK; ++b) {
            const uint32_t byte = scales[r / tall * tiles(k) + b / 4];
            uint32_t w[8], lanes[16], wide[32];
            std::memcpy(w, codes + r * k + b * BLOCK, 32);
            decode_fp8_block(w, byte, lanes, wide);
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
            const uint32_t byte = saturate ? fp8_block_to_mxfp4<true>(w, tile, policy, out)
                                           : fp8_block_to_mxfp4<false>(w, tile, policy, out);
            std::memcpy(packed + (r * k + b * BLOCK) / 2, out, 16);
            out_scales[r * (k / BLOCK) + b] = (uint8_t)byte;
        }
    }
}

void refnum_mxfp4_to_fp8(const uint8_t* packed, const uint8_t* scales, int64_t m, int64_t k, int amax, uint8_t* codes,
                         uint8_t* out_scales) {
    for (int64_t r = 0; r < m; ++r) {
        for (int64_t t = 0; t < tiles(k); ++t) {
            const int64_t first = r * (k / BLOCK) + 4 * t;
            const int blocks = (int)(k / BLOCK - 4 * t < 4 ? k / BLOCK - 4 * t : 4);
            uint32_t w[4][4], part = 0, out[8];
            for (int b = 0; b < blocks; ++b) {
                std::memcpy(w[b], packed + 16 * (first + b), 16);
                const uint32_t byte = scales[first + b];
                const uint32_t own = amax ? block_part_amax(w[b], byte) : block_part_max(w[b], byte);
                part = own > part ? own : part;
            }
            const uint32_t tile = amax ? tile_byte_amax(part) : tile_byte_max(part);
            for (int b = 0; b < blocks; ++b) {
                const RecodeTable table = recode_table(scales[first + b], tile);
                for (int i = 0; i < 4; ++i) e4m3_words(w[b][i], table, out[2 * i], out[2 * i + 1]);
                std::memcpy(codes + 32 * (first + b), out, 32);
            }
            out_scales[r * tiles(k) + t] = (uint8_t)tile;
        }
    }
}

void refnum_mxfp4_to_fp8_columns(const uint8_t* packed, const uint8_t* scales, int64_t m, int64_t k,
                                 const int64_t* splits, int64_t count, int amax, uint8_t* codes, uint8_t* out_scales) {
    for_each_segment(splits, count, TILE, [&](int64_t segment, int64_t row, int64_t rows) {
        for (int64_t g = 0; g < k / BLOCK; ++g) {
            fp8_column_group(group_at(packed, scales, k, row, g), rows, amax != 0, codes + g * BLOCK * m + row, m,
                             out_scales + segment * k + g * BLOCK);
        }
    });
}

void refnum_mxfp4_columns(const uint8_t* packed, const uint8_t* scales, int64_t m, int64_t k, const int64_t* splits,
                          int64_t count, int amax, uint8_t* out_packed, uint8_t* out_scales) {
    for_each_segment(splits, count, BLOCK, [&](int64_t segment, int64_t row, int64_t rows) {
        for (int64_t g = 0; g < k / BLOCK; ++g) {
            mxfp4_column_group(group_at(packed, scales, k, row, g), rows, amax != 0,
                               out_packed + g * BLOCK * (m / 2) + row / 2, m / 2, out_scales + segment * k + g * BLOCK);
        }
    });
}

void refnum_fp8_columns(const uint8_t* codes, const uint8_t* scales, int64_t m, int64_t k, const int64_t* splits,
                        int64_t count, int te, uint8_t* out, uint8_t* out_scales) {
    for_each_segment(splits, count, TILE, [&](int64_t segment, int64_t row, int64_t rows) {
        for (int64_t t = 0; t < tiles(k); ++t) {
            const int64_t width = k - t * TILE < TILE ? k - t * TILE : TILE;
            const uint8_t* from = codes + row * k + t * TILE;
            const uint8_t* bytes = scales + row * tiles(k) + t;
            uint32_t part = 0;
            for (int64_t r = 0; r < rows; ++r) {
                const uint32_t own = row_part(has_nonzero(from + r * k, width), bytes[r * tiles(k)]);
                part = own > part ? own : part;
            }
            const uint32_t byte = tile_byte(part);
            for (int64_t c = 0; c < width; c += BLOCK) {
                lower_group(from + c, bytes, k, rows, byte, te != 0, out + (t * TILE + c) * m + row, m);
            }
            std::memset(out_scales + segment * k + t * TILE, (int)byte, (size_t)width);
        }
    });
}

// The scalar functions that special blocks take, one element a call: for exhaustive proofs at C speed.
void refnum_encode_e4m3(const uint32_t* bits, int byte, uint8_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = (uint8_t)e4m3_encode(bits[i], byte - 127);
}
void refnum_encode_e2m1(const uint32_t* bits, int byte, uint8_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = (uint8_t)e2m1_encode<false>(bits[i], byte - 127, 0);
}
void refnum_encode_e2m1_stochastic(const uint32_t* bits, const uint8_t* random, int byte, uint8_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = (uint8_t)e2m1_encode<true>(bits[i], byte - 127, random[i]);
}
void refnum_decode_e4m3(const uint8_t* codes, int byte, uint32_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = e4m3_decode(codes[i], (uint32_t)byte);
}
void refnum_decode_e2m1(const uint8_t* codes, int byte, uint32_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = e2m1_decode(codes[i], (uint32_t)byte);
}

// The packed paths with a chosen scale, one lane a call: exhaustive over every lane pattern and scale byte.
void refnum_encode_lanes(const uint16_t* lanes, int byte, int fp8, uint8_t* out, int64_t n) {
    const BlockScale block = bfloat16_scale((uint32_t)byte);
    const TileScale tile = bfloat16_tile_scale((uint32_t)byte);
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t word = lanes[i];
        if (fp8) {
            const uint32_t w[2] = {word, 0};
            uint32_t codes;
            quantize_fp8_words<true, 1>(w, tile, &codes);
            out[i] = (uint8_t)codes;
        } else {
            const uint32_t h = scale_halves(block_lanes<BFLOAT16>(word, block), block.powers);
            const uint32_t r[4] = {e2m1_round_lanes(min_lanes(h, HALF_E2M1_MAX)), 0, 0, 0}, w[4] = {word, 0, 0, 0};
            out[i] = (uint8_t)(e2m1_pack_lanes(r, w) & 15);
        }
    }
}

// One lane of the host's twin of HMUL2, for its own proof: binary16 patterns times 2**k.
void refnum_scale_half(const uint16_t* halves, int k, uint16_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = (uint16_t)scale_half(halves[i], k);
}

}  // extern "C"
