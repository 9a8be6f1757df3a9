// Matrices of words, nibbles (N0.8), segments of rows (N0.10, N9), and the storage of scales (N6.2, N6.5).
#pragma once
#include "blocks.hpp"

struct Matrix {
    std::size_t rows = 0, columns = 0;
    Words words;
    Matrix() = default;
    Matrix(std::size_t r, std::size_t c, Word fill = 0) : rows(r), columns(c), words(r * c, fill) {}
    Word& at(std::size_t r, std::size_t c) { return words[r * columns + c]; }
    Word at(std::size_t r, std::size_t c) const { return words[r * columns + c]; }
};

inline std::size_t runs(std::size_t n, std::size_t size) { return (n + size - 1) / size; }
inline std::size_t roundup(std::size_t n, std::size_t size) { return runs(n, size) * size; }

inline Matrix transposed(const Matrix& x) {
    Matrix out(x.columns, x.rows);
    for (std::size_t r = 0; r < x.rows; r++)
        for (std::size_t c = 0; c < x.columns; c++) out.at(c, r) = x.at(r, c);
    return out;
}

inline Matrix reshaped(const Matrix& x, std::size_t rows, std::size_t columns) {
    Matrix out = x;
    out.rows = rows, out.columns = columns;
    return out;
}

inline Matrix pack(const Matrix& codes, const std::string& order = "low_first", bool swap = false) {  // N0.8
    Matrix out(codes.rows, codes.columns / 2);
    for (std::size_t r = 0; r < out.rows; r++)
        for (std::size_t j = 0; j < out.columns; j++) {
            std::size_t low = 2 * j, high = 2 * j + 1;
            bool other = order == "high_first" ? !WRONG("N0.8/high_first") : swap || WRONG("N0.8");
            if (order == "ggml" && !WRONG("N0.8/ggml")) low = j / 16 * 32 + j % 16, high = low + 16;
            else if (other) std::swap(low, high);
            out.at(r, j) = codes.at(r, low) + 16 * codes.at(r, high);
        }
    return out;
}

inline Matrix unpack(const Matrix& packed) {
    Matrix out(packed.rows, 2 * packed.columns);
    for (std::size_t r = 0; r < out.rows; r++)
        for (std::size_t c = 0; c < out.columns; c++)
            out.at(r, c) = packed.at(r, c / 2) >> 4 * ((c % 2) ^ WRONG("N0.8")) & 15;
    return out;
}

struct Segment {
    std::size_t first, stop;
};

inline std::vector<Segment> segments(std::vector<std::size_t> splits, std::size_t tall) {  // N0.10, N9
    std::vector<Segment> out;
    std::size_t begin = 0;
    if (WRONG("N0.10")) {
        std::size_t sum = 0;
        for (std::size_t rows : splits) sum += rows;
        splits = {sum};
    }
    for (std::size_t rows : splits) {
        for (std::size_t first = begin; first < begin + rows; first += tall)
            out.push_back({first, std::min(first + tall, begin + rows)});
        begin += rows;
    }
    if (out.empty() && WRONG("N0.9")) out.push_back({0, 0});
    return out;
}

inline Word float_scale(Word byte) {  // N6.2: the float32 bits of a byte
    return byte == 255 ? READ("N0.5", NAN32, INF32) : result("float32", scale_value(byte));
}

inline Word scale_byte(Word bits) {  // N6.5: the byte of float32 bits
    if ((bits & 0x7FFFFFFF) > INF32) return 255;
    if (bits == 0x00400000) return READ("N6.5/least", 0, 255);
    bool normal = bits < INF32 && bits >= 0x00800000 && (bits & 0x7FFFFF) == 0;
    return normal ? bits >> 23 : 255;
}

// The place of scale (r, c) among the words of a layout (N6.2).
inline std::size_t place_of(const std::string& layout, std::size_t R, std::size_t C, std::size_t r, std::size_t c) {
    if (layout == "gemm_float32") return READ("N6.2/gemm_float32", c * roundup(R, 4) + r, r * C + c);
    if (layout == "packed_ue8m0") return c / 4 * roundup(R, 4) + r;
    if (layout != "swizzled") return r * C + c;
    std::size_t swizzled = (r / 128 * runs(C, 4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
    return READ("N6.2/swizzled", swizzled, r * roundup(C, 4) + c);
}

inline Matrix stored(const Matrix& scales, const std::string& layout) {
    std::size_t R = scales.rows, C = scales.columns;
    Word fill = READ("N6.2/padding", 0, 0xFF);
    Matrix out(1, roundup(R, 128) * roundup(C, 4), fill);
    if (layout == "gemm_float32") out = Matrix(C, roundup(R, 4), fill);
    if (layout == "packed_ue8m0") out = Matrix(runs(C, 4), roundup(R, 4), fill);
    for (std::size_t r = 0; r < R; r++)
        for (std::size_t c = 0; c < C; c++) {
            Word& word = out.words[place_of(layout, R, C, r, c)];
            int shift = READ("N6.2/packed_ue8m0", 8 * int(c % 4), 24 - 8 * int(c % 4));
            if (layout == "gemm_float32") word = float_scale(scales.at(r, c));
            else if (layout == "packed_ue8m0") word |= scales.at(r, c) << shift;
            else word = scales.at(r, c);
        }
    return out;
}

inline Matrix loaded(const Matrix& given, const std::string& layout, std::size_t R, std::size_t C) {
    Matrix out(R, C);
    for (std::size_t r = 0; r < R; r++)
        for (std::size_t c = 0; c < C; c++) {
            std::size_t at = READ("N6.5", place_of(layout, R, C, r, c), r * C + c);
            if (WRONG("N6.5/padding") && layout != "bytes" && layout != "float32" && r + 1 == R)
                at = std::min(at + 1, given.words.size() - 1);
            Word word = given.words[at % given.words.size()];
            if (layout == "packed_ue8m0") word = word >> 8 * (c % 4) & 255;
            out.at(r, c) = layout == "float32" || layout == "gemm_float32" ? scale_byte(word) : word;
        }
    return out;
}
