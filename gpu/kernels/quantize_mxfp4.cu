// Float [M, K] -> MXFP4 (clause N5). Four threads a block, eight elements each.
#include "memory.cuh"
#include "parts.cuh"

#ifndef UNROLL
#define UNROLL 4
#endif

namespace refnum {

template <int kind, bool flat, bool rceil>
__device__ __forceinline__ void quantize_mxfp4(const Arguments& a) {
    constexpr int lanes = 4, words = 4, bytes = kind == FLOAT32 ? 32 : 16;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t w[UNROLL][words], most[UNROLL];
    if (kind == FLOAT32) {
        uint32_t wide[UNROLL][2 * words] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (chunks[u].exists) load<bytes>(a.x + chunks[u].input(a, bytes), flat || a.aligned, wide[u]);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
            for (int i = 0; i < words; ++i) w[u][i] = odd_bfloat16_pair(wide[u][2 * i], wide[u][2 * i + 1]);
        }
    } else {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
            for (int i = 0; i < words; ++i) w[u][i] = 0;
            if (chunks[u].exists) load<16>(a.x + chunks[u].input(a, bytes), flat || a.aligned, w[u]);
        }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) most[u] = part_largest<words>(w[u]);
    reduce_largest<lanes, UNROLL>(most);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t packed[1];
        const uint32_t byte = quantize_part<kind, !rceil, words>(w[u], most[u], own_policy<rceil>(a), packed);
        if (!chunks[u].exists) continue;
        store<4>(a.out + chunks[u].place(a) * 4, packed);
        if (chunks[u].leads(lanes)) a.out_scales[chunks[u].group(a, lanes)] = (uint8_t)byte;
    }
}

}  // namespace refnum

#define KERNEL(name, kind, flat, rceil)                                          \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::Arguments a) { \
        refnum::quantize_mxfp4<kind, flat, rceil>(a);                            \
    }
KERNEL(quantize_mxfp4_float32_flat_rceil, refnum::FLOAT32, true, true)
KERNEL(quantize_mxfp4_bfloat16_flat_rceil, refnum::BFLOAT16, true, true)
KERNEL(quantize_mxfp4_float16_flat_rceil, refnum::FLOAT16, true, true)
KERNEL(quantize_mxfp4_float32_flat, refnum::FLOAT32, true, false)
KERNEL(quantize_mxfp4_bfloat16_flat, refnum::BFLOAT16, true, false)
KERNEL(quantize_mxfp4_float16_flat, refnum::FLOAT16, true, false)
KERNEL(quantize_mxfp4_float32, refnum::FLOAT32, false, false)
KERNEL(quantize_mxfp4_bfloat16, refnum::BFLOAT16, false, false)
KERNEL(quantize_mxfp4_float16, refnum::FLOAT16, false, false)
