// N12: payload rows, permutation and the way back. N13: random words and bits.
#pragma once
#include "columns.hpp"

inline Matrix joined(const Matrix& codes, const Matrix& scales, bool scales_first) {  // N12.1
    Matrix out(codes.rows, codes.columns + scales.columns);
    std::size_t codes_at = scales_first ? scales.columns : 0, scales_at = scales_first ? 0 : codes.columns;
    for (std::size_t r = 0; r < out.rows; r++) {
        for (std::size_t c = 0; c < codes.columns; c++) out.at(r, codes_at + c) = codes.at(r, c);
        for (std::size_t c = 0; c < scales.columns; c++) out.at(r, scales_at + c) = scales.at(r, c);
    }
    return out;
}

inline Coded parted(const Matrix& payload, bool scales_first) {
    std::size_t blocks = payload.columns / 17, codes = 16 * blocks;
    Coded out{Matrix(payload.rows, codes), Matrix(payload.rows, blocks)};
    for (std::size_t r = 0; r < payload.rows; r++) {
        for (std::size_t c = 0; c < codes; c++) out.codes.at(r, c) = payload.at(r, c + (scales_first ? blocks : 0));
        for (std::size_t c = 0; c < blocks; c++) out.scales.at(r, c) = payload.at(r, c + (scales_first ? 0 : codes));
    }
    return out;
}

struct Placement {  // N12.2: the padded row of each row of the expert order, the first row of each expert, all rows
    Words row, offset;
    std::size_t rows = 0;
};

inline Placement placed(const Splits& splits, std::size_t align) {
    Placement out;
    std::size_t bare = 0;
    for (std::size_t count : splits) {
        out.offset.push_back(READ("N12.2/offsets", out.rows, bare));
        for (std::size_t j = 0; j < count; j++) out.row.push_back(out.rows + j);
        out.rows += roundup(count, align), bare += count;
    }
    return out;
}

inline Matrix permute_pad(const Matrix& payload, const Words& row_map, const Placement& at) {
    Matrix out(at.rows, payload.columns, READ("N12.2/padding", 0, 0xFF));
    for (std::size_t j = 0; j < row_map.size(); j++) {
        std::size_t from = row_map[j], to = at.row[j];
        if (WRONG("N12.2")) from = j % payload.rows, to = row_map[j] % at.rows;
        for (std::size_t c = 0; c < payload.columns; c++) out.at(to, c) = payload.at(from, c);
    }
    return out;
}

// N12.3; rows and weights are float32 bits, weights empty for 1.
inline Matrix unpermute(const Matrix& rows, const Words& row_map, const Placement& at, const Words& weights,
                        std::size_t tokens) {
    Matrix out(tokens, rows.columns, READ("N12.3/none", 0, SIGN32));
    std::vector<bool> begun(tokens, false);
    for (std::size_t n = 0; n < row_map.size(); n++) {
        std::size_t j = READ("N12.3", n, row_map.size() - 1 - n), token = row_map[j];
        for (std::size_t c = 0; c < rows.columns; c++) {
            Word w = weights.empty() ? 0x3F800000 : weights[j], x = rows.at(at.row[j], c);
            Word &sum = out.at(token, c), term = multiply(w, x);
            if (!begun[token]) sum = term;
            else sum = WRONG("N12.3/fused") ? fused(sum, w, x) : add(sum, term);
        }
        begun[token] = true;
    }
    return out;
}

struct Counter {
    Word word[4];
};

inline Counter philox(Counter c, Word k0, Word k1) {  // N13.1
    constexpr Word LOW = 0xFFFFFFFF;
    for (int round = 0; round < 10; round++) {
        Word a = 0xD2511F53 * c.word[0], b = 0xCD9E8D57 * c.word[2];
        Counter next{{(b >> 32) ^ c.word[1] ^ k0, b & LOW, (a >> 32) ^ c.word[3] ^ k1, a & LOW}};
        if (WRONG("N13.1/words")) std::swap(next.word[0], next.word[2]);
        c = next;
        k0 = (k0 + READ("N13.1", 0x9E3779B9, 0)) & LOW, k1 = (k1 + READ("N13.1", 0xBB67AE85, 0)) & LOW;
    }
    return c;
}

struct Stream {
    Word seed, stream, step;
    Word word(Word i) const {  // N13.2
        Word block = i / 4, first = READ("N13.2", stream, step), second = READ("N13.2", step, stream);
        Word high = READ("N13.2/high", block >> 32, 0);
        return philox({{block & 0xFFFFFFFF, high, first, second}}, seed & 0xFFFFFFFF, seed >> 32).word[i % 4];
    }
    Word byte(Word j) const { return word(j / 4) >> 8 * READ("N13.2/bytes", j % 4, 3 - j % 4) & 255; }
    Word bits(Word element, int k) const {  // N13.3
        int size = k <= 8 ? 1 : k <= 16 ? 2 : 4;
        Word unit = 0;
        for (int n = 0; n < size; n++) {
            int place = size == 2 ? READ("N13.3/unit", n, 1 - n) : n;
            unit |= byte(element * size + n) << 8 * place;
        }
        if (size == 4) unit = word(element);
        return READ("N13.3", unit >> (8 * size - k), unit & ((Word(1) << k) - 1));
    }
};

inline Matrix random_bits(const Matrix& keys, int k, std::size_t count) {  // N13.5: keys of seed, stream, step, offset
    Matrix out(keys.rows, count);
    for (std::size_t r = 0; r < keys.rows; r++) {
        Stream s{keys.at(r, 0), keys.at(r, 1), keys.at(r, 2)};
        Word size = k <= 8 ? 1 : k <= 16 ? 2 : 4;
        Word offset = READ("N13.5", keys.at(r, 3), keys.at(r, 3) / size);
        for (std::size_t i = 0; i < count; i++) out.at(r, i) = s.bits(offset + i, k);
    }
    return out;
}
