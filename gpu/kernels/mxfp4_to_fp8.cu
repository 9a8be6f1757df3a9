// MXFP4 -> E4M3 1x128 tiles (clause N8). A chunk is PART elements of a block: 16 or 32.
#include "memory.cuh"
#include "parts.cuh"

namespace refnum {

template <bool flat, bool amax>
__device__ __forceinline__ void mxfp4_to_fp8(const Arguments& a) {
    constexpr int lanes = 128 / PART, words = PART / 8;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t w[UNROLL][4] = {}, byte[UNROLL] = {}, part[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (!chunks[u].exists) continue;
        load<PART / 2>(a.x + chunks[u].input(a, PART / 2), flat || a.aligned, w[u]);
        byte[u] = chunks[u].load_scale(a, 32 / PART);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) part[u] = amax ? block_part_amax(w[u], byte[u]) : block_part_max(w[u], byte[u]);
    reduce_largest<lanes, UNROLL>(part);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const uint32_t tile = amax ? tile_byte_amax(part[u]) : tile_byte_max(part[u]);
        const RecodeTable table = recode_table(byte[u], tile);
        uint32_t codes[2 * words];
#pragma unroll
        for (int i = 0; i < words; ++i) e4m3_words(w[u][i], table, codes[2 * i], codes[2 * i + 1]);
        if (!chunks[u].exists) continue;
        store<PART>(a.out + chunks[u].place(a) * PART, codes);
        if (chunks[u].leads(lanes)) chunks[u].store_scale(a, lanes, tile);
    }
}

}  // namespace refnum

#define KERNEL(name, flat, amax)                                                 \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::Arguments a) { \
        refnum::mxfp4_to_fp8<flat, amax>(a);                                     \
    }
KERNEL(mxfp4_to_fp8_max_flat, true, false)
KERNEL(mxfp4_to_fp8_amax_flat, true, true)
KERNEL(mxfp4_to_fp8_max, false, false)
KERNEL(mxfp4_to_fp8_amax, false, true)
