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

// What a thread turns: `RUN` rows from `row` on, the columns of packed word `word`. A warp has one group of columns, or
// the two or four from `first` on where a tile has so few rows that all lanes find some; `lanes` share a column. The
// warp's tables hold the rows of one group behind those of another.
struct Share {
    uint32_t first, group, word, row, lanes;

    __device__ __forceinline__ uint32_t table() const { return (group - first) * lanes * 4 + row; }
};
__device__ __forceinline__ Share own_share(uint32_t rows, uint32_t turn) {
    const uint32_t thread = turn * WORKERS + threadIdx.x, lane = thread % 32;
    const uint32_t lanes = rows > TALL / 2 ? 32 : rows > TALL / 4 ? 16 : 8;
    const uint32_t first = thread / lanes & ~(32 / lanes - 1), group = thread / lanes;
    return {first, group, 4 * group + lane % 4, lane % lanes / 4 * RUN, lanes};
}

// A thread's rows: packed word i of its columns and the table of that row, at constant distances from the first.
struct Run {
    const uint32_t* words;
    const Table* tables;

    __device__ __forceinline__ Run(RowsTile& rows, TileTables& own, const Share& share)
        : words(rows.row(share.row) + share.word), tables(&own[share.table()]) {}
    __device__ __forceinline__ uint32_t word(int i) const { return words[i * RowsTile::pitch]; }
    __device__ __forceinline__ Table halves(int i) const { return row_halves(word(i), tables[i]); }
};

__device__ __forceinline__ uint8_t* column_at(const ColumnArguments& a, const ColumnTile& tile, const Share& share) {
    return a.out + (tile.column + 8 * share.word) * a.out_stride + tile.row + share.row;
}

// Sixteen rows of eight columns, column j's in out[j].
__device__ __forceinline__ void store_runs(const ColumnArguments& a, const ColumnTile& tile, const Share& share,
                                           const uint32_t (&out)[8][4]) {
    uint8_t* to = column_at(a, tile, share);
    const int32_t rows = (int32_t)tile.rows - (int32_t)share.row;
    if (rows <= 0 || tile.column + 8 * share.word >= a.k) return;
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

// `max`: tables of 32 * count rows of a group, from table `first` on, and its byte. The codes of NaN rows are cleared, unless
// they are already.
template <bool cleared, int count>
__device__ __forceinline__ uint32_t group_max_tables(RowsTile& rows, uint32_t group, TileTables& tables,
                                                     uint32_t first) {
    uint32_t part[count], byte[count], most = 0;
    block_parts<count>(rows, group, 0, part, byte);
#pragma unroll
    for (int i = 0; i < count; ++i) most = max(most, part[i]);
    const uint32_t shared = tile_byte_max(__reduce_max_sync(~0u, most));
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const uint32_t row = 32 * i + threadIdx.x % 32;
        tables[first + row] = row_table(part[i], byte[i], shared);
        if (!cleared && byte[i] == NAN_BYTE) rows.block(row, group) = make_uint4(0, 0, 0, 0);
    }
    return shared;
}

// The same for the groups of a warp; the byte of the thread's.
template <bool cleared, int groups>
__device__ __forceinline__ uint32_t max_tables(RowsTile& rows, const Share& share, TileTables& tables) {
    constexpr int count = 4 / groups;
    uint32_t own = 0;
#pragma unroll
    for (uint32_t i = 0; i < groups; ++i) {
        const uint32_t group = share.first + i;
        const uint32_t shared = group_max_tables<cleared, count>(rows, group, tables, 32 * count * i);
        if (group == share.group) own = shared;
    }
    __syncwarp();
    return own;
}

__device__ __forceinline__ void turn_max(const Run& run, uint32_t (&out)[8][4]) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t first[4], second[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            e4m3_words(run.word(4 * q + i), run.tables[4 * q + i], first[i], second[i]);
        }
        transpose_bytes(first);
        transpose_bytes(second);
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i][q] = first[i], out[4 + i][q] = second[i];
    }
}

// `amax`, rows near each other: tables by binary16 of the groups of a warp, and what is known of the thread's.
template <int groups>
__device__ __forceinline__ GroupParts amax_tables(RowsTile& rows, const Share& share, TileTables& tables) {
    constexpr int count = 4 / groups;
    GroupParts own = {0, ABSENT, false};
#pragma unroll
    for (uint32_t i = 0; i < groups; ++i) {
        uint32_t part[count], byte[count];
        const uint32_t group = share.first + i;
        block_parts<count>(rows, group, 0, part, byte);
        const GroupParts all = group_parts(part, byte);
        if (group == share.group) own = all;
#pragma unroll
        for (int j = 0; j < count; ++j) {
            const Table none = {0, 0};
            tables[32 * (count * i + j) + threadIdx.x % 32] = part[j] ? half_bytes(part[j] - all.low) : none;
        }
    }
    __syncwarp();
    return own;
}

__device__ __forceinline__ ColumnScales amax_scales(const Run& run, const Share& share, uint32_t base) {
    HalfMaxima most = {};
#pragma unroll
    for (int i = 0; i < RUN; i += 2) raise_halves(most, run.halves(i), run.halves(i + 1));
#pragma unroll
    for (uint32_t d = 4; d < 32; d *= 2) {
        if (d >= share.lanes) break;
#pragma unroll
        for (int j = 0; j < 4; ++j) most.w[j] = max_lanes(most.w[j], __shfl_xor_sync(~0u, most.w[j], d));
    }
    return column_scales(most, base);
}

__device__ __forceinline__ void turn_amax(const Run& run, const ColumnScales& scales, uint32_t (&out)[8][4]) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t packed[4], codes[8];
        Table halves[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) packed[i] = run.word(4 * q + i), halves[i] = run.halves(4 * q + i);
        turn_rows(packed, halves, scales.power, codes);
#pragma unroll
        for (int j = 0; j < 8; ++j) out[j][q] = codes[j];
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
#pragma unroll 1
        for (uint32_t d = 4; d < share.lanes; d *= 2) {
            most[h].even = max_lanes(most[h].even, __shfl_xor_sync(~0u, most[h].even, d));
            most[h].odd = max_lanes(most[h].odd, __shfl_xor_sync(~0u, most[h].odd, d));
        }
        bytes[h] = column_bytes(column_parts(most[h]), ONE_BYTE);
        columns[h] = negated_columns(bytes[h]);
    }
#pragma unroll 1
    for (uint32_t q = 0; q < RUN / 4 && tile.column + 8 * share.word < a.k; ++q) {
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

// cleared: whether the codes of NaN rows are zero, and other warps may read the tile still.
template <bool amax, bool cleared>
__device__ __forceinline__ void turn_share(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                           TileTables& tables, const Share& share) {
    Table bytes;
    uint32_t out[8][4];
    if (amax) {
        const GroupParts all = share.lanes == 32   ? amax_tables<1>(rows, share, tables)
                               : share.lanes == 16 ? amax_tables<2>(rows, share, tables)
                                                   : amax_tables<4>(rows, share, tables);
        if (__any_sync(~0u, all.nan || all.high > all.low + E4M3_SPREAD)) {
            bytes = turn_any(a, tile, rows, share);
        } else {
            const Run run(rows, tables, share);
            const ColumnScales scales = amax_scales(run, share, all.high ? all.low - 1 : 0);
            bytes = scale_bytes(scales);
            turn_amax(run, scales, out);
            store_runs(a, tile, share, out);
        }
    } else {
        const uint32_t shared = share.lanes == 32   ? max_tables<cleared, 1>(rows, share, tables)
                                : share.lanes == 16 ? max_tables<cleared, 2>(rows, share, tables)
                                                    : max_tables<cleared, 4>(rows, share, tables);
        bytes.low = bytes.high = shared * 0x01010101u;
        turn_max(Run(rows, tables, share), out);
        store_runs(a, tile, share, out);
    }
    if (share.row != 0) return;
    store_scales(a, tile, 8 * share.word, bytes.low);
    store_scales(a, tile, 8 * share.word + 4, bytes.high);
}

// A warp's whole work on its groups, behind the tile's arrival.
template <bool amax, bool cleared>
__device__ __forceinline__ void turn_groups(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                            TileTables& tables) {
#pragma unroll 1
    for (uint32_t turn = 0; turn < TURNS; ++turn) {
        const Share share = own_share(tile.rows, turn);
        if (share.first >= GROUPS || tile.column + 32 * share.first >= a.k) return;
        turn_share<amax, cleared>(a, tile, rows, tables, share);
        __syncwarp();  // the tables are the next group's from here on
    }
}

// Brings a tile that has rows: all threads.
__device__ __forceinline__ void fetch_tile(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows) {
    rows.fetch(a, tile.column, true, tile.row, tile.rows, [&](uint32_t i) { return tile.stripe(i); });
    wait_copies();
    __syncthreads();
}

}  // namespace refnum
