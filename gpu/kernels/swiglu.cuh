// SwiGLU on bfloat16 gate and up, one float32 operation at a time, and its gradients (clause N11).
//
// silu and sigmoid are given as float32 bits (swiglu_window.cuh). The float32 result is quantised from registers
// (float32_codes.cuh).
#pragma once

#include "swiglu_window.cuh"

namespace refnum {

// float32 bits of 2 * `count` elements from their silu and `count` words of ups; `weighted` multiplies by prob. NaN has
// any payload.
template <bool weighted, int count>
REFNUM_HD void swiglu_floats(const uint32_t* y, const uint32_t* up, uint32_t prob, uint32_t* bits) {
    REFNUM_UNROLL
    for (int i = 0; i < 2 * count; ++i) {
        const uint32_t u = i & 1 ? up[i >> 1] & 0xFFFF0000u : up[i >> 1] << 16;
        const uint32_t product = multiply_floats(y[i], u);
        bits[i] = weighted ? multiply_floats(product, prob) : product;
    }
}

// The derivative of silu: s * (1 + g * (1 - s)), each of the four steps rounded. All are float32 bits.
REFNUM_HD uint32_t silu_derivative(uint32_t g, uint32_t s) {
    const uint32_t t = add_floats(FLOAT_ONE, s ^ FLOAT_SIGN);
    const uint32_t v = add_floats(FLOAT_ONE, multiply_floats(g, t));
    return multiply_floats(s, v);
}

// What one element gives; `term` is its share of dprob. NaN is canonical in all three.
struct SwigluGradients {
    uint32_t gate, up, term;
};

// All arguments are float32 bits; y and s are silu and sigmoid of g. Without `weighted` the term is 0.
template <bool weighted>
REFNUM_HD SwigluGradients swiglu_gradients(uint32_t grad, uint32_t g, uint32_t u, uint32_t y, uint32_t s,
                                           uint32_t prob) {
    const uint32_t received = weighted ? multiply_floats(grad, prob) : grad;
    const uint32_t dgate = multiply_floats(multiply_floats(received, u), silu_derivative(g, s));
    const uint32_t term = weighted ? multiply_floats(grad, multiply_floats(y, u)) : 0;
    return {canonical_float(dgate), canonical_float(multiply_floats(received, y)), canonical_float(term)};
}

// The sum over a row as a binary tree of neighbours: a level's odd last node is added to +0. Terms arrive one by
// one; `pending[l]` is the node of level l that waits for its right neighbour.
struct TreeSum {
    uint32_t pending[32];
    uint32_t count;

    REFNUM_HD void add(uint32_t term) { add_node<0>(term); }

    // A node of 2**`first` terms, where no fewer wait.
    template <int first>
    REFNUM_HD void add_node(uint32_t node) {
        int level = first;
        for (; count >> level & 1; ++level) node = add_floats(pending[level], node);
        pending[level] = node;
        count += 1u << first;
    }

    // The sum of 1 to 2**32 - 1 terms. A sum with +0 is never -0, so adding +0 to it again changes nothing; a node that
    // waits alone is the whole sum, and -0 added to it changes nothing.
    REFNUM_HD uint32_t sum() const {
        uint32_t carry = (count & (0u - count)) == count ? FLOAT_SIGN : 0;
        const uint32_t* node = pending;
        for (uint32_t left = count; left != 0; left >>= 1, ++node) {
            if (left & 1) carry = add_floats(*node, carry);
        }
        return canonical_float(carry);
    }
};

}  // namespace refnum
