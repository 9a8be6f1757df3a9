// A warp turns a group of 32 columns and a segment of up to 128 rows of MXFP4 to E4M3 columns (clause N9). Device only.
//
// A thread ends with sixteen rows of eight columns: eight stores of 16 bytes, and eight threads fill 128 bytes of a
// column. Segments that begin anywhere (RAGGED) lie in the tile by their rows' numbers modulo 128: so a thread's sixteen
// rows leave as they are, at a multiple of 16, only that one thread has rows of two such places. A sector of 32 bytes of
// a column that a segment fills in part waits in shared memory for the next segment of the strip; segments that reach
// beyond the strip are turned by both strips.
#pragma once

#include "mxfp4_tile.cuh"

namespace refnum {

constexpr int RUN = 16, SECTOR = LINE;
typedef PackedTile<TALL, RUN, 4> RowsTile;
typedef RowTables<TALL, RUN> TileTables;
typedef Segments<TALL, TALL> TileSegments;
static_assert(!RAGGED || CLUSTER == 1, "strips have different numbers of segments");

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
    __device__ __forceinline__ uint32_t word(int i) const { return words[i * RowsTile::pitch]; }
    __device__ __forceinline__ Table halves(int i) const { return row_halves(word(i), tables[i]); }
};

// Places of a segment's rows in a tile: the first ones, `skew` of them, have the rows 128 below.
struct Places {
    int32_t base;  // the row of place 0, from the strip's first
    uint32_t skew;

    __device__ __forceinline__ explicit Places(const Segment& now)
        : base(RAGGED ? now.first & -TALL : 0), skew(RAGGED ? (uint32_t)now.first % TALL : 0) {}
    __device__ __forceinline__ int32_t row(uint32_t place) const {
        return base + (int32_t)place + (place < skew ? TALL : 0);
    }
};

// Lines that the segment above filled in part: for every column of a group its runs of sixteen rows.
#if RAGGED
struct OpenSectors {
    static constexpr int runs = SECTOR / RUN;
    uint4 of[GROUPS][8][4 * runs];

    __device__ __forceinline__ uint4* own(const Share& share) {
        return &of[share.group][0][share.row / RUN % runs * 4 + share.word % 4];
    }
};
#else
struct OpenSectors {};
#endif

__device__ __forceinline__ void store_run(uint8_t* to, const uint32_t (&out)[4], int32_t rows, uint32_t vector) {
    if (vector == 16) store<16>(to, out);
    else store_some(to, make_uint4(out[0], out[1], out[2], out[3]), rows, vector);
}

#if RAGGED

// The first `count` of sixteen bytes, of which word i has four.
__device__ __forceinline__ uint32_t first_bytes(int32_t count, int i) {
    const int32_t own = min(max(count - 4 * i, 0), 4);
    return own == 4 ? ~0u : (1u << 8 * own) - 1;
}

// Joins what the segment above left of its last sector to a thread's rows; keeps what the segment leaves. `place`: the row
// of the thread's run. `end`: the row behind what is known.
__device__ __forceinline__ void join_sectors(const Share& share, const Segment& now, int32_t place, int32_t end,
                                             OpenSectors& open, uint32_t (&out)[8][4]) {
    const int32_t first = now.first & -SECTOR, last = end & -SECTOR;
    const bool head = place < first + SECTOR, joins = head && now.first != first && first >= 0;
    const int32_t later = head ? (now.first & (TALL - 1)) - (int32_t)share.row : 0;
    const bool keeps_later = place + TALL >= last && place + TALL < last + SECTOR;
    const bool keeps = keeps_later || (place >= last && place < last + SECTOR);
    uint4* own = open.own(share);
    uint32_t below[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) below[i] = first_bytes(later, i);
#pragma unroll
    for (int j = 0; j < 8; ++j, own += 4 * OpenSectors::runs) {
        uint4 old = make_uint4(0, 0, 0, 0);
        if (joins) old = *own;
        const uint4 under = make_uint4(out[j][0] & below[0], out[j][1] & below[1], out[j][2] & below[2], out[j][3] & below[3]);
        out[j][0] = (out[j][0] & ~below[0]) | old.x, out[j][1] = (out[j][1] & ~below[1]) | old.y;
        out[j][2] = (out[j][2] & ~below[2]) | old.z, out[j][3] = (out[j][3] & ~below[3]) | old.w;
        __syncwarp();
        if (keeps) *own = keeps_later ? under : make_uint4(out[j][0], out[j][1], out[j][2], out[j][3]);
    }
}

// Sixteen rows of eight columns, column j's in out[j]: to their places in the strip, as far as their sectors are full.
__device__ __forceinline__ void store_runs(const ColumnArguments& a, const ColumnTile& tile, const Share& share,
                                           const Segment& now, OpenSectors& open, uint32_t (&out)[8][4]) {
    const int32_t rows = (int32_t)tile.rows, first = now.first & -SECTOR;
    const int32_t end = now.end == (int32_t)tile.held ? min((now.end + SECTOR - 1) & -SECTOR, rows) : now.end;
    const int32_t place = first + (((int32_t)share.row - first) & (TALL - 1));
    if ((now.first | end) % SECTOR != 0) join_sectors(share, now, place, end, open, out);
    if (place < 0 || place >= rows || ((place & -SECTOR) + SECTOR > end && end < rows)) return;
    uint8_t* to = a.out + (tile.column + 8 * share.word) * a.out_stride + tile.row + place;
    if (a.vector == 16) {
#pragma unroll
        for (int j = 0; j < 8; ++j, to += a.out_stride) store<16>(to, out[j]);
    } else {
#pragma unroll
        for (int j = 0; j < 8; ++j, to += a.out_stride) store_run(to, out[j], rows - place, a.vector);
    }
}

#else

__device__ __forceinline__ void store_runs(const ColumnArguments& a, const ColumnTile& tile, const Share& share,
                                           const Segment&, OpenSectors&, uint32_t (&out)[8][4]) {
    uint8_t* to = a.out + (tile.column + 8 * share.word) * a.out_stride + tile.row + share.row;
    const int32_t rows = (int32_t)tile.rows - (int32_t)share.row;
    if (rows <= 0) return;
    if (a.vector == 16) {
#pragma unroll
        for (int j = 0; j < 8; ++j, to += a.out_stride) store<16>(to, out[j]);
    } else {
#pragma unroll
        for (int j = 0; j < 8; ++j, to += a.out_stride) store_run(to, out[j], rows, a.vector);
    }
}

#endif

// Column bytes of a segment, unless it begins above the strip: then the strip above has them.
__device__ __forceinline__ void store_bytes(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                            uint32_t word, Table bytes) {
    if (now.first < 0) return;
    store_scales(a, now.number, tile.column + 8 * word, bytes.low);
    store_scales(a, now.number, tile.column + 8 * word + 4, bytes.high);
}

// `max`: tables of the rows of a group. The codes of NaN rows are cleared, unless they are already.
template <bool cleared>
__device__ __forceinline__ void max_tables(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                           RowsTile& rows, uint32_t group, TileTables& tables) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t part[4], byte[4];
    block_parts<4>(rows, group, part, byte);
    const uint32_t most = max(max(part[0], part[1]), max(part[2], part[3]));
    const uint32_t shared = tile_byte_max(__reduce_max_sync(~0u, most));
    if (lane < 8 && now.first >= 0) {
        store_scales(a, now.number, tile.column + 32 * group + 4 * lane, shared * 0x01010101u);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t row = 32 * i + lane;
        tables[row] = row_table(part[i], byte[i], shared);
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

// `amax`, rows near each other: codes, and bytes of the columns.
__device__ __forceinline__ Table turn_near(const Run& run, const GroupParts& all, uint32_t (&out)[8][4]) {
    HalfMaxima most = {};
#pragma unroll
    for (int i = 0; i < RUN; i += 2) raise_halves(most, run.halves(i), run.halves(i + 1));
#pragma unroll
    for (uint32_t d = 4; d < 32; d *= 2) {
#pragma unroll
        for (int j = 0; j < 4; ++j) most.w[j] = max_lanes(most.w[j], __shfl_xor_sync(~0u, most.w[j], d));
    }
    const ColumnScales scales = column_scales(most, all.high ? all.low - 1 : 0);
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
    return scale_bytes(scales);
}

// `amax`, any rows: rare, so short.
__device__ __forceinline__ Table turn_any(RowsTile& rows, const Share& share, uint32_t (&out)[8][4]) {
    ColumnMaxima most[2] = {};
#pragma unroll 1
    for (uint32_t row = share.row; row < share.row + RUN; ++row) {
        const Table table = column_part_table(rows.bytes[row * GROUPS + share.group], E4M3_EMAX);
        const uint32_t magnitudes = rows.row(row)[share.word] & NIBBLE_MAGNITUDES;
        raise_maxima(most[0], look_up(table, magnitudes));
        raise_maxima(most[1], look_up(table, magnitudes >> 16));
    }
#pragma unroll
    for (uint32_t d = 4; d < 32; d *= 2) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            most[h].even = max_lanes(most[h].even, __shfl_xor_sync(~0u, most[h].even, d));
            most[h].odd = max_lanes(most[h].odd, __shfl_xor_sync(~0u, most[h].odd, d));
        }
    }
    const Table bytes = {column_bytes(column_parts(most[0]), ONE_BYTE), column_bytes(column_parts(most[1]), ONE_BYTE)};
    const ColumnBytes columns[2] = {negated_columns(bytes.low), negated_columns(bytes.high)};
#pragma unroll
    for (int i = 0; i < 32; ++i) out[i / 4][i % 4] = 0;
#pragma unroll 1
    for (uint32_t q = 0; q < 4; ++q) {
        uint32_t words[2][4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t row = share.row + 4 * q + i, packed[1] = {rows.row(row)[share.word]};
            uint32_t codes[2];
            column_codes(packed, rows.bytes[row * GROUPS + share.group], columns, codes);
            words[0][i] = codes[0], words[1][i] = codes[1];
        }
        transpose_bytes(words[0]);
        transpose_bytes(words[1]);
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {  // registers have no addresses
            out[i / 4][i % 4] = i % 4 == q ? words[0][i / 4] : out[i / 4][i % 4];
            out[4 + i / 4][i % 4] = i % 4 == q ? words[1][i / 4] : out[4 + i / 4][i % 4];
        }
    }
    return bytes;
}

// cleared: whether the codes of NaN rows are zero, and other warps may read the tile still.
template <bool amax, bool cleared>
__device__ __forceinline__ void turn_share(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                           RowsTile& rows, TileTables& tables, const Share& share,
                                           uint32_t (&out)[8][4]) {
    const Run run(rows, tables, share);
    if (!amax) {
        max_tables<cleared>(a, tile, now, rows, share.group, tables);
        return turn_max(run, out);
    }
    const GroupParts all = amax_tables(rows, share.group, tables);
    const bool near = !all.nan && all.high <= all.low + E4M3_SPREAD;
    const Table bytes = near ? turn_near(run, all, out) : turn_any(rows, share, out);
    if (share.row == 0) store_bytes(a, tile, now, share.word, bytes);
}

// A warp's whole work on its groups, behind the segment's arrival.
template <bool amax, bool cleared>
__device__ __forceinline__ void turn_groups(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                            RowsTile& rows, TileTables& tables, OpenSectors& open) {
#pragma unroll 1
    for (uint32_t turn = 0; turn < TURNS; ++turn) {
        const Share share = own_share(turn);
        if (tile.column + 32 * share.group >= a.k) return;
        uint32_t out[8][4];
        turn_share<amax, cleared>(a, tile, now, rows, tables, share, out);
        store_runs(a, tile, share, now, open, out);
        __syncwarp();  // the tables are the next group's from here on
    }
}

// Brings a segment's rows: all threads.
__device__ __forceinline__ void fetch_segment(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                              RowsTile& rows, uint64_t keep) {
    const Places places(now);
    rows.fetch(a, tile.column, tile.row + places.base, (uint32_t)(now.end - places.base), keep, places.skew);
}

// Calls `work` with every segment that meets the CTA's rows, and the tile that holds it.
template <class Work>
__device__ __forceinline__ void walk_segments(const ColumnArguments& a, const ColumnTile& tile,
                                              RowsTile (&rows)[1 + AHEAD], Work work) {
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    TileSegments s(a, tile);
    fetch_segment(a, tile, s.now, rows[0], keep);
#if RAGGED
#pragma unroll 1
    for (uint32_t turn = 0; s.some(); turn = AHEAD - turn) {
        const Segment now = s.now;
        s.next();
        wait_copies();
        __syncthreads();
        if (AHEAD && s.some()) fetch_segment(a, tile, s.now, rows[AHEAD - turn], keep);
        work(now, rows[turn]);
        if (AHEAD || !s.some()) continue;
        __syncthreads();
        fetch_segment(a, tile, s.now, rows[0], keep);
    }
#else
    wait_copies();
    __syncthreads();
    work(s.now, rows[0]);
#endif
}

}  // namespace refnum
