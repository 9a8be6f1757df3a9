// Float [M, K] -> E4M3 tiles of 1x128 or 128x128 (clause N6). A chunk is PART elements of a tile row, 8 or
// 16, and half as many of float32.
#include "memory.cuh"
#include "parts.cuh"

namespace refnum {

// Bytes of `elements` of a kind.
template <int kind, int elements>
constexpr int bytes_of = elements * (kind == FLOAT32 ? 4 : 2);

template <int kind, int elements>
__device__ __forceinline__ void load_floats(const uint8_t* p, bool aligned, bool exists, uint32_t* in) {
#pragma unroll
    for (int i = 0; i < bytes_of<kind, elements> / 4; ++i) in[i] = 0;
    if (exists) load<bytes_of<kind, elements>>(p, aligned, in);
}

// The loaded words as bfloat16 lanes; float32 and binary16 are rounded to odd.
template <int kind, int elements>
__device__ __forceinline__ void as_bfloat16(const uint32_t* in, uint32_t* w) {
#pragma unroll
    for (int i = 0; i < elements / 2; ++i) {
        if (kind == FLOAT32) w[i] = odd_bfloat16_pair(in[2 * i], in[2 * i + 1]);
        else w[i] = kind == FLOAT16 ? odd_bfloat16_from_half(in[i]) : in[i];
    }
}

// Encodes a chunk; `from` is where it came from, for the tiles that are encoded one by one.
template <int kind, bool saturate, int elements>
__device__ __forceinline__ void encode(const uint8_t* from, const uint32_t* w, const TileScale& scale, uint8_t* out) {
    if (scale.scalar) {
#pragma unroll 1
        for (int i = 0; i < elements; ++i) {
            out[i] = (uint8_t)e4m3_encode(float_at<kind>(from, i), (int32_t)scale.byte - 127);
        }
        return;
    }
    uint32_t codes[elements / 4];
    quantize_fp8_words<saturate, elements / 4>(w, scale, codes);
    store<elements>(out, codes);
}

template <int kind, bool flat, bool rceil>
__device__ __forceinline__ void quantize_rows(const Arguments& a) {
    constexpr int part = kind == FLOAT32 ? PART / 2 : PART, lanes = 128 / part, bytes = bytes_of<kind, part>;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t in[UNROLL][bytes / 4], w[UNROLL][part / 2], most[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        load_floats<kind, part>(a.x + chunks[u].input(a, bytes), flat || a.aligned, chunks[u].exists, in[u]);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        as_bfloat16<kind, part>(in[u], w[u]);
        most[u] = part_largest<part / 2>(w[u]);
    }
    reduce_largest<lanes, UNROLL>(most);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const TileScale scale = tile_scale(most[u], own_policy<rceil>(a), kind);
        if (!chunks[u].exists) continue;
        encode<kind, !rceil, part>(a.x + chunks[u].input(a, bytes), w[u], scale, a.out + chunks[u].place(a) * part);
        if (chunks[u].leads(lanes)) chunks[u].store_scale(a, lanes, scale.byte);
    }
}

// One CTA of 256 threads a tile of 128x128, all of it in registers, eight elements a load: a.per_row tiles a row of
// tiles, a.valid loads a row of the array, a.chunks rows.
template <int kind>
__device__ __forceinline__ void quantize_squares(const Arguments& a) {
    constexpr int bytes = bytes_of<kind, 8>, passes = 8, rows = 16;
    __shared__ uint32_t largest[8];
    const offset_t top = (offset_t)(blockIdx.x / a.per_row) * 128 + threadIdx.x / 16;
    const uint32_t column = blockIdx.x % a.per_row * 16 + threadIdx.x % 16;
    uint32_t in[passes][bytes / 4], w[passes][4], most[1] = {0};
#pragma unroll
    for (int i = 0; i < passes; ++i) {
        const offset_t row = top + i * rows;
        const bool exists = row < a.chunks && column < a.valid;
        load_floats<kind, 8>(a.x + row * a.x_stride + (offset_t)column * bytes, a.aligned, exists, in[i]);
    }
#pragma unroll
    for (int i = 0; i < passes; ++i) {
        as_bfloat16<kind, 8>(in[i], w[i]);
        most[0] = max_lanes(most[0], part_largest<4>(w[i]));
    }
    reduce_largest<32, 1>(most);
    if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = most[0];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) most[0] = max_lanes(most[0], largest[i]);
    const TileScale scale = tile_scale(most[0], own_policy<false>(a), kind);
#pragma unroll
    for (int i = 0; i < passes; ++i) {
        const offset_t row = top + i * rows;
        if (row < a.chunks && column < a.valid) {
            encode<kind, true, 8>(a.x + row * a.x_stride + (offset_t)column * bytes, w[i], scale,
                                  a.out + (row * a.valid + column) * 8);
        }
    }
    if (threadIdx.x == 0) {
        const uint32_t above = blockIdx.x / a.per_row, beside = blockIdx.x % a.per_row;
        lay_scale(a.out_scales, a.out_scale_rows, a.per_row, TURNED_OUT ? above : 0, TURNED_OUT ? beside : blockIdx.x,
                  scale.byte);
    }
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
