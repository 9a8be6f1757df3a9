// Groups of a rotation down columns, and how they are read (clause N22). Device only.
//
// A warp has 64 neighbouring columns of a group of 16 rows of bfloat16, whose threads read eight columns of four rows,
// or 32 columns of float32, a thread each; the warps of a CTA have groups one below the other.
#pragma once

#include "rotation_memory.cuh"

namespace refnum {

// The steps of a warp, and the groups of a CTA, whose codes shared memory has room for.
constexpr int STEPS_DOWN = UNROLL * WARPS < 32 ? UNROLL : 32 / WARPS;
constexpr uint32_t GROUPS_DOWN = WARPS * STEPS_DOWN;
template <int kind>
constexpr uint32_t ACROSS = kind == BFLOAT16 ? 2 * WARP : WARP;  // columns of a warp

// The first column of this CTA, and the first of its groups, counted down.
template <int kind>
struct Corner {
    uint32_t column, group;
    __device__ __forceinline__ explicit Corner(const RotationArguments& a) {
        const uint32_t across = (a.k + ACROSS<kind> - 1) / ACROSS<kind>, down = blockIdx.x / across;
        column = (blockIdx.x - down * across) * ACROSS<kind>;
        group = down * GROUPS_DOWN;
    }
};

// The column of a row of a warp's tiles: neighbours lie eight rows from each other.
__device__ __forceinline__ uint32_t tile_column(uint32_t row) { return (row & 7) << 3 | row >> 3; }

// One column of 16 rows of float32; rows behind the last are +0.
__device__ __forceinline__ void load_column(const RotationArguments& a, uint32_t column, uint32_t group,
                                            uint32_t* words) {
    const uint8_t* p = a.x + (offset_t)group * GROUP * a.x_stride + (offset_t)column * 4;
#pragma unroll
    for (int i = 0; i < GROUP; ++i) {
        words[i] = 0;
        if (column < a.k && group * GROUP + i < a.m) load<4>(p + i * a.x_stride, a.aligned, words + i);
    }
}

// This thread's eight columns of four rows: column `from` on, of the rows from `top` on.
struct Square {
    uint32_t column, top;
    __device__ __forceinline__ Square(uint32_t first_column, uint32_t group) {
        column = first_column + (threadIdx.x % WARP >> 2 << 3);
        top = group * GROUP + 4 * (threadIdx.x & 3);
    }
};
__device__ __forceinline__ void load_square(const RotationArguments& a, const Square& square, uint32_t (&w)[4][4]) {
    const uint8_t* p = a.x + (offset_t)square.top * a.x_stride + (offset_t)square.column * 2;
    const uint32_t rows = square.column < a.k && square.top < a.m ? a.m - square.top : 0;
    if (a.aligned) {  // then columns are a multiple of eight
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i, p += a.x_stride) {
            if (i < rows) load_vector<16>(p, w[i]);
        }
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i, p += a.x_stride) {
#pragma unroll
        for (uint32_t c = 0; c < 8; ++c) {
            uint32_t lane = 0;
            if (i < rows && square.column + c < a.k) load<2>(p + 2 * c, false, &lane);
            w[i][c / 2] |= lane << (16 * (c % 2));
        }
    }
}

// Fragments of 16 columns of a square of 16 rows of numbers, 128 bytes a row, transposed as they are loaded.
__device__ __forceinline__ void get_columns(uint32_t at, uint32_t* w) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
}

// 16 bytes into shared memory; zeros if they do not exist, and nothing is read.
__device__ __forceinline__ void start_vector(uint32_t to, const uint8_t* from, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 : : "r"(to), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

// The squares of a warp, 16 rows of 64 columns, copied to shared memory ahead where they are aligned; rows behind the
// last are +0. A row's vectors lie so that the eight rows of a matrix meet different banks.
constexpr int SQUARES = 2;
constexpr uint32_t SQUARE_BYTES = 2048, SQUARE_VECTORS = SQUARE_BYTES / 16;
struct Squares {
    uint32_t to, from, base;
    __device__ __forceinline__ explicit Squares(const uint4* all) {
        const uint32_t lane = threadIdx.x % WARP, row = (lane & 7) + 8 * (lane >> 4);
        base = settled((uint32_t)__cvta_generic_to_shared(all + threadIdx.x / WARP * (SQUARES * SQUARE_VECTORS)));
        to = settled(base + 128 * (lane / 8) + 16 * (lane % 8 ^ lane / 8));
        from = settled(base + 128 * row + 16 * ((lane >> 3 & 1) ^ (lane & 7)));
    }
    // Of this thread's vector of the rows 4 * i to 4 * i + 3.
    __device__ __forceinline__ uint32_t place(uint32_t stage, uint32_t i) const {
        return (to ^ 64 * (i & 1)) + 512 * i + stage * SQUARE_BYTES;
    }
    __device__ __forceinline__ void start(const RotationArguments& a, uint32_t first_column, uint32_t group,
                                          uint32_t stage) const {
        const uint32_t lane = threadIdx.x % WARP, column = first_column + lane % 8 * 8, top = group * GROUP + lane / 8;
        const uint8_t* p = a.x + (offset_t)top * a.x_stride + (offset_t)column * 2;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i, p += 4 * a.x_stride) {
            const bool exists = column < a.k && top + 4 * i < a.m;
            start_vector(place(stage, i), exists ? p : a.x, exists);
        }
    }
    // Fragments of the columns 32 * i on.
    __device__ __forceinline__ void get(uint32_t stage, int i, Fragments& w) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) get_columns((from ^ (64 * i + 32 * half)) + stage * SQUARE_BYTES, w[half]);
    }
    // The column 32 * i + lane.
    __device__ __forceinline__ void get_column(uint32_t stage, int i, uint32_t* words) const {
        const uint32_t lane = threadIdx.x % WARP, vector = 4 * i + lane / 8;
#pragma unroll
        for (uint32_t row = 0; row < GROUP; row += 2) {
            uint16_t two[2];
#pragma unroll
            for (uint32_t k = 0; k < 2; ++k) {
                const uint32_t at = base + stage * SQUARE_BYTES + 128 * (row + k) +
                                    16 * (vector ^ ((row + k) & 7)) + 2 * (lane % 8);
                asm volatile("ld.shared.u16 %0, [%1];" : "=h"(two[k]) : "r"(at) : "memory");
            }
            words[row / 2] = two[0] | (uint32_t)two[1] << 16;
        }
    }
};

// The thread's numbers of the column 32 * i + lane, and the sums of the tile that it is in.
struct OwnColumn {
    const TileThread& tile;
    const Squares& squares;
    uint32_t stage;
    int i;
    __device__ __forceinline__ void operator()(uint32_t* words) const { squares.get_column(stage, i, words); }
    __device__ __forceinline__ void sums(TileSums& sums) const {
        Fragments w;
        squares.get(stage, i, w);
        fragment_sums(tile, w, sums);
    }
};

// Four rows of eight columns <-> the pieces of two tiles, four numbers of a column each.
__device__ __forceinline__ void put_square(uint32_t piece, const uint32_t (&w)[4][4]) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
        const uint32_t selector = c % 2 ? 0x7632 : 0x5410;
        put_pair(piece + 256 * c, permute(w[0][c / 2], w[1][c / 2], selector),
                 permute(w[2][c / 2], w[3][c / 2], selector));
    }
}
__device__ __forceinline__ void get_square(uint32_t piece, uint32_t (&w)[4][4]) {
#pragma unroll
    for (int c = 0; c < 8; c += 2) {
        uint32_t left[2], right[2];
        get_pair(piece + 256 * c, left[0], left[1]);
        get_pair(piece + 256 * (c + 1), right[0], right[1]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            w[2 * i][c / 2] = permute(left[i], right[i], 0x5410);
            w[2 * i + 1][c / 2] = permute(left[i], right[i], 0x7632);
        }
    }
}

// Shared memory of a CTA's squares, and of the two tiles a warp that `columns_rotated` takes.
template <int kind>
constexpr int DOWN_VECTORS = kind != BFLOAT16 ? 1 : (int)(SQUARES * WARPS * SQUARE_VECTORS) > CTA_VECTORS<2>
                                 ? (int)(SQUARES * WARPS * SQUARE_VECTORS) : CTA_VECTORS<2>;

// Starts to copy the warp's square of a step, if there is one.
__device__ __forceinline__ void start_squares(const RotationArguments& a, const Corner<BFLOAT16>& corner,
                                              const Squares& squares, uint32_t warp, uint32_t u) {
    const uint32_t group = corner.group + u * WARPS + warp;
    if (u < STEPS_DOWN && group < a.per_row) squares.start(a, corner.column, group, u % SQUARES);
    commit_groups();
}
// The first ones, where all are aligned.
__device__ __forceinline__ void start_columns(const RotationArguments& a, const Corner<BFLOAT16>& corner,
                                              const uint4* all) {
    const Squares squares(all);
#pragma unroll
    for (int u = 0; u < SQUARES && a.aligned; ++u) start_squares(a, corner, squares, threadIdx.x / WARP, u);
}
__device__ __forceinline__ void start_columns(const RotationArguments&, const Corner<FLOAT32>&, const uint4*) {}

// The tiles of a warp to which `taken` said no, a bit each, of aligned bfloat16; `whole`: all rows and columns of the
// CTA exist.
template <bool whole, class Found>
__device__ __forceinline__ void others_rotated(const RotationArguments& a, const Corner<BFLOAT16>& corner,
                                               const TileThread& tile, uint32_t warp, uint32_t others,
                                               const Found& found) {
#pragma unroll 1
    for (; others; others &= others - 1) {
        const uint32_t bit = __ffs(others) - 1, here = bit / 2 * WARPS + warp;
        const uint32_t column = bit % 2 * WARP + threadIdx.x % WARP;
        const uint32_t top = (corner.group + here) * GROUP;
        const uint8_t* p = a.x + (offset_t)top * a.x_stride + (offset_t)(corner.column + column) * 2;
        uint32_t words[GROUP / 2] = {};
#pragma unroll
        for (uint32_t i = 0; i < GROUP; ++i, p += a.x_stride) {
            uint32_t number = 0;
            if (whole || (corner.column + column < a.k && top + i < a.m)) load<2>(p, true, &number);
            words[i / 2] |= number << (16 * (i % 2));
        }
        if (a.rotation != ROTATION_EXACT || !rotated_in_double(a.signs, words)) rotate_whole(a, tile, words);
        found(here, column, words);
    }
}

// As `squares_rotated`, where all rows and columns of the CTA exist. Its loops are not unrolled, which was the fastest.
template <class Taken, class Found>
__device__ __forceinline__ void whole_squares_rotated(const RotationArguments& a, const Corner<BFLOAT16>& corner,
                                                      const uint4* all, const Taken& taken, const Found& found) {
    const TileThread tile = own_tiles<2 * SQUARES>(a, all);
    const Squares squares(all);
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
    const offset_t step = WARPS * GROUP * a.x_stride;
    const uint32_t top = corner.group * GROUP + (SQUARES * WARPS + warp) * GROUP + lane / 8;
    const uint8_t* next = a.x + (offset_t)top * a.x_stride + (offset_t)(corner.column + lane % 8 * 8) * 2;
    uint32_t others = 0;
#pragma unroll 1
    for (uint32_t u = 0; u < STEPS_DOWN; ++u) {
        const uint32_t stage = u % SQUARES;
        await_groups<SQUARES - 1>();
        __syncwarp();
#pragma unroll 1
        for (int i = 0; i < 2; ++i) {
            Fragments w;
            TileSums sums;
            squares.get(stage, i, w);
            fragment_sums(tile, w, sums);
            const OwnColumn own{tile, squares, stage, i};
            if (!taken(u * WARPS + warp, i * WARP, own, w, sums)) others |= kept(1u << (2 * u + i));
        }
        __syncwarp();
        const uint8_t* p = next;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i, p += 4 * a.x_stride) {
            start_vector(squares.place(stage, i), p, u + SQUARES < STEPS_DOWN);
        }
        next += step;
        commit_groups();
    }
    await_groups<0>();
    __syncwarp();
    if (others) others_rotated<true>(a, corner, own_tiles<2 * SQUARES>(a, all), warp, others, found);
}

// All groups of this CTA down columns of aligned bfloat16, in turn, those behind the last column too, after
// `start_columns`: `taken(number of the group in the CTA, first column, own column, fragments, sums)` and
// `found(number, column, words)`, as along rows.
template <class Taken, class Found>
__device__ __forceinline__ void squares_rotated(const RotationArguments& a, const Corner<BFLOAT16>& corner,
                                                const uint4* all, const Taken& taken, const Found& found) {
    static_assert(2 * STEPS_DOWN <= 32, "a bit for each tile");
    if (corner.group + GROUPS_DOWN <= a.m / GROUP && a.k - corner.column >= 2 * WARP) {
        return whole_squares_rotated(a, corner, all, taken, found);
    }
    const TileThread tile = own_tiles<2 * SQUARES>(a, all);  // where the warp's squares are, too
    const Squares squares(all);
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / WARP, 0);  // uniform
    uint32_t others = 0;
#pragma unroll SQUARES
    for (uint32_t u = 0; u < STEPS_DOWN; ++u) {
        const uint32_t here = u * WARPS + warp;
        if (corner.group + here >= a.per_row) break;
        await_groups<SQUARES - 1>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            Fragments w;
            TileSums sums;
            squares.get(u % SQUARES, i, w);
            fragment_sums(tile, w, sums);
            if (!taken(here, i * WARP, OwnColumn{tile, squares, u % SQUARES, i}, w, sums)) others |= 1u << (2 * u + i);
        }
        __syncwarp();
        start_squares(a, corner, squares, warp, u + SQUARES);
    }
    await_groups<0>();
    __syncwarp();
    others_rotated<false>(a, corner, tile, warp, others, found);
}

// The same of float32, and of bfloat16 that is not aligned, without `taken`.
template <int kind, class Found>
__device__ __forceinline__ void columns_rotated(const RotationArguments& a, const Corner<kind>& corner,
                                                const uint4* all, const Found& found) {
    const TileThread tiles = kind == BFLOAT16 ? own_tiles<2>(a, all) : TileThread{};
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll 1
    for (int u = 0; u < STEPS_DOWN; ++u) {
        const uint32_t here = u * WARPS + warp, group = corner.group + here;
        if (group >= a.per_row) return;
        if (kind == BFLOAT16) {
            uint32_t square[4][4] = {};
            load_square(a, Square(corner.column, group), square);
            put_square(tiles.piece, square);
            __syncwarp();
        }
#pragma unroll
        for (int i = 0; i < (int)(ACROSS<kind> / WARP); ++i) {
            const TileThread tile = next_tile(tiles, i);
            uint32_t w[NVFP4_WORDS<kind>], words[GROUP / 2];
            if (kind == BFLOAT16) {
                get_group(tile.own, words);
                rotate_tile(tile, a.signs, a.rotation, words);
                get_group(tile.own, words);
                found(here, tile_column(i * WARP + lane), words);
            } else {
                load_column(a, corner.column + lane, group, w);
                rotate_group<kind, 8>(w, a.signs, a.rotation, words);
                found(here, i * WARP + lane, words);
            }
        }
        __syncwarp();
    }
}

}  // namespace refnum
