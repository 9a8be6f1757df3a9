// silu and sigmoid of a bfloat16 gate from a small window of the frozen table (clause N11).
//
// Outside of a window of magnitudes both are a short formula, proved equal to the table by asking every gate. The
// window of 2**bits magnitudes that ends at GATE_TOP is so short that a CTA keeps it in shared memory. The place of a
// magnitude is its low `bits` bits, which no two of that many neighbours share; negative gates lie behind.
#pragma once

#include "float32.cuh"

namespace refnum {

constexpr uint32_t GATE_TOP = 0x42DB;  // 109.5; above it silu is the gate or -0, and sigmoid 1 or 0

// VIADDMNMX.U16x2: max(a + b, c) of unsigned 16-bit lanes, sums modulo 2**16.
REFNUM_HD uint32_t add_and_max_lanes(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
    return __viaddmax_u16x2(a, b, c);
#else
    return max_lanes((uint32_t)(uint16_t)(a + b) | ((a >> 16) + (b >> 16)) << 16, c);
#endif
}

template <int bits>
struct GateWindow {
    static constexpr uint32_t size = 1u << bits, entries = 2 * size, lowest = GATE_TOP + 1 - size;
    static_assert(lowest <= 0x3C13 && lowest % 4 == 0, "the formulas below the window hold up to 0x3C12");

    // The gate that entry `i` is for; entries of a second window behind are for gates 2**16 further. Four entries from a
    // multiple of four on are for neighbours.
    REFNUM_HD static uint32_t gate(uint32_t i) {
        return (lowest + ((i - lowest) & (size - 1))) | i >> bits << 15;
    }

    // Byte offsets of the entries of two gates, in the low 16 bits of `low` and `high`; any gate gives a valid one.
    REFNUM_HD static void places(uint32_t pair, uint32_t& low, uint32_t& high) {
        constexpr uint32_t magnitude = (size - 1) << 2, sign = size << 2;
        const uint32_t both = choose(pair << 2, pair >> (13 - bits), both_lanes(magnitude));
        low = both & (magnitude | sign);
        high = both >> 16 & (magnitude | sign);
    }

    // The farthest of some gates: `most` or one of a pair, as places from the lowest magnitude on.
    REFNUM_HD static uint32_t farthest(uint32_t most, uint32_t pair) {
        return add_and_max_lanes(pair & 0x7FFF7FFF, both_lanes(0x10000 - lowest), most);
    }

    // Whether a gate lies outside: `most` is what `farthest` gave.
    REFNUM_HD static bool misses(uint32_t most) { return larger_lane(most) >= size; }
};

// The word at a byte offset.
REFNUM_HD uint32_t word_at(const uint32_t* words, uint32_t offset) {
    return *reinterpret_cast<const uint32_t*>(reinterpret_cast<const uint8_t*>(words) + offset);
}

// What the functions are outside of the windows, of float32 bits of a bfloat16 gate.
//
// silu below the window of 12 bits, that is below 2**-25: g/2.
REFNUM_HD uint32_t silu_of_tiny(uint32_t g) { return multiply_floats(g, 0x3F000000); }

// silu up to magnitude 0x3C28: g/2 + (g/2)**2, whose square is exact or too small to matter. The sum of -0 and +0 would
// lose its sign.
REFNUM_HD uint32_t silu_of_small(uint32_t g) {
    const uint32_t half = multiply_floats(g, 0x3F000000);
    return add_floats(half, multiply_floats(half, half)) | (g & FLOAT_SIGN);
}

// sigmoid up to magnitude 0x3C12: 1/2 + g/4, the quarter one place short, since the next term pulls towards 1/2.
REFNUM_HD uint32_t sigmoid_of_small(uint32_t g) { return add_floats(0x3F000000, multiply_floats(g, 0x3E7FFFFF)); }

// Above GATE_TOP.
REFNUM_HD uint32_t silu_of_large(uint32_t g) {
    return (g & FLOAT_MAGNITUDE) > FLOAT_INF ? FLOAT_NAN : g & FLOAT_SIGN ? FLOAT_SIGN : g;
}
// Of Inf and NaN as well: sigmoid serves the derivative alone, which multiplies by the gate and is NaN there.
REFNUM_HD uint32_t sigmoid_of_large(uint32_t g) { return g & FLOAT_SIGN ? 0 : FLOAT_ONE; }

// float32 bits of one gate of some pairs.
REFNUM_HD uint32_t gate_float(const uint32_t* pairs, int i) {
    return i & 1 ? pairs[i >> 1] & 0xFFFF0000u : pairs[i >> 1] << 16;
}

// Replaces what was looked up for gates outside of the window; y: two values for each of `count` words. Zeros and small
// gates may be many (rows of padding, pruned gates), so they cost no branch; large ones are rare.
template <int bits, int count, uint32_t (*below)(uint32_t), uint32_t (*above)(uint32_t)>
REFNUM_HD void mend(const uint32_t* pairs, uint32_t* y) {
    uint32_t most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) most = max_lanes(most, pairs[i] & 0x7FFF7FFF);
    REFNUM_UNROLL
    for (int i = 0; i < 2 * count; ++i) {
        const uint32_t g = gate_float(pairs, i), small = below(g);
        if ((g & FLOAT_MAGNITUDE) < GateWindow<bits>::lowest << 16) y[i] = small;
    }
    if (larger_lane(most) <= GATE_TOP) return;
    REFNUM_UNROLL
    for (int i = 0; i < 2 * count; ++i) {
        const uint32_t g = gate_float(pairs, i);
        if ((g & FLOAT_MAGNITUDE) > GATE_TOP << 16) y[i] = above(g);
    }
}

// Looks up `count` pairs of gates in a window -> 2 * count values.
template <int bits, int count>
REFNUM_HD void look_up_gates(const uint32_t* window, const uint32_t* pairs, uint32_t* y) {
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        uint32_t low, high;
        GateWindow<bits>::places(pairs[i], low, high);
        y[2 * i] = word_at(window, low);
        y[2 * i + 1] = word_at(window, high);
    }
}

// Whether one of `count` pairs of gates lies outside of the window.
template <int bits, int count>
REFNUM_HD bool any_outside(const uint32_t* pairs) {
    uint32_t most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) most = GateWindow<bits>::farthest(most, pairs[i]);
    return GateWindow<bits>::misses(most);
}

// float32 bits of silu of `count` pairs of gates, from the window of 12 bits.
template <int count>
REFNUM_HD void silu_pairs(const uint32_t* window, const uint32_t* pairs, uint32_t* y) {
    look_up_gates<12, count>(window, pairs, y);
    if (any_outside<12, count>(pairs)) mend<12, count, silu_of_tiny, silu_of_large>(pairs, y);
}

// Both functions of `count` pairs of gates, from two windows of 11 bits one behind the other.
template <int count>
REFNUM_HD void silu_and_sigmoid_pairs(const uint32_t* windows, const uint32_t* pairs, uint32_t* y, uint32_t* s) {
    look_up_gates<11, count>(windows, pairs, y);
    look_up_gates<11, count>(windows + GateWindow<11>::entries, pairs, s);
    if (!any_outside<11, count>(pairs)) return;
    mend<11, count, silu_of_small, silu_of_large>(pairs, y);
    mend<11, count, sigmoid_of_small, sigmoid_of_large>(pairs, s);
}

}  // namespace refnum
