// Row-wise MXFP4 -> E4M3 rows and columns in one pass (clauses N8 and N9): the input is read once. A CTA has a tile of
// 128 rows; for rows a thread first has 128 columns of a row, then sixteen elements at a time; for columns see
// mxfp4_to_fp8_tile.cuh.
#include "mxfp4_to_fp8_strips.cuh"
#include "mxfp4_to_fp8_tile.cuh"

namespace refnum {

constexpr int PIECES = WIDE / 16;
typedef RowTables<TALL, TALL> OneRowTables;

// The byte of each row of a tile, whose rows begin at the CTA's row `from`, and the tables of its blocks. The codes of NaN blocks are
// cleared.
template <bool amax>
__device__ __forceinline__ void row_tables(const ColumnArguments& a, const ColumnTile& tile, int32_t from, RowsTile& rows, OneRowTables (&tables)[GROUPS]) {
    const uint32_t row = threadIdx.x % TALL, first = threadIdx.x / TALL * 4;
    uint32_t byte[4], some[4], most = 0;
#pragma unroll
    for (uint32_t g = 0; g < 4; ++g) {
        const uint4 four = rows.block(row, first + g);
        const uint32_t w[4] = {four.x, four.y, four.z, four.w};
        byte[g] = rows.bytes[row * GROUPS + first + g];
        some[g] = block_part_max(w, byte[g]);
        most = max(most, amax ? block_part_amax(w, byte[g]) : some[g]);
    }
    const uint32_t shared = amax ? tile_byte_amax(most) : tile_byte_max(most);
#pragma unroll
    for (uint32_t g = 0; g < 4; ++g) {
        tables[first + g][row] = row_table(some[g], byte[g], shared);
        if (byte[g] == NAN_BYTE) rows.block(row, first + g) = make_uint4(0, 0, 0, 0);
    }
    const offset_t column = tile.column + 32 * first;
    const int32_t own = from + (int32_t)row;
    if (own < (int32_t)tile.held && column < a.k) {
        a.row_scales[(tile.row + own) * ((a.k + 127) / 128) + column / 128] = (uint8_t)shared;
    }
}

__device__ __forceinline__ void store_rows(const ColumnArguments& a, const ColumnTile& tile, int32_t from,
                                           RowsTile& rows, OneRowTables (&tables)[GROUPS]) {
    static_assert(WIDE / PIECES == RUN && TURNS == 1, "equal rows of all runs lie at constant distances");
    const uint32_t piece = threadIdx.x % PIECES, first = threadIdx.x / PIECES;
    const offset_t column = tile.column + 16 * piece, step = RUN * a.k;
    if (column >= a.k) return;
    uint8_t* to = a.rows + (tile.row + from + first) * a.k + column;
    const uint32_t* words = rows.row(first) + 2 * piece;
    const Table* own = &tables[piece / 2][first];
#pragma unroll
    for (int i = 0; i < TALL / RUN; ++i, to += step) {
        if (from + (int32_t)first + RUN * i >= (int32_t)tile.held) return;
        const uint2 two = *reinterpret_cast<const uint2*>(words + i * RowsTile::run_pitch);
        uint32_t codes[4];
        e4m3_words(two.x, own[RUN * i], codes[0], codes[1]);
        e4m3_words(two.y, own[RUN * i], codes[2], codes[3]);
        store<16>(to, codes);
    }
}

template <bool amax>
__device__ __forceinline__ void rows_of(const ColumnArguments& a, const ColumnTile& tile, int32_t from, RowsTile& rows,
                                        OneRowTables (&tables)[GROUPS]) {
    row_tables<amax>(a, tile, from, rows, tables);
    __syncthreads();
    store_rows(a, tile, from, rows, tables);
}

template <bool amax>
__device__ __forceinline__ void mxfp4_to_fp8_rows_columns(const ColumnArguments& a) {
    const ColumnTile tile = column_tile<TALL>(a);
    if constexpr (amax && RAGGED) {
        __shared__ Strip strip;
        __shared__ OneRowTables tables[GROUPS];
        if (tile.rows == 0) return;
        walk_strip(a, tile, strip, [&](int32_t from, RowsTile& rows) { rows_of<amax>(a, tile, from, rows, tables); });
    } else {
        __shared__ RowsTile rows;
        __shared__ union {
            OneRowTables rows[GROUPS];
            TileTables columns[GROUPS];
        } tables;
        __shared__ Window window;
        if (tile.rows == 0) return meet_cluster();
        fetch_window(a, tile, rows, window);
        rows_of<amax>(a, tile, 0, rows, tables.rows);
        __syncthreads();
        meet_cluster();  // two windows are 256 bytes of a column: DRAM takes them for less when they come together
        turn_groups<amax, true>(a, tile, rows, tables.columns[threadIdx.x / 32], window);
    }
}

}  // namespace refnum

extern "C" __global__ CLUSTERED __launch_bounds__(WIDE, BLOCKS) void mxfp4_to_fp8_rows_columns_max(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_to_fp8_rows_columns<false>(a);
}
extern "C" __global__ CLUSTERED __launch_bounds__(WIDE, BLOCKS) void mxfp4_to_fp8_rows_columns_amax(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_to_fp8_rows_columns<true>(a);
}
