// SwiGLU on bfloat16 gate and up, one float32 operation at a time, and its gradients (clause N11).
//
// silu and sigmoid come from the frozen table of all 65,536 gates: float32 bits, u32 [2, 65536], silu first. The
// float32 result is quantised from registers: float32 blocks and tiles take it as lanes of bfloat16 rounded to odd.
#pragma once

#include "float32.cuh"
#include "quantize_fp8_tiles.cuh"

namespace refnum {

constexpr uint32_t GATES = 1u << 16;

// silu(gate) * up, rounded once after the table. gate, up: bfloat16 bits.
REFNUM_HD uint32_t swiglu_product(const uint32_t* table, uint32_t gate, uint32_t up) {
    return multiply_floats(table[gate], up << 16);
}

// float32 bits of 2 * `count` elements from `count` words of gates and of ups; `weighted` multiplies by prob.
template <bool weighted, int count>
REFNUM_HD void swiglu_floats(const uint32_t* table, const uint32_t* gate, const uint32_t* up, uint32_t prob,
                             uint32_t* bits) {
    REFNUM_UNROLL
    for (int i = 0; i < 2 * count; ++i) {
        const int shift = 16 * (i & 1);
        const uint32_t product = swiglu_product(table, gate[i >> 1] >> shift & 0xFFFF, up[i >> 1] >> shift & 0xFFFF);
        bits[i] = weighted ? multiply_floats(product, prob) : product;
    }
}

// `count` words of lanes, as `quantize_block<FLOAT32>`, `tile_scale` and `quantize_fp8_words` take them.
template <int count>
REFNUM_HD void odd_bfloat16_words(const uint32_t* bits, uint32_t* w) {
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) w[i] = odd_bfloat16_pair(bits[2 * i], bits[2 * i + 1]);
}

// The derivative of silu: s * (1 + g * (1 - s)), each of the four steps rounded.
REFNUM_HD uint32_t silu_derivative(const uint32_t* table, uint32_t gate) {
    const uint32_t s = table[GATES + gate];
    const uint32_t t = add_floats(FLOAT_ONE, s ^ FLOAT_SIGN);
    const uint32_t v = add_floats(FLOAT_ONE, multiply_floats(gate << 16, t));
    return multiply_floats(s, v);
}

// What one element gives; `term` is its share of dprob. NaN is canonical in all three.
struct SwigluGradients {
    uint32_t gate, up, term;
};

// grad and prob: float32 bits; gate, up: bfloat16 bits. Without `weighted` the term is 0.
template <bool weighted>
REFNUM_HD SwigluGradients swiglu_gradients(const uint32_t* table, uint32_t grad, uint32_t gate, uint32_t up,
                                           uint32_t prob) {
    const uint32_t y = table[gate], u = up << 16;
    const uint32_t received = weighted ? multiply_floats(grad, prob) : grad;
    const uint32_t dgate = multiply_floats(multiply_floats(received, u), silu_derivative(table, gate));
    const uint32_t term = weighted ? multiply_floats(grad, multiply_floats(y, u)) : 0;
    return {canonical_float(dgate), canonical_float(multiply_floats(received, y)), canonical_float(term)};
}

// The sum over a row as a binary tree of neighbours: a level's odd last node is added to +0. Terms arrive one by
// one; `pending[l]` is the node of level l that waits for its right neighbour.
struct TreeSum {
    uint32_t pending[32];
    uint32_t count;

    REFNUM_HD void add(uint32_t term) {
        int level = 0;
        for (; count >> level & 1; ++level) term = add_floats(pending[level], term);
        pending[level] = term;
        ++count;
    }

    // The sum of 1 to 2**32 - 1 terms.
    REFNUM_HD uint32_t sum() const {
        uint32_t carry = 0, level = 0;
        bool carries = false;
        for (; level < 32 && count > 1u << level; ++level) {
            const bool waits = count >> level & 1;
            if (!waits && !carries) continue;
            carry = add_floats(waits ? pending[level] : carry, waits && carries ? carry : 0);
            carries = true;
        }
        return canonical_float(carries ? carry : pending[level]);
    }
};

}  // namespace refnum
