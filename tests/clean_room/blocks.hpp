// N3 and N4: the byte of a block or tile. N5 and N6: blocks and tiles of numbers to codes.
#pragma once
#include <algorithm>

#include "arithmetic.hpp"

using Numbers = std::vector<Number>;
using Words = std::vector<Word>;

inline int floor_exponent(const Number& a) {  // E(a)
    if (WRONG("N0.3") && a.exponent == -149 && length(a.significand) < 24) return -127;
    return exponent_of(a);
}

// N3.2: the exponent k of the scale for a finite amax that is not zero.
inline int scale_exponent(const std::string& rule, const Format& f, const Number& a) {
    Number m = value(f, f.largest);
    int e = floor_exponent(a), emax = exponent_of(m), k = e - emax;
    if (f.name != "E2M1" && WRONG("N5.2")) k = e - 2;
    if (rule == "rceil") {
        int order = compare(a, times(m, e - emax));
        return k + (order > 0 || (order == 0 && WRONG("N3.2")));
    }
    bool power = std::has_single_bit(a.significand);
    if (rule == "floor") return k + (WRONG("N3.2/floor") && !power);
    if (rule == "ceil") return k + READ("N3.2/ceil", !power, true);
    int p = f.name == "MXINT8" ? READ("N3.3", f.p, 7) : f.p;
    Split s = split(a, e - p);
    int half = against_half(s);
    Word n = s.n + (half > 0 || (half == 0 && !WRONG("N3.2/even")));
    return k + (length(n) > p + 1);
}

struct Scale {
    Word byte;
    int exponent;  // at which elements are rounded
};

inline Scale clamped(int k) {  // N3.4
    int byte = std::clamp(k + 127, 0, 254);
    if (k + 127 < 0 && WRONG("N3.4")) byte = (k + 127) & 255;
    return {Word(byte), READ("N3.4/elements", byte - 127, k)};
}

inline Scale finite_scale(const Profile& p, const Format& f, Number a) {
    if (p.amax_floor >= 0 && !WRONG("N3.5")) {
        Number floor = float32(p.amax_floor);
        if (compare(a, floor) < 0) a = floor;
    }
    return clamped(scale_exponent(p.scale_rule, f, a));
}

struct Largest {  // what N3.1 finds in a block
    bool nan = false, infinite = false;
    Number amax;
};

inline Largest largest_of(const Numbers& block) {
    Largest found;
    for (const Number& x : block) {
        found.nan |= x.kind == Kind::nan && !WRONG("N3.1/nan");
        found.infinite |= x.kind == Kind::infinite;
        bool counts = x.kind == Kind::finite && !(x.negative && WRONG("N3.1"));
        if (counts && compare(x, found.amax) > 0) found.amax = x;
    }
    return found;
}

inline Scale block_scale(const Profile& p, const Format& f, const Largest& l) {  // N4.1, N4.3
    if (l.nan) return {255, 0};
    if (l.infinite) {
        bool keeps = p.nonfinite == "satfinite" ? READ("N4.3/satfinite", true, false) : READ("N4.3", false, true);
        return keeps ? Scale{254, 127} : Scale{255, 0};
    }
    bool floored = p.amax_floor >= 0 && WRONG("N3.5/zero");
    if (l.amax.zero() && !floored) {
        Word byte = READ("N4.1", Word(p.zero_scale), Word(127));
        return {byte, int(byte) - 127};
    }
    return finite_scale(p, f, l.amax);
}

inline Scale tile_scale(const Profile& p, const Format& f, const Largest& l) {  // N4.2, N4.4
    if (l.nan) return {READ("N4.4", Word(127), Word(255)), 0};
    if (l.infinite) return {127, 0};
    if (l.amax.zero()) return {READ("N4.2", Word(127), Word(0)), 0};
    return finite_scale(p, f, l.amax);
}

inline Number narrowed(const Number& x) {  // a wrong reading: rounded to bfloat16
    static const Format& bf16 = format("BF16");
    Profile p;
    p.overflow = "nan";
    return x.kind == Kind::nan ? x : value(bf16, encode(bf16, x, p));
}

inline Word element(const Profile& p, const Format& f, const Number& x, int exponent, Word r) {
    Number quotient = times(x, -exponent);
    return encode(f, READ("N5.1", quotient, narrowed(quotient)), p, r);
}

// N5.1: the codes of one MX block; the byte is returned. r: random bits or nothing.
inline Word mx_block(const Profile& p, const Format& f, const Numbers& block, const Word* r, Word* codes) {
    Largest l = largest_of(block);
    Scale s = block_scale(p, f, l);
    Profile each = p;
    if (l.infinite && WRONG("N4.3/overflow")) each.overflow = "saturate";
    for (std::size_t i = 0; i < block.size(); i++)
        codes[i] = s.byte == 255 ? 0 : element(each, f, block[i], s.exponent, r ? r[i] : 0);
    return s.byte;
}

// N6.1: the codes of one FP8 tile; the byte is returned.
inline Word fp8_tile(const Profile& p, const Numbers& tile, Words& codes) {
    static const Format& f = format("E4M3");
    Largest l = largest_of(tile);
    Scale s = tile_scale(p, f, l);
    Profile each = p;
    if ((l.nan || l.infinite) && WRONG("N4.4/overflow")) each.overflow = "saturate";
    codes.clear();
    for (const Number& x : tile) codes.push_back(element(each, f, x, s.exponent, 0));
    return s.byte;
}

// The exact value of a code under a scale byte (N0.5, N5.3).
inline Number covered(const Format& f, Word code, Word byte) {
    Number scale = scale_value(byte), x = value(f, code);
    if (scale.kind == Kind::nan) return not_a_number();
    if (scale.zero()) return {Kind::finite, x.negative, 0, 0};
    return times(x, scale.exponent);
}
