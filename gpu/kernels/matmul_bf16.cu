// BF16 [M, K] @ [N, K].T in a named order (clause N19), on CUDA cores, with integers.
#include "matmul_bf16.cuh"
#include "product_tile.cuh"

namespace refnum {

// A step's operands, turned: rows of a are items 0 to 63, moved up, and rows of b 64 to 127.
struct Bf16Tile {
    uint32_t magnitude[BF16_STEP][WORKERS], mask[BF16_STEP][WORKERS];
    uint32_t exponent[BF16_STEP][WORKERS], signs[WORKERS];
};

struct Bf16Operands {
    using Tile = Bf16Tile;
    static constexpr uint32_t SIZE = 2;

    static __device__ __forceinline__ bool stage(const uint32_t (&codes)[STEP_BYTES / 4], uint32_t item, Tile& tile) {
        uint32_t signs = 0;
        bool special = false;
#pragma unroll
        for (int k = 0; k < BF16_STEP; ++k) {
            const uint32_t code = codes[k / 2] >> (k % 2 * 16) & 0xFFFF;
            const Bf16Term term = bf16_term(code, item < SIDE ? BF16_LIFT : 0);
            tile.magnitude[k][item] = term.magnitude;
            tile.mask[k][item] = term.mask;
            tile.exponent[k][item] = (uint32_t)term.exponent;
            signs |= (term.mask & 1) << k;
        }
#pragma unroll
        for (int i = 0; i < STEP_BYTES / 4; ++i) special |= has_special_bf16(codes[i]);
        tile.signs[item] = signs;
        return special;
    }

    static __device__ __noinline__ SpecialTerms find(const ProductArguments& a, uint32_t row, uint32_t column,
                                                     uint32_t first) {
        const uint32_t count = a.k - first < BF16_STEP ? a.k - first : BF16_STEP;
        SpecialTerms out = {0, 0};
#pragma unroll 1
        for (uint32_t bit = 0; bit < TALL * ACROSS; ++bit) {
            const uint32_t i = row + bit / ACROSS, j = column + bit % ACROSS;
            if (i >= a.m || j >= a.n) continue;
            const uint16_t* x = reinterpret_cast<const uint16_t*>(a.left(i)) + first;
            const uint32_t found = special_bf16_terms(x, reinterpret_cast<const uint16_t*>(a.right(j)) + first, count);
            out.plus |= (found & PLUS) << bit;
            out.minus |= (found >> 1) << bit;
        }
        return out;
    }

    static __device__ __forceinline__ SpecialTerms take(const Tile& tile, uint32_t row, uint32_t column,
                                                        uint32_t (&c)[TALL][ACROSS]) {
        SpecialTerms beyond = {0, 0};
        uint32_t top[TALL][ACROSS], words[TALL][ACROSS] = {}, x[TALL], y[ACROSS];
#pragma unroll
        for (int i = 0; i < TALL; ++i) {
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) top[i][j] = (uint32_t)accumulator_exponent(c[i][j]);
        }
#pragma unroll 4
        for (int k = 0; k < BF16_STEP; ++k) {
            fetch(&tile.exponent[k][row], x);
            fetch(&tile.exponent[k][SIDE + column], y);
#pragma unroll
            for (int i = 0; i < TALL; ++i) {
#pragma unroll
                for (int j = 0; j < ACROSS; ++j) top[i][j] = (uint32_t)max((int32_t)(x[i] + y[j]), (int32_t)top[i][j]);
            }
        }
#pragma unroll 2
        for (int k = 0; k < BF16_STEP; ++k) {
            uint32_t x_mask[TALL], y_mask[ACROSS], x_exponent[TALL], y_exponent[ACROSS];
            fetch(&tile.magnitude[k][row], x);
            fetch(&tile.mask[k][row], x_mask);
            fetch(&tile.exponent[k][row], x_exponent);
            fetch(&tile.magnitude[k][SIDE + column], y);
            fetch(&tile.mask[k][SIDE + column], y_mask);
            fetch(&tile.exponent[k][SIDE + column], y_exponent);
#pragma unroll
            for (int i = 0; i < TALL; ++i) {
#pragma unroll
                for (int j = 0; j < ACROSS; ++j) {
                    const uint32_t places = top[i][j] - x_exponent[i] - y_exponent[j];
                    words[i][j] += bf16_word(x[i], y[j], x_mask[i] ^ y_mask[j], places);
                }
            }
        }
        fetch(&tile.signs[row], x);
        fetch(&tile.signs[SIDE + column], y);
#pragma unroll
        for (int i = 0; i < TALL; ++i) {
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) {
                const uint32_t negatives = __popc(x[i] ^ y[j]), bit = 1u << (ACROSS * i + j);
                c[i][j] = bf16_step_result(words[i][j], negatives, c[i][j], (int32_t)top[i][j]);
                if ((c[i][j] & FLOAT_MAGNITUDE) != FLOAT_INF) continue;
                (c[i][j] & FLOAT_SIGN ? beyond.minus : beyond.plus) |= bit;
                c[i][j] = 0;
            }
        }
        return beyond;
    }
};

}  // namespace refnum

#ifndef BLOCKS
#define BLOCKS 2
#endif
extern "C" __global__ __launch_bounds__(refnum::WORKERS, BLOCKS) void matmul_bf16(
    const __grid_constant__ refnum::ProductArguments a) {
    refnum::matmul<refnum::Bf16Operands, refnum::UNSCALED>(a);
}
