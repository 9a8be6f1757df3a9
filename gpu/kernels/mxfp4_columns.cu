// Row-wise MXFP4 -> column-wise MXFP4, blocks of 32 rows x 1 column (clause N9). A CTA has 256 rows, a warp 32 columns of them; a
// thread has 32 rows and eight columns to itself, so that the maxima of a column never leave it where they are a block. Where blocks
// begin anywhere (RAGGED), see mxfp4_windows.cuh.
#include "bit_planes.cuh"
#include "mxfp4_columns.cuh"
#include "mxfp4_tile.cuh"

namespace refnum {

constexpr int BLOCK_ROWS = 32, SLOTS = 8, HEIGHT = BLOCK_ROWS * SLOTS;  // HEIGHT: of a window
typedef PackedTile<BLOCK_ROWS * SLOTS, BLOCK_ROWS, 0> BlocksTile;
typedef Segments<HEIGHT, BLOCK_ROWS> Blocks;
static_assert(TURNS == 1 && ROWS_A_PASS == BLOCK_ROWS, "a thread has one block of rows, a pass of copies a slot");

// A thread's place: its slot's first row in the tile, its group, the packed word of its columns.
struct Share {
    uint32_t slot, group, word, row;
};

struct RowMasks {  // of a block, by depth
    __align__(16) uint32_t of[DEPTHS + 4];  // 36 keeps the masks of eight blocks in different banks

    __device__ __forceinline__ uint32_t* depths() { return of - NEAREST; }
};

__device__ __forceinline__ void clear_masks(RowMasks (&masks)[SLOTS]) {
    constexpr uint32_t words = SLOTS * (DEPTHS + 4);
#pragma unroll
    for (uint32_t i = threadIdx.x % 32 * 4; i < words; i += 128) {
        *reinterpret_cast<uint4*>(masks[0].of + i) = make_uint4(0, 0, 0, 0);
    }
}

// What the four lanes of a block find together: the largest byte of rows that are not all zeros (0 if there are none), and
// whether a row has no value. Each lane has eight of the rows; `some` are the rows that are not all zeros.
struct BlockRows {
    uint32_t top;
    bool nan;
};
template <uint32_t depths>
__device__ __forceinline__ BlockRows find_rows(BlocksTile& tile, const Share& own, uint32_t some, RowMasks& masks) {
    const uint32_t first = threadIdx.x % 4 * 8;
    uint32_t byte[8], place[8], most = 0;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
        const uint32_t row = first + (j + own.slot) % 8;  // eight blocks in different banks
        byte[j] = tile.bytes[(own.row + row) * GROUPS + own.group];
        place[j] = 1u << plane_place(row);
        most = max_lanes(most, byte[j] << 16 | (some & place[j] ? byte[j] : 0));
    }
    most = max_lanes(most, __shfl_xor_sync(~0u, most, 1));
    most = max_lanes(most, __shfl_xor_sync(~0u, most, 2));
    const BlockRows out = {most & 0xFF, most >> 16 == NAN_BYTE};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        // few rows lie below `amax`'s depths: a word that nobody reads takes them, which costs less than a branch
        const uint32_t depth = min(out.top - byte[j], depths);
        if (depths == DEPTHS || depth < depths) atomicOr(masks.depths() + depth, place[j]);
    }
    __syncwarp();
    return out;
}

// `amax`, any bytes: rare, so short. Columns as `to_columns` leaves them.
__device__ __forceinline__ Table turn_any(BlocksTile& tile, const Share& own, uint32_t (&w)[32]) {
    ColumnMaxima most[2] = {};
#pragma unroll 1
    for (uint32_t row = own.row; row < own.row + BLOCK_ROWS; ++row) {
        const Table table = column_part_table(tile.bytes[row * GROUPS + own.group], E2M1_EMAX);
        const uint32_t magnitudes = tile.row(row)[own.word] & NIBBLE_MAGNITUDES;
        raise_maxima(most[0], look_up(table, magnitudes));
        raise_maxima(most[1], look_up(table, magnitudes >> 16));
    }
    const Table bytes = {column_bytes(column_parts(most[0]), 0), column_bytes(column_parts(most[1]), 0)};
    const ColumnBytes columns[2] = {negated_columns(bytes.low), negated_columns(bytes.high)};
#pragma unroll 1
    for (uint32_t q = 0; q < BLOCK_ROWS / 8; ++q) {
        uint32_t words[2][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32_t nibbles[2][2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t row = own.row + 8 * q + 2 * i + h, packed[1] = {tile.row(row)[own.word]};
                column_nibbles_amax(packed, tile.bytes[row * GROUPS + own.group], columns, nibbles[h]);
            }
            words[0][i] = join_rows(nibbles[0][0], nibbles[1][0]);
            words[1][i] = join_rows(nibbles[0][1], nibbles[1][1]);
        }
        transpose_bytes(words[0]);
        transpose_bytes(words[1]);
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {  // registers have no addresses
            w[i] = i / 8 == q ? words[i % 8 / 4][i % 4] : w[i];
        }
    }
    return bytes;
}

// Planes of a thread's rows, and which rows of all four lanes' columns are not all zeros.
__device__ __forceinline__ uint32_t load_planes(BlocksTile& tile, const Share& own, uint32_t (&w)[32]) {
    uint32_t some = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) w[i] = tile.row(own.row)[i * BlocksTile::pitch + own.word];
    to_planes(w);
#pragma unroll
    for (int c = 0; c < 24; ++c) some |= w[c];
    some |= __shfl_xor_sync(~0u, some, 1);
    return some | __shfl_xor_sync(~0u, some, 2);
}

// A block to its columns, rows 8 i to 8 i + 7 of column c in w[8 i + c], and the columns' bytes.
template <bool amax>
__device__ __forceinline__ Table turn_block(BlocksTile& tile, const Share& own, RowMasks& masks, uint32_t (&w)[32]) {
    const uint32_t some = load_planes(tile, own, w);
    const BlockRows rows = find_rows<amax ? DEPTHS : MAX_DEPTHS>(tile, own, some, masks);
    Table bytes = {~0u, ~0u};
    if (rows.nan) {
#pragma unroll
        for (int i = 0; i < 32; ++i) w[i] = 0;
    } else if (turn_planes<amax>(masks.depths(), rows.top, w, bytes)) {
        to_columns(w);
    } else {
        bytes = turn_any(tile, own, w);
    }
    return bytes;
}

__device__ __forceinline__ void store_block(const ColumnArguments& a, const ColumnTile& tile, const Share& own,
                                            uint32_t (&w)[32]) {
    uint8_t* to = a.out + (tile.column + 8 * own.word) * a.out_stride + (tile.row + own.row) / 2;
    const int32_t rows = (int32_t)tile.rows - (int32_t)own.row;
    if (a.vector == 16) {
#pragma unroll
        for (int c = 0; c < 8; ++c, to += a.out_stride) {
            const uint32_t four[4] = {w[c], w[8 + c], w[16 + c], w[24 + c]};
            store<16>(to, four);
        }
        return;
    }
#pragma unroll
    for (int c = 0; c < 8; ++c, to += a.out_stride) {
        store_some(to, make_uint4(w[c], w[8 + c], w[16 + c], w[24 + c]), rows / 2, a.vector);
    }
}

template <bool amax>
__device__ __forceinline__ void turn_blocks(const ColumnArguments& a, const ColumnTile& tile, BlocksTile& rows,
                                            RowMasks (&masks)[SLOTS], const Share& own) {
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    rows.fetch(a, tile.column, tile.row, tile.rows, keep);
    clear_masks(masks);
    wait_copies();
    __syncthreads();
    if (tile.column + 32 * own.group >= a.k) return;
    uint32_t w[32];
    const Table bytes = turn_block<amax>(rows, own, masks[own.slot], w);
    if (own.row >= tile.rows) return;
    store_block(a, tile, own, w);
    const offset_t block = SLOTS * tile.window + own.slot;
    store_scales(a, block, tile.column + 8 * own.word, bytes.low);
    store_scales(a, block, tile.column + 8 * own.word + 4, bytes.high);
}

}  // namespace refnum

#include "mxfp4_windows.cuh"

namespace refnum {

template <bool amax>
__device__ __forceinline__ void mxfp4_columns(const ColumnArguments& a) {
    __shared__ BlocksTile rows;
    __shared__ RowMasks masks[GROUPS][SLOTS];
    const ColumnTile tile = column_tile<HEIGHT>(a);
    if (tile.rows == 0) return;
    const uint32_t group = threadIdx.x / 32, slot = threadIdx.x % 32 / 4;
    const Share own = {slot, group, 4 * group + threadIdx.x % 4, BLOCK_ROWS * slot};
    if constexpr (RAGGED) {
        __shared__ WindowBlocks<amax> blocks[GROUPS];
        turn_window<amax>(a, tile, rows, masks[group], blocks[group], own);
    } else {
        turn_blocks<amax>(a, tile, rows, masks[group], own);
    }
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(WIDE, BLOCKS) void mxfp4_columns_max(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_columns<false>(a);
}
extern "C" __global__ __launch_bounds__(WIDE, BLOCKS) void mxfp4_columns_amax(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_columns<true>(a);
}
