// Row-wise MXFP4 to E4M3 under a byte a column, by binary16 (clause N9, mode `amax`).
//
// A row's magnitudes are looked up as upper bytes of binary16, times 2**(row - base - 13) for the smallest byte `base`
// of the rows that take part. The largest of a column gives its byte. One multiply by a power of the column's then
// puts E4M3's smallest magnitude on binary16's smallest subnormal: an E2M1 value has one fraction bit, so E4M3's grid is
// met exactly above its smallest normal, and below it the multiply rounds to nearest even. A second multiply, exact,
// brings E4M3's smallest normal to binary16's; the code then lies in the pattern, in bits 7..13.
//
// Four rows are turned at a time: lanes are rows (0, 2) and (1, 3) of one column, so its codes leave as the bytes of a
// word. A packed word holds eight columns; of four words whose bytes are transposed, each has two columns, whose signs
// lie at the tops of the bytes moved by four, and of the bytes.
#pragma once

#include "mxfp4_to_fp8_columns.cuh"

namespace refnum {

constexpr int32_t E4M3_SPREAD = 18;             // binades between the rows of a block
constexpr int32_t E4M3_LIFT = 2 + E4M3_EMAX;    // from the field of a column's largest binary16 to its byte less base
constexpr int32_t E4M3_DOWN = -2, E4M3_UP = 7;  // exponents of the rest of the first multiply, and of the second

// Upper bytes of binary16 of the eight magnitudes times 2**(above - 13), for above in 0..26; zero stays zero.
REFNUM_HD Table half_bytes(uint32_t above) {
    return {0x0A080400u + 0x04040400u * above, 0x12100E0Cu + 0x04040404u * above};
}

// Magnitudes of a packed word: bytes of columns 0..3 and 4..7.
REFNUM_HD Table row_halves(uint32_t packed, Table table) {
    const uint32_t magnitudes = packed & NIBBLE_MAGNITUDES;
    return {permute_low(table.low, table.high, magnitudes), permute_low(table.low, table.high, magnitudes >> 16)};
}

// Running maxima of eight columns, in the upper bytes of lanes (0, 2), (1, 3), (4, 6) and (5, 7).
struct HalfMaxima {
    uint32_t w[4];
};
REFNUM_HD void raise_halves(HalfMaxima& maxima, Table a) {
    maxima.w[0] = max_lanes(maxima.w[0], a.low << 8);
    maxima.w[1] = max_lanes(maxima.w[1], a.low);
    maxima.w[2] = max_lanes(maxima.w[2], a.high << 8);
    maxima.w[3] = max_lanes(maxima.w[3], a.high);
}
// The same for two rows at once.
REFNUM_HD void raise_halves(HalfMaxima& maxima, Table a, Table b) {
    maxima.w[0] = max3_lanes(maxima.w[0], a.low << 8, b.low << 8);
    maxima.w[1] = max3_lanes(maxima.w[1], a.low, b.low);
    maxima.w[2] = max3_lanes(maxima.w[2], a.high << 8, b.high << 8);
    maxima.w[3] = max3_lanes(maxima.w[3], a.high, b.high);
}

// Bytes of eight columns in lanes (0, 4), (2, 6), (1, 5), (3, 7), and the power of each in both lanes.
struct ColumnScales {
    uint32_t byte[4], power[8];
};
REFNUM_HD ColumnScales column_scales(const HalfMaxima& maxima, uint32_t base) {
    const uint32_t* w = maxima.w;
    const uint32_t pairs[4] = {permute(w[0], w[2], 0x5410), permute(w[0], w[2], 0x7632), permute(w[1], w[3], 0x5410),
                               permute(w[1], w[3], 0x7632)};
    ColumnScales out;
    REFNUM_UNROLL
    for (int i = 0; i < 4; ++i) {
        const uint32_t field = pairs[i] >> 10 & 0x003F003Fu;
        REFNUM_EXPECTS(larger_lane(pairs[i]) < 0x7B00 && base <= 254);
        REFNUM_EXPECTS(larger_lane(pairs[i]) < 0x400 || base + (larger_lane(pairs[i]) >> 10) <= 258);
        const uint32_t lift = both_lanes((uint32_t)((int32_t)base - E4M3_LIFT) & 0xFFFF);
        const uint32_t byte = add_and_clamp(field, lift, 0x00FE00FEu);
        const uint32_t some = lane_signs(field + 0x7FFF7FFFu);
        // 2**(base - byte): the field is 1 to 25 while rows lie within E4M3_SPREAD, for columns of zeros too
        const uint32_t power = (both_lanes(15 + base) - byte) << 10;
        const uint32_t first = scale_halves(power, both_lanes(half_power(E4M3_DOWN)));  // exact
        const int column = i % 2 * 2 + i / 2;
        out.power[column] = permute(first, first, 0x1010);
        out.power[column + 4] = permute(first, first, 0x3232);
        out.byte[i] = choose(byte, both_lanes(ONE_BYTE), some);
    }
    return out;
}

// Column bytes 0..3 and 4..7.
REFNUM_HD Table scale_bytes(const ColumnScales& scales) {
    const uint32_t even = permute(scales.byte[0], scales.byte[1], 0x6240);
    const uint32_t odd = permute(scales.byte[2], scales.byte[3], 0x6240);
    return {permute(even, odd, 0x5140), permute(even, odd, 0x7362)};
}

// Codes of four rows of a column: byte `i` of each row's word, under the column's power, and signs at the tops of bytes.
template <int i>
REFNUM_HD uint32_t column_rows(uint32_t row, uint32_t next, uint32_t third, uint32_t last, uint32_t power,
                                uint32_t signs) {
    uint32_t lanes[2] = {pair_upper<i>(row, third), pair_upper<i>(next, last)};
    scale_all<2>(lanes, power);  // rounds
    scale_all<2>(lanes, both_lanes(half_power(E4M3_UP)));
    return choose((lanes[0] >> 7) + lanes[1] * 2, signs, BYTE_MAGNITUDES);
}

// Packed words of four rows, and what `row_halves` made of them -> words of four rows of eight columns.
REFNUM_HD void turn_rows(uint32_t (&packed)[4], const Table (&rows)[4], const uint32_t (&powers)[8],
                         uint32_t (&out)[8]) {
    transpose_bytes(packed);
    const uint32_t a = rows[0].low, b = rows[1].low, c = rows[2].low, d = rows[3].low;
    out[0] = column_rows<0>(a, b, c, d, powers[0], packed[0] << 4);
    out[1] = column_rows<1>(a, b, c, d, powers[1], packed[0]);
    out[2] = column_rows<2>(a, b, c, d, powers[2], packed[1] << 4);
    out[3] = column_rows<3>(a, b, c, d, powers[3], packed[1]);
    const uint32_t e = rows[0].high, f = rows[1].high, g = rows[2].high, h = rows[3].high;
    out[4] = column_rows<0>(e, f, g, h, powers[4], packed[2] << 4);
    out[5] = column_rows<1>(e, f, g, h, powers[5], packed[2]);
    out[6] = column_rows<2>(e, f, g, h, powers[6], packed[3] << 4);
    out[7] = column_rows<3>(e, f, g, h, powers[7], packed[3]);
}

}  // namespace refnum
