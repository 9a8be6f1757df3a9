// E4M3 1x128 tiles -> column tiles (clause N10). 256 threads a tile: each four rows of sixteen columns.
#include "columns.cuh"
#include "fp8_columns.cuh"

namespace refnum {

template <bool te>
__device__ __forceinline__ void fp8_columns(const ColumnArguments& a) {
    __shared__ __align__(16) Turned<16> turned;
    __shared__ uint32_t largest[8];
    const ColumnTile tile = column_tile(a);
    const uint32_t across = threadIdx.x % 8, quad = threadIdx.x / 8;
    const offset_t column = tile.column + 16 * across;
    const uint8_t* x = a.x + (tile.row + 4 * quad) * a.x_stride + column;
    const uint8_t* scales = a.scales + (tile.row + 4 * quad) * a.scale_stride + tile.column / WIDE;
    uint32_t w[4][4], own[4], part = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        w[i][0] = w[i][1] = w[i][2] = w[i][3] = own[i] = 0;
        if (4 * quad + i >= tile.rows || column >= a.k) continue;
        load<16>(x + i * a.x_stride, a.aligned, w[i]);
        own[i] = load_byte(scales + i * a.scale_stride);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const bool nonzero = ((w[i][0] | w[i][1] | w[i][2] | w[i][3]) & BYTE_MAGNITUDES) != 0;
        part = max(part, row_part(nonzero, own[i]));
    }
#pragma unroll
    for (int d = 1; d < 32; d *= 2) part = max(part, __shfl_xor_sync(~0u, part, d));
    if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = part;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) part = max(part, largest[i]);
    const uint32_t byte = tile_byte(part);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t nan = own[i] == NAN_BYTE ? ~0u : 0u;
        if (te) {
            const uint32_t steps = lowering_steps(own[i], byte);
#pragma unroll
            for (int j = 0; j < 4; ++j) w[i][j] = lower_te(w[i][j], steps);
        } else {
            uint32_t out[4];
            lower_rne<4>(w[i], lowering_powers(own[i], byte), out);
#pragma unroll
            for (int j = 0; j < 4; ++j) w[i][j] = out[j];
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) w[i][j] = choose(BYTE_MAGNITUDES, w[i][j], nan);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        uint32_t words[4] = {w[0][j], w[1][j], w[2][j], w[3][j]};
        transpose_bytes(words);
#pragma unroll
        for (int i = 0; i < 4; ++i) turned.put(across, 4 * j + i, quad, words[i]);
    }
    if (threadIdx.x < 32) store_scales(a, tile, 4 * threadIdx.x, byte * 0x01010101u);
    __syncthreads();
    turned.template store_columns<256>(a, tile);
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(256) void fp8_columns_rne(const __grid_constant__ refnum::ColumnArguments a) {
    refnum::fp8_columns<false>(a);
}
extern "C" __global__ __launch_bounds__(256) void fp8_columns_te(const __grid_constant__ refnum::ColumnArguments a) {
    refnum::fp8_columns<true>(a);
}
