// FP8 products in a named order (clause N19).
#include <vector>

#include "common.hpp"

#include "../kernels/matmul_bf16.cuh"
#include "../kernels/matmul_fp8.cuh"

using namespace refnum;

namespace {

// A row's codes of one step as the device keeps them in shared memory.
struct StepRow {
    uint32_t magnitude[STEP], mask[STEP], lanes[STEP / 2], signs;
    bool special;
};

template <Fp8 format>
std::vector<StepRow> stage(const uint8_t* row, int64_t k, uint32_t bias) {
    std::vector<StepRow> out((size_t)((k + STEP - 1) / STEP));
    for (size_t s = 0; s < out.size(); ++s) {
        uint8_t codes[STEP] = {};
        const int64_t first = (int64_t)s * STEP, left = k - first;
        std::memcpy(codes, row + first, (size_t)(left < STEP ? left : STEP));
        out[s].signs = 0, out[s].special = false;
        for (int i = 0; i < STEP / 4; ++i) {
            const uint32_t word = word_at(codes, i);
            const Fp8Word w = fp8_word<format>(word, bias);
            std::memcpy(out[s].magnitude + 4 * i, w.magnitude, 16);
            std::memcpy(out[s].mask + 4 * i, w.mask, 16);
            std::memcpy(out[s].lanes + 2 * i, w.lanes, 8);
            out[s].signs |= word_signs(word, i);
            out[s].special |= has_special_code<format>(word);
        }
    }
    return out;
}

// A row's codes of one step of BF16.
struct Bf16Row {
    Bf16Term terms[BF16_STEP];
    bool special;
};

std::vector<Bf16Row> stage_bf16(const uint16_t* row, int64_t k, int lift) {
    std::vector<Bf16Row> out((size_t)((k + BF16_STEP - 1) / BF16_STEP));
    for (size_t s = 0; s < out.size(); ++s) {
        out[s].special = false;
        for (int i = 0; i < BF16_STEP; ++i) {
            const int64_t place = (int64_t)s * BF16_STEP + i;
            const uint32_t code = place < k ? row[place] : 0;
            out[s].terms[i] = bf16_term(code, lift);
            out[s].special |= has_special_bf16(code);
        }
    }
    return out;
}

uint32_t step(const Bf16Row& a, const Bf16Row& b, uint32_t c) {
    int32_t top = accumulator_exponent(c);
    for (int k = 0; k < BF16_STEP; ++k) {
        const int32_t exponent = a.terms[k].exponent + b.terms[k].exponent;
        top = exponent > top ? exponent : top;
    }
    uint32_t words = 0, negatives = 0;
    for (int k = 0; k < BF16_STEP; ++k) {
        const Bf16Term &x = a.terms[k], &y = b.terms[k];
        const uint32_t signs = x.mask ^ y.mask;
        words += bf16_word(x.magnitude, y.magnitude, signs, (uint32_t)(top - x.exponent - y.exponent));
        negatives += signs & 1;
    }
    return bf16_step_result(words, negatives, c, top);
}

uint32_t step(const StepRow& a, const StepRow& b, uint32_t c) {
    uint32_t most = accumulator_lanes(c);
    for (int k = 0; k < STEP / 2; ++k) most = larger_sums(a.lanes[k], b.lanes[k], most);
    const uint32_t magic = magic_bits(most);
    uint32_t words = accumulator_word(c, magic);
    for (int k = 0; k < STEP; ++k) words += term_word(a.magnitude[k], b.magnitude[k], a.mask[k] ^ b.mask[k], magic);
    return step_result(words, (uint32_t)__builtin_popcount(a.signs ^ b.signs), magic);
}

// Scales [rows / tall, blocks], E8M0 bytes or float32, or one for all where both strides are 0; strides count items.
struct Scales {
    const void* items;
    int64_t row_stride, block_stride, tall, wide;
    uint32_t at(int64_t row, int64_t block) const {
        if (!items) return FLOAT_ONE;
        const int64_t place = row / tall * row_stride + block * block_stride;
        return wide ? static_cast<const uint32_t*>(items)[place]
                    : scale_of_byte(static_cast<const uint8_t*>(items)[place]);
    }
};

struct Product {
    const void *a, *b;
    int64_t m, n, k, run, part;  // run and part in steps
    Scales a_scales, b_scales;
    int scaling;  // 0 none, 1 a block of K, 2 the whole sum
    bool scales_first;
};

// What the kinds of operands differ in: codes of a row, products of a step, NaN and Inf among them.
template <Fp8 left, Fp8 right>
struct Fp8Operands {
    using Code = uint8_t;
    using Row = StepRow;
    static constexpr int64_t TERMS = STEP;
    static std::vector<Row> left_row(const Code* row, int64_t k) { return stage<left>(row, k, LEFT_BIAS); }
    static std::vector<Row> right_row(const Code* row, int64_t k) { return stage<right>(row, k, RIGHT_BIAS); }
    static uint32_t special(const Code* a, const Code* b, uint32_t count) {
        return special_terms<left, right>(a, b, count);
    }
};

struct Bf16Operands {
    using Code = uint16_t;
    using Row = Bf16Row;
    static constexpr int64_t TERMS = BF16_STEP;
    static std::vector<Row> left_row(const Code* row, int64_t k) { return stage_bf16(row, k, BF16_LIFT); }
    static std::vector<Row> right_row(const Code* row, int64_t k) { return stage_bf16(row, k, 0); }
    static uint32_t special(const Code* a, const Code* b, uint32_t count) { return special_bf16_terms(a, b, count); }
};

template <typename Kind, typename Row = typename Kind::Row>
uint32_t entry(const Product& p, int64_t i, int64_t j, const std::vector<Row>& x, const std::vector<Row>& y) {
    const typename Kind::Code *a = static_cast<const typename Kind::Code*>(p.a) + i * p.k,
                              *b = static_cast<const typename Kind::Code*>(p.b) + j * p.k;
    const int64_t steps = (int64_t)x.size();
    uint32_t c = 0, sum = 0, total = 0, special = 0;
    int64_t in_run = 0, in_part = 0;
    for (int64_t s = 0; s < steps; ++s) {
        c = step(x[(size_t)s], y[(size_t)s], c);
        if (x[(size_t)s].special || y[(size_t)s].special) {
            const int64_t first = s * Kind::TERMS, count = p.k - first < Kind::TERMS ? p.k - first : Kind::TERMS;
            special |= Kind::special(a + first, b + first, (uint32_t)count);
        }
        if ((c & FLOAT_MAGNITUDE) == FLOAT_INF) {  // a sum that overflows, unless it is special already
            special |= special ? 0 : c & FLOAT_SIGN ? MINUS : PLUS;
            c = 0;
        }
        const bool ends_part = ++in_part == p.part || s + 1 == steps;
        if (++in_run == p.run || ends_part) {
            c = with_special_terms(special, c);
            const uint32_t left_scale = p.scaling == 1 ? p.a_scales.at(i, s / 4) : 0;
            sum = p.scaling == 1 ? add_scaled(sum, c, left_scale, p.b_scales.at(j, s / 4), p.scales_first)
                                 : add_floats(sum, c);
            c = special = 0;
            in_run = 0;
        }
        if (ends_part) {
            total = s + 1 == in_part ? sum : add_floats(total, sum);
            sum = 0;
            in_part = 0;
        }
    }
    if (p.scaling == 2) total = scale_sum(total, p.a_scales.at(i, 0), p.b_scales.at(j, 0), p.scales_first);
    return total;
}

template <typename Kind>
void product(const Product& p, uint32_t* out, uint16_t* narrow) {
    using Code = typename Kind::Code;
    const Code *a = static_cast<const Code*>(p.a), *b = static_cast<const Code*>(p.b);
    std::vector<std::vector<typename Kind::Row>> columns;
    for (int64_t j = 0; j < p.n; ++j) columns.push_back(Kind::right_row(b + j * p.k, p.k));
    for (int64_t i = 0; i < p.m; ++i) {
        const std::vector<typename Kind::Row> row = Kind::left_row(a + i * p.k, p.k);
        for (int64_t j = 0; j < p.n; ++j) {
            const uint32_t bits = entry<Kind>(p, i, j, row, columns[(size_t)j]);
            if (narrow) narrow[i * p.n + j] = (uint16_t)product_bfloat16(bits);
            else out[i * p.n + j] = product_float(bits);
        }
    }
}

}  // namespace

extern "C" {

// formats: bit 0 of the left operand is E5M2, bit 1 of the right. `strides` holds row, block, tall, wide of both scales.
void refnum_matmul_fp8(const uint8_t* a, const uint8_t* b, const void* a_scales, const void* b_scales,
                       int64_t m, int64_t n, int64_t k, int64_t run, int64_t part, const int64_t* strides,
                       int scaling, int scales_first, int formats, uint32_t* out, uint16_t* narrow) {
    const Product p = {a, b, m, n, k, run, part, {a_scales, strides[0], strides[1], strides[2], strides[3]},
                       {b_scales, strides[4], strides[5], strides[6], strides[7]}, scaling, scales_first != 0};
    if (formats == 0) product<Fp8Operands<E4M3, E4M3>>(p, out, narrow);
    else if (formats == 1) product<Fp8Operands<E5M2, E4M3>>(p, out, narrow);
    else if (formats == 2) product<Fp8Operands<E4M3, E5M2>>(p, out, narrow);
    else product<Fp8Operands<E5M2, E5M2>>(p, out, narrow);
}

void refnum_matmul_bf16(const uint16_t* a, const uint16_t* b, int64_t m, int64_t n, int64_t k, int64_t run,
                        int64_t part, uint32_t* out, uint16_t* narrow) {
    const Product p = {a, b, m, n, k, run, part, {}, {}, 0, false};
    product<Bf16Operands>(p, out, narrow);
}

// One step a result, from any accumulators that the header allows: what proofs and tests ask.
void refnum_fp8_steps(const uint8_t* a, const uint8_t* b, const uint32_t* c, int64_t count, int64_t terms, int formats,
                      uint32_t* out) {
    for (int64_t i = 0; i < count; ++i) {
        const StepRow x = formats & 1 ? stage<E5M2>(a + i * terms, terms, LEFT_BIAS)[0]
                                      : stage<E4M3>(a + i * terms, terms, LEFT_BIAS)[0];
        const StepRow y = formats & 2 ? stage<E5M2>(b + i * terms, terms, RIGHT_BIAS)[0]
                                      : stage<E4M3>(b + i * terms, terms, RIGHT_BIAS)[0];
        out[i] = step(x, y, c[i]);
    }
}
}
