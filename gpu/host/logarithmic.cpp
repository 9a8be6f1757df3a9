// LUQ and radix 4 element by element, and back (clause N23).
#include "common.hpp"

#include "../kernels/logarithmic.cuh"

using namespace refnum;

namespace {

// Eight codes of up to eight elements from element i on.
template <class Codes>
void each_word(const void* x, int kind, int64_t count, uint8_t* packed, Codes codes) {
    for (int64_t i = 0; i < count; i += 8) {
        uint32_t bits[8] = {};
        const int here = count - i < 8 ? (int)(count - i) : 8;
        for (int j = 0; j < here; ++j) bits[j] = float_at(x, kind, i + j);
        unsigned_nans<8>(bits);
        const uint32_t word = codes(i, here, bits);
        std::memcpy(packed + i / 2, &word, (size_t)here / 2);
    }
}

template <class Values>
void each_value(const uint8_t* packed, int64_t count, bool narrow, void* out, Values values) {
    const size_t size = narrow ? 2 : 4;
    for (int64_t i = 0; i < count; i += 8) {
        uint32_t word = 0, found[8];
        const size_t here = count - i < 8 ? (size_t)(count - i) : 8;
        std::memcpy(&word, packed + i / 2, here / 2);
        values(word, found);
        std::memcpy(static_cast<uint8_t*>(out) + size * (size_t)i, found, size * here);
    }
}

}  // namespace

extern "C" {

// `count`: elements, an even number. `amax` float32 [1], or null for that of x; `divisor` float32 bits; `step` gets alpha.
void refnum_luq(int kind, const void* x, const void* under, const void* log, int64_t count, const void* amax,
                uint32_t divisor, int power, uint8_t* packed, uint32_t* step) {
    uint32_t most = amax ? tensor_maximum(word_at(amax, 0)) : 0;
    for (int64_t i = 0; i < count && !amax; ++i) {
        const uint32_t found = tensor_maximum(float_at(x, kind, i));
        most = found > most ? found : most;
    }
    const LuqScale scale = luq_scale(luq_step(most, divisor, power != 0));
    std::memcpy(step, &scale.alpha, 4);
    each_word(x, kind, count, packed, [&](int64_t i, int here, const uint32_t* bits) {
        uint32_t words[2][8] = {};
        std::memcpy(words[0], static_cast<const uint8_t*>(under) + 4 * i, 4 * (size_t)here);
        std::memcpy(words[1], static_cast<const uint8_t*>(log) + 4 * i, 4 * (size_t)here);
        return scale.plain ? luq_codes<8, true>(bits, words[0], words[1], scale)
                           : luq_codes<8, false>(bits, words[0], words[1], scale);
    });
}

void refnum_dequantize_luq(const uint8_t* packed, const void* alpha, int64_t count, int kind, void* out) {
    const uint32_t step = word_at(alpha, 0);
    each_value(packed, count, kind == BFLOAT16, out, [&](uint32_t word, uint32_t* found) {
        if (kind == BFLOAT16) luq_values<false>(word, step, found);
        else luq_values<true>(word, step, found);
    });
}

// `exponent`: that of two of the first level.
void refnum_radix4(int kind, const void* x, int64_t count, int exponent, int threshold, uint8_t* packed) {
    const RadixBounds bounds = radix_bounds(exponent, threshold);
    each_word(x, kind, count, packed, [&](int64_t i, int here, const uint32_t* bits) {
        uint32_t w[4] = {};
        if (kind != BFLOAT16 || !bounds.narrow) return radix_codes<8>(bits, bounds);
        std::memcpy(w, words_at(x, kind, i), 2 * (size_t)here);
        return radix_lanes(w, bounds);
    });
}

void refnum_dequantize_radix4(const uint8_t* packed, int64_t count, int exponent, int kind, void* out) {
    const DecodeTable table = radix_table((uint32_t)(127 + exponent));
    each_value(packed, count, kind == BFLOAT16, out, [&](uint32_t word, uint32_t* found) {
        if (kind == BFLOAT16) radix_values<false>(word, table, found);
        else radix_values<true>(word, table, found);
    });
}

}  // extern "C"
