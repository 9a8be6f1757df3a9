// Float blocks of 32 -> MXFP4 by the scale rules of TetraJet, to nearest, by random bytes, or to the neighbour that a
// running average chooses (clause N24).
//
// A rule is a carry into the exponent of a block's maximum, as in e8m0.cuh, and a bound below which the byte is 0: the
// ratio of such a maximum is subnormal and rounds otherwise. Elements are bfloat16 lanes that are rounded to odd, which
// tell all sides of all ties (quantize_mxfp4.cuh); the lanes of a word may be of blocks with two scales.
#pragma once

#include "float32.cuh"
#include "parts.cuh"

namespace refnum {

enum TetrajetRule : int { RATIO_BFLOAT16 = 0, RATIO_FLOAT32 = 1, TETRAJET_EXACT = 2, MICROSCALING = 3 };

constexpr uint32_t TETRAJET_ZERO_BYTE = 98, BOTH_HALVES = 0x01000100, BOTH_CODES = 0x0E000E00, BOTH_SIGNS = 0x80008000;

struct TetrajetScale {
    uint32_t carry, least;
};
REFNUM_HD TetrajetScale tetrajet_scale(int rule) {
    if (rule == MICROSCALING) return {0, 0};
    if (rule == RATIO_BFLOAT16) return {0x3F3FFF, 0x01418001};  // up to 6 * (1 + 2**-8); 2**-127 * 6 * (1 + 2**-7)
    return {0x3FFFFF, rule == RATIO_FLOAT32 ? 0x01400001u : 0};
}

// Byte of a block from its largest magnitude, float32 bits.
REFNUM_HD uint32_t tetrajet_byte(uint32_t amax, const TetrajetScale& scale) {
    const int32_t plain = (int32_t)((amax + scale.carry) >> 23) - E2M1_EMAX;
    const uint32_t byte = plain < 0 || amax <= scale.least ? 0 : (uint32_t)plain;
    return amax == 0 ? TETRAJET_ZERO_BYTE : amax >= FLOAT_INF ? NAN_BYTE : byte;
}

// What two lanes lose and are multiplied by to be binary16 in which E2M1's 1 is the smallest normal. Of binary16 lanes
// (`half`) also the low bits that are folded into one, `fold`, before a subnormal loses them.
struct LaneScale {
    uint32_t base, powers, fold;
};
template <bool half>
REFNUM_HD LaneScale one_lane_scale(uint32_t byte) {
    if (half) {
        const int32_t one = byte < 141 ? (int32_t)byte - 112 : 29;  // exponent field of the scale; a NaN block has any
        const int32_t base = one > 8 ? one - 8 : 0;
        return {(uint32_t)base << 10, half_power(1 - (one - base)), one >= 2 ? 7u : 0u};
    }
    const uint32_t base = byte > 8 ? byte - 8 : 0;
    return {base << 7, half_power(1 - (int32_t)(byte - base)), 0};
}
template <bool half>
REFNUM_HD LaneScale lane_scale(uint32_t low, uint32_t high) {
    const LaneScale one = one_lane_scale<half>(low), two = one_lane_scale<half>(high);
    return {one.base | two.base << 16, one.powers | two.powers << 16, one.fold | two.fold << 16};
}
template <bool half>
REFNUM_HD LaneScale lane_scale(uint32_t byte) {
    const LaneScale one = one_lane_scale<half>(byte);
    return {both_lanes(one.base), both_lanes(one.powers), both_lanes(one.fold)};
}

// Lanes of a block under its scale: at most 6, or below 8 as they come.
template <bool half>
REFNUM_HD uint32_t lanes_below_eight(uint32_t word, const LaneScale& scale) {
    const uint32_t left = subtract_to_zero(word & LANE_MAGNITUDES, scale.base);
    uint32_t lanes = left << 3;
    if (half) lanes = (left & ~scale.fold) | (((left & scale.fold) + scale.fold) & 0x00080008u);
    scale_each<1>(&lanes, &scale.powers);
    return lanes;
}
template <bool half>
REFNUM_HD uint32_t lanes_under(uint32_t word, const LaneScale& scale) {
    return min_lanes(lanes_below_eight<half>(word, scale), HALF_E2M1_MAX);
}

// Codes in bits 9 to 11 of lanes: to nearest, ties to even or away from zero.
template <bool away>
REFNUM_HD uint32_t nearest_lanes(uint32_t lanes) {
    return away ? lanes + BOTH_HALVES : e2m1_round_lanes(lanes);
}

// `halves_below` with a power for each number.
REFNUM_HD uint32_t each_half_below(uint32_t low, uint32_t high, uint32_t low_power, uint32_t high_power) {
#ifdef __CUDA_ARCH__
    uint32_t out;
    asm("{\n\t.reg .f32 a, b;\n\t"
        "abs.f32 a, %1;\n\tabs.f32 b, %2;\n\tmul.rn.f32 a, a, %3;\n\tmul.rn.f32 b, b, %4;\n\t"
        "cvt.rz.f16x2.f32 %0, b, a;\n\t}"
        : "=r"(out)
        : "f"(__uint_as_float(low)), "f"(__uint_as_float(high)), "f"(__uint_as_float(low_power)),
          "f"(__uint_as_float(high_power)));
    return out;
#else
    return (halves_below(low, 0, low_power) & 0xFFFF) | (halves_below(0, high, high_power) & 0xFFFF0000u);
#endif
}

// The same by a random byte in each lane; the lanes are cut off toward zero. As in parts.cuh: nine bits lie below a code.
REFNUM_HD uint32_t drawn_lanes(uint32_t low, uint32_t high, uint32_t low_power, uint32_t high_power, uint32_t draws) {
    return min_lanes(each_half_below(low, high, low_power, high_power) + (draws << 1), HALF_E2M1_MAX);
}

// HSET2.BF16: 0xFFFF in each lane where a bfloat16 is no NaN and at least a positive bound.
REFNUM_HD uint32_t reaching_lanes(uint32_t x, uint32_t bounds) {
#if __CUDA_ARCH__ >= 900
    uint32_t out;
    asm("set.ge.u32.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(x), "r"(bounds));
    return out;
#else
    const uint32_t low = x & 0xFFFF, high = x >> 16;
    return (low >= (bounds & 0xFFFF) && low <= 0x7F80 ? 0xFFFFu : 0) | (high >= bounds >> 16 && high <= 0x7F80 ? 0xFFFF0000u : 0);
#endif
}

// The same for weights beside their averages (N24.7): the neighbour above where the average, under the sign of its weight,
// reaches the middle, which is scaled back to be a bfloat16 as the averages are. A NaN reaches nothing.
REFNUM_HD uint32_t averaged_lanes(uint32_t weights, uint32_t averages, const LaneScale& scale) {
    const uint32_t lanes = lanes_below_eight<false>(weights, scale), back = 0x78007800u - scale.powers;
    uint32_t middle = (lanes & BOTH_CODES) | BOTH_HALVES;
    scale_each<1>(&middle, &back);
    middle = (middle >> 3) + scale.base;
    const uint32_t some = min_lanes(weights & LANE_MAGNITUDES, 0x00010001u) << 9;
    const uint32_t up = reaching_lanes(averages ^ (weights & BOTH_SIGNS), middle) & some;
    return min_lanes(lanes + up, HALF_E2M1_MAX);
}

// Float32 bits of two loaded lanes of bfloat16 or binary16, or two loaded float32.
template <int kind>
REFNUM_HD void two_floats(const uint32_t* in, uint32_t& low, uint32_t& high) {
    if (kind == FLOAT32) low = in[0], high = in[1];
    else low = widen_lane<kind>(in[0] & 0xFFFF), high = kind == BFLOAT16 ? in[0] & 0xFFFF0000u : widen_lane<kind>(in[0] >> 16);
}

// Words that two elements take in the input.
template <int kind>
constexpr int PAIR_WORDS = kind == FLOAT32 ? 2 : 1;

// Whether the lanes of an input are binary16 as they come: not beside averages, whose format can be another one.
template <int kind, bool averaged>
constexpr bool HALF_LANES = kind == FLOAT16 && !averaged;

// `count` words of lanes of loaded floats: rounded to odd, or as they come.
template <int kind, bool averaged, int count>
REFNUM_HD void lanes_of(const uint32_t* in, uint32_t* lanes) {
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        uint32_t low, high;
        if (kind == BFLOAT16 || HALF_LANES<kind, averaged>) {
            lanes[i] = in[i];
            continue;
        }
        two_floats<kind>(in + PAIR_WORDS<kind> * i, low, high);
        lanes[i] = odd_bfloat16_pair(low, high);
    }
}

// Float32 bits of the largest magnitude of 2 * `count` loaded floats of one block.
template <int kind, int count>
REFNUM_HD uint32_t largest_of_block(const uint32_t* in) {
    if (kind != FLOAT32) return widen_lane<kind == FLOAT16 ? FLOAT16 : BFLOAT16>(larger_lane(part_largest<count>(in)));
    uint32_t most = 0;
    REFNUM_UNROLL
    for (int i = 0; i < count; ++i) {
        const uint32_t low = in[2 * i] & FLOAT_MAGNITUDE, high = in[2 * i + 1] & FLOAT_MAGNITUDE;
        most = most > low ? most : low;
        most = most > high ? most : high;
    }
    return most;
}

// What elements are multiplied by before random bytes are added. The codes of a NaN block are dropped afterwards.
REFNUM_HD uint32_t drawn_power(uint32_t byte) { return lane_power(byte == NAN_BYTE ? MAX_BYTE : byte); }

// `words` words of codes in bits 9 to 11 of lanes, of a block under a byte, by random bytes.
template <int kind, int words>
REFNUM_HD void drawn_words(const uint32_t* in, uint32_t byte, const uint32_t* random, uint32_t* lanes) {
    const uint32_t power = drawn_power(byte);
    REFNUM_UNROLL
    for (int i = 0; i < words; ++i) {
        uint32_t low, high;
        two_floats<kind>(in + PAIR_WORDS<kind> * i, low, high);
        const uint32_t draws = permute(random[i / 2], 0, i & 1 ? 0x4342 : 0x4140);
        lanes[i] = min_lanes(halves_below(low, high, power) + (draws << 1), HALF_E2M1_MAX);
    }
}

// Of the floats of a kind: bits below the exponent, and what its field and the byte of a scale differ by.
template <int kind>
constexpr int FIELD_AT = kind == FLOAT32 ? 23 : kind == BFLOAT16 ? 7 : 10;
template <int kind>
constexpr int FIELD_ABOVE = kind == FLOAT16 ? 112 : 0;

// Fields of maxima from which on lanes lose what goes with their byte, as bytes 9 and, of binary16 lanes, 121 have, and before
// which the largest power that they are multiplied by is normal.
template <int kind, bool half>
constexpr uint32_t LEAST_ORDINARY = kind == FLOAT16 ? (half ? 11 : 1) : 11;
template <int kind>
constexpr uint32_t ABOVE_ORDINARY = kind == FLOAT16 ? 31 : 240;

// Maxima of two columns as float32 bits.
template <int kind>
REFNUM_HD void two_maxima(const uint32_t* most, int j, uint32_t& low, uint32_t& high) {
    if (kind == FLOAT32) low = most[2 * j], high = most[2 * j + 1];
    else two_floats<kind == FLOAT32 ? BFLOAT16 : kind>(most + 2 * j, low, high);
}

// Bytes of eight columns whose maxima are no special ones, as two lanes a word; `most` as `halve_columns` leaves it.
// Returns whether that is so: else nothing may be used.
template <int kind, bool half>
REFNUM_HD bool ordinary_columns(const uint32_t* most, const TetrajetScale& rule, uint32_t* bytes) {
    constexpr int at = FIELD_AT<kind>;
    constexpr uint32_t first = LEAST_ORDINARY<kind, half> << at, last = (ABOVE_ORDINARY<kind> << at) - 1;
    uint32_t least = ~0u, largest = 0;
    REFNUM_UNROLL
    for (int j = 0; j < 4; ++j) {
        const uint32_t* two = most + 2 * j;
        if (kind != FLOAT32) {
            least = min_lanes(least, two[0]), largest = max_lanes(largest, two[0]);
            bytes[j] = ((two[0] + both_lanes(rule.carry >> (23 - at))) >> at & (kind == FLOAT16 ? 0x003F003Fu : 0x01FF01FFu)) +
                       both_lanes(FIELD_ABOVE<kind>) - 0x00020002u;
            continue;
        }
        const uint32_t small = two[0] < two[1] ? two[0] : two[1], large = two[0] < two[1] ? two[1] : two[0];
        least = least < small ? least : small, largest = largest > large ? largest : large;
        bytes[j] = ((two[0] + rule.carry) >> 23 | (two[1] + rule.carry) >> 23 << 16) - 0x00020002u;
    }
    if (kind == FLOAT32) return least >= first && largest <= last;
    return min_lanes(least, both_lanes(first)) == both_lanes(first) && max_lanes(largest, both_lanes(last)) == both_lanes(last);
}

// Scale of two lanes of blocks with such bytes.
template <bool half>
REFNUM_HD LaneScale ordinary_scale(uint32_t bytes) {
    const uint32_t base = half ? (bytes - both_lanes(120)) << 10 : (bytes - both_lanes(8)) << 7;
    return {base, both_lanes(half_power(-7)), 0x00070007u};
}

// Largest magnitudes of eight columns of some loaded rows, float32 bits; of 16-bit floats patterns of two columns in the
// lanes of every second word, doubled: that drops the upper sign, and the lower one becomes a last bit that decides nothing. `two`
// keeps it a product, which costs the integer units nothing.
template <int kind, int rows, int words>
REFNUM_HD void largest_of_columns(const uint32_t (&in)[rows][words], uint32_t two, uint32_t* most) {
    static_assert(rows % 2 == 0, "rows are taken in pairs");
    REFNUM_UNROLL
    for (int i = 0; i < rows; i += 2) {
        REFNUM_UNROLL
        for (int j = 0; j < 4; ++j) {
            if (kind != FLOAT32) {
                most[2 * j] = max3_lanes(most[2 * j], in[i][j] * two, in[i + 1][j] * two);
                continue;
            }
            REFNUM_UNROLL
            for (int n = 0; n < 4; ++n) {
                const uint32_t one = in[i + n / 2][2 * j + n % 2] & FLOAT_MAGNITUDE;
                most[2 * j + n % 2] = most[2 * j + n % 2] > one ? most[2 * j + n % 2] : one;
            }
        }
    }
}
// Not doubled.
template <int kind>
REFNUM_HD void halve_columns(uint32_t* most) {
    REFNUM_UNROLL
    for (int j = 0; j < 8 && kind != FLOAT32; j += 2) most[j] = most[j] >> 1 & LANE_MAGNITUDES;
}

// Bytes and scales of eight columns with any maxima. Returns a mask of the codes that are kept: not those of NaN blocks.
template <int kind, bool half>
REFNUM_HD uint32_t special_columns(const uint32_t* most, const TetrajetScale& rule, uint32_t* bytes, LaneScale* scale) {
    uint32_t kept = 0;
    REFNUM_UNROLL
    for (int j = 0; j < 4; ++j) {
        uint32_t low, high;
        two_maxima<kind>(most, j, low, high);
        const uint32_t one = tetrajet_byte(low, rule), two = tetrajet_byte(high, rule);
        bytes[j] = one | two << 16;
        scale[j] = lane_scale<half>(one, two);
        kept |= (one == NAN_BYTE ? 0 : 0x0Fu << (8 * j)) | (two == NAN_BYTE ? 0 : 0xF0u << (8 * j));
    }
    return kept;
}

}  // namespace refnum
