// N26.4 and N26.7: the way back from INT4, and FP4 with a real exponent bias: logarithms and powers in fixed point.
#pragma once
#include "integer.hpp"

constexpr int PLACES = 62;  // binary places of a fixed-point number
constexpr Wide FIXED_ONE = Wide(1) << PLACES;

// Of a number known to a few last places of `fixed`: both ends must round alike, or the vectors need more places.
inline Word rounded_fixed(bool negative, Wide fixed, int exponent, bool exact) {
    Wide wide = fixed << 1 | Wide(!exact);
    Word found = round32(negative, wide, exponent - 1);
    for (Wide end : {wide - 256, wide + 256})
        if (!exact && round32(negative, end, exponent - 1) != found) throw std::runtime_error("too few places");
    return found;
}

inline Word logarithm32(Word bits) {  // L(.) of a positive number: a digit for each squaring
    Number x = float32(bits);
    int digits = length(x.significand);
    std::int64_t whole = x.exponent + digits - 1;
    Wide m = Wide(x.significand) << (PLACES - digits + 1), part = 0;
    for (int place = 0; place < 60; place++) {
        m = m * m >> PLACES;
        part = part << 1 | m >> (PLACES + 1);
        if (m >> (PLACES + 1)) m >>= 1;
    }
    if (part == 0) return round32(whole < 0, Wide(std::abs(whole)), 0);
    Wide sum = whole < 0 ? (Wide(-whole) << 60) - part : (Wide(whole) << 60) + part;
    return rounded_fixed(whole < 0, sum, -60, false);
}

inline Wide root_fixed(Wide x) {
    Wide square = x << PLACES, root = 0;
    for (int bit = PLACES; bit >= 0; bit--) {
        Wide next = root | Wide(1) << bit;
        if (next * next <= square) root = next;
    }
    return root;
}

inline Word power_of_two32(Word bits) {  // 2^u: the roots of 2 for the digits of its fraction
    Number u = float32(bits);
    int up = u.exponent + PLACES;
    __int128 fixed = up >= 0 ? __int128(u.significand) << up : __int128(u.significand >> -up);
    if (u.negative) fixed = -fixed;
    Wide part = Wide(fixed) & (FIXED_ONE - 1), found = FIXED_ONE, root = 2 * FIXED_ONE;
    for (int bit = PLACES - 1; bit >= 0; bit--) {
        root = root_fixed(root);
        if (part >> bit & 1) found = found * root >> PLACES;
    }
    return rounded_fixed(false, found, int(fixed >> PLACES) - PLACES, part == 0);
}

struct Fp4 {
    Matrix codes, values;
};

inline void fp4_element(Word x, Word top, Word bias, int width, Word& code, Word& value) {
    int mantissa = 3 - width;
    Word sign = x & SIGN32, size = x & ~SIGN32;
    if (size > INF32) {
        code = 7, value = READ("N26.7/nan", NAN32, sign);
        return;
    }
    if (!WRONG("N26.7/clip")) size = std::min(size, top);
    int e = 1;
    if (size != 0 && size < INF32) {
        Word placed = add(logarithm32(size), bias);
        if (!(placed & SIGN32)) e = std::max(1, int(integer_of(placed)));
    }
    Word shift = round32(e < mantissa, Wide(std::abs(e - mantissa)), 0), place = add(shift, bias ^ SIGN32);
    Word step = power_of_two32(READ("N26.7/power", place, nearest32(place)));
    Word q = divide(size, step);
    q = READ("N26.7", nearest32(q), whole32(int(integer_of(q))));
    Word full = Word(e - 1) * (Word(1) << mantissa) + Word(integer_of(q));
    code = std::min(full, Word(7)) | (sign ? 8 : 0);
    value = multiply(q, step) | READ("N26.7/zero", sign, q == 0 ? Word(0) : sign);
}

inline Fp4 llm_fp4(const Matrix& x, const Words& tops, int width) {
    Fp4 out{Matrix(x.rows, x.columns), Matrix(x.rows, x.columns)};
    Word two = add(whole32(2), round32(true, 1, width - 3));  // 2 - 2^-M
    for (std::size_t r = 0; r < x.rows; r++) {
        Word top = tops[READ("N26.7/rows", r % tops.size(), 0)];
        Word bias = add(whole32(1 << width), logarithm32(top) ^ SIGN32);
        bias = add(add(bias, logarithm32(two)), whole32(1) ^ SIGN32);
        for (std::size_t c = 0; c < x.columns; c++)
            fp4_element(x.at(r, c), top, bias, width, out.codes.at(r, c), out.values.at(r, c));
    }
    return out;
}

inline Matrix dequantize_int4(const Matrix& codes, const Matrix& scales, const Words* zeros) {  // N26.4
    Matrix out(codes.rows, codes.columns);
    for (std::size_t r = 0; r < codes.rows; r++)
        for (std::size_t c = 0; c < codes.columns; c++) {
            std::size_t wide = codes.columns / scales.columns, tall = scales.rows == 1 ? 0 : r;
            std::size_t group = tall * scales.columns + c / wide;
            int code = int(codes.at(r, c));
            if (!zeros && code > 7 && !WRONG("N26.4")) code -= 16;
            Word q = code < 0 ? whole32(-code) ^ SIGN32 : whole32(code);
            Word s = scales.words[group], z = zeros ? (*zeros)[group] ^ SIGN32 : 0;
            Word late = zeros ? multiply(add(q, z), s) : multiply(q, s);
            out.at(r, c) = READ("N26.4/zero", late, zeros ? add(multiply(q, s), multiply(z, s)) : late);
        }
    return out;
}
