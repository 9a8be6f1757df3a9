// Row-wise MXFP4 -> column-wise E4M3, 128 rows a block (clause N9).
//
// `max`: one byte for 128 rows and a group of 32 columns; elements are mxfp4_to_fp8.cuh's, then transposed.
// `amax`: one byte a column. Both maxima and elements work on four columns at once: word j of a row's packed group
// holds columns 8j..8j+7, and its halves four columns each.
#pragma once

#include "mxfp4_to_fp8.cuh"

namespace refnum {

// E2M1 magnitudes times 2**-8 as the upper bytes of binary16; the lower bytes are zero.
REFNUM_HD Table half_table() { return {0x1E1C1800u, 0x26242220u}; }

// What the eight magnitudes under a row's byte bring to their columns' maxima: 0 for a zero and under NaN, else
// one more than the column byte they ask for, 1 + max(byte + floor(log2 magnitude) - emax, 0). No round-up of N3
// can happen: an E2M1 value has a significand of at most 1.5, and both formats' maxima reach that.
REFNUM_HD Table column_part_table(uint32_t byte, int32_t emax) {
    const int32_t one = (int32_t)byte + 1 - emax;
    if (one >= 2 && byte != NAN_BYTE) {  // as nearly always: no part is cut
        return {(uint32_t)one * 0x01010100u - 0x100u, (uint32_t)one * 0x01010101u + 0x02020101u};
    }
    if (byte == NAN_BYTE) return {0, 0};
    const uint32_t half = one > 2 ? (uint32_t)one - 1 : 1, whole = one > 1 ? (uint32_t)one : 1;
    const uint32_t two = one > 0 ? (uint32_t)one + 1 : 1, four = one > -1 ? (uint32_t)one + 2 : 1;
    return {half << 8 | whole * 0x01010000u, two * 0x0101u | four * 0x01010000u};
}

// Running maxima of four columns, each in the upper byte of a lane: columns (0, 2) and (1, 3).
struct ColumnMaxima {
    uint32_t even, odd;
};
REFNUM_HD void raise_maxima(ColumnMaxima& maxima, uint32_t parts) {
    maxima.even = max_lanes(maxima.even, parts << 8);  // a lane's lower byte can only break ties
    maxima.odd = max_lanes(maxima.odd, parts);
}
// The same for two rows at once.
REFNUM_HD void raise_maxima(ColumnMaxima& maxima, uint32_t parts, uint32_t more) {
    maxima.even = max3_lanes(maxima.even, parts << 8, more << 8);
    maxima.odd = max3_lanes(maxima.odd, parts, more);
}
REFNUM_HD uint32_t column_parts(ColumnMaxima maxima) { return choose(maxima.even >> 8, maxima.odd, 0x00FF00FFu); }

// Byte of a column from its part; `absent` when no element of it takes part.
REFNUM_HD uint32_t column_byte(uint32_t part, uint32_t absent) { return part ? part - 1 : absent; }
REFNUM_HD uint32_t column_bytes(uint32_t parts, uint32_t absent) {
    uint32_t bytes = 0;
    REFNUM_UNROLL
    for (int i = 0; i < 32; i += 8) bytes |= column_byte(parts >> i & 0xFF, absent) << i;
    return bytes;
}

// Four column bytes (one a byte of `bytes`) as negated lanes: columns (0, 2) and (1, 3).
struct ColumnBytes {
    uint32_t even, odd;
};
REFNUM_HD ColumnBytes negated_columns(uint32_t bytes) {
    return {negate_lanes(bytes & 0x00FF00FFu), negate_lanes(bytes >> 8 & 0x00FF00FFu)};
}

// Binary16 powers 2**(byte - column byte + shift) in two lanes; a field of 0 or less gives zero (the products are
// then below every tie), and a field above 30 is cut to 30 (only zeros are multiplied there).
REFNUM_HD uint32_t column_powers(uint32_t byte, uint32_t negated, int32_t shift) {
    return add_and_clamp(both_lanes(byte + (uint32_t)(15 + shift)), negated, 0x001E001Eu) << 10;
}

// Elements of packed words of a row as scaled binary16, magnitude times 2**(byte - column byte + shift - 8):
// lanes[2j] holds elements 4j and 4j + 2, lanes[2j + 1] holds 4j + 1 and 4j + 3.
template <int words>
REFNUM_HD void column_lanes(const uint32_t (&packed)[words], uint32_t byte, const ColumnBytes* columns, int32_t shift,
                            uint32_t (&lanes)[4 * words]) {
    uint32_t powers[4 * words];
    REFNUM_UNROLL
    for (int j = 0; j < 2 * words; ++j) {
        const uint32_t magnitudes = packed[j >> 1] & NIBBLE_MAGNITUDES;
        const uint32_t halves = look_up(half_table(), j & 1 ? magnitudes >> 16 : magnitudes);
        lanes[2 * j] = halves << 8 & 0xFF00FF00u;
        lanes[2 * j + 1] = halves & 0xFF00FF00u;
        powers[2 * j] = column_powers(byte, columns[j].even, shift);
        powers[2 * j + 1] = column_powers(byte, columns[j].odd, shift);
    }
    scale_each<4 * words>(lanes, powers);
}

// Signs of elements 4j..4j+3 of a row at the top of four bytes.
template <int words>
REFNUM_HD uint32_t row_signs(const uint32_t (&packed)[words], int j) {
    return j & 1 ? nibble_signs_high(packed[j >> 1]) : nibble_signs_low(packed[j >> 1]);
}

// `amax`, any bytes: E4M3 codes of packed words of a row under its byte and the columns' (`negated_columns`, four a
// step). Where rows lie near each other and none is NaN, column_halves.cuh gives the same for less.
template <int words>
REFNUM_HD void column_codes(const uint32_t (&packed)[words], uint32_t byte, const ColumnBytes* columns,
                            uint32_t* codes) {
    const uint32_t nan = byte == NAN_BYTE ? ~0u : 0u;
    uint32_t lanes[4 * words];
    column_lanes(packed, byte, columns, 0, lanes);
    REFNUM_UNROLL
    for (int j = 0; j < 2 * words; ++j) {
        const uint32_t even = e4m3_round_lanes(lanes[2 * j]), odd = e4m3_round_lanes(lanes[2 * j + 1]);
        codes[j] = choose(BYTE_MAGNITUDES, e4m3_join_lanes(even, odd, row_signs(packed, j)), nan);
    }
}

// `max`: E4M3 bytes of a row's magnitudes from its part (`block_part_max`) and the byte of the group. The codes of a NaN
// row must be cleared: its zeros select 0x7F.
REFNUM_HD Table row_table(uint32_t part, uint32_t byte, uint32_t group) {
    if (part) return e4m3_table((int32_t)part - 1 - (int32_t)group);
    const uint32_t fill = byte == NAN_BYTE ? BYTE_MAGNITUDES : 0;
    return {fill, fill};
}

// Eight elements of a packed word -> two words of codes.
REFNUM_HD void e4m3_words(uint32_t packed, Table table, uint32_t& first, uint32_t& second) {
    const uint32_t magnitudes = packed & NIBBLE_MAGNITUDES;
    first = choose(look_up(table, magnitudes), nibble_signs_low(packed), BYTE_MAGNITUDES);
    second = choose(look_up(table, magnitudes >> 16), nibble_signs_high(packed), BYTE_MAGNITUDES);
}

}  // namespace refnum
