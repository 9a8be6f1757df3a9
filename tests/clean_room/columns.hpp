// N9 and N10: rows to columns, segment by segment.
#pragma once
#include "rows.hpp"

using Splits = std::vector<std::size_t>;

struct Column {  // what N9.2 and N9.3 find in one column of a segment, or in its group
    int emax = -1;
    Number amax;
    bool nan = false;
};

// One column of a segment (c), or its group in the 32 columns around c.
inline Column look(const Matrix& nibbles, const Matrix& scales, Segment s, std::size_t c, bool group) {
    static const Format& e2m1 = format("E2M1");
    Column found;
    for (std::size_t m = s.first; m < s.stop; m++) {
        Block block{&nibbles.words[m * nibbles.columns + c / 32 * 32], 1, scales.at(m, c / 32)};
        found.nan |= block.byte == 255;
        Number v = covered(e2m1, nibbles.at(m, c), block.byte);
        bool counts = block.participates() && (group || !v.zero());
        if (counts) found.emax = std::max(found.emax, int(block.byte));
        if (v.kind == Kind::finite && compare(v, found.amax) > 0) found.amax = v;
    }
    return found;
}

inline Word fp8_column_byte(const Column& found, bool exact) {
    static const Format& e4m3 = format("E4M3");
    if (exact) return found.amax.zero() ? READ("N8.7", 127, 0) : rceil_byte(e4m3, found.amax);
    return found.emax < 0 ? READ("N8.7", 127, 0) : max_byte(found.emax);
}

inline Coded mxfp4_to_fp8_columns(const Matrix& nibbles, const Matrix& scales, const Splits& splits,
                                  const std::string& mode) {
    std::vector<Segment> parts = segments(splits, 128);
    Coded out{Matrix(nibbles.columns, nibbles.rows), Matrix(parts.size(), nibbles.columns)};
    bool exact = mode == "amax" && !WRONG("N9.3");
    for (std::size_t i = 0; i < parts.size(); i++)
        for (std::size_t c = 0; c < nibbles.columns; c++) {
            Column found = look(nibbles, scales, parts[i], c, !WRONG("N9.2"));
            Word byte = fp8_column_byte(found, exact);
            out.scales.at(i, c) = byte;
            for (std::size_t m = parts[i].first; m < parts[i].stop; m++)
                out.codes.at(c, m) = fp8_element(nibbles.at(m, c), scales.at(m, c / 32), byte, part("N9.4"));
        }
    if (WRONG("N9.1")) out.codes = reshaped(transposed(out.codes), nibbles.columns, nibbles.rows);
    return out;
}

inline Coded mxfp4_columns(const Matrix& nibbles, const Matrix& scales, const Splits& splits, const std::string& mode) {
    static const Format& e2m1 = format("E2M1");
    std::vector<Segment> parts = segments(splits, 32);
    Coded out{Matrix(nibbles.columns, nibbles.rows), Matrix(parts.size(), nibbles.columns)};
    bool exact = mode == "amax" ? !WRONG("N9.7") : WRONG("N9.8");
    for (std::size_t i = 0; i < parts.size(); i++)
        for (std::size_t c = 0; c < nibbles.columns; c++) {
            Column found = look(nibbles, scales, parts[i], c, true);
            Word byte = found.emax < 0 ? 0 : Word(found.emax);
            if (exact) byte = found.amax.zero() ? 0 : rceil_byte(e2m1, found.amax);
            if (found.nan && !WRONG("N9.9")) byte = 255;
            out.scales.at(i, c) = byte;
            for (std::size_t m = parts[i].first; m < parts[i].stop; m++) {
                Number v = covered(e2m1, nibbles.at(m, c), scales.at(m, c / 32));
                bool nan = byte == 255 || v.kind == Kind::nan;
                out.codes.at(c, m) = nan ? 0 : encode(e2m1, times(v, 127 - int(byte)));
            }
        }
    out.codes = pack(out.codes, "low_first", WRONG("N9.6"));
    return out;
}

// N10.2 and N10.3: the byte of one 128 x 128 tile.
inline Word tile_byte(const Matrix& codes, const Matrix& scales, Segment s, std::size_t t, std::size_t end) {
    int largest = -1;
    for (std::size_t m = s.first; m < s.stop; m++) {
        bool other = WRONG("N10.3");
        for (std::size_t c = 128 * t; c < end; c++) other |= (codes.at(m, c) & 0x7F) != 0;
        Word byte = scales.at(m, t);
        if (other && (byte != 255 || WRONG("N10.2"))) largest = std::max(largest, int(byte));
    }
    return largest < 0 ? READ("N10.2/none", Word(127), Word(0)) : Word(largest);
}

inline Word shifted(Word code, Word row, Word byte, const std::string& underflow) {
    static const Format& e4m3 = format("E4M3");
    if (row == 255) return READ("N10.6", 0x7F, 0);
    if (underflow == "te" && !WRONG("N10.5")) {  // N10.5
        int e = int(code >> 3 & 15), k = int(byte) - int(row);
        if (e == 0) return READ("N10.5/zero", 0, code & 0x80);
        return (code & 0x87) | Word(std::max(e - k, 0)) << 3;
    }
    Word out = encode(e4m3, times(value(e4m3, code), int(row) - int(byte)));
    return (out & 0x78) == 0 && WRONG("N10.4") ? out & 0x80 : out;
}

inline Coded fp8_columns(const Matrix& codes, const Matrix& scales, const Splits& splits,
                         const std::string& underflow) {
    std::vector<Segment> parts = segments(splits, 128);
    std::size_t k = codes.columns;
    Coded out{Matrix(k, codes.rows), Matrix(parts.size(), k)};
    for (std::size_t i = 0; i < parts.size(); i++)
        for (std::size_t t = 0; t < runs(k, 128); t++) {
            std::size_t end = std::min(k, 128 * t + 128);
            Word byte = tile_byte(codes, scales, parts[i], t, end);
            for (std::size_t c = 128 * t; c < end; c++) {
                out.scales.at(i, c) = byte;
                for (std::size_t m = parts[i].first; m < parts[i].stop; m++)
                    out.codes.at(c, m) = shifted(codes.at(m, c), scales.at(m, t), byte, underflow);
            }
        }
    if (WRONG("N10.1")) out.codes = reshaped(transposed(out.codes), k, codes.rows);
    return out;
}
