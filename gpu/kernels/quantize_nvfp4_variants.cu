// Float [M, K] -> NVFP4 in any order of operations, with blocks of one row or of 16, to nearest or by random bytes (clause
// N21): what quantize_nvfp4.cu does not have. A thread has the 16 elements of one row of a block; a warp has two square
// blocks side by side.
#include "nvfp4_memory.cuh"
#include "nvfp4_variants.cuh"
#include "philox.cuh"

namespace refnum {

enum Nvfp4Rounding : int { NEAREST = 0, DRAWN = 1, KEYED = 2 };

// gpu/ops/nvfp4.py has its mirror.
struct Nvfp4VariantArguments {
    Nvfp4Arguments blocks;  // whose chunks are blocks, or pairs of square ones
    const uint8_t* random;  // one byte an element
    offset_t random_stride;
    uint64_t first_block;  // of the stream: where element 0 of the input has its bits
    PhiloxKey key;
    uint32_t random_aligned;
    int32_t rounding;
    uint32_t m;  // rows of the input
};

__device__ __forceinline__ uint32_t largest_of_square(uint32_t most) {
#pragma unroll
    for (int d = 16; d > 1; d /= 2) {
        const uint32_t found = __shfl_xor_sync(~0u, most, d);
        most = found > most ? found : most;
    }
    return most;
}

// Sum over the rows of a square block: of rows 8 apart, then 4, 2 and 1.
__device__ __forceinline__ uint32_t error_of_square(uint32_t error) {
#pragma unroll
    for (int d = 16; d > 1; d /= 2) error = add_errors(error, __shfl_xor_sync(~0u, error, d));
    return error;
}

// The block of a thread, under what all blocks share.
template <int kind, bool square>
__device__ __forceinline__ void quantize_one(const Nvfp4VariantArguments& s, uint64_t thread, uint32_t amax,
                                             const TensorScale& tensor) {
    constexpr int words = NVFP4_WORDS<kind>;
    const Nvfp4Arguments& a = s.blocks;
    const uint32_t lane = threadIdx.x % 32;
    const Place<false> place = place_of<false>(a, square ? thread / 32 : thread);
    const uint64_t row = square ? 16 * place.row + lane / 2 : place.row;
    const uint32_t column = square ? 2 * place.column + lane % 2 : place.column;
    const bool exists = place.exists && row < s.m && column < a.columns;
    uint32_t w[words] = {}, random[4] = {};
    if (exists) load<4 * words>(a.x + row * a.x_stride + (uint64_t)column * (4 * words), a.aligned, w);
    if (exists && s.rounding == DRAWN) {
        load<16>(s.random + row * s.random_stride + (uint64_t)column * 16, s.random_aligned, random);
    }
    bool odd = false;
    uint32_t most = nvfp4_maximum<kind>(w, odd), packed[2];
    if (square) most = largest_of_square(most);
    uint32_t code = variant_code(most, tensor, a.order, false), factor = variant_factor(code, tensor, a.order);
    if (s.rounding == NEAREST || has_two_scales(a.order)) variant_block<kind>(w, factor, a.order, odd, packed);
    if (has_two_scales(a.order)) {
        uint32_t other[2];
        const uint32_t second = variant_code(most, tensor, a.order, true);
        const uint32_t second_factor = variant_factor(second, tensor, a.order);
        variant_block<kind>(w, second_factor, a.order, odd, other);
        uint32_t values[8], second_values[8];
        code_values(code, amax, values);
        code_values(second, amax, second_values);
        uint32_t error = exists ? block_error<kind>(w, packed, values, a.order) : 0;
        uint32_t second_error = exists ? block_error<kind>(w, other, second_values, a.order) : 0;
        if (square) error = error_of_square(error), second_error = error_of_square(second_error);
        if (second_is_better(error, second_error)) {
            code = second, factor = second_factor;
            packed[0] = other[0], packed[1] = other[1];
        }
    }
    if (!exists) return;
    if (s.rounding == KEYED) philox_block(s.first_block + row * a.columns + column, s.key, random);
    if (s.rounding != NEAREST) random_block<kind>(w, factor, a.order, odd, random, packed);
    store<8>(a.out + (row * a.columns + column) * 8, packed);
    if (square && lane / 2) return;
    if (LAYOUT_OUT != BYTES) lay_scale(a.out_scales, a.rows, a.columns, (offset_t)place.row, column, code);
    else a.out_scales[place.row * a.columns + column] = (uint8_t)code;
}

template <int kind, bool square>
__device__ __forceinline__ void quantize_nvfp4_variant(const Nvfp4VariantArguments& s) {
    const Nvfp4Arguments& a = s.blocks;
    const uint32_t amax = tensor_maximum(a.amax ? __ldg(a.amax) : *a.out_amax);
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    if (a.amax && first == 0) *a.out_amax = amax;
    const TensorScale tensor = variant_scale(amax, a.order);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) quantize_one<kind, square>(s, first + u * THREADS, amax, tensor);
}

}  // namespace refnum

#define KERNEL(name, kind, square)                                                                                      \
    extern "C" __global__ __launch_bounds__(THREADS) void name(const __grid_constant__ refnum::Nvfp4VariantArguments s) { \
        refnum::quantize_nvfp4_variant<refnum::kind, square>(s);                                                        \
    }
KERNEL(quantize_nvfp4_variant_float32, FLOAT32, false)
KERNEL(quantize_nvfp4_variant_bfloat16, BFLOAT16, false)
KERNEL(quantize_nvfp4_variant_float16, FLOAT16, false)
KERNEL(quantize_nvfp4_variant_float32_square, FLOAT32, true)
KERNEL(quantize_nvfp4_variant_bfloat16_square, BFLOAT16, true)
KERNEL(quantize_nvfp4_variant_float16_square, FLOAT16, true)
