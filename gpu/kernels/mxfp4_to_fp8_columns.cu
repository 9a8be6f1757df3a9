// Row-wise MXFP4 -> column-wise E4M3 (clause N9). A thread has four rows of one group of 32 columns.
#include "columns.cuh"
#include "mxfp4_to_fp8_columns.cuh"

namespace refnum {

constexpr int WARPS = WIDE / 32, GROUPS = WIDE / 32;

struct Rows {  // four rows of a group; rows that do not exist are empty blocks
    uint32_t w[4][4], byte[4];
};

__device__ __forceinline__ void load_rows(const ColumnArguments& a, const ColumnTile& tile, uint32_t group,
                                          uint32_t quad, Rows& rows) {
    const offset_t column = tile.column + 32 * group;
    const uint8_t* x = a.x + (tile.row + 4 * quad) * a.x_stride + column / 2;
    const uint8_t* scales = a.scales + (tile.row + 4 * quad) * a.scale_stride + column / 32;
#pragma unroll
    for (int i = 0; i < 4; ++i, x += a.x_stride, scales += a.scale_stride) {
        rows.w[i][0] = rows.w[i][1] = rows.w[i][2] = rows.w[i][3] = rows.byte[i] = 0;
        if (4 * quad + i >= tile.rows || column >= a.k) continue;
        load<16>(x, a.aligned, rows.w[i]);
        rows.byte[i] = load_byte(scales);
    }
}

// `max`: the shared byte of each group; returns this thread's.
__device__ __forceinline__ uint32_t group_byte(const Rows& rows, uint32_t group, uint32_t (&largest)[WARPS][GROUPS]) {
    uint32_t part = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) part = max(part, block_part_max(rows.w[i], rows.byte[i]));
#pragma unroll
    for (int d = GROUPS; d < 32; d *= 2) part = max(part, __shfl_xor_sync(~0u, part, d));
    if (threadIdx.x % 32 < GROUPS) largest[threadIdx.x / 32][group] = part;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; ++i) part = max(part, largest[i][group]);
    return tile_byte_max(part);
}

// `amax`: one byte a column, four a word, into `bytes` [group][step].
__device__ __forceinline__ void column_bytes(const Rows& rows, uint32_t group,
                                             uint32_t (&maxima)[WARPS][GROUPS][16], uint32_t (&bytes)[GROUPS * 8]) {
    ColumnMaxima own[8] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const Table table = column_part_table(rows.byte[i], E4M3_EMAX);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const uint32_t magnitudes = rows.w[i][j] & NIBBLE_MAGNITUDES;
            raise_maxima(own[2 * j], look_up(table, magnitudes));
            raise_maxima(own[2 * j + 1], look_up(table, magnitudes >> 16));
        }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int d = GROUPS; d < 32; d *= 2) {
            own[j].even = max_lanes(own[j].even, __shfl_xor_sync(~0u, own[j].even, d));
            own[j].odd = max_lanes(own[j].odd, __shfl_xor_sync(~0u, own[j].odd, d));
        }
        if (threadIdx.x % 32 < GROUPS) {
            maxima[threadIdx.x / 32][group][2 * j] = own[j].even;
            maxima[threadIdx.x / 32][group][2 * j + 1] = own[j].odd;
        }
    }
    __syncthreads();
    if (threadIdx.x < 8 * GROUPS) {
        ColumnMaxima all = {0, 0};
        const uint32_t of = threadIdx.x / 8, step = threadIdx.x % 8;
#pragma unroll
        for (int i = 0; i < WARPS; ++i) {
            all.even = max_lanes(all.even, maxima[i][of][2 * step]);
            all.odd = max_lanes(all.odd, maxima[i][of][2 * step + 1]);
        }
        const uint32_t parts = column_parts(all);
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < 32; i += 8) word |= column_byte(parts >> i & 0xFF, ONE_BYTE) << i;
        bytes[threadIdx.x] = word;
    }
    __syncthreads();
}

// Elements of the four rows, turned: `max` under the group's byte, `amax` under a byte a column.
__device__ __forceinline__ void turn_max(const Rows& rows, uint32_t byte, uint32_t group, uint32_t quad,
                                         Turned<32>& turned) {
    RecodeTable tables[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) tables[i] = recode_table(rows.byte[i], byte);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        uint32_t first[4], second[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) e4m3_words(rows.w[i][j], tables[i], first[i], second[i]);
        transpose_bytes(first);
        transpose_bytes(second);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            turned.put(group, 8 * j + i, quad, first[i]);
            turned.put(group, 8 * j + 4 + i, quad, second[i]);
        }
    }
}

__device__ __forceinline__ void turn_amax(const Rows& rows, const uint32_t (&bytes)[GROUPS * 8], uint32_t group,
                                          uint32_t quad, Turned<32>& turned) {
    ColumnBytes columns[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) columns[j] = negated_columns(bytes[8 * group + j]);
    uint32_t codes[4][8];
#pragma unroll
    for (int i = 0; i < 4; ++i) column_codes(rows.w[i], rows.byte[i], columns, codes[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        uint32_t words[4] = {codes[0][j], codes[1][j], codes[2][j], codes[3][j]};
        transpose_bytes(words);
#pragma unroll
        for (int i = 0; i < 4; ++i) turned.put(group, 4 * j + i, quad, words[i]);
    }
}

template <bool amax>
__device__ __forceinline__ void mxfp4_to_fp8_columns(const ColumnArguments& a) {
    __shared__ __align__(16) Turned<32> turned;
    __shared__ uint32_t maxima[WARPS][GROUPS][16], bytes[GROUPS * 8], largest[WARPS][GROUPS];
    const uint32_t group = threadIdx.x % GROUPS, quad = threadIdx.x / GROUPS;
    const ColumnTile tile = column_tile(a);
    if (tile.rows == 0) return;
    Rows rows;
    load_rows(a, tile, group, quad, rows);
    if (amax) {
        column_bytes(rows, group, maxima, bytes);
        turn_amax(rows, bytes, group, quad, turned);
        if (threadIdx.x < 8 * GROUPS) store_scales(a, tile, 4 * threadIdx.x, bytes[threadIdx.x]);
    } else {
        const uint32_t byte = group_byte(rows, group, largest);
        turn_max(rows, byte, group, quad, turned);
        if (quad < 8) store_scales(a, tile, 32 * group + 4 * quad, byte * 0x01010101u);
    }
    __syncthreads();
    turned.template store_columns<WIDE>(a, tile);
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(WIDE, BLOCKS) void mxfp4_to_fp8_columns_max(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_to_fp8_columns<false>(a);
}
extern "C" __global__ __launch_bounds__(WIDE, BLOCKS) void mxfp4_to_fp8_columns_amax(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_to_fp8_columns<true>(a);
}
