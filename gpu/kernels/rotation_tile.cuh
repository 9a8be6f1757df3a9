// 32 groups of bfloat16 that a warp rotates on tensor cores (clause N22). Device only.
//
// A step of mma.sync (N19.2) keeps 25 places below the largest exponent of its products, adds them exactly and cuts the sum
// to 24 digits. Its one operand is a quarter of the matrix with signs. Where the exponents of a group span at most 12,
// nothing is cut. Where they span at most 18, only the last cut loses something, and that decides the bfloat16 only beside
// a number halfway between two. Where they span more, a sum is right to within 2**-17 of the largest number's power, and
// decides its bfloat16 if no number halfway lies so near. Of groups that this leaves, where they span at most 25, the upper
// 13 binades and the others are summed in a step each, and the sum of both is rounded once. What is left, each thread sums
// by itself.
//
// Groups lie in shared memory, 32 bytes each, one a thread; a step takes 16 of them, each spread over four threads.
#pragma once

#include "hadamard.cuh"

namespace refnum {

constexpr int TILE = 32, TILE_VECTORS = 2 * TILE;  // groups of a tile, and its uint4
constexpr int TOP = 250;                           // exponent field from which on sums may overflow
constexpr int BOTTOM = 64;                         // exponent field from which on the error of sums is a normal number
constexpr int NEAR = 12, FAR = 25;                 // spans of a step that cuts nothing, and of two
#if __CUDA_ARCH__ == 900
constexpr int CUT = 18;  // of a step that cuts its sum only
#else
constexpr int CUT = NEAR;  // not measured
#endif

constexpr uint32_t QUARTERS = 0x3E803E80;  // what the matrix holds beside signs, in both lanes

// A value that the compiler keeps in its register instead of computing it anew.
__device__ __forceinline__ uint32_t kept(uint32_t x) {
    uint32_t out;
    asm volatile("mov.b32 %0, %1;" : "=r"(out) : "r"(x));
    return out;
}

// The same where the machine's own compiler must not do so either: the threads of a warp together.
__device__ __forceinline__ uint32_t settled(uint32_t x) { return __shfl_xor_sync(~0u, x, 0); }
template <class T>
__device__ __forceinline__ T* settled(T* p) {
    const uint64_t at = reinterpret_cast<uint64_t>(p);
    return reinterpret_cast<T*>((uint64_t)settled((uint32_t)(at >> 32)) << 32 | settled((uint32_t)at));
}

// What a thread needs of its warp's tile: its parts of the matrix for the outputs 4q and 4q + 1, and 4q + 2 and 4q + 3;
// where its own group lies, the row that it names for a load of fragments, and its four outputs of the first row.
struct TileThread {
    uint32_t matrix[2][2], own, fragment, piece;
};

// The signs of the terms of sum j, a bit each.
__device__ __forceinline__ uint32_t signs_of_sum(uint32_t signs, uint32_t j) {
    return signs ^ (j & 1 ? 0xAAAA : 0) ^ (j & 2 ? 0xCCCC : 0) ^ (j & 4 ? 0xF0F0 : 0) ^ (j & 8 ? 0xFF00 : 0);
}

__device__ __forceinline__ uint32_t signs_of_pair(uint32_t minus, int i) {
    return kept((minus << (15 - i) & 0x8000) | (minus << (30 - i) & FLOAT_SIGN) | QUARTERS);
}
// `tile` is the address of the tile in shared memory. Vectors of neighbours lie so that eight rows fill all banks.
__device__ __forceinline__ TileThread tile_thread(uint32_t signs, const uint4* tile) {
    const uint32_t lane = threadIdx.x % 32, row = lane >> 2, quarter = lane & 3, output = row >> 1 << 2 | (row & 1);
    const uint32_t minus = signs_of_sum(signs, output);  // bit 1 of an output is that of the part
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(tile);
    TileThread thread;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t of = (i ? minus ^ 0xCCCC : minus) >> (2 * quarter);
        thread.matrix[i][0] = signs_of_pair(of, 0), thread.matrix[i][1] = signs_of_pair(of, 8);
    }
    thread.own = kept(base + 32 * lane + 16 * (lane >> 2 & 1));
    thread.fragment = kept(base + 32 * (lane & 15) + 16 * (lane >> 4 ^ (lane >> 2 & 1)));
    thread.piece = kept(base + 32 * row + 16 * (quarter >> 1 ^ row >> 2) + 8 * (quarter & 1));
    return thread;
}

// Shared memory by its addresses.
__device__ __forceinline__ void put_vector(uint32_t at, const uint32_t* w) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 : : "r"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}
__device__ __forceinline__ void get_vector(uint32_t at, uint32_t* w) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void put_pair(uint32_t at, uint32_t low, uint32_t high) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" : : "r"(at), "r"(low), "r"(high) : "memory");
}
__device__ __forceinline__ void get_pair(uint32_t at, uint32_t& low, uint32_t& high) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(at) : "memory");
}
__device__ __forceinline__ void get_fragments(uint32_t at, uint32_t* w) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
}

__device__ __forceinline__ void put_group(uint32_t own, const uint32_t* w) {
    put_vector(own, w);
    put_vector(own ^ 16, w + 4);
}
__device__ __forceinline__ void get_group(uint32_t own, uint32_t* w) {
    get_vector(own, w);
    get_vector(own ^ 16, w + 4);
}

// mma.m16n8k16 from +0: fragments of 16 rows -> this thread's two sums of two rows.
__device__ __forceinline__ void rotation_step(const uint32_t* w, const uint32_t* matrix, uint32_t* sums) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(matrix[0]), "r"(matrix[1]), "r"(0));
}

// The fragments of a tile's halves, and its sums: of each half and of each part of the matrix two of a row and two of the row
// eight further.
typedef uint32_t Fragments[2][4];
typedef uint32_t TileSums[2][2][4];
__device__ __forceinline__ void fragment_sums(const TileThread& thread, const Fragments& w, TileSums& sums) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) rotation_step(w[half], thread.matrix[i], sums[half][i]);
    }
}
__device__ __forceinline__ void tile_sums(const TileThread& thread, TileSums& sums) {
    Fragments w;
#pragma unroll
    for (int half = 0; half < 2; ++half) get_fragments(thread.fragment + 512 * half, w[half]);
    fragment_sums(thread, w, sums);
}
// Of the group 8n + lane / 4: the results 4 * (lane % 4) on.
__device__ __forceinline__ void rotated_piece(const TileSums& sums, int n, uint32_t* piece) {
#pragma unroll
    for (int i = 0; i < 2; ++i) piece[i] = bfloat16_pair(sums[n / 2][i][n % 2 * 2], sums[n / 2][i][n % 2 * 2 + 1]);
}
__device__ __forceinline__ void put_sums(const TileThread& thread, const TileSums& sums) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        uint32_t piece[2];
        rotated_piece(sums, n, piece);
        put_pair(thread.piece + 256 * n, piece[0], piece[1]);
    }
}

// a + b to odd: of the two float32 beside a sum that is none, the one whose last bit is set.
__device__ __forceinline__ uint32_t odd_sum(uint32_t a, uint32_t b) {
    uint32_t below, above;
    asm("add.rm.f32 %0, %1, %2;" : "=r"(below) : "r"(a), "r"(b));
    asm("add.rp.f32 %0, %1, %2;" : "=r"(above) : "r"(a), "r"(b));
    return below & 1 ? below : above;
}

// A tile with a group that takes more than one step: rare. The groups are in the tile, and their results replace them.
__device__ __noinline__ void rotate_wide_tile(TileThread thread, uint32_t signs, int order) {
    uint32_t w[GROUP / 2], part[GROUP / 2];
    TileSums upper, lower;
    get_group(thread.own, w);
    const GroupSpan span = group_span<BFLOAT16>(w);
    const int32_t binades = span.top - span.low;
    const bool alone = span.top >= TOP || binades > (order == ROTATION_EXACT ? FAR : NEAR);
    const uint32_t least = both_lanes((uint32_t)(binades > NEAR && !alone ? span.top - NEAR : 0) << 7);
#pragma unroll
    for (int i = 0; i < GROUP / 2; ++i) part[i] = w[i] & lane_signs((w[i] | 0x80008000u) - least);
    put_group(thread.own, part);
    __syncwarp();
    tile_sums(thread, upper);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < GROUP / 2; ++i) part[i] ^= w[i];
    put_group(thread.own, part);
    __syncwarp();
    tile_sums(thread, lower);
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        uint32_t& sum = upper[n / 8][n / 4 % 2][n % 4];
        sum = odd_sum(sum, lower[n / 8][n / 4 % 2][n % 4]);
    }
    __syncwarp();
    put_sums(thread, upper);
    __syncwarp();
    if (alone) {
        rotate_group<BFLOAT16, 8>(w, signs, order, part);
        put_group(thread.own, part);
    }
    __syncwarp();
}

// The thread's group, where those of a warp span at most 40 binades each: every sum in double, where no addition
// rounds, and rounded once. Few instructions many times: long code that runs nowhere else took a fifth of a kernel's time
// for one tile in 900.
constexpr int DOUBLES = 40;
__device__ __forceinline__ bool rotated_in_double(uint32_t signs, uint32_t* words) {
    const GroupSpan span = group_span<BFLOAT16>(words);
    if (!__all_sync(~0u, span.top < TOP && span.top - span.low <= DOUBLES)) return false;
    __align__(16) uint16_t found[GROUP];
#pragma unroll 1
    for (uint32_t j = 0; j < GROUP; ++j) {
        const uint32_t minus = signs_of_sum(signs, j);
        double sum = 0;
#pragma unroll
        for (int i = 0; i < GROUP; ++i) {
            const uint32_t bits = i % 2 ? words[i / 2] & 0xFFFF0000u : words[i / 2] << 16;
            sum += (double)__uint_as_float(bits ^ (minus << (31 - i) & FLOAT_SIGN));
        }
        found[j] = (uint16_t)quarter_of<8>(sum);
    }
#pragma unroll
    for (int i = 0; i < GROUP; i += 2) words[i / 2] = found[i] | (uint32_t)found[i + 1] << 16;
    return true;
}

// The largest number of a group, and the least one, zeros aside, less 1 in its last place: each in both lanes.
__device__ __forceinline__ void outer_lanes(const uint32_t* w, uint32_t& most, uint32_t& least) {
    most = w[0] & LANE_MAGNITUDES, least = least_lanes(most, ~0u);
#pragma unroll
    for (int i = 1; i < GROUP / 2; i += 2) {
        const uint32_t first = w[i] & LANE_MAGNITUDES, second = i + 1 < GROUP / 2 ? w[i + 1] & LANE_MAGNITUDES : first;
        most = max3_lanes(most, first, second);
        least = least_lanes(first, least);
        if (i + 1 < GROUP / 2) least = least_lanes(second, least);
    }
    most = max_lanes(most, permute(most, most, 0x1032));
    least = min_lanes(least, permute(least, least, 0x1032));
}

// Whether a group spans more than so many binades, or sums of it may overflow. Beside a power of two it may say so of one
// binade less.
__device__ __forceinline__ bool spans_more(uint32_t most, uint32_t least, uint32_t binades) {
    return most >= __viaddmin_u16x2(least & 0xFF80FF80u, both_lanes((binades + 1) << 7), both_lanes(TOP << 7));
}

// Whether one of the sums of some groups, a bit each, lies halfway between two bfloat16.
__device__ __forceinline__ bool is_halfway(const TileSums& sums, uint32_t groups) {
    uint32_t least = ~0u;
    groups >>= threadIdx.x % 32 / 4;
#pragma unroll
    for (int n = 0; n < 4; ++n) {  // rows eight apart
        const uint32_t (&of)[2][4] = sums[n / 2];
        const uint32_t others = (groups >> (8 * n) & 1) - 1;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t below = permute(of[i][n % 2 * 2], of[i][n % 2 * 2 + 1], 0x5410) ^ 0x80008000u;
            least = min_lanes(least, below | others);
        }
    }
    return (least & 0xFFFF) == 0 || least >> 16 == 0;
}

// Whether a sum of some groups, a bit each, may round to another bfloat16 than without the cuts of a step. `most`: the largest
// number of this thread's own group. An error is below 16 units of 2**-25 of its power, of the products, and a unit of the
// sum's last place, which is at most 64 of these; twice that and more is taken off and added here.
__device__ __forceinline__ bool is_near_halfway(const TileSums& sums, uint32_t groups, uint32_t most) {
    const uint32_t error = (most & 0x7F800000u) - (19u << 23);  // the numbers are four times as large as their shares of sums
    uint32_t differ = 0;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        const uint32_t row = 8 * n + threadIdx.x % 32 / 4, from = __shfl_sync(~0u, error, row);
        uint32_t here = 0;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            uint32_t below[2], above[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const uint32_t sum = sums[n / 2][i][n % 2 * 2 + j];
                below[j] = add_floats(sum, from ^ FLOAT_SIGN), above[j] = add_floats(sum, from);
            }
            here |= bfloat16_pair(below[0], below[1]) ^ bfloat16_pair(above[0], above[1]);
        }
        differ |= groups >> row & 1 ? here : 0;
    }
    return differ != 0;
}

// Whether the sums of a tile round to the rotated groups, of which `w` is this thread's own: 32 threads together.
__device__ __forceinline__ bool sums_decide(int order, const uint32_t* w, const TileSums& sums) {
    uint32_t most, least;
    outer_lanes(w, most, least);
    const uint32_t cut = __ballot_sync(~0u, spans_more(most, least, NEAR));
    if (!cut) return true;
    if (order != ROTATION_EXACT) return false;
    const bool far = spans_more(most, least, CUT);
    const uint32_t wide = __ballot_sync(~0u, far);
    bool open = is_halfway(sums, cut & ~wide);
    if (wide) {
        const bool ordinary = CUT != NEAR && most - (BOTTOM << 23) < (uint32_t)(TOP - BOTTOM) << 23;
        open |= is_near_halfway(sums, wide, most) | (far && !ordinary);
    }
    return !__any_sync(~0u, open);
}

// The groups of a tile rotated in it.
__device__ __forceinline__ void rotate_tile(const TileThread& thread, uint32_t signs, int order, const uint32_t* w) {
    TileSums sums;
    __syncwarp();
    tile_sums(thread, sums);
    __syncwarp();
    if (!sums_decide(order, w, sums)) {
        rotate_wide_tile(thread, signs, order);
        return;
    }
    put_sums(thread, sums);
    __syncwarp();
}

}  // namespace refnum
