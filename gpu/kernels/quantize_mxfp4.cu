// Float [M, K] -> MXFP4 (clause N5). A chunk is PART elements of a block, 8, 16 or 32, and half as many of
// float32.
#include "shares.cuh"

namespace refnum {

template <int kind, bool flat, bool rceil>
__device__ __forceinline__ void quantize_mxfp4(const Arguments& a) {
    constexpr int part = FloatShare<kind>::part, lanes = FloatShare<kind>::lanes, words = FloatShare<kind>::words;
    constexpr int bytes = FloatShare<kind>::bytes;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t in[UNROLL][bytes / 4] = {}, w[UNROLL][words], most[UNROLL];
    load_share<bytes>(a, chunks, flat || a.aligned, in);
    float_share<kind>(in, w, most);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t packed[words / 4];
        const uint32_t byte = quantize_part<kind, !rceil, words>(w[u], most[u], own_policy<rceil>(a), packed);
        if (!chunks[u].exists) continue;
        store<part / 2>(a.out + chunks[u].place(a) * (part / 2), packed);
        if (chunks[u].leads(lanes)) chunks[u].store_scale(a, lanes, byte);
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
