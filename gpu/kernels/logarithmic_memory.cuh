// Where the elements of a thread lie for logarithmic codes (clause N23). Device only.
//
// A chunk is PART neighbours of a row, fewer at its end. `flat` says that rows follow each other without gaps: then the
// whole tensor is one row. Threads whose chunks are all whole and aligned move them by vectors; the others, which are few
// unless rows are ragged and apart, go pair by pair.
#pragma once

#include "logarithmic.cuh"
#include "memory.cuh"

namespace refnum {

// The one parameter of these kernels (gpu/ops/logarithmic.py has its mirror). Strides are in bytes.
struct LogarithmicArguments {
    const uint8_t *x, *under, *log;
    const uint32_t* number;  // float32 [1]: the maximum that is given to LUQ, or the step to dequantise by
    uint8_t* out;
    uint32_t* out_alpha;  // where no maximum is given: it, and then the step
    offset_t x_stride, under_stride, log_stride;
    uint64_t chunks, columns;  // columns: elements of a row
    uint64_t per_row_inverse;  // 2**64 / per_row + 1, 0 for one chunk a row
    uint32_t per_row;          // chunks a row
    uint32_t aligned;          // whether every chunk is whole, and lies where vectors do
    uint32_t divisor;          // float32 bits
    int32_t rule;              // of LUQ whether the step is a power of two; of radix 4 its `RadixThreshold`
    int32_t exponent;          // of two of the first level
};

template <int kind>
constexpr int FLOAT_BYTES = kind == FLOAT32 ? 4 : 2;

// A chunk of this thread: its row, its first element there, and how many it has, 0 where there is none.
struct Stretch {
    uint64_t row, first;
    uint32_t count;
    // Where its items of so many bytes lie.
    template <int size>
    __device__ __forceinline__ const uint8_t* in(const uint8_t* p, offset_t stride) const {
        return p + (offset_t)row * stride + (offset_t)first * size;
    }
    // Its first element in an array without gaps.
    __device__ __forceinline__ uint64_t element(const LogarithmicArguments& a) const { return row * a.columns + first; }
};

template <bool flat>
__device__ __forceinline__ Stretch stretch_place(const LogarithmicArguments& a, int u) {
    const uint64_t number = (uint64_t)blockIdx.x * (THREADS * UNROLL) + u * THREADS + threadIdx.x;
    Stretch place = {0, number * PART, 0};
    if (!flat) {
        place.row = a.per_row == 1 ? number : __umul64hi(number, a.per_row_inverse);
        if (place.row * a.per_row > number) --place.row;  // the product is at most one too large
        place.first = (number - place.row * a.per_row) * PART;
    }
    if (number >= a.chunks) return place;
    const uint64_t left = a.columns - place.first;
    place.count = left < PART ? (uint32_t)left : PART;
    return place;
}

// Whether all chunks of this thread can be moved by vectors; under `flat` alike for all threads of a CTA.
template <bool flat>
__device__ __forceinline__ bool stretches_whole(const LogarithmicArguments& a) {
    const uint64_t end = (uint64_t)(blockIdx.x + (flat ? 1 : 0)) * (THREADS * UNROLL);
    return flat ? end * PART <= a.columns : a.aligned && end + (UNROLL - 1) * THREADS + threadIdx.x < a.chunks;
}

}  // namespace refnum
