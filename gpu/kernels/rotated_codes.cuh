// Codes of NVFP4 from the sums of a rotated tile, as they lie in the threads (clauses N21 and N22.6). Device only.
//
// A factor is taken times 2**-14: a product has the size in which E2M1's 1 is binary16's smallest normal number, and so
// its code in three bits of a lane, cut off toward zero, after half of a code was added. That rounds ties away from
// zero. Where a product of a bfloat16 may be a tie whose even code is the one below, the float32 below each product is
// coded too: the codes differ by one at a tie and nowhere else, and the even one of them is the result.
//
// Whether the sums of a tile are exact is asked of the tile together: where the numbers are multiples of 2**e, no sum
// was cut if all of them are below 2**(e + 24). Sums bound the numbers, since the largest magnitude of a rotated group
// times four is no smaller than that of the group, and a factor bounds the sums: seven over it. So a thread holds the
// least of its own 16 numbers against the least factor of the four groups that they are in; a tile that this does not
// prove is asked again group by group (rotation_tile.cuh). Down columns one step lies between: if all numbers are below
// 2**(e + 26), only the last cut of a sum lost something, and that decides beside a number halfway only.
#pragma once

#include "rotation_memory.cuh"

namespace refnum {

constexpr uint32_t LEAST_FACTOR = 0x21800000, LARGEST_FACTOR = 0x5D800000;  // 2**-60, 2**60
constexpr uint32_t NO_FACTOR = FLOAT_LARGEST;
constexpr uint32_t HALF_ONE = 0x38800000, HALF_SEVEN = 0x39E00000;  // 2**-14, and 7 of these
constexpr uint32_t LEAST_SHARE = 0x32640000;  // 14.25 * 2**-30: above 4 * 7 * (1 + 2**-8) * 2**-14 * 2**-17
constexpr uint32_t FLOAT_BELOW_ONE = 0x3F7FFFFF;  // a float32 times this is the one below it

// The factor times 2**-14; `ties` becomes true where a bfloat16 times it is 1, 5 or one of these times a power of two.
__device__ __forceinline__ uint32_t lane_factor(uint32_t factor, bool& ties) {
    if (factor < LEAST_FACTOR || factor > LARGEST_FACTOR) return NO_FACTOR;
#pragma unroll
    for (uint32_t tie = FLOAT_ONE; tie <= 0x40A00000; tie += 0x01200000) {  // of 0.25, and of 1.25, 2.5 and 5
        ties |= multiply_floats(round_to_bfloat16(divide_floats(tie, factor)) << 16, factor) == tie;
    }
    return multiply_floats(factor, HALF_ONE);
}

// What a thread needs: the table of these factors in shared memory, and selectors of the words and of the half that
// have its group's maximum.
struct CodeThread {
    uint32_t factors, own, other, half;
};
__device__ __forceinline__ CodeThread code_thread(const uint32_t* factors) {
    const bool upper = threadIdx.x & 2, odd = threadIdx.x & 1;
    return {settled((uint32_t)__cvta_generic_to_shared(factors)), settled(upper ? 0x7654 : 0x3210),
            settled(upper ? 0x3210 : 0x7654), settled(odd ? 0x3244 : 0x1044)};
}
__device__ __forceinline__ uint32_t get_word(uint32_t at) {
    uint32_t word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
    return word;
}

__device__ __forceinline__ uint32_t larger_of_two(uint32_t a, uint32_t b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;"
        : "=f"(larger) : "f"(fabsf(__uint_as_float(a))), "f"(fabsf(__uint_as_float(b))));
    return __float_as_uint(larger);
}

__device__ __forceinline__ uint32_t smaller_magnitudes(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("min.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

// The power of two at or below the least magnitude of a thread's numbers, float32 bits; of a subnormal one zero.
__device__ __forceinline__ uint32_t least_power(const Fragments& w) {
    uint32_t least[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) least[i] = smaller_magnitudes(w[0][i], w[1][i]);
    uint32_t one = smaller_magnitudes(smaller_magnitudes(least[0], least[1]), smaller_magnitudes(least[2], least[3]));
    one = smaller_magnitudes(one, permute(one, one, 0x1032));
    return one & FLOAT_INF;
}

__device__ __forceinline__ uint32_t smaller_of_two(uint32_t a, uint32_t b) {
    return __float_as_uint(fminf(__uint_as_float(a), __uint_as_float(b)));
}

// The maximum of the group 8 * (lane % 4) + lane / 4.
__device__ __forceinline__ uint32_t own_maximum(const CodeThread& thread, const TileSums& sums) {
    uint32_t most[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        const uint32_t (&of)[2][4] = sums[n / 2];
        const int i = n % 2 * 2;
        most[n] = larger_of_two(larger_of_two(of[0][i], of[0][i + 1]), larger_of_two(of[1][i], of[1][i + 1]));
    }
    const uint32_t first = bfloat16_pair(most[0], most[1]), second = bfloat16_pair(most[2], most[3]);
    const uint32_t given = __shfl_xor_sync(~0u, permute(first, second, thread.other), 2);
    uint32_t both = max_lanes(permute(first, second, thread.own), given);
    both = max_lanes(both, __shfl_xor_sync(~0u, both, 1));
    return permute(both, 0, thread.half);
}

// The largest magnitude of a thread's sums and of `most`; NaN if one is.
__device__ __forceinline__ uint32_t larger_of_sums(uint32_t most, const TileSums& sums) {
    uint32_t largest[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t(&of)[4] = sums[i / 2][i % 2];
        largest[i] = larger_of_two(larger_of_two(of[0], of[1]), larger_of_two(of[2], of[3]));
    }
    const uint32_t first = larger_of_two(largest[0], largest[1]), second = larger_of_two(largest[2], largest[3]);
    return larger_of_two(most, larger_of_two(first, second));
}

// Whether all sums of a tile are right by their sizes alone: 4.07 times the largest sum of four groups, which bounds
// their numbers, is at most 2**24 times the last place of the thread's least number (see above); in float32 a fourth.
constexpr uint32_t MOST_TIMES = 0x38024000;  // 1.0176 * 2**-15
constexpr uint32_t MOST_PROVED = 0x7B800000, LEAST_PROVED = 0x0D800000;  // 2**120, 2**-100
__device__ __forceinline__ bool sizes_decide(int order, const Fragments& w, const TileSums& sums) {
    uint32_t most = larger_of_sums(0, sums);
    most = larger_of_two(most, __shfl_xor_sync(~0u, most, 1));
    most = larger_of_two(most, __shfl_xor_sync(~0u, most, 2));
    const uint32_t least = least_power(w), share = multiply_floats(most, MOST_TIMES);
    const uint32_t bound = order == ROTATION_EXACT ? share : multiply_floats(share, FLOAT_FOUR);
    const bool right = __uint_as_float(bound) <= __uint_as_float(least) && most < MOST_PROVED && least >= LEAST_PROVED;
    return __all_sync(~0u, right);
}

// The sums as bfloat16: of the group 8n + lane / 4 two words, of two results each.
typedef uint32_t RoundedSums[4][2];
__device__ __forceinline__ void round_sums(const TileSums& sums, RoundedSums& rounded) {
#pragma unroll
    for (int n = 0; n < 4; ++n) rotated_piece(sums, n, rounded[n]);
}

// The larger magnitudes of two lanes of bfloat16, under a sign that says nothing; NaN if one is.
__device__ __forceinline__ uint32_t larger_magnitudes(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

__device__ __forceinline__ uint32_t own_maximum(const CodeThread& thread, const RoundedSums& rounded) {
    uint32_t pairs[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t low = larger_magnitudes(rounded[2 * i][0], rounded[2 * i][1]);
        const uint32_t high = larger_magnitudes(rounded[2 * i + 1][0], rounded[2 * i + 1][1]);
        pairs[i] = larger_magnitudes(permute(low, high, 0x5410), permute(low, high, 0x7632));
    }
    const uint32_t given = __shfl_xor_sync(~0u, permute(pairs[0], pairs[1], thread.other), 2);
    uint32_t both = larger_magnitudes(permute(pairs[0], pairs[1], thread.own), given);
    both = larger_magnitudes(both, __shfl_xor_sync(~0u, both, 1));
    return permute(both, 0, thread.half) & FLOAT_MAGNITUDE;
}

// Whether one of the sums lies halfway between two bfloat16.
__device__ __forceinline__ bool some_halfway(const TileSums& sums) {
    uint32_t least = 0;  // of the lower halves, as signed numbers
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        const uint32_t (&of)[4] = sums[n / 2][n % 2];
        least = __vimin3_s16x2(least, permute(of[0], of[1], 0x5410), permute(of[2], of[3], 0x5410));
    }
    return (least & 0xFFFF) == 0x8000 || least >> 16 == 0x8000;
}

// Two float32, lanes of binary16, cut off toward zero.
__device__ __forceinline__ uint32_t cut_halves(uint32_t low, uint32_t high) {
    uint32_t out;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
    return out;
}

// The result 2 * i + j of the thread's four of the group 8n + lane / 4, rounded to bfloat16, as a float32.
__device__ __forceinline__ uint32_t rounded_sum(const TileSums& sums, int n, int i, int j) {
    return bfloat16_pair(0, sums[n / 2][i][n % 2 * 2 + j]);
}
__device__ __forceinline__ uint32_t rounded_sum(const RoundedSums& rounded, int n, int i, int j) {
    return j ? rounded[n][i] & 0xFFFF0000u : rounded[n][i] << 16;
}

// The results j and 2 + j of the groups 8n + lane / 4 and 8n + 8 + lane / 4 over their scales, cut off toward zero, and
// the float32 below them: a group a word. A lane's upper byte has the sign above, E2M1's code in bits 1 to 3, half a
// code in bit 0.
template <class Sums>
__device__ __forceinline__ void quotients(const Sums& sums, int n, int j, const uint32_t* factors, uint32_t (&here)[2],
                                          uint32_t (&below)[2]) {
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        uint32_t two[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) two[i] = multiply_floats(rounded_sum(sums, n + g, i, j), factors[g]);
        here[g] = cut_halves(two[0], two[1]);
#pragma unroll
        for (int i = 0; i < 2; ++i) two[i] = multiply_floats(two[i], FLOAT_BELOW_ONE);
        below[g] = cut_halves(two[0], two[1]);
    }
}

// The codes of a thread's four numbers of the groups 8n + lane / 4 and 8n + 8 + lane / 4.
template <bool ties>
__device__ __forceinline__ uint32_t codes_of_two(const TileSums& sums, int n, const uint32_t* factors) {
    uint32_t codes[2];  // of the even numbers and of the odd ones: a byte each, sign above and code in bits 1 to 3
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        uint32_t here[2], below[2];
        quotients(sums, n, j, factors, here, below);
        codes[j] = permute(here[0], here[1], 0x7531) + 0x01010101;
        if (ties) codes[j] &= (permute(below[0], below[1], 0x7531) + 0x01010101) | 0xFDFDFDFD;
    }
    const uint32_t even = choose(codes[0] >> 1, codes[0] >> 4, 0x07070707);
    const uint32_t odd = choose(codes[1] << 3, codes[1], 0x70707070);
    return choose(even, odd, 0x0F0F0F0F);
}
template <bool ties>
__device__ __forceinline__ uint32_t codes_of_two(const RoundedSums& rounded, int n, const uint32_t* factors) {
    uint32_t codes[2];  // the same with codes in bits 4 to 6
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        uint32_t here[2], below[2];
        quotients(rounded, n, j, factors, here, below);
        const uint32_t cut = permute(here[0], here[1], 0x7531);
        uint32_t moved = cut * 8 + 0x08080808;
        if (ties) moved &= (permute(below[0], below[1], 0x7531) * 8 + 0x08080808) | 0xEFEFEFEF;
        codes[j] = choose(moved, cut, 0x70707070);
    }
    return choose(codes[0] >> 4, codes[1], 0x0F0F0F0F);
}

}  // namespace refnum
