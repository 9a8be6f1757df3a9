// Float [M, K] -> its groups of 16 rotated, bfloat16 or float32 (clause N22).
#include "rotation_columns.cuh"

namespace refnum {

// Along rows, to bfloat16, and to float32, each thread by itself.
template <int kind, bool flat>
__device__ __forceinline__ void rotate_rows(const RotationArguments& a) {
    __shared__ uint4 tiles[CTA_VECTORS<AHEAD>];
    uint8_t* out = settled(a.out + ((uint64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x / WARP * WARP) * 32 + threadIdx.x % WARP * 8);
    const auto taken = [&](uint32_t behind, const TileThread& tile, const Fragments&, const TileSums& sums) {
        uint32_t words[GROUP / 2];
        get_group(tile.own, words);
        if (!sums_decide(a.rotation, words, sums)) return false;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            uint32_t piece[2];
            rotated_piece(sums, n, piece);
            store<8>(out + behind * 32 + 256 * n, piece);
        }
        return true;
    };
    const Rows<kind, flat> rows(a, tiles);
    rows.rotated(taken, [&](const Place<flat>& place, const uint32_t* words) { store<32>(a.out + place.number * 32, words); });
}
template <int kind, bool flat>
__device__ __forceinline__ void rotate_rows_wide(const RotationArguments& a) {
#pragma unroll 1
    for (int u = 0; u < UNROLL; ++u) {
        const Place<flat> place = nvfp4_place<flat>(a, u);
        if (!place.exists) return;
        uint32_t w[NVFP4_WORDS<kind>], words[GROUP];
        load_group<kind, flat>(a, place, w);
        rotate_group<kind, 24>(w, a.signs, a.rotation, words);
        store<64>(a.out + place.number * 64, words);
    }
}

// Down columns, a group of a column a thread.
template <int kind, int digits>
__device__ __forceinline__ void rotate_columns(const RotationArguments& a) {
    constexpr int size = digits == 24 ? 4 : 2, item = kind == FLOAT32 ? 4 : 2;
    const uint32_t across = (a.k + WARP - 1) / WARP, column = blockIdx.x % across * WARP + threadIdx.x % WARP;
#pragma unroll 1
    for (int u = 0; u < STEPS_DOWN; ++u) {
        const uint32_t group = blockIdx.x / across * GROUPS_DOWN + u * WARPS + threadIdx.x / WARP;
        if (column >= a.k || group >= a.per_row) return;
        uint32_t w[GROUP], words[ROTATED_WORDS<digits>];
        const uint8_t* x = a.x + (offset_t)group * GROUP * a.x_stride + (offset_t)column * item;
#pragma unroll
        for (int i = 0; i < GROUP; ++i) {
            w[i] = 0;
            if (group * GROUP + i < a.m) load<item>(x + i * a.x_stride, a.aligned, w + i);
        }
#pragma unroll
        for (int i = 0; i < GROUP / 2 && kind != FLOAT32; ++i) w[i] = permute(w[2 * i], w[2 * i + 1], 0x5410);
        rotate_group<kind, digits>(w, a.signs, a.rotation, words);
        uint8_t* p = a.out + ((uint64_t)group * GROUP * a.k + column) * size;
#pragma unroll
        for (int i = 0; i < GROUP; ++i) {
            const uint32_t word = digits == 24 ? words[digits == 24 ? i : 0] : words[i / 2] >> (16 * (i % 2)) & 0xFFFF;
            store<size>(p + (uint64_t)i * a.k * size, &word);
        }
    }
}

// Down columns of bfloat16 by warps, to bfloat16.
__device__ __forceinline__ void rotate_squares(const RotationArguments& a) {
    __shared__ uint4 all[CTA_VECTORS<2>];
    const TileThread tiles = own_tiles<2>(a, all);
    const Corner<BFLOAT16> corner(a);
#pragma unroll 1
    for (int u = 0; u < STEPS_DOWN; ++u) {
        const uint32_t group = corner.group + u * WARPS + threadIdx.x / WARP;
        if (group >= a.per_row) return;
        const Square square(corner.column, group);
        uint32_t rows[4][4] = {};
        load_square(a, square, rows);
        put_square(tiles.piece, rows);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const TileThread tile = next_tile(tiles, i);
            uint32_t w[GROUP / 2];
            get_group(tile.own, w);
            rotate_tile(tile, a.signs, a.rotation, w);
        }
        get_square(tiles.piece, rows);
        __syncwarp();
        uint8_t* p = a.out + ((uint64_t)square.top * a.k + square.column) * 2;
#pragma unroll
        for (int i = 0; i < 4; ++i, p += (uint64_t)a.k * 2) {
            if (square.column < a.k && a.k % 8 == 0) {
                store<16>(p, rows[i]);
                continue;
            }
#pragma unroll
            for (int c = 0; c < 8; ++c) {
                const uint32_t word = rows[i][c / 2] >> (16 * (c % 2)) & 0xFFFF;
                if (square.column + c < a.k) store<2>(p + 2 * c, &word);
            }
        }
    }
}

}  // namespace refnum

#define KERNEL(name, ...)                                                                                             \
    extern "C" __global__ __launch_bounds__(THREADS, RESIDENT / THREADS) void name(const __grid_constant__ refnum::RotationArguments a) { \
        refnum::__VA_ARGS__(a);                                                                                       \
    }
#define KERNELS(name, rows, kind)                   \
    KERNEL(name, rows<refnum::kind, false>)         \
    KERNEL(name##_flat, rows<refnum::kind, true>)
KERNELS(rotate_float32_float32, rotate_rows_wide, FLOAT32)
KERNELS(rotate_float32_bfloat16, rotate_rows_wide, BFLOAT16)
KERNELS(rotate_bfloat16_float32, rotate_rows, FLOAT32)
KERNELS(rotate_bfloat16_bfloat16, rotate_rows, BFLOAT16)
KERNEL(rotate_float32_float32_down, rotate_columns<refnum::FLOAT32, 24>)
KERNEL(rotate_float32_bfloat16_down, rotate_columns<refnum::BFLOAT16, 24>)
KERNEL(rotate_bfloat16_float32_down, rotate_columns<refnum::FLOAT32, 8>)
KERNEL(rotate_bfloat16_bfloat16_down, rotate_squares)
