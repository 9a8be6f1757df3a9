// A warp turns a group of 32 columns and up to 128 rows of MXFP4 to E4M3 columns (clause N9). Device only.
//
// A thread ends with sixteen rows of eight columns: eight stores of 16 bytes, and eight threads fill 128 bytes of a
// column.
#pragma once

#include "mxfp4_tile.cuh"

namespace refnum {

constexpr int RUN = 16;
typedef PackedTile<TALL, RUN> RowsTile;
typedef RowTables<TALL, RUN> TileTables;

// What a thread turns: `RUN` rows from `row` on, the columns of packed word `word`.
struct Share {
    uint32_t group, word, row;
};
__device__ __forceinline__ Share own_share() {
    const uint32_t lane = threadIdx.x % 32;
    return {threadIdx.x / 32, threadIdx.x / 32 * 4 + lane % 4, lane / 4 * RUN};
}

__device__ __forceinline__ uint8_t* column_at(const ColumnArguments& a, const ColumnTile& tile, const Share& share) {
    return a.out + (tile.column + 8 * share.word) * a.out_stride + tile.row + share.row;
}

// Sixteen rows of eight columns, column j's in out[j].
__device__ __forceinline__ void store_runs(const ColumnArguments& a, const ColumnTile& tile, const Share& share,
                                           const uint32_t (&out)[8][4]) {
    uint8_t* to = column_at(a, tile, share);
    const int32_t rows = (int32_t)tile.rows - (int32_t)share.row;
    if (rows <= 0) return;
    if (a.vector == 16 && rows >= RUN) {
#pragma unroll
        for (int j = 0; j < 8; ++j, to += a.out_stride) store<16>(to, out[j]);
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j, to += a.out_stride) {
        store_some(to, make_uint4(out[j][0], out[j][1], out[j][2], out[j][3]), rows, a.vector);
    }
}

// `max`: tables of the group's rows, and its byte. The codes of NaN rows are cleared, unless they are already.
template <bool cleared>
__device__ __forceinline__ uint32_t max_tables(RowsTile& rows, uint32_t group, TileTables& tables) {
    uint32_t part[4], byte[4];
    block_parts<4>(rows, group, 0, part, byte);
    const uint32_t shared = tile_byte_max(__reduce_max_sync(~0u, max(max(part[0], part[1]), max(part[2], part[3]))));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t row = 32 * i + threadIdx.x % 32;
        tables[row] = row_table(part[i], byte[i], shared);
        if (!cleared && byte[i] == NAN_BYTE) rows.block(row, group) = make_uint4(0, 0, 0, 0);
    }
    __syncwarp();
    return shared;
}

__device__ __forceinline__ void turn_max(RowsTile& rows, TileTables& tables, const Share& share,
                                         uint32_t (&out)[8][4]) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t first[4], second[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t row = share.row + 4 * q + i;
            e4m3_words(rows.row(row)[share.word], tables[row], first[i], second[i]);
        }
        transpose_bytes(first);
        transpose_bytes(second);
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i][q] = first[i], out[4 + i][q] = second[i];
    }
}

// `amax`, rows near each other: tables by binary16.
__device__ __forceinline__ GroupParts amax_tables(RowsTile& rows, uint32_t group, TileTables& tables) {
    uint32_t part[4], byte[4];
    block_parts<4>(rows, group, 0, part, byte);
    const GroupParts all = group_parts(part, byte);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const Table none = {0, 0};
        tables[32 * i + threadIdx.x % 32] = part[i] ? half_bytes(part[i] - all.low) : none;
    }
    __syncwarp();
    return all;
}

__device__ __forceinline__ ColumnScales amax_scales(RowsTile& rows, TileTables& tables, const Share& share,
                                                    uint32_t base) {
    HalfMaxima most = {};
#pragma unroll 4
    for (int i = 0; i < RUN; i += 2) {
        const uint32_t row = share.row + i;
        raise_halves(most, row_halves(rows.row(row)[share.word], tables[row]),
                     row_halves(rows.row(row + 1)[share.word], tables[row + 1]));
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int d = 4; d < 32; d *= 2) most.w[j] = max_lanes(most.w[j], __shfl_xor_sync(~0u, most.w[j], d));
    }
    return column_scales<ToE4M3>(most, base);
}

__device__ __forceinline__ void turn_amax(RowsTile& rows, TileTables& tables, const Share& share,
                                          const ColumnScales& scales, uint32_t (&out)[8][4]) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t even[4], odd[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t row = share.row + 4 * q + i, packed = rows.row(row)[share.word];
            column_words<ToE4M3>(packed, row_halves(packed, tables[row]), scales.power, even[i], odd[i]);
        }
        transpose_bytes(even);
        transpose_bytes(odd);
#pragma unroll
        for (int i = 0; i < 4; ++i) out[2 * i][q] = even[i], out[2 * i + 1][q] = odd[i];
    }
}

// `amax`, any rows: rare, so short; stores four rows at a time. Returns the bytes of the thread's columns.
__device__ __forceinline__ Table turn_any(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                       const Share& share) {
    ColumnMaxima most[2] = {};
#pragma unroll 1
    for (uint32_t row = share.row; row < share.row + RUN; ++row) {
        const Table table = column_part_table(rows.bytes[row * GROUPS + share.group], E4M3_EMAX);
        const uint32_t magnitudes = rows.row(row)[share.word] & NIBBLE_MAGNITUDES;
        raise_maxima(most[0], look_up(table, magnitudes));
        raise_maxima(most[1], look_up(table, magnitudes >> 16));
    }
    uint32_t bytes[2];
    ColumnBytes columns[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int d = 4; d < 32; d *= 2) {
            most[h].even = max_lanes(most[h].even, __shfl_xor_sync(~0u, most[h].even, d));
            most[h].odd = max_lanes(most[h].odd, __shfl_xor_sync(~0u, most[h].odd, d));
        }
        bytes[h] = column_bytes(column_parts(most[h]), ONE_BYTE);
        columns[h] = negated_columns(bytes[h]);
    }
#pragma unroll 1
    for (uint32_t q = 0; q < RUN / 4; ++q) {
        const uint32_t row = share.row + 4 * q;
        uint32_t words[4][2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t packed[1] = {rows.row(row + i)[share.word]};
            column_codes(packed, rows.bytes[(row + i) * GROUPS + share.group], columns, words[i]);
        }
        uint8_t* to = column_at(a, tile, share) + 4 * q;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            uint32_t four[4] = {words[0][h], words[1][h], words[2][h], words[3][h]};
            transpose_bytes(four);
#pragma unroll
            for (int i = 0; i < 4; ++i, to += a.out_stride) {
                store_some(to, make_uint4(four[i], 0, 0, 0), min((int32_t)tile.rows - (int32_t)row, 4), a.vector);
            }
        }
    }
    return {bytes[0], bytes[1]};
}

// A warp's whole work on its group, behind the tile's arrival. cleared: whether the codes of NaN rows are zero, and other
// warps may read the tile still.
template <bool amax, bool cleared>
__device__ __forceinline__ void turn_group(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                           TileTables& tables) {
    const Share share = own_share();
    Table bytes;
    uint32_t out[8][4];
    if (amax) {
        const GroupParts all = amax_tables(rows, share.group, tables);
        if (all.nan || all.high > all.low + ToE4M3::spread) {
            bytes = turn_any(a, tile, rows, share);
        } else {
            const ColumnScales scales = amax_scales(rows, tables, share, all.high ? all.low - 1 : 0);
            bytes = scale_bytes(scales);
            turn_amax(rows, tables, share, scales, out);
            store_runs(a, tile, share, out);
        }
    } else {
        bytes.low = bytes.high = max_tables<cleared>(rows, share.group, tables) * 0x01010101u;
        turn_max(rows, tables, share, out);
        store_runs(a, tile, share, out);
    }
    if (share.row > 0) return;
    store_scales(a, tile, 8 * share.word, bytes.low);
    store_scales(a, tile, 8 * share.word + 4, bytes.high);
}

// The blocks of rows of a CTA, one after another: `turn` has a tile in shared memory and all threads.
template <class Turn>
__device__ __forceinline__ void each_tile(const ColumnArguments& a, RowsTile (&rows)[DEEP > 1 ? 2 : 1], Turn turn) {
    ColumnTile tile = column_tile(a);
    if (tile.rows == 0) return;
    rows[0].fetch(a, tile.column, [&](uint32_t i) { return tile.stripe(i); });
#pragma unroll 1
    for (uint32_t i = 0; i < DEEP; ++i) {
        wait_copies();
        __syncthreads();  // this tile is here, and nobody reads the one before
        const ColumnTile next = i + 1 < DEEP ? column_tile(a, i + 1) : ColumnTile{0, 0, 0, 0};
        if (next.rows) rows[(i + 1) % 2 * (DEEP > 1)].fetch(a, next.column, [&](uint32_t j) { return next.stripe(j); });
        turn(tile, rows[i % 2 * (DEEP > 1)]);
        if (next.rows == 0) return;
        tile = next;
    }
}

}  // namespace refnum
