// N22: rotations. An exact sum is a row of words in units of 2^-160, one for what is added and one for the rest.
#pragma once
#include <array>
#include <bit>

#include "nvfp4.hpp"

struct Large {  // a whole number below 2^352
    std::array<Word, 11> digit{};  // of 32 bits, the lowest first
    void add(Word significand, int place) {
        Wide wide = Wide(significand) << place % 32;
        for (std::size_t i = std::size_t(place) / 32; wide != 0; i++, wide >>= 32) {
            wide += digit[i];
            digit[i] = Word(wide) & 0xFFFFFFFF;
        }
    }
    bool below(const Large& other) const {
        for (std::size_t i = digit.size(); i-- > 0;)
            if (digit[i] != other.digit[i]) return digit[i] < other.digit[i];
        return false;
    }
    Large less(const Large& other) const {
        Large out;
        Word borrow = 0;
        for (std::size_t i = 0; i < digit.size(); i++) {
            Word found = digit[i] - other.digit[i] - borrow;
            out.digit[i] = found & 0xFFFFFFFF, borrow = found >> 63;
        }
        return out;
    }
    Number number(bool negative) const {  // a last bit stands for all that is cut
        std::size_t top = digit.size() - 1;
        while (top > 0 && digit[top] == 0) top--;
        if (top == 0) return {Kind::finite, negative, digit[0], -160};
        Word high = digit[top] << 29 | digit[top - 1] >> 3, rest = digit[top - 1] & 7;
        for (std::size_t i = 0; i + 1 < top; i++) rest |= digit[i];
        return {Kind::finite, negative, high | Word(rest != 0), int(top - 1) * 32 - 160 + 3};
    }
};

struct Terms {  // x_i * d_i * (-1)^popcount(i and j) of a group, as float32
    Words bits;
    Number exact() const {  // a quarter of the sum
        Large plus, minus;
        bool up = false, down = false;
        for (Word word : bits) {
            if (is_nan32(word)) return float32(NAN32);
            Number x = float32(word);
            if (x.kind == Kind::infinite) (x.negative ? down : up) = true;
            else if (!x.zero()) (x.negative ? minus : plus).add(x.significand, x.exponent - 2 + 160);
        }
        if (up && down) return float32(READ("N22.2/infinities", NAN32, INF32));
        if (up || down) return float32(INF32 | (down ? SIGN32 : 0));
        if (plus.below(minus)) return minus.less(plus).number(true);
        Number found = plus.less(minus).number(false);
        if (found.zero()) found.negative = WRONG("N22.2/zero");
        return found;
    }
    Word sequential() const {
        Words terms = bits;
        if (WRONG("N22.3/order")) std::reverse(terms.begin(), terms.end());
        Word total = 0;
        for (Word word : terms) total = add(total, multiply(word, round32(false, 1, -2)));
        return total;
    }
};

inline Words rotated_group(const Words& group, Word signs, std::string order, const std::string& dtype) {
    Words out;
    if (WRONG("N22.2")) order = "sequential";
    if (WRONG("N22.3")) order = "exact";
    for (unsigned j = 0; j < 16; j++) {
        Terms terms;
        for (unsigned i = 0; i < 16; i++) {
            bool minus = signs >> READ("N22.1/first", i, 15 - i) & 1;
            minus = READ("N22.1", minus, !minus);
            if (WRONG("N22.1/results")) minus = signs >> j & 1;
            minus ^= std::popcount(i & j) % 2 == 1;
            terms.bits.push_back(minus && !is_nan32(group[i]) ? group[i] ^ SIGN32 : group[i]);
        }
        if (order == "exact") {
            Number sum = terms.exact();
            bool twice = dtype == "bfloat16" && sum.kind == Kind::finite && WRONG("N22.2/once");
            if (twice) sum = float32(sum.zero() ? 0 : round32(sum.negative, sum.significand, sum.exponent));
            out.push_back(result(dtype, sum));
        } else {
            Word sum = terms.sequential();
            out.push_back(dtype == "float32" ? sum : READ("N22.3/bfloat16", result(dtype, float32(sum)), sum >> 16));
        }
    }
    return out;
}

inline Matrix hadamard16(const Matrix& x, Word signs, int axis, const std::string& order, const std::string& dtype) {
    if (axis == 0) {
        Matrix tall(roundup(x.rows, 16), x.columns);
        for (std::size_t r = 0; r < tall.rows; r++)
            for (std::size_t c = 0; c < x.columns; c++)
                if (r < x.rows || WRONG("N22.5")) tall.at(r, c) = x.at(std::min(r, x.rows - 1), c);
        return transposed(hadamard16(transposed(tall), signs, -1, order, dtype));
    }
    Matrix out(x.rows, x.columns);
    for (std::size_t first = 0; first < x.words.size(); first += 16) {
        Words found = rotated_group(Words(&x.words[first], &x.words[first] + 16), signs, order, dtype);
        std::copy(found.begin(), found.end(), &out.words[first]);
    }
    return out;
}

inline Nvfp4 hadamard_nvfp4(const Matrix& x, Word signs, int axis, const std::string& order, const Word* given,
                            const Words& random) {  // N22.6
    std::string dtype = READ("N22.6/rounded", "bfloat16", "float32");
    Matrix rows = hadamard16(x, signs, axis, order, dtype);
    if (axis == 0 && !WRONG("N22.6/axis")) rows = transposed(rows);
    if (dtype == "bfloat16")
        for (Word& word : rows.words) word <<= 16;
    Word before = 0;
    for (Word bits : x.words)
        if (!is_nan32(bits)) before = std::max(before, bits & ~SIGN32);
    return quantize_nvfp4(rows, "TE", given ? given : READ("N22.6", nullptr, &before), 1, random);
}
