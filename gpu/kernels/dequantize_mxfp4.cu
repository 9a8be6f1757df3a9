// MXFP4 -> bfloat16 or float32 [M, K] (clause N5). A chunk is PART elements to bfloat16: 8, 16 or 32;
// half as many to float32.
#include "dequantize_mxfp4.cuh"
#include "memory.cuh"

namespace refnum {

template <bool wide, bool flat>
__device__ __forceinline__ void dequantize_mxfp4(const Arguments& a) {
    constexpr int elements = wide ? PART / 2 : PART, bytes = elements / 2, words = (bytes + 3) / 4;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t packed[UNROLL][words] = {}, byte[UNROLL] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (!chunks[u].exists) continue;
        load<bytes>(a.x + chunks[u].input(a, bytes), flat || a.aligned, packed[u]);
        byte[u] = chunks[u].load_scale(a, 32 / elements);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const DecodeTable table = decode_table(byte[u]);
        uint32_t pairs[words][4], out[PART / 2];
#pragma unroll
        for (int i = 0; i < words; ++i) decode_word(packed[u][i], table, pairs[i]);
#pragma unroll
        for (int i = 0; i < elements / 2; ++i) {
            const uint32_t pair = pairs[i / 4][i % 4];
            if (wide) out[2 * i] = low_float(pair), out[2 * i + 1] = high_float(pair);
            else out[i] = pair;
        }
        if (chunks[u].exists) store<2 * PART>(a.out + chunks[u].place(a) * (2 * PART), out);
    }
}

}  // namespace refnum

#define KERNEL(name, wide, flat)                                                 \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::Arguments a) { \
        refnum::dequantize_mxfp4<wide, flat>(a);                                 \
    }
KERNEL(dequantize_mxfp4_bfloat16_flat, false, true)
KERNEL(dequantize_mxfp4_float32_flat, true, true)
KERNEL(dequantize_mxfp4_bfloat16, false, false)
KERNEL(dequantize_mxfp4_float32, true, false)
