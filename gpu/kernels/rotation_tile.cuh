// 32 groups of bfloat16 that a warp rotates on tensor cores (clause N22). Device only.
//
// A step of mma.sync (N19.2) adds 16 products exactly and cuts the sum to 24 digits. A quarter of the matrix with signs is
// its one operand; where a group has at most 13 binades its sums have no more digits, so nothing is cut. Of a group of at
// most 26 binades the upper 13 and the others are summed in two steps, and the sum of both is rounded once.
//
// Groups lie in shared memory, 32 bytes each, one a thread; a step takes 16 of them, each spread over four threads.
#pragma once

#include "hadamard.cuh"

namespace refnum {

constexpr int TILE = 32, TILE_VECTORS = 2 * TILE;  // groups of a tile, and its uint4

// The matrix of a step for outputs 4p and 4p + 1 as the thread's part of an operand; outputs 4p + 2 and 4p + 3 differ by
// the signs of the upper half.
struct RotationMatrix {
    uint32_t low, high;
};
__device__ __forceinline__ RotationMatrix rotation_matrix(uint32_t signs) {
    const uint32_t lane = threadIdx.x % 32, output = lane >> 3 << 2 | (lane >> 2 & 1);
    const uint32_t rows = signs ^ (output & 1 ? 0xAAAA : 0) ^ (output & 4 ? 0xF0F0 : 0) ^ (output & 8 ? 0xFF00 : 0);
    const uint32_t minus = rows >> (4 * (lane & 3));  // of the inputs 4q to 4q + 3
    const uint32_t low = (minus << 15 & 0x8000) | (minus << 30 & FLOAT_SIGN);
    const uint32_t high = (minus << 13 & 0x8000) | (minus << 28 & FLOAT_SIGN);
    return {0x3E803E80 ^ low, 0x3E803E80 ^ high};
}

// mma.m16n8k16 from +0: words of two rows -> sums of the rows' two outputs, two a row.
__device__ __forceinline__ void rotation_step(const uint2& first, const uint2& second, uint32_t low, uint32_t high,
                                              uint32_t (&sums)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
        : "r"(first.x), "r"(second.x), "r"(first.y), "r"(second.y), "r"(low), "r"(high), "r"(0));
}

// Where a group's vectors lie, and this thread's piece of the first row of a step; pieces of neighbours fill all banks.
__device__ __forceinline__ uint32_t own_vector() { return 2 * (threadIdx.x % 32) | (threadIdx.x >> 2 & 1); }
__device__ __forceinline__ uint32_t own_piece() {
    const uint32_t row = threadIdx.x % 32 >> 2, quarter = threadIdx.x & 3;
    return 4 * row + ((quarter >> 1 ^ row >> 2) << 1 | (quarter & 1));
}
constexpr int PIECES_EIGHT = 32;  // pieces of eight rows

__device__ __forceinline__ void put_group(uint4* tile, const uint32_t* w) {
    const uint32_t at = own_vector();
    tile[at] = make_uint4(w[0], w[1], w[2], w[3]);
    tile[at ^ 1] = make_uint4(w[4], w[5], w[6], w[7]);
}
__device__ __forceinline__ void get_group(const uint4* tile, uint32_t* w) {
    const uint32_t at = own_vector();
    const uint4 low = tile[at], high = tile[at ^ 1];
    w[0] = low.x, w[1] = low.y, w[2] = low.z, w[3] = low.w;
    w[4] = high.x, w[5] = high.y, w[6] = high.z, w[7] = high.w;
}

// The sums of 16 groups: this thread's four of two rows, in order.
__device__ __forceinline__ void piece_sums(const uint2* pieces, const RotationMatrix& matrix, uint32_t (&sums)[2][4]) {
    uint32_t low[4], high[4];
    const uint2 first = pieces[0], second = pieces[PIECES_EIGHT];
    rotation_step(first, second, matrix.low, matrix.high, low);
    rotation_step(first, second, matrix.low, matrix.high ^ 0x80008000u, high);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        sums[i][0] = low[2 * i], sums[i][1] = low[2 * i + 1], sums[i][2] = high[2 * i], sums[i][3] = high[2 * i + 1];
    }
}

__device__ __forceinline__ uint2 piece_of(const uint32_t* sums) {
    return make_uint2(bfloat16_pair(sums[0], sums[1]), bfloat16_pair(sums[2], sums[3]));
}

// a + b to odd: of the two float32 beside a sum that is none, the one whose last bit is set.
__device__ __forceinline__ uint32_t odd_sum(uint32_t a, uint32_t b) {
    uint32_t below, above;
    asm("add.rm.f32 %0, %1, %2;" : "=r"(below) : "r"(a), "r"(b));
    asm("add.rp.f32 %0, %1, %2;" : "=r"(above) : "r"(a), "r"(b));
    return below & 1 ? below : above;
}

constexpr int NEAR = 12, FAR = 25, TOP = 250;  // spans of one step and of two; exponent fields that cannot overflow

// A tile with a group of more than 13 binades: rare. The groups are in the tile, and their results replace them.
__device__ __noinline__ void rotate_wide_tile(uint4* tile, RotationMatrix matrix, uint32_t signs, int order) {
    uint2* pieces = reinterpret_cast<uint2*>(tile) + own_piece();
    uint32_t w[GROUP / 2], part[GROUP / 2];
    uint32_t sums[2][2][4];
    get_group(tile, w);
    const GroupSpan span = group_span<BFLOAT16>(w);
    const int32_t binades = span.top - span.low;
    const bool odd = span.top >= TOP || binades > (order == ROTATION_EXACT ? FAR : NEAR);
    const uint32_t least = both_lanes((uint32_t)(binades > NEAR && !odd ? span.top - NEAR : 0) << 7);
#pragma unroll
    for (int i = 0; i < GROUP / 2; ++i) part[i] = w[i] & lane_signs((w[i] | 0x80008000u) - least);
    put_group(tile, part);
    __syncwarp();
#pragma unroll
    for (int s = 0; s < 2; ++s) piece_sums(pieces + 2 * PIECES_EIGHT * s, matrix, sums[s]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < GROUP / 2; ++i) part[i] ^= w[i];
    put_group(tile, part);
    __syncwarp();
#pragma unroll
    for (int s = 0; s < 2; ++s) {
        uint32_t rest[2][4], both[2][4];
        piece_sums(pieces + 2 * PIECES_EIGHT * s, matrix, rest);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) both[i][j] = odd_sum(sums[s][i][j], rest[i][j]);
            pieces[PIECES_EIGHT * (2 * s + i)] = piece_of(both[i]);
        }
    }
    __syncwarp();
    if (odd) {
        rotate_group<BFLOAT16, 8>(w, signs, order, part);
        put_group(tile, part);
    }
    __syncwarp();
}

// The groups of a tile, each thread's own of them in `w`, rotated in the tile: 32 threads together.
__device__ __forceinline__ void rotate_tile(uint4* tile, const RotationMatrix& matrix, uint32_t signs, int order,
                                            const uint32_t* w) {
    const GroupSpan span = group_span<BFLOAT16>(w);
    if (__any_sync(~0u, span.top >= TOP || span.top - span.low > NEAR)) {
        rotate_wide_tile(tile, matrix, signs, order);
        return;
    }
    uint2* pieces = reinterpret_cast<uint2*>(tile) + own_piece();
    __syncwarp();
#pragma unroll
    for (int s = 0; s < 2; ++s) {
        uint32_t sums[2][4];
        piece_sums(pieces + 2 * PIECES_EIGHT * s, matrix, sums);
#pragma unroll
        for (int i = 0; i < 2; ++i) pieces[PIECES_EIGHT * (2 * s + i)] = piece_of(sums[i]);
    }
    __syncwarp();
}

// A thread's group, rotated by its warp.
__device__ __forceinline__ void rotate_by_warp(uint4* tile, const RotationMatrix& matrix, uint32_t signs, int order,
                                               uint32_t* w) {
    put_group(tile, w);
    rotate_tile(tile, matrix, signs, order, w);
    get_group(tile, w);
}

}  // namespace refnum
