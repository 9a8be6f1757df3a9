// What a rotation is given, and its groups along rows: a thread has a group of a row, as a block of NVFP4 (clause N22).
// Groups down columns are in rotation_columns.cuh. Device only.
#pragma once

#include "nvfp4_memory.cuh"
#include "rotation_tile.cuh"

// Threads of a multiprocessor, which the compiler keeps registers for.
#ifndef RESIDENT
#define RESIDENT 768
#endif

namespace refnum {

// The one parameter of the rotations (gpu/ops/hadamard.py has its mirror). `chunks`, `per_row` and `rows` and `columns`
// of the scales count groups as the result has them: for groups down columns a row of the result is a column of the
// input.
struct RotationArguments : Nvfp4Arguments {
    uint32_t signs;
    int32_t rotation;
    uint32_t m, k;  // rows and columns of the input
};

constexpr uint32_t WARP = 32, WARPS = THREADS / WARP;

// A group along rows; one that does not exist is zeros.
template <int kind, bool flat>
__device__ __forceinline__ void load_group(const RotationArguments& a, const Place<flat>& place, uint32_t* words) {
    constexpr int bytes = 4 * NVFP4_WORDS<kind>;
#pragma unroll
    for (int i = 0; i < bytes / 4; ++i) words[i] = 0;
    if (place.exists) load<bytes>(nvfp4_input(a, place, bytes), flat || a.aligned, words);
}

// Ends what is started together, and waits for all but the last ones of those.
__device__ __forceinline__ void commit_groups() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int last>
__device__ __forceinline__ void await_groups() {
    asm volatile("cp.async.wait_group %0;" : : "n"(last) : "memory");
}

// Shared memory of the tiles of a CTA: `count` a warp, and this warp's.
template <int count>
constexpr int CTA_VECTORS = WARPS * count * TILE_VECTORS;
template <int count>
__device__ __forceinline__ TileThread own_tiles(const RotationArguments& a, const uint4* all) {
    return tile_thread(a.signs, all + threadIdx.x / WARP * (count * TILE_VECTORS));
}
// The next tile of a warp.
__device__ __forceinline__ TileThread next_tile(TileThread thread, int i) {
    constexpr int bytes = 16 * TILE_VECTORS;
    thread.own += i * bytes, thread.fragment += i * bytes, thread.piece += i * bytes;
    return thread;
}

// Starts to copy a group of this thread along rows to its place in shared memory; one that does not exist is any. Its
// second half finds the sectors of the first in L1.
template <bool flat>
__device__ __forceinline__ void start_group(const RotationArguments& a, const Place<flat>& place, uint32_t own) {
    if (flat || a.aligned) {
        const uint8_t* p = place.exists ? nvfp4_input(a, place, 32) : a.x;
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" : : "r"(own), "l"(p) : "memory");
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" : : "r"(own ^ 16), "l"(p + 16) : "memory");
    } else {
        uint32_t w[GROUP / 2];
        load_group<BFLOAT16, flat>(a, place, w);
        put_group(own, w);
    }
}

// A tile, rotated in shared memory; `words`: the thread's group, before and after.
__device__ __forceinline__ void rotate_whole(const RotationArguments& a, const TileThread& tile, uint32_t* words) {
    put_group(tile.own, words);
    rotate_tile(tile, a.signs, a.rotation, words);
    get_group(tile.own, words);
    __syncwarp();  // other groups come to its place next
}

// All groups of a warp along rows, in turn, rotated. The next ones are on their way meanwhile, the first ones from the
// start.
#ifndef STAGES
#define STAGES 2
#endif
constexpr int AHEAD = STAGES;
template <bool flat>
struct RowTiles {
    static_assert(UNROLL <= 32, "a bit for each tile");
    const RotationArguments& a;
    TileThread tiles;
    uint64_t first;
    uint32_t left, thread, vector, vectors, half;
    const uint8_t* x;
    __device__ __forceinline__ RowTiles(const RotationArguments& of, const uint4* all)
        : a(of), tiles(own_tiles<AHEAD>(of, all)) {
        first = (uint64_t)blockIdx.x * (THREADS * UNROLL);
        const uint64_t behind_first = a.chunks - first;
        left = behind_first < THREADS * UNROLL ? (uint32_t)behind_first : THREADS * UNROLL;
        const uint32_t lane = threadIdx.x % WARP;
        thread = settled(threadIdx.x);
        // Contiguous groups are copied by vectors of neighbouring threads, two of a group.
        vector = settled(2 * threadIdx.x - lane), vectors = 2 * left - 1;
        half = settled(tiles.own - 32 * lane - 16 * (lane >> 2 & 1) + 16 * (lane ^ (lane >> 3 & 1)));
        x = flat ? settled(a.x + first * 32) : a.x;
#pragma unroll
        for (int u = 0; u < AHEAD && left; ++u) start(u);
    }
    __device__ __forceinline__ void start(int u) const {
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
    }
    // `taken(behind, tile, fragments, sums)` is asked first: the sums of the warp's groups, which lie `behind` the
    // first ones, are spread over it. Tiles to which it says no are read again at the end, and `found(place, words)`
    // gets their groups.
    template <class Taken, class Found>
    __device__ __forceinline__ void rotated(const Taken& taken, const Found& found) const {
        if (left == 0) return;
        const uint32_t lane = threadIdx.x % WARP;
        // From this warp's first one on: uniform.
        const uint32_t groups = __shfl_sync(~0u, left - min(left, threadIdx.x - lane), 0);
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
            rotate_whole(a, tiles, words);
            if (place.exists) found(place, words);
        }
    }
};

// The same of float32, whose groups each thread rotates by itself.
template <bool flat>
struct RowGroups {
    const RotationArguments& a;
    __device__ __forceinline__ RowGroups(const RotationArguments& of, const uint4*) : a(of) {}
    template <class Taken, class Found>
    __device__ __forceinline__ void rotated(const Taken&, const Found& found) const {
#pragma unroll 1
        for (int u = 0; u < UNROLL; ++u) {
            const Place<flat> place = nvfp4_place<flat>(a, u);
            if (!place.exists) return;
            uint32_t w[GROUP], words[GROUP / 2];
            load_group<FLOAT32, flat>(a, place, w);
            rotate_group<FLOAT32, 8>(w, a.signs, a.rotation, words);
            found(place, words);
        }
    }
};
template <int kind, bool flat>
struct Rows : RowGroups<flat> {
    using RowGroups<flat>::RowGroups;
};
template <bool flat>
struct Rows<BFLOAT16, flat> : RowTiles<flat> {
    using RowTiles<flat>::RowTiles;
};

}  // namespace refnum
