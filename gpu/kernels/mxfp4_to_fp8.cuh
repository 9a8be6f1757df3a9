// MXFP4 blocks -> E4M3 codes under a shared tile byte, row-wise (clause N8).
//
// Three bits of a nibble select one of eight E4M3 bytes; the table depends only on how far the block's scale lies
// from the tile's, so a word of eight elements is nine integer instructions. A zero selects a zero at any distance.
#pragma once

#include "e4m3.cuh"

namespace refnum {

// What a block brings to its tile's maximum: 0 when it takes no part (empty or NaN), else 1 + byte (`max`) or
// 1 + byte + floor(log2 amax) + 1 (`amax`; an MXFP4 value never needs the round-up of N3: 1.5 <= 1.75).
REFNUM_HD uint32_t block_part_max(const uint32_t (&packed)[4], uint32_t byte) {
    return byte == NAN_BYTE || is_empty(packed) ? 0 : byte + 1;
}
REFNUM_HD uint32_t block_part_amax(const uint32_t (&packed)[4], uint32_t byte) {
    const int32_t binade = largest_binade(packed);
    return byte == NAN_BYTE || binade == 0 ? 0 : byte + (uint32_t)binade;
}

// Tile byte from the largest part of its blocks: 127 when none takes part.
REFNUM_HD uint32_t tile_byte_max(uint32_t part) { return part == 0 ? ONE_BYTE : part > 7 ? part - 7 : 0; }
REFNUM_HD uint32_t tile_byte_amax(uint32_t part) { return part == 0 ? ONE_BYTE : part > 10 ? part - 10 : 0; }

// E4M3 bytes of a block's magnitudes and the signs to keep.
struct RecodeTable {
    Table bytes;
    uint32_t signs;
};

REFNUM_HD RecodeTable recode_table(uint32_t byte, uint32_t tile) {
    if (byte == NAN_BYTE) return {{BYTE_MAGNITUDES, BYTE_MAGNITUDES}, 0};
    return {e4m3_table((int32_t)byte - (int32_t)tile), BYTE_SIGNS};
}

// Eight elements of a packed word -> two words of codes.
REFNUM_HD void e4m3_words(uint32_t packed, const RecodeTable& table, uint32_t& first, uint32_t& second) {
    const uint32_t magnitudes = packed & NIBBLE_MAGNITUDES;
    first = look_up(table.bytes, magnitudes) | (nibble_signs_low(packed) & table.signs);
    second = look_up(table.bytes, magnitudes >> 16) | (nibble_signs_high(packed) & table.signs);
}

}  // namespace refnum
