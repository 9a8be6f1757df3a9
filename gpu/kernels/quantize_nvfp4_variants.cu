// Float [M, K] -> NVFP4 in any order of operations, with blocks of one row or of 16, to nearest or by random bytes (clause
// N21): what quantize_nvfp4.cu does not have. A thread has a block of one row, or four rows of a square one; a warp has
// eight square blocks side by side.
#include "nvfp4_memory.cuh"
#include "nvfp4_variants.cuh"
#include "philox.cuh"

// The orders of a unit (gpu/ops/nvfp4.py chooses): those with a factor, ModelOpt's with a divisor, and the two with two
// scales, by the sum of errors and of their squares.
#ifndef FAMILY
#define FAMILY 0
#endif

namespace refnum {

enum Nvfp4Rounding : int { NEAREST = 0, DRAWN = 1, KEYED = 2 };
enum Nvfp4Family : int { FACTORS = 0 };
constexpr bool TWO_SCALES = FAMILY >= 2;

constexpr int SIDE = 16, WARP = 32, SQUARES = 8, ROWS = SIDE * SQUARES / WARP;

// gpu/ops/nvfp4.py has its mirror.
struct Nvfp4VariantArguments {
    Nvfp4Arguments blocks;  // whose chunks are blocks, or `SQUARES` square ones
    const uint8_t* random;  // one byte an element
    offset_t random_stride;
    uint64_t first_block;  // of the stream: where element 0 of the input has its bits
    PhiloxKey key;
    uint32_t random_aligned;
    uint32_t flat;  // whether a block's number is its place in memory
    int32_t rounding;
    uint32_t m;  // rows of the input
};

// The order of the arguments, as far as the unit leaves it open.
__device__ __forceinline__ int order_of(int order) {
    if (FAMILY != FACTORS) return NVFP4_TORCHAO + FAMILY;
    return order == NVFP4_TE ? NVFP4_TE : order == NVFP4_TE_2_8 ? NVFP4_TE_2_8 : NVFP4_TORCHAO;
}

// The rows of a block that a thread has: how many exist, the place and number of the first, and their elements.
template <int kind, bool square>
struct Rows {
    static constexpr int COUNT = square ? ROWS : 1, BYTES = 4 * NVFP4_WORDS<kind>;
    uint64_t row, block;
    uint32_t column, exist;
    uint32_t w[COUNT][NVFP4_WORDS<kind>], random[COUNT][4];

    __device__ __forceinline__ void load_from(const Nvfp4VariantArguments& s, uint64_t thread, bool drawn) {
        const Nvfp4Arguments& a = s.blocks;
        const uint8_t *x = a.x + thread * BYTES, *bytes = s.random + thread * SIDE;
        row = 0, block = thread, column = 0, exist = thread < (uint64_t)a.chunks;
        if (square || !s.flat) {
            const Place<false> place = place_of<false>(a, square ? thread / WARP : thread);
            const uint32_t lane = threadIdx.x % WARP;
            row = square ? SIDE * place.row + ROWS * (lane / SQUARES) : place.row;
            column = square ? SQUARES * place.column + lane % SQUARES : place.column;
            const uint64_t left = row < s.m ? s.m - row : 0;
            exist = place.exists && column < a.columns ? (uint32_t)(left < COUNT ? left : COUNT) : 0;
            block = row * a.columns + column;
            x = a.x + row * a.x_stride + (uint64_t)column * BYTES;
            bytes = s.random + row * s.random_stride + (uint64_t)column * SIDE;
        }
#pragma unroll
        for (int r = 0; r < COUNT; ++r) {
#pragma unroll
            for (int i = 0; i < NVFP4_WORDS<kind>; ++i) w[r][i] = 0;
            if (r >= exist) continue;
            load<BYTES>(x + r * a.x_stride, a.aligned, w[r]);
            if (drawn) load<SIDE>(bytes + r * s.random_stride, s.random_aligned, random[r]);
        }
    }
};

__device__ __forceinline__ uint32_t largest_of_square(uint32_t most) {
#pragma unroll
    for (int d = WARP / 2; d >= SQUARES; d /= 2) {
        const uint32_t found = __shfl_xor_sync(~0u, most, d);
        most = found > most ? found : most;
    }
    return most;
}

// Sum over the rows of a square block, each of which has its error in one of four threads: of rows 8 apart, then 4, 2, 1.
__device__ __forceinline__ uint32_t error_of_square(uint32_t* errors) {
#pragma unroll
    for (int d = WARP / 2; d >= SQUARES; d /= 2) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) errors[r] = add_errors(errors[r], __shfl_xor_sync(~0u, errors[r], d));
    }
    return add_errors(add_errors(errors[0], errors[2]), add_errors(errors[1], errors[3]));
}

// The code of a block whose maximum is `most`: where there are two scales, of that with less error.
template <int kind, bool square>
__device__ __forceinline__ uint32_t code_of(const Rows<kind, square>& rows, const bool* odd, uint32_t most, uint32_t amax,
                                            const TensorScale& tensor, int order, const CodeNumbers* table) {
    const uint32_t code = variant_code(most, tensor, order, false);
    if (!TWO_SCALES) return code;
    uint32_t first = 0, under = code;
    bool any_odd = false;
#pragma unroll
    for (int r = 0; r < Rows<kind, square>::COUNT; ++r) any_odd = any_odd || odd[r];
    REFNUM_ROLLED
    for (int i = 0; i < 2; ++i) {
        uint32_t errors[Rows<kind, square>::COUNT];
        const CodeNumbers numbers = table[under];
        const bool ordinary = !any_odd && is_ordinary(numbers, most);
#pragma unroll
        for (int r = 0; r < Rows<kind, square>::COUNT; ++r) {  // rows that do not exist are zeros
            if (ordinary) errors[r] = ordinary_error<kind>(rows.w[r], numbers, order);
        }
        if (!ordinary) {
#pragma unroll
            for (int r = 0; r < Rows<kind, square>::COUNT; ++r) {
                const bool some = r < rows.exist && (most != 0 || odd[r]);  // zeros have no error under either scale
                errors[r] = some ? each_error<kind>(Block<kind>(rows.w[r]), under, numbers.factor, order, amax) : 0;
            }
        }
        const uint32_t error = square ? error_of_square(errors) : errors[0];
        if (i == 1) return second_is_better(first, error) ? under : code;
        first = error, under = variant_code(most, tensor, order, true);
    }
    return code;
}

// The block of a thread, or its rows of one, under what all blocks share.
template <int kind, bool square, bool random>
__device__ __forceinline__ void quantize_rows(const Nvfp4VariantArguments& s, Rows<kind, square>& rows, uint32_t amax,
                                              const TensorScale& tensor, int order, const CodeNumbers* table) {
    const Nvfp4Arguments& a = s.blocks;
    bool odd[Rows<kind, square>::COUNT];
    uint32_t most = 0;
#pragma unroll
    for (int r = 0; r < Rows<kind, square>::COUNT; ++r) {
        const uint32_t found = nvfp4_maximum<kind>(rows.w[r], odd[r]);
        most = found > most ? found : most;
    }
    if (square) most = largest_of_square(most);
    const uint32_t code = code_of<kind, square>(rows, odd, most, amax, tensor, order, table);
    const CodeNumbers numbers = table[code];
#pragma unroll
    for (int r = 0; r < Rows<kind, square>::COUNT; ++r) {
        if (r >= rows.exist) continue;
        const uint64_t block = rows.block + (uint64_t)r * a.columns;
        uint32_t packed[2];
        if (random) {
            if (s.rounding == KEYED) philox_block(s.first_block + block, s.key, rows.random[r]);
            random_block<kind>(rows.w[r], numbers, order, odd[r], most, rows.random[r], packed);
        } else {
            variant_block<kind>(rows.w[r], numbers, order, odd[r], most, packed);
        }
        store<8>(a.out + block * 8, packed);
    }
    if (rows.exist == 0 || (square && rows.row % SIDE)) return;
    const uint64_t row = square ? rows.row / SIDE : rows.row;
    if (LAYOUT_OUT != BYTES) lay_scale(a.out_scales, a.rows, a.columns, (offset_t)row, rows.column, code);
    else a.out_scales[square ? row * a.columns + rows.column : rows.block] = (uint8_t)code;
}

template <int kind, bool square, bool random>
__device__ __forceinline__ void quantize_nvfp4_variant(const Nvfp4VariantArguments& s) {
    constexpr int parts = square ? 1 : UNROLL;
    __shared__ CodeNumbers table[NVFP4_CODES];
    const Nvfp4Arguments& a = s.blocks;
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * parts) + threadIdx.x;
    Rows<kind, square> rows[parts];
#pragma unroll
    for (int u = 0; u < parts; ++u) rows[u].load_from(s, first + u * THREADS, random && s.rounding == DRAWN);
    const uint32_t amax = tensor_maximum(a.amax ? __ldg(a.amax) : *a.out_amax);
    if (a.amax && first == 0) *a.out_amax = amax;
    const int order = order_of(a.order);
    const TensorScale tensor = variant_scale(amax, order);
    for (uint32_t code = threadIdx.x; code < NVFP4_CODES; code += THREADS) table[code] = code_numbers(code, amax, tensor, order);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < parts; ++u) quantize_rows<kind, square, random>(s, rows[u], amax, tensor, order, table);
}

}  // namespace refnum

#define KERNEL(name, kind, square, random)                                                                              \
    extern "C" __global__ __launch_bounds__(THREADS) void name(const __grid_constant__ refnum::Nvfp4VariantArguments s) { \
        refnum::quantize_nvfp4_variant<refnum::kind, square, random>(s);                                                \
    }
#define KERNELS(name, kind)                          \
    KERNEL(name, kind, false, false)                 \
    KERNEL(name##_square, kind, true, false)         \
    KERNEL(name##_random, kind, false, true)         \
    KERNEL(name##_square_random, kind, true, true)
KERNELS(quantize_nvfp4_variant_float32, FLOAT32)
KERNELS(quantize_nvfp4_variant_bfloat16, BFLOAT16)
KERNELS(quantize_nvfp4_variant_float16, FLOAT16)
