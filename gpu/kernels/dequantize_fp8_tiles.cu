// E4M3 tiles -> bfloat16 or float32 [M, K] (clause N6). A chunk is PART elements to bfloat16: 8 or
// 16; half as many to float32.
#include "dequantize_fp8_tiles.cuh"
#include "dequantize_mxfp4.cuh"
#include "memory.cuh"

namespace refnum {

// Any byte and code, element by element: NaN codes, and bytes whose results leave bfloat16's normal range.
template <bool wide, int words>
__device__ __forceinline__ void store_special(const uint32_t* codes, uint32_t byte, uint8_t* out) {
    constexpr int size = wide ? 4 : 2;
#pragma unroll
    for (int w = 0; w < words; ++w) {
#pragma unroll 1
        for (int i = 0; i < 4; ++i) {
            const uint32_t code = codes[w] >> (8 * i) & 0xFF;
            const uint32_t bits = wide ? e4m3_decode(code, byte) : decode_fp8_bfloat16(code, byte);
            store<size>(out + (4 * w + i) * size, &bits);
        }
    }
}

template <bool wide, bool flat>
__device__ __forceinline__ void dequantize_fp8_tiles(const Arguments& a) {
    constexpr int bytes = wide ? PART / 2 : PART, words = bytes / 4;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t codes[UNROLL][words] = {}, byte[UNROLL] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (!chunks[u].exists) continue;
        load<bytes>(a.x + chunks[u].input(a, bytes), flat || a.aligned, codes[u]);
        byte[u] = chunks[u].load_scale(a, 128 / bytes);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (!chunks[u].exists) continue;
        uint8_t* to = a.out + chunks[u].place(a) * (2 * PART);
        bool special = !is_plain_tile(byte[u]);
#pragma unroll
        for (int i = 0; i < words; ++i) special = special || has_nan_code(codes[u][i]);
        if (special) {
            store_special<wide, words>(codes[u], byte[u], to);
            continue;
        }
        uint32_t pairs[2 * words], out[PART / 2];
        decode_fp8_words<words>(codes[u], byte[u], pairs);
#pragma unroll
        for (int i = 0; i < 2 * words; ++i) {
            if (wide) out[2 * i] = low_float(pairs[i]), out[2 * i + 1] = high_float(pairs[i]);
            else out[i] = pairs[i];
        }
        store<2 * PART>(to, out);
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
