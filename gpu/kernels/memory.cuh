// Where a thread's elements lie, and how they are read and written. Device only; no arithmetic on values.
//
// A *chunk* is what one thread reads and writes at a time. A launch numbers the chunks of an array row by row, a
// row's chunks rounded up to whole groups (tiles or blocks); chunks behind a row's end do not exist. `flat` says
// that every row is whole groups and all arrays are contiguous and aligned: then a chunk's number is its place.
#pragma once

#include "layouts.cuh"
#include "quantize_mxfp4.cuh"

namespace refnum {

typedef long long offset_t;

// How a launch is cut (gpu/ops/rowwise.py chooses): threads a CTA, chunks a thread, elements a chunk (half as many of
// float32), and whether memory is streamed past the caches.
#ifndef THREADS
#define THREADS 256
#endif
#ifndef UNROLL
#define UNROLL 2
#endif
#ifndef PART
#define PART 16
#endif
#ifndef STREAM
#define STREAM 0
#endif
// Storage layouts of the scales that are read and written: a `ScaleLayout` each.
#ifndef LAYOUT_IN
#define LAYOUT_IN 0
#endif
#ifndef LAYOUT_OUT
#define LAYOUT_OUT 0
#endif

// The one parameter of every row-wise kernel (gpu/ops/rowwise.py has its mirror). Strides are in bytes.
struct Arguments {
    const uint8_t *x, *scales;
    uint8_t *out, *out_scales;
    offset_t chunks, x_stride, scale_stride;
    uint32_t per_row;  // chunks a row, rounded up to whole groups
    uint32_t valid;    // chunks a row that exist
    uint32_t tall;     // rows that share a scale of the input
    uint32_t aligned;  // whether a chunk can be read by one vector load
    Policy policy;
    uint32_t scale_rows, out_scale_rows;  // rows of the two matrices of scales: for layouts other than bytes
    uint64_t per_row_inverse;             // 2**64 / per_row + 1: `flat` with such a layout
};

// Layouts in which a group's number is not the place of its scale: its row and column are needed.
constexpr bool TURNED_IN = LAYOUT_IN != BYTES && LAYOUT_IN != FLOAT32_ROWS;
constexpr bool TURNED_OUT = LAYOUT_OUT != BYTES && LAYOUT_OUT != FLOAT32_ROWS;

// With STREAM, lines are not kept in L1 and are the first to leave L2: for chunks that are one load and one store. A
// longer chunk needs L1, since its second load takes the other half of the sectors of the first.
#if STREAM
#define LOAD_WORDS "ld.global.nc.L1::no_allocate."
#else
#define LOAD_WORDS "ld.global.nc."
#endif

// Reads `bytes` of the input, which no other thread reads and no kernel part writes.
template <int bytes>
__device__ __forceinline__ void load_vector(const uint8_t* p, uint32_t* w) {
    if (bytes == 16) {
        asm(LOAD_WORDS "v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p));
    } else if (bytes == 8) {
        asm(LOAD_WORDS "v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(p));
    } else if (bytes == 4) {
        asm(LOAD_WORDS "u32 %0, [%1];" : "=r"(w[0]) : "l"(p));
    } else {
        uint16_t half;
        asm(LOAD_WORDS "u16 %0, [%1];" : "=h"(half) : "l"(p));
        w[0] = half;
    }
}

// `bytes` of the input into words: vectors of 16 bytes, or of what there is.
template <int bytes>
__device__ __forceinline__ void load(const uint8_t* p, bool aligned, uint32_t* w) {
    constexpr int vector = bytes < 16 ? bytes : 16;
    if (aligned) {
#pragma unroll
        for (int i = 0; i < bytes; i += vector) load_vector<vector>(p + i, w + i / 4);
        return;
    }
    for (int i = 0; i < (bytes + 3) / 4; ++i) w[i] = 0;
#pragma unroll
    for (int i = 0; i < bytes; ++i) w[i / 4] |= (uint32_t)p[i] << (8 * (i & 3));
}

__device__ __forceinline__ uint32_t load_byte(const uint8_t* p) { return __ldg(p); }

__device__ __forceinline__ uint32_t load_scale_word(const uint8_t* p) {
    return __ldg(reinterpret_cast<const uint32_t*>(p));
}

__device__ __forceinline__ void put_scale(uint8_t* to, uint32_t byte) {
    if (is_float_layout(LAYOUT_OUT)) *reinterpret_cast<uint32_t*>(to) = e8m0_decode(byte);
    else *to = (uint8_t)byte;
}

// Writes a scale in LAYOUT_OUT, and with the last of a row or column the padding behind it.
__device__ __forceinline__ void lay_scale(uint8_t* out, uint32_t rows, uint32_t columns, offset_t row, uint32_t column,
                                          uint32_t byte) {
    const uint32_t top = (uint32_t)row;
    put_scale(out + scale_place(LAYOUT_OUT, rows, columns, top, column), byte);
    if (!TURNED_OUT || (top + 1 != rows && column + 1 != columns)) return;
    const uint32_t end = top + 1 == rows ? stored_rows(LAYOUT_OUT, rows) : top + 1;
    const uint32_t edge = column + 1 == columns ? stored_columns(LAYOUT_OUT, columns) : column + 1;
#pragma unroll 1
    for (uint32_t r = top; r < end; ++r) {
#pragma unroll 1
        for (uint32_t c = column; c < edge; ++c) {
            uint8_t* to = out + scale_place(LAYOUT_OUT, rows, columns, r, c);
            if (r == top && c == column) continue;
            if (is_float_layout(LAYOUT_OUT)) *reinterpret_cast<uint32_t*>(to) = 0;
            else *to = 0;
        }
    }
}

// Outputs are ours and aligned.
template <int bytes>
__device__ __forceinline__ void store(uint8_t* p, const uint32_t* w) {
    if (bytes >= 16) {
#pragma unroll
        for (int i = 0; i < bytes / 16; ++i) {
            const uint4 four = make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
            if (STREAM) __stcs(reinterpret_cast<uint4*>(p) + i, four);
            else reinterpret_cast<uint4*>(p)[i] = four;
        }
    } else if (bytes == 8) {
        if (STREAM) __stcs(reinterpret_cast<uint2*>(p), make_uint2(w[0], w[1]));
        else *reinterpret_cast<uint2*>(p) = make_uint2(w[0], w[1]);
    } else if (bytes == 4) {
        if (STREAM) __stcs(reinterpret_cast<uint32_t*>(p), w[0]);
        else *reinterpret_cast<uint32_t*>(p) = w[0];
    } else {
        *reinterpret_cast<uint16_t*>(p) = (uint16_t)w[0];
    }
}

// Float32 bits of element i of an input, any alignment: for what is rare.
template <int kind>
__device__ __forceinline__ uint32_t float_at(const uint8_t* p, int i) {
    uint32_t word;
    load<kind == FLOAT32 ? 4 : 2>(p + i * (kind == FLOAT32 ? 4 : 2), false, &word);
    return kind == FLOAT32 ? word : widen_lane<kind == FLOAT16 ? FLOAT16 : BFLOAT16>(word);
}

template <bool flat>
struct Chunk {
    bool exists;
    uint64_t number;
    offset_t row;
    uint32_t column;

    // Place among the chunks of an array without gaps.
    __device__ __forceinline__ uint64_t place(const Arguments& a) const {
        return flat ? number : row * a.valid + column;
    }
    // Offset of `bytes` a chunk in the input.
    __device__ __forceinline__ offset_t input(const Arguments& a, int bytes) const {
        return flat ? (offset_t)(number * bytes) : row * a.x_stride + (offset_t)column * bytes;
    }
    // Offset of the input's scale of a group of `lanes` chunks.
    __device__ __forceinline__ offset_t input_scale(const Arguments& a, uint32_t lanes) const {
        return flat ? (offset_t)(number / lanes) : row / a.tall * a.scale_stride + column / lanes;
    }
    // Place of a group of `lanes` chunks among the groups of an output whose last group of a row may be short.
    __device__ __forceinline__ uint64_t group(const Arguments& a, uint32_t lanes) const {
        return flat ? number / lanes : row * ((a.valid + lanes - 1) / lanes) + column / lanes;
    }
    // Byte of the input's scale of a group of `lanes` chunks, in LAYOUT_IN.
    __device__ __forceinline__ uint32_t load_scale(const Arguments& a, uint32_t lanes) const {
        if (LAYOUT_IN == BYTES) return load_byte(a.scales + input_scale(a, lanes));
        const uint32_t columns = (a.valid + lanes - 1) / lanes;
        const uint32_t above = flat ? (uint32_t)row : (uint32_t)row / a.tall;
        const uint8_t* from = a.scales + (flat && !TURNED_IN ? 4 * (offset_t)(number / lanes)
                                          : scale_place(LAYOUT_IN, a.scale_rows, columns, above, column / lanes));
        return is_float_layout(LAYOUT_IN) ? byte_of_scale(load_scale_word(from)) : load_byte(from);
    }
    // Writes the scale of a group of `lanes` chunks in LAYOUT_OUT: for the first chunk of each.
    __device__ __forceinline__ void store_scale(const Arguments& a, uint32_t lanes, uint32_t byte) const {
        if (LAYOUT_OUT == BYTES) a.out_scales[group(a, lanes)] = (uint8_t)byte;
        else if (!TURNED_OUT) put_scale(a.out_scales + 4 * group(a, lanes), byte);
        else lay_scale(a.out_scales, a.out_scale_rows, (a.valid + lanes - 1) / lanes, row, column / lanes, byte);
    }
    // Whether this is the first chunk of its group of `lanes`.
    __device__ __forceinline__ bool leads(uint32_t lanes) const {
        return (flat ? threadIdx.x : column) % lanes == 0;
    }
};

// The `unroll` chunks of this thread: neighbours in a warp, THREADS apart in a thread.
template <bool flat, int unroll>
__device__ __forceinline__ void locate(const Arguments& a, Chunk<flat> (&chunks)[unroll]) {
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * unroll), left = a.chunks - first;
    const uint32_t here = left < THREADS * unroll ? (uint32_t)left : THREADS * unroll;
    const uint64_t first_row = flat ? 0 : first / a.per_row;
    const uint32_t first_column = flat ? 0 : (uint32_t)(first - first_row * a.per_row);
    const uint64_t turned_row = flat ? high_product(first, a.per_row_inverse) : 0;
    const uint32_t turned_column = (uint32_t)first - (uint32_t)turned_row * a.per_row;
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
        Chunk<flat>& chunk = chunks[u];
        const uint32_t step = u * THREADS + threadIdx.x;
        chunk.number = first + step;
        chunk.exists = step < here;
        if (flat && (TURNED_IN || TURNED_OUT)) {
            const uint32_t column = turned_column + step;
            const uint32_t rows = (uint32_t)((uint64_t)column * (uint32_t)(a.per_row_inverse >> 32) >> 32);
            const uint32_t over = column - rows * a.per_row;  // the inverse's upper half may give one row too few
            chunk.row = (uint32_t)turned_row + rows + (over >= a.per_row);
            chunk.column = over >= a.per_row ? over - a.per_row : over;
        }
        if (!flat) {
            const uint32_t column = first_column + step, rows = column / a.per_row;
            chunk.row = (offset_t)(first_row + rows);
            chunk.column = column - rows * a.per_row;
            chunk.exists = chunk.exists && chunk.column < a.valid;
        }
    }
}

// The policy with a rule that the compiler knows, or one that it cannot compare with that of another chunk: else it
// writes all chunks out once a rule.
template <bool rceil>
__device__ __forceinline__ Policy own_policy(const Arguments& a) {
    Policy policy = a.policy;
    if (rceil) policy.rule = RCEIL;
    else asm volatile("mov.b32 %0, %1;" : "=r"(policy.rule) : "r"(a.policy.rule));
    return policy;
}

// Largest magnitude over groups of `lanes` threads. most[u]: two 16-bit lanes a chunk; each becomes one number.
template <int lanes, int unroll>
__device__ __forceinline__ void reduce_largest(uint32_t (&most)[unroll]) {
#pragma unroll
    for (int u = 0; u < unroll; u += 2) {  // two chunks share a word
        const uint32_t one = most[u], two = most[u + 1 < unroll ? u + 1 : u];
        uint32_t both = max_lanes(permute(one, two, 0x5410), permute(one, two, 0x7632));
#pragma unroll
        for (int d = 1; d < lanes; d *= 2) both = max_lanes(both, __shfl_xor_sync(~0u, both, d));
        most[u] = both & 0xFFFF;
        if (u + 1 < unroll) most[u + 1] = both >> 16;
    }
}

}  // namespace refnum
