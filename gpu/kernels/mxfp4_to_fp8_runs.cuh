// How a thread's rows and columns of an MXFP4 to E4M3 column tile lie, and how it stores them: see mxfp4_to_fp8_tile.cuh.
#pragma once

#include "mxfp4_tile.cuh"

namespace refnum {

constexpr int RUN = 16;
typedef PackedTile<TALL, RUN, 4> RowsTile;
typedef RowTables<TALL, RUN> TileTables;
typedef Segments<TALL, TALL> TileSegments;

// What a thread turns: `RUN` places from `row` on, the columns of packed word `word`. A warp has one group of columns.
struct Share {
    uint32_t group, word, row;
};
__device__ __forceinline__ Share own_share(uint32_t turn) {
    const uint32_t group = turn * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    return {group, 4 * group + lane % 4, lane / 4 * RUN};
}

// A thread's rows: packed word i of its columns and the table of that row, at constant distances from the first.
struct Run {
    const uint32_t* words;
    const Table* tables;

    __device__ __forceinline__ Run(RowsTile& rows, TileTables& own, const Share& share)
        : words(rows.row(share.row) + share.word), tables(&own[share.row]) {}
    __device__ __forceinline__ Run(RowsTile& rows, const Share& share)
        : words(rows.row(share.row) + share.word), tables(nullptr) {}
    __device__ __forceinline__ uint32_t word(int i) const { return words[i * RowsTile::pitch]; }
    __device__ __forceinline__ Table halves(int i) const { return row_halves(word(i), tables[i]); }
};

// What a window keeps beside the tile, `max`: scales of the rows before it, and of those behind it.
struct EdgeBytes {
    __align__(8) uint8_t bytes[2 * TALL * GROUPS];

    __device__ __forceinline__ uint8_t* at(int32_t row) { return bytes + (row < 0 ? row + TALL : row) * GROUPS; }
};
struct Nothing {};
#if RAGGED
typedef EdgeBytes Window;
#else
typedef Nothing Window;
#endif

// The first `count` of sixteen bytes, of which word i has four.
__device__ __forceinline__ uint32_t first_bytes(int32_t count, int i) {
    const int32_t own = min(max(count - 4 * i, 0), 4);
    return own == 4 ? ~0u : (1u << 8 * own) - 1;
}

// Sixteen rows of eight columns, column j's in out[j].
__device__ __forceinline__ void store_columns(const ColumnArguments& a, const ColumnTile& tile, const Share& share,
                                              int32_t row, const uint32_t (&out)[8][4]) {
    uint8_t* to = a.out + (tile.column + 8 * share.word) * a.out_stride + tile.row + row;
    const int32_t rows = (int32_t)tile.rows - row;
    if (rows <= 0) return;
    if (a.vector == 16) {
#pragma unroll
        for (int j = 0; j < 8; ++j, to += a.out_stride) store<16>(to, out[j]);
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j, to += a.out_stride) {
        store_some(to, make_uint4(out[j][0], out[j][1], out[j][2], out[j][3]), rows, a.vector);
    }
}

// Column bytes of a segment, unless it begins above the strip: then the strip above has them.
__device__ __forceinline__ void store_bytes(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                            uint32_t word, Table bytes) {
    if (now.first < 0) return;
    store_scales(a, now.number, tile.column + 8 * word, bytes.low);
    store_scales(a, now.number, tile.column + 8 * word + 4, bytes.high);
}

}  // namespace refnum
