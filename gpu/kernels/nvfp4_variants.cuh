// Float block of 16 -> NVFP4 in any order of operations, to nearest or by random bytes, and the error by which one of two
// scales is chosen (clauses N21.3 to N21.5).
#pragma once

#include "quantize_nvfp4.cuh"

namespace refnum {

constexpr uint32_t FLOAT_1536 = 0x44C00000, FLOAT_THREE_HALVES = 0x3FC00000, E4M3_LEAST = 0x3B000000;

// Whether the second of two scales is taken where its error is less.
REFNUM_HD bool has_two_scales(int order) { return order >= NVFP4_FOUR_OVER_SIX; }

// As `tensor_scale`; in the order of ModelOpt the scale of the tensor and six times it.
REFNUM_HD TensorScale variant_scale(uint32_t amax, int order) {
    if (order < NVFP4_MODELOPT) return tensor_scale(amax, order);
    if (order == NVFP4_MODELOPT) {
        const uint32_t whole = divide_floats(amax, FLOAT_2688);
        return {whole, multiply_floats(whole, FLOAT_SIX), 0};
    }
    const uint32_t found = amax == 0 || amax == FLOAT_INF ? FLOAT_ONE : at_most_largest(divide_floats(FLOAT_1536, amax));
    return {found, 0, divide_floats(FLOAT_ONE, found)};
}

// Code of the scale of a block whose maximum is `amax`, float32 bits. `second`: of the scale that is half as large again.
REFNUM_HD uint32_t variant_code(uint32_t amax, const TensorScale& tensor, int order, bool second) {
    if (order < NVFP4_MODELOPT) return block_code(amax, tensor, order);
    if (order == NVFP4_MODELOPT) {
        const uint32_t scale = canonical_float(divide_floats(amax, tensor.sixth)), some = scale == 0 ? FLOAT_ONE : scale;
        return e4m3_nearest(some < E4M3_LEAST ? E4M3_LEAST : some);
    }
    const uint32_t six = multiply_floats(divide_floats(amax, FLOAT_SIX), tensor.whole);
    const uint32_t scale = second ? multiply_floats(six, FLOAT_THREE_HALVES) : six;
    return e4m3_nearest(scale < FLOAT_448 ? scale : FLOAT_448);
}

// Factor of the elements under a scale's code, float32 bits; in the order of ModelOpt their divisor.
REFNUM_HD uint32_t variant_factor(uint32_t code, const TensorScale& tensor, int order) {
    if (order == NVFP4_MODELOPT) return multiply_floats(e4m3_decode(code, 127), tensor.whole);
    return block_factor(code, tensor, order == NVFP4_TORCHAO ? NVFP4_TORCHAO : NVFP4_TE);
}

// A block of 16 under a factor -> two packed words, to nearest. `odd`: whether one of its elements is NaN or Inf.
template <int kind>
REFNUM_HD void variant_block(const uint32_t* w, uint32_t factor, int order, bool odd, uint32_t* packed) {
    odd = odd || is_odd_factor(factor);
    if (order == NVFP4_MODELOPT) nvfp4_block<kind, true>(w, factor, odd, packed);
    else nvfp4_block<kind>(w, factor, odd, packed);
}

// The same by a random byte for each element. Of ordinary ones, lanes as in parts.cuh: a quotient or product over 2**14 is
// exact, or below the last place of a lane.
template <int kind>
REFNUM_HD void random_block(const uint32_t* w, uint32_t factor, int order, bool odd, const uint32_t* random,
                            uint32_t* packed) {
    constexpr uint32_t part = 0x38800000, none[4] = {};
    odd = odd || is_odd_factor(factor);
    REFNUM_UNROLL
    for (int half = 0; half < 2; ++half) {
        const uint32_t* in = w + half * (NVFP4_WORDS<kind> / 2);
        uint32_t y[8], lanes[4], codes = 0;
        float_bits<kind, 4>(in, y);
        REFNUM_UNROLL
        for (int j = 0; j < 8; ++j) {
            y[j] = order == NVFP4_MODELOPT ? divide_floats(y[j], factor) : multiply_floats(y[j], factor);
            if (odd) codes |= e2m1_encode(y[j], 0, random[2 * half + j / 4] >> 8 * (j % 4) & 0xFF) << 4 * j;
        }
        REFNUM_UNROLL
        for (int i = 0; i < 4; ++i) {
            const uint32_t draws = permute(random[2 * half + i / 2], 0, i & 1 ? 0x4342 : 0x4140);
            lanes[i] = min_lanes(halves_below(y[2 * i], y[2 * i + 1], part) + (draws << 1), HALF_E2M1_MAX);
        }
        const uint32_t ordinary = choose(e2m1_pack_lanes(lanes, none), nibble_signs<kind>(in), NIBBLE_MAGNITUDES);
        packed[half] = odd ? codes : ordinary;
    }
}

// What the codes 0 to 7 of a block stand for under its scale's code (N21.5). `amax`: a `tensor_maximum`.
REFNUM_HD void code_values(uint32_t code, uint32_t amax, uint32_t* values) {
    const uint32_t scale = e4m3_decode(code, 127);
    REFNUM_UNROLL
    for (int i = 0; i < 8; ++i) {
        values[i] = divide_floats(multiply_floats(multiply_floats(scale, e2m1_decode(i, 127)), amax), FLOAT_1536);
    }
}

// Sum of the errors of a block's elements, ascending, whose codes stand for `values`; bits above FLOAT_INF are NaN.
template <int kind>
REFNUM_HD uint32_t block_error(const uint32_t* w, const uint32_t* packed, const uint32_t* values, int order) {
    uint32_t total = 0;
    REFNUM_UNROLL
    for (int half = 0; half < 2; ++half) {
        uint32_t x[8];
        float_bits<kind, 4>(w + half * (NVFP4_WORDS<kind> / 2), x);
        REFNUM_UNROLL
        for (int j = 0; j < 8; ++j) {
            const uint32_t code = packed[half] >> 4 * j;
            uint32_t apart = add_floats(values[code & 7] | (code & 8) << 28, x[j] ^ FLOAT_SIGN) & FLOAT_MAGNITUDE;
            if (order == NVFP4_FOUR_OVER_SIX_MSE) apart = multiply_floats(apart, apart);
            total = add_floats(total, apart);
        }
    }
    return total & FLOAT_MAGNITUDE;
}

// Sum of the errors of two rows, or of more.
REFNUM_HD uint32_t add_errors(uint32_t a, uint32_t b) { return add_floats(a, b) & FLOAT_MAGNITUDE; }

// Whether the second scale has less error; NaN is below nothing, and nothing is below it.
REFNUM_HD bool second_is_better(uint32_t first, uint32_t second) { return second < first && first <= FLOAT_INF; }

}  // namespace refnum
