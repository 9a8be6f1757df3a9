// Tiles of row-wise MXFP4 in shared memory, and which thread turns what of them. Device only.
//
// A warp has a group of 32 columns to itself, TURNS of them one after another. First its lanes have a row's block each
// (bytes, maxima, tables), then `run` rows of eight columns each, so that a thread ends with `run` rows of a column and
// stores them without a second pass through shared memory.
#pragma once

#include "bulk.cuh"
#include "column_keys.cuh"
#include "columns.cuh"

namespace refnum {

constexpr int GROUPS = WIDE / 32, WARPS = GROUPS / TURNS, WORKERS = 32 * WARPS;  // of a tile, and its threads
constexpr int ROWS_A_PASS = WORKERS / GROUPS;                                      // that a CTA copies at a time

// Skews keep the blocks of eight neighbouring rows (where `skew` is 4), and equal rows of eight runs, in different banks.
template <int tall, int run, int skew>
struct PackedTile {
    static constexpr int pitch = WIDE / 8 + skew, run_pitch = run * pitch + 4;  // words of a row, and of a run
    static constexpr bool BANDS = run == 4;  // then nobody reads 32 places without rows, and only the first ones have some below
    __align__(16) uint32_t codes[tall * pitch + tall / run * 4];
    __align__(8) uint8_t bytes[tall * GROUPS];

    __device__ __forceinline__ uint32_t* row(uint32_t i) { return codes + i * pitch + i / run * 4; }
    __device__ __forceinline__ uint4& block(uint32_t i, uint32_t group) {
        return *reinterpret_cast<uint4*>(row(i) + 4 * group);
    }
    __device__ __forceinline__ uint8_t* scales(uint32_t i) { return bytes + i * GROUPS; }

    // The array's rows from `first` on, `rows` of them; places of those behind are empty blocks. The first `turned` places
    // have the rows `tall` below. All threads of a CTA; complete behind `wait_copies` and a barrier.
    __device__ __forceinline__ void fetch(const ColumnArguments& a, offset_t column, offset_t first, uint32_t rows,
                                          uint64_t keep, uint32_t turned = 0) {
        const uint32_t group = threadIdx.x % GROUPS, own = threadIdx.x / GROUPS;
        const uint8_t* x = a.x + (first + own) * a.x_stride + (column / 2 + 16 * group);
        const offset_t step = ROWS_A_PASS * a.x_stride, below = tall * a.x_stride;
        const uint32_t here = column + 32 * group < a.k ? rows : 0;
        if (a.aligned & VECTORS) {
#pragma unroll
            for (uint32_t i = 0; i < tall; i += ROWS_A_PASS, x += step) {
                if (BANDS && i / 32 >= (rows + 31) / 32) break;
                const bool later = (i < 32 || !BANDS) && i + own < turned;
                copy_16(&block(i + own, group), later ? x + below : x, i + own + (later ? tall : 0) < here);
            }
        } else {
#pragma unroll 1
            for (uint32_t i = own; i < tall; i += ROWS_A_PASS, x += step) {
                const bool later = i < turned;
                uint32_t w[4] = {0, 0, 0, 0};
                if ((later ? i + tall : i) < here) load<16>(later ? x + below : x, false, w);
                block(i, group) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
        fetch_scales(a, column, first, rows, tall, bytes, keep, turned);
    }

    // Every four threads of a warp have 32 places from `first` on as rows of one segment, at their numbers modulo 32: all threads.
    __device__ __forceinline__ void fetch_slots(const ColumnArguments& a, const ColumnTile& to, const Segment& now,
                                                uint32_t first, uint64_t keep) {
        static_assert(tall && WARPS == 4 && GROUPS == 4, "a thread has eight places of a group");
        const uint32_t group = threadIdx.x % 4, own = threadIdx.x / 32 * 8, row = (own - (uint32_t)now.first) % 32;
        const uint8_t* x = a.x + (to.row + now.first) * a.x_stride + (to.column / 2 + 16 * group);
        const uint8_t* scales = a.scales + (to.row + now.first) * a.scale_stride + to.column / 32;
        const uint32_t rows = (uint32_t)(now.end - now.first), here = to.column + 32 * group < a.k ? rows : 0;
        const uint8_t* from = x + row * a.x_stride;
        if (a.aligned & VECTORS) {
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i, from += a.x_stride) {
                if (row + i == 32) from = x;
                copy_16(&block(first + own + i, group), from, (row + i) % 32 < here);
            }
        } else {
#pragma unroll 1
            for (uint32_t i = 0; i < 8; ++i, from += a.x_stride) {
                uint32_t w[4] = {0, 0, 0, 0};
                if (row + i == 32) from = x;
                if ((row + i) % 32 < here) load<16>(from, false, w);
                block(first + own + i, group) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
        const uint32_t place = first + own + group;
        const bool vectors = a.aligned & SCALES && to.column + WIDE <= a.k;
#pragma unroll 1  // ptxas 13.0 encodes the policy wrongly where two such copies follow each other
        for (uint32_t i = 0; i < 8; i += 4) {
            const uint32_t at = (row + group + i) % 32;
            if (vectors) copy_scales(bytes + (place + i) * GROUPS, scales + at * a.scale_stride, at < rows, keep);
            else fetch_bytes(a, to.column, scales + at * a.scale_stride, at < rows, bytes + (place + i) * GROUPS);
        }
    }

    // Scales of `count` rows from `first` on, of which `rows` exist; the others get 0.
    static __device__ __forceinline__ void fetch_scales(const ColumnArguments& a, offset_t column, offset_t first,
                                                        uint32_t rows, uint32_t count, uint8_t* to, uint64_t keep,
                                                        uint32_t turned = 0) {
        const uint8_t* scales = a.scales + first * a.scale_stride + column / 32;
        if (a.aligned & SCALES && column + WIDE <= a.k) {
#pragma unroll
            for (uint32_t i = threadIdx.x; i < count; i += WORKERS) {
                const uint32_t row = i < turned ? i + tall : i;
                copy_scales(to + i * GROUPS, scales + row * a.scale_stride, row < rows, keep);
            }
        } else {
#pragma unroll 1
            for (uint32_t i = threadIdx.x; i < count; i += WORKERS) {
                const uint32_t row = i < turned ? i + tall : i;
                fetch_bytes(a, column, scales + row * a.scale_stride, row < rows, to + i * GROUPS);
            }
        }
    }

private:
    // A row's scales in one copy.
    static __device__ __forceinline__ void copy_scales(uint8_t* to, const uint8_t* scales, bool exists, uint64_t keep) {
        static_assert(GROUPS == 4 || GROUPS == 8, "as many bytes as a copy may have");
        if (GROUPS == 8) copy_8(to, scales, exists, keep);
        else copy_4(to, scales, exists, keep);
    }

    static __device__ __forceinline__ void fetch_bytes(const ColumnArguments& a, offset_t column,
                                                       const uint8_t* scales, bool exists, uint8_t* to) {
#pragma unroll 1
        for (int g = 0; g < GROUPS; ++g) {
            const bool here = exists && column + 32 * g < a.k;
            to[g] = here ? (uint8_t)load_byte(scales + g) : 0;
        }
    }
};

// Tables of the rows of a group, `run` apart by a skew.
template <int tall, int run>
struct RowTables {
    Table of[tall + tall / run];

    __device__ __forceinline__ Table& operator[](uint32_t row) { return of[row + row / run]; }
};

// Parts (`block_part_max`) of the rows that a lane has of a group: rows lane, lane + 32, ... of `count * 32`.
template <int count, class Tile>
__device__ __forceinline__ void block_parts(Tile& tile, uint32_t group, uint32_t (&part)[count],
                                            uint32_t (&byte)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const uint32_t row = 32 * i + threadIdx.x % 32;
        const uint4 four = tile.block(row, group);
        const uint32_t w[4] = {four.x, four.y, four.z, four.w};
        byte[i] = tile.bytes[row * GROUPS + group];
        part[i] = block_part_max(w, byte[i]);
    }
}

}  // namespace refnum
