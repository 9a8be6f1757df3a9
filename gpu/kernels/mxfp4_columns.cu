// Row-wise MXFP4 -> column-wise MXFP4, blocks of 32 rows x 1 column (clause N9). A CTA has eight blocks of rows at a time, of
// any experts; a warp has 32 columns of them; a thread has a block of rows and eight columns to itself, so that the maxima
// of a column never leave it. Where blocks begin anywhere (RAGGED), `max` has windows (mxfp4_windows.cuh). For `amax` a thread
// has its rows by their numbers modulo 32: what it makes of them lies in its columns' words as it is, in one place of sixteen
// bytes or two. Warps put places together in shared memory and store what sectors of 64 rows they have; the rest waits for the
// next eight blocks of the strip.
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
    store_scales(a, now.number, tile.column + 8 * own.word, bytes);
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

constexpr int SECTOR = 2 * LINE, PLACES = 8 + SECTOR / 32;  // rows of 32 bytes of a column; places of sixteen bytes that blocks meet

// The first `count` of four bytes.
__device__ __forceinline__ uint32_t first_bytes(uint32_t count) { return (1u << 8 * count) - 1; }

// A warp's columns from a multiple of 64 rows on.
struct Staged {
    static constexpr int pitch = 4 * PLACES;
    __align__(16) uint32_t words[32 * pitch];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (uint32_t i = threadIdx.x % 32 * 4; i < 32 * pitch; i += 128) {
            *reinterpret_cast<uint4*>(words + i) = make_uint4(0, 0, 0, 0);
        }
        __syncwarp();
    }

    // A thread's block, whose first row lies `first` rows behind the words'. A word is written by the block that has its
    // first byte; others that begin in it add theirs.
    __device__ __forceinline__ void put(const Segment& now, int32_t base, uint32_t (&w)[32]) {
        const uint32_t lane = threadIdx.x % 4, start = (uint32_t)now.first % 32, split = start % 8 / 2;
        uint32_t* to = words + 8 * lane * pitch + ((now.first & -32) - base) / 8;
#pragma unroll
        for (int c = 0; c < 8; ++c) turn_words(lane, w[c], w[8 + c], w[16 + c], w[24 + c]);
#pragma unroll
        for (uint32_t t = 0; t < 4; ++t) {
            const uint32_t k = (t + lane) % 4, keep = split && k == start / 8 ? first_bytes(split) : ~0u;
            const bool below = 8 * k < start;
            if ((now.first & -32) + (int32_t)(8 * k) + (below ? 32 : 0) >= now.end) continue;
#pragma unroll
            for (int c = 0; c < 8; ++c) to[c * pitch + k + (below ? 4 : 0)] = w[8 * t + c] & keep;
        }
        __syncwarp();
        if (split && now.first >= 0 && now.first < now.end) {
            const uint32_t k = start / 8, t = (k - lane) % 4;
#pragma unroll
            for (int c = 0; c < 8; ++c) {
                const uint32_t low = t & 1 ? w[8 + c] : w[c], high = t & 1 ? w[24 + c] : w[16 + c];
                atomicOr(to + c * pitch + k, (t & 2 ? high : low) & ~first_bytes(split));
            }
        }
        __syncwarp();
    }

    // Nothing but zeros from `row` on, whose word holds zeros behind it.
    __device__ __forceinline__ void clear_behind(int32_t row) {
        uint32_t* column = words + threadIdx.x % 32 * pitch;
        for (int32_t i = (row + 7) / 8; i < pitch; ++i) column[i] = 0;
        __syncwarp();
    }

    // Rows up to `end`, of which those from 0 to `rows` - 1 are the strip's.
    __device__ __forceinline__ void store(const ColumnArguments& a, const ColumnTile& tile, uint32_t group, int32_t base,
                                          int32_t end) const {
        const uint32_t lane = threadIdx.x % 32;
#pragma unroll 1
        for (int32_t row = base + 32 * (int32_t)(lane % 8); row < end; row += 256) {
            if (row < 0) continue;
            uint8_t* to = a.out + (tile.column + 32 * group + lane / 8) * a.out_stride + (tile.row + row) / 2;
            const uint32_t* from = words + lane / 8 * pitch + (row - base) / 8;
#pragma unroll
            for (int i = 0; i < 8; ++i, to += 4 * a.out_stride, from += 4 * pitch) {
                const uint4 four = *reinterpret_cast<const uint4*>(from);
                const uint32_t w[4] = {four.x, four.y, four.z, four.w};
                if (a.vector == 16) refnum::store<16>(to, w);
                else store_some(to, four, ((int32_t)tile.rows - row) / 2, a.vector);
            }
        }
        __syncwarp();
    }

    // What lies `rows` behind the first row comes to the front: a sector.
    __device__ __forceinline__ void move(int32_t rows) {
        uint4* column = reinterpret_cast<uint4*>(words + threadIdx.x % 32 * pitch);
#pragma unroll
        for (int i = 0; i < SECTOR / 32; ++i) column[i] = column[rows / 32 + i];
        __syncwarp();
    }

private:
    // w[t] becomes w[(t + lane) % 4]: then the four lanes of a block write to different banks.
    static __device__ __forceinline__ void turn_words(uint32_t lane, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
        const uint32_t w[4] = {lane & 1 ? b : a, lane & 1 ? c : b, lane & 1 ? d : c, lane & 1 ? a : d};
        a = lane & 2 ? w[2] : w[0], b = lane & 2 ? w[3] : w[1], c = lane & 2 ? w[0] : w[2], d = lane & 2 ? w[1] : w[3];
    }
};

template <bool amax>
__device__ __forceinline__ void turn_strip(const ColumnArguments& a, const ColumnTile& tile, BlocksTile& rows,
                                           RowMasks (&masks)[SLOTS], Staged& staged, const Share& own) {
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    const bool exists = tile.column + 32 * own.group < a.k;
    Blocks s(a, tile);
    s.skip(own.slot);
    staged.clear();
    const auto fetch = [&] {
        if (__shfl_sync(~0u, s.now.first, 0) < (int32_t)tile.held) rows.fetch_slots(a, tile, s.now, own.row, keep);
    };
    if (AHEAD) fetch();
#pragma unroll 1
    while (true) {
        const Segment mine = s.now;
        const int32_t begin = __shfl_sync(~0u, mine.first, 0), end = __shfl_sync(~0u, mine.end, 31), base = begin & -SECTOR;
        if (begin >= (int32_t)tile.held) break;
        if (!AHEAD) fetch();
        clear_masks(masks);
        wait_copies();
        __syncthreads();
        uint32_t w[32];
        Table bytes = {0, 0};
        if (exists) bytes = turn_block<amax>(rows, own, masks[own.slot], w);
        __syncthreads();
        s.skip(SLOTS);
        if (AHEAD) fetch();
        if (!exists) continue;
        store_bytes(a, tile, mine, own, bytes);
        staged.put(mine, base, w);
        const bool all = end >= (int32_t)tile.held;
        if (all && end < (int32_t)tile.rows) staged.clear_behind(end - base);
        const int32_t known = all ? min((end + SECTOR - 1) & -SECTOR, (int32_t)tile.rows) : end & -SECTOR;
        staged.store(a, tile, own.group, base, min(known, (int32_t)tile.rows));
        if (known - base >= SECTOR && !all) staged.move(known - base);
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

}  // namespace refnum

#include "mxfp4_windows.cuh"

namespace refnum {

template <bool amax>
__device__ __forceinline__ void mxfp4_columns(const ColumnArguments& a) {
    __shared__ BlocksTile rows;
    __shared__ RowMasks masks[GROUPS][SLOTS];
    const ColumnTile tile = column_tile<HEIGHT>(a, blockIdx.x);
    if (tile.rows == 0) return;
    const uint32_t group = threadIdx.x / 32, slot = threadIdx.x % 32 / 4;
    const Share own = {slot, group, 4 * group + threadIdx.x % 4, BLOCK_ROWS * slot};
    if constexpr (!amax && RAGGED && STRIP * HEIGHT == BLOCK_ROWS * SLOTS) {
        __shared__ Tops tops[GROUPS];
        turn_window(a, tile, rows, masks[group], tops[group], own);
    } else {
        __shared__ Staged staged[GROUPS];
        turn_strip<amax>(a, tile, rows, masks[group], staged[group], own);
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
