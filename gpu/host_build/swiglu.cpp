// SwiGLU with quantisation and its gradients (clause N11). `prob` may be null: no weight a row.
#include "common.hpp"

#include "../kernels/swiglu.cuh"

using namespace refnum;

namespace {

// `words` (a multiple of 16: whole blocks) words of gates and ups from element `first` -> float32 bits.
void load_floats(const uint32_t* table, const void* gate, const void* up, const uint32_t* prob, int64_t first,
                 int words, uint32_t* bits) {
    for (int i = 0; i < words; i += 16) {
        uint32_t g[16], u[16];
        std::memcpy(g, static_cast<const uint8_t*>(gate) + 2 * first + 4 * i, 64);
        std::memcpy(u, static_cast<const uint8_t*>(up) + 2 * first + 4 * i, 64);
        if (prob) swiglu_floats<true, 16>(table, g, u, *prob, bits + 2 * i);
        else swiglu_floats<false, 16>(table, g, u, 0, bits + 2 * i);
    }
}

// Codes of a tile row from its lanes, or from its float32 bits when the tile is scalar.
void encode_tile(const uint32_t* bits, const uint32_t* w, int words, const TileScale& scale, uint8_t* codes) {
    for (int i = 0; i < words; i += 8) {
        uint32_t out[8];
        if (scale.scalar) {
            for (int j = 0; j < 8; ++j) {
                const uint32_t* four = bits + 4 * (i + j);
                const uint32_t given[4] = {four[0], four[1], four[2], four[3]};
                out[j] = quantize_fp8_scalar_word(given, scale.byte);
            }
        } else {
            quantize_fp8_words<true, 8>(w + 2 * i, scale, out);
        }
        std::memcpy(codes + 4 * i, out, 32);
    }
}

template <bool weighted>
void backward_row(const uint32_t* table, int kind, const void* grad, const void* gate, const void* up, uint32_t prob,
                  int64_t first, int64_t h, uint32_t* dgate, uint32_t* dup, uint32_t* dprob) {
    TreeSum terms;
    terms.count = 0;
    for (int64_t i = first; i < first + h; ++i) {
        const SwigluGradients one =
            swiglu_gradients<weighted>(table, float_at(grad, kind, i), half_at(gate, i), half_at(up, i), prob);
        dgate[i] = one.gate;
        dup[i] = one.up;
        if (weighted) terms.add(one.term);
    }
    if (weighted) *dprob = terms.sum();
}

}  // namespace

extern "C" {

void refnum_swiglu(const uint32_t* table, const void* gate, const void* up, const uint32_t* prob, int64_t m, int64_t h,
                   uint32_t* out) {
    for (int64_t i = 0; i < m * h; ++i) {
        const uint32_t product = swiglu_product(table, half_at(gate, i), half_at(up, i));
        out[i] = canonical_float(prob ? multiply_floats(product, prob[i / h]) : product);
    }
}

void refnum_swiglu_quantize_fp8(const uint32_t* table, const void* gate, const void* up, const uint32_t* prob,
                                int64_t m, int64_t h, int rule, uint8_t* codes, uint8_t* scales) {
    const Policy policy = {rule, 0, 0};
    for (int64_t r = 0; r < m; ++r) {
        for (int64_t t = 0; t < tiles(h); ++t) {
            const int64_t first = r * h + t * TILE, width = h - t * TILE < TILE ? h - t * TILE : TILE;
            uint32_t bits[128], w[64];
            load_floats(table, gate, up, prob ? prob + r : nullptr, first, (int)(width / 2), bits);
            for (int64_t i = 0; i < width; i += 32) odd_bfloat16_words<16>(bits + i, w + i / 2);
            const TileScale scale = tile_scale(tile_amax(w, (int)(width / 2)), policy, FLOAT32);
            encode_tile(bits, w, (int)(width / 4), scale, codes + first);
            scales[r * tiles(h) + t] = (uint8_t)scale.byte;
        }
    }
}

void refnum_swiglu_quantize_mxfp4(const uint32_t* table, const void* gate, const void* up, const uint32_t* prob,
                                  int64_t m, int64_t h, int rule, int satfinite, int zero_byte, uint8_t* packed,
                                  uint8_t* scales) {
    const Policy policy = {rule, (uint32_t)satfinite, (uint32_t)zero_byte};
    const bool saturate = e2m1_saturates(rule);
    for (int64_t b = 0; b < m * h / BLOCK; ++b) {
        uint32_t bits[32], w[16], out[4];
        load_floats(table, gate, up, prob ? prob + b * BLOCK / h : nullptr, b * BLOCK, 16, bits);
        odd_bfloat16_words<16>(bits, w);
        scales[b] = (uint8_t)(saturate ? quantize_block<FLOAT32, true>(w, policy, out)
                                       : quantize_block<FLOAT32, false>(w, policy, out));
        std::memcpy(packed + b * 16, out, 16);
    }
}

void refnum_swiglu_backward(const uint32_t* table, int kind, const void* grad, const void* gate, const void* up,
                            const uint32_t* prob, int64_t m, int64_t h, uint32_t* dgate, uint32_t* dup,
                            uint32_t* dprob) {
    for (int64_t r = 0; r < m; ++r) {
        if (prob) backward_row<true>(table, kind, grad, gate, up, prob[r], r * h, h, dgate, dup, dprob + r);
        else backward_row<false>(table, kind, grad, gate, up, 0, r * h, h, dgate, dup, nullptr);
    }
}

}  // extern "C"
