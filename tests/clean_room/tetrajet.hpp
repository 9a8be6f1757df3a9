// N24: TetraJet, blocks along rows or columns, three rules of the scale, and the choice between neighbours.
#pragma once
#include "nvfp4.hpp"

struct TetraJet {
    Matrix codes, scales;
};

struct Line {  // the places of a block
    std::vector<std::size_t> at;
    std::size_t scale;
};

inline std::vector<Line> lines(std::size_t rows, std::size_t columns, bool along) {  // N24.1
    std::vector<Line> out;
    std::size_t wide = along ? columns / 32 : columns, high = along ? rows : runs(rows, 32);
    for (std::size_t i = 0; i < high; i++)
        for (std::size_t j = 0; j < wide; j++) {
            Line line{{}, i * wide + j};
            for (std::size_t n = 0; n < 32; n++) {
                std::size_t r = along ? i : 32 * i + n, c = along ? 32 * j + n : j;
                if (r < rows) line.at.push_back(r * columns + c);
            }
            out.push_back(line);
        }
    return out;
}

inline int least_power(const Number& q) {  // least e with q <= 2^e
    int e = exponent_of(q);
    return e + !std::has_single_bit(q.significand);
}

inline Word tetrajet_byte(const Words& block, const std::string& rule, const std::string& ratio) {  // N24.2, N24.3
    Word a = 0;
    bool special = false;
    for (Word x : block) {
        Word m = x & ~SIGN32;
        special |= m >= INF32;
        a = std::max(a, m);
    }
    if (special) return READ("N24.3/special", Word(255), Word(254));
    if (a == 0) return READ("N24.3", Word(98), Word(0));
    int e;
    if (rule == "truncation_free") {
        Word q = divide(a, SIX32);
        bool narrow = ratio == "bfloat16" ? !WRONG("N24.2") : WRONG("N24.2/ratio");
        if (narrow) q = result("bfloat16", float32(q)) << 16;
        if (q == 0) return 0;
        e = least_power(float32(q));
    } else {
        Number x = float32(a);
        e = exponent_of(x) - 2;
        Number top = times({Kind::finite, false, 6, 0}, e);
        if (rule == "exact") e += READ("N24.2/exact", compare(x, top) > 0, compare(x, top) >= 0);
        else e += WRONG("N24.2/microscaling") && compare(x, top) > 0;
    }
    return clamped(e).byte;
}

inline TetraJet tetrajet_scales(const Matrix& x, bool along, const std::string& rule, const std::string& ratio) {
    TetraJet out{Matrix(x.rows, x.columns),
                 along ? Matrix(x.rows, x.columns / 32) : Matrix(runs(x.rows, 32), x.columns)};
    for (const Line& line : lines(x.rows, x.columns, along)) {
        Words block;
        for (std::size_t place : line.at) block.push_back(x.words[place]);
        if (!along && WRONG("N24.1/short") && line.at.size() < 32) block.resize(1);
        out.scales.words[line.scale] = tetrajet_byte(block, rule, ratio);
    }
    return out;
}

inline Number scaled_by(Word bits, Word byte) { return times(float32(bits), 127 - int(byte)); }

inline TetraJet quantize_tetrajet(const Matrix& x, bool along, const std::string& rule, const std::string& ties,
                                  const std::string& ratio, const Words& random) {  // N24.4
    TetraJet out = tetrajet_scales(x, along, rule, ratio);
    Profile p;
    p.ties = READ("N24.4/ties", ties, "even");
    bool drawn = !random.empty() && !WRONG("N24.4/random");
    if (drawn) p.rounding = "stochastic";
    std::vector<Line> down = lines(x.rows, x.columns, along);
    for (const Line& line : down) {
        Word byte = out.scales.words[line.scale];
        for (std::size_t place : line.at) {
            Number q = scaled_by(x.words[place], byte);
            if (q.zero() && WRONG("N24.4")) q.negative = false;
            out.codes.words[place] = byte == 255 ? 0 : encode(format("E2M1"), q, p, drawn ? random[place] : 0);
        }
    }
    return out;
}

inline Word chosen_neighbour(Word w, Word ema, Word byte) {  // N24.7
    static const Format& f = format("E2M1");
    Number v = scaled_by(w, byte), average = scaled_by(ema, byte);
    bool negative = v.negative;
    v.negative = false;
    Word lower = 0, sign = negative ? 8 : 0;
    for (Word code = 1; code < 8; code++)
        if (compare(value(f, code), v) <= 0) lower = code;
    if (v.zero() && !WRONG("N24.7/zero")) return sign;
    if (average.kind == Kind::nan || lower == 7) return sign | lower;
    if (average.negative != negative && !WRONG("N24.7/sign")) return sign | lower;
    if (average.kind == Kind::infinite) return sign | (lower + 1);
    average.negative = false;
    Number a = value(f, lower), b = value(f, lower + 1);  // both are multiples of 1/2
    Word half = (a.significand << (a.exponent + 1)) + (b.significand << (b.exponent + 1));
    Number middle{Kind::finite, false, half, -2};
    if (WRONG("N24.7")) average = v;
    int order = compare(average, middle);
    return sign | (lower + READ("N24.7/tie", order >= 0, order > 0));
}

inline TetraJet q_ema(const Matrix& w, const Matrix& ema, bool along, const std::string& rule) {
    TetraJet out = tetrajet_scales(w, along, rule, "bfloat16");
    for (const Line& line : lines(w.rows, w.columns, along)) {
        Word byte = out.scales.words[line.scale];
        for (std::size_t place : line.at)
            out.codes.words[place] = byte == 255 ? 0 : chosen_neighbour(w.words[place], ema.words[place], byte);
    }
    return out;
}
