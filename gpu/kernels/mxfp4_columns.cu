// Row-wise MXFP4 -> column-wise MXFP4, blocks of 32 rows x 1 column (clause N9). A CTA has eight blocks of rows, of any
// experts; a warp has 32 columns of them; a thread has a block of rows and eight columns to itself, so that the maxima
// of a column never leave it.
#include "bit_planes.cuh"
#include "mxfp4_columns.cuh"
#include "mxfp4_tile.cuh"

namespace refnum {

constexpr int BLOCK_ROWS = 32, BLOCKS_A_TILE = 8;
typedef PackedTile<BLOCK_ROWS * BLOCKS_A_TILE, BLOCK_ROWS> BlocksTile;
static_assert(TURNS == 1, "a thread has one block of rows");

struct Block {  // of rows, and eight columns of it
    uint32_t number, group, word, row, rows;
    offset_t segment, out;  // of the first row and column, in bytes
};

struct RowMasks {  // of a block, by depth
    __align__(16) uint32_t of[DEPTHS + 4];  // 36 keeps the masks of eight blocks in different banks

    __device__ __forceinline__ uint32_t* depths() { return of - NEAREST; }
};

__device__ __forceinline__ void clear_masks(RowMasks (&masks)[BLOCKS_A_TILE]) {
    constexpr uint32_t words = BLOCKS_A_TILE * (DEPTHS + 4);
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
__device__ __forceinline__ BlockRows find_rows(BlocksTile& tile, const Block& block, uint32_t some, RowMasks& masks) {
    const uint32_t first = threadIdx.x % 4 * 8;
    uint32_t byte[8], place[8], most = 0;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
        const uint32_t row = first + (j + block.number) % 8;  // eight blocks in different banks
        byte[j] = tile.bytes[(block.row + row) * GROUPS + block.group];
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

// `amax`, any bytes: rare, so short; stores eight rows at a time. Returns the bytes of the thread's columns.
__device__ __forceinline__ Table turn_any(const ColumnArguments& a, BlocksTile& tile, const Block& block) {
    ColumnMaxima most[2] = {};
#pragma unroll 1
    for (uint32_t row = block.row; row < block.row + BLOCK_ROWS; ++row) {
        const Table table = column_part_table(tile.bytes[row * GROUPS + block.group], E2M1_EMAX);
        const uint32_t magnitudes = tile.row(row)[block.word] & NIBBLE_MAGNITUDES;
        raise_maxima(most[0], look_up(table, magnitudes));
        raise_maxima(most[1], look_up(table, magnitudes >> 16));
    }
    const uint32_t bytes[2] = {column_bytes(column_parts(most[0]), 0), column_bytes(column_parts(most[1]), 0)};
    const ColumnBytes columns[2] = {negated_columns(bytes[0]), negated_columns(bytes[1])};
#pragma unroll 1
    for (uint32_t q = 0; q < BLOCK_ROWS / 8; ++q) {
        uint32_t words[2][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32_t nibbles[2][2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t row = block.row + 8 * q + 2 * i + h;
                const uint32_t packed[1] = {tile.row(row)[block.word]};
                column_nibbles_amax(packed, tile.bytes[row * GROUPS + block.group], columns, nibbles[h]);
            }
            words[0][i] = join_rows(nibbles[0][0], nibbles[1][0]);
            words[1][i] = join_rows(nibbles[0][1], nibbles[1][1]);
        }
        uint8_t* to = a.out + block.out + 4 * q;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            transpose_bytes(words[h]);
#pragma unroll
            for (int i = 0; i < 4; ++i, to += a.out_stride) {
                const int32_t left = (int32_t)block.rows / 2 - 4 * (int32_t)q;
                store_some(to, make_uint4(words[h][i], 0, 0, 0), min(left, 4), a.vector);
            }
        }
    }
    return {bytes[0], bytes[1]};
}

__device__ __forceinline__ void store_block(const ColumnArguments& a, const Block& block, uint32_t (&w)[32]) {
    uint8_t* to = a.out + block.out;
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
        store_some(to, make_uint4(w[c], w[8 + c], w[16 + c], w[24 + c]), (int32_t)block.rows / 2, a.vector);
    }
}

template <bool amax>
__device__ __forceinline__ void mxfp4_columns(const ColumnArguments& a) {
    __shared__ BlocksTile tile;
    __shared__ RowMasks masks[GROUPS][BLOCKS_A_TILE];
    const uint32_t across = ACROSS ? ACROSS : a.tiles, turn = blockIdx.x / across;
    const uint32_t first = turn * BLOCKS_A_TILE, stripe = blockIdx.y * across + (blockIdx.x - turn * across);
    if (stripe >= a.tiles) return;
    const offset_t column = (offset_t)stripe * WIDE;
    const offset_t row = segment_at<BLOCK_ROWS>(a, first).row;
    // a block begins where the one before it ends; behind the launch's last end lie zeros
    const offset_t end = a.dense_rows ? a.dense_rows : segment_at<BLOCK_ROWS>(a, first + BLOCKS_A_TILE).row;
    const bool whole = row + BLOCK_ROWS * BLOCKS_A_TILE <= end;  // all blocks are there, and none is short
    tile.fetch(a, column, whole, row, BLOCK_ROWS * BLOCKS_A_TILE, [&](uint32_t i) {
        return first + i < a.segments ? segment_at<BLOCK_ROWS>(a, first + i) : Segment{0, 0};
    });
    const uint32_t group = threadIdx.x / 32, number = threadIdx.x % 32 / 4, word = 4 * group + threadIdx.x % 4;
    clear_masks(masks[group]);
    wait_copies();
    __syncthreads();
    if (column + 32 * group >= a.k) return;
    Block block = {number, group, word, BLOCK_ROWS * number, 0, 0, 0};
    uint32_t w[32], some = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) w[i] = tile.row(block.row)[i * BlocksTile::pitch + word];
    to_planes(w);
#pragma unroll
    for (int c = 0; c < 24; ++c) some |= w[c];
    some |= __shfl_xor_sync(~0u, some, 1);
    some |= __shfl_xor_sync(~0u, some, 2);
    const BlockRows rows = find_rows<amax ? DEPTHS : MAX_DEPTHS>(tile, block, some, masks[group][number]);
    if (first + number >= a.segments) return;  // no lane needs another from here on
    Table bytes = {~0u, ~0u};
    if (rows.nan) {
#pragma unroll
        for (int i = 0; i < 32; ++i) w[i] = 0;
    }
    const bool found = rows.nan || turn_planes<amax>(masks[group][number].depths(), rows.top, w, bytes);
    const Segment at = segment_at<BLOCK_ROWS>(a, first + number);
    const offset_t out_column = column + 8 * word;
    block.rows = at.rows;
    block.segment = a.first_segment + first + number;
    block.out = out_column * a.out_stride + at.row / 2;
    if (found) {
        to_columns(w);
        store_block(a, block, w);
    } else {
        bytes = turn_any(a, tile, block);
    }
    uint32_t* to = reinterpret_cast<uint32_t*>(a.out_scales + block.segment * a.k + out_column);
    to[0] = bytes.low;
    to[1] = bytes.high;
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
