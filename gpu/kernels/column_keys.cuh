// Row-wise MXFP4 to E4M3 under a byte a column, by keys (clause N9, mode `amax`): rows that lie so near each other that
// every code is exact and normal.
//
// A magnitude's key is an E4M3 code with its own exponent, counted from the smallest magnitude that the rows can have;
// bit 0, which E2M1 never needs, says that it is not zero. So keys order magnitudes, and from a key to a code is one
// addition for a column, in which zeros have no part.
#pragma once

#include "column_halves.cuh"

namespace refnum {

constexpr uint32_t KEY_SPREAD = 11;                 // binades between rows: magnitudes of fifteen binades, all normal
constexpr uint32_t KEY_LOWEST = 1 + 1 + E4M3_EMAX;  // part of a row under which no column's byte is below 0
constexpr uint32_t KEY_FLAGS = 0x01010101u;

// Keys of the eight magnitudes of a row `above` binades over the smallest.
REFNUM_HD Table key_table(uint32_t above) {
    return {0x0D090100u + 0x08080800u * above, 0x1D191511u + 0x08080808u * above};
}

// Keys of eight columns of a row with their signs.
REFNUM_HD Table signed_keys(uint32_t packed, Table keys) {
    return {choose(keys.low, nibble_signs_low(packed), BYTE_MAGNITUDES),
            choose(keys.high, nibble_signs_high(packed), BYTE_MAGNITUDES)};
}

// Largest keys of columns 0..3 and 4..7 from lanes (`HalfMaxima`).
REFNUM_HD Table largest_keys(const HalfMaxima& maxima) {
    return {choose(maxima.w[0] >> 8, maxima.w[1], 0x00FF00FFu), choose(maxima.w[2] >> 8, maxima.w[3], 0x00FF00FFu)};
}

// Bytes of four columns from their largest keys and the smallest part of the rows that take part.
REFNUM_HD uint32_t key_bytes(uint32_t keys, uint32_t low) {
    const uint32_t bytes = (keys >> 3 & 0x0F0F0F0Fu) + (low - KEY_LOWEST) * 0x01010101u;
    return choose(bytes, ONE_BYTE * 0x01010101u, (keys & KEY_FLAGS) * 0xFFu);
}

// What makes codes of four columns' keys: a byte each, 8 * (15 - binades of the largest key) - 1.
REFNUM_HD uint32_t key_lifts(uint32_t keys) { return 0x77777777u - (keys & 0x78787878u); }
REFNUM_HD uint32_t lift_keys(uint32_t keys, uint32_t lift) { return keys + (keys & KEY_FLAGS) * lift; }

}  // namespace refnum
