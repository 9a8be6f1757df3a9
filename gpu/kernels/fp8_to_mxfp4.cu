// E4M3 1x128 tiles -> MXFP4 (clause N7). Two threads a block, sixteen elements each.
#include "memory.cuh"
#include "parts.cuh"

#ifndef UNROLL
#define UNROLL 2
#endif

namespace refnum {

template <bool flat, bool rceil>
__device__ __forceinline__ void fp8_to_mxfp4(const Arguments& a) {
    constexpr int lanes = 2, words = 4;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t w[UNROLL][words], tile[UNROLL], most[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        w[u][0] = w[u][1] = w[u][2] = w[u][3] = tile[u] = 0;
        if (!chunks[u].exists) continue;
        load<16>(a.x + chunks[u].input(a, 16), flat || a.aligned, w[u]);
        tile[u] = load_byte(a.scales + chunks[u].input_scale(a, 8));
    }
    CodeLanes<words> part[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        part[u] = code_lanes<words>(w[u]);
        most[u] = code_largest(part[u]);
    }
    reduce_largest<lanes, UNROLL>(most);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t packed[2];
        const uint32_t byte = recode_part<!rceil>(part[u], most[u], tile[u], own_policy<rceil>(a), packed);
        if (!chunks[u].exists) continue;
        store<8>(a.out + chunks[u].place(a) * 8, packed);
        if (chunks[u].leads(lanes)) a.out_scales[chunks[u].group(a, lanes)] = (uint8_t)byte;
    }
}

}  // namespace refnum

#define KERNEL(name, flat, rceil)                                                \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::Arguments a) { \
        refnum::fp8_to_mxfp4<flat, rceil>(a);                                    \
    }
KERNEL(fp8_to_mxfp4_flat_rceil, true, true)
KERNEL(fp8_to_mxfp4_flat, true, false)
KERNEL(fp8_to_mxfp4, false, false)
