// A warp turns a group of 32 columns and a window of 128 rows of MXFP4 to E4M3 columns (clause N9). Device only.
//
// A thread ends with sixteen rows of eight columns: eight stores of 16 bytes, and eight threads fill 128 bytes of a
// column. Rows of several segments differ in their tables alone (`max`), or in their columns' powers too (`amax`).
#pragma once

#include "mxfp4_tile.cuh"

namespace refnum {

constexpr int RUN = 16;
constexpr uint32_t SLOTS = 8;  // segments of a window whose columns' powers a warp keeps; more go the long way
typedef PackedTile<TALL, RUN, 4> RowsTile;
typedef RowTables<TALL, RUN> TileTables;
typedef Segments<TALL, TALL> TileSegments;

// What a thread turns: `RUN` rows from `row` on, the columns of packed word `word`. A warp has one group of columns.
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
    __device__ __forceinline__ uint32_t word(int i) const { return words[i * RowsTile::pitch]; }
    __device__ __forceinline__ Table halves(int i) const { return row_halves(word(i), tables[i]); }
};

// What a CTA knows of rows outside its window, and a warp of its segments.
struct EdgeBytes {  // `max`
    __align__(8) uint8_t bytes[2 * TALL * GROUPS];  // of the rows before the window, and of those behind it

    __device__ __forceinline__ uint8_t* at(int32_t row) { return bytes + (row < 0 ? row + TALL : row) * GROUPS; }
};
struct SegmentPowers {  // `amax`
    __align__(16) uint32_t of[SLOTS][16];  // 32 columns, a half each
    __align__(16) uint8_t slots[TALL];     // of the rows
};
template <bool amax, bool ragged>
struct Work {};
template <>
struct Work<false, true> {
    EdgeBytes edges;
};
template <>
struct Work<true, true> {
    EdgeParts<HANDS> edges;
    SegmentPowers powers[WARPS];
};
typedef Work<false, RAGGED> MaxWork;
typedef Work<true, RAGGED> AmaxWork;

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

// `max`: the larger of `most` and the parts of `count` rows outside the window, from `row` on. One block tells nearly
// always: that of the largest byte. All threads of a warp.
__device__ __forceinline__ uint32_t raise_by_edge(const ColumnArguments& a, const ColumnTile& tile, const uint8_t* bytes,
                                                  int32_t row, uint32_t count, uint32_t group, uint32_t most) {
    const uint8_t* x = a.x + (tile.row + row) * a.x_stride + (tile.column / 2 + 16 * group);
    uint32_t best = 0;
#pragma unroll
    for (uint32_t r = threadIdx.x % 32; r < TALL; r += 32) {
        const uint32_t byte = r < count ? bytes[r * GROUPS + group] : NAN_BYTE;
        best = max(best, byte == NAN_BYTE ? 0 : (byte + 1) << 8 | r);
    }
    best = __reduce_max_sync(~0u, best);
    if (best >> 8 <= most) return most;
    uint32_t w[4];
    load<16>(x + (offset_t)(best & 0xFF) * a.x_stride, a.aligned & VECTORS, w);
    if (!is_empty(w)) return best >> 8;
    uint32_t own = most;
#pragma unroll 1
    for (uint32_t r = threadIdx.x % 32; r < count; r += 32) {
        const uint32_t byte = bytes[r * GROUPS + group];
        load<16>(x + (offset_t)r * a.x_stride, a.aligned & VECTORS, w);
        own = max(own, block_part_max(w, byte));
    }
    return __reduce_max_sync(~0u, own);
}

// `max`: the byte of each of a lane's rows, from all rows' parts; stores those of the segments that begin in the window.
#if RAGGED
__device__ __forceinline__ void segment_bytes(const ColumnArguments& a, const ColumnTile& tile, uint32_t group,
                                              const uint32_t (&part)[4], MaxWork& work, uint32_t (&shared)[4]) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll 1
    for (TileSegments s(a, tile); s.some(); s.next()) {
        uint32_t most = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) most = max(most, s.now.has(32 * i + lane) ? part[i] : 0);
        most = __reduce_max_sync(~0u, most);
        const int32_t first = s.now.first, behind = s.now.end - TALL;
        if (first < 0) most = raise_by_edge(a, tile, work.edges.at(first), first, (uint32_t)-first, group, most);
        if (behind > 0) most = raise_by_edge(a, tile, work.edges.at(TALL), TALL, (uint32_t)behind, group, most);
        const uint32_t own = tile_byte_max(most);
#pragma unroll
        for (int i = 0; i < 4; ++i) shared[i] = s.now.has(32 * i + lane) ? own : shared[i];
        if (first >= 0 && lane < 8) {
            store_scales(a, s.now.number, tile.column + 32 * group + 4 * lane, own * 0x01010101u);
        }
    }
}
#else
__device__ __forceinline__ void segment_bytes(const ColumnArguments& a, const ColumnTile& tile, uint32_t group,
                                              const uint32_t (&part)[4], MaxWork&, uint32_t (&shared)[4]) {
    const uint32_t lane = threadIdx.x % 32, most = max(max(part[0], part[1]), max(part[2], part[3]));
    const uint32_t byte = tile_byte_max(__reduce_max_sync(~0u, most));
    const uint32_t segment = tile.window;
    if (lane < 8) store_scales(a, segment, tile.column + 32 * group + 4 * lane, byte * 0x01010101u);
#pragma unroll
    for (int i = 0; i < 4; ++i) shared[i] = byte;
}
#endif

// `max`: tables of the rows of a group. The codes of NaN rows are cleared, unless they are already.
template <bool cleared>
__device__ __forceinline__ void max_tables(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                           uint32_t group, TileTables& tables, MaxWork& work) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t part[4], byte[4], shared[4] = {0, 0, 0, 0};
    block_parts<4>(rows, group, part, byte);
    segment_bytes(a, tile, group, part, work, shared);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t row = 32 * i + lane;
        tables[row] = row_table(part[i], byte[i], shared[i]);
        if (!cleared && byte[i] == NAN_BYTE) rows.block(row, group) = make_uint4(0, 0, 0, 0);
    }
    __syncwarp();
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

// `amax`, rows near each other: tables by binary16 of a group's rows, and what is known of them.
__device__ __forceinline__ GroupParts amax_tables(RowsTile& rows, uint32_t group, TileTables& tables) {
    uint32_t part[4], byte[4];
    block_parts<4>(rows, group, part, byte);
    const GroupParts all = group_parts(part, byte);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const Table none = {0, 0};
        tables[32 * i + threadIdx.x % 32] = part[i] ? half_bytes(part[i] - all.low) : none;
    }
    __syncwarp();
    return all;
}

__device__ __forceinline__ void join_runs(HalfMaxima& most) {
#pragma unroll
    for (uint32_t d = 4; d < 32; d *= 2) {
#pragma unroll
        for (int j = 0; j < 4; ++j) most.w[j] = max_lanes(most.w[j], __shfl_xor_sync(~0u, most.w[j], d));
    }
}

__device__ __forceinline__ void store_bytes(const ColumnArguments& a, const ColumnTile& tile, const Share& share,
                                            uint32_t segment, Table bytes) {
    store_scales(a, segment, tile.column + 8 * share.word, bytes.low);
    store_scales(a, segment, tile.column + 8 * share.word + 4, bytes.high);
}

#if RAGGED

// `amax`: the columns' bytes and powers of up to SLOTS segments. A thread takes every eighth row of its columns.
__device__ __forceinline__ void find_powers(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                            TileTables& tables, AmaxWork& work, SegmentPowers& own, const Share& share,
                                            uint32_t base) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t slot = 0, slots[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (TileSegments s(a, tile); s.some(); s.next(), ++slot) {
        const uint32_t end = (uint32_t)min(s.now.end, TALL);
        HalfMaxima most = {};
#pragma unroll 2
        for (uint32_t row = (uint32_t)max(s.now.first, 0) + lane / 4; row < end; row += 16) {
            const uint32_t next = row + 8 < end ? row + 8 : row;
            raise_halves(most, row_halves(rows.row(row)[share.word], tables[row]),
                         row_halves(rows.row(next)[share.word], tables[next]));
        }
        join_runs(most);
        Table edges = {0, 0};
        if (s.now.first < 0) edges = work.edges.at(0, share.word);
        if (s.now.end > TALL) {
            const Table behind = work.edges.at(1, share.word);
            edges = {max_bytes(edges.low, behind.low), max_bytes(edges.high, behind.high)};
        }
        const ColumnScales scales = column_scales<true>(most, base, edges);
        if (share.row == 0) {
            uint32_t halves[4];
            keep_powers(scales.power, halves);
            *reinterpret_cast<uint4*>(&own.of[slot][4 * (share.word % 4)]) =
                make_uint4(halves[0], halves[1], halves[2], halves[3]);
            if (s.now.first >= 0) store_bytes(a, tile, share, s.now.number, scale_bytes(scales));
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) slots[i] = s.now.has(32 * i + lane) ? slot : slots[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) own.slots[32 * i + lane] = (uint8_t)slots[i];
    __syncwarp();
}

__device__ __forceinline__ void turn_several(const Run& run, const SegmentPowers& own, const Share& share,
                                             uint32_t (&out)[8][4]) {
    const uint4 all = *reinterpret_cast<const uint4*>(own.slots + share.row);
    const uint32_t slots[4] = {all.x, all.y, all.z, all.w};
    const uint32_t* columns = &own.of[0][4 * (share.word % 4)];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t packed[4], codes[8], powers[4][4], even[8], odd[8];
        Table halves[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            packed[i] = run.word(4 * q + i), halves[i] = run.halves(4 * q + i);
            const uint4 four = *reinterpret_cast<const uint4*>(columns + (slots[q] >> (8 * i) & 0xFF) * 16);
            powers[i][0] = four.x, powers[i][1] = four.y, powers[i][2] = four.z, powers[i][3] = four.w;
        }
        pair_powers(powers[0], powers[2], even);
        pair_powers(powers[1], powers[3], odd);
        turn_rows(packed, halves, even, odd, codes);
#pragma unroll
        for (int j = 0; j < 8; ++j) out[j][q] = codes[j];
    }
}

// `amax`, rows near each other. False: rows outside the window lie too far, or there are too many segments.
__device__ __forceinline__ bool turn_near(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                          TileTables& tables, AmaxWork& work, const Share& share,
                                          const GroupParts& all, uint32_t (&out)[8][4]) {
    const Edges outside = window_edges<TALL, TALL>(a, tile);
    uint32_t edge = 0, count = 0;
    if (outside.some()) {
        const Table before = work.edges.at(0, share.word), behind = work.edges.at(1, share.word);
        edge = max_bytes(max_bytes(before.low, before.high), max_bytes(behind.low, behind.high));
        edge = max(max(edge & 0xFF, edge >> 8 & 0xFF), max(edge >> 16 & 0xFF, edge >> 24));
        edge = __reduce_max_sync(~0u, edge);
    }
    const uint32_t base = all.high ? all.low - 1 : edge ? edge - 1 : 0;
#pragma unroll 1
    for (TileSegments s(a, tile); s.some(); s.next()) ++count;
    if (count > SLOTS || edge > highest_edge(base)) return false;
    SegmentPowers& own = work.powers[threadIdx.x / 32];
    find_powers(a, tile, rows, tables, work, own, share, base);
    turn_several(Run(rows, tables, share), own, share, out);
    return true;
}

#else

// `amax`, all rows of one segment, and it has no others.
__device__ __forceinline__ bool turn_near(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                          TileTables& tables, AmaxWork&, const Share& share, const GroupParts& all,
                                          uint32_t (&out)[8][4]) {
    const Run run(rows, tables, share);
    HalfMaxima most = {};
#pragma unroll
    for (int i = 0; i < RUN; i += 2) raise_halves(most, run.halves(i), run.halves(i + 1));
    join_runs(most);
    const ColumnScales scales = column_scales(most, all.high ? all.low - 1 : 0);
    if (share.row == 0) store_bytes(a, tile, share, tile.window, scale_bytes(scales));
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t packed[4], codes[8];
        Table halves[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) packed[i] = run.word(4 * q + i), halves[i] = run.halves(4 * q + i);
        turn_rows(packed, halves, scales.power, scales.power, codes);
#pragma unroll
        for (int j = 0; j < 8; ++j) out[j][q] = codes[j];
    }
    return true;
}

#endif

// Rows `first` to `end` - 1 of four rows of a column.
__device__ __forceinline__ void store_rows(uint8_t* to, uint32_t four, int32_t first, int32_t end, uint32_t vector) {
    if (first <= 0 && end >= 4 && vector >= 4) {
        *reinterpret_cast<uint32_t*>(to) = four;
        return;
    }
#pragma unroll 1
    for (int32_t i = max(first, 0); i < min(end, 4); ++i) to[i] = (uint8_t)(four >> (8 * i));
}

// `amax`, any rows: rare, so short; reads all rows of every segment that the thread's rows meet.
__device__ __forceinline__ void turn_any(const ColumnArguments& a, const ColumnTile& tile, const Share& share) {
    const offset_t column = tile.column + 8 * share.word;
    const int32_t top = (int32_t)share.row;
    if (column >= a.k || top >= (int32_t)tile.rows) return;
    int32_t done = top;
#pragma unroll 1
    for (TileSegments s(a, tile, top); s.some() && s.now.first < top + RUN; s.next()) {
        ColumnMaxima most[2] = {};
#pragma unroll 1
        for (int32_t row = s.now.first; row < s.now.end; ++row) {
            const Table table = column_part_table(load_scale(a, tile.row + row, column), E4M3_EMAX);
            const uint32_t magnitudes = load_word(a, tile.row + row, column) & NIBBLE_MAGNITUDES;
            raise_maxima(most[0], look_up(table, magnitudes));
            raise_maxima(most[1], look_up(table, magnitudes >> 16));
        }
        const uint32_t bytes[2] = {column_bytes(column_parts(most[0]), ONE_BYTE),
                                   column_bytes(column_parts(most[1]), ONE_BYTE)};
        if (s.now.first >= top) store_bytes(a, tile, share, s.now.number, {bytes[0], bytes[1]});
        const ColumnBytes columns[2] = {negated_columns(bytes[0]), negated_columns(bytes[1])};
        done = min(s.now.end, top + RUN);
#pragma unroll 1
        for (int32_t row = max(s.now.first, top) & ~3; row < done; row += 4) {
            uint32_t words[2][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                uint32_t packed[1] = {0}, byte = 0, codes[2];
                if (row + i < (int32_t)tile.held) {
                    packed[0] = load_word(a, tile.row + row + i, column);
                    byte = load_scale(a, tile.row + row + i, column);
                }
                column_codes(packed, byte, columns, codes);
                words[0][i] = codes[0], words[1][i] = codes[1];
            }
            uint8_t* to = column_at(a, tile, share) + (row - top);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                transpose_bytes(words[h]);
#pragma unroll
                for (int i = 0; i < 4; ++i, to += a.out_stride) {
                    store_rows(to, words[h][i], s.now.first - row, done - row, a.vector);
                }
            }
        }
    }
    for (int32_t row = done; row < min(top + RUN, (int32_t)tile.rows); ++row) {  // rows of no expert
        uint8_t* to = column_at(a, tile, share) + (row - top);
        for (int i = 0; i < 8; ++i, to += a.out_stride) *to = 0;
    }
}

// cleared: whether the codes of NaN rows are zero, and other warps may read the tile still.
template <bool cleared>
__device__ __forceinline__ void turn_share(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                           TileTables& tables, MaxWork& work, const Share& share) {
    uint32_t out[8][4];
    max_tables<cleared>(a, tile, rows, share.group, tables, work);
    turn_max(Run(rows, tables, share), out);
    store_runs(a, tile, share, out);
}

template <bool cleared>
__device__ __forceinline__ void turn_share(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                           TileTables& tables, AmaxWork& work, const Share& share) {
    uint32_t out[8][4];
    const GroupParts all = amax_tables(rows, share.group, tables);
    const bool near = !all.nan && all.high <= all.low + E4M3_SPREAD;
    if (near && turn_near(a, tile, rows, tables, work, share, all, out)) store_runs(a, tile, share, out);
    else turn_any(a, tile, share);
}

// A warp's whole work on its groups, behind the tile's arrival.
template <bool amax, bool cleared>
__device__ __forceinline__ void turn_groups(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                            TileTables& tables, Work<amax, RAGGED>& work) {
#pragma unroll 1
    for (uint32_t turn = 0; turn < TURNS; ++turn) {
        const Share share = own_share(turn);
        if (tile.column + 32 * share.group >= a.k) return;
        turn_share<cleared>(a, tile, rows, tables, work, share);
        __syncwarp();  // the tables are the next group's from here on
    }
}

#if RAGGED
__device__ __forceinline__ void fetch_edges(const ColumnArguments& a, const ColumnTile& tile, const Edges& edges,
                                            MaxWork& work, uint64_t keep) {
    if (edges.before) {
        const int32_t first = -(int32_t)edges.before;
        RowsTile::fetch_scales(a, tile.column, tile.row + first, edges.before, edges.before, work.edges.at(first), keep);
    }
    if (edges.behind) {
        RowsTile::fetch_scales(a, tile.column, tile.row + TALL, edges.behind, edges.behind, work.edges.at(TALL), keep);
    }
}
__device__ __forceinline__ void fetch_edges(const ColumnArguments& a, const ColumnTile& tile, const Edges& edges,
                                            AmaxWork& work, uint64_t) {
    if (!edges.some()) return;
    const uint32_t hand = threadIdx.x / WORDS;
    work.edges.find<E4M3_EMAX>(a, 0, hand, tile.row - edges.before, edges.before, tile.column);
    work.edges.find<E4M3_EMAX>(a, 1, hand, tile.row + TALL, edges.behind, tile.column);
    __syncthreads();
    work.edges.join();
}
#endif

// Brings what a window with rows needs: all threads.
template <bool amax>
__device__ __forceinline__ void fetch_tile(const ColumnArguments& a, const ColumnTile& tile, RowsTile& rows,
                                           Work<amax, RAGGED>& work) {
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    rows.fetch(a, tile.column, tile.row, tile.held, keep);
#if RAGGED
    fetch_edges(a, tile, window_edges<TALL, TALL>(a, tile), work, keep);
#endif
    wait_copies();
    __syncthreads();
}

}  // namespace refnum
