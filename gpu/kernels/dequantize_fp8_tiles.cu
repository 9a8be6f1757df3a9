// E4M3 tiles -> bfloat16 or float32 [M, K] (clause N6). One 16-byte store a chunk: eight bfloat16 or four float32.
#include "dequantize_fp8_tiles.cuh"
#include "memory.cuh"

#ifndef UNROLL
#define UNROLL 4
#endif

namespace refnum {

// Four codes -> two words of bfloat16 or four of float32.
template <bool wide>
__device__ __forceinline__ void decode_codes(uint32_t codes, uint32_t byte, uint32_t* out) {
    uint32_t lane[2];
    if (is_plain_tile(byte) && !has_nan_code(codes)) {
        decode_fp8_word(codes, byte, lane);
        if (wide) {
            out[0] = lane[0] << 16, out[1] = lane[0] & 0xFFFF0000u;
            out[2] = lane[1] << 16, out[3] = lane[1] & 0xFFFF0000u;
        } else {
            out[0] = lane[0], out[1] = lane[1];
        }
        return;
    }
#pragma unroll 1
    for (int i = 0; i < (wide ? 4 : 2); ++i) {
        uint32_t word;
        if (wide) word = e4m3_decode(codes >> (8 * i) & 0xFF, byte);
        else word = decode_fp8_bfloat16(codes >> (16 * i) & 0xFF, byte) |
                    decode_fp8_bfloat16(codes >> (16 * i + 8) & 0xFF, byte) << 16;
        if (i == 0) out[0] = word;
        if (i == 1) out[1] = word;
        if (wide && i == 2) out[2] = word;
        if (wide && i == 3) out[3] = word;
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
        uint32_t out[4];
        decode_codes<wide>(codes[u][0], byte[u], out);
        if (!wide) decode_codes<wide>(codes[u][1], byte[u], out + 2);
        if (chunks[u].exists) store<16>(a.out + chunks[u].place(a) * 16, out);
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
