// N23: logarithmic FP4, an element at a time.
#pragma once
#include "nvfp4.hpp"

inline Word power32(int exponent) { return round32(false, 1, exponent); }
inline bool below(Word a, Word b) { return (a & ~SIGN32) < (b & ~SIGN32); }  // of magnitudes that are numbers

struct Luq {
    Matrix codes;
    Word alpha;
};

inline Word luq_maximum(const Matrix& x, const Word* given) {  // N23.2
    if (given) return is_nan32(*given) ? 0 : READ("N23.2/sign", *given & ~SIGN32, *given);
    Word most = 0;
    for (Word bits : x.words) {
        if (is_nan32(bits)) {
            if (WRONG("N23.2/nan")) return NAN32;
            continue;
        }
        if (WRONG("N23.2") && (bits & SIGN32)) continue;
        most = std::max(most, bits & ~SIGN32);
    }
    return most;
}

inline Word luq_step(Word maximum, std::uint64_t divisor, const std::string& step) {  // N23.2
    Word quotient = divide(maximum, whole32(int(READ("N23.2/divisor", divisor, 64))));
    Word magnitude = quotient & ~SIGN32;
    if (step == "real" || is_nan32(quotient) || magnitude == INF32 || magnitude == 0) return quotient;
    int k = exponent_of(float32(quotient));
    Word power = power32(k) | (quotient & SIGN32);
    return power == quotient || WRONG("N23.2/power") ? power : power32(k + 1) | (quotient & SIGN32);
}

inline Word pruned(Word a, Word r) {  // N23.4: r / 2^24 < a, exactly
    Number n = float32(a);  // below 1
    if (n.zero()) return READ("N23.4", Word(0), Word(r == 0));
    int shift = n.exponent + 24;  // a * 2^24 = significand * 2^shift, shift <= 0
    if (shift < -62) return r == 0;
    Wide left = Wide(r) << -shift;
    return READ("N23.4", left < n.significand, left <= n.significand);
}

inline Word between(Word a, Word q) {  // N23.5
    Number n = float32(a);
    int k = exponent_of(n);
    Word f = (n.significand << (23 - (length(n.significand) - 1))) - (Word(1) << 23);
    bool up = READ("N23.5", f + q >= (Word(1) << 23), f > q);
    Word code = k + up + 1;
    if (code > 7 && WRONG("N23.5/top")) return code & 7;
    return std::min(code, Word(7));
}

inline Word luq_code(Word bits, Word alpha, Word r, Word q) {
    Word sign = bits & SIGN32 ? 8 : 0, magnitude = bits & ~SIGN32;
    if (is_nan32(bits)) return READ("N23.1/nan", Word(7), Word(0));
    if (magnitude == INF32) return sign | 7;
    Word c = 0;
    if (magnitude != 0) {
        Word a = divide(magnitude, alpha);
        if (WRONG("N23.3")) a = multiply(magnitude, divide(ONE32, alpha));
        if (is_nan32(a)) return 7;  // by a wrong reading alone
        a &= ~SIGN32;
        if (a == INF32) c = READ("N23.3/infinite", Word(7), Word(0));
        else if (below(a, ONE32)) c = pruned(a, READ("N23.3/words", r, q));
        else c = between(a, READ("N23.3/words", q, r >> 1));
    }
    if (c == 0) return READ("N23.1", Word(0), sign);
    return sign | c;
}

inline Luq luq(const Matrix& x, const Words& r, const Words& q, std::uint64_t divisor, const Word* given,
               const std::string& step) {
    Luq out{Matrix(x.rows, x.columns), luq_step(luq_maximum(x, given), divisor, step)};
    for (std::size_t i = 0; i < x.words.size(); i++) out.codes.words[i] = luq_code(x.words[i], out.alpha, r[i], q[i]);
    return out;
}

inline Matrix dequantize_luq(const Matrix& codes, Word alpha, const std::string& dtype) {  // N23.6
    Matrix out(codes.rows, codes.columns);
    for (std::size_t i = 0; i < codes.words.size(); i++) {
        Word c = codes.words[i] & 7, sign = codes.words[i] & 8 ? SIGN32 : 0;
        Word v = (c == 0 ? 0 : power32(int(c) - READ("N23.6", 1, 0))) | sign;
        Word bits = multiply(v, READ("N23.6/sign", alpha, alpha & ~SIGN32));
        out.words[i] = dtype == "float32" ? bits : READ("N23.6/bfloat16", result(dtype, float32(bits)), bits >> 16);
    }
    return out;
}

struct Grid {  // N23.8: t * L_c = numerator / denominator * s * 4^(n0 + c - 1)
    int n0;
    bool odd;
    Word numerator = 5, denominator = 8;
    int exponent(Word c) const { return 2 * (n0 + int(c) - 1) + (odd ? READ("N23.8/odd", 1, -1) : 0); }
    bool reached(Word magnitude, Word c) const {
        Number x = float32(magnitude);  // x.significand * 2^x.exponent > numerator / denominator * 2^exponent
        int apart = x.exponent - exponent(c);
        if (x.zero()) return false;
        if (apart > 30) return true;
        if (apart < -90) return false;
        Wide left = Wide(x.significand) * denominator, right = Wide(numerator);
        if (apart >= 0) left <<= apart;
        else right <<= -apart;
        return READ("N23.8", left > right, left >= right);
    }
};

inline Grid grid_of(std::int64_t n0, const std::string& phase, const std::string& threshold) {
    Grid g{int(n0), phase == "odd"};
    if (threshold == "0.4") g.numerator = 2, g.denominator = READ("N23.8/0.4", Word(5), Word(4));
    if (threshold == "log") g.numerator = 1, g.denominator = 2;
    if (threshold == "log" && WRONG("N23.8/log")) g.numerator = 5, g.denominator = 8;
    return g;
}

inline Matrix radix4(const Matrix& x, const Grid& grid) {
    Matrix out(x.rows, x.columns);
    for (std::size_t i = 0; i < x.words.size(); i++) {
        Word magnitude = x.words[i] & ~SIGN32, c = 0;
        if (is_nan32(magnitude)) {
            out.words[i] = READ("N23.1/nan", Word(7), Word(0));
            continue;
        }
        while (c < 7 && (magnitude == INF32 || grid.reached(magnitude, c + 1))) c++;
        if (c == 0 && magnitude != 0 && WRONG("N23.8/zero")) {  // the middle of zero and the least level
            Grid half = grid;
            half.numerator = 1, half.denominator = 2;
            c = half.reached(magnitude, 1);
        }
        Word sign = x.words[i] & SIGN32 ? 8 : 0;
        out.words[i] = c == 0 ? READ("N23.1", Word(0), sign) : sign | c;
    }
    return out;
}

inline Matrix dequantize_radix4(const Matrix& codes, const Grid& grid, const std::string& dtype) {  // N23.9
    Matrix out(codes.rows, codes.columns);
    for (std::size_t i = 0; i < codes.words.size(); i++) {
        Word c = codes.words[i] & 7, sign = codes.words[i] & 8 ? SIGN32 : 0;
        if (c == 0 && WRONG("N23.9")) sign = 0;
        Word bits = (c == 0 ? 0 : power32(grid.exponent(c))) | sign;
        out.words[i] = dtype == "float32" ? bits : bits >> 16;
    }
    return out;
}
