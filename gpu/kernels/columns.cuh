// Windows of an output's columns: which rows a CTA has, which blocks of experts' rows meet them, and the way out through
// shared memory. Device only; no arithmetic on values.
//
// A CTA has rows that begin at a multiple of its window's height, wherever experts begin: so every store is of 16 bytes
// that lie so, and no sector of the output is written by two CTAs. A block of rows of one expert (a *segment*) that
// reaches beyond the window gets its bytes in every window that it meets, and has its scales written by the one in which
// it begins. Without RAGGED all experts but the last are whole segments: then segments lie as if there were one expert.
//
// A thread holds four neighbouring rows. After `transpose_bytes` each of its words is four rows of one column; the
// words of a column lie side by side in shared memory, and leave as 16-byte stores of sixteen rows.
#pragma once

#include "memory.cuh"

// How a launch is cut (gpu/ops/columns.py chooses): column tiles that neighbouring CTAs take of the same rows (0: all), and
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
// Windows below each other that a CTA walks, and whether it fetches a segment while it turns the one above.
#ifndef STRIP
#define STRIP 1
#endif
#ifndef AHEAD
#define AHEAD 0
#endif
// Bytes of a column that a CTA which walks stores at the same time: 32, 64 or 128.
#ifndef LINE
#define LINE 32
#endif
// Whether segments may begin anywhere.
#ifndef RAGGED
#define RAGGED 0
#endif
// Without RAGGED: whether windows are the segments of several experts, which begin at multiples of 32 (1) or, for `amax`, at any
// row of columns of whole sixteens (2): then see column_seams.cuh.
#ifndef SPLIT
#define SPLIT 0
#endif
// CTAs of one column tile and windows below each other that store their columns at the same time.
#ifndef CLUSTER
#define CLUSTER 1
#endif
#if CLUSTER > 1 && __CUDA_ARCH__ >= 900
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTERED
#endif

namespace refnum {

constexpr int WINDOWS = 512, EXPERTS = 320;  // of one launch by splits of the host
constexpr int TALL = 128, QUADS = TALL / 4;
constexpr uint32_t VECTORS = 1, SCALES = 2;  // bits of `aligned`: codes by 16 bytes, a tile's scales of a row in one copy

// The one parameter of every column kernel (gpu/ops/columns.py has its mirror). Strides are in bytes. One expert follows from
// `m`; several (RAGGED) lie in `ends` and what follows it, or, by splits on the device, in `table` in the same order: expert e has
// the rows ends[e] to ends[e + 1] from the launch's first window on, segments from number segments[e] on; a window begins
// in expert at[window]. The first expert of a launch may begin before it.
struct ColumnArguments {
    const uint8_t *x, *scales;
    uint8_t *rows, *row_scales;  // outputs of kernels that write rows too
    uint8_t *out, *out_scales;
    const uint8_t* splits;  // on the device, or none
    int32_t* table;
    offset_t x_stride, scale_stride, out_stride, split_stride, k, m, first_window;
    uint32_t windows;  // of this launch
    uint32_t tiles;    // across the columns
    uint32_t aligned;  // which inputs can be read by vectors
    uint32_t vector;   // bytes that an output store may have: 16, 4 or 1
    uint32_t experts;
    uint32_t blocks;   // rows of `out_scales`
    uint32_t tall, height;  // rows of a segment and of a window
    int32_t split_bytes;    // of an item of `splits`, negative when signed
    int32_t ends[EXPERTS + 1];
    uint32_t segments[EXPERTS];
    uint16_t at[WINDOWS];

    __device__ __forceinline__ int32_t end(uint32_t i) const { return table ? __ldg(table + i) : ends[i]; }
    __device__ __forceinline__ uint32_t segment(uint32_t expert) const {
        return table ? (uint32_t)__ldg(table + experts + 1 + expert) : segments[expert];
    }
    __device__ __forceinline__ uint32_t expert_at(uint32_t window) const {
        return table ? (uint32_t)__ldg(table + 2 * experts + 1 + window) : at[window];
    }
};

// Rows of one expert that share their columns' bytes: counted from the first row of a window that they meet; the row of
// the scales.
struct Segment {
    int32_t first, end;
    uint32_t number;

    __device__ __forceinline__ bool has(uint32_t row) const { return (int32_t)row >= first && (int32_t)row < end; }
};

// The rows of this CTA, a window or a strip of them; none behind the last column and the last window.
struct ColumnTile {
    offset_t row, column;
    uint32_t window;  // of the launch
    uint32_t rows;    // that exist
    uint32_t held;    // that belong to experts, the first ones
    uint32_t skew;    // SPLIT 2: the first ones that do not, down from a multiple of 32
};

template <int height>
__device__ __forceinline__ ColumnTile window_tile(const ColumnArguments& a, uint32_t window, uint32_t column) {
    if (column >= a.tiles || window >= a.windows) return {0, 0, 0, 0, 0, 0};
    if (SPLIT) {
        const uint32_t number = (uint32_t)a.first_window + window, expert = a.at[window];
        const int32_t row = a.ends[expert] + (int32_t)(number - a.segments[expert]) * height;
        const uint32_t rows = (uint32_t)min(a.ends[expert + 1] - row, height);
        const uint32_t skew = SPLIT == 2 ? (uint32_t)row % 32 : 0;
        return {row - skew, (offset_t)column * WIDE, number, skew + rows, skew + rows, skew};
    }
    const offset_t row = RAGGED ? (a.first_window + window) * height : (offset_t)window * height;
    const uint32_t most = STRIP == 1 ? height : min(a.windows - window, (uint32_t)STRIP) * height;
    const uint32_t rows = (uint32_t)min(a.m - row, (offset_t)most);
    if (!RAGGED || !a.table) return {row, (offset_t)column * WIDE, window, rows, rows, 0};
    const int32_t held = max(min(a.end(a.experts) - (int32_t)window * height, (int32_t)rows), 0);
    return {row, (offset_t)column * WIDE, window, rows, (uint32_t)held, 0};
}

// Across the grid go strips of STRIP windows, CLUSTER at a time, ACROSS column tiles of each; down go the stripes of ACROSS column
// tiles. `cta`: across the grid.
template <int height>
__device__ __forceinline__ ColumnTile column_tile(const ColumnArguments& a, uint32_t cta) {
    const uint32_t across = ACROSS ? ACROSS : a.tiles, number = cta / CLUSTER, row = number / across;
    return window_tile<height>(a, (row * CLUSTER + cta % CLUSTER) * STRIP, blockIdx.y * across + (number - row * across));
}

// Walks the segments of at most `tall` rows that meet a window, from the one that holds its row `row` on.
template <int height, int tall>
struct Segments {
    const ColumnArguments& a;
    int32_t origin, held, last;  // the window's first row, from the launch's; its rows of experts; its expert's end
    uint32_t expert;
    Segment now;

    __device__ __forceinline__ Segments(const ColumnArguments& arguments, const ColumnTile& tile, int32_t row = 0)
        : a(arguments), origin((int32_t)tile.window * height), held((int32_t)tile.held), last(held), expert(0),
          now{held, held, ~0u} {
        if (row >= held) return;
        int32_t start = 0;
        uint32_t number = (uint32_t)(a.first_window + tile.window) * (height / tall);
        if (RAGGED) {
            expert = a.expert_at(tile.window);
            while (a.end(expert + 1) <= origin + row) ++expert;
            start = a.end(expert) - origin;
            last = a.end(expert + 1) - origin;
            number = a.segment(expert);
        }
        const uint32_t whole = (uint32_t)(row - start) / tall;
        take(start + (int32_t)whole * tall, number + whole);
    }
    __device__ __forceinline__ void take(int32_t first, uint32_t number) {
        now = {first, min(first + tall, last), number};
    }
    __device__ __forceinline__ bool some() const { return now.first < held; }
    __device__ __forceinline__ void next() {
        if (now.end >= held) {
            now = {held, held, ~0u};
        } else if (!RAGGED || now.end < last) {
            take(now.end, now.number + 1);
        } else {
            do last = a.end(++expert + 1) - origin; while (last <= now.end);
            take(now.end, a.segment(expert));
        }
    }
    // `next` that many times.
    __device__ __forceinline__ void skip(uint32_t count) {
#pragma unroll 1
        while (some()) {
            const uint32_t left = (uint32_t)(last - now.first + tall - 1) / tall;
            if (count < left) take(now.first + (int32_t)count * tall, now.number + count);
            if (count < left && some()) return;
            if (count < left || last >= held) break;
            count -= left;
            const int32_t first = last;
            do last = a.end(++expert + 1) - origin; while (last <= first);
            take(first, a.segment(expert));
        }
        now = {held, held, ~0u};
    }
};

// Rows of segments that meet a window and lie before and behind it.
struct Edges {
    uint32_t before, behind;

    __device__ __forceinline__ bool some() const { return before + behind != 0; }
};
template <int height, int tall>
__device__ __forceinline__ Edges window_edges(const ColumnArguments& a, const ColumnTile& tile) {
    if (!RAGGED || tile.held == 0) return {0, 0};
    const Segments<height, tall> first(a, tile), last(a, tile, (int32_t)tile.held - 1);
    return {(uint32_t)max(-first.now.first, 0), (uint32_t)max(last.now.end - height, 0)};
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

// Zeros for rows of no expert, from row `from` of a CTA's rows on, `codes` of them a byte: all threads.
template <int threads, int codes>
__device__ __forceinline__ void clear_rows(const ColumnArguments& a, const ColumnTile& tile, int32_t from) {
    const uint32_t chunk = threadIdx.x % 8;
    const uint32_t none[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (uint32_t column = threadIdx.x / 8; column < WIDE && tile.column + column < a.k; column += threads / 8) {
        uint8_t* to = a.out + (tile.column + column) * a.out_stride + tile.row / codes;
#pragma unroll 1
        for (int32_t row = from + 16 * codes * (int32_t)chunk; row < (int32_t)tile.rows; row += 128 * codes) {
            if (a.vector == 16) store<16>(to + row / codes, none);
            else store_some(to + row / codes, make_uint4(0, 0, 0, 0), ((int32_t)tile.rows - row) / codes, a.vector);
        }
    }
}

// Output scales of four neighbouring columns, unless there is no row for them.
__device__ __forceinline__ void store_scales(const ColumnArguments& a, uint32_t segment, offset_t column,
                                             uint32_t bytes) {
    if (column >= a.k || (RAGGED && segment >= a.blocks)) return;
    *reinterpret_cast<uint32_t*>(a.out_scales + (offset_t)segment * a.k + column) = bytes;
}

// The same of eight columns.
__device__ __forceinline__ void store_scales(const ColumnArguments& a, uint32_t segment, offset_t column, Table bytes) {
    if (column >= a.k || (RAGGED && segment >= a.blocks)) return;
    const uint32_t two[2] = {bytes.low, bytes.high};
    store<8>(a.out_scales + (offset_t)segment * a.k + column, two);
}

}  // namespace refnum
