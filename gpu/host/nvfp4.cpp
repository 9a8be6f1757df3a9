// NVFP4 blocks of a row: quantised and dequantised (clause N21).
#include "common.hpp"

#include "../kernels/dequantize_nvfp4.cuh"

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

// `amax` float32 [1], or null for that of x; `out_amax` gets what was used.
void refnum_quantize_nvfp4(int kind, const void* x, int64_t blocks, const void* amax, int order, uint8_t* packed,
                           uint8_t* scales, uint32_t* out_amax) {
    uint32_t tensor = amax ? tensor_maximum(word_at(amax, 0)) : 0;
    if (!amax && kind == FLOAT32) tensor = largest<FLOAT32>(x, blocks);
    if (!amax && kind == BFLOAT16) tensor = largest<BFLOAT16>(x, blocks);
    if (!amax && kind == FLOAT16) tensor = largest<FLOAT16>(x, blocks);
    std::memcpy(out_amax, &tensor, 4);
    if (kind == FLOAT32) quantize<FLOAT32>(x, blocks, tensor, order, packed, scales);
    if (kind == BFLOAT16) quantize<BFLOAT16>(x, blocks, tensor, order, packed, scales);
    if (kind == FLOAT16) quantize<FLOAT16>(x, blocks, tensor, order, packed, scales);
}

void refnum_dequantize_nvfp4(const uint8_t* packed, const uint8_t* scales, const void* amax, int64_t blocks, int order,
                             int kind, void* out) {
    const uint32_t tensor = tensor_maximum(word_at(amax, 0));
    for (int64_t b = 0; b < blocks; ++b) {
        const uint32_t number = nvfp4_number(scales[b], tensor, order);
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
