// Matrix products [M, K] @ [N, K].T in a named order (clause N19), on CUDA cores: what every kind of operand shares. A
// CTA makes 64 x 64 results, a thread 8 x 4.
//
// A step of 32 bytes of each row at a time: each thread decodes one row's codes into shared memory, turned so that a
// warp reads neighbours; then every thread takes the step for its results. The next step's codes are loaded meanwhile.
#pragma once

#include "matmul_fp8.cuh"
#include "memory.cuh"

namespace refnum {

constexpr int STEP_BYTES = 32;  // of a row
constexpr int SIDE = 64, WORKERS = 2 * SIDE, TALL = 8, ACROSS = 4;  // gpu's launcher has its mirror

enum Scaling { UNSCALED = 0, BY_BLOCK = 1, WHOLE = 2 };

// Scales of one operand, E8M0 bytes or, where `wide`, float32. A row's item lies `row_stride` items on for each `tall`
// rows, a block's `block_stride`; 0 where one serves all. `items` is null where there are none.
struct ProductScales {
    const void* items;
    offset_t first, row_stride, block_stride;
    uint32_t tall, wide;

    __device__ __forceinline__ uint32_t at(uint32_t row, uint32_t block) const {
        if (items == nullptr) return FLOAT_ONE;
        const offset_t place = first + row / tall * row_stride + block * block_stride;
        return wide ? static_cast<const uint32_t*>(items)[place]
                    : scale_of_byte(static_cast<const uint8_t*>(items)[place]);
    }
};

// One product; of several experts, `first` items before its own.
struct ProductArguments {
    const uint8_t *a, *b;  // rows a_stride and b_stride bytes apart
    uint32_t* sums;        // float32 [M, N], contiguous; may be null where K is one part and `narrow` is not
    uint16_t* narrow;      // bfloat16 [M, N], contiguous, or null
    offset_t a_first, b_first, out_first, a_stride, b_stride;
    ProductScales a_scales, b_scales;
    uint32_t m, n, k;
    uint32_t run, part;  // steps after which the accumulator is added to its part's sum; steps of a part
    uint32_t aligned;    // whether 16 bytes of a row can be read at once
    uint32_t scales_first;

    __device__ __forceinline__ const uint8_t* left(uint32_t row) const { return a + a_first + row * a_stride; }
    __device__ __forceinline__ const uint8_t* right(uint32_t row) const { return b + b_first + row * b_stride; }
};

// Bytes `first` to `first` + 31 of a row of `size` bytes; those behind its end are zeros.
__device__ __forceinline__ void load_codes(const uint8_t* row, bool exists, uint32_t first, uint32_t size, bool aligned,
                                           uint32_t (&codes)[STEP_BYTES / 4]) {
#pragma unroll
    for (int i = 0; i < STEP_BYTES / 4; ++i) codes[i] = 0;
    if (!exists) return;
    if (aligned && first + STEP_BYTES <= size) {
        load_vector<16>(row + first, codes);
        load_vector<16>(row + first + 16, codes + 4);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < STEP_BYTES; ++i) {
            if (first + i < size) codes[i / 4] |= (uint32_t)row[first + i] << (i % 4 * 8);
        }
    }
}

// `count` neighbours of shared memory, 16 bytes at a time.
template <int count>
__device__ __forceinline__ void fetch(const uint32_t* p, uint32_t (&w)[count]) {
#pragma unroll
    for (int i = 0; i < count; i += 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(p + i);
        w[i] = v.x, w[i + 1] = v.y, w[i + 2] = v.z, w[i + 3] = v.w;
    }
}

// Bits of `special_terms` of a thread's results, one word a kind: bit ACROSS * i + j of row i, column j.
struct SpecialTerms {
    uint32_t plus, minus;
};

// Adds a run's accumulators to their part's sums, and clears them.
template <Scaling scaling>
__device__ __forceinline__ void add_run(const ProductArguments& a, uint32_t row, uint32_t column, uint32_t block,
                                        SpecialTerms special, uint32_t (&c)[TALL][ACROSS],
                                        uint32_t (&sum)[TALL][ACROSS]) {
    if (special.plus | special.minus) {
#pragma unroll
        for (int bit = 0; bit < TALL * ACROSS; ++bit) {
            const uint32_t found = (special.plus >> bit & 1) | (special.minus >> bit & 1) << 1;
            c[bit / ACROSS][bit % ACROSS] = with_special_terms(found, c[bit / ACROSS][bit % ACROSS]);
        }
    }
    uint32_t right[ACROSS];
    if (scaling == BY_BLOCK) {
#pragma unroll
        for (int j = 0; j < ACROSS; ++j) right[j] = a.b_scales.at(min(column + j, a.n - 1), block);
    }
#pragma unroll
    for (int i = 0; i < TALL; ++i) {
        const uint32_t left = scaling == BY_BLOCK ? a.a_scales.at(min(row + i, a.m - 1), block) : 0;
#pragma unroll
        for (int j = 0; j < ACROSS; ++j) {
            sum[i][j] = scaling == BY_BLOCK ? add_scaled(sum[i][j], c[i][j], left, right[j], a.scales_first)
                                            : add_floats(sum[i][j], c[i][j]);
            c[i][j] = 0;
        }
    }
}

// Adds a part's sums to what the parts before it left in memory, clears them, and ends the product after the last part.
template <Scaling scaling>
__device__ __forceinline__ void end_part(const ProductArguments& a, uint32_t row, uint32_t column, bool first,
                                         bool last, uint32_t (&sum)[TALL][ACROSS]) {
#pragma unroll
    for (int i = 0; i < TALL; ++i) {
#pragma unroll
        for (int j = 0; j < ACROSS; ++j) {
            uint32_t total = sum[i][j];
            sum[i][j] = 0;
            if (row + i >= a.m || column + j >= a.n) continue;
            const offset_t place = a.out_first + (offset_t)(row + i) * a.n + column + j;
            if (!first) total = add_floats(a.sums[place], total);
            if (last && scaling == WHOLE) {
                total = scale_sum(total, a.a_scales.at(row + i, 0), a.b_scales.at(column + j, 0), a.scales_first);
            }
            if (last && a.narrow) a.narrow[place] = (uint16_t)product_bfloat16(total);
            else a.sums[place] = last ? product_float(total) : total;
        }
    }
}

// A kind of operands has: `Tile`, a step's operands; `SIZE`, bytes of a term; `stage`, which decodes a row's codes into
// the tile and says whether one is NaN or Inf; `find`, the bits of such terms; `take`, one step of a thread's results,
// which says what sums overflow: they are infinities, unless a term has made them special.
template <typename Kind, Scaling scaling>
__device__ __forceinline__ void matmul(const ProductArguments& a) {
    __shared__ __align__(16) typename Kind::Tile tile;
    const uint32_t item = threadIdx.x, lane = item % 32, warp = item / 32;
    const uint32_t own = item % SIDE + SIDE * (item < SIDE ? blockIdx.y : blockIdx.x);
    const bool exists = own < (item < SIDE ? a.m : a.n);
    const uint8_t* codes = item < SIDE ? a.left(own) : a.right(own);
    const uint32_t row = warp / 2 * 32 + lane / 8 * TALL, column = warp % 2 * 32 + lane % 8 * ACROSS;
    const uint32_t top = SIDE * blockIdx.y + row, beside = SIDE * blockIdx.x + column;
    uint32_t c[TALL][ACROSS] = {}, sum[TALL][ACROSS] = {}, next[STEP_BYTES / 4];
    const uint32_t size = a.k * Kind::SIZE, steps = (size + STEP_BYTES - 1) / STEP_BYTES;
    uint32_t in_run = 0, in_part = 0;
    SpecialTerms special = {0, 0};
    load_codes(codes, exists, 0, size, a.aligned, next);
    for (uint32_t step = 0; step < steps; ++step) {
        const bool found = __syncthreads_or(Kind::stage(next, item, tile));
        load_codes(codes, exists, (step + 1) * STEP_BYTES, size, a.aligned, next);
        const SpecialTerms beyond = Kind::take(tile, row, column, c);
        if (found) {
            const SpecialTerms more = Kind::find(a, top, beside, step * STEP_BYTES / Kind::SIZE);
            special.plus |= more.plus;
            special.minus |= more.minus;
        }
        const uint32_t held = special.plus | special.minus;
        special.plus |= beyond.plus & ~held;
        special.minus |= beyond.minus & ~held;
        __syncthreads();
        const bool ends_part = ++in_part == a.part || step + 1 == steps;
        if (++in_run == a.run || ends_part) {
            add_run<scaling>(a, top, beside, step / 4, special, c, sum);
            special = {0, 0};
            in_run = 0;
        }
        if (ends_part) {
            end_part<scaling>(a, top, beside, step + 1 == in_part, step + 1 == steps, sum);
            in_part = 0;
        }
    }
}

}  // namespace refnum
