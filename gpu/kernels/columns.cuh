// Tiles of 128 rows x WIDE columns that are turned: which rows a CTA has, and the way out through shared memory.
// Device only; no arithmetic on values.
//
// A thread holds four neighbouring rows. After `transpose_bytes` each of its words is four rows of one column; the
// words of a column lie side by side in shared memory, and leave as 16-byte stores of sixteen rows.
#pragma once

#include "memory.cuh"

// How a launch is cut (gpu/columns.py chooses): column tiles that neighbouring CTAs take of the same rows (0: all), and
// CTAs that a multiprocessor must hold at once, columns of a tile.
#ifndef ACROSS
#define ACROSS 8
#endif
#ifndef BLOCKS
#define BLOCKS 4
#endif
#ifndef WIDE
#define WIDE 128
#endif
// Groups of 32 columns that a warp takes one after another.
#ifndef TURNS
#define TURNS 1
#endif
// CTAs of one column tile and blocks of rows below each other that store their columns at the same time.
#ifndef CLUSTER
#define CLUSTER 1
#endif
#if CLUSTER > 1 && __CUDA_ARCH__ >= 900
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTERED
#endif

namespace refnum {

constexpr int SEGMENTS = 1920, TALL = 128, QUADS = TALL / 4;
constexpr uint32_t VECTORS = 1, SCALES = 2;  // bits of `aligned`: codes by 16 bytes, a tile's scales of a row in one copy

// The one parameter of every column kernel (gpu/columns.py has its mirror). Blocks of rows of one expert follow from
// `dense_rows`; else a launch takes up to 1920 blocks, from row `first_row` and column block `first_segment` on: the first
// row of each and, behind them, the last one's end, in units of 2**shift rows; zeros follow. Strides are in bytes.
struct ColumnArguments {
    const uint8_t *x, *scales;
    uint8_t *rows, *row_scales;  // outputs of kernels that write rows too
    uint8_t *out, *out_scales;
    offset_t x_stride, scale_stride, out_stride, k, first_row, first_segment, dense_rows;
    uint32_t segments;  // blocks of rows of this launch
    uint32_t tiles;     // across the columns
    uint32_t aligned;   // which inputs can be read by vectors
    uint32_t vector;    // bytes that an output store may have: 16, 4 or 1
    uint32_t shift;
    uint16_t places[SEGMENTS + 1];
};

struct Segment {
    offset_t row;
    uint32_t rows;

    // Its rows `first` to `first` + 31, none if there are fewer.
    __device__ __forceinline__ Segment stripe(uint32_t first) const {
        return {row + first, min(max(rows, first) - first, 32u)};
    }
};

// The launch's block of rows of that number; `tall` rows at most.
template <int tall>
__device__ __forceinline__ Segment segment_at(const ColumnArguments& a, uint32_t number) {
    if (a.dense_rows == 0) {
        const uint32_t first = a.places[number], end = a.places[number + 1];
        return {a.first_row + (offset_t)(first << a.shift), end - first << a.shift};
    }
    const offset_t row = (offset_t)number * tall, left = a.dense_rows - row;
    return {row, (uint32_t)min(left, (offset_t)tall)};
}

struct ColumnTile {
    offset_t row, column, segment;
    uint32_t rows;  // that exist, at most 128

    __device__ __forceinline__ Segment stripe(uint32_t i) const { return Segment{row, rows}.stripe(32 * i); }
};

// The tile of this CTA: across the grid go the blocks of rows, CLUSTER at a time, ACROSS column tiles of each; down go
// the stripes of ACROSS column tiles. Its `rows` are 0 behind the last column and the last block.
__device__ __forceinline__ ColumnTile column_tile(const ColumnArguments& a) {
    const uint32_t across = ACROSS ? ACROSS : a.tiles, number = blockIdx.x / CLUSTER, row = number / across;
    const uint32_t segment = row * CLUSTER + blockIdx.x % CLUSTER;
    const uint32_t column = blockIdx.y * across + (number - row * across);
    if (column >= a.tiles || segment >= a.segments) return {0, 0, 0, 0};
    const Segment rows = segment_at<TALL>(a, segment);
    return {rows.row, (offset_t)column * WIDE, a.first_segment + segment, rows.rows};
}

// The threads of a cluster wait for each other; those of one CTA alone, and devices without clusters, do not.
__device__ __forceinline__ void meet_cluster() {
#if CLUSTER > 1 && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
    asm volatile("barrier.cluster.wait;" ::: "memory");
#endif
}

// The first `bytes` of four words, in stores of 4 bytes or single ones. All ends, and so `bytes`, are multiples of `vector`.
__device__ __forceinline__ void store_some(uint8_t* to, uint4 four, int32_t bytes, uint32_t vector) {
#pragma unroll 1
    for (int32_t left = min(bytes, 16); left > 0; left -= 4, to += 4) {
        if (vector == 1) {
#pragma unroll 1
            for (int32_t j = 0; j < 4 && j < left; ++j) to[j] = (uint8_t)(four.x >> (8 * j));
        } else {
            *reinterpret_cast<uint32_t*>(to) = four.x;
        }
        four = make_uint4(four.y, four.z, four.w, 0);
    }
}

// Words of one column behind another, thread columns of `width` apart by a skew that keeps a warp's stores in
// different banks.
template <int width>
struct Turned {
    static constexpr int across = WIDE / width, skew = 32 / across, stride = width * QUADS + skew;
    uint32_t words[across * stride];

    __device__ __forceinline__ void put(uint32_t part, int column, uint32_t quad, uint32_t word) {
        words[part * stride + column * QUADS + quad] = word;
    }

    // All threads of the CTA, after a barrier: what exists of the tile, to its columns.
    template <int threads>
    __device__ __forceinline__ void store_columns(const ColumnArguments& a, const ColumnTile& tile) const {
        constexpr int passes = WIDE * 8 / threads;
        const uint32_t chunk = threadIdx.x % 8, first = threadIdx.x / 8;
        uint8_t* out = a.out + tile.column * a.out_stride + tile.row + 16 * chunk;
        const int32_t rows = (int32_t)tile.rows - 16 * (int32_t)chunk;
        if (rows <= 0) return;
        if (a.vector == 16 && tile.column + WIDE <= a.k) {
            uint8_t* to = out + first * a.out_stride;
            const offset_t step = threads / 8 * a.out_stride;
#pragma unroll
            for (int i = 0; i < passes; ++i, to += step) {
                store_all(to, sixteen_rows(first + i * (threads / 8), chunk));
            }
            return;
        }
#pragma unroll 1
        for (int i = 0; i < passes; ++i) {
            const uint32_t column = first + i * (threads / 8);
            if (tile.column + column >= a.k) return;
            if (a.vector == 16) store_all(out + column * a.out_stride, sixteen_rows(column, chunk));
            else store_some(out + column * a.out_stride, sixteen_rows(column, chunk), rows, a.vector);
        }
    }

    static __device__ __forceinline__ void store_all(uint8_t* to, uint4 rows) {
        const uint32_t w[4] = {rows.x, rows.y, rows.z, rows.w};
        store<16>(to, w);
    }

    __device__ __forceinline__ uint4 sixteen_rows(uint32_t column, uint32_t chunk) const {
        return *reinterpret_cast<const uint4*>(words + column / width * stride + column % width * QUADS + 4 * chunk);
    }
};

// Output scales of four neighbouring columns.
__device__ __forceinline__ void store_scales(const ColumnArguments& a, const ColumnTile& tile, uint32_t column,
                                             uint32_t bytes) {
    if (tile.column + column >= a.k) return;
    *reinterpret_cast<uint32_t*>(a.out_scales + tile.segment * a.k + tile.column + column) = bytes;
}

}  // namespace refnum
