// Where the blocks of TetraJet lie, and how they are quantised: along rows by chunks of memory.cuh, down columns by warps
// (clause N24). Device only.
//
// Down columns a warp has 32 rows of 64 columns, or of 32 where an input is float32. A thread has eight neighbouring
// columns of some of these rows, the other rows of a block being in the lanes that are whole rows of threads further on.
#pragma once

#include "philox.cuh"
#include "shares.cuh"
#include "tetrajet.cuh"

// CTAs of a multiprocessor that the compiler keeps registers for, where blocks lie down columns.
#ifndef CTAS
#define CTAS 1
#endif

namespace refnum {

enum TetrajetMode : int { TO_EVEN = 0, AWAY = 1, DRAWN = 2, KEYED = 3, AVERAGED = 4 };

// The one parameter of these kernels (gpu/ops/tetrajet.py has its mirror).
struct TetrajetArguments {
    Arguments rows;  // of blocks along rows; of blocks down columns x, x_stride, aligned, chunks (warps) and the outputs
    const uint8_t* other;  // random bytes or averages
    offset_t other_stride;
    uint64_t first_block;  // of the stream: where element 0 of the input has its bytes
    PhiloxKey key;
    uint32_t other_aligned;
    int32_t rule;  // `TetrajetRule`
    uint32_t m, k;
    uint32_t across;           // warps that cover a row
    uint64_t across_inverse;   // 2**64 / across + 1, 0 for one
};

template <int kind>
constexpr int ITEM = kind == FLOAT32 ? 4 : 2;

// How the words of lanes of a block are rounded, but for random bytes.
template <int mode, bool half>
__device__ __forceinline__ uint32_t rounded_lanes(uint32_t word, uint32_t average, const LaneScale& scale) {
    if (mode == AVERAGED) return averaged_lanes(word, average, scale);
    return nearest_lanes<mode == AWAY>(lanes_under<half>(word, scale));
}

// Blocks along rows: a chunk as in memory.cuh. `other`: kind of the averages.
template <int kind, int mode, int other, bool flat>
__device__ __forceinline__ void tetrajet_rows(const TetrajetArguments& s) {
    using Share = FloatShare<kind>;
    constexpr int part = Share::part, words = Share::words, bytes = Share::bytes;
    constexpr bool random = mode == DRAWN || mode == KEYED, half = HALF_LANES<kind, mode == AVERAGED>;
    constexpr int more = random ? part : mode == AVERAGED ? part * ITEM<other> : 4;  // bytes of the other input
    const Arguments& a = s.rows;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t in[UNROLL][bytes / 4] = {}, beside[UNROLL][more / 4] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (!chunks[u].exists) continue;
        load<bytes>(a.x + chunks[u].input(a, bytes), flat || a.aligned, in[u]);
        if (mode != DRAWN && mode != AVERAGED) continue;
        const offset_t at = flat ? (offset_t)(chunks[u].number * more)
                                 : chunks[u].row * s.other_stride + (offset_t)chunks[u].column * more;
        load<more>(s.other + at, flat || s.other_aligned, beside[u]);
    }
    const TetrajetScale rule = tetrajet_scale(s.rule);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t w[words], lanes[words], packed[words / 4];
        uint32_t most = largest_of_block<kind, words>(in[u]);
#pragma unroll
        for (int d = 1; d < Share::lanes; d *= 2) {
            const uint32_t found = __shfl_xor_sync(~0u, most, d);
            most = most > found ? most : found;
        }
        const uint32_t byte = tetrajet_byte(most, rule);
        lanes_of<kind, mode == AVERAGED, words>(in[u], w);
        if (random) {
            if (mode == KEYED) {
                const uint64_t block = s.first_block + chunks[u].place(a) * (part / PHILOX_BYTES);
#pragma unroll
                for (int i = 0; i < part / (int)PHILOX_BYTES; ++i) philox_block(block + i, s.key, beside[u] + 4 * i);
            }
            drawn_words<kind, words>(in[u], byte, beside[u], lanes);
        } else {
            uint32_t averages[words] = {};
            if (mode == AVERAGED) lanes_of<other, true, words>(beside[u], averages);
            const LaneScale scale = lane_scale<half>(byte);
#pragma unroll
            for (int i = 0; i < words; ++i) lanes[i] = rounded_lanes<mode, half>(w[i], averages[i], scale);
        }
        if (!chunks[u].exists) continue;
#pragma unroll
        for (int i = 0; i < words / 4; ++i) packed[i] = byte == NAN_BYTE ? 0 : e2m1_pack_lanes(lanes + 4 * i, w + 4 * i);
        store<part / 2>(a.out + chunks[u].place(a) * (part / 2), packed);
        if (chunks[u].leads(Share::lanes)) chunks[u].store_scale(a, Share::lanes, byte);
    }
}

constexpr int WIDE = 8, WIDE_WORDS = WIDE / 2;  // columns of a thread

// Two lanes of 16-bit floats: their magnitudes times powers of two, their product, and a product and a sum, rounded once.
// Before sm_90 a product of bfloat16 is a sum with -0.
#if __CUDA_ARCH__ >= 900
#define TIMES_BFLOAT16(a, b) "mul.rn.bf16x2 %0, " a ", " b ";"
#else
#define TIMES_BFLOAT16(a, b) "{\n\t.reg .b32 z;\n\tmov.b32 z, 0x80008000;\n\tfma.rn.bf16x2 %0, " a ", " b ", z;\n\t}"
#endif
template <int kind>
__device__ __forceinline__ uint32_t multiply_sizes(uint32_t a, uint32_t b) {
    uint32_t out;
    if (kind == BFLOAT16) asm("{\n\t.reg .b32 a;\n\tabs.bf16x2 a, %1;\n\t" TIMES_BFLOAT16("a", "%2") "\n\t}" : "=r"(out) : "r"(a), "r"(b));
    else asm("{\n\t.reg .b32 a;\n\tabs.f16x2 a, %1;\n\tmul.rn.f16x2 %0, a, %2;\n\t}" : "=r"(out) : "r"(a), "r"(b));
    return out;
}
__device__ __forceinline__ uint32_t multiply_bfloat16(uint32_t a, uint32_t b) {
    uint32_t out;
    asm(TIMES_BFLOAT16("%1", "%2") : "=r"(out) : "r"(a), "r"(b));
    return out;
}
template <int kind>
__device__ __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t out;
    if (kind == BFLOAT16) asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    else asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}

// Codes to nearest even of two lanes under a scale, of values up to 7, above `COUNTED`: a sum with it is rounded to whole
// numbers. E2M1's code is concave in the value, so it is the least of what is counted in halves, ones and twos.
template <int kind>
constexpr uint32_t COUNTED = kind == BFLOAT16 ? 0x43404340 : 0x66006600;  // 192, 1536
template <int kind>
__device__ __forceinline__ uint32_t counted_lanes(uint32_t word, uint32_t inverse) {
    constexpr uint32_t one = kind == BFLOAT16 ? 0x3F803F80 : 0x3C003C00, step = 0x10001u << FIELD_AT<kind>;
    const uint32_t value = multiply_sizes<kind>(word, inverse), halves = multiply_add<kind>(value, one + step, COUNTED<kind>);
    const uint32_t ones = multiply_add<kind>(value, one, COUNTED<kind> + 0x00020002u);
    return __vimin3_u16x2(halves, ones, multiply_add<kind>(value, one - step, COUNTED<kind> + 0x00040004u));
}

// PRMT with replicated signs: a byte for each of four lanes.
__device__ __forceinline__ uint32_t signs_of_lanes(uint32_t low, uint32_t high) {
    uint32_t out;
    asm("prmt.b32 %0, %1, %2, 0xFDB9;" : "=r"(out) : "r"(low), "r"(high));
    return out;
}
// Eight codes from four words of such lanes, under the signs of w: products bring two codes to a byte.
template <int kind>
__device__ __forceinline__ uint32_t pack_counted(const uint32_t* r, const uint32_t* w) {
    constexpr uint32_t low = 0x10010, high = 0x1001000, none = 0u - COUNTED<kind> * (low + high);
    const uint32_t first = r[1] * high + (r[0] * low + none), second = r[3] * high + (r[2] * low + none);
    const uint32_t a = signs_of_lanes(w[0], w[1]), b = signs_of_lanes(w[2], w[3]);
    const uint32_t codes = permute(first, second, 0x7632) | (permute(a, b, 0x6420) & 0x08080808u);
    return codes | (permute(a, b, 0x7531) & 0x80808080u);
}
// The same of lanes with their signs on top and codes in bits 9 to 11, below 8.
__device__ __forceinline__ uint32_t pack_signed(const uint32_t* r) {
    const uint32_t a = permute(r[0], r[1], 0x7531), b = permute(r[2], r[3], 0x7531);
    const uint32_t first = choose(a, a << 3, BYTE_SIGNS), second = choose(b, b << 3, BYTE_SIGNS);
    return choose(permute(first, second, 0x6420) >> 4, permute(first, second, 0x7531), 0x0F0F0F0Fu);
}

// F2FP.RZ: two float32 as binary16 cut off toward zero, with their signs.
__device__ __forceinline__ uint32_t cut_halves(uint32_t low, uint32_t high) {
    uint32_t out;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
    return out;
}
// Two lanes times powers, the exponent fields of float32 or of bfloat16 in lanes: binary16 in which E2M1's 1 is the smallest
// normal, with their signs.
template <int kind>
__device__ __forceinline__ uint32_t cut_lanes(uint32_t word, uint32_t fields) {
    uint32_t low, high;
    if (kind == BFLOAT16) {
        two_floats<BFLOAT16>(&(word = multiply_bfloat16(word, fields << 7)), low, high);
        return cut_halves(low, high);
    }
    two_floats<kind>(&word, low, high);
    return cut_halves(multiply_floats(low, fields << 23), multiply_floats(high, (fields & 0xFFFF0000u) << 7));
}

// Eight columns of a thread's rows of 16-bit floats with ordinary maxima: `put(i, codes of a row)`. `above`: whether they may
// exceed 6 under their scales.
template <int kind, int mode, int rows, class Put>
__device__ __forceinline__ void ordinary_down(uint32_t (&in)[rows][WIDE_WORDS], const uint32_t (&draws)[rows][mode == TO_EVEN ? 1 : 2],
                                              const uint32_t (&bytes)[WIDE_WORDS], const uint32_t* most, bool above,
                                              const Put& put) {
    constexpr int at = FIELD_AT<kind>;
    constexpr uint32_t bias = kind == FLOAT16 ? 15 : 127;
    if (above) {
        uint32_t six[WIDE_WORDS], exceeds = 0;
#pragma unroll
        for (int j = 0; j < WIDE_WORDS; ++j) {
            six[j] = (bytes[j] + both_lanes(2 - FIELD_ABOVE<kind>)) << at | 0x10001u << (at - 1);
            exceeds |= max_lanes(most[2 * j], six[j]) ^ six[j];
        }
#pragma unroll
        for (int i = 0; i < rows && exceeds; ++i) {
#pragma unroll
            for (int j = 0; j < WIDE_WORDS; ++j) in[i][j] = choose(in[i][j], min_lanes(in[i][j] & LANE_MAGNITUDES, six[j]), BOTH_SIGNS);
        }
    }
    uint32_t scale[WIDE_WORDS];
#pragma unroll
    for (int j = 0; j < WIDE_WORDS; ++j) {
        scale[j] = mode == TO_EVEN ? (both_lanes(bias + 127) - bytes[j]) << at : both_lanes(240) - bytes[j];
    }
#pragma unroll
    for (int i = 0; i < rows; ++i) {
        uint32_t lanes[WIDE_WORDS];
#pragma unroll
        for (int j = 0; j < WIDE_WORDS; ++j) {
            if (mode == TO_EVEN) lanes[j] = counted_lanes<kind>(in[i][j], scale[j]);
            else lanes[j] = cut_lanes<kind>(in[i][j], scale[j]) + (permute(draws[i][j / 2], 0, j & 1 ? 0x4342 : 0x4140) << 1);
        }
        put(i, mode == TO_EVEN ? pack_counted<kind>(lanes, in[i]) : pack_signed(lanes));
    }
}

// Eight columns of the rows of a thread: `put(i, codes of a row)`. `kept`: mask of a word.
template <int kind, int mode, int other, int rows, int words, int more, class Put>
__device__ __forceinline__ void any_down(const uint32_t (&in)[rows][words], const uint32_t (&beside)[rows][more],
                                         const LaneScale (&scale)[WIDE_WORDS], const uint32_t (&bytes)[WIDE_WORDS],
                                         uint32_t kept, const Put& put) {
    constexpr bool random = mode == DRAWN || mode == KEYED, half = HALF_LANES<kind, mode == AVERAGED>;
    uint32_t power[WIDE];
#pragma unroll
    for (int c = 0; c < WIDE && random; ++c) power[c] = drawn_power(bytes[c / 2] >> (16 * (c % 2)) & 0xFFFF);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
        uint32_t w[WIDE_WORDS], lanes[WIDE_WORDS], averages[WIDE_WORDS] = {};
        lanes_of<kind, mode == AVERAGED, WIDE_WORDS>(in[i], w);
        if (mode == AVERAGED) lanes_of<other, true, WIDE_WORDS>(beside[i], averages);
#pragma unroll
        for (int j = 0; j < WIDE_WORDS; ++j) {
            if (random) {
                uint32_t low, high;
                two_floats<kind>(in[i] + PAIR_WORDS<kind> * j, low, high);
                const uint32_t draws = permute(beside[i][j / 2], 0, j & 1 ? 0x4342 : 0x4140);
                lanes[j] = drawn_lanes(low, high, power[2 * j], power[2 * j + 1], draws);
            } else {
                lanes[j] = rounded_lanes<mode, half>(w[j], averages[j], scale[j]);
            }
        }
        put(i, e2m1_pack_lanes(lanes, w) & kept);
    }
}

// A warp's blocks down columns. `aligned`: whether the inputs can be read by vectors; `whole`: whether all their rows exist.
template <int kind, int mode, int other, bool aligned, bool whole>
__device__ __forceinline__ void tetrajet_blocks(const TetrajetArguments& s, uint64_t above, uint32_t column) {
    constexpr bool random = mode == DRAWN || mode == KEYED, half = HALF_LANES<kind, mode == AVERAGED>;
    constexpr int across = kind == FLOAT32 || (mode == AVERAGED && other == FLOAT32) ? 4 : 8;  // threads across a warp
    constexpr int rows = across, apart = 32 / across;  // of a thread
    constexpr int bytes = WIDE * ITEM<kind>, more = random ? WIDE : mode == AVERAGED ? WIDE * ITEM<other> : 4;
    const Arguments& a = s.rows;
    const uint32_t lane = threadIdx.x % 32, odd = mode == KEYED ? lane & 1 : 0;
    const uint32_t top = (uint32_t)above * 32 + lane / across;
    const bool exists = column < s.k && top < s.m;
    const uint32_t left = exists ? s.m - top : 0;  // rows from this thread's first one on
    const uint32_t from = whole && !exists ? s.k - WIDE : column;
    // Row i of this thread is its (i ^ odd)th.
    uint32_t in[rows][bytes / 4], beside[rows][more / 4];
    const offset_t step = apart * a.x_stride, other_step = apart * s.other_stride;
    const uint8_t* x = a.x + (offset_t)top * a.x_stride + (offset_t)from * ITEM<kind>;
    const uint8_t* other_x = s.other + (offset_t)top * s.other_stride + (offset_t)from * (more / WIDE);
    const uint8_t *x_of[2] = {x + odd * step, x + (odd ^ 1) * step};
#pragma unroll
    for (int i = 0; i < rows; ++i) {
        const bool here = whole || (i ^ odd) * apart < left;
        if (!whole) {
#pragma unroll
            for (int j = 0; j < bytes / 4; ++j) in[i][j] = 0;
        }
        if (here) load<bytes>(x_of[i % 2], aligned, in[i]);
        x_of[i % 2] += 2 * step;
        if (mode != DRAWN && mode != AVERAGED) continue;
        if (!whole) {
#pragma unroll
            for (int j = 0; j < more / 4; ++j) beside[i][j] = 0;
        }
        if (here) load<more>(other_x, aligned, beside[i]);
        other_x += other_step;
    }
    if (mode == KEYED) {  // two neighbours share a block of the stream: each makes those of half of the rows, its even ones
        const uint64_t first = s.first_block + ((uint64_t)top * s.k + from) / PHILOX_BYTES;
#pragma unroll
        for (int i = 0; i < rows; i += 2) {
            uint32_t made[4];
            philox_block(first + (uint64_t)(i + odd) * (apart * (uint64_t)(s.k / PHILOX_BYTES)), s.key, made);
#pragma unroll
            for (int j = 0; j < 2; ++j) {  // by a mask: for a condition, nvcc would make the words of either thread apart
                beside[i][j] = choose(made[2 + j], made[j], 0 - odd);
                beside[i + 1][j] = __shfl_xor_sync(~0u, choose(made[j], made[2 + j], 0 - odd), 1);
            }
        }
    }
    uint32_t most[WIDE] = {}, bytes_of[WIDE_WORDS];
    largest_of_columns<kind, rows>(in, blockDim.x / (THREADS / 2), most);  // 2, which the compiler does not know
#pragma unroll
    for (int d = across; d < 32; d *= 2) {
#pragma unroll
        for (int c = 0; c < WIDE; c += kind == FLOAT32 ? 1 : 2) {
            const uint32_t found = __shfl_xor_sync(~0u, most[c], d);
            most[c] = kind != FLOAT32 ? max_lanes(most[c], found) : most[c] > found ? most[c] : found;
        }
    }
    halve_columns<kind>(most);
    const TetrajetScale rule = tetrajet_scale(s.rule);
    uint8_t* out = a.out + ((uint64_t)top * s.k + column) / 2;
    const uint64_t out_step = apart * (uint64_t)(s.k / 2);
    uint8_t* out_of[2] = {out + odd * out_step, out + (odd ^ 1) * out_step};
    const auto put = [&](int i, uint32_t packed) {
        if (whole ? exists : (i ^ odd) * apart < left) store<4>(out_of[i % 2], &packed);
        out_of[i % 2] += 2 * out_step;
    };
    LaneScale scale[WIDE_WORDS];
    uint32_t kept = ~0u;
    constexpr bool ways = kind != FLOAT32 && (mode == TO_EVEN || random);
    if (ordinary_columns<kind, half>(most, rule, bytes_of)) {
        if constexpr (ways) {
            ordinary_down<kind, mode, rows>(in, beside, bytes_of, most, s.rule == MICROSCALING || (random && half), put);
        } else {
#pragma unroll
            for (int j = 0; j < WIDE_WORDS; ++j) scale[j] = ordinary_scale<half>(bytes_of[j]);
        }
    } else {
        kept = special_columns<kind, half>(most, rule, bytes_of, scale);
        if (ways) any_down<kind, mode, other, rows>(in, beside, scale, bytes_of, kept, put);
    }
    if (!ways) any_down<kind, mode, other, rows>(in, beside, scale, bytes_of, kept, put);
    if (column < s.k && lane < across) {
        const uint32_t stored[2] = {permute(bytes_of[0], bytes_of[1], 0x6420), permute(bytes_of[2], bytes_of[3], 0x6420)};
        store<8>(a.out_scales + above * s.k + column, stored);
    }
}

// Blocks down columns.
template <int kind, int mode, int other, bool aligned>
__device__ __forceinline__ void tetrajet_down(const TetrajetArguments& s) {
    constexpr int across = kind == FLOAT32 || (mode == AVERAGED && other == FLOAT32) ? 4 : 8;
    const uint64_t warp = (uint64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (warp >= (uint64_t)s.rows.chunks) return;
    uint64_t above = s.across == 1 ? warp : __umul64hi(warp, s.across_inverse);
    if (above * s.across > warp) --above;  // the product is at most one too large
    const uint32_t column = (uint32_t)(warp - above * s.across) * (WIDE * across) + threadIdx.x % across * WIDE;
    if (aligned && s.m % 32 == 0) tetrajet_blocks<kind, mode, other, aligned, aligned>(s, above, column);
    else tetrajet_blocks<kind, mode, other, aligned, false>(s, above, column);
}

}  // namespace refnum

// The kernels of a kind of input and of what is beside it, along rows and down columns, where lines are contiguous and not.
#define TETRAJET_KERNEL(name, way, kind, mode, other, how, ...)                                                       \
    extern "C" __global__ __launch_bounds__(THREADS, ##__VA_ARGS__) void name(const __grid_constant__ refnum::TetrajetArguments s) { \
        refnum::way<refnum::kind, refnum::mode, refnum::other, how>(s);                                               \
    }
#define TETRAJET_ROWS(name, mode, kind, other)                           \
    TETRAJET_KERNEL(name##_flat, tetrajet_rows, kind, mode, other, true) \
    TETRAJET_KERNEL(name, tetrajet_rows, kind, mode, other, false)
#define TETRAJET_DOWN(name, mode, kind, other)                              \
    TETRAJET_KERNEL(name##_aligned, tetrajet_down, kind, mode, other, true, CTAS) \
    TETRAJET_KERNEL(name, tetrajet_down, kind, mode, other, false, CTAS)
