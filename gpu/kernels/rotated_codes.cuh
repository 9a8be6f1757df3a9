// Codes of NVFP4 from the sums of a rotated tile, as they lie in the threads (clauses N21 and N22.6). Device only.
//
// The sums are rotated numbers times 2**-63, and a factor is taken times 2**-63 too: a product has the size in which E2M1's 1
// is float32's smallest normal number, and so its code in three bits, after half of a code was added. That is a tie away
// from zero. Where E2M1's tie to even goes the other way a factor is moved by some units: a product of a bfloat16
// decides nothing unless it lies next to a tie, which at most one bfloat16 of four does (a product and its double have
// ties alike), and the factor is moved to the side that all of these want. A factor that has two wishes is rare, but of
// powers of two; it leads its tensor to the other way.
#pragma once

#include "rotation_memory.cuh"

namespace refnum {

constexpr uint32_t SMALL = 0x20000000, LARGE = 0x5F000000;                       // 2**-63, 2**63
constexpr uint32_t LEAST_FACTOR = 0x21800000, LARGEST_FACTOR = 0x5D800000;       // 2**-60, 2**60
constexpr uint32_t NO_FACTOR = FLOAT_LARGEST, SMALL_SEVEN = 0x01E00000;          // 7 * 2**-126
constexpr uint32_t BESIDE_TIE = 48, MOVED = 16;                                  // units in the last place

// The factor times a power of two, moved; `plain` becomes false where it has two wishes.
__device__ __forceinline__ uint32_t small_factor(uint32_t factor, uint32_t unit, bool& plain) {
    if (factor < LEAST_FACTOR || factor > LARGEST_FACTOR) return NO_FACTOR;
    bool up = false, down = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // 1 of 0.25, 3 of 0.75, 5 of 1.25, 2.5 and 5, 7 of 1.75 and 3.5
        const uint32_t tie = i == 0 ? 0x3F800000 : i == 1 ? 0x40400000 : i == 2 ? 0x40A00000 : 0x40E00000;
        const uint32_t x = round_to_bfloat16(divide_floats(tie, factor)) << 16, product = multiply_floats(x, factor);
        if (product - tie + BESIDE_TIE > 2 * BESIDE_TIE) continue;
        const bool wish = i % 2 ? product >= tie : product > tie;
        up |= wish, down |= !wish;
    }
    if (up && down) plain = false;
    return multiply_floats(up ? factor + MOVED : down ? factor - MOVED : factor, unit);
}

// What a thread needs: the table of small factors in shared memory, selectors of the words and of the half that have its
// group's maximum, and a factor whose multiplications stay what they are.
struct CodeThread {
    uint32_t factors, own, other, half, sixty_four;
};
__device__ __forceinline__ CodeThread code_thread(const uint32_t* factors) {
    const bool upper = threadIdx.x & 2, odd = threadIdx.x & 1;
    return {settled((uint32_t)__cvta_generic_to_shared(factors)), settled(upper ? 0x7654 : 0x3210), settled(upper ? 0x3210 : 0x7654),
            settled(odd ? 0x3244 : 0x1044), kept(64)};
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

// The maximum of the group 8 * (lane % 4) + lane / 4, times 2**-63.
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

// A sum times a factor: its sign and code in the upper four bits of a word, but for the half of a code.
__device__ __forceinline__ uint32_t code_above(uint32_t sum, uint32_t factor, uint32_t sixty_four) {
    const uint32_t x = bfloat16_pair(0, sum);
    return multiply_magnitude(x, factor) * sixty_four + multiply_floats(x, 0);
}

// The codes of a thread's four numbers of the groups 8n + lane / 4 and 8n + 8 + lane / 4.
__device__ __forceinline__ uint32_t codes_of_two(const TileSums& sums, int n, const uint32_t* factors, uint32_t sixty_four) {
    uint32_t even[2], odd[2];
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        uint32_t codes[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) codes[j] = code_above(sums[n / 2][j / 2][2 * g + j % 2], factors[g], sixty_four);
        even[g] = permute(codes[0], codes[2], 0x0073), odd[g] = permute(codes[1], codes[3], 0x0073);
    }
    const uint32_t low = permute(even[0], even[1], 0x5410) + 0x08080808, high = permute(odd[0], odd[1], 0x5410) + 0x08080808;
    return choose(low >> 4, high, 0x0F0F0F0Fu);
}

}  // namespace refnum
