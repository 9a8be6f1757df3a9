// Float [M, K] -> NVFP4 in any order of operations, with blocks of one row or of 16, to nearest or by random bytes (clause
// N21): what quantize_nvfp4.cu does not have. A thread has a block of one row, or four rows of a square one.
#include "nvfp4_table.cuh"

namespace refnum {

// gpu/ops/nvfp4.py has its mirror.
struct Nvfp4VariantArguments {
    Nvfp4Arguments blocks;  // whose chunks are blocks, or a warp's square ones
    RandomBits random;
    uint32_t flat;  // whether a block's number is its place in memory
    uint32_t m;     // rows of the input
};

// The rows of a block that a thread has: how many exist, the place and number of the first, and their elements.
template <int kind, bool square>
struct Rows {
    static constexpr int COUNT = square ? SQUARE_ROWS : 1, BYTES = 4 * NVFP4_WORDS<kind>;
    uint64_t row, block;
    uint32_t column, exist;
    uint32_t w[COUNT][NVFP4_WORDS<kind>], random[COUNT][4];

    __device__ __forceinline__ void load_from(const Nvfp4VariantArguments& s, uint64_t thread, bool drawn) {
        const Nvfp4Arguments& a = s.blocks;
        const uint8_t *x = a.x + thread * BYTES, *bytes = s.random.bytes + thread * SIDE;
        row = 0, block = thread, column = 0, exist = thread < (uint64_t)a.chunks;
        if (square || !s.flat) {
            const Place<false> place = place_of<false>(a, square ? thread / 32 : thread);
            const uint32_t lane = threadIdx.x % 32;
            row = square ? SIDE * place.row + SQUARE_ROWS * (lane / SQUARES_OF_WARP) : place.row;
            column = square ? SQUARES_OF_WARP * place.column + lane % SQUARES_OF_WARP : place.column;
            const uint64_t left = row < s.m ? s.m - row : 0;
            exist = place.exists && column < a.columns ? (uint32_t)(left < COUNT ? left : COUNT) : 0;
            block = row * a.columns + column;
            x = a.x + row * a.x_stride + (uint64_t)column * BYTES;
            bytes = s.random.bytes + row * s.random.stride + (uint64_t)column * SIDE;
        }
#pragma unroll
        for (int r = 0; r < COUNT; ++r) {
#pragma unroll
            for (int i = 0; i < NVFP4_WORDS<kind>; ++i) w[r][i] = 0;
            if (r >= exist) continue;
            load<BYTES>(x + r * a.x_stride, a.aligned, w[r]);
            if (drawn) load<SIDE>(bytes + r * s.random.stride, s.random.aligned, random[r]);
        }
    }
};

// The block of a thread, or its rows of one.
template <int kind, bool square, bool random>
__device__ __forceinline__ void quantize_rows(const Nvfp4VariantArguments& s, Rows<kind, square>& rows,
                                              const SharedScale& shared) {
    constexpr int count = Rows<kind, square>::COUNT;
    const Nvfp4Arguments& a = s.blocks;
    bool odd[count];
    uint32_t most = 0;
#pragma unroll
    for (int r = 0; r < count; ++r) {
        const uint32_t found = nvfp4_maximum<kind>(rows.w[r], odd[r]);
        most = found > most ? found : most;
    }
    if (square) most = largest_of_square(most);
    const uint32_t code = shared.code_of<kind, count>(rows.w, odd, rows.exist, most);
    const CodeNumbers numbers = shared.table[code];
#pragma unroll
    for (int r = 0; r < count; ++r) {
        if (r >= rows.exist) continue;
        const uint64_t block = rows.block + (uint64_t)r * a.columns;
        uint32_t packed[2];
        shared.codes_of<kind, random>(rows.w[r], numbers, odd[r], most, s.random, block, rows.random[r], packed);
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
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * parts) + threadIdx.x;
    Rows<kind, square> rows[parts];
#pragma unroll
    for (int u = 0; u < parts; ++u) rows[u].load_from(s, first + u * THREADS, random && s.random.rounding == DRAWN);
    const SharedScale shared(s.blocks, table);
#pragma unroll
    for (int u = 0; u < parts; ++u) quantize_rows<kind, square, random>(s, rows[u], shared);
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
