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
    return {look_up(table, magnitudes), look_up(table, magnitudes >> 16)};
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

// Highest part (`column_part_table`) of other rows of a column, for smallest byte `base`: no row of it lies further
// below than E4M3_SPREAD.
REFNUM_HD uint32_t highest_edge(uint32_t base) { return base + 1 + E4M3_SPREAD + 2 - E4M3_EMAX; }

// `edges`: parts of other rows of the columns, 0 if there are none; not looked at unless `edged`.
template <bool edged>
REFNUM_HD ColumnScales column_scales(const HalfMaxima& maxima, uint32_t base, Table edges) {
    const uint32_t* w = maxima.w;
    const uint32_t pairs[4] = {permute(w[0], w[2], 0x5410), permute(w[0], w[2], 0x7632), permute(w[1], w[3], 0x5410),
                               permute(w[1], w[3], 0x7632)};
    const uint32_t even[2] = {edges.low & 0x00FF00FFu, edges.high & 0x00FF00FFu};
    const uint32_t odd[2] = {edges.low >> 8 & 0x00FF00FFu, edges.high >> 8 & 0x00FF00FFu};
    const uint32_t others[4] = {permute(even[0], even[1], 0x5410), permute(even[0], even[1], 0x7632),
                                permute(odd[0], odd[1], 0x5410), permute(odd[0], odd[1], 0x7632)};
    ColumnScales out;
    REFNUM_UNROLL
    for (int i = 0; i < 4; ++i) {
        const uint32_t field = pairs[i] >> 10 & 0x003F003Fu;
        REFNUM_EXPECTS(larger_lane(pairs[i]) < 0x7B00 && base <= 254);
        REFNUM_EXPECTS(larger_lane(pairs[i]) < 0x400 || base + (larger_lane(pairs[i]) >> 10) <= 258);
        REFNUM_EXPECTS(larger_lane(others[i]) <= highest_edge(base));
        const uint32_t lift = both_lanes((uint32_t)((int32_t)base - E4M3_LIFT) & 0xFFFF);
        const uint32_t own = add_and_clamp(field, lift, 0x00FE00FEu);
        const uint32_t some = lane_signs(field + 0x7FFF7FFFu), more = edged ? lane_signs(others[i] + 0x7FFF7FFFu) : 0;
        const uint32_t theirs = others[i] - (more & 0x00010001u);
        const uint32_t byte = edged ? max_lanes(own, theirs) : own;
        // 2**(base - byte): the field is 1 to 25 while rows lie within E4M3_SPREAD, for columns of zeros too
        const uint32_t power = (both_lanes(15 + base) - byte) << 10;
        const uint32_t first = scale_halves(power, both_lanes(half_power(E4M3_DOWN)));  // exact
        const int column = i % 2 * 2 + i / 2;
        out.power[column] = permute(first, first, 0x1010);
        out.power[column + 4] = permute(first, first, 0x3232);
        out.byte[i] = choose(edged ? choose(byte, theirs, some) : byte, both_lanes(ONE_BYTE), some | more);
    }
    return out;
}
REFNUM_HD ColumnScales column_scales(const HalfMaxima& maxima, uint32_t base) {
    return column_scales<false>(maxima, base, {0, 0});
}

// Column bytes 0..3 and 4..7.
REFNUM_HD Table scale_bytes(const ColumnScales& scales) {
    const uint32_t even = permute(scales.byte[0], scales.byte[1], 0x6240);
    const uint32_t odd = permute(scales.byte[2], scales.byte[3], 0x6240);
    return {permute(even, odd, 0x5140), permute(even, odd, 0x7362)};
}

// Codes of four rows of a column: byte `i` of each row's word, under the column's power, and signs at the tops of bytes.
template <int i>
REFNUM_HD uint32_t column_rows(const uint32_t (&rows)[4], uint32_t even, uint32_t odd, uint32_t signs) {
    uint32_t lanes[2] = {pair_upper<i>(rows[0], rows[2]), pair_upper<i>(rows[1], rows[3])};
    scale_all<1>(&lanes[0], even);  // rounds
    scale_all<1>(&lanes[1], odd);
    scale_all<2>(lanes, both_lanes(half_power(E4M3_UP)));
    return choose((lanes[0] >> 7) + lanes[1] * 2, signs, BYTE_MAGNITUDES);
}

// Packed words of four rows, and what `row_halves` made of them -> words of four rows of eight columns. Powers of rows
// (0, 2) and of rows (1, 3) of every column.
REFNUM_HD void turn_rows(uint32_t (&packed)[4], const Table (&rows)[4], const uint32_t (&even)[8],
                         const uint32_t (&odd)[8], uint32_t (&out)[8]) {
    transpose_bytes(packed);
    const uint32_t low[4] = {rows[0].low, rows[1].low, rows[2].low, rows[3].low};
    out[0] = column_rows<0>(low, even[0], odd[0], packed[0] << 4);
    out[1] = column_rows<1>(low, even[1], odd[1], packed[0]);
    out[2] = column_rows<2>(low, even[2], odd[2], packed[1] << 4);
    out[3] = column_rows<3>(low, even[3], odd[3], packed[1]);
    const uint32_t high[4] = {rows[0].high, rows[1].high, rows[2].high, rows[3].high};
    out[4] = column_rows<0>(high, even[4], odd[4], packed[2] << 4);
    out[5] = column_rows<1>(high, even[5], odd[5], packed[2]);
    out[6] = column_rows<2>(high, even[6], odd[6], packed[3] << 4);
    out[7] = column_rows<3>(high, even[7], odd[7], packed[3]);
}

// Powers of eight columns, a half each, and the powers of rows (0, 2) or (1, 3) from those of each row's segment.
REFNUM_HD void keep_powers(const uint32_t (&powers)[8], uint32_t (&halves)[4]) {
    REFNUM_UNROLL
    for (int j = 0; j < 4; ++j) halves[j] = permute(powers[2 * j], powers[2 * j + 1], 0x5410);
}
REFNUM_HD void pair_powers(const uint32_t (&row)[4], const uint32_t (&below)[4], uint32_t (&powers)[8]) {
    REFNUM_UNROLL
    for (int j = 0; j < 4; ++j) {
        powers[2 * j] = permute(row[j], below[j], 0x5410);
        powers[2 * j + 1] = permute(row[j], below[j], 0x7632);
    }
}

}  // namespace refnum
