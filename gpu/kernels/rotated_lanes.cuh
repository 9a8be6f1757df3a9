// Codes of NVFP4 from the sums of a rotated tile by lanes of binary16 (clauses N21 and N22.6). Device only.
//
// A factor is taken times 2**-14: a product has the size in which E2M1's 1 is binary16's smallest normal number, and so its
// code in three bits of a lane, cut off toward zero, after half of a code was added. That rounds ties away from zero; factors
// are moved as in rotated_codes.cuh.
//
// Whether the sums of a tile are exact is asked of the tile together: where the numbers are multiples of 2**e, no sum was cut
// if all of them are below 2**(e + 24). Sums bound the numbers, since the largest magnitude of a rotated group times four is
// no smaller than that of the group, and a factor bounds the sums: seven over it. So a thread holds the least of its own 16
// numbers against the least factor of the four groups that they are in; a tile that this does not prove is asked again group by
// group (rotation_tile.cuh).
#pragma once

#include "rotated_codes.cuh"

namespace refnum {

constexpr uint32_t HALF_ONE = 0x38800000, HALF_SEVEN = 0x39E00000;  // 2**-14, and 7 of these
constexpr uint32_t LEAST_SHARE = 0x32640000;                        // 14.25 * 2**-30: above 4 * 7 * (1 + 2**-8) * 2**-14 * 2**-17

typedef uint32_t Fragments[2][4];

__device__ __forceinline__ uint32_t smaller_magnitudes(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("min.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

// The power of two at or below the least magnitude of a thread's numbers, float32 bits; of a subnormal one zero.
__device__ __forceinline__ uint32_t least_power(const Fragments& w) {
    uint32_t least[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) least[i] = smaller_magnitudes(w[0][i], w[1][i]);
    uint32_t one = smaller_magnitudes(smaller_magnitudes(least[0], least[1]), smaller_magnitudes(least[2], least[3]));
    one = smaller_magnitudes(one, permute(one, one, 0x1032));
    return one & FLOAT_INF;
}

__device__ __forceinline__ uint32_t smaller_of_two(uint32_t a, uint32_t b) {
    return __float_as_uint(fminf(__uint_as_float(a), __uint_as_float(b)));
}

// Two sums, rounded, times a factor: lanes of binary16, cut off toward zero.
__device__ __forceinline__ uint32_t two_products(uint32_t low, uint32_t high, uint32_t factor) {
    const uint32_t a = multiply_floats(bfloat16_pair(0, low), factor), b = multiply_floats(bfloat16_pair(0, high), factor);
    uint32_t out;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(__uint_as_float(b)), "f"(__uint_as_float(a)));
    return out;
}

// The codes of a thread's four numbers of the groups 8n + lane / 4 and 8n + 8 + lane / 4.
__device__ __forceinline__ uint32_t lane_codes_of_two(const TileSums& sums, int n, const uint32_t* factors) {
    uint32_t codes[2];  // of the even numbers and of the odd ones: a byte each, sign above and code in bits 1 to 3
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        uint32_t products[2];
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            products[g] = two_products(sums[n / 2][0][2 * g + j], sums[n / 2][1][2 * g + j], factors[g]);
        }
        codes[j] = permute(products[0], products[1], 0x7531) + 0x01010101;
    }
    const uint32_t even = choose(codes[0] >> 1, codes[0] >> 4, 0x07070707), odd = choose(codes[1] << 3, codes[1], 0x70707070);
    return choose(even, odd, 0x0F0F0F0F);
}

// The sums of fragments.
__device__ __forceinline__ void fragment_sums(const TileThread& thread, const Fragments& w, TileSums& sums) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) rotation_step(w[half], thread.matrix[i], sums[half][i]);
    }
}

// Whether the sums of a tile round to the rotated groups, of which `words` is the thread's own: 32 threads together.
__device__ __forceinline__ bool sums_decide(int order, const uint32_t* words, const TileSums& sums) {
    uint32_t most, least;
    outer_lanes(words, most, least);
    const uint32_t cut = __ballot_sync(~0u, spans_more(most, least, NEAR));
    if (!cut) return true;
    return !__any_sync(~0u, order != ROTATION_EXACT || spans_more(most, least, CUT) || is_halfway(sums, cut));
}

// Fragments of 16 columns of a square of 16 rows of numbers, 128 bytes a row, transposed as they are loaded.
__device__ __forceinline__ void get_columns(uint32_t at, uint32_t* w) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
}

// All groups of a warp along rows, in turn, as in rotation_memory.cuh. `taken(behind, tile, fragments, sums)` says whether it took
// them, and `found(place, words)` gets the groups of the tiles that it did not take.
template <bool flat, class Taken, class Found>
__device__ __forceinline__ void tiles_coded(const RotationArguments& a, const uint4* all, const Taken& taken, const Found& found) {
    static_assert(UNROLL <= 32, "a bit for each tile");
    const TileThread tiles = own_tiles<AHEAD>(a, all, false);
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * UNROLL), behind_first = a.chunks - first;
    const uint32_t left = behind_first < THREADS * UNROLL ? (uint32_t)behind_first : THREADS * UNROLL;
    const uint32_t lane = threadIdx.x % WARP, thread = settled(threadIdx.x);
    const uint32_t vector = settled(2 * threadIdx.x - lane), vectors = 2 * left - 1;
    const uint32_t half = settled(tiles.own - 32 * lane - 16 * (lane >> 2 & 1) + 16 * (lane ^ (lane >> 3 & 1)));
    const uint8_t* x = flat ? settled(a.x + first * 32) : a.x;
    if (left == 0) return;
    const auto start = [&](int u) {
        constexpr uint32_t bytes = 16 * TILE_VECTORS;
        if (flat) {
#pragma unroll
            for (uint32_t i = 0; i < 2; ++i) {
                const uint8_t* p = x + (uint64_t)min(2 * u * THREADS + 32 * i + vector, vectors) * 16;
                const uint32_t to = half + u % AHEAD * bytes + 512 * i;
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(p) : "memory");
            }
        } else {
            start_group(a, place_of<flat>(a, first + u * THREADS + thread), next_tile(tiles, u % AHEAD).own);
        }
        commit_groups();
    };
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) start(u);
    const uint32_t groups = __shfl_sync(~0u, left - min(left, threadIdx.x - lane), 0);  // from this warp's first one on: uniform
    uint32_t others = 0;
#pragma unroll AHEAD
    for (uint32_t u = 0; u < UNROLL; ++u) {
        const TileThread tile = next_tile(tiles, u % AHEAD);
        Fragments w;
        TileSums sums;
        await_groups<AHEAD - 1>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2; ++i) get_fragments(tile.fragment + 512 * i, w[i]);
        fragment_sums(tile, w, sums);
        if (u * THREADS + WARP > groups || !taken(u * THREADS, tile, w, sums)) others |= 1u << u;
        if (u + AHEAD < UNROLL) {
            __syncwarp();
            start(u + AHEAD);
        } else {
            commit_groups();
        }
    }
    await_groups<0>();
    __syncwarp();
#pragma unroll 1
    for (; others; others &= others - 1) {
        const Place<flat> place = place_of<flat>(a, first + (__ffs(others) - 1) * THREADS + thread);
        uint32_t words[GROUP / 2];
        load_group<BFLOAT16, flat>(a, place, words);
        put_group(tiles.own, words);
        __syncwarp();
        rotate_whole(a, tiles, false, words);
        if (place.exists) found(place, words);
    }
}

// The squares of a warp, 16 rows of 64 columns, copied to shared memory ahead where they are aligned; rows behind the last are
// +0. A row's vectors lie so that the eight rows of a matrix meet different banks.
#ifndef SQUARES
#define SQUARES 2
#endif
constexpr uint32_t SQUARE_BYTES = 2048, SQUARE_VECTORS = SQUARE_BYTES / 16;
struct Squares {
    uint32_t to, from, base;
    __device__ __forceinline__ explicit Squares(const uint4* all) {
        const uint32_t lane = threadIdx.x % WARP, row = (lane & 7) + 8 * (lane >> 4);
        base = settled((uint32_t)__cvta_generic_to_shared(all + threadIdx.x / WARP * (SQUARES * SQUARE_VECTORS)));
        to = settled(base + 128 * (lane / 8) + 16 * (lane % 8 ^ lane / 8));
        from = settled(base + 128 * row + 16 * ((lane >> 3 & 1) ^ (lane & 7)));
    }
    __device__ __forceinline__ void start(const RotationArguments& a, uint32_t first_column, uint32_t group, uint32_t stage) const {
        const uint32_t lane = threadIdx.x % WARP, column = first_column + lane % 8 * 8, top = group * GROUP + lane / 8;
        const uint8_t* p = a.x + (offset_t)top * a.x_stride + (offset_t)column * 2;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i, p += 4 * a.x_stride) {
            const bool exists = column < a.k && top + 4 * i < a.m;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         : : "r"((to ^ 64 * (i & 1)) + 512 * i + stage * SQUARE_BYTES), "l"(exists ? p : a.x), "r"(exists ? 16 : 0)
                         : "memory");
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
                const uint32_t at = base + stage * SQUARE_BYTES + 128 * (row + k) + 16 * (vector ^ ((row + k) & 7)) + 2 * (lane % 8);
                asm volatile("ld.shared.u16 %0, [%1];" : "=h"(two[k]) : "r"(at) : "memory");
            }
            words[row / 2] = two[0] | (uint32_t)two[1] << 16;
        }
    }
};

// The thread's numbers of the column 32 * i + lane.
struct OwnColumn {
    const Squares& squares;
    uint32_t stage;
    int i;
    __device__ __forceinline__ void operator()(uint32_t* words) const { squares.get_column(stage, i, words); }
};

// All groups of this CTA down columns, in turn, of aligned bfloat16: `taken(number of the group in the CTA, first column, own
// column, fragments, sums)`, where `own column` gives the thread's numbers of the column `lane` further, and `found(number, column, words)`.
template <class Taken, class Found>
__device__ __forceinline__ void squares_coded(const RotationArguments& a, const Corner<BFLOAT16>& corner, const uint4* all,
                                              const Taken& taken, const Found& found) {
    static_assert(2 * STEPS_DOWN <= 32, "a bit for each tile");
    const TileThread tile = own_tiles<1>(a, all, false);
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;  // uniform
    const Squares squares(all);
    const auto start = [&](uint32_t u) {
        const uint32_t group = corner.group + u * WARPS + warp;
        if (u < STEPS_DOWN && group < a.per_row) squares.start(a, corner.column, group, u % SQUARES);
        commit_groups();
    };
#pragma unroll
    for (int u = 0; u < SQUARES; ++u) start(u);
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
            if (!taken(here, i * WARP, OwnColumn{squares, u % SQUARES, i}, w, sums)) others |= 1u << (2 * u + i);
        }
        __syncwarp();
        start(u + SQUARES);
    }
    await_groups<0>();
#pragma unroll 1
    for (; others; others &= others - 1) {
        const uint32_t bit = __ffs(others) - 1, here = bit / 2 * WARPS + warp, column = bit % 2 * WARP + lane;
        const uint32_t top = (corner.group + here) * GROUP;
        const uint8_t* p = a.x + (offset_t)top * a.x_stride + (offset_t)(corner.column + column) * 2;
        uint32_t w[GROUP / 2] = {}, words[GROUP / 2];
#pragma unroll
        for (uint32_t i = 0; i < GROUP; ++i, p += a.x_stride) {
            uint32_t number = 0;
            if (corner.column + column < a.k && top + i < a.m) load<2>(p, true, &number);
            w[i / 2] |= number << (16 * (i % 2));
        }
        rotate_group<BFLOAT16, 8>(w, a.signs, a.rotation, words);
        found(here, column, words);
    }
}

}  // namespace refnum
