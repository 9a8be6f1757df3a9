// Where the blocks of NVFP4 lie, and how they are read and written (clause N21). Device only.
#pragma once

#include "dequantize_nvfp4.cuh"
#include "memory.cuh"

namespace refnum {

// The one parameter of the NVFP4 kernels (gpu/ops/nvfp4.py has its mirror). Strides are in bytes.
struct Nvfp4Arguments {
    const uint8_t *x, *scales;
    const uint32_t* amax;  // null: the maximum is in out_amax already
    uint8_t *out, *out_scales;
    uint32_t* out_amax;
    offset_t chunks, x_stride, scale_stride;
    uint64_t per_row_inverse;  // 2**64 / per_row + 1, 0 for one chunk a row
    uint32_t per_row;  // chunks a row
    uint32_t rows, columns;  // of the scales
    uint32_t aligned;  // whether a chunk can be read by vector loads
    int32_t order;
    uint32_t square;  // whether blocks have 16 rows
};

// A chunk of this thread: its number, and its row and column among chunks where rows are not contiguous.
template <bool flat>
struct Place {
    bool exists;
    uint64_t number, row;
    uint32_t column;
};

template <bool flat>
__device__ __forceinline__ Place<flat> place_of(const Nvfp4Arguments& a, uint64_t number) {
    Place<flat> place;
    place.number = number;
    place.exists = place.number < (uint64_t)a.chunks;
    place.row = flat ? 0 : a.per_row == 1 ? place.number : __umul64hi(place.number, a.per_row_inverse);
    if (!flat && place.row * a.per_row > place.number) --place.row;  // the product is at most one too large
    place.column = flat ? 0 : (uint32_t)(place.number - place.row * a.per_row);
    return place;
}

template <bool flat>
__device__ __forceinline__ Place<flat> nvfp4_place(const Nvfp4Arguments& a, int u) {
    return place_of<flat>(a, (uint64_t)blockIdx.x * (THREADS * UNROLL) + u * THREADS + threadIdx.x);
}

template <bool flat>
__device__ __forceinline__ const uint8_t* nvfp4_input(const Nvfp4Arguments& a, const Place<flat>& place, int bytes) {
    return a.x + (flat ? place.number * bytes : place.row * a.x_stride + (uint64_t)place.column * bytes);
}

}  // namespace refnum
