// E4M3 1x128 tiles -> MXFP4 (clause N7). A chunk is PART elements of a block: 16 or 32.
#include "shares.cuh"

namespace refnum {

template <bool flat, bool rceil>
__device__ __forceinline__ void fp8_to_mxfp4(const Arguments& a) {
    constexpr int lanes = 32 / PART, words = PART / 4;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t w[UNROLL][words] = {}, tile[UNROLL] = {}, most[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (!chunks[u].exists) continue;
        load<PART>(a.x + chunks[u].input(a, PART), flat || a.aligned, w[u]);
        tile[u] = chunks[u].load_scale(a, 128 / PART);
    }
    CodeLanes<words> part[UNROLL];
    code_share<words>(w, part, most);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t packed[words / 2];
        const uint32_t byte = recode_part<!rceil>(part[u], most[u], tile[u], own_policy<rceil>(a), packed);
        if (!chunks[u].exists) continue;
        store<PART / 2>(a.out + chunks[u].place(a) * (PART / 2), packed);
        if (chunks[u].leads(lanes)) chunks[u].store_scale(a, lanes, byte);
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
