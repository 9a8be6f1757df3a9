// Rotations of groups of 16, along rows and along columns, and NVFP4 of them (clause N22).
#include <vector>

#include "nvfp4.hpp"

#include "../kernels/hadamard.cuh"

using namespace refnum;

namespace {

// The groups of a matrix [m, k]: along rows (tall = 0), or down columns, whose last group zeros complete.
struct Groups {
    const void* x;
    int64_t m, k;
    int kind, tall;
    int64_t along() const { return tall ? (m + GROUP - 1) / GROUP : k / GROUP; }
    int64_t lines() const { return tall ? k : m; }
    template <typename T>  // as it is stored
    void read(int64_t line, int64_t group, T* numbers) const {
        const int64_t first = tall ? GROUP * group * k + line : line * k + GROUP * group, step = tall ? k : 1;
        const int64_t left = tall ? m - GROUP * group : GROUP;
        for (int i = 0; i < GROUP; ++i) {
            const int64_t place = first + i * step;
            numbers[i] = i < left ? (T)(sizeof(T) == 4 ? word_at(x, place) : half_at(x, place)) : 0;
        }
    }
};

template <int digits>
void rotated(const Groups& groups, int64_t line, int64_t group, uint32_t signs, int order, uint32_t* words) {
    uint32_t bits[GROUP];
    if (groups.kind == FLOAT32) {
        groups.read(line, group, bits);
        return rotate_group<FLOAT32, digits>(bits, signs, order, words);
    }
    uint16_t halves[GROUP];
    groups.read(line, group, halves);
    std::memcpy(bits, halves, sizeof halves);
    rotate_group<BFLOAT16, digits>(bits, signs, order, words);
}

template <int digits>
void rotate(const Groups& groups, uint32_t signs, int order, uint8_t* out) {
    constexpr int size = digits == 24 ? 4 : 2;
    for (int64_t line = 0; line < groups.lines(); ++line) {
        for (int64_t group = 0; group < groups.along(); ++group) {
            uint32_t words[ROTATED_WORDS<digits>];
            rotated<digits>(groups, line, group, signs, order, words);
            for (int i = 0; i < GROUP; ++i) {
                const int64_t place = GROUP * group + i;
                const int64_t to = groups.tall ? place * groups.k + line : line * groups.k + place;
                const uint32_t word = digits == 24 ? words[i] : words[i / 2] >> (16 * (i % 2));
                std::memcpy(out + size * to, &word, size);
            }
        }
    }
}

}  // namespace

extern "C" {

// `tall`: whether groups run down columns. `wide`: whether the result is float32, not bfloat16.
void refnum_hadamard16(int kind, const void* x, int64_t m, int64_t k, int tall, uint32_t signs, int order, int wide,
                       uint8_t* out) {
    const Groups groups = {x, m, k, kind, tall};
    if (wide) rotate<24>(groups, signs, order, out);
    else rotate<8>(groups, signs, order, out);
}

// `amax` float32 [1], or null for that of the rotated matrix; `out_amax` gets what was used. `random`: a byte a code, or
// null.
void refnum_hadamard_quantize_nvfp4(int kind, const void* x, int64_t m, int64_t k, int tall, uint32_t signs,
                                    int rotation, const void* amax, int order, const uint8_t* random,
                                    uint8_t* packed, uint8_t* scales, uint32_t* out_amax) {
    const Groups groups = {x, m, k, kind, tall};
    const int64_t along = groups.along(), count = groups.lines() * along;
    uint32_t tensor = amax ? tensor_maximum(word_at(amax, 0)) : 0;
    std::vector<uint32_t> rotations((size_t)(GROUP / 2 * count));
    for (int64_t b = 0; b < count; ++b) {
        bool odd = false;
        uint32_t* words = rotations.data() + GROUP / 2 * b;
        rotated<8>(groups, b / along, b % along, signs, rotation, words);
        const uint32_t found = amax ? 0 : nvfp4_maximum<BFLOAT16>(words, odd);
        tensor = found > tensor ? found : tensor;
    }
    std::memcpy(out_amax, &tensor, 4);
    quantize_variant<BFLOAT16>(rotations.data(), groups.lines(), along, 1, tensor, order, random, packed, scales);
}

}  // extern "C"
