// Float [M, K] -> E4M3 tiles of 1x128 or 128x128 (clause N6). Eight elements a thread: sixteen threads a tile row.
#include "memory.cuh"
#include "parts.cuh"

#ifndef UNROLL
#define UNROLL 2
#endif

namespace refnum {

// Eight inputs of a chunk as four words of bfloat16 lanes; float32 and binary16 are rounded to odd.
template <int kind>
__device__ __forceinline__ void load_lanes(const Arguments& a, const uint8_t* p, bool aligned, uint32_t (&w)[4]) {
    if (kind == FLOAT32) {
        uint32_t wide[8];
        load<32>(p, aligned, wide);
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = odd_bfloat16_pair(wide[2 * i], wide[2 * i + 1]);
    } else {
        load<16>(p, aligned, w);
    }
}

template <int kind>
__device__ __forceinline__ void as_bfloat16(uint32_t (&w)[4]) {
#pragma unroll
    for (int i = 0; kind == FLOAT16 && i < 4; ++i) w[i] = odd_bfloat16_from_half(w[i]);
}

// Encodes a chunk; `in` is where it came from, for the tiles that are encoded one by one.
template <int kind, bool saturate>
__device__ __forceinline__ void encode(const uint8_t* in, const uint32_t (&w)[4], const TileScale& scale,
                                       uint8_t* out) {
    if (scale.scalar) {
#pragma unroll 1
        for (int i = 0; i < 8; ++i) out[i] = (uint8_t)e4m3_encode(float_at<kind>(in, i), (int32_t)scale.byte - 127);
        return;
    }
    uint32_t codes[2];
    quantize_fp8_words<saturate, 2>(w, scale, codes);
    store<8>(out, codes);
}

template <int kind, bool flat, bool rceil>
__device__ __forceinline__ void quantize_rows(const Arguments& a) {
    constexpr int lanes = 16, bytes = kind == FLOAT32 ? 32 : 16;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t w[UNROLL][4], most[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        w[u][0] = w[u][1] = w[u][2] = w[u][3] = 0;
        if (chunks[u].exists) load_lanes<kind>(a, a.x + chunks[u].input(a, bytes), flat || a.aligned, w[u]);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        as_bfloat16<kind>(w[u]);
        most[u] = part_largest<4>(w[u]);
    }
    reduce_largest<lanes, UNROLL>(most);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const TileScale scale = tile_scale(most[u], own_policy<rceil>(a), kind);
        if (!chunks[u].exists) continue;
        encode<kind, !rceil>(a.x + chunks[u].input(a, bytes), w[u], scale, a.out + chunks[u].place(a) * 8);
        if (chunks[u].leads(lanes)) a.out_scales[chunks[u].group(a, lanes)] = (uint8_t)scale.byte;
    }
}

// One CTA of 256 threads a tile of 128x128, all of it in registers: a.per_row tiles a row of tiles, a.valid chunks a
// row of the array, a.chunks rows.
template <int kind>
__device__ __forceinline__ void quantize_squares(const Arguments& a) {
    constexpr int bytes = kind == FLOAT32 ? 32 : 16, passes = 8, rows = 16;
    __shared__ uint32_t largest[8];
    const offset_t top = (offset_t)(blockIdx.x / a.per_row) * 128 + threadIdx.x / 16;
    const uint32_t column = blockIdx.x % a.per_row * 16 + threadIdx.x % 16;
    uint32_t w[passes][4], most = 0;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
        const offset_t row = top + i * rows;
        w[i][0] = w[i][1] = w[i][2] = w[i][3] = 0;
        if (row < a.chunks && column < a.valid) {
            load_lanes<kind>(a, a.x + row * a.x_stride + (offset_t)column * bytes, a.aligned, w[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < passes; ++i) {
        as_bfloat16<kind>(w[i]);
        most = max_lanes(most, part_largest<4>(w[i]));
    }
    uint32_t one[1] = {most};
    reduce_largest<32, 1>(one);
    if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = one[0];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) one[0] = max_lanes(one[0], largest[i]);
    const TileScale scale = tile_scale(one[0], own_policy<false>(a), kind);
#pragma unroll
    for (int i = 0; i < passes; ++i) {
        const offset_t row = top + i * rows;
        if (row < a.chunks && column < a.valid) {
            encode<kind, true>(a.x + row * a.x_stride + (offset_t)column * bytes, w[i], scale,
                               a.out + (row * a.valid + column) * 8);
        }
    }
    if (threadIdx.x == 0) a.out_scales[blockIdx.x] = (uint8_t)scale.byte;
}

}  // namespace refnum

#define KERNEL(name, kind, flat, rceil)                                          \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::Arguments a) { \
        refnum::quantize_rows<kind, flat, rceil>(a);                             \
    }
#define SQUARES(name, kind)                                                      \
    extern "C" __global__ __launch_bounds__(256) void name(refnum::Arguments a) { \
        refnum::quantize_squares<kind>(a);                                       \
    }
KERNEL(quantize_fp8_tiles_float32_flat_rceil, refnum::FLOAT32, true, true)
KERNEL(quantize_fp8_tiles_bfloat16_flat_rceil, refnum::BFLOAT16, true, true)
KERNEL(quantize_fp8_tiles_float16_flat_rceil, refnum::FLOAT16, true, true)
KERNEL(quantize_fp8_tiles_float32_flat, refnum::FLOAT32, true, false)
KERNEL(quantize_fp8_tiles_bfloat16_flat, refnum::BFLOAT16, true, false)
KERNEL(quantize_fp8_tiles_float16_flat, refnum::FLOAT16, true, false)
KERNEL(quantize_fp8_tiles_float32, refnum::FLOAT32, false, false)
KERNEL(quantize_fp8_tiles_bfloat16, refnum::BFLOAT16, false, false)
KERNEL(quantize_fp8_tiles_float16, refnum::FLOAT16, false, false)
SQUARES(quantize_fp8_squares_float32, refnum::FLOAT32)
SQUARES(quantize_fp8_squares_bfloat16, refnum::BFLOAT16)
SQUARES(quantize_fp8_squares_float16, refnum::FLOAT16)
