// NVFP4 blocks of a matrix in any order of operations, for NVFP4 itself and for rotated groups (clauses N21, N22.6).
#pragma once

#include "common.hpp"

#include <algorithm>

#include "../kernels/nvfp4_variants.cuh"

namespace refnum {

constexpr int64_t NVFP4 = 16;

// The blocks [m, columns] of a matrix in any order, of `tall` rows each, with random bytes or none (null).
template <int kind>
void quantize_variant(const void* x, int64_t m, int64_t columns, int tall, uint32_t amax, int order, const uint8_t* random,
                      uint8_t* packed, uint8_t* scales) {
    const TensorScale tensor = variant_scale(amax, order);
    for (int64_t top = 0; top < m; top += tall) {
        const int rows = (int)std::min<int64_t>(tall, m - top);
        for (int64_t column = 0; column < columns; ++column) {
            uint32_t w[16][NVFP4_WORDS<kind>], most = 0, code[2], errors[2][16] = {};
            CodeNumbers numbers[2];
            bool odd[16] = {};
            for (int r = 0; r < rows; ++r) {
                std::memcpy(w[r], words_at(x, kind, NVFP4 * ((top + r) * columns + column)), sizeof w[r]);
                most = std::max(most, nvfp4_maximum<kind>(w[r], odd[r]));
            }
            for (int i = 0; i < (has_two_scales(order) ? 2 : 1); ++i) {
                code[i] = variant_code(most, tensor, order, i == 1);
                numbers[i] = code_numbers(code[i], amax, tensor, order);
                if (!has_two_scales(order)) continue;
                for (int r = 0; r < rows; ++r) {
                    errors[i][r] = variant_error<kind>(w[r], code[i], numbers[i], order, odd[r], most, amax);
                }
                for (int half = tall / 2; half; half /= 2) {
                    for (int r = 0; r < half; ++r) errors[i][r] = add_errors(errors[i][r], errors[i][r + half]);
                }
            }
            const int chosen = has_two_scales(order) && second_is_better(errors[0][0], errors[1][0]);
            for (int r = 0; r < rows; ++r) {
                const int64_t block = (top + r) * columns + column;
                uint32_t words[4], codes[2];
                if (random) {
                    std::memcpy(words, random + NVFP4 * block, sizeof words);
                    random_block<kind>(w[r], numbers[chosen], order, odd[r], most, words, codes);
                } else {
                    variant_block<kind>(w[r], numbers[chosen], order, odd[r], most, codes);
                }
                std::memcpy(packed + 8 * block, codes, 8);
            }
            scales[top / tall * columns + column] = (uint8_t)code[chosen];
        }
    }
}

}  // namespace refnum
