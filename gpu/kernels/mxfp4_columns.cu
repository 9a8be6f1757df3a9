// Row-wise MXFP4 -> column-wise MXFP4, blocks of 32 rows x 1 column (clause N9). A CTA has eight blocks of rows at a time, of
// any experts; a warp has 32 columns of them; a thread has a block of rows and eight columns to itself, so that the maxima
// of a column never leave it. Where blocks begin anywhere (RAGGED), a thread has its rows by their numbers modulo 32: what
// it makes of them lies in its columns' words as it is, in one place of sixteen bytes or two. Warps put places together
// in shared memory and store what sectors of 64 rows they have; the rest waits for the next eight blocks of the strip.
#include "bit_planes.cuh"
#include "mxfp4_columns.cuh"
#include "mxfp4_tile.cuh"

namespace refnum {

constexpr int BLOCK_ROWS = 32, SLOTS = 8, HEIGHT = RAGGED ? 64 : BLOCK_ROWS * SLOTS;  // HEIGHT: of a window
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

__device__ __forceinline__ void store_bytes(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                            const Share& own, Table bytes) {
    if (now.first < 0 || now.first >= now.end) return;
    store_scales(a, now.number, tile.column + 8 * own.word, bytes.low);
    store_scales(a, now.number, tile.column + 8 * own.word + 4, bytes.high);
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

#if RAGGED

constexpr int SECTOR = 2 * LINE, CARRIED = SECTOR / 32;  // rows of a column that are stored at a time; their places of sixteen bytes

// Bytes 0 to i - 1 of sixteen, for every i.
struct FirstBytes {
    uint4 of[17];

    __device__ __forceinline__ void fill() {
        for (uint32_t i = threadIdx.x; i < 17 * 16; i += WIDE) {
            reinterpret_cast<uint8_t*>(of)[i] = i % 16 < i / 16 ? 0xFF : 0;
        }
    }
};

__device__ __forceinline__ uint4 choose(const uint4& a, const uint4& b, const uint4& mask) {
    return make_uint4(choose(a.x, b.x, mask.x), choose(a.y, b.y, mask.y), choose(a.z, b.z, mask.z), choose(a.w, b.w, mask.w));
}

// A warp's columns on their way out: the turned blocks, which take the place of the codes, and the places of sixteen bytes
// from `base` on that blocks filled in part before.
struct Outgoing {
    BlocksTile& tile;
    uint4 (&carried)[CARRIED][32];
    const FirstBytes& masks;

    // Column c of packed word `word` of a slot: eight lanes of neighbouring words and slots lie in different banks.
    __device__ __forceinline__ uint4& turned(const Share& own, uint32_t slot, uint32_t word, uint32_t c) {
        return tile.block(32 * (word + 4 * (slot & 1)) + slot / 2 + 4 * c, own.group);
    }
    __device__ __forceinline__ const uint4& before(const Segment& now, int32_t row) const {
        return masks.of[now.first > row ? (now.first - row) / 2 : 0];
    }
    static __device__ __forceinline__ Segment broadcast(const Segment& mine, uint32_t lane) {
        return {__shfl_sync(~0u, mine.first, lane), __shfl_sync(~0u, mine.end, lane), 0};
    }

    __device__ __forceinline__ void put(const Share& own, const uint32_t (&w)[32]) {
        __syncwarp();
#pragma unroll
        for (uint32_t c = 0; c < 8; ++c) {
            turned(own, own.slot, own.word % 4, c) = make_uint4(w[c], w[8 + c], w[16 + c], w[24 + c]);
        }
        __syncwarp();
    }

    // Stores the places from `base` to `known`, of which the strip has those from 0 on; `end`: of all blocks.
    __device__ __forceinline__ void store(const ColumnArguments& a, const ColumnTile& to, const Share& own,
                                          const Segment& mine, int32_t base, int32_t known, int32_t end) {
#pragma unroll 1
        for (int32_t first = base; first < known; first += 32 * SLOTS) {
            const int32_t row = first + 32 * (int32_t)own.slot;
            uint32_t meets = 0;
#pragma unroll
            for (uint32_t q = 0; q < SLOTS; ++q) {
                const int32_t place = first + 32 * (int32_t)q;
                const uint32_t them = __ballot_sync(~0u, mine.first < place + 32 && mine.end > place);
                meets = own.slot == q ? them & 0x11111111u : meets;
            }
            const uint32_t first_lane = meets ? __ffs((int)meets) - 1 : 0, place = (uint32_t)(row - base) / 32;
            const Segment begins = broadcast(mine, first_lane);
            const bool whole = meets && begins.first <= row;
            const uint4* from = whole ? &turned(own, first_lane / 4, own.word % 4, 0)
                                      : &carried[min(place, (uint32_t)CARRIED - 1)][own.word % 4];
            const uint32_t step = whole ? BlocksTile::pitch : 4;
            uint4 out[8];
#pragma unroll
            for (uint32_t c = 0; c < 8; ++c) out[c] = from[c * step];
            if (whole) meets &= meets - 1;
#pragma unroll 1
            while (__any_sync(~0u, meets != 0)) {
                const uint32_t lane = meets ? __ffs((int)meets) - 1 : 0;
                const Segment now = broadcast(mine, lane);
                const uint4 mask = meets ? before(now, row) : masks.of[16];
                from = &turned(own, lane / 4, own.word % 4, 0);
#pragma unroll
                for (uint32_t c = 0; c < 8; ++c) out[c] = choose(out[c], from[c * BlocksTile::pitch], mask);
                meets &= meets - 1;
            }
            if (known > end) {
                const uint4 mask = masks.of[max(min(end - row, 32), 0) / 2];
#pragma unroll
                for (uint32_t c = 0; c < 8; ++c) out[c] = choose(out[c], make_uint4(0, 0, 0, 0), mask);
            }
            if (row < 0 || row >= known) continue;
            uint8_t* column = a.out + (to.column + 8 * own.word) * a.out_stride + (to.row + row) / 2;
            if (a.vector == 16) {
#pragma unroll
                for (uint32_t c = 0; c < 8; ++c, column += a.out_stride) {
                    const uint32_t w[4] = {out[c].x, out[c].y, out[c].z, out[c].w};
                    refnum::store<16>(column, w);
                }
                continue;
            }
#pragma unroll
            for (uint32_t c = 0; c < 8; ++c, column += a.out_stride) {
                store_some(column, out[c], ((int32_t)to.rows - row) / 2, a.vector);
            }
        }
    }

    // Keeps the places from `known` to `end`; `fresh`: whether none of them has been kept before.
    __device__ __forceinline__ void keep(const Share& own, const Segment& mine, int32_t known, int32_t end, bool fresh) {
        const uint32_t lane = threadIdx.x % 32;
        __syncwarp();
#pragma unroll
        for (int32_t i = 0; i < CARRIED; ++i) {
            const int32_t row = known + 32 * i;
            if (row >= end) break;
            uint4 out = fresh ? make_uint4(0, 0, 0, 0) : carried[i][lane];
            uint32_t meets = __ballot_sync(~0u, mine.first < row + 32 && mine.end > row) & 0x11111111u;
#pragma unroll 1
            for (; meets; meets &= meets - 1) {
                const uint32_t from = __ffs((int)meets) - 1;
                out = choose(out, turned(own, from / 4, lane % 4, lane / 4), before(broadcast(mine, from), row));
            }
            carried[i][lane] = out;
        }
        __syncwarp();
    }
};

struct Staged {
    uint4 carried[GROUPS][CARRIED][32];
    FirstBytes masks;
};

}  // namespace refnum
#include "mxfp4_windows.cuh"
namespace refnum {

template <bool amax>
__device__ __forceinline__ void turn_strip(const ColumnArguments& a, const ColumnTile& tile, BlocksTile& rows,
                                           RowMasks (&masks)[SLOTS], Staged& staged, const Share& own) {
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    const bool exists = tile.column + 32 * own.group < a.k;
    Blocks s(a, tile);
    int32_t base = s.now.first & -SECTOR;
    staged.masks.fill();
    Outgoing out = {rows, staged.carried[own.group], staged.masks};
#pragma unroll
    for (int i = 0; i < CARRIED; ++i) out.carried[i][threadIdx.x % 32] = make_uint4(0, 0, 0, 0);
    s.skip(own.slot);
#pragma unroll 1
    while (__shfl_sync(~0u, (int)s.some(), 0)) {
        const Segment mine = s.now;
        rows.fetch_blocks(a, tile, mine, keep);
        s.skip(SLOTS);
        clear_masks(masks);
        const int32_t end = __reduce_max_sync(~0u, mine.end);
        wait_copies();
        __syncthreads();
        if (exists) {
            uint32_t w[32];
            const Table bytes = turn_block<amax>(rows, own, masks[own.slot], w);
            store_bytes(a, tile, mine, own, bytes);
            out.put(own, w);
            const bool all = end >= (int32_t)tile.held;
            const int32_t known = all ? min((end + SECTOR - 1) & -SECTOR, (int32_t)tile.rows) : end & -SECTOR;
            out.store(a, tile, own, mine, base, known, end);
            if (!all) out.keep(own, mine, known, end, known != base);
            base = known;
        }
        __syncthreads();
    }
    if (tile.held < tile.rows) clear_rows<WIDE, 2>(a, tile, ((int32_t)tile.held + SECTOR - 1) & -SECTOR);
}

#else

struct Staged {};

template <bool amax>
__device__ __forceinline__ void turn_strip(const ColumnArguments& a, const ColumnTile& tile, BlocksTile& rows,
                                           RowMasks (&masks)[SLOTS], Staged&, const Share& own) {
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
    store_bytes(a, tile, {(int32_t)own.row, (int32_t)tile.rows, SLOTS * tile.window + own.slot}, own, bytes);
}

#endif

template <bool amax>
__device__ __forceinline__ void mxfp4_columns(const ColumnArguments& a) {
    __shared__ BlocksTile rows;
    __shared__ RowMasks masks[GROUPS][SLOTS];
    const ColumnTile tile = column_tile<HEIGHT>(a);
    if (tile.rows == 0) return;
    const uint32_t group = threadIdx.x / 32, slot = threadIdx.x % 32 / 4;
    const Share own = {slot, group, 4 * group + threadIdx.x % 4, BLOCK_ROWS * slot};
#if RAGGED
    if constexpr (STRIP * HEIGHT == BLOCK_ROWS * SLOTS) {
        __shared__ WindowBlocks<amax> blocks[GROUPS];
        return turn_window<amax>(a, tile, rows, masks[group], blocks[group], own);
    } else {
#endif
    __shared__ Staged staged;
    turn_strip<amax>(a, tile, rows, masks[group], staged, own);
#if RAGGED
    }
#endif
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(WIDE, BLOCKS) void mxfp4_columns_max(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_columns<false>(a);
}
#if !RAGGED || WIDE == 128  // strips of more columns take more memory than a CTA has
extern "C" __global__ __launch_bounds__(WIDE, BLOCKS) void mxfp4_columns_amax(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_columns<true>(a);
}
#endif
