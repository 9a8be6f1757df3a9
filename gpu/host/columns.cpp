// Scaling-aware transposes: FP8 columns, MXFP4 columns, FP8 lowered to one byte a tile (clauses N9 and N10).
#include "common.hpp"

#include "../kernels/bit_planes.cuh"
#include "../kernels/column_keys.cuh"
#include "../kernels/fp8_columns.cuh"
#include "../kernels/mxfp4_columns.cuh"
#include "../kernels/mxfp4_to_fp8_columns.cuh"

using namespace refnum;

namespace {

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

// Rows of a group as the kernels first see them (`amax`): parts, and whether every row can be a table of binary16, or of keys.
struct GroupRows {
    uint32_t low = 0xFFFF, high = 0;
    bool near = true, nearer = true;
    GroupRows(const Group& group, int64_t rows) {
        for (int64_t r = 0; r < rows; ++r) {
            uint32_t w[4], byte;
            group.row(r, w, byte);
            const uint32_t part = block_part_max(w, byte);
            near = near && byte != NAN_BYTE;
            if (part == 0) continue;
            low = part < low ? part : low;
            high = part > high ? part : high;
        }
        near = near && (high == 0 || high <= low + E4M3_SPREAD);
        nearer = near && (high == 0 || (high <= low + KEY_SPREAD && low >= KEY_LOWEST));
    }
    Table table(const uint32_t (&w)[4], uint32_t byte) const {
        const uint32_t part = block_part_max(w, byte);
        if (part == 0) return {0, 0};
        return nearer ? key_table(part - low) : half_bytes(part - low);
    }
};

// Largest magnitudes of eight columns, by those tables.
HalfMaxima group_maxima(const Group& group, int64_t rows, const GroupRows& known, int j) {
    HalfMaxima maxima = {};
    uint32_t w[4], next[4], byte, beside;
    for (int64_t r = 0; r < rows; r += 2) {
        group.row(r, w, byte);
        const Table one = row_halves(w[j], known.table(w, byte));
        if (r + 1 == rows) {
            raise_halves(maxima, one);
            continue;
        }
        group.row(r + 1, next, beside);
        raise_halves(maxima, one, row_halves(next[j], known.table(next, beside)));
    }
    return maxima;
}

// `amax` by keys: bytes of 32 columns, and codes of every row.
template <class Store>
void column_group_by_keys(const Group& group, int64_t rows, const GroupRows& known, uint8_t* scales, Store put) {
    for (int j = 0; j < 4; ++j) {
        const Table largest = largest_keys(group_maxima(group, rows, known, j));
        const uint32_t bytes[2] = {key_bytes(largest.low, known.low), key_bytes(largest.high, known.low)};
        std::memcpy(scales + 8 * j, bytes, 8);
        for (int64_t r = 0; r < rows; r += 4) {
            uint32_t words[2][4] = {};
            const int here = rows - r < 4 ? (int)(rows - r) : 4;
            for (int i = 0; i < here; ++i) {
                uint32_t w[4], byte;
                group.row(r + i, w, byte);
                const Table keys = signed_keys(w[j], row_halves(w[j], known.table(w, byte)));
                words[0][i] = keys.low, words[1][i] = keys.high;
            }
            for (int h = 0; h < 2; ++h) {
                transpose_bytes(words[h]);
                const uint32_t lifts = key_lifts(h ? largest.high : largest.low);
                for (int c = 0; c < 4; ++c) words[h][c] = lift_keys(words[h][c], lifts >> 8 * c & 0xFF);
                transpose_bytes(words[h]);  // rows again
            }
            for (int i = 0; i < here; ++i) put(r + i, 2 * j, words[0][i], words[1][i]);
        }
    }
}

// `amax` by binary16: bytes of 32 columns, and codes of every row.
template <class Store>
void column_group_by_halves(const Group& group, int64_t rows, const GroupRows& known, uint8_t* scales, Store put) {
    ColumnScales columns[4];
    for (int j = 0; j < 4; ++j) {
        columns[j] = column_scales(group_maxima(group, rows, known, j), known.low - 1);
        const Table bytes = scale_bytes(columns[j]);
        std::memcpy(scales + 8 * j, &bytes.low, 4);
        std::memcpy(scales + 8 * j + 4, &bytes.high, 4);
    }
    for (int64_t r = 0; r < rows; r += 4) {
        uint32_t w[4][4] = {}, byte;
        Table tables[4] = {};
        const int here = rows - r < 4 ? (int)(rows - r) : 4;
        for (int i = 0; i < here; ++i) {
            group.row(r + i, w[i], byte);
            tables[i] = known.table(w[i], byte);
        }
        for (int j = 0; j < 4; ++j) {
            uint32_t packed[4], codes[8], first[4], second[4];
            Table halves[4];
            for (int i = 0; i < 4; ++i) packed[i] = w[i][j], halves[i] = row_halves(w[i][j], tables[i]);
            turn_rows(packed, halves, columns[j].power, codes);
            for (int i = 0; i < 4; ++i) first[i] = codes[i], second[i] = codes[4 + i];
            transpose_bytes(first);  // rows again
            transpose_bytes(second);
            for (int i = 0; i < here; ++i) put(r + i, 2 * j, first[i], second[i]);
        }
    }
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
    const GroupRows known(group, rows);
    if (amax && known.near) {
        const auto put = [&](int64_t r, int j, uint32_t first, uint32_t second) {
            tile[r][j] = first;
            tile[r][j + 1] = second;
        };
        if (known.nearer) column_group_by_keys(group, rows, known, scales, put);
        else column_group_by_halves(group, rows, known, scales, put);
        store_columns(tile, rows, codes, stride);
        return;
    }
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
            const Table table = row_table(block_part_max(w, byte), byte, bytes[0] & 0xFF);
            for (int j = 0; j < 4; ++j) {
                e4m3_words(byte == NAN_BYTE ? 0 : w[j], table, tile[r][2 * j], tile[r][2 * j + 1]);
            }
        }
    }
    store_columns(tile, rows, codes, stride);
    std::memcpy(scales, bytes, 32);
}

// `amax`, any bytes: codes of the rows (upper halves of bytes, four columns a word) and column bytes of a group.
void mxfp4_group_any(const Group& group, int64_t rows, uint8_t* packed, int64_t stride, uint8_t* scales) {
    uint32_t tile[16][8] = {}, nibbles[32][8] = {}, bytes[8], w[4], byte;
    ColumnBytes negated[8];
    column_bytes(group, rows, E2M1_EMAX, 0, bytes);
    for (int j = 0; j < 8; ++j) negated[j] = negated_columns(bytes[j]);
    for (int64_t r = 0; r < rows; ++r) {
        group.row(r, w, byte);
        column_nibbles_amax(w, byte, negated, nibbles[r]);
    }
    for (int64_t r = 0; r < rows; r += 2) {
        for (int j = 0; j < 8; ++j) tile[r / 2][j] = join_rows(nibbles[r][j], nibbles[r + 1][j]);
    }
    store_columns(tile, rows / 2, packed, stride);
    std::memcpy(scales, bytes, 32);
}

template <bool amax>
bool mxfp4_group_by_planes(const Group& group, int64_t rows, uint8_t* packed, int64_t stride, uint8_t* scales) {
    uint32_t planes[4][32] = {}, store[DEPTHS - NEAREST] = {}, w[4], byte, top = 0;
    uint32_t* masks = store - NEAREST;
    for (int64_t r = 0; r < rows; ++r) {
        group.row(r, w, byte);
        for (int j = 0; j < 4; ++j) planes[j][r] = w[j];
        if (!is_empty(w) && byte > top) top = byte;
    }
    for (int64_t r = 0; r < rows; ++r) {
        group.row(r, w, byte);
        if (byte <= top && top - byte < DEPTHS) masks[top - byte] |= 1u << plane_place((uint32_t)r);
    }
    for (int j = 0; j < 4; ++j) {
        Table bytes;
        to_planes(planes[j]);
        if (!turn_planes<amax>(masks, top, planes[j], bytes)) return false;
        to_columns(planes[j]);
        std::memcpy(scales + 8 * j, &bytes, 8);
        for (int c = 0; c < 8; ++c) {
            const uint32_t column[4] = {planes[j][c], planes[j][8 + c], planes[j][16 + c], planes[j][24 + c]};
            std::memcpy(packed + (8 * j + c) * stride, column, (size_t)rows / 2);
        }
    }
    return true;
}

void mxfp4_column_group(const Group& group, int64_t rows, bool amax, uint8_t* packed, int64_t stride, uint8_t* scales) {
    bool nan = false;
    for (int64_t r = 0; r < rows; ++r) nan = nan || group.scales[r * group.scale_stride] == NAN_BYTE;
    if (nan) {
        std::memset(scales, 0xFF, 32);
        for (int c = 0; c < 32; ++c) std::memset(packed + c * stride, 0, (size_t)rows / 2);
    } else if (!amax) {
        mxfp4_group_by_planes<false>(group, rows, packed, stride, scales);
    } else if (!mxfp4_group_by_planes<true>(group, rows, packed, stride, scales)) {
        mxfp4_group_any(group, rows, packed, stride, scales);
    }
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
        else if (!te) lower_rne<8>(w, lowering_distance(own, byte), tile[r]);
        else for (int j = 0; j < 8; ++j) tile[r][j] = lower_te(w[j], lowering_steps(own, byte));
    }
    store_columns(tile, rows, out, stride);
}

bool has_nonzero(const uint8_t* codes, int64_t bytes) {
    uint32_t any = 0;
    for (int64_t i = 0; i < bytes / 4; ++i) any |= word_at(codes, i);
    return (any & BYTE_MAGNITUDES) != 0;
}

}  // namespace

extern "C" {

void refnum_mxfp4_to_fp8(const uint8_t*, const uint8_t*, int64_t, int64_t, int, uint8_t*, uint8_t*);  // recast.cpp

void refnum_mxfp4_to_fp8_columns(const uint8_t* packed, const uint8_t* scales, int64_t m, int64_t k,
                                 const int64_t* splits, int64_t count, int amax, uint8_t* codes, uint8_t* out_scales) {
    for_each_segment(splits, count, TILE, [&](int64_t segment, int64_t row, int64_t rows) {
        for (int64_t g = 0; g < k / BLOCK; ++g) {
            fp8_column_group(group_at(packed, scales, k, row, g), rows, amax != 0, codes + g * BLOCK * m + row, m,
                             out_scales + segment * k + g * BLOCK);
        }
    });
}

void refnum_mxfp4_to_fp8_rows_columns(const uint8_t* packed, const uint8_t* scales, int64_t m, int64_t k,
                                      const int64_t* splits, int64_t count, int amax, uint8_t* rows,
                                      uint8_t* row_scales, uint8_t* codes, uint8_t* out_scales) {
    refnum_mxfp4_to_fp8(packed, scales, m, k, amax, rows, row_scales);
    refnum_mxfp4_to_fp8_columns(packed, scales, m, k, splits, count, amax, codes, out_scales);
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

}  // extern "C"
