// The clamp of OCC and what it cuts off, at numbers and pairs of them (clause N25.4).
//
// A key is an integer in the order of the numbers: -0 below +0, and NaN above all.
#pragma once

#include "dequantize_nvfp4.cuh"

namespace refnum {

enum OccAxis : int { TENSOR = 0, TOKEN = 1, CHANNEL = 2 };

template <int kind>
constexpr uint32_t OCC_SIGN = kind == FLOAT32 ? 0x80000000u : 0x8000u;
template <int kind>
constexpr uint32_t OCC_INF = kind == FLOAT32 ? FLOAT_INF : FLOAT_INF >> 16;
template <int kind>
constexpr uint32_t OCC_NAN = kind == FLOAT32 ? FLOAT_NAN : FLOAT_NAN >> 16;
template <int kind>
constexpr uint32_t OCC_MOST = kind == FLOAT32 ? 0xFFFFFFFFu : 0xFFFFu;

// The key of a number that is not NaN.
template <int kind>
REFNUM_HD uint32_t number_key(uint32_t bits) {
    return bits ^ (bits & OCC_SIGN<kind> ? OCC_MOST<kind> : OCC_SIGN<kind>);
}

template <int kind>
REFNUM_HD uint32_t key_of(uint32_t bits) {
    return (bits & ~OCC_SIGN<kind>) > OCC_INF<kind> ? OCC_MOST<kind> : number_key<kind>(bits);
}

template <int kind>
REFNUM_HD uint32_t bits_of_key(uint32_t key) {
    if (key == OCC_MOST<kind>) return OCC_NAN<kind>;
    return key ^ (key & OCC_SIGN<kind> ? OCC_SIGN<kind> : OCC_MOST<kind>);
}

// A number, or a word of two, after the clamp, and what was cut off.
struct Clamped {
    uint32_t clamped, residual;
};

// Any number between two keys.
template <int kind>
REFNUM_HD Clamped clamp_any(uint32_t bits, uint32_t low, uint32_t high) {
    const uint32_t key = key_of<kind>(bits), least = key > low ? key : low;
    const bool nan = key == OCC_MOST<kind> || high == OCC_MOST<kind>;
    const uint32_t clamped = bits_of_key<kind>(nan ? OCC_MOST<kind> : least < high ? least : high);
    const int up = kind == FLOAT32 ? 0 : 16;
    const uint32_t rest = canonical_float(add_floats(bits << up, clamped << up ^ FLOAT_SIGN));
    return {clamped, kind == FLOAT32 ? rest : round_to_bfloat16(rest)};
}

// Keys of two bfloat16 that are not NaN.
REFNUM_HD uint32_t pair_keys(uint32_t word) { return word ^ (lane_signs(word) | 0x80008000u); }

// Two finite bfloat16 between two keys each, none that of NaN.
REFNUM_HD Clamped clamp_pair(uint32_t word, uint32_t low, uint32_t high) {
    const uint32_t keys = min_lanes(max_lanes(pair_keys(word), low), high);
    const uint32_t clamped = keys ^ (~lane_signs(keys) | 0x80008000u);
    const uint32_t first = add_floats(word << 16, clamped << 16 ^ FLOAT_SIGN);
    const uint32_t second = add_floats(word & 0xFFFF0000u, (clamped & 0xFFFF0000u) ^ FLOAT_SIGN);
    return {clamped, bfloat16_pair(first, second)};
}

// A finite float32 between two keys, none that of NaN.
REFNUM_HD Clamped clamp_float(uint32_t bits, uint32_t low, uint32_t high) {
    const uint32_t key = number_key<FLOAT32>(bits), least = key > low ? key : low, inside = least < high ? least : high;
    const uint32_t clamped = inside ^ (inside & FLOAT_SIGN ? FLOAT_SIGN : ~0u);
    return {clamped, add_floats(bits, clamped ^ FLOAT_SIGN)};
}

// A loaded word, one float32 or two bfloat16, between a word of keys each.
template <int kind>
REFNUM_HD Clamped clamp_word(uint32_t word, uint32_t low, uint32_t high) {
    return kind == FLOAT32 ? clamp_float(word, low, high) : clamp_pair(word, low, high);
}

// Keys of a word of thresholds.
template <int kind>
REFNUM_HD uint32_t word_keys(uint32_t word) {
    return kind == FLOAT32 ? number_key<FLOAT32>(word) : pair_keys(word);
}

// A top bit is set for each number of a word that `clamp_word` cannot take, or whose upper key is that of NaN. It may be
// set for a zero and a subnormal as upper threshold too.
template <int kind>
REFNUM_HD uint32_t beyond_clamp(uint32_t word, uint32_t high) {
    constexpr uint32_t magnitudes = kind == FLOAT32 ? FLOAT_MAGNITUDE : LANE_MAGNITUDES;
    constexpr uint32_t infinite = kind == FLOAT32 ? 0x00800000u : 0x00800080u;
    return ((word & magnitudes) + infinite) | ((high & magnitudes) + infinite);
}

}  // namespace refnum
