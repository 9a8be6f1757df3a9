// MXFP4 block of 32 -> bfloat16 or float32, exact (clause N5).
//
// A nibble is a byte-permute selector into the upper and the lower bytes of the eight bfloat16 magnitudes; only
// the tables depend on the block. Every decoded value is a bfloat16, so float32 is the same word with a zero half.
#pragma once

#include "e2m1.cuh"

namespace refnum {

// Upper and lower bytes of the bfloat16 magnitudes under one scale byte, and the signs to keep (none in NaN).
struct DecodeTable {
    Table upper, lower;
    uint32_t signs;
};

REFNUM_HD DecodeTable decode_table(uint32_t byte) {
    DecodeTable table = {{0, 0}, {0, 0}, byte == NAN_BYTE ? 0 : BYTE_SIGNS};
    if (byte >= 2 && byte <= 252) {  // all normal: exponent fields byte - 1 (0.5), byte, byte + 1, byte + 2
        const uint32_t whole = byte >> 1, down = (byte - 1) >> 1, up = (byte + 1) >> 1;  // upper byte: field >> 1
        table.upper = {down << 8 | whole << 16 | whole << 24, up * 0x00000101u | (whole + 1) * 0x01010000u};
        // lower byte: the field's last bit at 7, the fraction bit at 6
        table.lower = byte & 1 ? Table{0xC0800000u, 0xC0804000u} : Table{0x40008000u, 0x4000C080u};
        return table;
    }
    REFNUM_ROLLED
    for (uint32_t c = 0; c < 8; ++c) {
        const uint32_t bits = e2m1_decode(c, byte) >> 16, place = 8 * (c & 3), first = c < 4 ? ~0u : 0u;
        const uint32_t upper = (bits >> 8) << place, lower = (bits & 0xFF) << place;
        table.upper.low |= upper & first;
        table.lower.low |= lower & first;
        table.upper.high |= upper & ~first;
        table.lower.high |= lower & ~first;
    }
    return table;
}

// Eight elements of a packed word -> four words of two bfloat16.
REFNUM_HD void decode_word(uint32_t packed, const DecodeTable& table, uint32_t (&out)[4]) {
    const uint32_t first = packed & NIBBLE_MAGNITUDES, second = first >> 16;
    const uint32_t upper_a = look_up(table.upper, first) | (nibble_signs_low(packed) & table.signs);
    const uint32_t upper_b = look_up(table.upper, second) | (nibble_signs_high(packed) & table.signs);
    const uint32_t lower_a = look_up(table.lower, first), lower_b = look_up(table.lower, second);
    out[0] = permute(lower_a, upper_a, 0x5140);
    out[1] = permute(lower_a, upper_a, 0x7362);
    out[2] = permute(lower_b, upper_b, 0x5140);
    out[3] = permute(lower_b, upper_b, 0x7362);
}

// Float32 bits of the low and the high bfloat16 of a word.
REFNUM_HD uint32_t low_float(uint32_t word) { return word << 16; }
REFNUM_HD uint32_t high_float(uint32_t word) { return word & 0xFFFF0000u; }

}  // namespace refnum
