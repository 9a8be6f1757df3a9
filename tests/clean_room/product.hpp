// N19: one step of a tensor core on exact integers, the orders of the sums over K, scales.
#pragma once
#include "arithmetic.hpp"
#include "matrix.hpp"

struct Instruction {  // N19.3
    std::size_t terms;
    int fraction, result;
};

inline Instruction instruction(bool fp8) {
    if (!fp8) return {READ("N19.3/bf16", std::size_t(16), std::size_t(32)), READ("N19.3/bits", 25, 24), 23};
    int bits = WRONG("N19.3") ? 12 : READ("N19.3/more", 13, 14);
    return {READ("N19.3/terms", std::size_t(32), std::size_t(16)), bits, bits};
}

constexpr Word PRODUCT_NAN = 0x7FFFFFFF;

struct Term {  // of a step: (-1)^negative * significand * 2^exponent, and the exponent as it is written
    bool negative;
    Word significand;
    int exponent, written;
};

struct Operand {  // a number, and its written exponent
    Number x;
    int written;
};

inline Operand operand(const Format& f, Word code) {
    Number x = value(f, code);
    return {x, x.exponent + f.fraction};
}

// What NaN and infinities among the terms make of a step (N19.6).
struct Specials {
    bool nan = false, plus = false, minus = false;
    void add(bool infinite, bool negative) {
        if (infinite) (negative ? minus : plus) = true;
    }
    bool any() const { return nan || plus || minus; }
    Word bits() const { return nan || (plus && minus) ? PRODUCT_NAN : plus ? INF32 : INF32 | SIGN32; }
};

inline Word cut(Word significand, int places) {
    if (places <= 0) return significand << -places;
    if (WRONG("N19.2/cut") && places < 64) significand += Word(1) << (places - 1);
    return places < 64 ? significand >> places : 0;
}

inline Word summed_terms(const std::vector<Term>& terms, int top, const Instruction& facts) {  // N19.2 (2) to (4)
    std::int64_t sum = 0;
    int unit = top - facts.fraction;
    for (const Term& t : terms) {
        auto whole = static_cast<std::int64_t>(cut(t.significand, unit - t.exponent));
        sum += t.negative ? -whole : whole;
    }
    Word magnitude = static_cast<Word>(sum < 0 ? -sum : sum);
    if (magnitude == 0) return 0;
    int e = std::max(unit + length(magnitude) - 1, -126), places = e - facts.result - unit;
    if (places > 0 && !WRONG("N19.2/result")) magnitude = places < 64 ? magnitude >> places << places : 0;
    if (magnitude && WRONG("N19.6/subnormal") && unit + length(magnitude) - 1 < -126) return 0;
    return magnitude ? round32(sum < 0, magnitude, unit) : 0;
}

using Operands = std::vector<Operand>;

// One step: the accumulator's float32 bits and pairs of factors.
inline Word product_step(Word c, const Operands& a, const Operands& b, const Instruction& facts) {
    static const Format& f32 = format("FP32");
    Operand start = operand(f32, c);
    Specials special;
    special.nan = start.x.kind == Kind::nan;
    special.add(start.x.kind == Kind::infinite, start.x.negative);
    std::vector<Term> terms;
    int top = READ("N19.2/least", -133, -1000);
    bool alone = true;  // whether every term is -0
    for (std::size_t k = 0; k < a.size(); k++) {
        const Number &x = a[k].x, &y = b[k].x;
        bool negative = x.negative != y.negative, zero = x.zero() || y.zero();
        bool infinite = x.kind == Kind::infinite || y.kind == Kind::infinite;
        special.nan |= x.kind == Kind::nan || y.kind == Kind::nan || (infinite && zero && !WRONG("N19.6/zero"));
        special.add(infinite, negative);
        Term t{negative, x.significand * y.significand, x.exponent + y.exponent, a[k].written + b[k].written};
        if (zero && !WRONG("N19.2/zero")) t.significand = 0;
        else top = std::max(top, t.written);
        if (WRONG("N19.2/normalised") && t.significand) top = std::max(top, t.exponent + length(t.significand) - 1);
        alone &= zero && negative;
        terms.push_back(t);
    }
    if (special.any()) return special.bits();
    if (start.x.significand) {
        if (!WRONG("N19.2/accumulator")) top = std::max(top, start.written);
        terms.push_back({start.x.negative, start.x.significand, start.x.exponent, start.written});
    }
    if (alone && start.x.zero() && WRONG("N19.6/sign")) return SIGN32;
    return summed_terms(terms, top, facts);
}

struct Range {
    std::size_t first, stop;
};

inline std::vector<Range> ranges(Range whole, std::size_t size) {
    std::vector<Range> out;
    for (std::size_t k = whole.first; k < whole.stop; k += size) out.push_back({k, std::min(k + size, whole.stop)});
    return out;
}

struct Order {  // N19.4: parts of K, and terms of a run; 0 is a chain, whose result is taken as it is
    std::vector<Range> parts;
    std::size_t run;
};

inline Order order_of(const std::string& name, std::size_t k) {
    if (name == "chain" || (name == "promote128" && WRONG("N19.4"))) return {{{0, k}}, 0};
    if (name.rfind("promote", 0) == 0) return {{{0, k}}, std::stoul(name.substr(7))};
    std::size_t parts = std::stoul(name.substr(5)), size = runs(runs(k, 128), parts) * 128;
    bool chains = name.size() > 6 && name.substr(name.size() - 6) == "-chain";
    return {ranges({0, k}, READ("N19.4/parts", size, runs(k, parts))), chains ? 0 : std::size_t(128)};
}

struct ProductScales {  // N19.5: of one operand; null where there are none
    const Matrix* items = nullptr;
    bool bytes = true;
    std::size_t rows = 0;  // of the operand
    bool one() const { return items->words.size() == 1; }
    bool by_row() const { return items && !one() && items->rows == rows; }
    bool square() const { return items && !one() && items->rows != rows; }
    bool by_block() const { return items && !one() && items->columns > 1; }
    Word at(std::size_t row, std::size_t block) const {
        if (!items) return 0x3F800000;
        std::size_t line = square() ? row / 128 : row;
        Word item = one() ? items->words[0] : items->at(line, by_block() ? READ("N19.5/block", block, 0) : 0);
        return bytes ? float_scale(item) : item;
    }
};

struct Product {
    std::vector<std::vector<Operand>> a, b;
    ProductScales a_scales, b_scales;
    Instruction facts;
    bool by_block() const { return a_scales.by_block() || b_scales.by_block(); }
};

inline Word run_of(const Product& p, std::size_t i, std::size_t j, Range run) {
    Word c = 0;
    for (Range step : ranges(run, p.facts.terms)) {
        std::vector<Operand> x(p.a[i].begin() + step.first, p.a[i].begin() + step.stop);
        std::vector<Operand> y(p.b[j].begin() + step.first, p.b[j].begin() + step.stop);
        c = product_step(c, x, y, p.facts);
    }
    return c;
}

inline Word scaled_run(const Product& p, Word sum, Word r, Word left, Word right) {  // N19.5, by block
    if (WRONG("N19.5/fused")) return add(sum, multiply(r, multiply(left, right)));
    if (p.a_scales.square() || p.b_scales.square()) return fused(sum, r, multiply(left, right));
    return fused(sum, multiply(r, left), right);
}

inline Word whole_scaled(const Product& p, Word t, Word left, Word right) {  // N19.5, not by block
    bool rows = p.a_scales.by_row() && p.b_scales.by_row();
    if (READ("N19.5", rows, !rows)) return multiply(multiply(t, right), left);
    if (WRONG("N19.5/zero")) return multiply(t, multiply(left, right));
    return fused(0, t, multiply(left, right));
}

inline Word product_entry(const Product& p, std::size_t i, std::size_t j, const Order& order) {
    Word total = 0;
    for (const Range& part : order.parts) {
        Word sum = 0;
        for (Range run : order.run ? ranges(part, order.run) : std::vector<Range>{part}) {
            Word r = run_of(p, i, j, run);
            std::size_t block = run.first / 128;
            if (p.by_block()) sum = scaled_run(p, sum, r, p.a_scales.at(i, block), p.b_scales.at(j, block));
            else sum = order.run ? add(sum, r) : r;
        }
        total = part.first == 0 ? sum : add(total, sum);
    }
    bool scaled = p.a_scales.items || p.b_scales.items;
    return scaled && !p.by_block() ? whole_scaled(p, total, p.a_scales.at(i, 0), p.b_scales.at(j, 0)) : total;
}

inline Word product_result(const std::string& out, Word bits) {  // N19.6, N19.8
    bool nan = (bits & ~SIGN32) > INF32;
    if (out == "float32") return nan ? READ("N19.6", PRODUCT_NAN, NAN32) : bits;
    if (nan) return 0x7FFF;
    return READ("N19.8", result(out, float32(bits)), bits >> 16);
}
