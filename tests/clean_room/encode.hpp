// N2: the code of one number in a format, and N1.5: the scale byte of one number.
#pragma once
#include "formats.hpp"

struct Profile {  // N14.3
    std::string scale_rule = "rceil", rounding = "nearest", ties = "even", overflow = "saturate";
    std::string negative_zero = "keep", nonfinite = "nosat";
    int random_bits = 8, zero_scale = 0;
    std::int64_t amax_floor = -1;
};

struct Split {  // a magnitude in quanta: n whole ones, and the discarded part, rest / 2^places of a quantum
    Word n = 0, rest = 0;
    int places = 0;
};

inline Split split(const Number& x, int quantum) {  // quantum: its exponent
    int places = quantum - x.exponent;
    if (places <= 0) return {x.significand << -places, 0, 0};
    if (places >= 64) return {0, x.significand, places};
    return {x.significand >> places, x.significand & ((Word(1) << places) - 1), places};
}

// The discarded part against one half: below, equal or above 0.
inline int against_half(const Split& s) {
    if (s.places == 0) return -1;
    Number half{Kind::finite, false, 1, s.places - 1}, rest{Kind::finite, false, s.rest, 0};
    int low = s.places - 8;
    if (WRONG("N2.2/sticky") && low > 0 && low < 56) rest.significand = s.rest >> low << low;
    return compare(rest, half);
}

// floor(d * 2^K), d being the discarded part as a fraction of the quantum.
inline Word top_bits(const Split& s, int k) {
    int shift = s.places - k;
    if (WRONG("N2.6")) return s.rest & ((Word(1) << k) - 1);
    if (shift >= 64) return 0;
    return shift >= 0 ? s.rest >> shift : s.rest << -shift;
}

inline bool tie_goes_up(const Format& f, const Profile& p, Word code, bool negative) {  // away from zero, N2.2
    if (f.name == "E2M1" && p.ties == "even" && WRONG("N2.3")) return true;
    if (p.ties == "even") return READ("N2.2", code & 1, true);
    if (p.ties == "away") return READ("N2.2/away", true, code & 1);
    if (p.ties == "zero") return READ("N2.2/zero", false, code & 1);
    if (p.ties == "up") return READ("N2.2/up", !negative, true);
    return READ("N2.2/down", negative, false);
}

inline bool rounds_up(const Format& f, const Profile& p, const Split& s, Word code, bool negative, Word r) {
    if (p.rounding == "toward_zero") return READ("N2.7", false, against_half(s) > 0);
    if (p.rounding == "stochastic") {
        int k = p.random_bits;
        if (k > 8 && WRONG("N2.6/bits")) r >>= k - 8, k = 8;
        if (WRONG("N5.5")) r = 0;
        return top_bits(s, k) + r >= Word(1) << k;
    }
    int half = against_half(s);
    return half > 0 || (half == 0 && tie_goes_up(f, p, code, negative));
}

// N2.1: the magnitude code of a finite magnitude on the grid without an upper end; far beyond it, any code above.
inline Word rounded(const Format& f, const Profile& p, const Number& x, Word r) {
    if (x.zero()) return 0;
    int e = exponent_of(x), least = 1 - f.bias;
    int emax = exponent_of(value(f, f.largest));
    if (e > emax) return f.largest + 1;
    if (!f.integer && e < least && WRONG("N2.1")) return 0;
    int place = e > least ? e : least;
    Split s = split(x, f.integer ? -f.p : place - f.p);
    Word code = f.integer ? s.n : s.n + (Word(place + f.bias - 1) << f.p);
    return code + rounds_up(f, p, s, code, x.negative, r);
}

inline Word rounded_radix4(const Format& f, const Number& x) {  // N1.9
    Word code = 0;
    for (int upper = 1; upper <= f.largest; upper++) {
        Number middle{Kind::finite, false, 5, 2 * (upper - 4) - 1};
        if (WRONG("N1.9")) middle = {Kind::finite, false, 1, 2 * (upper - 4) + 1};
        if (upper == 1) middle = {Kind::finite, false, 1, -5};
        int order = compare(x, middle);
        bool even_above = upper % 2 == 0 || (upper == 1 && WRONG("N1.9/zero"));
        code += order > 0 || (order == 0 && even_above);
    }
    return code;
}

inline Word largest_magnitude(const Format& f, bool negative) {
    if (f.name == "INT4" && negative) return READ("N1.10", 8, 7);
    if (f.name == "MXINT8" && negative) return READ("N1.10/mxint8", 0x7F, 0x80);
    return f.largest;
}

inline Word overflowed(const Format& f, const Profile& p, bool negative) {  // N2.4
    if (p.overflow == "nan") return f.infinity >= 0 ? f.infinity : f.nan;
    if (f.bits == 16 && WRONG("N1.12")) return f.infinity;
    return largest_magnitude(f, negative) - READ("N2.4", 0, 1);
}

inline Word with_sign(const Format& f, const Profile& p, Word magnitude, bool negative) {  // N2.8
    Word sign = Word(1) << (f.bits - 1);
    if (f.integer) return negative ? ((sign << 1) - magnitude) & ((sign << 1) - 1) : magnitude;
    bool drop = p.negative_zero == "drop" ? READ("N2.8/drop", true, false) : READ("N2.8", false, true);
    if (magnitude == 0 && drop) return 0;
    return negative ? magnitude | sign : magnitude;
}

inline Word encode(const Format& f, const Number& x, const Profile& p = {}, Word r = 0) {
    if (x.kind == Kind::nan) {  // N2.5
        if (f.nan < 0) return READ("N2.5/none", Word(f.largest), Word(0));
        Word code = f.name == "E5M2" ? READ("N1.7/nan", Word(f.nan), Word(0x7E)) : Word(f.nan);
        return x.negative && WRONG("N2.5") ? code | Word(1) << (f.bits - 1) : code;
    }
    if (x.kind == Kind::infinite) return with_sign(f, p, overflowed(f, p, x.negative), x.negative);
    Word code = f.radix == 4 ? rounded_radix4(f, x) : rounded(f, p, x, r);
    bool strict = p.overflow == "nan" && WRONG("N2.4/nan") && compare(x, value(f, f.largest)) > 0;
    if (strict || code > largest_magnitude(f, x.negative)) code = overflowed(f, p, x.negative);
    return with_sign(f, p, code, x.negative);
}

// The code in FP32 or BF16 of an exact value, to nearest even; 2^128 and more is an infinity (N1.11, N5.3).
inline Word result(const std::string& dtype, const Number& x) {
    static const Format &f32 = format("FP32"), &bf16 = format("BF16");
    const Format& f = dtype == "float32" ? f32 : bf16;
    Profile p;
    p.overflow = WRONG("N5.3") ? "saturate" : "nan";
    if (dtype == "bfloat16" && WRONG("N5.4")) p.rounding = "toward_zero";
    if (x.kind == Kind::nan) return f.nan | (x.negative && WRONG("N1.11") ? Word(1) << (f.bits - 1) : 0);
    if (x.significand != 0 && exponent_of(x) < -126 && WRONG("N5.3/subnormal"))
        return encode(f, {Kind::finite, x.negative, 0, 0}, p);
    return encode(f, x, p);
}

inline Word encode_e8m0(const Number& x, const std::string& rounding, bool saturate) {  // N1.5
    Word top = saturate ? READ("N1.5/saturate", 254, 255) : 255;
    if (x.kind == Kind::nan) return 255;
    if (x.kind == Kind::infinite) return top;
    if (x.zero()) return 0;
    int k = exponent_of(x);
    Number one{Kind::finite, false, 1, k}, middle{Kind::finite, false, 3, k - 1};
    int order = compare(x, middle);
    if (rounding == "up") k += compare(x, one) > 0;
    if (rounding == "nearest") k += READ("N1.5", order >= 0, order > 0);
    int byte = k + 127;
    return byte < 0 ? 0 : byte > 254 ? top : Word(byte);
}
