// NVFP4 codes of groups down columns, gathered by a CTA, so that they are written row by row of the result (clause N22.6).
// Device only.
#pragma once

#include "rotation_columns.cuh"

namespace refnum {

// The codes of a CTA.
template <int kind>
struct Gathered {
    uint2 codes[GROUPS_DOWN][ACROSS<kind> + 1];
    __align__(4) uint8_t scales[ACROSS<kind>][GROUPS_DOWN + 4];
};

// Writes what was gathered, by all threads of the CTA.
template <int kind>
__device__ __forceinline__ void put_gathered(const RotationArguments& a, const Corner<kind>& corner,
                                             const Gathered<kind>& gathered) {
    constexpr uint32_t wide = ACROSS<kind>;
    const uint32_t lane = threadIdx.x % WARP;
    __syncthreads();
    if (GROUPS_DOWN == 32 && LAYOUT_OUT == BYTES && a.per_row % 4 == 0 && corner.group + GROUPS_DOWN <= a.per_row) {
        // two groups a store, four scales a store
        const uint32_t pair = 2 * ((lane & 7) + 8 * (lane >> 4)), four = lane % 8 * 4;
        const uint32_t left = a.k - corner.column;
        uint32_t column = threadIdx.x / WARP * 2 + (lane >> 3 & 1);
        const uint64_t first = (uint64_t)corner.column * a.per_row + corner.group;
        uint8_t* p = a.out + (first + (uint64_t)column * a.per_row + pair) * 8;
#pragma unroll 4
        for (uint32_t i = 0; i < wide; i += 2 * WARPS, p += (uint64_t)(16 * WARPS) * a.per_row) {
            const uint2 one = gathered.codes[pair][column + i], two = gathered.codes[pair + 1][column + i];
            if (column + i < left) *reinterpret_cast<uint4*>(p) = make_uint4(one.x, one.y, two.x, two.y);
        }
        column = threadIdx.x / 8;
        p = a.out_scales + first + (uint64_t)column * a.per_row + four;
#pragma unroll
        for (uint32_t i = 0; i < wide; i += THREADS / 8, p += (uint64_t)(THREADS / 8) * a.per_row) {
            const uint32_t word = *reinterpret_cast<const uint32_t*>(&gathered.scales[column + i][four]);
            if (column + i < left) *reinterpret_cast<uint32_t*>(p) = word;
        }
        return;
    }
    constexpr uint32_t step = THREADS / GROUPS_DOWN;
    const uint32_t group = threadIdx.x % GROUPS_DOWN;
    if (corner.group + group >= a.per_row) return;
    uint32_t column = threadIdx.x / GROUPS_DOWN;
    uint64_t place = (uint64_t)(corner.column + column) * a.per_row + corner.group + group;
#pragma unroll 2
    for (; column < wide && corner.column + column < a.k; column += step, place += (uint64_t)step * a.per_row) {
        const uint32_t scale = gathered.scales[column][group];
        *reinterpret_cast<uint2*>(a.out + place * 8) = gathered.codes[group][column];
        if (LAYOUT_OUT == BYTES) a.out_scales[place] = (uint8_t)scale;
        else lay_scale(a.out_scales, a.rows, a.columns, corner.column + column, corner.group + group, scale);
    }
}

}  // namespace refnum
