// Row-wise MXFP4 -> column-wise MXFP4, blocks of 32 rows x 1 column (clause N9).
//
// Element functions return four columns of one row as bytes whose upper halves are the nibbles; two rows then join
// to packed bytes, and eight rows to a word after a byte transpose.
#pragma once

#include "column_halves.cuh"

namespace refnum {

// `max`: E2M1 codes, in the upper halves of bytes, of the eight magnitudes times 2**shift for shift <= 0. A row
// block with a larger byte than the group's is empty and only selects zero.
REFNUM_HD Table e2m1_table(int32_t shift) {
    if (shift >= 0) return {0x30201000u, 0x70605040u};
    if (shift == -1) return {0x20100000u, 0x50403020u};  // 0.25 -> 0 and 0.75 -> 1 are ties
    if (shift == -2) return {0x10000000u, 0x30202010u};
    if (shift == -3) return {0, 0x20101000u};
    return {0, shift == -4 ? 0x10000000u : 0u};
}

// `max`: byte of a 32x32 group from the largest of its rows' parts (`block_part_max`).
REFNUM_HD uint32_t group_byte_max(uint32_t part) { return part ? part - 1 : 0; }

// `max`: nibbles of a row's 32 elements, four a word.
REFNUM_HD void column_nibbles_max(const uint32_t (&packed)[4], Table table, uint32_t (&nibbles)[8]) {
    REFNUM_UNROLL
    for (int j = 0; j < 8; ++j) {
        const uint32_t magnitudes = packed[j >> 1] & NIBBLE_MAGNITUDES;
        const uint32_t codes = look_up(table, j & 1 ? magnitudes >> 16 : magnitudes);
        nibbles[j] = choose(codes, row_signs(packed, j), BYTE_MAGNITUDES);
    }
}

// `amax`, any bytes: the same for packed words under their column bytes; a lane comes out as value * 2**-14.
template <int words>
REFNUM_HD void column_nibbles_amax(const uint32_t (&packed)[words], uint32_t byte, const ColumnBytes* columns,
                                   uint32_t (&nibbles)[2 * words]) {
    uint32_t lanes[4 * words];
    column_lanes(packed, byte, columns, -6, lanes);
    REFNUM_UNROLL
    for (int j = 0; j < 2 * words; ++j) {
        const uint32_t codes = e2m1_round_bytes(choose(lanes[2 * j] >> 5, lanes[2 * j + 1] << 3, 0x00FF00FFu));
        nibbles[j] = choose(codes, row_signs(packed, j), BYTE_MAGNITUDES);
    }
}

// `max` by column_halves.cuh: maxima of columns whose byte is to be base + above, whatever they hold.
REFNUM_HD uint32_t group_maximum(uint32_t above) { return both_lanes((above + ToE2M1::offset) << 10); }

// Packed bytes of four columns from the nibbles of an even row and of the row below it.
REFNUM_HD uint32_t join_rows(uint32_t even_row, uint32_t odd_row) { return choose(even_row >> 4, odd_row, 0x0F0F0F0Fu); }

}  // namespace refnum
