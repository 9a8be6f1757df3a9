// Rows of payload bytes: which row goes where, and pieces of 16 bytes or of what the rows allow. Device only.
#pragma once

#include "memory.cuh"
#include "payload.cuh"
#include "splits.cuh"

namespace refnum {

constexpr int EXPERTS = 1024;  // whose places fit a launch's parameters

constexpr uint32_t LISTED = 32;  // places of a token that its list holds; a token with more walks the row map

// Where experts lie: expert e starts at row first[e] of the padded rows and has the rows taken[e] to taken[e + 1] of
// the expert order.
struct Experts {
    uint32_t count;
    uint32_t first[EXPERTS], taken[EXPERTS + 1];
};

// The one parameter of the kernels that move rows (gpu/ops/payload_rows.py has its mirror). Strides are in bytes.
struct RowArguments {
    const uint8_t *x, *scales;                // payload, or codes and the scales beside them
    const uint8_t *map, *splits;              // row map; rows of each expert when they lie on the device
    uint8_t *out, *out_scales, *offsets;      // payload, or codes and scales; first row of each expert
    uint8_t* scratch;                         // rows before each expert, or a list of rows of each token
    offset_t x_stride, scale_stride;
    offset_t map_stride, split_stride;
    uint64_t rows, tokens, mapped, align;     // mapped: rows of the map
    uint32_t width, codes, span;              // bytes of a payload row, of its codes, of what a warp takes of it
    int32_t map_bytes, split_bytes;           // width of an item, negative when signed
    uint32_t all_experts;                     // that lie in memory
    Experts experts;
};

// First padded row of every expert and the rows before each and after the last, from splits on the device: one CTA of
// 1024. A count that is negative, or above the rows of the map, is none.
template <class Arguments>
__device__ __forceinline__ void expert_places(const Arguments& a, uint64_t* first, uint64_t* taken) {
    __shared__ uint64_t sums[32];
    uint64_t padded_before = 0, taken_before = 0;
    for (uint32_t start = 0; start < a.all_experts; start += 1024) {
        const uint32_t e = start + threadIdx.x;
        uint64_t rows = e < a.all_experts ? index_at(a.splits, a.split_stride, e, a.split_bytes) : 0, padded_all, all;
        if (rows > a.mapped) rows = 0;
        const uint64_t padded = sum_before(padded_rows(rows, a.align), sums, padded_all);
        const uint64_t before = sum_before(rows, sums, all);
        if (e < a.all_experts) {
            first[e] = padded_before + padded;
            taken[e] = taken_before + before;
        }
        padded_before += padded_all;
        taken_before += all;
    }
    if (threadIdx.x == 0) taken[a.all_experts] = taken_before;
}

// `bytes` (16, 8, 4 or 1) of a row that lies so.
template <int bytes>
__device__ __forceinline__ void load_piece(const uint8_t* p, uint32_t* w) {
    if (bytes == 1) w[0] = load_byte(p);
    else load_vector<bytes == 1 ? 4 : bytes>(p, w);
}

template <int bytes>
__device__ __forceinline__ void store_piece(uint8_t* p, const uint32_t* w) {
    if (bytes == 1) *p = (uint8_t)w[0];
    else store<bytes == 1 ? 4 : bytes>(p, w);
}

// `bytes` of codes, 8 or 16, to a payload whose rows are `width` bytes: in pieces that every row allows.
template <int bytes>
__device__ __forceinline__ void store_codes(uint8_t* p, const uint32_t* w, uint32_t width) {
    if (width % bytes == 0) {
        store<bytes>(p, w);
    } else if (width % 8 == 0) {
#pragma unroll
        for (int i = 0; i < bytes / 8; ++i) store<8>(p + 8 * i, w + 2 * i);
    } else if (width % 4 == 0) {
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) store<4>(p + 4 * i, w + i);
    } else {
#pragma unroll
        for (int i = 0; i < bytes; ++i) p[i] = (uint8_t)(w[i / 4] >> (8 * (i & 3)));
    }
}

}  // namespace refnum
