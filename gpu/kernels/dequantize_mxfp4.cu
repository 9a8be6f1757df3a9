// MXFP4 -> bfloat16 or float32 [M, K] (clause N5). One 16-byte store a chunk: eight bfloat16 or four float32.
#include "dequantize_mxfp4.cuh"
#include "memory.cuh"

#ifndef UNROLL
#define UNROLL 4
#endif

namespace refnum {

template <bool wide, bool flat>
__device__ __forceinline__ void dequantize_mxfp4(const Arguments& a) {
    constexpr int bytes = wide ? 2 : 4, lanes = wide ? 8 : 4;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t packed[UNROLL][1], byte[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        packed[u][0] = byte[u] = 0;
        if (!chunks[u].exists) continue;
        load<bytes>(a.x + chunks[u].input(a, bytes), flat || a.aligned, packed[u]);
        byte[u] = load_byte(a.scales + chunks[u].input_scale(a, lanes));
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t lane[4];
        decode_word(packed[u][0], decode_table(byte[u]), lane);
        if (!chunks[u].exists) continue;
        if (wide) {
            const uint32_t floats[4] = {low_float(lane[0]), high_float(lane[0]), low_float(lane[1]),
                                        high_float(lane[1])};
            store<16>(a.out + chunks[u].place(a) * 16, floats);
        } else {
            store<16>(a.out + chunks[u].place(a) * 16, lane);
        }
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
