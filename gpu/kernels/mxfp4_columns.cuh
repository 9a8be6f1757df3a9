// Row-wise MXFP4 -> column-wise MXFP4, blocks of 32 rows x 1 column (clause N9).
//
// Element functions return four columns of one row as bytes whose upper halves are the nibbles; two rows then join
// to packed bytes, and eight rows to a word after a byte transpose.
#pragma once

#include "fp8_to_mxfp4.cuh"
#include "mxfp4_to_fp8_columns.cuh"

namespace refnum {

// `amax`, any bytes: nibbles of packed words of a row under its byte and the columns', four a word; a lane comes out as
// value * 2**-14. Where rows lie near each other, bit_planes.cuh gives the same for less.
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

// Packed bytes of four columns from the nibbles of an even row and of the row below it.
REFNUM_HD uint32_t join_rows(uint32_t even_row, uint32_t odd_row) { return choose(even_row >> 4, odd_row, 0x0F0F0F0Fu); }

}  // namespace refnum
