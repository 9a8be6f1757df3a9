// N24.11 and N24.12: TetraJet-v2, E2M1 under an E4M3 scale a 16 elements and a float32 scale a 128, with its noise.
#pragma once
#include "nvfp4.hpp"

struct TetraJet2 {
    Matrix codes, scales, outer;
};

inline Word largest_of(const Matrix& x, std::size_t first, std::size_t count) {
    Word found = 0;
    for (std::size_t i = first; i < first + count; i++) {
        Word size = x.words[i] & ~SIGN32;
        if (size <= INF32 || WRONG("N24.11/nan")) found = std::max(found, size);
    }
    return found;
}

inline Word inner_scale(Word c, Word outer) {
    Word t = divide(divide(c, outer), SIX32);
    if (t == 0 && !WRONG("N24.11/zero")) t = round32(false, 1, -9);
    return to_e4m3(t);
}

inline Word noise32(Word seed, Word n) {  // N24.12, float32 bits
    constexpr Word mask = 0xFFFFFFFF;
    Word g = READ("N24.12/group", n - n % 4, n), state = ((seed + g * 0x9E3779B1) * 747796405 + 2891336453) & mask;
    for (Word turn = 0; turn <= READ("N24.12/turn", n % 4, Word(0)); turn++)
        state = (state * 1664525 + 1013904223) & mask;
    Word m = READ("N24.12", state >> 9, state & 0x7FFFFF);
    return add(round32(false, m, -23), round32(true, 1, -1));
}

inline Word with_noise(Word v, Word u) {
    Word size = v & ~SIGN32;
    if (size > INF32) return v;
    bool low = size <= whole32(2), middle = size <= whole32(4);
    Word step = low ? round32(false, 1, -1) : whole32(middle ? 1 : 2);
    Word least = low ? 0 : whole32(middle ? 2 : 4), most = whole32(low ? 2 : middle ? 4 : 6);
    Word moved = add(size, READ("N24.12/step", multiply(step, u), u));
    if (moved & SIGN32) moved = 0;
    if (!WRONG("N24.12/region")) moved = std::min(std::max(moved, least), most);
    return moved | (v & SIGN32);
}

inline TetraJet2 quantize_tetrajet_v2(const Matrix& x, bool noisy, Word seed) {
    TetraJet2 out{Matrix(x.rows, x.columns), Matrix(x.rows, x.columns / 16), Matrix(x.rows, x.columns / 128)};
    for (std::size_t group = 0; group < x.words.size() / 128; group++) {
        Word b = largest_of(x, 128 * group, 128);
        Word o = READ("N24.11", divide(divide(b, whole32(448)), SIX32), divide(b, whole32(2688)));
        if (o == 0) o = READ("N24.11/outer", ONE32, Word(0));
        out.outer.words[group] = o;
        for (std::size_t block = 8 * group; block < 8 * group + 8; block++) {
            Word s = inner_scale(largest_of(x, 16 * block, 16), o), p = multiply(o, of_e4m3(s));
            Word i = p == 0 ? READ("N24.11/product", Word(0), INF32) : divide(ONE32, p);
            out.scales.words[block] = s;
            for (std::size_t n = 16 * block; n < 16 * block + 16; n++) {
                Word y = READ("N24.11/inverse", multiply(x.words[n], i), divide(x.words[n], p));
                if (noisy) y = with_noise(y, noise32(seed, n));
                out.codes.words[n] = is_nan32(y) ? 7 : encode(format("E2M1"), float32(y));
            }
        }
    }
    return out;
}

inline Matrix dequantize_tetrajet_v2(const Matrix& codes, const Matrix& scales, const Matrix& outer,
                                     const std::string& dtype) {
    Matrix out(codes.rows, codes.columns);
    for (std::size_t n = 0; n < codes.words.size(); n++) {
        Number level = value(format("E2M1"), codes.words[n]);
        Word sign = level.negative ? SIGN32 : 0;
        Word code = level.zero() ? sign : round32(level.negative, level.significand, level.exponent);
        Word s = of_e4m3(scales.words[n / 16]), o = outer.words[n / 128];
        Word wide = READ("N24.11/read", multiply(code, multiply(o, s)), multiply(multiply(code, s), o));
        out.words[n] = dtype == "float32" ? wide : result(dtype, float32(wide));
    }
    return out;
}
