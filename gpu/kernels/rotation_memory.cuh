// Where the groups of a rotation lie, and how they are read (clause N22). Device only.
//
// Along rows a thread has a group of a row, as a block of NVFP4. Down columns a warp has 32 neighbouring columns of a
// group of 16 rows, so that each of its loads is a piece of a row; the warps of a CTA have groups one below the other.
#pragma once

#include "hadamard.cuh"
#include "nvfp4_memory.cuh"

namespace refnum {

// The one parameter of the rotations (gpu/ops/hadamard.py has its mirror). `chunks`, `per_row` and `rows` and `columns` of
// the scales count groups as the result has them: for groups down columns a row of the result is a column of the input.
struct RotationArguments : Nvfp4Arguments {
    uint32_t signs;
    int32_t rotation;
    uint32_t m, k;  // rows and columns of the input
};

constexpr uint32_t WARP = 32, GROUPS_DOWN = THREADS / WARP;  // of a CTA

// A group of this thread: its number, and its row and place in the row, among the groups of the result.
struct GroupPlace {
    bool exists;
    uint64_t number;
    uint32_t row, column;
};

template <bool down>
__device__ __forceinline__ GroupPlace group_place(const RotationArguments& a) {
    GroupPlace place;
    if (down) {
        const uint32_t across = (a.k + WARP - 1) / WARP;  // of the tiles of CTAs
        place.row = blockIdx.x % across * WARP + threadIdx.x % WARP;
        place.column = blockIdx.x / across * GROUPS_DOWN + threadIdx.x / WARP;
        place.exists = place.row < a.k && place.column < a.per_row;
        place.number = (uint64_t)place.row * a.per_row + place.column;
        return place;
    }
    const Place<false> found = nvfp4_place<false>(a, 0);
    place.exists = found.exists, place.number = found.number;
    place.row = (uint32_t)found.row, place.column = found.column;
    return place;
}

// A group as words of its kind; rows behind the last are +0.
template <int kind, bool down>
__device__ __forceinline__ void load_group(const RotationArguments& a, const GroupPlace& place, uint32_t* words) {
    constexpr int size = kind == FLOAT32 ? 4 : 2;
    if (down) {
        const uint8_t* p = a.x + (offset_t)place.column * GROUP * a.x_stride + (offset_t)place.row * size;
        uint32_t loaded[GROUP] = {};
#pragma unroll
        for (int i = 0; i < GROUP; ++i) {
            if (place.column * GROUP + i < a.m) load<size>(p + i * a.x_stride, a.aligned, loaded + i);
        }
#pragma unroll
        for (int i = 0; i < NVFP4_WORDS<kind>; ++i) {
            words[i] = kind == FLOAT32 ? loaded[i] : permute(loaded[2 * i % GROUP], loaded[(2 * i + 1) % GROUP], 0x5410);
        }
        return;
    }
    load<GROUP * size>(a.x + (offset_t)place.row * a.x_stride + (offset_t)place.column * (GROUP * size), a.aligned, words);
}

// The rotated group of this thread.
template <int kind, int digits, bool down>
__device__ __forceinline__ void load_rotated(const RotationArguments& a, const GroupPlace& place, uint32_t* words) {
    uint32_t group[NVFP4_WORDS<kind>];
    load_group<kind, down>(a, place, group);
    rotate_group<kind, digits>(group, a.signs, a.rotation, words);
}

}  // namespace refnum
