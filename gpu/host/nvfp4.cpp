// NVFP4 blocks of a row: quantised and dequantised (clause N21).
#include "common.hpp"

#include <algorithm>

#include "../kernels/dequantize_nvfp4.cuh"
#include "../kernels/nvfp4_variants.cuh"

using namespace refnum;

namespace {

constexpr int64_t NVFP4 = 16;

template <int kind>
void quantize(const void* x, int64_t blocks, uint32_t amax, int order, uint8_t* packed, uint8_t* scales) {
    const TensorScale tensor = tensor_scale(amax, order);
    uint32_t factors[NVFP4_CODES];
    for (uint32_t code = 0; code < NVFP4_CODES; ++code) factors[code] = block_factor(code, tensor, order);
    for (int64_t b = 0; b < blocks; ++b) {
        uint32_t w[NVFP4_WORDS<kind>], out[2];
        std::memcpy(w, words_at(x, kind, NVFP4 * b), sizeof w);
        bool odd = false;
        const uint32_t code = block_code(nvfp4_maximum<kind>(w, odd), tensor, order), factor = factors[code];
        nvfp4_block<kind>(w, factor, odd || is_odd_factor(factor), out);
        scales[b] = (uint8_t)code;
        std::memcpy(packed + 8 * b, out, 8);
    }
}

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

template <int kind>
uint32_t largest(const void* x, int64_t blocks) {
    uint32_t most = 0;
    for (int64_t b = 0; b < blocks; ++b) {
        uint32_t w[NVFP4_WORDS<kind>];
        std::memcpy(w, words_at(x, kind, NVFP4 * b), sizeof w);
        bool odd = false;
        const uint32_t found = nvfp4_maximum<kind>(w, odd);
        most = found > most ? found : most;
    }
    return most;
}

}  // namespace

extern "C" {

// `amax` float32 [1], or null for that of x; `out_amax` gets what was used. `random`: a byte an element, or null.
void refnum_quantize_nvfp4(int kind, const void* x, int64_t m, int64_t columns, int tall, const void* amax, int order,
                           const uint8_t* random, uint8_t* packed, uint8_t* scales, uint32_t* out_amax) {
    const int64_t blocks = m * columns;
    const bool plain = order < NVFP4_MODELOPT && tall == 1 && !random;
    const auto run = [&](auto of_kind) {
        constexpr int of = decltype(of_kind)::value;
        const uint32_t tensor = amax ? tensor_maximum(word_at(amax, 0)) : largest<of>(x, blocks);
        std::memcpy(out_amax, &tensor, 4);
        if (plain) quantize<of>(x, blocks, tensor, order, packed, scales);
        else quantize_variant<of>(x, m, columns, tall, tensor, order, random, packed, scales);
    };
    if (kind == FLOAT32) run(std::integral_constant<int, FLOAT32>());
    if (kind == BFLOAT16) run(std::integral_constant<int, BFLOAT16>());
    if (kind == FLOAT16) run(std::integral_constant<int, FLOAT16>());
}

void refnum_dequantize_nvfp4(const uint8_t* packed, const uint8_t* scales, const void* amax, int64_t m, int64_t columns,
                             int tall, int order, int kind, void* out) {
    const uint32_t tensor = tensor_maximum(word_at(amax, 0));
    for (int64_t b = 0; b < m * columns; ++b) {
        const int64_t scale = tall == 1 ? b : b / columns / tall * columns + b % columns;
        const uint32_t number = nvfp4_number(scales[scale], tensor, order);
        uint32_t values[16];
        for (int i = 0; i < 2; ++i) {
            const uint32_t word = word_at(packed, 2 * b + i);
            if (kind == BFLOAT16) nvfp4_values<false>(word, number, values + 4 * i);
            else nvfp4_values<true>(word, number, values + 8 * i);
        }
        const size_t size = kind == BFLOAT16 ? 32 : 64;
        std::memcpy(static_cast<uint8_t*>(out) + size * (size_t)b, values, size);
    }
}

}  // extern "C"
