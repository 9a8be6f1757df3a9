// What the blocks of a tensor share in any order of operations, in shared memory, and the codes of one under it (clause
// N21). Device only.
#pragma once

#include "nvfp4_memory.cuh"
#include "nvfp4_variants.cuh"
#include "philox.cuh"

// The orders of a unit (gpu/ops/nvfp4.py chooses): those with a factor, ModelOpt's with a divisor, and the two with two
// scales, by the sum of errors and of their squares.
#ifndef FAMILY
#define FAMILY 0
#endif

namespace refnum {

constexpr bool TWO_SCALES = FAMILY >= 2;

enum Nvfp4Rounding : int { NEAREST = 0, DRAWN = 1, KEYED = 2 };

// Where random bytes come from, one an element: memory, or a stream. gpu/ops/nvfp4.py has its mirror.
struct RandomBits {
    const uint8_t* bytes;
    offset_t stride;
    uint64_t first_block;  // of the stream: where element 0 has its bits
    PhiloxKey key;
    uint32_t aligned;
    int32_t rounding;
};

// A square block: rows and columns, and how a warp has eight side by side, four rows of one a thread.
constexpr int SIDE = 16, SQUARES_OF_WARP = 8, SQUARE_ROWS = SIDE * SQUARES_OF_WARP / 32;

__device__ __forceinline__ uint32_t largest_of_square(uint32_t most) {
#pragma unroll
    for (int d = 16; d >= SQUARES_OF_WARP; d /= 2) {
        const uint32_t found = __shfl_xor_sync(~0u, most, d);
        most = found > most ? found : most;
    }
    return most;
}

// Sum over the rows of a square block, each of which has its error in one of four threads: of rows 8 apart, then 4, 2, 1.
__device__ __forceinline__ uint32_t error_of_square(uint32_t* errors) {
#pragma unroll
    for (int d = 16; d >= SQUARES_OF_WARP; d /= 2) {
#pragma unroll
        for (int r = 0; r < SQUARE_ROWS; ++r) errors[r] = add_errors(errors[r], __shfl_xor_sync(~0u, errors[r], d));
    }
    return add_errors(add_errors(errors[0], errors[2]), add_errors(errors[1], errors[3]));
}

struct SharedScale {
    uint32_t amax;
    int order;
    TensorScale tensor;
    const CodeNumbers* table;

    // By all threads of a CTA. `numbers`: shared memory for all codes.
    __device__ __forceinline__ SharedScale(const Nvfp4Arguments& a, CodeNumbers* numbers) : table(numbers) {
        amax = tensor_maximum(a.amax ? __ldg(a.amax) : *a.out_amax);
        if (a.amax && blockIdx.x == 0 && threadIdx.x == 0) *a.out_amax = amax;
        order = FAMILY ? NVFP4_TORCHAO + FAMILY : a.order;
        tensor = variant_scale(amax, order);
        for (uint32_t code = threadIdx.x; code < NVFP4_CODES; code += THREADS) {
            numbers[code] = code_numbers(code, amax, tensor, order);
        }
        __syncthreads();
    }

    // The code of a block whose maximum is `most`, and of which this thread has `exist` rows, others zeros: where there
    // are two scales, of that with less error.
    template <int kind, int rows>
    __device__ __forceinline__ uint32_t code_of(const uint32_t (&w)[rows][NVFP4_WORDS<kind>], const bool (&odd)[rows],
                                                uint32_t exist, uint32_t most) const {
        const uint32_t code = variant_code(most, tensor, order, false);
        if (!TWO_SCALES) return code;
        uint32_t first = 0, under = code;
        bool any_odd = false;
#pragma unroll
        for (int r = 0; r < rows; ++r) any_odd = any_odd || odd[r];
        REFNUM_ROLLED
        for (int i = 0; i < 2; ++i) {
            uint32_t errors[rows];
            const CodeNumbers numbers = table[under];
            const bool ordinary = !any_odd && is_ordinary(numbers, most);
#pragma unroll
            for (int r = 0; r < rows; ++r) {
                if (ordinary) errors[r] = ordinary_error<kind>(w[r], numbers, order);
            }
            if (!ordinary) {
#pragma unroll
                for (int r = 0; r < rows; ++r) {
                    const bool some = r < exist && (most != 0 || odd[r]);  // zeros have no error under either scale
                    errors[r] = some ? each_error<kind>(Block<kind>(w[r]), under, numbers.factor, order, amax) : 0;
                }
            }
            const uint32_t error = rows > 1 ? error_of_square(errors) : errors[0];
            if (i == 1) return second_is_better(first, error) ? under : code;
            first = error, under = variant_code(most, tensor, order, true);
        }
        return code;
    }

    // A row of a block -> two packed words. `block`: its number among all rows' blocks. `drawn`: its bytes from memory.
    template <int kind, bool random>
    __device__ __forceinline__ void codes_of(const uint32_t* w, const CodeNumbers& numbers, bool odd, uint32_t most,
                                             const RandomBits& bits, uint64_t block, uint32_t* drawn,
                                             uint32_t* packed) const {
        if (!random) return variant_block<kind>(w, numbers, order, odd, most, packed);
        if (bits.rounding == KEYED) philox_block(bits.first_block + block, bits.key, drawn);
        random_block<kind>(w, numbers, order, odd, most, drawn, packed);
    }
};

}  // namespace refnum
