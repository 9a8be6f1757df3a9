// Integers in memory that say where rows go: items of a row map or of splits, and sums over a CTA. Device only.
#pragma once

#include "memory.cuh"

namespace refnum {

// Item `i` of a row map or of splits as 64 bits; a negative one is above every count.
__device__ __forceinline__ uint64_t index_at(const uint8_t* items, offset_t stride, uint64_t i, int32_t bytes) {
    const uint8_t* p = items + (offset_t)i * stride;
    switch (bytes) {
        case 8: case -8: return *reinterpret_cast<const uint64_t*>(p);
        case 4: return *reinterpret_cast<const uint32_t*>(p);
        case -4: return (uint64_t)(offset_t)*reinterpret_cast<const int32_t*>(p);
        case 2: return *reinterpret_cast<const uint16_t*>(p);
        case -2: return (uint64_t)(offset_t)*reinterpret_cast<const short*>(p);
        case 1: return *p;
        default: return (uint64_t)(offset_t)*reinterpret_cast<const signed char*>(p);
    }
}

// Sum of `x` over the threads before this one of a CTA of 1024; `total` over all.
__device__ __forceinline__ uint64_t sum_before(uint64_t x, uint64_t* sums, uint64_t& total) {
    uint64_t sum = x;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const uint64_t other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    uint64_t before = 0;
    total = 0;
    for (uint32_t i = 0; i < 32; ++i) {
        if (i < warp) before += sums[i];
        total += sums[i];
    }
    __syncthreads();
    return before + sum - x;
}

}  // namespace refnum
