// FP8 [M, K] @ [N, K].T in a named order (clause N19), on CUDA cores. A thread finds the largest exponents of its
// results, two products an instruction, and adds up the words of their terms.
#include "product_tile.cuh"

namespace refnum {

// A step's operands, turned: rows of a are items 0 to 63, rows of b 64 to 127.
struct StepTile {
    uint32_t magnitude[STEP][WORKERS], mask[STEP][WORKERS], lanes[STEP / 2][WORKERS], signs[WORKERS];
};

// Decodes a row's codes into the tile; whether one of them is NaN or Inf.
template <Fp8 format>
__device__ __forceinline__ bool stage(const uint32_t (&codes)[STEP / 4], uint32_t bias, uint32_t item, StepTile& tile) {
    uint32_t signs = 0;
    bool special = false;
#pragma unroll
    for (int i = 0; i < STEP / 4; ++i) {
        const Fp8Word w = fp8_word<format>(codes[i], bias);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            tile.magnitude[4 * i + j][item] = w.magnitude[j];
            tile.mask[4 * i + j][item] = w.mask[j];
        }
        tile.lanes[2 * i][item] = w.lanes[0];
        tile.lanes[2 * i + 1][item] = w.lanes[1];
        signs |= word_signs(codes[i], i);
        special |= has_special_code<format>(codes[i]);
    }
    tile.signs[item] = signs;
    return special;
}

// One step of a thread's results: c becomes the new accumulators.
__device__ __forceinline__ void take_step(const StepTile& tile, uint32_t row, uint32_t column,
                                          uint32_t (&c)[TALL][ACROSS]) {
    uint32_t magic[TALL][ACROSS], x[TALL], y[ACROSS];
#pragma unroll
    for (int i = 0; i < TALL; ++i) {
#pragma unroll
        for (int j = 0; j < ACROSS; ++j) magic[i][j] = accumulator_lanes(c[i][j]);
    }
#pragma unroll 4
    for (int k = 0; k < STEP / 2; ++k) {
        fetch(&tile.lanes[k][row], x);
        fetch(&tile.lanes[k][SIDE + column], y);
#pragma unroll
        for (int i = 0; i < TALL; ++i) {
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) magic[i][j] = larger_sums(x[i], y[j], magic[i][j]);
        }
    }
#pragma unroll
    for (int i = 0; i < TALL; ++i) {
#pragma unroll
        for (int j = 0; j < ACROSS; ++j) {
            magic[i][j] = magic_bits(magic[i][j]);
            c[i][j] = accumulator_word(c[i][j], magic[i][j]);
        }
    }
#pragma unroll 4
    for (int k = 0; k < STEP; ++k) {
        uint32_t x_mask[TALL], y_mask[ACROSS];
        fetch(&tile.magnitude[k][row], x);
        fetch(&tile.mask[k][row], x_mask);
        fetch(&tile.magnitude[k][SIDE + column], y);
        fetch(&tile.mask[k][SIDE + column], y_mask);
#pragma unroll
        for (int i = 0; i < TALL; ++i) {
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) c[i][j] += term_word(x[i], y[j], x_mask[i] ^ y_mask[j], magic[i][j]);
        }
    }
    fetch(&tile.signs[row], x);
    fetch(&tile.signs[SIDE + column], y);
#pragma unroll
    for (int i = 0; i < TALL; ++i) {
#pragma unroll
        for (int j = 0; j < ACROSS; ++j) c[i][j] = step_result(c[i][j], __popc(x[i] ^ y[j]), magic[i][j]);
    }
}

template <Fp8 left, Fp8 right>
__device__ __noinline__ SpecialTerms find_special(const ProductArguments& a, uint32_t row, uint32_t column,
                                                  uint32_t first) {
    const uint32_t count = a.k - first < STEP ? a.k - first : STEP;
    SpecialTerms out = {0, 0};
#pragma unroll 1
    for (uint32_t bit = 0; bit < TALL * ACROSS; ++bit) {
        const uint32_t i = row + bit / ACROSS, j = column + bit % ACROSS;
        if (i >= a.m || j >= a.n) continue;
        const uint32_t found = special_terms<left, right>(a.left(i) + first, a.right(j) + first, count);
        out.plus |= (found & PLUS) << bit;
        out.minus |= (found >> 1) << bit;
    }
    return out;
}

template <Fp8 left, Fp8 right>
struct Fp8Operands {
    using Tile = StepTile;
    static constexpr uint32_t SIZE = 1;
    static __device__ __forceinline__ bool stage(const uint32_t (&codes)[STEP_BYTES / 4], uint32_t item, Tile& tile) {
        return left == right || item < SIDE
                   ? refnum::stage<left>(codes, item < SIDE ? LEFT_BIAS : RIGHT_BIAS, item, tile)
                   : refnum::stage<right>(codes, RIGHT_BIAS, item, tile);
    }
    static __device__ __forceinline__ SpecialTerms find(const ProductArguments& a, uint32_t row, uint32_t column,
                                                        uint32_t first) {
        return find_special<left, right>(a, row, column, first);
    }
    static __device__ __forceinline__ SpecialTerms take(const Tile& tile, uint32_t row, uint32_t column,
                                                        uint32_t (&c)[TALL][ACROSS]) {
        take_step(tile, row, column, c);
        return {0, 0};
    }
};

}  // namespace refnum

#define MATMUL(NAME, LEFT, RIGHT, SCALING)                                                              \
    extern "C" __global__ __launch_bounds__(refnum::WORKERS, BLOCKS) void NAME(                         \
        const __grid_constant__ refnum::ProductArguments a) {                                           \
        refnum::matmul<refnum::Fp8Operands<refnum::LEFT, refnum::RIGHT>, refnum::SCALING>(a);           \
    }
#define MATMULS(NAME, LEFT, RIGHT)                      \
    MATMUL(matmul_##NAME, LEFT, RIGHT, UNSCALED)        \
    MATMUL(matmul_##NAME##_blocks, LEFT, RIGHT, BY_BLOCK) \
    MATMUL(matmul_##NAME##_whole, LEFT, RIGHT, WHOLE)
#ifndef BLOCKS
#define BLOCKS 3
#endif
MATMULS(e4m3_e4m3, E4M3, E4M3)
MATMULS(e4m3_e5m2, E4M3, E5M2)
MATMULS(e5m2_e4m3, E5M2, E4M3)
MATMULS(e5m2_e5m2, E5M2, E5M2)
