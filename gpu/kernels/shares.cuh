// What the kernels to MXFP4 have in common: the loads of a thread's chunks, and the largest magnitude of each.
#pragma once
#include "memory.cuh"
#include "parts.cuh"

namespace refnum {

// Sizes of a chunk of floats: PART elements of a block, half as many of float32.
template <int kind>
struct FloatShare {
    static constexpr int part = kind == FLOAT32 ? PART / 2 : PART, lanes = 32 / part, words = part / 2;
    static constexpr int bytes = kind == FLOAT32 ? 4 * part : 2 * part;
};

// Loads `bytes` of every chunk that exists; `in` stays what it was where there is none.
template <int bytes, bool flat>
__device__ __forceinline__ void load_share(const Arguments& a, const Chunk<flat> (&chunks)[UNROLL], bool aligned,
                                           uint32_t (&in)[UNROLL][bytes / 4]) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (chunks[u].exists) load<bytes>(a.x + chunks[u].input(a, bytes), aligned, in[u]);
    }
}

// Pairs of lanes of the loaded floats, float32 rounded to odd, and the largest magnitude of every block.
template <int kind>
__device__ __forceinline__ void float_share(const uint32_t (&in)[UNROLL][FloatShare<kind>::bytes / 4],
                                            uint32_t (&w)[UNROLL][FloatShare<kind>::words], uint32_t (&most)[UNROLL]) {
    constexpr int words = FloatShare<kind>::words;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
        for (int i = 0; i < words; ++i) {
            w[u][i] = kind == FLOAT32 ? odd_bfloat16_pair(in[u][2 * i], in[u][2 * i + 1]) : in[u][i];
        }
        most[u] = part_largest<words>(w[u]);
    }
    reduce_largest<FloatShare<kind>::lanes, UNROLL>(most);
}

// The same of loaded E4M3 codes.
template <int words>
__device__ __forceinline__ void code_share(const uint32_t (&w)[UNROLL][words], CodeLanes<words> (&part)[UNROLL],
                                           uint32_t (&most)[UNROLL]) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        part[u] = code_lanes<words>(w[u]);
        most[u] = code_largest(part[u]);
    }
    reduce_largest<32 / PART, UNROLL>(most);
}

}  // namespace refnum
