// Scale layouts (clause N6.5).
#include "common.hpp"

#include "../kernels/layouts.cuh"

using namespace refnum;

extern "C" {

// Storage of E8M0 bytes [rows, columns] in a layout, padding written as zero, and the way back.
void refnum_lay_scales(const uint8_t* scales, int64_t rows, int64_t columns, int layout, uint8_t* out) {
    const uint32_t high = stored_rows(layout, (uint32_t)rows), wide = stored_columns(layout, (uint32_t)columns);
    for (uint32_t r = 0; r < high; ++r) {
        for (uint32_t c = 0; c < wide; ++c) {
            const bool own = r < rows && c < columns;
            const uint32_t byte = own ? scales[r * columns + c] : 0;
            const uint32_t value = is_float_layout(layout) && own ? e8m0_decode(byte) : byte;
            std::memcpy(out + scale_place(layout, (uint32_t)rows, (uint32_t)columns, r, c), &value,
                        is_float_layout(layout) ? 4 : 1);
        }
    }
}

void refnum_read_scales(const uint8_t* from, int64_t rows, int64_t columns, int layout, uint8_t* scales) {
    for (uint32_t r = 0; r < rows; ++r) {
        for (uint32_t c = 0; c < columns; ++c) {
            const uint8_t* at = from + scale_place(layout, (uint32_t)rows, (uint32_t)columns, r, c);
            scales[r * columns + c] = (uint8_t)(is_float_layout(layout) ? byte_of_scale(word_at(at, 0)) : *at);
        }
    }
}

}  // extern "C"
