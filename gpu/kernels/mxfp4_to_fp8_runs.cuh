// How a thread's rows and columns of an MXFP4 to E4M3 column tile lie, and how it stores them: see mxfp4_to_fp8_tile.cuh.
#pragma once

#include "mxfp4_tile.cuh"

namespace refnum {

constexpr int RUN = 16, SECTOR = LINE;
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

// What a CTA keeps beside the tile. `amax`: lines that the segment above filled in part, for every column of a group its
// runs of sixteen rows. `max`: scales of the rows before the window, and of those behind it.
struct OpenSectors {
    static constexpr int runs = SECTOR / RUN;
    uint4 of[GROUPS][8][4 * runs];

    __device__ __forceinline__ uint4* own(const Share& share) {
        return &of[share.group][0][share.row / RUN % runs * 4 + share.word % 4];
    }
};
struct EdgeBytes {
    __align__(8) uint8_t bytes[2 * TALL * GROUPS];

    __device__ __forceinline__ uint8_t* at(int32_t row) { return bytes + (row < 0 ? row + TALL : row) * GROUPS; }
};
struct Nothing {};
template <bool amax, bool ragged>
struct KeptOf {
    typedef Nothing Kind;
};
template <>
struct KeptOf<true, true> {
    typedef OpenSectors Kind;
};
template <>
struct KeptOf<false, true> {
    typedef EdgeBytes Kind;
};
template <bool amax>
using Kept = typename KeptOf<amax, RAGGED>::Kind;

// The first `count` of sixteen bytes, of which word i has four.
__device__ __forceinline__ uint32_t first_bytes(int32_t count, int i) {
    return (uint32_t)((1ull << 8 * min(max(count - 4 * i, 0), 4)) - 1);
}

// Joins what the segment above left of its last sector to a thread's rows; keeps what the segment leaves. `place`: the row
// of the thread's run. True if the thread keeps rows 128 below that. Places without a row hold zeros.
__device__ __forceinline__ bool join_sectors(const Share& share, const Segment& now, int32_t place, OpenSectors& open,
                                             uint32_t (&out)[8][4]) {
    const int32_t first = now.first & -SECTOR, last = now.end & -SECTOR;
    const bool head = place < first + SECTOR, joins = head && now.first != first && first >= 0;
    uint4* own = open.own(share);
    if (now.end - first <= TALL) {
        if (joins) {
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const uint4 old = own[j * 4 * OpenSectors::runs];
                out[j][0] |= old.x, out[j][1] |= old.y, out[j][2] |= old.z, out[j][3] |= old.w;
            }
        }
        __syncwarp();
        if (place >= last && place < last + SECTOR) {
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                own[j * 4 * OpenSectors::runs] = make_uint4(out[j][0], out[j][1], out[j][2], out[j][3]);
            }
        }
        return false;
    }
    if (!head) return false;  // the last sector lies at the first one's places
    const bool keeps = place + TALL >= last;
    uint32_t below[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) below[i] = first_bytes((now.first & (TALL - 1)) - (int32_t)share.row, i);
#pragma unroll
    for (int j = 0; j < 8; ++j, own += 4 * OpenSectors::runs) {
        uint4 old = make_uint4(0, 0, 0, 0);
        if (joins) old = *own;
        if (keeps) *own = make_uint4(out[j][0] & below[0], out[j][1] & below[1], out[j][2] & below[2], out[j][3] & below[3]);
        out[j][0] = (out[j][0] & ~below[0]) | old.x, out[j][1] = (out[j][1] & ~below[1]) | old.y;
        out[j][2] = (out[j][2] & ~below[2]) | old.z, out[j][3] = (out[j][3] & ~below[3]) | old.w;
    }
    return keeps;
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

// To their places in the strip, as far as their sectors are full; behind the last segment nothing but zeros fills them.
__device__ __forceinline__ void store_runs(const ColumnArguments& a, const ColumnTile& tile, const Share& share,
                                           const Segment& now, OpenSectors& open, uint32_t (&out)[8][4]) {
    const int32_t rows = (int32_t)tile.rows, first = now.first & -SECTOR;
    const bool final = now.end == (int32_t)tile.held;
    const int32_t place = first + (((int32_t)share.row - first) & (TALL - 1));
    bool later = false;
    if ((now.first | now.end) % SECTOR != 0) later = join_sectors(share, now, place, open, out);
    const int32_t full = final ? min((now.end + SECTOR - 1) & -SECTOR, rows) : now.end & -SECTOR;
    if (place >= 0 && place < full) store_columns(a, tile, share, place, out);
    if (!final || !later || place + TALL >= full) return;
    const uint4* own = open.own(share);
#pragma unroll
    for (int j = 0; j < 8; ++j, own += 4 * OpenSectors::runs) {
        out[j][0] = own->x, out[j][1] = own->y, out[j][2] = own->z, out[j][3] = own->w;
    }
    store_columns(a, tile, share, place + TALL, out);
}

// The same in a window.
template <class Kept>
__device__ __forceinline__ void store_runs(const ColumnArguments& a, const ColumnTile& tile, const Share& share,
                                           const Segment&, Kept&, uint32_t (&out)[8][4]) {
    store_columns(a, tile, share, (int32_t)share.row, out);
}

// Column bytes of a segment, unless it begins above the strip: then the strip above has them.
__device__ __forceinline__ void store_bytes(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                            uint32_t word, Table bytes) {
    if (now.first < 0) return;
    store_scales(a, now.number, tile.column + 8 * word, bytes);
}

}  // namespace refnum
