// Dispatch payload and permutation by expert (clause N12): where bytes lie, and the one weighted sum.
//
// A payload row is the packed codes of a token, then its scale bytes: 17 bytes an MX block.
#pragma once

#include "float32.cuh"

namespace refnum {

constexpr uint32_t PAYLOAD_CODES = 16, PAYLOAD_UNIT = 17;  // bytes of an MX block: codes, and with its scale

// Rows that `rows` of an expert take when padded to a multiple of `align`.
REFNUM_HD uint64_t padded_rows(uint64_t rows, uint64_t align) { return (rows + align - 1) / align * align; }

// The expert that holds padded row `row`: the last of `experts` (at least one) that starts at or before it.
template <class Item>
REFNUM_HD uint32_t expert_of(const Item* first, uint32_t experts, uint64_t row) {
    uint32_t low = 0, high = experts;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (first[middle] <= row) low = middle;
        else high = middle;
    }
    return low;
}

// A token's sum with one more expert row's element: RN(w * x) for the first, else RN(sum + RN(w * x)).
// A NaN stays one under every later term, so it is made canonical once, behind the last.
REFNUM_HD uint32_t weighted_sum(uint32_t sum, uint32_t weight, uint32_t x, bool first) {
    const uint32_t term = multiply_floats(weight, x);
    return first ? term : add_floats(sum, term);
}

}  // namespace refnum
