// Row-wise MXFP4 -> column-wise MXFP4, blocks of 32 rows x 1 column (clause N9). A CTA has eight blocks of rows, of any
// experts; a warp has 32 columns of them; a thread has a block of rows and eight columns to itself, so that the maxima
// of a column never leave it.
#include "mxfp4_columns.cuh"
#include "mxfp4_tile.cuh"

namespace refnum {

constexpr int BLOCK_ROWS = 32, BLOCKS_A_TILE = 8;
typedef PackedTile<BLOCK_ROWS * BLOCKS_A_TILE, BLOCK_ROWS> BlocksTile;
typedef RowTables<BLOCK_ROWS * BLOCKS_A_TILE, BLOCK_ROWS> BlocksTables;

struct Block {  // of rows, and eight columns of it
    uint32_t number, group, word, row, rows;
    offset_t segment, out;  // of the first row and column, in bytes
};

// Base of a block's rows and how it is turned.
enum How : uint32_t { BY_HALVES = 0, BY_ANY = 1, NAN_BLOCK = 2 };
struct BlockRows {
    uint32_t base, high, how;
};

// All lanes have a row of each block in turn; what lane holds block `mine` keeps what is found of it.
template <bool amax>
__device__ __forceinline__ BlockRows block_tables(BlocksTile& tile, uint32_t group, uint32_t mine,
                                                  BlocksTables& tables) {
    BlockRows out = {0, 0, BY_HALVES};
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll 2
    for (uint32_t i = 0; i < BLOCKS_A_TILE; ++i) {
        uint32_t part[1], byte[1];
        block_parts<1>(tile, group, BLOCK_ROWS * i, part, byte);
        GroupParts all = group_parts(part, byte);
        // `max`: a row more than five binades below the byte gives zeros, and the byte is the same for all columns
        if (!amax && all.high > all.low + ToE2M1::spread) all.low = all.high - ToE2M1::spread;
        const Table none = {0, 0};
        tables[BLOCK_ROWS * i + lane] = part[0] >= all.low && part[0] ? half_bytes(part[0] - all.low) : none;
        if (all.nan) tile.block(BLOCK_ROWS * i + lane, group) = make_uint4(0, 0, 0, 0);
        if (i != mine) continue;
        out.base = all.high ? all.low - 1 : 0;
        out.high = all.high;
        out.how = all.nan ? NAN_BLOCK : all.high > all.low + ToE2M1::spread ? BY_ANY : BY_HALVES;
    }
    __syncwarp();
    return out;
}

template <bool amax>
__device__ __forceinline__ ColumnScales block_scales(BlocksTile& tile, BlocksTables& tables, const Block& block,
                                                     const BlockRows& rows) {
    HalfMaxima most = {};
    if (amax) {
#pragma unroll 4
        for (int i = 0; i < BLOCK_ROWS; i += 2) {
            const uint32_t row = block.row + i;
            raise_halves(most, row_halves(tile.row(row)[block.word], tables[row]),
                         row_halves(tile.row(row + 1)[block.word], tables[row + 1]));
        }
    } else if (rows.high) {
#pragma unroll
        for (int j = 0; j < 4; ++j) most.w[j] = group_maximum(rows.high - 1 - rows.base);
    }
    return column_scales<ToE2M1>(most, rows.base);
}

// Eight columns of four packed words: a 4x4 transpose of bytes for every four columns and eight rows.
__device__ __forceinline__ void turn_block(BlocksTile& tile, BlocksTables& tables, const Block& block,
                                           const ColumnScales& scales, uint32_t (&out)[8][4]) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t even[4], odd[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32_t words[2][2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t row = block.row + 8 * q + 2 * i + h, packed = tile.row(row)[block.word];
                column_words<ToE2M1>(packed, row_halves(packed, tables[row]), scales.power, words[h][0], words[h][1]);
            }
            even[i] = join_rows(words[0][0], words[1][0]);
            odd[i] = join_rows(words[0][1], words[1][1]);
        }
        transpose_bytes(even);
        transpose_bytes(odd);
#pragma unroll
        for (int i = 0; i < 4; ++i) out[2 * i][q] = even[i], out[2 * i + 1][q] = odd[i];
    }
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

__device__ __forceinline__ void store_block(const ColumnArguments& a, const Block& block,
                                            const uint32_t (&out)[8][4]) {
    uint8_t* to = a.out + block.out;
    if (a.vector == 16 && block.rows == BLOCK_ROWS) {
#pragma unroll
        for (int j = 0; j < 8; ++j, to += a.out_stride) store<16>(to, out[j]);
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j, to += a.out_stride) {
        store_some(to, make_uint4(out[j][0], out[j][1], out[j][2], out[j][3]), (int32_t)block.rows / 2, a.vector);
    }
}

template <bool amax>
__device__ __forceinline__ void mxfp4_columns(const ColumnArguments& a) {
    __shared__ BlocksTile tile;
    __shared__ BlocksTables tables[GROUPS];
    const uint32_t first = blockIdx.x / ACROSS * BLOCKS_A_TILE, stripe = blockIdx.y * ACROSS + blockIdx.x % ACROSS;
    if (stripe >= a.tiles) return;
    const offset_t column = (offset_t)stripe * WIDE;
    tile.fetch(a, column, [&](uint32_t i) {
        return first + i < a.segments ? segment_at<BLOCK_ROWS>(a, first + i) : Segment{0, 0};
    });
    wait_copies();
    __syncthreads();
    const uint32_t group = threadIdx.x / 32, number = threadIdx.x % 32 / 4;
    if (column + 32 * group >= a.k) return;
    const BlockRows rows = block_tables<amax>(tile, group, number, tables[group]);
    if (first + number >= a.segments) return;  // no lane needs another from here on
    const Segment at = segment_at<BLOCK_ROWS>(a, first + number);
    const uint32_t word = 4 * group + threadIdx.x % 4;
    const offset_t out_column = column + 8 * word;
    const Block block = {number, group, word, BLOCK_ROWS * number, at.rows, a.first_segment + first + number,
                         out_column * a.out_stride + at.row / 2};
    Table bytes;
    if (amax && rows.how == BY_ANY) {
        bytes = turn_any(a, tile, block);
    } else {
        const ColumnScales scales = block_scales<amax>(tile, tables[group], block, rows);
        uint32_t out[8][4];
        turn_block(tile, tables[group], block, scales, out);
        store_block(a, block, out);
        bytes = scale_bytes(scales);
    }
    const uint32_t nan = rows.how == NAN_BLOCK ? ~0u : 0;
    uint32_t* to = reinterpret_cast<uint32_t*>(a.out_scales + block.segment * a.k + out_column);
    to[0] = bytes.low | nan;
    to[1] = bytes.high | nan;
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
