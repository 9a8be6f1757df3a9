// N5 to N8: the row-wise operations.
#pragma once
#include "matrix.hpp"

struct Coded {
    Matrix codes, scales;
};

using Values = std::vector<Numbers>;  // a matrix of numbers, a vector a row

inline Coded quantize_mx(const Values& x, std::size_t k, const Format& f, const Profile& p, const Words& r = {}) {
    Coded out{Matrix(x.size(), k), Matrix(x.size(), k / 32)};
    for (std::size_t m = 0; m < x.size(); m++)
        for (std::size_t b = 0; b < k / 32; b++) {
            Numbers block(x[m].begin() + 32 * b, x[m].begin() + 32 * b + 32);
            const Word* bits = r.empty() ? nullptr : &r[m * k + 32 * b];
            out.scales.at(m, b) = mx_block(p, f, block, bits, &out.codes.at(m, 32 * b));
        }
    if (x.empty() && WRONG("N0.9")) out.scales = Matrix(1, k / 32);
    return out;
}

inline Matrix dequantize(const Matrix& codes, const Matrix& scales, const Format& f, std::size_t tall, std::size_t wide,
                         const std::string& dtype) {
    Matrix out(codes.rows, codes.columns);
    for (std::size_t m = 0; m < codes.rows; m++)
        for (std::size_t k = 0; k < codes.columns; k++) {
            Number x = covered(f, codes.at(m, k), scales.at(m / tall, k / wide));
            if (wide == 128 && (codes.at(m, k) & 0x7F) == 0x7F && WRONG("N6.4"))
                x = {Kind::finite, x.negative, 15, 5 + int(scales.at(m / tall, k / wide)) - 127};
            out.at(m, k) = result(dtype, x);
        }
    return out;
}

inline Coded quantize_fp8_tiles(const Values& x, std::size_t k, std::size_t tall, const Profile& p) {
    if (tall == 128 && WRONG("N6.1/tall")) tall = 1;
    std::size_t rows = x.size();
    Coded out{Matrix(rows, k), Matrix(runs(rows, tall), READ("N0.7", runs(k, 128), k / 128))};
    Words codes;
    for (std::size_t i = 0; i < runs(rows, tall); i++)
        for (std::size_t j = 0; j < runs(k, 128); j++) {
            std::size_t stop = std::min(rows, (i + 1) * tall), end = std::min(k, (j + 1) * 128);
            Numbers tile;
            for (std::size_t m = i * tall; m < stop; m++)
                tile.insert(tile.end(), x[m].begin() + j * 128, x[m].begin() + end);
            if (end % 128 && WRONG("N6.1")) tile.push_back({Kind::finite, false, 448, 0});
            Word byte = fp8_tile(p, tile, codes);
            if (j < out.scales.columns) out.scales.at(i, j) = byte;
            std::size_t n = 0;
            for (std::size_t m = i * tall; m < stop; m++)
                for (std::size_t c = j * 128; c < end; c++) out.codes.at(m, c) = codes[n++];
        }
    if (x.empty() && WRONG("N0.9")) out.scales = Matrix(1, runs(k, 128));
    return out;
}

inline Coded fp8_to_mxfp4(const Matrix& codes, const Matrix& scales, const Profile& p) {  // N7
    static const Format &e4m3 = format("E4M3"), &e2m1 = format("E2M1");
    Values x(codes.rows);
    for (std::size_t m = 0; m < codes.rows; m++)
        for (std::size_t k = 0; k < codes.columns; k++) {
            Word byte = scales.at(m, k / 128);
            Number v = covered(e4m3, codes.at(m, k), byte);
            bool code = v.kind == Kind::nan && byte != 255;
            if (code && WRONG("N7.2")) v = {Kind::finite, v.negative, 7, 6 + int(byte) - 127};
            x[m].push_back(READ("N7.1", v, narrowed(v)));
        }
    return quantize_mx(x, codes.columns, e2m1, p);
}

struct Block {  // one MX block of a row: its codes and its byte
    const Word* codes;
    std::size_t stride;
    Word byte;
    bool empty() const {
        for (std::size_t i = 0; i < 32; i++)
            if (codes[i * stride] & 7) return false;
        return true;
    }
    bool participates() const {  // N8.1
        if (byte == 255) return WRONG("N8.1/nan");
        return !empty() || WRONG("N8.1");
    }
};

inline Word max_byte(int emax) {  // N8.2
    int s = emax - READ("N8.2", 6, 7);
    return s >= 0 ? Word(s) : READ("N8.2/clamp", Word(0), Word(s & 255));
}

inline Word fp8_element(Word code, Word byte, Word target, std::size_t nan_part) {  // N8.4 to N8.6
    static const Format &e2m1 = format("E2M1"), &e4m3 = format("E4M3");
    if (byte == 255) return wrong(nan_part) ? 0 : 0x7F;
    Number v = times(value(e2m1, code), int(byte) - int(target));
    if (v.zero() && int(byte) + 1 <= int(target) && WRONG("N8.5")) return v.negative ? 0xFE : 0x7E;
    Profile p;
    if (WRONG("N8.4")) p.rounding = "toward_zero";
    return encode(e4m3, v, p);
}

inline Word rceil_byte(const Format& f, const Number& amax) { return clamped(scale_exponent("rceil", f, amax)).byte; }

inline Coded mxfp4_to_fp8(const Matrix& nibbles, const Matrix& scales, const std::string& mode) {
    static const Format &e2m1 = format("E2M1"), &e4m3 = format("E4M3");
    std::size_t k = nibbles.columns;
    Coded out{Matrix(nibbles.rows, k), Matrix(nibbles.rows, runs(k, 128))};
    for (std::size_t m = 0; m < nibbles.rows; m++)
        for (std::size_t t = 0; t < runs(k, 128); t++) {
            int emax = -1;
            Number amax;
            std::size_t last = std::min(k / 32, 4 * t + 4);
            for (std::size_t b = 4 * t; b < last; b++) {
                Block block{&nibbles.words[m * k + 32 * b], 1, scales.at(m, b)};
                if (!block.participates()) continue;
                emax = std::max(emax, int(block.byte));
                for (std::size_t i = 0; i < 32; i++) {
                    Number v = covered(e2m1, block.codes[i], block.byte);
                    if (v.kind == Kind::finite && compare(v, amax) > 0) amax = v;
                }
            }
            Word byte = READ("N8.7", Word(127), Word(0));
            bool exact = mode == "amax" && !WRONG("N8.3");
            if (emax >= 0) byte = exact ? (amax.zero() ? 0 : rceil_byte(e4m3, amax)) : max_byte(emax);
            out.scales.at(m, t) = byte;
            for (std::size_t c = 128 * t; c < 32 * last; c++)
                out.codes.at(m, c) = fp8_element(nibbles.at(m, c), scales.at(m, c / 32), byte, part("N8.6"));
        }
    if (nibbles.rows == 0 && WRONG("N0.9")) out.scales = Matrix(1, runs(k, 128));
    return out;
}
