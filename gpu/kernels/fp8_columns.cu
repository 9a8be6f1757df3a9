// E4M3 1x128 tiles -> column tiles (clause N10). 256 threads a tile: each four rows of sixteen columns.
#include "columns.cuh"
#include "fp8_columns.cuh"

namespace refnum {

struct Rows {  // four rows of sixteen columns; rows that do not exist are zero
    uint32_t w[4][4], byte[4];
};

__device__ __forceinline__ void load_rows(const ColumnArguments& a, const ColumnTile& tile, uint32_t part,
                                          uint32_t quad, Rows& rows) {
    const offset_t column = tile.column + 16 * part;
    const uint8_t* x = a.x + (tile.row + 4 * quad) * a.x_stride + column;
    const uint8_t* scales = a.scales + (tile.row + 4 * quad) * a.scale_stride + tile.column / WIDE;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        rows.w[i][0] = rows.w[i][1] = rows.w[i][2] = rows.w[i][3] = rows.byte[i] = 0;
        if (4 * quad + i >= tile.rows || column >= a.k) continue;
        load<16>(x + i * a.x_stride, a.aligned & VECTORS, rows.w[i]);
        rows.byte[i] = load_byte(scales + i * a.scale_stride);
    }
}

__device__ __forceinline__ uint32_t shared_byte(const Rows& rows, uint32_t (&largest)[8]) {
    uint32_t part = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t any = rows.w[i][0] | rows.w[i][1] | rows.w[i][2] | rows.w[i][3];
        part = max(part, row_part((any & BYTE_MAGNITUDES) != 0, rows.byte[i]));
    }
    part = __reduce_max_sync(~0u, part);
    if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = part;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) part = max(part, largest[i]);
    return tile_byte(part);
}

template <bool te>
__device__ __forceinline__ void turn(Rows& rows, uint32_t byte, uint32_t part, uint32_t quad, Turned<16>& turned) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t nan = rows.byte[i] == NAN_BYTE ? ~0u : 0u;
        if (te) {
            const uint32_t steps = lowering_steps(rows.byte[i], byte);
#pragma unroll
            for (int j = 0; j < 4; ++j) rows.w[i][j] = lower_te(rows.w[i][j], steps);
        } else {
            uint32_t out[4];
            lower_rne<4>(rows.w[i], lowering_distance(rows.byte[i], byte), out);
#pragma unroll
            for (int j = 0; j < 4; ++j) rows.w[i][j] = out[j];
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) rows.w[i][j] = choose(BYTE_MAGNITUDES, rows.w[i][j], nan);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        uint32_t words[4] = {rows.w[0][j], rows.w[1][j], rows.w[2][j], rows.w[3][j]};
        transpose_bytes(words);
#pragma unroll
        for (int i = 0; i < 4; ++i) turned.put(part, 4 * j + i, quad, words[i]);
    }
}

template <bool te>
__device__ __forceinline__ void fp8_columns(const ColumnArguments& a) {
    __shared__ __align__(16) Turned<16> turned;
    __shared__ uint32_t largest[8];
    const uint32_t part = threadIdx.x % 8, quad = threadIdx.x / 8;
    const ColumnTile tile = column_tile(a);
    if (tile.rows == 0) return;
    Rows rows;
    load_rows(a, tile, part, quad, rows);
    const uint32_t byte = shared_byte(rows, largest);
    if (threadIdx.x / 32 * 16 < tile.rows) turn<te>(rows, byte, part, quad, turned);  // a warp has sixteen rows
    if (threadIdx.x < 32) store_scales(a, tile, 4 * threadIdx.x, byte * 0x01010101u);
    __syncthreads();
    turned.template store_columns<256>(a, tile);
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(256, BLOCKS) void fp8_columns_rne(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::fp8_columns<false>(a);
}
extern "C" __global__ __launch_bounds__(256, BLOCKS) void fp8_columns_te(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::fp8_columns<true>(a);
}
