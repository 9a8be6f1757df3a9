// Scalar conversions, one element at a time (clauses N1 and N2), and the parts that have proofs of their own.
#include "common.hpp"

#include "../kernels/float32.cuh"
#include "../kernels/quantize_fp8_tiles.cuh"

using namespace refnum;

namespace {

// Writes exact float32 bits as float32 or as bfloat16, nearest even.
void put(void* out, int kind, int64_t i, uint32_t bits) {
    const uint16_t narrow = (uint16_t)round_to_bfloat16(bits);
    if (kind == BFLOAT16) std::memcpy(static_cast<uint8_t*>(out) + 2 * i, &narrow, 2);
    else std::memcpy(static_cast<uint8_t*>(out) + 4 * i, &bits, 4);
}

}  // namespace

extern "C" {

void refnum_encode_e2m1(int kind, const void* x, int byte, uint8_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = (uint8_t)e2m1_encode<false>(float_at(x, kind, i), byte - 127, 0);
}

void refnum_encode_e2m1_stochastic(int kind, const void* x, const uint8_t* random, int byte, uint8_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = (uint8_t)e2m1_encode<true>(float_at(x, kind, i), byte - 127, random[i]);
}

void refnum_encode_e4m3(int kind, const void* x, int byte, int nan, uint8_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t bits = float_at(x, kind, i);
        out[i] = (uint8_t)(nan ? e4m3_encode<false>(bits, byte - 127) : e4m3_encode<true>(bits, byte - 127));
    }
}

void refnum_encode_e8m0(int kind, const void* x, int rounding, int saturate, uint8_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = (uint8_t)e8m0_encode(float_at(x, kind, i), rounding, saturate != 0);
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

// The packed paths with a chosen scale, one lane a call: exhaustive over every lane pattern and scale byte.
void refnum_encode_lanes(const uint16_t* lanes, int byte, int fp8, uint8_t* out, int64_t n) {
    const BlockScale block = bfloat16_scale((uint32_t)byte);
    const TileScale tile = bfloat16_tile_scale((uint32_t)byte);
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t word = lanes[i];
        if (fp8) {
            const uint32_t w[2] = {word, 0};
            uint32_t codes;
            quantize_fp8_words<true, 1>(w, tile, &codes);
            out[i] = (uint8_t)codes;
        } else {
            const uint32_t h = scale_halves(block_lanes<BFLOAT16>(word, block), block.powers);
            const uint32_t r[4] = {e2m1_round_lanes(min_lanes(h, HALF_E2M1_MAX)), 0, 0, 0}, w[4] = {word, 0, 0, 0};
            out[i] = (uint8_t)(e2m1_pack_lanes(r, w) & 15);
        }
    }
}

// One lane of the host's twin of HMUL2, for its own proof: binary16 patterns times 2**k.
void refnum_scale_half(const uint16_t* halves, int k, uint16_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = (uint16_t)scale_half(halves[i], k);
}

// The host's twins of FMUL and FADD, for their own proof.
void refnum_multiply_floats(const uint32_t* a, const uint32_t* b, uint32_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = multiply_floats(a[i], b[i]);
}

void refnum_add_floats(const uint32_t* a, const uint32_t* b, uint32_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = add_floats(a[i], b[i]);
}

}  // extern "C"
