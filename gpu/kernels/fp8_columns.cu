// E4M3 1x128 tiles -> column tiles (clause N10). 256 threads a tile: each four rows of sixteen columns.
#include "bulk.cuh"
#include "columns.cuh"
#include "fp8_columns.cuh"

namespace refnum {

struct Rows {  // four rows of sixteen columns; rows that do not exist are zero
    uint32_t w[4][4], byte[4];
};

// Rows on their way in, and columns on their way out.
union Held {
    uint4 rows[4][256];
    Turned<16> turned;
};

// With RAGGED rows wait in `held`, not in registers, until the tile's bytes are known.
__device__ __forceinline__ void load_rows(const ColumnArguments& a, const ColumnTile& tile, uint32_t part,
                                          uint32_t quad, Rows& rows, Held& held) {
    const offset_t column = tile.column + 16 * part;
    const uint8_t* x = a.x + (tile.row + 4 * quad) * a.x_stride + column;
    const uint8_t* scales = a.scales + (tile.row + 4 * quad) * a.scale_stride + tile.column / WIDE;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const bool exists = 4 * quad + i < (RAGGED ? tile.held : tile.rows) && column < a.k;
        if (RAGGED && a.aligned & VECTORS) copy_16(&held.rows[i][threadIdx.x], x + i * a.x_stride, exists);
        rows.w[i][0] = rows.w[i][1] = rows.w[i][2] = rows.w[i][3] = rows.byte[i] = 0;
        if (!exists) continue;
        if (!RAGGED || !(a.aligned & VECTORS)) load<16>(x + i * a.x_stride, a.aligned & VECTORS, rows.w[i]);
        rows.byte[i] = load_byte(scales + i * a.scale_stride);
    }
    if (!RAGGED || a.aligned & VECTORS) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) held.rows[i][threadIdx.x] = make_uint4(rows.w[i][0], rows.w[i][1], rows.w[i][2], rows.w[i][3]);
}

#if RAGGED

// Parts of the thread's rows (`row_part`) over all columns of the tile, in all eight threads that share them.
__device__ __forceinline__ void row_parts(const Rows& rows, const Held& held, uint32_t (&part)[4]) {
    uint32_t nonzero = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint4 four = held.rows[i][threadIdx.x];
        const uint32_t any = four.x | four.y | four.z | four.w;
        nonzero |= (any & BYTE_MAGNITUDES) != 0 ? 1u << i : 0;
    }
#pragma unroll
    for (int d = 1; d < 8; d *= 2) nonzero |= __shfl_xor_sync(~0u, nonzero, d);
#pragma unroll
    for (int i = 0; i < 4; ++i) part[i] = row_part(nonzero >> i & 1, rows.byte[i]);
}

// Bytes of rows outside the window, and what all rows of the window have.
struct TileRows {
    uint8_t edges[2 * TALL];  // of the rows before the window, and of those behind it
    uint16_t parts[TALL];
    __align__(4) uint8_t bytes[TALL];  // of their segments
    uint32_t own[QUADS];               // four rows' bytes

    __device__ __forceinline__ uint8_t* edge(int32_t row) { return edges + (row < 0 ? row + TALL : row); }
};

__device__ __forceinline__ void fetch_edges(const ColumnArguments& a, const ColumnTile& tile, const Edges& edges,
                                            TileRows& all) {
    const int32_t row = threadIdx.x < TALL ? (int32_t)threadIdx.x - TALL : (int32_t)threadIdx.x;
    if (row < -(int32_t)edges.before || row >= TALL + (int32_t)edges.behind) return;
    *all.edge(row) = (uint8_t)load_byte(a.scales + (tile.row + row) * a.scale_stride + tile.column / WIDE);
}

// The larger of `most` and the parts of `count` rows outside the window, from `row` on. One row tells nearly always: that
// of the largest byte. All threads of a warp.
__device__ __forceinline__ uint32_t raise_by_edge(const ColumnArguments& a, const ColumnTile& tile, const uint8_t* bytes,
                                                  int32_t row, uint32_t count, uint32_t most) {
    const uint32_t lane = threadIdx.x % 32;
    const offset_t column = tile.column + 4 * lane;
    const uint8_t* x = a.x + (tile.row + row) * a.x_stride + column;
    uint32_t best = 0;
#pragma unroll
    for (uint32_t r = lane; r < TALL; r += 32) {
        const uint32_t byte = r < count ? bytes[r] : NAN_BYTE;
        best = max(best, byte == NAN_BYTE ? 0 : (byte + 1) << 8 | r);
    }
    best = __reduce_max_sync(~0u, best);
    if (best >> 8 <= most) return most;
    const auto nonzero = [&](uint32_t r) {
        uint32_t word = 0;
        if (column < a.k) load<4>(x + (offset_t)r * a.x_stride, a.aligned & VECTORS, &word);
        return (word & BYTE_MAGNITUDES) != 0;
    };
    if (__any_sync(~0u, nonzero(best & 0xFF))) return best >> 8;
#pragma unroll 1
    for (uint32_t r = 0; r < count; ++r) {
        const bool some = __any_sync(~0u, nonzero(r));
        most = max(most, row_part(some, bytes[r]));
    }
    return most;
}

// A warp takes every eighth segment: the bytes of its rows, and of its columns if it begins in the window.
__device__ __forceinline__ void segment_bytes(const ColumnArguments& a, const ColumnTile& tile, TileRows& all) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t turn = threadIdx.x / 32;
#pragma unroll 1
    for (Segments<TALL, TALL> s(a, tile); s.some(); s.next(), turn = (turn + 7) % 8) {
        if (turn != 0) continue;
        uint32_t most = 0;
#pragma unroll
        for (uint32_t r = lane; r < TALL; r += 32) most = max(most, s.now.has(r) ? all.parts[r] : 0);
        most = __reduce_max_sync(~0u, most);
        const int32_t first = s.now.first, behind = s.now.end - TALL;
        if (first < 0) most = raise_by_edge(a, tile, all.edge(first), first, (uint32_t)-first, most);
        if (behind > 0) most = raise_by_edge(a, tile, all.edge(TALL), TALL, (uint32_t)behind, most);
        const uint32_t byte = tile_byte(most);
#pragma unroll
        for (uint32_t r = lane; r < TALL; r += 32) {
            if (s.now.has(r)) all.bytes[r] = (uint8_t)byte;
        }
        if (first >= 0) store_scales(a, s.now.number, tile.column + 4 * lane, byte * 0x01010101u);
    }
}

// The bytes of the segments of the thread's rows, a byte each; the rows' codes come from where they wait.
__device__ __forceinline__ uint32_t shared_bytes(const ColumnArguments& a, const ColumnTile& tile, Rows& rows,
                                                 uint32_t quad, TileRows& all, const Held& held) {
    const Edges edges = window_edges<TALL, TALL>(a, tile);
    if (edges.some()) fetch_edges(a, tile, edges, all);
    uint32_t part[4];
    wait_copies();
    row_parts(rows, held, part);
    if (threadIdx.x % 8 == 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) all.parts[4 * quad + i] = (uint16_t)part[i];
        reinterpret_cast<uint32_t*>(all.bytes)[quad] = 0;
        all.own[quad] = rows.byte[0] | rows.byte[1] << 8 | rows.byte[2] << 16 | rows.byte[3] << 24;
    }
    __syncthreads();
    segment_bytes(a, tile, all);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint4 four = held.rows[i][threadIdx.x];
        rows.w[i][0] = four.x, rows.w[i][1] = four.y, rows.w[i][2] = four.z, rows.w[i][3] = four.w;
        rows.byte[i] = all.own[quad] >> 8 * i & 0xFF;
    }
    __syncthreads();  // columns take the place of rows
    return reinterpret_cast<const uint32_t*>(all.bytes)[quad];
}

#else

struct TileRows {
    uint32_t largest[8];  // part of a warp's rows
};

// All rows are of one segment, and it has no others: its byte.
__device__ __forceinline__ uint32_t shared_bytes(const ColumnArguments&, const ColumnTile&, const Rows& rows, uint32_t,
                                                 TileRows& all, const Held&) {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t any = rows.w[i][0] | rows.w[i][1] | rows.w[i][2] | rows.w[i][3];
        most = max(most, row_part((any & BYTE_MAGNITUDES) != 0, rows.byte[i]));
    }
    most = __reduce_max_sync(~0u, most);
    if (threadIdx.x % 32 == 0) all.largest[threadIdx.x / 32] = most;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) most = max(most, all.largest[i]);
    return tile_byte(most);
}

#endif

template <bool te>
__device__ __forceinline__ void turn(Rows& rows, uint32_t bytes, uint32_t part, uint32_t quad, Turned<16>& turned) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t nan = rows.byte[i] == NAN_BYTE ? ~0u : 0u, byte = RAGGED ? bytes >> (8 * i) & 0xFF : bytes;
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
    __shared__ __align__(16) Held held;
    __shared__ TileRows all;
    const uint32_t part = threadIdx.x % 8, quad = threadIdx.x / 8;
    const ColumnTile tile = column_tile<TALL>(a, blockIdx.x);
    if (tile.rows == 0) return;
    Rows rows;
    load_rows(a, tile, part, quad, rows, held);
    const uint32_t bytes = shared_bytes(a, tile, rows, quad, all, held);
    if (threadIdx.x / 32 * 16 < tile.rows) turn<te>(rows, bytes, part, quad, held.turned);  // a warp has sixteen rows
#if !RAGGED
    if (threadIdx.x < 32) store_scales(a, tile.window, tile.column + 4 * threadIdx.x, bytes * 0x01010101u);
#endif
    __syncthreads();
    held.turned.template store_columns<256>(a, tile);
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
