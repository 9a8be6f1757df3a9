// E4M3 tiles -> bfloat16 or float32 [M, K] (clause N6). One 16-byte store a chunk: eight bfloat16 or four float32.
#include "dequantize_fp8_tiles.cuh"
#include "dequantize_mxfp4.cuh"
#include "memory.cuh"

#ifndef UNROLL
#define UNROLL 4
#endif

namespace refnum {

// Any byte and code, element by element: NaN codes, and bytes whose results leave bfloat16's normal range.
template <bool wide>
__device__ __forceinline__ void store_special(const uint32_t* codes, uint32_t byte, uint8_t* out) {
#pragma unroll 1
    for (int i = 0; i < (wide ? 4 : 8); ++i) {
        const uint32_t code = (i < 4 ? codes[0] : codes[1]) >> (8 * (i & 3)) & 0xFF;
        const uint32_t bits = wide ? e4m3_decode(code, byte) : decode_fp8_bfloat16(code, byte);
        store<wide ? 4 : 2>(out + i * (wide ? 4 : 2), &bits);
    }
}

template <bool wide, bool flat>
__device__ __forceinline__ void dequantize_fp8_tiles(const Arguments& a) {
    constexpr int bytes = wide ? 4 : 8, lanes = 128 / bytes;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t codes[UNROLL][2], byte[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        codes[u][0] = codes[u][1] = byte[u] = 0;
        if (!chunks[u].exists) continue;
        load<bytes>(a.x + chunks[u].input(a, bytes), flat || a.aligned, codes[u]);
        byte[u] = load_byte(a.scales + chunks[u].input_scale(a, lanes));
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (!chunks[u].exists) continue;
        uint8_t* out = a.out + chunks[u].place(a) * 16;
        if (!is_plain_tile(byte[u]) || has_nan_code(codes[u][0]) || (!wide && has_nan_code(codes[u][1]))) {
            store_special<wide>(codes[u], byte[u], out);
            continue;
        }
        uint32_t lane[4];
        decode_fp8_words<wide ? 1 : 2>(codes[u], byte[u], lane);
        if (wide) {
            const uint32_t floats[4] = {low_float(lane[0]), high_float(lane[0]), low_float(lane[1]),
                                        high_float(lane[1])};
            store<16>(out, floats);
        } else {
            store<16>(out, lane);
        }
    }
}

}  // namespace refnum

#define KERNEL(name, wide, flat)                                                 \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::Arguments a) { \
        refnum::dequantize_fp8_tiles<wide, flat>(a);                             \
    }
KERNEL(dequantize_fp8_tiles_bfloat16_flat, false, true)
KERNEL(dequantize_fp8_tiles_float32_flat, true, true)
KERNEL(dequantize_fp8_tiles_bfloat16, false, false)
KERNEL(dequantize_fp8_tiles_float32, true, false)
