// Where the blocks of TetraJet lie, and how they are quantised: along rows by chunks of memory.cuh, down columns by warps
// (clause N24). Device only.
//
// Down columns a warp has 32 rows of 64 columns, or of 32 where an input is float32. A thread has eight neighbouring
// columns of some of these rows, the other rows of a block being in the lanes that are whole rows of threads further on.
#pragma once

#include "philox.cuh"
#include "shares.cuh"
#include "tetrajet.cuh"

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
    return nearest_lanes<mode == AWAY>(lanes_under<half, false>(word, scale));
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

// Eight columns of the rows of a thread, of which so many are left: their codes, one word a row. `kept`: mask of a word.
template <int kind, int mode, int other, int rows, int words, int more>
__device__ __forceinline__ void store_down(const uint32_t (&in)[rows][words], const uint32_t (&beside)[rows][more],
                                           const LaneScale (&scale)[WIDE_WORDS], const uint32_t (&bytes)[WIDE_WORDS],
                                           uint32_t kept, uint32_t left, uint8_t* out, uint64_t step) {
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
        const uint32_t packed = e2m1_pack_lanes(lanes, w) & kept;
        if (i * (32 / rows) < left) store<4>(out, &packed);
        out += step;
    }
}

// Blocks down columns. `aligned`: whether the inputs can be read by vectors.
template <int kind, int mode, int other, bool aligned>
__device__ __forceinline__ void tetrajet_down(const TetrajetArguments& s) {
    constexpr bool random = mode == DRAWN || mode == KEYED, half = HALF_LANES<kind, mode == AVERAGED>;
    constexpr int across = kind == FLOAT32 || (mode == AVERAGED && other == FLOAT32) ? 4 : 8;  // threads across a warp
    constexpr int rows = across, apart = 32 / across;  // of a thread
    constexpr int bytes = WIDE * ITEM<kind>, more = random ? WIDE : mode == AVERAGED ? WIDE * ITEM<other> : 4;
    const Arguments& a = s.rows;
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t warp = (uint64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (warp >= (uint64_t)a.chunks) return;
    uint64_t above = s.across == 1 ? warp : __umul64hi(warp, s.across_inverse);
    if (above * s.across > warp) --above;  // the product is at most one too large
    const uint32_t column = (uint32_t)(warp - above * s.across) * (WIDE * across) + lane % across * WIDE;
    const uint32_t top = (uint32_t)above * 32 + lane / across;
    const uint32_t left = column < s.k && top < s.m ? s.m - top : 0;  // rows from this thread's first one on
    uint32_t in[rows][bytes / 4] = {}, beside[rows][more / 4] = {};
    const uint8_t* x = a.x + (offset_t)top * a.x_stride + (offset_t)column * ITEM<kind>;
    const uint8_t* other_x = s.other + (offset_t)top * s.other_stride + (offset_t)column * (more / WIDE);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
        if (i * apart < left) {
            load<bytes>(x, aligned, in[i]);
            if (mode == DRAWN || mode == AVERAGED) load<more>(other_x, aligned, beside[i]);
        }
        x += apart * a.x_stride;
        other_x += apart * s.other_stride;
    }
    if (mode == KEYED) {  // two neighbours share a block of the stream: each makes those of half of the rows
        const bool odd = lane & 1;
        const uint64_t first = s.first_block + ((uint64_t)top * s.k + column) / PHILOX_BYTES;
#pragma unroll
        for (int i = 0; i < rows; i += 2) {
            uint32_t made[4];
            philox_block(first + (uint64_t)(i + odd) * (apart * (uint64_t)(s.k / PHILOX_BYTES)), s.key, made);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const uint32_t own = odd ? made[2 + j] : made[j];
                const uint32_t given = __shfl_xor_sync(~0u, odd ? made[j] : made[2 + j], 1);
                beside[i][j] = odd ? given : own;
                beside[i + 1][j] = odd ? own : given;
            }
        }
    }
    uint32_t most[WIDE] = {}, bytes_of[WIDE_WORDS];
    largest_of_columns<kind, rows>(in, most);
#pragma unroll
    for (int d = across; d < 32; d *= 2) {
#pragma unroll
        for (int c = 0; c < WIDE; c += kind == FLOAT32 ? 1 : 2) {
            const uint32_t found = __shfl_xor_sync(~0u, most[c], d);
            most[c] = kind != FLOAT32 ? max_lanes(most[c], found) : most[c] > found ? most[c] : found;
        }
    }
    const TetrajetScale rule = tetrajet_scale(s.rule);
    uint8_t* out = a.out + ((uint64_t)top * s.k + column) / 2;
    const uint64_t step = apart * (uint64_t)(s.k / 2);
    LaneScale scale[WIDE_WORDS];
    uint32_t kept = ~0u;
    if (ordinary_columns<kind, half>(most, rule, bytes_of)) {
#pragma unroll
        for (int j = 0; j < WIDE_WORDS; ++j) scale[j] = ordinary_scale<half>(bytes_of[j]);
        // binary16 has more of them, and much is known to the compiler here: code of their own takes fewer registers
        if (half) store_down<kind, mode, other, rows>(in, beside, scale, bytes_of, kept, left, out, step);
    } else {
        kept = special_columns<kind, half>(most, rule, bytes_of, scale);
        if (half) store_down<kind, mode, other, rows>(in, beside, scale, bytes_of, kept, left, out, step);
    }
    if (!half) store_down<kind, mode, other, rows>(in, beside, scale, bytes_of, kept, left, out, step);
    if (column < s.k && lane < across) {
        const uint32_t stored[2] = {permute(bytes_of[0], bytes_of[1], 0x6420), permute(bytes_of[2], bytes_of[3], 0x6420)};
        store<8>(a.out_scales + above * s.k + column, stored);
    }
}

}  // namespace refnum

// The kernels of a kind of input and of what is beside it, along rows and down columns, where lines are contiguous and not.
#define TETRAJET_KERNEL(name, way, kind, mode, other, how)                                                            \
    extern "C" __global__ __launch_bounds__(THREADS) void name(const __grid_constant__ refnum::TetrajetArguments s) { \
        refnum::way<refnum::kind, refnum::mode, refnum::other, how>(s);                                               \
    }
#define TETRAJET_ROWS(name, mode, kind, other)                           \
    TETRAJET_KERNEL(name##_flat, tetrajet_rows, kind, mode, other, true) \
    TETRAJET_KERNEL(name, tetrajet_rows, kind, mode, other, false)
#define TETRAJET_DOWN(name, mode, kind, other)                              \
    TETRAJET_KERNEL(name##_aligned, tetrajet_down, kind, mode, other, true) \
    TETRAJET_KERNEL(name, tetrajet_down, kind, mode, other, false)
