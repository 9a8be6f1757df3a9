// Float block of 16 -> NVFP4 in any order of operations, to nearest or by random bytes, and the error by which one of two
// scales is chosen (clauses N21.3 to N21.5).
//
// What the elements of a block need follows from its scale's code, so a table of 128 holds it. An ordinary block takes
// few instructions an element: a quotient by the reciprocal, and what a code stands for by one multiplication and one
// addition. Blocks beyond those bounds take the operations of the text.
#pragma once

#include "quantize_nvfp4.cuh"

namespace refnum {

constexpr uint32_t FLOAT_1536 = 0x44C00000, FLOAT_THREE_HALVES = 0x3FC00000, E4M3_LEAST = 0x3B000000;
constexpr uint32_t FLOAT_SEVEN = 0x40E00000, FLOAT_2_M60 = 0x21800000, FLOAT_2_60 = 0x5D800000;
constexpr uint32_t FLOAT_2_M14 = 0x38800000, FLOAT_2_M100 = 0x0D800000, FLOAT_2_126 = 0x7E800000;

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

// What an E2M1 number stands for under a scale's code (N21.5). `amax`: a `tensor_maximum`.
REFNUM_HD uint32_t code_value(uint32_t scale, uint32_t number, uint32_t amax) {
    return divide_floats(multiply_floats(multiply_floats(scale, number), amax), FLOAT_1536);
}

// What a scale's code gives its blocks: their factor or divisor, the divisor's reciprocal, and of an ordinary code of two
// scales what `ordinary_error` takes.
struct CodeNumbers {
    uint32_t factor, inverse, step, rest;

    // whether no product or quotient of a number below 2**60 leaves the range in which it is exact, or rounded once
    REFNUM_HD bool plain() const { return factor >= FLOAT_2_M60 && factor < FLOAT_2_60; }
};
REFNUM_HD CodeNumbers code_numbers(uint32_t code, uint32_t amax, const TensorScale& tensor, int order) {
    const uint32_t factor = variant_factor(code, tensor, order);
    if (!has_two_scales(order)) return {factor, order == NVFP4_MODELOPT ? divide_floats(FLOAT_ONE, factor) : 0, 0, 0};
    // of two numbers, neither of which is more than twice the other, differences are exact
    const uint32_t scale = e4m3_decode(code, 127), one = code_value(scale, FLOAT_ONE, amax);
    const uint32_t more = code_value(scale, FLOAT_THREE_HALVES, amax), minus = one ^ FLOAT_SIGN;
    if (one < FLOAT_2_M100 || multiply_floats(multiply_floats(scale, FLOAT_SIX), amax) > FLOAT_2_126) return {factor, 0, 0, 0};
    const uint32_t apart = add_floats(more, minus), step = add_floats(apart, apart);
    return {factor, 0, step, add_floats(one, step ^ FLOAT_SIGN)};
}

// A block by value, for the rare paths, which have its elements as float32 bits.
template <int kind>
struct Block {
    uint32_t w[NVFP4_WORDS<kind>];

    REFNUM_HD explicit Block(const uint32_t* words) {
        REFNUM_UNROLL
        for (int i = 0; i < NVFP4_WORDS<kind>; ++i) w[i] = words[i];
    }
    REFNUM_HD uint32_t element(int j) const {
        return kind == FLOAT32 ? w[j] : widen_lane<kind == FLOAT32 ? BFLOAT16 : kind>(w[j / 2] >> 16 * (j % 2) & 0xFFFF);
    }
};
struct RandomBytes {
    uint32_t words[4];
};

// E2M1 code of float32 bits to nearest, NaN 7.
REFNUM_HD uint32_t nearest_code(uint32_t y) {
#ifdef __CUDA_ARCH__
    const uint32_t code = append_e2m1(NO_CODES, y) & 7;
#else
    const uint32_t code = e2m1_of_float(y);
#endif
    return (y & FLOAT_MAGNITUDE) > FLOAT_INF ? 7 : code | y >> 31 << 3;
}

// Any block of 16 under any factor -> two packed words, element by element. `random`: a byte for each, if `drawn`.
template <int kind>
REFNUM_RARE uint64_t each_code(Block<kind> block, uint32_t factor, int order, bool drawn, RandomBytes random) {
    uint64_t codes = 0;
    REFNUM_ROLLED
    for (int j = 15; j >= 0; --j) {
        const uint32_t x = block.element(j);
        const uint32_t y = order == NVFP4_MODELOPT ? divide_floats(x, factor) : multiply_floats(x, factor);
        const uint32_t byte = random.words[j / 4] >> 8 * (j % 4) & 0xFF;
        codes = codes << 4 | (drawn ? e2m1_encode(y, 0, byte) : nearest_code(y));
    }
    return codes;
}
REFNUM_HD void split_codes(uint64_t codes, uint32_t* packed) {
    packed[0] = (uint32_t)codes;
    packed[1] = (uint32_t)(codes >> 32);
}

// Sum of the errors of any block's elements, ascending, under a scale's code and its factor (N21.5); bits above FLOAT_INF
// are NaN.
template <int kind>
REFNUM_RARE uint32_t each_error(Block<kind> block, uint32_t code, uint32_t factor, int order, uint32_t amax) {
    uint32_t total = 0;
    REFNUM_ROLLED
    for (int j = 0; j < 16; ++j) {
        const uint32_t x = block.element(j), found = nearest_code(multiply_floats(x, factor));
        const uint32_t value = code_value(e4m3_decode(code, 127), e2m1_decode(found & 7, 127), amax);
        uint32_t apart = add_floats(value | (found & 8) << 28, x ^ FLOAT_SIGN) & FLOAT_MAGNITUDE;
        if (order == NVFP4_FOUR_OVER_SIX_MSE) apart = multiply_floats(apart, apart);
        total = add_floats(total, apart);
    }
    return total & FLOAT_MAGNITUDE;
}

// A block of 16 under what its code gives -> two packed words, to nearest. `odd`: whether one of its elements is NaN or
// Inf. `most`: its maximum.
template <int kind>
REFNUM_HD void variant_block(const uint32_t* w, const CodeNumbers& code, int order, bool odd, uint32_t most,
                             uint32_t* packed) {
    if (order != NVFP4_MODELOPT) return nvfp4_block<kind>(w, code.factor, odd || is_odd_factor(code.factor), packed);
    if (odd || !code.plain() || most >= FLOAT_2_60) {
        return split_codes(each_code<kind>(Block<kind>(w), code.factor, order, false, {}), packed);
    }
    nvfp4_block<kind, BY_INVERSE>(w, code.factor, false, packed, code.inverse);
}

// Eight ordinary elements by a random byte each, in lanes as in parts.cuh: a product times 2**-14 is exact, or below the
// last place of a lane.
template <int kind, int scaling>
REFNUM_HD uint32_t random_word(const uint32_t* in, const CodeNumbers& code, const uint32_t* random) {
    constexpr uint32_t none[4] = {};
#ifdef __CUDA_ARCH__
    constexpr bool at_once = scaling == TIMES;  // the twin of `halves_below` takes powers of two alone
#else
    constexpr bool at_once = false;
#endif
    const uint32_t power = at_once ? multiply_floats(code.factor, FLOAT_2_M14) : FLOAT_2_M14;
    uint32_t x[8], lanes[4];
    float_bits<kind, 4>(in, x);
    REFNUM_UNROLL
    for (int i = 0; i < 4; ++i) {
        const uint32_t draws = permute(random[i / 2], 0, i & 1 ? 0x4342 : 0x4140);
        uint32_t low = x[2 * i], high = x[2 * i + 1];
        if (!at_once) low = scaled_element<scaling>(low, code.factor, code.inverse);
        if (!at_once) high = scaled_element<scaling>(high, code.factor, code.inverse);
        lanes[i] = min_lanes(halves_below(low, high, power) + (draws << 1), HALF_E2M1_MAX);
    }
    return choose(e2m1_pack_lanes(lanes, none), nibble_signs<kind>(in), NIBBLE_MAGNITUDES);
}

// As `variant_block`, by a random byte for each element.
template <int kind>
REFNUM_HD void random_block(const uint32_t* w, CodeNumbers code, int order, bool odd, uint32_t most,
                            const uint32_t* random, uint32_t* packed) {
    if (most == 0 && !is_odd_factor(code.factor)) code.factor = FLOAT_ONE;  // all products are zero
    if (odd || !code.plain() || most >= FLOAT_2_60) {
        const RandomBytes bytes = {{random[0], random[1], random[2], random[3]}};
        return split_codes(each_code<kind>(Block<kind>(w), code.factor, order, true, bytes), packed);
    }
    REFNUM_UNROLL
    for (int half = 0; half < 2; ++half) {
        const uint32_t *in = w + half * (NVFP4_WORDS<kind> / 2), *bytes = random + 2 * half;
        packed[half] = order == NVFP4_MODELOPT ? random_word<kind, BY_INVERSE>(in, code, bytes)
                                               : random_word<kind, TIMES>(in, code, bytes);
    }
}

// As `each_error` of a block without NaN or Inf none of whose products reaches 7, under an ordinary code. A product is
// rounded to E2M1 by adding and subtracting 3 * 2**21 times its binade; a number of a power of two p stands for
// p * (step + rest), one of three halves of it for half a step more, both exact.
template <int kind>
REFNUM_HD uint32_t ordinary_error(const uint32_t* w, const CodeNumbers& code, int order) {
    constexpr uint32_t above = 0x0B400000;  // from a binade to 3 * 2**21 times it
    uint32_t total = 0;
    REFNUM_UNROLL
    for (int half = 0; half < 2; ++half) {
        uint32_t x[8];
        float_bits<kind, 4>(w + half * (NVFP4_WORDS<kind> / 2), x);
        uint32_t apart[8];
        REFNUM_UNROLL
        for (int j = 0; j < 8; ++j) {
            const uint32_t y = multiply_magnitude(x[j], code.factor), binade = y & FLOAT_INF;
            const uint32_t shift = (binade > FLOAT_ONE ? binade : FLOAT_ONE) + above;
            const uint32_t number = subtract_floats(add_floats(y, shift), shift);
            const uint32_t value = multiply_add_floats(number, code.step, multiply_floats(number & FLOAT_INF, code.rest));
            apart[j] = absolute_float(subtract_floats(value, absolute_float(x[j])));
            if (order == NVFP4_FOUR_OVER_SIX_MSE) apart[j] = multiply_floats(apart[j], apart[j]);
        }
        REFNUM_UNROLL
        for (int j = 0; j < 8; ++j) total = add_floats(total, apart[j]);
    }
    return total;
}

// Whether `ordinary_error` takes a block, which has no NaN or Inf.
REFNUM_HD bool is_ordinary(const CodeNumbers& numbers, uint32_t most) {
    return numbers.step != 0 && numbers.plain() && multiply_floats(most, numbers.factor) < FLOAT_SEVEN;
}

// The error of a block under a scale's code. `odd`, `most`: as of `variant_block`.
template <int kind>
REFNUM_HD uint32_t variant_error(const uint32_t* w, uint32_t code, const CodeNumbers& numbers, int order, bool odd,
                                 uint32_t most, uint32_t amax) {
    if (most == 0 && !odd) return 0;  // under both scales, whose codes are one
    if (odd || !is_ordinary(numbers, most)) return each_error<kind>(Block<kind>(w), code, numbers.factor, order, amax);
    return ordinary_error<kind>(w, numbers, order);
}

// Sum of the errors of two rows, or of more.
REFNUM_HD uint32_t add_errors(uint32_t a, uint32_t b) { return add_floats(a, b) & FLOAT_MAGNITUDE; }

// Whether the second scale has less error; NaN is below nothing, and nothing is below it.
REFNUM_HD bool second_is_better(uint32_t first, uint32_t second) { return second < first && first <= FLOAT_INF; }

}  // namespace refnum
