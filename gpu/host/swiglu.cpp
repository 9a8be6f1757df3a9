// SwiGLU with quantisation and its gradients (clause N11). `prob` may be null: no weight a row.
#include "common.hpp"

#include "../kernels/float32_codes.cuh"
#include "../kernels/swiglu.cuh"

using namespace refnum;

namespace {

constexpr uint32_t GATES = 1u << 16;

// The windows of one launch: what a CTA keeps in shared memory.
template <int bits, int functions>
struct Windows {
    uint32_t words[functions * GateWindow<bits>::entries];

    explicit Windows(const uint32_t* table) {
        for (int f = 0; f < functions; ++f) {
            for (uint32_t i = 0; i < GateWindow<bits>::entries; ++i) {
                words[f * GateWindow<bits>::entries + i] = table[f * GATES + GateWindow<bits>::gate(i)];
            }
        }
    }
};
typedef Windows<12, 1> ForwardWindow;
typedef Windows<11, 2> BackwardWindows;

// `words` (a multiple of 8) words of gates and ups from element `first` -> float32 bits.
void load_floats(const ForwardWindow& window, const void* gate, const void* up, const uint32_t* prob, int64_t first,
                 int words, uint32_t* bits) {
    for (int i = 0; i < words; i += 8) {
        uint32_t g[8], u[8];
        std::memcpy(g, static_cast<const uint8_t*>(gate) + 2 * first + 4 * i, 32);
        std::memcpy(u, static_cast<const uint8_t*>(up) + 2 * first + 4 * i, 32);
        uint32_t* part = bits + 2 * i;
        silu_pairs<8>(window.words, g, part);
        if (prob) swiglu_floats<true, 8>(part, u, *prob, part);
        else swiglu_floats<false, 8>(part, u, 0, part);
    }
}

uint32_t largest(const uint32_t* bits, int64_t count) {
    uint32_t most = 0;
    for (int64_t i = 0; i < count; ++i) most = larger_magnitude(most, bits[i]);
    return most;
}

template <bool weighted>
void backward_row(const BackwardWindows& windows, int kind, const void* grad, const void* gate, const void* up,
                  uint32_t prob, int64_t first, int64_t h, uint32_t* dgate, uint32_t* dup, uint32_t* dprob) {
    constexpr int LEVELS = 6, PART = 1 << LEVELS;  // in arrays of its own, so that compilers make vectors of it
    TreeSum terms;
    terms.count = 0;
    for (int64_t from = first; from < first + h; from += PART) {
        const int count = first + h - from < PART ? (int)(first + h - from) : PART;
        uint32_t pairs[PART / 2] = {}, g[PART], u[PART], given[PART] = {}, y[PART], s[PART], nodes[PART], found[2][PART];
        std::memcpy(pairs, static_cast<const uint8_t*>(gate) + 2 * from, 2 * (size_t)count);
        silu_and_sigmoid_pairs<PART / 2>(windows.words, pairs, y, s);
        for (int i = 0; i < PART; ++i) g[i] = gate_float(pairs, i);
        for (int i = 0; i < PART / 2; ++i) pairs[i] = 0;
        std::memcpy(pairs, static_cast<const uint8_t*>(up) + 2 * from, 2 * (size_t)count);
        for (int i = 0; i < PART; ++i) u[i] = gate_float(pairs, i);
        for (int i = 0; i < count; ++i) given[i] = float_at(grad, kind, from + i);
        for (int i = 0; i < PART; ++i) {
            const SwigluGradients one = swiglu_gradients<weighted>(given[i], g[i], u[i], y[i], s[i], prob);
            found[0][i] = one.gate, found[1][i] = one.up, nodes[i] = one.term;
        }
        std::memcpy(dgate + from, found[0], 4 * (size_t)count);
        std::memcpy(dup + from, found[1], 4 * (size_t)count);
        if (!weighted) continue;
        for (int i = 0; i < count && count < PART; ++i) terms.add(nodes[i]);
        if (count < PART) break;
        for (int left = PART / 2; left; left /= 2) {
            for (int i = 0; i < left; ++i) nodes[i] = add_floats(nodes[2 * i], nodes[2 * i + 1]);
        }
        terms.add_node<LEVELS>(nodes[0]);
    }
    if (weighted) *dprob = terms.sum();
}

}  // namespace

extern "C" {

void refnum_swiglu(const uint32_t* table, const void* gate, const void* up, const uint32_t* prob, int64_t m, int64_t h,
                   uint32_t* out) {
    const ForwardWindow window(table);
    for (int64_t i = 0; i < m * h; ++i) {
        const uint32_t g = half_at(gate, i), u = half_at(up, i);
        uint32_t bits[2];
        silu_pairs<1>(window.words, &g, bits);
        if (prob) swiglu_floats<true, 1>(bits, &u, prob[i / h], bits);
        else swiglu_floats<false, 1>(bits, &u, 0, bits);
        out[i] = canonical_float(bits[0]);
    }
}

void refnum_swiglu_quantize_fp8(const uint32_t* table, const void* gate, const void* up, const uint32_t* prob,
                                int64_t m, int64_t h, int rule, uint8_t* codes, uint8_t* scales) {
    const ForwardWindow window(table);
    for (int64_t r = 0; r < m; ++r) {
        for (int64_t t = 0; t < tiles(h); ++t) {
            const int64_t first = r * h + t * TILE, width = h - t * TILE < TILE ? h - t * TILE : TILE;
            uint32_t bits[TILE];
            load_floats(window, gate, up, prob ? prob + r : nullptr, first, (int)(width / 2), bits);
            const uint32_t byte = float_tile_byte(largest(bits, width), e4m3_carry(rule, 23));
            for (int64_t i = 0; i < width; i += 16) {
                uint32_t out[4];
                e4m3_words<4>(bits + i, byte, out);
                std::memcpy(codes + first + i, out, 16);
            }
            scales[r * tiles(h) + t] = (uint8_t)byte;
        }
    }
}

void refnum_swiglu_quantize_mxfp4(const uint32_t* table, const void* gate, const void* up, const uint32_t* prob,
                                  int64_t m, int64_t h, int rule, int satfinite, int zero_byte, uint8_t* packed,
                                  uint8_t* scales) {
    const ForwardWindow window(table);
    const Policy policy = {rule, (uint32_t)satfinite, (uint32_t)zero_byte};
    const bool saturate = e2m1_saturates(rule) || satfinite;
    for (int64_t b = 0; b < m * h / BLOCK; ++b) {
        uint32_t bits[BLOCK], out[4];
        load_floats(window, gate, up, prob ? prob + b * BLOCK / h : nullptr, b * BLOCK, 16, bits);
        const uint32_t most = largest(bits, BLOCK);
        const BlockByte byte = float_block_byte(most, e2m1_carry(rule, 23), policy);
        if (saturate) e2m1_words<true, 4>(bits, byte, out);
        else e2m1_words<false, 4>(bits, byte, out);
        scales[b] = (uint8_t)byte.stored;
        std::memcpy(packed + b * 16, out, 16);
    }
}

void refnum_swiglu_backward(const uint32_t* table, int kind, const void* grad, const void* gate, const void* up,
                            const uint32_t* prob, int64_t m, int64_t h, uint32_t* dgate, uint32_t* dup,
                            uint32_t* dprob) {
    const BackwardWindows windows(table);
    for (int64_t r = 0; r < m; ++r) {
        if (prob) backward_row<true>(windows, kind, grad, gate, up, prob[r], r * h, h, dgate, dup, dprob + r);
        else backward_row<false>(windows, kind, grad, gate, up, 0, r * h, h, dgate, dup, nullptr);
    }
}

}  // extern "C"
