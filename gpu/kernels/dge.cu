// Floats of any shape -> the slope of DGE (clause N25). A chunk is 16 bytes of what is wider, the input or the output.
//
// bfloat16 has a table of its magnitudes from 2^-32 (2^-16 for a bfloat16 slope) to 6 in shared memory, and few CTAs,
// each of which computes it: smaller ones have the slope of 0, larger ones are beyond the grid. The places of the
// released code depend on the sign, so that it has a second table for negative numbers.
#include "dge.cuh"
#include "memory.cuh"

namespace refnum {

// gpu/ops/estimators.py has its mirror.
struct DgeArguments {
    const uint8_t* x;
    uint8_t* out;
    offset_t count;
    DgeRule rule;
    uint32_t aligned;  // whether chunks can be read by vector loads
};

template <int digits>
constexpr uint32_t SLOPE_BYTES = digits == 24 ? 4 : 2;

template <int digits>
__device__ __forceinline__ void put_slope(uint8_t* to, uint32_t slope) {
    if (digits == 24) *reinterpret_cast<uint32_t*>(to) = slope;
    else *reinterpret_cast<uint16_t*>(to) = (uint16_t)slope;
}

// Elements from `first` to `end`, `step` apart: what fills no chunk, and what is in doubt.
template <int kind, int digits, int compat>
__device__ __forceinline__ void slopes_one_by_one(const DgeArguments& a, offset_t first, offset_t end, uint32_t step) {
    constexpr uint32_t width = kind == FLOAT32 ? 4 : 2;
#pragma unroll 1
    for (offset_t i = first; i < end; i += step) {
        const uint32_t slope = dge_exact<digits, compat>(float_at<kind>(a.x + i * width, 0), a.rule);
        put_slope<digits>(a.out + i * SLOPE_BYTES<digits>, slope);
    }
}

template <int kind, int digits, int compat>
struct DgeChunk {
    static constexpr uint32_t width = kind == FLOAT32 ? 4 : 2, elements = width == 4 || digits == 24 ? 4 : 8;
    static constexpr int ahead = UNROLL * 8 / elements;  // chunks of a thread
    static constexpr uint32_t in_words = elements * width / 4, out_words = elements * SLOPE_BYTES<digits> / 4;
};

// A chunk of float32 or binary16; whether any of it is in doubt.
template <int kind, int digits, int compat, int fixed>
__device__ __forceinline__ bool slopes_of_chunk(const uint32_t* in, const DgeRule& rule, uint32_t* out) {
    using Chunk = DgeChunk<kind, digits, compat>;
    uint32_t bits[Chunk::elements];
    float_bits<kind, Chunk::elements / 2>(in, bits);
    bool doubt = false;
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < (int)Chunk::elements; ++i) most = max(most, bits[i] & FLOAT_MAGNITUDE);
    doubt = most > FLOAT_INF;  // NaN
#pragma unroll
    for (int i = 0; i < (int)Chunk::elements; ++i) bits[i] = dge_quick<digits, compat, fixed>(bits[i], rule, doubt);
#pragma unroll
    for (int i = 0; i < (int)Chunk::out_words; ++i) {
        out[i] = digits == 24 ? bits[digits == 24 ? i : 0] : permute(bits[2 * i % Chunk::elements], bits[(2 * i + 1) % Chunk::elements], 0x5410);
    }
    return doubt;
}

// What a CTA has left behind its chunks, and all of it where chunks cannot be read.
template <int kind, int digits, int compat>
__device__ __forceinline__ void slopes_left(const DgeArguments& a, offset_t chunks) {
    constexpr uint32_t elements = DgeChunk<kind, digits, compat>::elements;
    const offset_t first = chunks * elements + (offset_t)blockIdx.x * THREADS + threadIdx.x;
    slopes_one_by_one<kind, digits, compat>(a, first, a.count, gridDim.x * THREADS);
}

// Chunks again, one by one: those of a thread, THREADS apart from `first`, whose bit is set.
template <int kind, int digits, int compat>
__device__ __forceinline__ void slopes_again(const DgeArguments& a, offset_t first, uint32_t chosen) {
    constexpr uint32_t elements = DgeChunk<kind, digits, compat>::elements;
#pragma unroll 1
    for (offset_t number = first; chosen; chosen >>= 1, number += THREADS) {
        const offset_t from = number * elements;
        slopes_one_by_one<kind, digits, compat>(a, from, chosen & 1 ? from + elements : from, 1);
    }
}

template <int kind, int digits, int compat, int fixed>
__device__ __forceinline__ void slopes(const DgeArguments& a, offset_t chunks) {
    using Chunk = DgeChunk<kind, digits, compat>;
    constexpr uint32_t bytes = Chunk::elements * Chunk::width, written = Chunk::elements * SLOPE_BYTES<digits>;
    const offset_t first = (offset_t)blockIdx.x * (THREADS * Chunk::ahead) + threadIdx.x;
    uint32_t in[Chunk::ahead][Chunk::in_words], doubts = 0;
#pragma unroll
    for (int u = 0; u < Chunk::ahead; ++u) {
        if (first + u * THREADS < chunks) load<bytes>(a.x + (first + u * THREADS) * bytes, true, in[u]);
    }
#pragma unroll
    for (int u = 0; u < Chunk::ahead; ++u) {
        const offset_t number = first + u * THREADS;
        if (number >= chunks) break;
        uint32_t out[Chunk::out_words];
        doubts |= (uint32_t)slopes_of_chunk<kind, digits, compat, fixed>(in[u], a.rule, out) << u;
        store<written>(a.out + number * written, out);
    }
    slopes_again<kind, digits, compat>(a, first, doubts);
}

// float32 and binary16; k is 5 or, with `fixed` 0, any.
template <int kind, int digits, int compat, int fixed>
__device__ __forceinline__ void dge_direct(const DgeArguments& a) {
    const offset_t chunks = a.aligned && a.rule.k > 1 ? a.count / DgeChunk<kind, digits, compat>::elements : 0;
    slopes<kind, digits, compat, fixed>(a, chunks);
    slopes_left<kind, digits, compat>(a, chunks);
}

constexpr uint32_t DGE_LAST = 0x40C1;  // the bfloat16 above 6
template <int digits>
constexpr uint32_t DGE_FIRST = digits == 24 ? 0x2F80 : 0x3780;

template <int digits>
constexpr uint32_t DGE_ENTRIES = DGE_LAST - DGE_FIRST<digits> + 1;

template <int digits, int compat>
struct DgeTable {
    uint32_t slopes[DGE_ENTRIES<digits> * (compat == PAPER ? 1 : 2)];
};

// Lanes whose slope the table does not have: NaN for the paper's edges; below -6, and a negative NaN, for the others.
template <int compat>
__device__ __forceinline__ uint32_t lanes_beyond(uint32_t word, uint32_t magnitudes) {
    if (compat == PAPER) return magnitudes + 0x007F007Fu;
    return (magnitudes + (0x8000 - DGE_LAST) * 0x00010001u) & word;
}

template <int digits, int compat>
__device__ __forceinline__ void dge_looked_up(const DgeArguments& a) {
    using Chunk = DgeChunk<BFLOAT16, digits, compat>;
    constexpr uint32_t first = DGE_FIRST<digits>, entries = DGE_ENTRIES<digits>;
    constexpr uint32_t read = Chunk::elements * 2, written = Chunk::elements * SLOPE_BYTES<digits>;
    __shared__ DgeTable<digits, compat> table;
    for (uint32_t i = threadIdx.x; i < entries * (compat == PAPER ? 1 : 2); i += THREADS) {
        const uint32_t bits = i < entries ? first + i : (first + i - entries) | 0x8000;
        table.slopes[i] = dge_exact<digits, compat>(bits << 16, a.rule);
    }
    __syncthreads();
    const offset_t chunks = a.aligned ? a.count / Chunk::elements : 0;
    for (offset_t from = (offset_t)blockIdx.x * (THREADS * Chunk::ahead) + threadIdx.x; from < chunks;
         from += (offset_t)gridDim.x * (THREADS * Chunk::ahead)) {
        uint32_t in[Chunk::ahead][Chunk::in_words], doubts = 0;
#pragma unroll
        for (int u = 0; u < Chunk::ahead; ++u) {
            if (from + u * THREADS < chunks) load<read>(a.x + (from + u * THREADS) * read, true, in[u]);
        }
#pragma unroll
        for (int u = 0; u < Chunk::ahead; ++u) {
            const offset_t number = from + u * THREADS;
            if (number >= chunks) break;
            uint32_t out[Chunk::out_words], beyond = 0;
#pragma unroll
            for (int i = 0; i < (int)Chunk::in_words; ++i) {
                const uint32_t magnitudes = in[u][i] & LANE_MAGNITUDES;
                beyond |= lanes_beyond<compat>(in[u][i], magnitudes);
                uint32_t places = min_lanes(max_lanes(magnitudes, both_lanes(first)), both_lanes(DGE_LAST));
                places -= both_lanes(first);
                if (compat == MS_AMP) places += lane_signs(in[u][i]) & both_lanes(entries);
                const uint32_t low = table.slopes[places & 0xFFFF], high = table.slopes[places >> 16];
                if (digits == 24) out[2 * i % Chunk::out_words] = low, out[(2 * i + 1) % Chunk::out_words] = high;
                else out[i] = permute(low, high, 0x5410);
            }
            store<written>(a.out + number * written, out);
            doubts |= (uint32_t)((beyond & 0x80008000u) != 0) << u;
        }
        slopes_again<BFLOAT16, digits, compat>(a, from, doubts);
    }
    slopes_left<BFLOAT16, digits, compat>(a, chunks);
}

}  // namespace refnum

#define DIRECT(name, kind, digits, compat, fixed)                                                   \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::DgeArguments a) {         \
        refnum::dge_direct<refnum::kind, digits, refnum::compat, fixed>(a);                          \
    }
#define LOOKED_UP(name, digits, compat)                                                      \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::DgeArguments a) { \
        refnum::dge_looked_up<digits, refnum::compat>(a);                                    \
    }
#define KERNELS(compat, digits, suffix)                                   \
    DIRECT(dge_float32_5_##suffix, FLOAT32, digits, compat, 5)            \
    DIRECT(dge_float32_##suffix, FLOAT32, digits, compat, 0)              \
    DIRECT(dge_float16_##suffix, FLOAT16, digits, compat, 0)              \
    LOOKED_UP(dge_bfloat16_##suffix, digits, compat)
KERNELS(PAPER, 8, paper_bfloat16)
KERNELS(PAPER, 24, paper_float32)
KERNELS(MS_AMP, 8, ms_amp_bfloat16)
KERNELS(MS_AMP, 24, ms_amp_float32)
