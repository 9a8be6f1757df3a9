// N25: the slope of DGE by whole integers, and the clamp of OCC.
#pragma once
#include "arithmetic.hpp"
#include "matrix.hpp"
#include "nvfp4.hpp"
#include "vectors.hpp"

#include <algorithm>
#include <tuple>

struct Natural {  // limbs of 32 bits from the lowest
    Words limbs{1};
    Natural& operator*=(Word x) {  // x below 2^64, by halves
        Words out(limbs.size() + 3);
        for (std::size_t half = 0; half < 2; half++) {
            Wide carry = 0;
            Word factor = half ? x >> 32 : x & 0xFFFFFFFF;
            for (std::size_t i = 0; i + half < out.size(); i++) {
                carry += Wide(out[i + half]) + (i < limbs.size() ? Wide(limbs[i]) * factor : 0);
                out[i + half] = Word(carry & 0xFFFFFFFF), carry >>= 32;
            }
        }
        while (out.size() > 1 && out.back() == 0) out.pop_back();
        limbs = out;
        return *this;
    }
    int bits() const { return 32 * int(limbs.size() - 1) + length(limbs.back()); }
};

struct Dyadic {  // significand * 2^exponent
    Word significand;
    int exponent;
};

struct Slope {
    int k;
    Word cap;  // bits of the target
    const Format& target;
    Word one() const { return Word(target.bias) << target.fraction; }

    bool below(Word pattern, const Dyadic& t) const {  // the slope is below the middle above a pattern, N25.2
        Number low = value(target, pattern);
        Natural product;
        for (int i = 0; i < k; i++) product *= Word(k) * (2 * low.significand + 1);
        for (int i = 0; i < k - 1; i++) product *= t.significand;
        int shift = -(k * (low.exponent - 1) + (k - 1) * t.exponent);  // not (k m)^k t^(k-1) < 1; no equality
        return shift < 0 || product.bits() > shift;
    }

    Word at(const Dyadic& t) const {
        if (k == 1) return std::min(one(), cap);
        if (t.significand == 0) return READ("N25.1/cap", cap, Word(0));
        Word low = 1, high = Word(target.infinity) - 1;
        while (low < high) {
            Word pattern = (low + high) / 2;
            if (below(pattern, t)) high = pattern;
            else low = pattern + 1;
        }
        if (WRONG("N25.2")) low -= below_itself(low, t);
        return std::min(low, cap);
    }

    bool below_itself(Word pattern, const Dyadic& t) const {  // the slope is below the number of a pattern: truncation
        Number own = value(target, pattern);
        Natural product;
        for (int i = 0; i < k; i++) product *= Word(k) * own.significand;
        for (int i = 0; i < k - 1; i++) product *= t.significand;
        int shift = -(k * own.exponent + (k - 1) * t.exponent);
        return shift < 0 || product.bits() > shift + 1 || (product.bits() == shift + 1 && !power_of_two(product));
    }

    static bool power_of_two(const Natural& x) {
        for (std::size_t i = 0; i + 1 < x.limbs.size(); i++)
            if (x.limbs[i]) return false;
        return std::has_single_bit(x.limbs.back());
    }
};

constexpr int E2M1_HALVES[] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};

inline Word halves32(int halves) { return round32(halves < 0, Wide(std::abs(halves)), -1); }

// Whether x is below, at or above so many halves: -1, 0, 1.
inline int against(const Number& x, int halves) {
    if (x.kind == Kind::infinite) return x.negative ? -1 : 1;
    Word difference = add(round32(x.negative, x.significand, x.exponent), halves32(-halves));
    return (difference & ~SIGN32) == 0 ? 0 : difference & SIGN32 ? -1 : 1;
}

inline Dyadic exact_place(const Number& x, int low, int high) {  // N25.1; in units of 2^-56
    if (x.zero() || exponent_of(x) < -32) return {1, 0};
    std::int64_t twice = std::int64_t(x.significand) << (x.exponent + 57);
    std::int64_t t = (x.negative ? -twice : twice) - (std::int64_t(low + high) << 55);
    int halves = high - low;  // 1, 2 or 4 halves: hi - lo is a power of two
    return {Word(std::abs(t)), -56 + 1 - (halves == 1 ? 0 : halves == 2 ? 1 : 2)};
}

inline Word released_place(const Number& x, int low, int high) {  // N25.3, float32 bits
    Word bits = x.kind == Kind::infinite ? INF32 | SIGN32 : round32(x.negative, x.significand, x.exponent);
    Word doubled = multiply(round32(false, 2, 0), add(bits, halves32(-low)));
    return add(divide(doubled, halves32(high - low)), ONE32 | SIGN32) & ~SIGN32;
}

inline Word slope(const Number& x, const Slope& s, bool released) {
    bool nan = released ? WRONG("N25.3/nan") : !WRONG("N25.1/nan");
    if (x.kind == Kind::nan) return nan ? Word(s.target.nan) : 0;
    if (against(x, 12) > 0) return 0;
    if (against(x, -12) < 0 && READ("N25.3", !released, true) && READ("N25.1", true, false)) return 0;
    std::size_t interval = 0;
    while (interval < 13 && against(x, E2M1_HALVES[interval + 1]) >= 0) interval++;
    int low = E2M1_HALVES[interval], high = E2M1_HALVES[interval + 1];
    if (!released) {
        if (against(x, -12) < 0) return slope({Kind::finite, true, 6, 0}, s, false);
        return s.at(exact_place(x, low, high));
    }
    if (WRONG("N25.3/place") && against(x, -12) >= 0) return s.at(exact_place(x, low, high));
    Word t = released_place(x, low, high);
    if (t == INF32) return s.k == 1 ? std::min(s.one(), s.cap) : READ("N25.3/infinite", Word(0), s.cap);
    Number place = float32(t);
    return s.at({place.significand, place.exponent});
}

struct Clamped {
    Matrix clamped, residual, thresholds;
};

struct Clamp {  // N25.4
    const Format& own;
    Word numerator, denominator;
    Word sign() const { return Word(1) << (own.bits - 1); }
    bool nan(Word bits) const { return value(own, bits).kind == Kind::nan; }

    bool before(Word a, Word b) const {  // the order of the numbers
        if (nan(a) || nan(b)) return READ("N25.4/nan", !nan(a) && nan(b), nan(a) && !nan(b));
        bool minus = a & sign(), other = b & sign();
        if (minus != other) {
            if (((a | b) & ~sign()) == 0 && WRONG("N25.4/zero")) return false;
            return minus;
        }
        return minus ? a > b : a < b;
    }

    Word canonical(Word bits) const { return nan(bits) ? Word(own.nan) : bits; }

    std::pair<Word, Word> thresholds(Words y) const {
        if (y.empty()) return {Word(own.infinity) | sign(), Word(own.infinity)};
        std::stable_sort(y.begin(), y.end(), [this](Word a, Word b) { return before(a, b); });
        Word n = y.size(), up = numerator * n;
        Word low = (denominator - numerator) * n / denominator, high = READ("N25.4/index", up, up + denominator - 1);
        return {canonical(y[low]), canonical(y[std::min(high / denominator, n - 1)])};
    }

    Word inside(Word bits, Word low, Word high) const {
        if (nan(bits)) return Word(own.nan);
        if ((nan(low) || nan(high)) && !WRONG("N25.4/threshold")) return Word(own.nan);
        if (!nan(low) && before(bits, low) && !WRONG("N25.4/lower")) return low;
        return !nan(high) && before(high, bits) ? high : bits;
    }

    Word difference(Word a, Word b) const {
        if (a == b && WRONG("N25.4/residual")) return 0;
        Number x = value(own, a), y = value(own, b);
        auto wide = [](const Number& n) {
            Word minus = n.negative ? SIGN32 : 0;
            if (n.kind == Kind::nan) return NAN32;
            if (n.kind == Kind::infinite) return INF32 | minus;
            return n.zero() ? minus : round32(n.negative, n.significand, n.exponent);
        };
        Word found = add(wide(x), wide(y) ^ SIGN32);
        if (own.name == "FP32") return found;
        if (is_nan32(found)) return Word(own.nan);
        Profile p;
        p.overflow = "nan";
        Number n = float32(found);
        return n.zero() ? (found >> 16) : encode(own, n, p);
    }
};

inline Clamped occ(const Matrix& x, const std::string& axis, const Clamp& c) {
    std::string along = axis == "channel" ? READ("N25.4/axis", axis, std::string("tensor")) : axis;
    std::size_t vectors = along == "tensor" ? 1 : along == "token" ? x.rows : x.columns;
    std::vector<Words> held(vectors);
    auto place = [&](std::size_t r, std::size_t k) { return along == "tensor" ? 0 : along == "token" ? r : k; };
    for (std::size_t r = 0; r < x.rows; r++)
        for (std::size_t k = 0; k < x.columns; k++) held[place(r, k)].push_back(x.at(r, k));
    Clamped out{Matrix(x.rows, x.columns), Matrix(x.rows, x.columns), Matrix(2, vectors)};
    for (std::size_t v = 0; v < vectors; v++)
        std::tie(out.thresholds.at(0, v), out.thresholds.at(1, v)) = c.thresholds(held[v]);
    for (std::size_t r = 0; r < x.rows; r++)
        for (std::size_t k = 0; k < x.columns; k++) {
            std::size_t v = place(r, k);
            out.clamped.at(r, k) = c.inside(x.at(r, k), out.thresholds.at(0, v), out.thresholds.at(1, v));
            out.residual.at(r, k) = c.difference(x.at(r, k), out.clamped.at(r, k));
        }
    return out;
}

inline std::vector<Matrix> slopes(const Vector& v) {
    const Array& x = v["x"];
    const Format& target = format(v.text("target") == "float32" ? "FP32" : "BF16");
    Word cap = round32(false, v.number("cap"), 0) >> (32 - target.bits);
    bool released = v.text("compat") == "ms-amp";
    Matrix out(x.rows(), x.columns());
    for (std::size_t i = 0; i < x.words.size(); i++)
        out.words[i] = slope(input(x.dtype, x.words[i]), {int(v.number("k")), cap, target}, released);
    return {out};
}

inline std::vector<Matrix> clamps(const Vector& v) {
    const std::vector<Json>& alpha = v.params["alpha"].items;
    const Array& x = v["x"];
    Clamp c{format(x.dtype == "float32" ? "FP32" : "BF16"), Word(alpha[0].number), Word(alpha[1].number)};
    Clamped found = occ(x.matrix(), v.text("axis"), c);
    return {found.clamped, found.residual, found.thresholds};
}
