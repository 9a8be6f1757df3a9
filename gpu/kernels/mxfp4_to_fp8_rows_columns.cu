// Row-wise MXFP4 -> E4M3 rows and columns in one pass (clauses N8 and N9): the input is read once. A CTA has a tile of
// 128 rows; for rows a thread first has 128 columns of a row, then sixteen elements at a time; for columns see
// mxfp4_to_fp8_tile.cuh.
#include "mxfp4_to_fp8_spans.cuh"

namespace refnum {

constexpr int PIECES = WIDE / 16;
typedef RowTables<TALL, TALL> OneRowTables;

// The byte of each row of the tile, and the tables of its blocks. The codes of NaN blocks are cleared.
template <bool amax, class Tile>
__device__ __forceinline__ void row_tables(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                           Tile& rows, OneRowTables (&tables)[GROUPS]) {
    const uint32_t row = threadIdx.x % TALL, first = threadIdx.x / TALL * 4;
    uint32_t byte[4], some[4], most = 0;
    if (Tile::BANDS && row >= BAND * Places(now).bands(now)) return;
#pragma unroll
    for (uint32_t g = 0; g < 4; ++g) {
        const uint4 four = rows.block(row, first + g);
        const uint32_t w[4] = {four.x, four.y, four.z, four.w};
        byte[g] = rows.scales(row)[first + g];
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
    const int32_t own = Places(now).row(row);
    if (own >= 0 && own < min(now.end, (int32_t)tile.rows) && column < a.k) {
        a.row_scales[(tile.row + own) * ((a.k + 127) / 128) + column / 128] = (uint8_t)shared;
    }
}

template <class Tile>
__device__ __forceinline__ void store_rows(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                           Tile& rows, OneRowTables (&tables)[GROUPS]) {
    static_assert(WIDE / PIECES == RUN && TURNS == 1, "equal rows of all runs lie at constant distances");
    const Places places(now);
    const uint32_t piece = threadIdx.x % PIECES, first = threadIdx.x / PIECES;
    const int32_t end = min(now.end, (int32_t)tile.rows);
    const offset_t column = tile.column + 16 * piece, step = RUN * a.k, below = TALL * a.k;
    if (column >= a.k) return;
    uint8_t* to = a.rows + (tile.row + places.base + first) * a.k + column;
    const uint32_t* from = rows.row(first) + 2 * piece;
    const Table* own = &tables[piece / 2][first];
#pragma unroll
    for (int i = 0; i < TALL / RUN; ++i, to += step) {
        const int32_t row = places.row(first + RUN * i);
        if (!RAGGED && row >= end) return;
        if (RAGGED && (row < 0 || row >= end)) continue;
        const uint2 two = *reinterpret_cast<const uint2*>(from + i * (&rows.row(RUN)[0] - &rows.row(0)[0]));
        uint32_t codes[4];
        e4m3_words(two.x, own[RUN * i], codes[0], codes[1]);
        e4m3_words(two.y, own[RUN * i], codes[2], codes[3]);
        store<16>(first + RUN * i < places.skew ? to + below : to, codes);
    }
}

template <bool amax>
__device__ __forceinline__ void mxfp4_to_fp8_rows_columns(const ColumnArguments& a) {
    typedef typename ShapeOf<amax>::Tile Tile;
    __shared__ Tile tiles[1 + AHEAD];
    __shared__ union {
        OneRowTables rows[GROUPS];
        typename ShapeOf<amax>::Tables columns[GROUPS];
    } tables;
    __shared__ Kept<amax> kept;
    const ColumnTile tile = column_tile<TALL>(a);
    if (tile.rows == 0) return meet_cluster();
    walk_rows(a, tile, tiles, kept, [&](const Segment& now, Tile& rows) {
        row_tables<amax>(a, tile, now, rows, tables.rows);
        __syncthreads();
        store_rows(a, tile, now, rows, tables.rows);
        __syncthreads();
        if (!amax || !RAGGED) meet_cluster();  // two windows are 256 bytes of a column: DRAM takes them for less when they come together
        turn_groups<amax, true>(a, tile, now, rows, tables.columns[threadIdx.x / 32], kept);
    });
}

#if SPANS
__device__ __forceinline__ void mxfp4_to_fp8_rows_columns_spans(const ColumnArguments& a) {
    __shared__ WindowTile rows[RING];
    __shared__ OneRowTables tables[GROUPS];
    __shared__ Found found[WARPS];
    const ColumnTile tile = column_tile<TALL>(a);
    if (tile.rows == 0) return;
    turn_strip(a, tile, rows, found[threadIdx.x / 32], [&](WindowTile& window, int32_t origin) {
        const Segment now = {origin, min(origin + TALL, (int32_t)tile.held), 0};
        row_tables<true>(a, tile, now, window, tables);
        __syncthreads();
        store_rows(a, tile, now, window, tables);
    });
}
#endif

}  // namespace refnum

extern "C" __global__ CLUSTERED __launch_bounds__(WIDE, BLOCKS) void mxfp4_to_fp8_rows_columns_max(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_to_fp8_rows_columns<false>(a);
}
extern "C" __global__ CLUSTERED __launch_bounds__(WIDE, BLOCKS) void mxfp4_to_fp8_rows_columns_amax(
    const __grid_constant__ refnum::ColumnArguments a) {
#if SPANS
    refnum::mxfp4_to_fp8_rows_columns_spans(a);
#else
    refnum::mxfp4_to_fp8_rows_columns<true>(a);
#endif
}
