// Scalar conversions (clauses N1 and N2), and the parts that have proofs of their own.
#include <type_traits>

#include "common.hpp"

#include "../kernels/encode_elements.cuh"
#include "../kernels/quantize_fp8_tiles.cuh"

using namespace refnum;

namespace {

// Writes exact float32 bits as float32 or as bfloat16, nearest even.
void put(void* out, int kind, int64_t i, uint32_t bits) {
    const uint16_t narrow = (uint16_t)round_to_bfloat16(bits);
    if (kind == BFLOAT16) std::memcpy(static_cast<uint8_t*>(out) + 2 * i, &narrow, 2);
    else std::memcpy(static_cast<uint8_t*>(out) + 4 * i, &bits, 4);
}

template <int kind>
using Kind = std::integral_constant<int, kind>;

// Writes the codes of n floats, four at a time: `encode` makes a word of the words of four.
template <class Encode>
void encode_fours(int kind, const void* x, uint8_t* out, int64_t n, Encode encode) {
    const int64_t width = kind == FLOAT32 ? 4 : 2;
    for (int64_t first = 0; first < n; first += 4) {
        const int64_t here = n - first < 4 ? n - first : 4;
        uint32_t in[4] = {};
        std::memcpy(in, static_cast<const uint8_t*>(x) + first * width, (size_t)(here * width));
        const uint32_t codes = kind == FLOAT32    ? encode(Kind<FLOAT32>(), in)
                               : kind == BFLOAT16 ? encode(Kind<BFLOAT16>(), in)
                                                  : encode(Kind<FLOAT16>(), in);
        std::memcpy(out + first, &codes, (size_t)here);
    }
}

}  // namespace

extern "C" {

void refnum_encode_e2m1(int kind, const void* x, int byte, uint8_t* out, int64_t n) {
    const ElementScale scale = element_scale((uint32_t)byte);
    encode_fours(kind, x, out, n, [&](auto of, const uint32_t* in) {
        uint32_t lanes[2], codes;
        bfloat16_lanes<decltype(of)::value, 2>(in, lanes);
        e2m1_elements<1>(lanes, scale, &codes);
        return codes;
    });
}

void refnum_encode_e2m1_stochastic(int kind, const void* x, const uint8_t* random, int byte, uint8_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = (uint8_t)e2m1_encode(float_at(x, kind, i), byte - 127, random[i]);
}

void refnum_encode_e4m3(int kind, const void* x, int nan, uint8_t* out, int64_t n) {
    encode_fours(kind, x, out, n, [&](auto of, const uint32_t* in) {
        uint32_t bits[4];
        float_bits<decltype(of)::value, 2>(in, bits);
        return nan ? e4m3_elements<true>(bits) : e4m3_elements<false>(bits);
    });
}

void refnum_encode_e8m0(int kind, const void* x, int rounding, int saturate, uint8_t* out, int64_t n) {
    const ByteRule rule = byte_rule(rounding, saturate != 0);
    encode_fours(kind, x, out, n, [&](auto of, const uint32_t* in) {
        uint32_t lanes[2], codes;
        bfloat16_lanes<decltype(of)::value, 2>(in, lanes);
        e8m0_elements<1>(lanes, rule, &codes);
        return codes;
    });
}

void refnum_decode_e2m1(const uint8_t* codes, int kind, void* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) put(out, kind, i, e2m1_decode(codes[i], ONE_BYTE));
}

void refnum_decode_e4m3(const uint8_t* codes, int kind, void* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) put(out, kind, i, e4m3_decode(codes[i], ONE_BYTE));
}

void refnum_decode_e8m0(const uint8_t* codes, int kind, void* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) put(out, kind, i, e8m0_decode(codes[i]));
}

// The packed path with a chosen scale, one lane a call: exhaustive over every lane pattern and scale byte.
void refnum_encode_e2m1_lanes(const uint16_t* lanes, int byte, uint8_t* out, int64_t n) {
    const BlockScale block = bfloat16_scale((uint32_t)byte);
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t word = lanes[i], h = scale_halves(block_lanes<BFLOAT16>(word, block), block.powers);
        const uint32_t r[4] = {e2m1_round_lanes(min_lanes(h, HALF_E2M1_MAX)), 0, 0, 0}, w[4] = {word, 0, 0, 0};
        out[i] = (uint8_t)(e2m1_pack_lanes(r, w) & 15);
    }
}

// Elements of FP8 tiles under a chosen byte, four a call.
void refnum_encode_e4m3_words(int kind, const void* x, int byte, uint8_t* out, int64_t n) {
    for (int64_t i = 0; i < n; i += 4) {
        uint32_t in[4], codes = 0;
        std::memcpy(in, words_at(x, kind, i), kind == FLOAT32 ? 16 : 8);
        if (kind == FLOAT32) quantize_fp8_words<FLOAT32, 1>(in, (uint32_t)byte, &codes);
        if (kind == BFLOAT16) quantize_fp8_words<BFLOAT16, 1>(in, (uint32_t)byte, &codes);
        if (kind == FLOAT16) quantize_fp8_words<FLOAT16, 1>(in, (uint32_t)byte, &codes);
        std::memcpy(out + i, &codes, 4);
    }
}

// One lane of the host's twin of HMUL2, for its own proof: binary16 patterns times 2**k.
void refnum_scale_half(const uint16_t* halves, int k, uint16_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = (uint16_t)scale_half(halves[i], k);
}

// The host's twins of FMUL, FADD and FFMA, for their own proof.
void refnum_multiply_floats(const uint32_t* a, const uint32_t* b, uint32_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = multiply_floats(a[i], b[i]);
}

void refnum_add_floats(const uint32_t* a, const uint32_t* b, uint32_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = add_floats(a[i], b[i]);
}

void refnum_multiply_add_floats(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = multiply_add_floats(a[i], b[i], c[i]);
}

}  // extern "C"
