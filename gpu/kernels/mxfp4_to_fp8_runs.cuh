// How a thread's rows and columns of an MXFP4 to E4M3 column tile lie, and how it stores them: see mxfp4_to_fp8_tile.cuh.
#pragma once

#include "column_seams.cuh"

namespace refnum {

constexpr int RUN = 16, BAND = 32;
constexpr bool ANYWHERE = RAGGED || SPLIT == 2;
typedef Segments<TALL, TALL> TileSegments;

// What a thread turns: a share of the places of a tile, the columns of packed word `word`. A warp has one group of columns.
struct Share {
    uint32_t group, word, number;
};
__device__ __forceinline__ Share own_share(uint32_t turn) {
    const uint32_t group = turn * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    return {group, 4 * group + lane % 4, lane / 4};
}

// Four quads of rows a thread: a run of sixteen in windows; one of each band where `amax` walks segments.
template <bool bands>
struct Shape {
    typedef PackedTile<TALL, bands ? 4 : RUN, bands ? 8 : 4> Tile;
    typedef RowTables<TALL, bands ? TALL : RUN> Tables;
    static constexpr int rows = bands ? 4 : RUN, step = bands ? BAND : 4;  // between shares, and between a share's quads
};
template <bool amax>
using ShapeOf = Shape<amax && RAGGED>;

// A thread's rows: packed word i of its columns and the table of that row, at constant distances from the first.
template <bool bands>
struct Run {
    typedef Shape<bands> Own;
    static constexpr int pitch = Own::Tile::pitch, quad = bands ? BAND / 4 * Own::Tile::run_pitch : 4 * pitch;
    const uint32_t* words;
    const Table* tables;

    __device__ __forceinline__ Run(typename Own::Tile& rows, typename Own::Tables& own, const Share& share)
        : words(rows.row(Own::rows * share.number) + share.word), tables(&own[Own::rows * share.number]) {}
    __device__ __forceinline__ uint32_t word(int i) const { return words[i / 4 * quad + i % 4 * pitch]; }
    __device__ __forceinline__ Table table(int i) const { return tables[i / 4 * Own::step + i % 4]; }
    __device__ __forceinline__ Table halves(int i) const { return row_halves(word(i), table(i)); }
    static __device__ __forceinline__ uint32_t row(const Share& share, uint32_t i) {
        return Own::rows * share.number + i / 4 * Own::step + i % 4;
    }
};

// Places of a segment's rows in a tile: from a multiple of 32 on; the first ones, `skew` of them, have the rows 128 below.
struct Places {
    int32_t base;  // the row of place 0, from the strip's first
    uint32_t skew;

    __device__ __forceinline__ explicit Places(const Segment& now)
        : base(ANYWHERE ? now.first & -BAND : 0), skew(ANYWHERE ? (uint32_t)now.first % BAND : 0) {}
    __device__ __forceinline__ int32_t row(uint32_t place) const {
        return base + (int32_t)place + (place < skew ? TALL : 0);
    }
    // Bands of places that have rows.
    __device__ __forceinline__ uint32_t bands(const Segment& now) const {
        return min((uint32_t)(now.end - base + BAND - 1) / BAND, (uint32_t)(TALL / BAND));
    }
};

// What a CTA keeps beside the tile. `amax`: the band that the segment above filled in part, for every column of a group.
// `max`: scales of the rows before the window, and of those behind it.
struct OpenBand {
    uint32_t of[GROUPS][8][32];

    __device__ __forceinline__ uint32_t* own(const Share& share) { return &of[share.group][0][threadIdx.x % 32]; }
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
    typedef OpenBand Kind;
};
template <>
struct KeptOf<false, true> {
    typedef EdgeBytes Kind;
};
template <bool amax>
using Kept = typename KeptOf<amax, RAGGED>::Kind;

// Sixteen rows of eight columns, column j's in out[j]. Of a segment that begins anywhere (SPLIT 2) all whole sectors, and the rest if
// it ends with the array.
template <class Kept>
__device__ __forceinline__ void store_runs(const ColumnArguments& a, const ColumnTile& tile, const Share& share,
                                           const Segment& now, Kept&, uint32_t (&out)[8][4]) {
    int32_t row = RUN * (int32_t)share.number;
    if (SPLIT == 2) {
        const bool final = tile.row + now.end == a.m;
        if (tile.skew && row < BAND) row += TALL;  // the array's last rows, or a sector that is left out
        if (!final && (row & -BAND) + BAND > now.end) return;
    }
    const int32_t rows = (int32_t)tile.rows - row;
    uint8_t* to = a.out + (tile.column + 8 * share.word) * a.out_stride + tile.row + row;
    if (rows <= 0) return;
    if (SPLIT == 2 || a.vector == 16) {
#pragma unroll
        for (int j = 0; j < 8; ++j, to += a.out_stride) store<16>(to, out[j]);
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j, to += a.out_stride) {
        store_some(to, make_uint4(out[j][0], out[j][1], out[j][2], out[j][3]), rows, a.vector);
    }
}

// The first `count` of four rows of a column, where outputs begin at any byte.
__device__ __forceinline__ void store_rows_singly(uint8_t* to, int32_t count, uint32_t word) {
#pragma unroll 1
    for (int32_t i = 0; i < min(count, 4); ++i) to[i] = (uint8_t)(word >> 8 * i);
}

// Four rows of each band, to their places in the strip if the band is full; behind the last segment nothing but zeros
// fills it. What the segment above left of the first one joins it; what the segment leaves of the last one is kept.
__device__ __forceinline__ void store_runs(const ColumnArguments& a, const ColumnTile& tile, const Share& share,
                                           const Segment& now, OpenBand& open, uint32_t (&out)[8][4]) {
    const Places places(now);
    const bool final = now.end == (int32_t)tile.held, wraps = now.end - places.base > TALL;
    const uint32_t bands = places.bands(now), full = final ? bands : (uint32_t)(now.end - places.base) / BAND;
    const int32_t lane = 4 * (int32_t)share.number, left = (int32_t)tile.rows - places.base - lane;
    uint32_t* own = open.own(share);
    if (wraps) {
        const uint32_t below = (uint32_t)((1ull << 8 * min(max((int32_t)places.skew - lane, 0), 4)) - 1);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const uint32_t old = places.base < 0 ? 0 : own[32 * j];
            own[32 * j] = out[j][0] & below;
            out[j][0] = (out[j][0] & ~below) | old;
        }
    } else if (places.skew && places.base >= 0) {
#pragma unroll
        for (int j = 0; j < 8; ++j) out[j][0] |= own[32 * j];
    }
    bool stored[TALL / BAND];
#pragma unroll
    for (uint32_t t = 0; t < TALL / BAND; ++t) {
        const int32_t row = BAND * (int32_t)t;
        stored[t] = t < full && places.base + row >= 0 && row < left;
        if (t < full || t >= bands) continue;
#pragma unroll
        for (int j = 0; j < 8; ++j) own[32 * j] = out[j][t];
    }
    const uint32_t stride = (uint32_t)a.out_stride;  // rows are fewer than 2**31
    uint8_t* to = a.out + (tile.column + 8 * share.word) * a.out_stride + (tile.row + places.base + lane);
    const bool rest = wraps && final && left > TALL;
    if (a.vector != 1) {
#pragma unroll
        for (uint32_t j = 0; j < 8; ++j) {
            uint8_t* column = to + (uint64_t)stride * j;
#pragma unroll
            for (uint32_t t = 0; t < TALL / BAND; ++t) {
                if (stored[t]) *reinterpret_cast<uint32_t*>(column + BAND * t) = out[j][t];
            }
            if (rest) *reinterpret_cast<uint32_t*>(column + TALL) = own[32 * j];
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j, to += a.out_stride) {
#pragma unroll
        for (uint32_t t = 0; t < TALL / BAND; ++t) {
            if (stored[t]) store_rows_singly(to + BAND * t, left - BAND * (int32_t)t, out[j][t]);
        }
        if (rest) store_rows_singly(to + TALL, left - TALL, own[32 * j]);
    }
}

// Column bytes of a segment, unless it begins above the strip: then the strip above has them.
__device__ __forceinline__ void store_bytes(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                            uint32_t word, Table bytes) {
    if (now.first < 0) return;
    store_scales(a, now.number, tile.column + 8 * word, bytes);
}

}  // namespace refnum
