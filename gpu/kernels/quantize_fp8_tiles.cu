// Float [M, K] -> E4M3 tiles of 1x128 or 128x128 (clause N6). A chunk is PART elements of a tile row, 8 or
// 16, and half as many of float32.
#include "memory.cuh"
#include "quantize_fp8_tiles.cuh"

namespace refnum {

constexpr int SQUARE = 256;  // threads a tile of 128x128; gpu/ops/tiles.py has its mirror

// Bytes of `elements` of a kind.
template <int kind, int elements>
constexpr int bytes_of = elements * (kind == FLOAT32 ? 4 : 2);

template <int kind, int elements>
__device__ __forceinline__ void load_floats(const uint8_t* p, bool aligned, bool exists, uint32_t* in) {
#pragma unroll
    for (int i = 0; i < bytes_of<kind, elements> / 4; ++i) in[i] = 0;
    if (exists) load<bytes_of<kind, elements>>(p, aligned, in);
}

template <int kind, int elements>
__device__ __forceinline__ void encode(const uint32_t* in, uint32_t byte, uint8_t* out) {
    uint32_t codes[elements / 4];
    quantize_fp8_words<kind, elements / 4>(in, byte, codes);
    store<elements>(out, codes);
}

template <int kind, bool flat>
__device__ __forceinline__ void quantize_rows(const Arguments& a) {
    constexpr int part = kind == FLOAT32 ? PART / 2 : PART, lanes = 128 / part, bytes = bytes_of<kind, part>;
    const uint32_t carry = e4m3_carry(a.policy.rule, 23);
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t in[UNROLL][bytes / 4], most[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        load_floats<kind, part>(a.x + chunks[u].input(a, bytes), flat || a.aligned, chunks[u].exists, in[u]);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) most[u] = tile_largest<kind, bytes / 4>(in[u]);
    reduce_largest<lanes, UNROLL>(most);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const uint32_t byte = tile_byte<kind>(most[u], carry);
        if (!chunks[u].exists) continue;
        encode<kind, part>(in[u], byte, a.out + chunks[u].place(a) * part);
        if (chunks[u].leads(lanes)) chunks[u].store_scale(a, lanes, byte);
    }
}

// One CTA of SQUARE threads a tile of 128x128, all of it in registers, eight elements a load: a.per_row tiles a row of
// tiles, a.valid loads a row of the array, a.chunks rows. `whole`: all of the tile exists and can be read by vector
// loads.
template <int kind, bool whole>
__device__ __forceinline__ void quantize_square(const Arguments& a, uint32_t above, uint32_t beside) {
    constexpr int words = bytes_of<kind, 8> / 4, rows = SQUARE / 16, passes = 128 / rows;
    __shared__ uint32_t largest[SQUARE / 32];
    const offset_t top = (offset_t)above * 128 + threadIdx.x / 16;
    const uint32_t column = beside * 16 + threadIdx.x % 16;
    const uint8_t* from = a.x + top * a.x_stride + (offset_t)column * (4 * words);
    uint32_t in[passes * words], most[1];
#pragma unroll
    for (int i = 0; i < passes; ++i) {
        const bool exists = whole || (top + i * rows < a.chunks && column < a.valid);
        load_floats<kind, 8>(from + i * rows * a.x_stride, whole || a.aligned, exists, in + i * words);
    }
    most[0] = tile_largest<kind, passes * words>(in);
    reduce_largest<32, 1>(most);
    if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = most[0];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SQUARE / 32; ++i) most[0] = max_lanes(most[0], largest[i]);
    const uint32_t byte = tile_byte<kind>(most[0], e4m3_carry(a.policy.rule, 23));
    uint8_t* to = a.out + (top * a.valid + column) * 8;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
        if (whole || (top + i * rows < a.chunks && column < a.valid)) {
            encode<kind, 8>(in + i * words, byte, to + (offset_t)i * rows * 8 * a.valid);
        }
    }
    if (threadIdx.x == 0) {
        lay_scale(a.out_scales, a.out_scale_rows, a.per_row, TURNED_OUT ? above : 0, TURNED_OUT ? beside : blockIdx.x,
                  byte);
    }
}

template <int kind>
__device__ __forceinline__ void quantize_squares(const Arguments& a) {
    const uint32_t above = blockIdx.x / a.per_row, beside = blockIdx.x % a.per_row;
    if (a.aligned && (offset_t)above * 128 + 128 <= a.chunks && a.valid - beside * 16 >= 16) {
        quantize_square<kind, true>(a, above, beside);
    } else {
        quantize_square<kind, false>(a, above, beside);
    }
}

}  // namespace refnum

#define KERNEL(name, kind, flat)                                                 \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::Arguments a) { \
        refnum::quantize_rows<kind, flat>(a);                                    \
    }
#define SQUARES(name, kind)                                                      \
    extern "C" __global__ __launch_bounds__(refnum::SQUARE) void name(refnum::Arguments a) { \
        refnum::quantize_squares<kind>(a);                                       \
    }
KERNEL(quantize_fp8_tiles_float32_flat, refnum::FLOAT32, true)
KERNEL(quantize_fp8_tiles_bfloat16_flat, refnum::BFLOAT16, true)
KERNEL(quantize_fp8_tiles_float16_flat, refnum::FLOAT16, true)
KERNEL(quantize_fp8_tiles_float32, refnum::FLOAT32, false)
KERNEL(quantize_fp8_tiles_bfloat16, refnum::BFLOAT16, false)
KERNEL(quantize_fp8_tiles_float16, refnum::FLOAT16, false)
SQUARES(quantize_fp8_squares_float32, refnum::FLOAT32)
SQUARES(quantize_fp8_squares_bfloat16, refnum::BFLOAT16)
SQUARES(quantize_fp8_squares_float16, refnum::FLOAT16)
