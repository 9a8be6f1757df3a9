// N11.1: silu and sigmoid of a bfloat16, correctly rounded to float32, with fixed-point integers of 768 bits, 384 of
// them fraction bits. exp is enclosed between two of them, and both ends shall decide alike; if not, the program stops.
#pragma once
#include <array>
#include <map>

#include "arithmetic.hpp"

struct Fixed {
    static constexpr int LIMBS = 12, FRACTION = 384;
    std::array<Word, LIMBS> limb{};

    static Fixed shifted(Word x, int shift) {  // x * 2^shift
        Fixed out;
        int at = shift + FRACTION, cell = at / 64, bit = at % 64;
        if (at < 0) throw std::runtime_error("a bit below the last one");
        if (cell >= LIMBS) throw std::runtime_error("a bit above the first one");
        out.limb[cell] = x << bit;
        if (bit && cell + 1 < LIMBS) out.limb[cell + 1] = x >> (64 - bit);
        return out;
    }
    bool operator==(const Fixed&) const = default;
    bool below(const Fixed& other) const {
        for (int i = LIMBS; i-- > 0;)
            if (limb[i] != other.limb[i]) return limb[i] < other.limb[i];
        return false;
    }
    Fixed plus(const Fixed& other) const {
        Fixed out;
        Wide carry = 0;
        for (int i = 0; i < LIMBS; i++) {
            carry += Wide(limb[i]) + other.limb[i];
            out.limb[i] = static_cast<Word>(carry), carry >>= 64;
        }
        return out;
    }
    Fixed minus(const Fixed& other) const {
        Fixed out;
        Word borrow = 0;
        for (int i = 0; i < LIMBS; i++) {
            Wide from = (Wide(1) << 64) + limb[i] - other.limb[i] - borrow;
            out.limb[i] = static_cast<Word>(from), borrow = from >> 64 ? 0 : 1;
        }
        return out;
    }
    Fixed times(Word factor) const {
        Fixed out;
        Wide carry = 0;
        for (int i = 0; i < LIMBS; i++) {
            carry += Wide(limb[i]) * factor;
            out.limb[i] = static_cast<Word>(carry), carry >>= 64;
        }
        return out;
    }
    Fixed over(Word divisor) const {
        Fixed out;
        Wide rest = 0;
        for (int i = LIMBS; i-- > 0;) {
            rest = rest << 64 | limb[i];
            out.limb[i] = static_cast<Word>(rest / divisor), rest %= divisor;
        }
        return out;
    }
    Fixed times(const Fixed& other) const {  // both below 1: fraction bits only, cut
        Fixed out;
        constexpr int F = FRACTION / 64;
        std::array<Word, 2 * F> all{};
        for (int i = 0; i < F; i++) {
            Wide carry = 0;
            for (int j = 0; j < F; j++) {
                carry += Wide(limb[i]) * other.limb[j] + all[i + j];
                all[i + j] = static_cast<Word>(carry), carry >>= 64;
            }
            all[i + F] = static_cast<Word>(carry);
        }
        for (int i = 0; i < F; i++) out.limb[i] = all[i + F];
        return out;
    }
    Fixed moved(int bits) const {  // to the left, or to the right if bits < 0
        Fixed out;
        int cells = (bits >= 0 ? bits : -bits) / 64, rest = (bits >= 0 ? bits : -bits) % 64;
        for (int i = 0; i < LIMBS; i++) {
            int from = bits >= 0 ? i - cells : i + cells, next = bits >= 0 ? from - 1 : from + 1;
            Word here = from >= 0 && from < LIMBS ? limb[from] : 0, there = next >= 0 && next < LIMBS ? limb[next] : 0;
            if (rest == 0) there = 0, out.limb[i] = here;
            else out.limb[i] = bits >= 0 ? here << rest | there >> (64 - rest) : here >> rest | there << (64 - rest);
        }
        return out;
    }
    bool zero() const { return *this == Fixed{}; }
};

inline Fixed ln2() {  // the sum of 1 / (n 2^n)
    static const Fixed sum = [] {
        Fixed total, power = Fixed::shifted(1, -1);
        for (Word n = 1; !power.zero(); n++, power = power.moved(-1)) total = total.plus(power.over(n));
        return total;
    }();
    return sum;
}

struct Ends {
    Fixed low, high;
};

// exp(-t) for 0 < t < 128. With t = k ln 2 + r the series of exp(-r) alternates; 2^-350 covers all that was cut off.
inline Ends exp_minus(Fixed t) {
    int k = 0;
    for (; !t.below(ln2()); k++) t = t.minus(ln2());
    Fixed plus = Fixed::shifted(1, 0), minus, term = t;
    for (Word n = 1; !term.zero(); term = term.times(t).over(++n)) {
        Fixed& side = n & 1 ? minus : plus;
        side = side.plus(term);
    }
    Fixed value = plus.minus(minus), error = Fixed::shifted(1, -350);
    return {value.minus(error).moved(-k), value.plus(error).moved(-k)};
}

// Whether u * 2^v is at most s * 2^x * numerator / (1 + E), for one value of E.
inline bool at_most(Word u, int v, Word s, int x, const Fixed& numerator, const Fixed& E) {
    Fixed left = Fixed::shifted(1, 0).plus(E).times(u), right = numerator.times(s);
    int move = x - v;
    return move >= 0 ? !right.moved(move).below(left) : !right.below(left.moved(-move));
}

// The float32 magnitude bits nearest to s * 2^x * N / (1 + E), N being 1, or E itself.
inline Word nearest32(Word s, int x, bool by_exp, const Ends& E) {
    Fixed one = Fixed::shifted(1, 0);
    auto reached = [&](Word u, int v) {
        bool a = at_most(u, v, s, x, by_exp ? E.low : one, E.low);
        bool b = at_most(u, v, s, x, by_exp ? E.high : one, E.high);
        if (a != b) throw std::runtime_error("the precision of exp does not decide a rounding");
        return a;
    };
    Word low = 0, high = 0x43000001;  // 128, above every result
    while (high - low > 1) {
        Word middle = (low + high) / 2;
        Number y = float32(middle);
        (reached(y.significand, y.exponent) ? low : high) = middle;
    }
    Number y = float32(low);
    return reached(2 * y.significand + 1, y.exponent - 1) ? low + 1 : low;
}

struct Logistic {
    Word silu, sigmoid;
};

inline Logistic logistic_of(Word gate) {
    static const Format& bf16 = format("BF16");
    Number g = value(bf16, gate);
    Word sign = g.negative ? SIGN32 : 0;
    if (g.kind == Kind::nan) return {NAN32, NAN32};
    if (g.kind == Kind::infinite) return g.negative ? Logistic{SIGN32, 0} : Logistic{INF32, 0x3F800000};
    if (g.zero()) return {sign, 0x3F000000};
    // from 128 on, exp(-|g|) < 2^-184 changes no bit: silu is g or -0, sigmoid is 1 or +0
    if (exponent_of(g) >= 7) return g.negative ? Logistic{SIGN32, 0} : Logistic{gate << 16, 0x3F800000};
    Ends E = exp_minus(Fixed::shifted(g.significand, g.exponent));
    return {nearest32(g.significand, g.exponent, g.negative, E) | sign, nearest32(1, 0, g.negative, E)};
}

inline Logistic logistic(Word gate) {
    static std::map<Word, Logistic> known;
    auto [at, fresh] = known.try_emplace(gate);
    if (fresh) at->second = logistic_of(gate);
    Logistic found = at->second;
    bool finite = (gate & 0x7FFF) < 0x7F80 && (found.silu & 0x7FFFFFFF) != 0;
    if (finite && WRONG("N11.1")) found.silu++;
    if (finite && WRONG("N11.1/below")) found.silu--;
    if (gate == 0xFF80 && WRONG("N11.1/infinite")) found.silu = NAN32;
    return found;
}
