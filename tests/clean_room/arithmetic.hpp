// N11: float32 addition and multiplication in integers, one rounding each, on bit patterns.
#pragma once
#include "encode.hpp"

using Wide = unsigned __int128;

constexpr Word NAN32 = 0x7FC00000, INF32 = 0x7F800000, SIGN32 = 0x80000000;

inline Word nan32(bool negative) { return NAN32 | (negative && WRONG("N11.5") ? SIGN32 : 0); }

// The float32 bits of (-1)^negative * significand * 2^exponent, rounded once: a last bit stands for all that is lost.
inline Word round32(bool negative, Wide significand, int exponent) {
    Word sign = negative ? SIGN32 : 0;
    while (significand >> 62) {
        Word lost = static_cast<Word>(significand & 1);
        significand = significand >> 1 | lost;
        exponent++;
    }
    static const Format& f32 = format("FP32");
    static const Profile p{.overflow = "nan"};
    Word magnitude = encode(f32, {Kind::finite, false, static_cast<Word>(significand), exponent}, p);
    return magnitude | sign;
}

inline Number float32(Word bits) {
    static const Format& f32 = format("FP32");
    return value(f32, bits);
}

inline Word multiply(Word a, Word b) {
    Number x = float32(a), y = float32(b);
    bool negative = x.negative != y.negative;
    if (x.kind == Kind::nan || y.kind == Kind::nan) return nan32(x.kind == Kind::nan ? x.negative : y.negative);
    if (x.kind == Kind::infinite || y.kind == Kind::infinite)
        return x.zero() || y.zero() ? nan32(negative) : INF32 | (negative ? SIGN32 : 0);
    return round32(negative, Wide(x.significand) * y.significand, x.exponent + y.exponent);
}

// The sum of two exact numbers whose significands have at most 48 bits, rounded once.
inline Word rounded_sum(Number x, Number y) {
    if (x.zero() && y.zero()) return x.negative && y.negative ? SIGN32 : 0;
    if (x.zero()) return round32(y.negative, y.significand, y.exponent);
    if (y.zero()) return round32(x.negative, x.significand, x.exponent);
    if (x.exponent < y.exponent) std::swap(x, y);
    int distance = x.exponent - y.exponent;
    if (distance > 76) {  // y is below the last bit that the rounding of x can see: a nonzero rest of its sign
        x.significand <<= 12, x.exponent -= 12;
        Word near = x.negative == y.negative ? x.significand | 1 : x.significand - 1;
        return round32(x.negative, Wide(near), x.exponent);
    }
    Wide a = Wide(x.significand) << distance, b = y.significand;
    if (x.negative == y.negative) return round32(x.negative, a + b, y.exponent);
    if (a == b) return 0;
    return a > b ? round32(x.negative, a - b, y.exponent) : round32(y.negative, b - a, y.exponent);
}

inline Word add(Word a, Word b) {
    Number x = float32(a), y = float32(b);
    if (x.kind == Kind::nan || y.kind == Kind::nan) return nan32(x.kind == Kind::nan ? x.negative : y.negative);
    if (x.kind == Kind::infinite && y.kind == Kind::infinite) return x.negative == y.negative ? a : nan32(true);
    if (x.kind == Kind::infinite) return a;
    if (y.kind == Kind::infinite) return b;
    return rounded_sum(x, y);
}

// RN(s + w * x) with one rounding: what N12.3 forbids, kept for its wrong reading.
inline Word fused(Word s, Word w, Word x) {
    Number a = float32(s), b = float32(w), c = float32(x);
    if (a.kind != Kind::finite || b.kind != Kind::finite || c.kind != Kind::finite) return add(s, multiply(w, x));
    Number product{Kind::finite, b.negative != c.negative, b.significand * c.significand, b.exponent + c.exponent};
    return rounded_sum(a, product);
}
