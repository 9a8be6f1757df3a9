// Where a scale lies: storage layouts of a matrix of E8M0 bytes (clauses N6.2 and N6.5).
//
// Pure functions like the other headers. `rows` and `columns` are those of the matrix; what a layout adds to them is
// padding and holds zero.
#pragma once

#include "e8m0.cuh"

namespace refnum {

enum ScaleLayout : uint32_t { BYTES = 0, FLOAT32_ROWS = 1, FLOAT32_COLUMNS = 2, PACKED_UE8M0 = 3, SWIZZLED = 4 };

REFNUM_HD uint32_t round_up(uint32_t n, uint32_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Whether a scale is a float32 and not a byte.
REFNUM_HD bool is_float_layout(uint32_t layout) { return layout == FLOAT32_ROWS || layout == FLOAT32_COLUMNS; }

// Rows and columns of the storage, padding counted.
REFNUM_HD uint32_t stored_rows(uint32_t layout, uint32_t rows) {
    return layout <= FLOAT32_ROWS ? rows : round_up(rows, layout == SWIZZLED ? 128 : 4);
}
REFNUM_HD uint32_t stored_columns(uint32_t layout, uint32_t columns) {
    return layout < PACKED_UE8M0 ? columns : round_up(columns, 4);
}

// First byte of a scale in the storage.
REFNUM_HD uint64_t scale_place(uint32_t layout, uint32_t rows, uint32_t columns, uint32_t row, uint32_t column) {
    if (layout == FLOAT32_ROWS) return 4 * ((uint64_t)row * columns + column);
    if (layout == FLOAT32_COLUMNS) return 4 * ((uint64_t)column * stored_rows(layout, rows) + row);
    if (layout == PACKED_UE8M0) {
        return 4 * ((uint64_t)(column / 4) * stored_rows(layout, rows) + row) + column % 4;
    }
    if (layout == SWIZZLED) {
        const uint64_t block = (uint64_t)(row / 128) * (stored_columns(layout, columns) / 4) + column / 4;
        return block * 512 + (row % 32) * 16 + (row % 128) / 32 * 4 + column % 4;
    }
    return (uint64_t)row * columns + column;
}

// The byte of a float32 scale: the inverse of `e8m0_decode`, and the NaN byte for what is no power of two.
REFNUM_HD uint32_t byte_of_scale(uint32_t bits) {
    const uint32_t field = bits >> 23;
    if (bits == e8m0_decode(0)) return 0;
    return (bits & 0x7FFFFF) == 0 && field - 1 < MAX_BYTE ? field : NAN_BYTE;
}

}  // namespace refnum
