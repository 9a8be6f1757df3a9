// N1: formats, the values of codes, and the exponent of a number. A number is an exact integer times a power of two.
#pragma once
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "parts.hpp"

using Word = std::uint64_t;

enum class Kind { finite, infinite, nan };

struct Number {  // (-1)^negative * significand * 2^exponent
    Kind kind = Kind::finite;
    bool negative = false;
    Word significand = 0;
    int exponent = 0;
    bool zero() const { return kind == Kind::finite && significand == 0; }
};

struct Format {  // a row of the table of N1.1; -1 stands for a dash
    std::string_view name;
    int bits, fields, fraction, bias;  // bits in all, of the exponent field, of the fraction field
    std::int64_t largest, nan, infinity;
    int p;
    bool integer = false;
    int radix = 2;
};

inline const std::vector<Format> FORMATS = {
    {"E2M1", 4, 2, 1, 1, 0x7, -1, -1, 1},
    {"E3M0", 4, 3, 0, 3, 0x7, -1, -1, 0},
    {"FP4_RADIX4", 4, 3, 0, 3, 0x7, -1, -1, 0, false, 4},
    {"E2M3", 6, 2, 3, 1, 0x1F, -1, -1, 3},
    {"E3M2", 6, 3, 2, 3, 0x1F, -1, -1, 2},
    {"E4M3", 8, 4, 3, 7, 0x7E, 0x7F, -1, 3},
    {"E5M2", 8, 5, 2, 15, 0x7B, 0x7F, 0x7C, 2},
    {"BF16", 16, 8, 7, 127, 0x7F7F, 0x7FC0, 0x7F80, 7},
    {"FP16", 16, 5, 10, 15, 0x7BFF, 0x7E00, 0x7C00, 10},
    {"FP32", 32, 8, 23, 127, 0x7F7FFFFF, 0x7FC00000, 0x7F800000, 23},
    {"INT4", 4, 0, 3, 0, 0x7, -1, -1, 0, true},
    {"MXINT8", 8, 0, 7, 0, 0x7F, -1, -1, 6, true},
};

inline const Format& format(std::string_view name) {
    for (const Format& f : FORMATS)
        if (f.name == name) return f;
    throw std::runtime_error("no format " + std::string(name));
}

inline int length(Word x) { return static_cast<int>(std::bit_width(x)); }

inline int exponent_of(const Number& x) { return x.exponent + length(x.significand) - 1; }  // E(x), N0.3

inline Number infinity(bool negative) { return {Kind::infinite, negative, 0, 0}; }
inline Number not_a_number(bool negative = false) { return {Kind::nan, negative, 0, 0}; }

inline Number integer_value(const Format& f, Word code) {  // N1.10
    Word sign = Word(1) << (f.bits - 1);
    bool negative = code & sign;
    Word magnitude = negative ? (sign << 1) - code : code;
    return {Kind::finite, negative, magnitude, -f.p};
}

inline Number special_value(const Format& f, Word magnitude, bool negative) {  // N1.2: codes above the largest
    bool infinite = f.infinity == static_cast<std::int64_t>(magnitude);
    if (f.name == "E5M2") infinite = READ("N1.7", infinite, false);
    if (f.name == "E4M3" && WRONG("N1.6")) return {Kind::finite, negative, 15, 5};
    return infinite ? infinity(negative) : not_a_number(negative);
}

inline Number value(const Format& f, Word code) {
    if (f.integer) return integer_value(f, code);
    Word sign = Word(1) << (f.bits - 1);
    bool negative = code & sign;
    Word magnitude = code & (sign - 1);
    std::int64_t largest = f.largest;
    if (f.name == "E2M1") largest -= READ("N1.3", 0, 1);
    if (f.name == "E2M3" || f.name == "E3M2") largest -= READ("N1.8", 0, 1);
    if (static_cast<std::int64_t>(magnitude) > largest)
        return largest == f.largest ? special_value(f, magnitude, negative) : infinity(negative);
    int e = static_cast<int>(magnitude >> f.fraction), bias = f.bias - READ("N1.1", 0, 1);
    Word fraction = magnitude & ((Word(1) << f.fraction) - 1);
    int power = e == 0 ? READ("N1.2", 1, 0) - bias : e - bias;
    Word significand = e == 0 ? fraction : fraction | Word(1) << f.fraction;
    return {Kind::finite, negative, significand, (f.radix == 4 ? 2 * power : power) - f.fraction};
}

inline Number scale_value(Word byte) {  // N0.4, N1.4
    if (byte == 255) return WRONG("N0.5") ? Number{Kind::finite, false, 1, 128} : not_a_number();
    if (byte == 0 && WRONG("N0.4")) return {Kind::finite, false, 0, 0};
    return {Kind::finite, false, 1, static_cast<int>(byte) - READ("N1.4", 127, 126)};
}

// N0.6: the value of an input word of a floating-point dtype.
inline Number input(const std::string& dtype, Word word) {
    static const Format &f32 = format("FP32"), &bf16 = format("BF16"), &f16 = format("FP16");
    const Format& half = READ("N0.6", f16, bf16);
    const Format& f = dtype == "float32" ? f32 : dtype == "bfloat16" ? bf16 : half;
    Number x = value(f, word);
    bool small = x.significand != 0 && exponent_of(x) < -126;
    if (small && WRONG("N0.2")) x.significand = 0;
    return x;
}

inline Number times(const Number& a, int shift) {  // a * 2^shift
    Number x = a;
    if (!x.zero()) x.exponent += shift;
    return x;
}

// The order of magnitudes of two finite numbers: below, equal or above 0.
inline int compare(const Number& a, const Number& b) {
    if (a.zero() || b.zero()) return int(!a.zero()) - int(!b.zero());
    int ea = exponent_of(a), eb = exponent_of(b);
    if (ea != eb) return ea < eb ? -1 : 1;
    Word x = a.significand << (64 - length(a.significand)), y = b.significand << (64 - length(b.significand));
    return x < y ? -1 : x > y;
}
