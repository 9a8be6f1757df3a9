// Row-wise MXFP4 -> column-wise MXFP4, blocks of 32 rows x 1 column (clause N9). A CTA has a window of 256 rows, a warp 32
// columns of them, a thread 32 rows of eight columns: one block of rows, or parts of two, or, the long way, of more. A
// block that two threads share gets the larger of what both find; what lies outside the window is read by the CTA.
#include "bit_planes.cuh"
#include "mxfp4_columns.cuh"
#include "mxfp4_tile.cuh"

namespace refnum {

constexpr int CHUNK = 32, CHUNKS = 8, WINDOW = CHUNK * CHUNKS;
typedef PackedTile<WINDOW, CHUNK, 0> WindowTile;
typedef Segments<WINDOW, CHUNK> Blocks;
typedef EdgeParts<HANDS / 2> BlockParts;  // fewer than 32 rows on a side
static_assert(TURNS == 1, "a thread has 32 rows");

// A thread's part of the window: 32 rows from `row` on, the columns of packed word `word`.
struct Share {
    uint32_t group, word, row;
};

struct RowMasks {  // of a thread's rows, by depth
    __align__(16) uint32_t of[HEADROOM + DEPTHS + 1];  // 44 keeps the masks of eight threads in different banks

    __device__ __forceinline__ uint32_t* depths() { return of + HEADROOM; }
};

__device__ __forceinline__ void clear_masks(RowMasks (&masks)[CHUNKS]) {
    constexpr uint32_t words = CHUNKS * (HEADROOM + DEPTHS + 1);
    static_assert(words % 4 == 0, "cleared by 16 bytes");
#pragma unroll
    for (uint32_t i = threadIdx.x % 32 * 4; i < words; i += 128) {
        *reinterpret_cast<uint4*>(masks[0].of + i) = make_uint4(0, 0, 0, 0);
    }
}

// What the four lanes of a chunk find together, of one block or of each of two: the largest byte of rows that are not all
// zeros (0 if there are none), and whether a row has no value.
struct BlockRows {
    uint32_t top;
    bool nan;
};
// Each lane has eight of the rows; `some` are the rows that are not all zeros, `first` those of the first block.
template <uint32_t depths, int blocks>
__device__ __forceinline__ void find_rows(WindowTile& tile, const Share& own, uint32_t some, uint32_t first,
                                          RowMasks& masks, BlockRows (&out)[blocks]) {
    const uint32_t start = threadIdx.x % 4 * 8;
    uint32_t byte[8], place[8], most[blocks] = {};
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
        const uint32_t row = start + (j + own.row / CHUNK) % 8;  // eight chunks in different banks
        byte[j] = tile.bytes[(own.row + row) * GROUPS + own.group];
        place[j] = 1u << plane_place(row);
        const uint32_t both = byte[j] << 16 | (some & place[j] ? byte[j] : 0);
#pragma unroll
        for (int i = 0; i < blocks; ++i) {
            const bool here = blocks == 1 || ((first & place[j]) != 0) == (i == 0);
            most[i] = max_lanes(most[i], here ? both : 0);
        }
    }
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
        most[i] = max_lanes(most[i], __shfl_xor_sync(~0u, most[i], 1));
        most[i] = max_lanes(most[i], __shfl_xor_sync(~0u, most[i], 2));
        out[i] = {most[i] & 0xFF, most[i] >> 16 == NAN_BYTE};
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        // few rows lie below `amax`'s depths: a word that nobody reads takes them, which costs less than a branch
        const uint32_t top = blocks == 1 || first & place[j] ? out[0].top : out[blocks - 1].top;
        const uint32_t depth = min(top - byte[j], depths);
        if (depths == DEPTHS || depth < depths) atomicOr(masks.depths() + depth, place[j]);
    }
    __syncwarp();
}

__device__ __forceinline__ uint8_t* column_at(const ColumnArguments& a, const ColumnTile& tile, const Share& own) {
    return a.out + (tile.column + 8 * own.word) * a.out_stride + (tile.row + own.row) / 2;
}

__device__ __forceinline__ void store_bytes(const ColumnArguments& a, const ColumnTile& tile, const Share& own,
                                            uint32_t segment, Table bytes) {
    store_scales(a, segment, tile.column + 8 * own.word, bytes.low);
    store_scales(a, segment, tile.column + 8 * own.word + 4, bytes.high);
}

// Any rows and blocks: rare, so short; reads all rows of every block that the thread's rows meet.
template <bool amax>
__device__ __forceinline__ void turn_any(const ColumnArguments& a, const ColumnTile& tile, const Share& own) {
    const offset_t column = tile.column + 8 * own.word, group = column / 32 * 32;
    const int32_t top = (int32_t)own.row, end = min(top + CHUNK, (int32_t)tile.rows);
    int32_t done = top;
#pragma unroll 1
    for (Blocks s(a, tile, top); s.some() && s.now.first < end; s.next()) {
        ColumnMaxima most[2] = {};
        uint32_t part = 0;
        bool nan = false;
#pragma unroll 1
        for (int32_t row = s.now.first; row < s.now.end; ++row) {
            const uint32_t byte = load_scale(a, tile.row + row, column);
            nan |= byte == NAN_BYTE;
            if (amax) {
                const Table table = column_part_table(byte, E2M1_EMAX);
                const uint32_t magnitudes = load_word(a, tile.row + row, column) & NIBBLE_MAGNITUDES;
                raise_maxima(most[0], look_up(table, magnitudes));
                raise_maxima(most[1], look_up(table, magnitudes >> 16));
            } else {
                uint32_t w[4];
                load<16>(a.x + (tile.row + row) * a.x_stride + group / 2, a.aligned & VECTORS, w);
                part = max(part, block_part_max(w, byte));
            }
        }
        const uint32_t shared = (part ? part - 1 : 0) * 0x01010101u;
        Table bytes = {amax ? column_bytes(column_parts(most[0]), 0) : shared,
                       amax ? column_bytes(column_parts(most[1]), 0) : shared};
        const ColumnBytes columns[2] = {negated_columns(bytes.low), negated_columns(bytes.high)};
        if (nan) bytes.low = bytes.high = ~0u;
        if (s.now.first >= top) store_bytes(a, tile, own, s.now.number, bytes);
        done = min(s.now.end, end);
#pragma unroll 1
        for (int32_t row = max(s.now.first, top); row < done; row += 2) {
            uint32_t nibbles[2][2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t packed[1] = {load_word(a, tile.row + row + h, column)};
                column_nibbles_amax(packed, load_scale(a, tile.row + row + h, column), columns, nibbles[h]);
            }
            const uint32_t pairs[2] = {nan ? 0 : join_rows(nibbles[0][0], nibbles[1][0]),
                                       nan ? 0 : join_rows(nibbles[0][1], nibbles[1][1])};
            uint8_t* to = column_at(a, tile, own) + (row - top) / 2;
#pragma unroll
            for (int c = 0; c < 8; ++c, to += a.out_stride) *to = (uint8_t)(pairs[c / 4] >> (8 * (c & 3)));
        }
    }
#pragma unroll 1
    for (int32_t row = done; row < end; row += 2) {  // rows of no expert
        uint8_t* to = column_at(a, tile, own) + (row - top) / 2;
        for (int c = 0; c < 8; ++c, to += a.out_stride) *to = 0;
    }
}

__device__ __forceinline__ void store_chunk(const ColumnArguments& a, const ColumnTile& tile, const Share& own,
                                            uint32_t (&w)[32]) {
    uint8_t* to = column_at(a, tile, own);
    const int32_t rows = (int32_t)tile.rows - (int32_t)own.row;
    if (rows <= 0) return;
    to_columns(w);
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

// One block, all of it here.
template <bool amax>
__device__ __forceinline__ void turn_alone(const ColumnArguments& a, const ColumnTile& tile, WindowTile& rows,
                                           const Share& own, uint32_t some, RowMasks& masks, uint32_t (&w)[32]) {
    BlockRows found[1];
    find_rows<amax ? DEPTHS : MAX_DEPTHS, 1>(rows, own, some, ~0u, masks, found);
    if (own.row >= tile.rows) return;  // no lane needs another from here on
    Table bytes = {~0u, ~0u};
    if (found[0].nan) {
#pragma unroll
        for (int i = 0; i < 32; ++i) w[i] = 0;
    }
    if (found[0].nan || turn_planes<amax>(masks.depths(), found[0].top, w, bytes)) {
        store_chunk(a, tile, own, w);
        store_bytes(a, tile, own, CHUNKS * tile.window + own.row / CHUNK, bytes);
    } else {
        turn_any<amax>(a, tile, own);
    }
}

#if RAGGED

// The byte that rows outside the window bring to a group of columns: 255 if one has no value; else `max`'s, 0 for `amax`.
template <bool amax>
__device__ __forceinline__ uint32_t edge_byte(const ColumnArguments& a, offset_t row, uint32_t count, offset_t column) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t own = 0;
    if (lane < count && column < a.k) {
        const uint32_t byte = load_scale(a, row + lane, column);
        if (!amax) {
            uint32_t w[4];
            load<16>(a.x + (row + lane) * a.x_stride + column / 2, a.aligned & VECTORS, w);
            own = is_empty(w) ? 0 : byte;
        }
        own = byte == NAN_BYTE ? byte : own;
    }
    return __reduce_max_sync(~0u, own);
}

__device__ __forceinline__ Table larger(Table a, Table b) {
    return {max_bytes(a.low, b.low), max_bytes(a.high, b.high)};
}
// Bytes from parts.
__device__ __forceinline__ uint32_t part_bytes(uint32_t parts) {
    const uint32_t even = subtract_to_zero(parts & 0x00FF00FFu, 0x00010001u);
    return even | subtract_to_zero(parts >> 8 & 0x00FF00FFu, 0x00010001u) << 8;
}

template <bool amax>
struct WindowEdges {
    uint32_t byte[2];  // of a warp's group
    Edges rows;

    __device__ __forceinline__ void find(const ColumnArguments& a, const ColumnTile& tile, const Edges& edges) {
        const offset_t column = tile.column + threadIdx.x / 32 * 32;
        rows = edges;
        byte[0] = edges.before ? edge_byte<amax>(a, tile.row - edges.before, edges.before, column) : 0;
        byte[1] = edges.behind ? edge_byte<amax>(a, tile.row + WINDOW, edges.behind, column) : 0;
    }

    // Bytes of eight columns from the rows on one side.
    __device__ __forceinline__ Table of(int side, const BlockParts& parts, uint32_t word) const {
        Table out = {byte[side] * 0x01010101u, byte[side] * 0x01010101u};
        if (!amax || (side ? rows.behind : rows.before) == 0) return out;
        const Table more = parts.at(side, word);
        return larger(out, {part_bytes(more.low), part_bytes(more.high)});
    }
};

// The one or two blocks that a thread's rows meet: the rows of the first, numbers of those that begin here (else none),
// whether the first begins above and the last ends below. More than two are not `few`.
struct ChunkBlocks {
    uint32_t first, number[2];
    bool one, above, below, few;

    __device__ __forceinline__ ChunkBlocks(const ColumnArguments& a, const ColumnTile& tile, int32_t top) {
        Blocks at(a, tile, top);
        const int32_t end = min(top + CHUNK, at.held);
        const Segment early = at.now;
        if (early.end < end) at.next();
        one = early.end == at.now.end;
        first = one ? ~0u : rows_before((uint32_t)(early.end - top));
        number[0] = early.first < top ? ~0u : early.number;
        number[1] = one ? ~0u : at.now.number;
        above = early.first < top;
        below = at.now.end > top + CHUNK;
        few = top >= at.held || at.now.end >= end;
    }
};

// One or two blocks, or parts of them. False: nothing was stored, for a thread of the warp cannot.
template <bool amax>
__device__ __forceinline__ bool turn_two(const ColumnArguments& a, const ColumnTile& tile, WindowTile& rows,
                                         const Share& own, uint32_t some, RowMasks& masks,
                                         const WindowEdges<amax>& edges, const BlockParts& parts, uint32_t (&w)[32]) {
    const ChunkBlocks at(a, tile, (int32_t)own.row);
    BlockRows found[2];
    find_rows<amax ? DEPTHS : MAX_DEPTHS, 2>(rows, own, some, at.first, masks, found);
    const TwoBlocks blocks = {at.first, {found[0].top, found[1].top}};
    Table bytes[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) bytes[i].low = bytes[i].high = found[i].top * 0x01010101u;
    const bool here = !amax || find_bytes(masks.depths(), blocks, w, bytes);
    if (!__all_sync(~0u, here && at.few)) return false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (found[i].nan) bytes[i].low = bytes[i].high = ~0u;
    }
    // what the rows above and below bring to the blocks that they share
    const Table last = at.one ? bytes[0] : bytes[1];
    Table above = {__shfl_up_sync(~0u, last.low, 4), __shfl_up_sync(~0u, last.high, 4)};
    Table below = {__shfl_down_sync(~0u, bytes[0].low, 4), __shfl_down_sync(~0u, bytes[0].high, 4)};
    if (own.row == 0) above = edges.of(0, parts, own.word);
    if (own.row + CHUNK == WINDOW) below = edges.of(1, parts, own.word);
    if (at.above) bytes[0] = larger(bytes[0], above);
    if (at.below && at.one) bytes[0] = larger(bytes[0], below);
    if (at.below && !at.one) bytes[1] = larger(bytes[1], below);
    store_bytes(a, tile, own, at.number[0], bytes[0]);
    store_bytes(a, tile, own, at.number[1], bytes[1]);
    turn_two<amax>(masks.depths(), blocks, w, bytes);
    const bool nan[2] = {bytes[0].low == ~0u, bytes[1].low == ~0u};
    if (nan[0] || nan[1]) {
        const uint32_t keep = (nan[0] ? 0 : blocks.first) | (nan[1] ? 0 : ~blocks.first);
#pragma unroll
        for (int i = 0; i < 32; ++i) w[i] &= keep;
    }
    store_chunk(a, tile, own, w);
    return true;
}

#endif

template <bool amax>
__device__ __forceinline__ void mxfp4_columns(const ColumnArguments& a) {
    __shared__ WindowTile rows;
    __shared__ RowMasks masks[GROUPS][CHUNKS];
#if RAGGED
    __shared__ BlockParts parts;
#endif
    const ColumnTile tile = column_tile<WINDOW>(a);
    if (tile.rows == 0) return;
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    rows.fetch(a, tile.column, tile.row, tile.held, keep);
    const uint32_t group = threadIdx.x / 32, number = threadIdx.x % 32 / 4;
    clear_masks(masks[group]);
#if RAGGED
    const Edges outside = window_edges<WINDOW, CHUNK>(a, tile);
    WindowEdges<amax> edges;
    edges.find(a, tile, outside);
    if (amax && outside.some()) {
        const uint32_t side = threadIdx.x / WORDS / (HANDS / 2), hand = threadIdx.x / WORDS % (HANDS / 2);
        const offset_t first = side ? tile.row + WINDOW : tile.row - outside.before;
        parts.find<E2M1_EMAX>(a, side, hand, first, side ? outside.behind : outside.before, tile.column);
        __syncthreads();
        parts.join();
    }
#endif
    wait_copies();
    __syncthreads();
    if (tile.column + 32 * group >= a.k) return;
    const Share own = {group, 4 * group + threadIdx.x % 4, CHUNK * number};
    uint32_t w[32], some = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) w[i] = rows.row(own.row)[i * WindowTile::pitch + own.word];
    to_planes(w);
#pragma unroll
    for (int c = 0; c < 24; ++c) some |= w[c];
    some |= __shfl_xor_sync(~0u, some, 1);
    some |= __shfl_xor_sync(~0u, some, 2);
#if RAGGED
    if (!turn_two<amax>(a, tile, rows, own, some, masks[group][number], edges, parts, w)) turn_any<amax>(a, tile, own);
#else
    turn_alone<amax>(a, tile, rows, own, some, masks[group][number], w);
#endif
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
