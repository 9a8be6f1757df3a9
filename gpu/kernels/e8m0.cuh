// Block scales: the E8M0 byte of a block from its largest magnitude (clauses N3 and N4).
//
// A magnitude is a bit pattern with `bits` fraction bits under an exponent field, so a scale rule is one integer:
// the carry that is added before the fraction is cut off.
#pragma once

#include "words.cuh"

namespace refnum {

enum ScaleRule : int32_t { RCEIL = 0, FLOOR = 1, CEIL = 2, EVEN = 3 };

constexpr uint32_t NAN_BYTE = 255, MAX_BYTE = 254, ONE_BYTE = 127;
constexpr int32_t E2M1_EMAX = 2, E4M3_EMAX = 8;

// What a profile chooses; uniform over a launch.
struct Policy {
    int32_t rule;        // ScaleRule
    uint32_t satfinite;  // 1: an Inf gives byte 254 and saturates; 0: it makes a NaN block
    uint32_t zero_byte;  // byte of an MX block of zeros
};

// Carry of a rule for an element format with `mantissa` bits whose largest value is `headroom` units of
// 2**-mantissa below the next power of two: E2M1 (1, 1): 1.5; E4M3 (3, 2): 1.75.
REFNUM_HD uint32_t scale_carry(int32_t rule, int bits, int mantissa, uint32_t headroom) {
    if (rule == FLOOR) return 0;
    if (rule == CEIL) return (1u << bits) - 1;
    if (rule == EVEN) return 1u << (bits - 1 - mantissa);
    return (headroom << (bits - mantissa)) - 1;
}

REFNUM_HD uint32_t e2m1_carry(int32_t rule, int bits) { return scale_carry(rule, bits, 1, 1); }
REFNUM_HD uint32_t e4m3_carry(int32_t rule, int bits) { return scale_carry(rule, bits, 3, 2); }

// Whether a rule lets the largest element pass the format's maximum, so that elements need saturation.
REFNUM_HD bool e2m1_saturates(int32_t rule) { return rule == FLOOR; }
REFNUM_HD bool e4m3_saturates(int32_t rule) { return rule == FLOOR || rule == EVEN; }

REFNUM_HD int32_t clamp_byte(int32_t byte) { return byte < 0 ? 0 : byte > 254 ? 254 : byte; }

enum ByteRounding : int32_t { BYTE_UP = 0, BYTE_DOWN = 1, BYTE_NEAREST = 2 };

// Float32 bits of an E8M0 byte, exact; 255 is the quiet NaN.
REFNUM_HD uint32_t e8m0_decode(uint32_t byte) {
    return byte == NAN_BYTE ? 0x7FC00000 : byte ? byte << 23 : 0x400000;
}

}  // namespace refnum
