// E2M1 by bits: 32 rows of a column are four words, one for each bit of their codes (clause N9, MXFP4 -> MXFP4).
//
// A block of 32 rows x 1 column fills a word with every bit of its codes, so one LOP3 works on all of its elements. A
// thread has 32 rows of eight columns: 32 packed words, as many planes. Row r lies at bit `plane_place(r)`: then the
// way in exchanges every bit of a nibble's place with one of the row's number, and the way out two of them back.
// What a code becomes depends on how far its row's byte lies from its column's: rows of each distance are a mask.
#pragma once

#include "mxfp4_to_fp8.cuh"

namespace refnum {

REFNUM_HD uint32_t plane_place(uint32_t row) { return (row & 7) << 2 | row >> 3; }

// LOP3 with any truth table of a, b and c: bit (4 a + 2 b + c) of it is the result.
template <uint32_t truth>
REFNUM_HD uint32_t logic(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(out) : "r"(a), "r"(b), "r"(c), "n"(truth));
    return out;
#else
    uint32_t out = 0;
    for (int i = 0; i < 8; ++i) {
        if (truth >> i & 1) out |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return out;
#endif
}

// Exchanges bit `place` of the bits' places with bit `number` of the words' numbers.
template <int number, int place>
REFNUM_HD void exchange(uint32_t (&w)[32]) {
    constexpr int step = 1 << place;
    constexpr uint32_t lower = ~0u / ((1u << step) + 1);  // `step` bits in turn set and clear
    REFNUM_UNROLL
    for (int i = 0; i < 32; ++i) {
        if (i >> number & 1) continue;
        const uint32_t a = w[i], b = w[i | 1 << number];
        if (place >= 3) {
            w[i] = permute(a, b, place == 4 ? 0x5410 : 0x6240);
            w[i | 1 << number] = permute(a, b, place == 4 ? 0x7632 : 0x7351);
        } else {
            w[i] = choose(a, b << step, lower);
            w[i | 1 << number] = choose(a >> step, b, lower);
        }
    }
}

// Packed words of 32 rows -> planes: bit k of column c's codes in word 8 k + c.
REFNUM_HD void to_planes(uint32_t (&w)[32]) {
    exchange<2, 4>(w);
    exchange<1, 3>(w);
    exchange<0, 2>(w);
    exchange<4, 1>(w);
    exchange<3, 0>(w);
}

// Planes -> codes of eight rows a word: rows 8 i to 8 i + 7 of column c in word 8 i + c.
REFNUM_HD void to_columns(uint32_t (&w)[32]) {
    exchange<4, 1>(w);
    exchange<3, 0>(w);
}

// E2M1 codes of the eight magnitudes times 2**-distance, nearest even, for distances from -3 to 4; from 5 on all are 0.
// Magnitudes that a column of that byte cannot hold stand as what makes the truth tables simple.
constexpr int NEAREST = -3, DISTANCES = 8;
constexpr uint8_t E2M1_STEPS[DISTANCES][8] = {
    {0, 6, 6, 6, 6, 6, 6, 6}, {0, 4, 6, 7, 4, 4, 6, 7}, {0, 2, 4, 5, 6, 7, 4, 5}, {0, 1, 2, 3, 4, 5, 6, 7},
    {0, 0, 1, 2, 2, 3, 4, 5}, {0, 0, 0, 1, 1, 2, 2, 3}, {0, 0, 0, 0, 0, 1, 1, 2}, {0, 0, 0, 0, 0, 0, 0, 1},
};

// Truth table of bit `bit` of a row of that table.
REFNUM_HD constexpr uint32_t step_truth(int row, int bit) {
    uint32_t truth = 0;
    for (int code = 0; code < 8; ++code) truth |= (uint32_t)(E2M1_STEPS[row][code] >> bit & 1) << code;
    return truth;
}

// A column's magnitudes: planes of bits 0, 1 and 2.
struct Planes {
    uint32_t bit[3];

    // Rows whose magnitude is not 0, is at least 1, 2 or 4.
    REFNUM_HD uint32_t some() const { return rows<0xFE>(); }
    REFNUM_HD uint32_t ones() const { return rows<0xFC>(); }
    REFNUM_HD uint32_t twos() const { return rows<0xF0>(); }
    REFNUM_HD uint32_t fours() const { return rows<0xC0>(); }

    // Rows whose magnitude code's bit in `truth` is set.
    template <uint32_t truth>
    REFNUM_HD uint32_t rows() const {
        if (truth == 0xAA) return bit[0];
        if (truth == 0xCC) return bit[1];
        if (truth == 0xF0) return bit[2];
        return logic<truth>(bit[2], bit[1], bit[0]);
    }
};

template <int row, int bit>
REFNUM_HD uint32_t add_step(const Planes& x, uint32_t rows, uint32_t sum) {
    constexpr uint32_t truth = step_truth(row, bit);
    if (truth == 0) return sum;
    return sum | (x.template rows<truth>() & rows);
}
template <int bit, int first>
REFNUM_HD uint32_t step_plane(const Planes& x, const uint32_t (&rows)[DISTANCES]) {
    uint32_t sum = 0;
    if (first <= 0) sum = add_step<0, bit>(x, rows[0], sum);
    if (first <= 1) sum = add_step<1, bit>(x, rows[1], sum);
    if (first <= 2) sum = add_step<2, bit>(x, rows[2], sum);
    sum = add_step<3, bit>(x, rows[3], sum);
    sum = add_step<4, bit>(x, rows[4], sum);
    sum = add_step<5, bit>(x, rows[5], sum);
    sum = add_step<6, bit>(x, rows[6], sum);
    return add_step<7, bit>(x, rows[7], sum);
}

// Codes under their column's byte. rows[i]: the rows whose byte lies NEAREST + i below it; none before `first`.
template <int first>
REFNUM_HD Planes step_down(const Planes& x, const uint32_t (&rows)[DISTANCES]) {
    return {{step_plane<0, first>(x, rows), step_plane<1, first>(x, rows), step_plane<2, first>(x, rows)}};
}

// Rows of a block by depth: how many binades their byte lies below the largest one, `top`. Deeper rows are in no mask, and
// columns without an element above DEEPEST are found elsewhere. `max` needs MAX_DEPTHS. Before depth 0 lie -NEAREST words
// of zeros.
constexpr uint32_t DEPTHS = 32, DEEPEST = DEPTHS - DISTANCES - NEAREST, MAX_DEPTHS = DISTANCES + NEAREST;

// `amax`: binades from the block's largest byte to a column's. `found` is false where the column's elements lie too deep.
struct Depth {
    uint32_t below;
    bool found;
};

// Rows of a column that have an element in the first depths, up to each of four: since what is at least 4 is at least 2, 1 and
// something, those up to a depth hold those of the depths before it.
constexpr uint32_t NEAR_DEPTHS = 4;
struct NearRows {
    uint32_t of[NEAR_DEPTHS], some;
};
REFNUM_HD NearRows near_rows(const uint32_t (&at)[NEAR_DEPTHS], const Planes& x) {
    const uint32_t some = x.some(), ones = x.ones(), twos = x.twos(), fours = x.fours();
    return {{fours & at[0], (fours & at[1]) | (twos & at[0]), (fours & at[2]) | (twos & at[1]) | (ones & at[0]),
             (fours & at[3]) | (twos & at[2]) | (ones & at[1]) | (some & at[0])}, some};
}
// The depth of a column that has an element in the first four, as nearly all have.
REFNUM_HD Depth find_near_depth(const uint32_t (&at)[NEAR_DEPTHS], const Planes& x) {
    const NearRows near = near_rows(at, x);
    return {near.of[0] ? 0u : near.of[1] ? 1u : near.of[2] ? 2u : 3u, near.of[3] != 0};
}

// Any column: from the first depth to the one where its byte would lie below 0.
REFNUM_HD Depth find_depth(const uint32_t* masks, uint32_t top, const Planes& x) {
    const uint32_t some = x.some(), ones = x.ones(), twos = x.twos(), fours = x.fours();
    const uint32_t last = top < DEEPEST ? top : DEEPEST;
    uint32_t here = fours & masks[0], below = 0;
    REFNUM_ROLLED
    while (here == 0 && below < last) {
        const uint32_t* at = masks + ++below;
        here = (fours & at[0]) | (twos & at[-1]) | (ones & at[-2]) | (some & at[-3]);
    }
    // a column of zeros has byte 0; one whose byte would lie below 0 has it too
    return {some ? below : top, here || below == top || some == 0};
}

REFNUM_HD Planes column_planes(const uint32_t (&w)[32], int c) { return {{w[c], w[8 + c], w[16 + c]}}; }

// Binades from `top` to the bytes of eight columns. False: elements of one lie too deep.
REFNUM_HD bool find_depths(const uint32_t* masks, uint32_t top, const uint32_t (&w)[32], uint32_t (&below)[8]) {
    const uint32_t near[NEAR_DEPTHS] = {masks[0], masks[1], masks[2], masks[3]};
    bool found = top >= NEAR_DEPTHS - 1;
    REFNUM_UNROLL
    for (int c = 0; c < 8; ++c) {
        const Depth depth = find_near_depth(near, column_planes(w, c));
        below[c] = depth.below;
        found = found && depth.found;
    }
    if (found) return true;
    found = true;
    REFNUM_UNROLL
    for (int c = 0; c < 8; ++c) {
        const Depth depth = find_depth(masks, top, column_planes(w, c));
        below[c] = depth.below;
        found = found && depth.found;
    }
    return found;
}

// Planes of eight columns to planes under their columns' bytes, which come out as `bytes`. False: elements lie too deep.
template <bool amax>
REFNUM_HD bool turn_planes(const uint32_t* masks, uint32_t top, uint32_t (&w)[32], Table& bytes) {
    uint32_t rows[DISTANCES], below[8] = {};
    const bool found = !amax || find_depths(masks, top, w, below);
    REFNUM_UNROLL
    for (int c = 0; c < 8; ++c) {
        if (amax || c == 0) {
            const int32_t at = (int32_t)(below[c] < DEEPEST ? below[c] : DEEPEST) + NEAREST;  // zeros may be below it
            REFNUM_UNROLL
            for (int i = 0; i < DISTANCES; ++i) rows[i] = masks[at + i];
        }
        const Planes old = column_planes(w, c), x = amax ? step_down<0>(old, rows) : step_down<-NEAREST>(old, rows);
        w[c] = x.bit[0], w[8 + c] = x.bit[1], w[16 + c] = x.bit[2];
    }
    bytes.low = top * 0x01010101u - (below[0] | below[1] << 8 | below[2] << 16 | below[3] << 24);
    bytes.high = top * 0x01010101u - (below[4] | below[5] << 8 | below[6] << 16 | below[7] << 24);
    return found;
}

// Eight columns as nibbles. `reached`: bit d of a nibble says that an element lies at depth d or above, `some` (bit 0) that one
// exists. Nibbles of rows that lie apart are joined by OR.
struct Reached {
    uint32_t depths, some;
};

// What some rows of eight columns reach: rows of each of `parts`.
template <int parts>
REFNUM_HD void reach(const uint32_t* masks, const uint32_t (&w)[32], const uint32_t (&rows)[parts], Reached (&out)[parts]) {
    const uint32_t near[NEAR_DEPTHS] = {masks[0], masks[1], masks[2], masks[3]};
    REFNUM_UNROLL
    for (int p = 0; p < parts; ++p) out[p] = {0, 0};
    REFNUM_UNROLL
    for (int c = 0; c < 8; ++c) {
        const NearRows found = near_rows(near, {{w[c], w[8 + c], w[16 + c]}});
        REFNUM_UNROLL
        for (int p = 0; p < parts; ++p) {
            REFNUM_UNROLL
            for (int d = 0; d < (int)NEAR_DEPTHS; ++d) out[p].depths |= found.of[d] & rows[p] ? 1u << (4 * c + d) : 0;
            out[p].some |= found.some & rows[p] ? 1u << 4 * c : 0;
        }
    }
}
// The same of a packed word of a row at `depth`.
REFNUM_HD Reached reach(uint32_t packed, uint32_t depth) {
    const uint32_t low = packed & 0x11111111u, one = packed >> 1 & 0x11111111u, two = packed >> 2 & 0x11111111u;
    const uint32_t some = low | one | two, all = (one & two) | two << 1 | (one | two) << 2 | some << 3;
    return {depth < NEAR_DEPTHS ? (all & 0x11111111u * (0xFu >> depth)) << depth : 0, some};
}

// A nibble each to a byte each, nibbles 0 to 3.
REFNUM_HD uint32_t spread_nibbles(uint32_t x) {
    const uint32_t pairs = ((x & 0xFFFF) | x << 8) & 0x00FF00FFu;
    return (pairs | pairs << 4) & 0x0F0F0F0Fu;
}
// Binades from `top` to the bytes of eight columns: `top` where there is no element.
REFNUM_HD Table near_columns(const Reached& x, uint32_t top) {
    const uint32_t missing = ~x.depths, pairs = missing - (missing >> 1 & 0x55555555u);
    const uint32_t depth = (pairs & 0x33333333u) + (pairs >> 2 & 0x33333333u);
    const uint32_t low = spread_nibbles(x.some) * 0xFF, high = spread_nibbles(x.some >> 16) * 0xFF, all = top * 0x01010101u;
    return {choose(spread_nibbles(depth), all, low), choose(spread_nibbles(depth >> 16), all, high)};
}
// Whether no element lies deeper than `near_columns` knows.
REFNUM_HD bool is_near(const Reached& x, uint32_t top) {
    return top >= NEAR_DEPTHS - 1 && (x.some & ~(x.depths >> 3)) == 0;
}

// Rows 0 to count - 1 of 32 by their places in planes.
REFNUM_HD uint32_t plane_rows(uint32_t count) {
    return ((1u << count / 8) - 1) * 0x11111111u | ((0x11111111u << count / 8) & ((1u << 4 * (count % 8)) - 1));
}

}  // namespace refnum
