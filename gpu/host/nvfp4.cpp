// NVFP4 blocks of a row: quantised and dequantised (clause N21).
#include "nvfp4.hpp"

#include "../kernels/dequantize_nvfp4.cuh"

using namespace refnum;

namespace {

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
