// MXFP4 to MXFP4 columns where blocks begin anywhere (clause N9): windows of 256 rows, 32 of them and eight columns a thread.
// Device only.
//
// What a code becomes depends on how far its row's byte lies below its column's, and the bytes of rows and columns are those of
// their blocks. So a thread turns its rows as if they were one block, only that each block's rows are told apart by masks. What
// the threads find of a block they put together in shared memory (`WindowBlocks`); rows outside the window that belong to its
// first or last block are read beside it.
#pragma once

namespace refnum {

constexpr uint32_t NONE = 1u << 16;     // the byte of a block without values
constexpr uint32_t MOST_BLOCKS = BLOCK_ROWS * SLOTS / 2 + 2, MOST_FOUND = 40;

// The blocks that meet a window, in order: largest bytes; `amax`: what eight columns reach, later how far their bytes lie below
// the largest.
template <bool amax>
struct WindowBlocks {
    uint32_t top[MOST_BLOCKS];
    Reached columns[amax ? MOST_FOUND : 1][4];
    int32_t first[amax ? MOST_FOUND + 1 : 1];  // rows
};

// Blocks that meet a thread's 32 rows, from row `row` on.
struct Starts {
    uint32_t number = 0, bits = 0;  // of the block that has the first row; the rows in which blocks begin

    __device__ __forceinline__ Starts(const ColumnArguments& a, const ColumnTile& tile, int32_t row) {
        Blocks s(a, tile, row);
        if (s.some()) number = s.now.number;
        for (; s.some() && s.now.first < row + BLOCK_ROWS; s.next()) bits |= s.now.first < row ? 0 : 1u << (s.now.first - row);
    }
    // The number of the block that has a row.
    __device__ __forceinline__ uint32_t block(uint32_t row) const { return number + __popc(bits & ((2u << row) - 1)) - (bits & 1); }
};

// What a row brings to its block: its byte unless it is all zeros, NONE if it has no values.
__device__ __forceinline__ uint32_t row_key(uint32_t byte, bool some) { return byte == NAN_BYTE ? NONE : some ? byte : 0; }

// A lane's row outside the window: the columns of a group.
struct EdgeRow {
    uint32_t w[4] = {0, 0, 0, 0}, byte = 0;

    __device__ __forceinline__ EdgeRow(const ColumnArguments& a, const ColumnTile& tile, uint32_t group, int32_t row, bool exists) {
        if (!exists) return;
        load<16>(a.x + (tile.row + row) * a.x_stride + (tile.column / 2 + 16 * group), a.aligned & VECTORS, w);
        byte = load_byte(a.scales + (tile.row + row) * a.scale_stride + tile.column / 32 + group);
    }
    __device__ __forceinline__ uint32_t key() const { return row_key(byte, !is_empty(w)); }
};

// Bytes of a lane's eight rows, from row `first` on.
__device__ __forceinline__ void load_bytes(const BlocksTile& rows, uint32_t group, uint32_t first, uint32_t (&byte)[8]) {
    const uint4* from = reinterpret_cast<const uint4*>(rows.bytes + first * GROUPS);
#pragma unroll
    for (int i = 0; i < GROUPS / 2; ++i) {
        const uint32_t words[4] = {from[i].x, from[i].y, from[i].z, from[i].w};
#pragma unroll
        for (int j = 0; j < 16 / GROUPS; ++j) {
            const uint32_t word = GROUPS == 8 ? (group < 4 ? words[2 * j] : words[2 * j + 1]) : words[j];
            byte[16 / GROUPS * i + j] = word >> 8 * (group % 4) & 0xFF;
        }
    }
}

// What the lanes' edge rows reach, joined to their block's.
__device__ __forceinline__ void reach_edge(const EdgeRow& edge, uint32_t top, Reached (&to)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        Reached own = reach(edge.w[i], top - edge.byte);
        own.depths = __reduce_or_sync(~0u, own.depths), own.some = __reduce_or_sync(~0u, own.some);
        if (threadIdx.x % 32 == 0) atomicOr(&to[i].depths, own.depths), atomicOr(&to[i].some, own.some);
    }
}

// A block's columns by bytes, a lane each: binades from its largest byte, to its place in `to`. True: elements lie too deep for
// masks of rows.
__device__ __forceinline__ bool find_columns(const ColumnArguments& a, const ColumnTile& tile, BlocksTile& rows,
                                             uint32_t group, int32_t first, int32_t end, uint32_t top, Reached (&to)[4]) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t most = 0;
#pragma unroll 1
    for (int32_t row = first; row < end; ++row) {
        const bool inside = row >= 0 && row < BLOCK_ROWS * SLOTS;
        uint32_t byte, code;
        if (inside) {
            byte = rows.bytes[row * GROUPS + group], code = rows.row(row)[4 * group + lane / 8] >> 4 * (lane % 8);
        } else {
            const offset_t at = tile.row + row;
            byte = load_byte(a.scales + at * a.scale_stride + tile.column / 32 + group);
            code = load_byte(a.x + at * a.x_stride + tile.column / 2 + 16 * group + lane / 2) >> 4 * (lane % 2);
        }
        const Table table = column_part_table(byte, E2M1_EMAX);
        most = max(most, (code & 4 ? table.high : table.low) >> 8 * (code & 3) & 0xFF);
    }
    const uint32_t below = top - column_byte(most, 0);
    reinterpret_cast<uint8_t*>(to)[lane] = (uint8_t)below;
    return most != 0 && below > DEEPEST;
}

// `amax`, blocks whose columns lie too deep, or too many blocks: a thread's rows by bytes, block after block. Rare, so short.
__device__ __forceinline__ void turn_slowly(const ColumnArguments& a, const ColumnTile& tile, const Share& own, uint32_t (&w)[32]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) w[i] = 0;
    const int32_t begin = (int32_t)own.row;
    const offset_t column = tile.column / 2 + 4 * own.word;
    if (begin >= (int32_t)tile.held) return;
#pragma unroll 1
    for (Blocks s(a, tile, begin); s.some() && s.now.first < begin + BLOCK_ROWS; s.next()) {
        ColumnMaxima most[2] = {};
        bool none = false;
#pragma unroll 1
        for (int32_t row = s.now.first; row < s.now.end; ++row) {
            const uint32_t byte = load_byte(a.scales + (tile.row + row) * a.scale_stride + tile.column / 32 + own.group);
            uint32_t packed;
            load<4>(a.x + (tile.row + row) * a.x_stride + column, a.aligned & VECTORS, &packed);
            const Table table = column_part_table(byte, E2M1_EMAX);
            raise_maxima(most[0], look_up(table, packed & NIBBLE_MAGNITUDES));
            raise_maxima(most[1], look_up(table, (packed & NIBBLE_MAGNITUDES) >> 16));
            none = none || byte == NAN_BYTE;
        }
        Table bytes = {column_bytes(column_parts(most[0]), 0), column_bytes(column_parts(most[1]), 0)};
        if (none) bytes = {~0u, ~0u};
        const ColumnBytes columns[2] = {negated_columns(bytes.low), negated_columns(bytes.high)};
        if (s.now.first >= begin) {
            store_scales(a, s.now.number, tile.column + 8 * own.word, bytes.low);
            store_scales(a, s.now.number, tile.column + 8 * own.word + 4, bytes.high);
        }
        const int32_t from = max(s.now.first, begin), end = min(s.now.end, begin + BLOCK_ROWS);
#pragma unroll 1
        for (int32_t row = from; row < end && !none; ++row) {
            uint32_t packed[1], nibbles[2];
            load<4>(a.x + (tile.row + row) * a.x_stride + column, a.aligned & VECTORS, packed);
            column_nibbles_amax(packed, load_byte(a.scales + (tile.row + row) * a.scale_stride + tile.column / 32 + own.group),
                                columns, nibbles);
            const uint32_t place = row - begin, shift = 4 * (place % 8);
#pragma unroll
            for (uint32_t i = 0; i < 32; ++i) {  // registers have no addresses
                const uint32_t code = nibbles[i % 8 / 4] >> (8 * (i % 4) + 4) & 0xF;
                w[i] |= i / 8 == place / 8 ? code << shift : 0;
            }
        }
    }
}

// Planes of a thread's rows under their columns' bytes; `first` is the index of the block that has its first row.
__device__ __forceinline__ void turn_rows(const uint32_t* masks, const WindowBlocks<true>& blocks, const Starts& starts,
                                          uint32_t first, uint32_t (&w)[32]) {
    const uint32_t others = starts.bits & ~1u, lane = threadIdx.x % 4, end = others ? __ffs((int)others) - 1 : BLOCK_ROWS;
    const uint32_t rows_of_one = plane_rows(end), last = first + (others != 0);
    const Reached one = blocks.columns[first][lane], other = blocks.columns[last][lane];
    const uint32_t below[2][2] = {{one.depths, one.some}, {other.depths, other.some}};
    const bool more = __any_sync(~0u, (others & (others - 1)) != 0);
#pragma unroll
    for (int c = 0; c < 8; ++c) {
        const uint32_t* at = masks + NEAREST + min(below[0][c / 4] >> 8 * (c % 4) & 0xFF, DEEPEST);
        const uint32_t* beside = masks + NEAREST + min(below[1][c / 4] >> 8 * (c % 4) & 0xFF, DEEPEST);
        uint32_t rows[DISTANCES];
#pragma unroll
        for (int i = 0; i < DISTANCES; ++i) rows[i] = choose(at[i], beside[i], rows_of_one);
        if (more) {
            uint32_t index = last;
#pragma unroll 1
            for (uint32_t bits = others & (others - 1); bits; bits &= bits - 1) {
                const uint32_t before = plane_rows(__ffs((int)bits) - 1), deep = reinterpret_cast<const uint8_t*>(&blocks.columns[++index][lane])[c];
                const uint32_t* third = masks + NEAREST + min(deep, DEEPEST);
#pragma unroll
                for (int i = 0; i < DISTANCES; ++i) rows[i] = choose(rows[i], third[i], before);
            }
        }
        const Planes x = step_down<0>(column_planes(w, c), rows);
        w[c] = x.bit[0], w[8 + c] = x.bit[1], w[16 + c] = x.bit[2];
    }
}

// `amax`: what a thread's rows reach of each of their blocks, joined in `blocks`.
__device__ __forceinline__ void reach_blocks(const uint32_t* masks, const Starts& starts, uint32_t first, const uint32_t (&w)[32],
                                             WindowBlocks<true>& blocks) {
    uint32_t bits = starts.bits & ~1u, before = 0;
#pragma unroll 1
    do {
        uint32_t rows[2];
        Reached found[2];
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            const uint32_t upto = bits ? plane_rows(__ffs((int)bits) - 1) : ~0u;
            rows[p] = upto & ~before;
            before = upto;
            bits &= bits - 1;
        }
        reach<2>(masks, w, rows, found);
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            if (rows[p] == 0) continue;
            Reached& to = blocks.columns[first + p][threadIdx.x % 4];
            atomicOr(&to.depths, found[p].depths);
            atomicOr(&to.some, found[p].some);
        }
        first += 2;
    } while (__any_sync(~0u, before != ~0u));
}

// `amax`: binades of all blocks' columns from their largest bytes. False: some lie too deep for masks of rows.
__device__ __forceinline__ bool settle_columns(const ColumnArguments& a, const ColumnTile& tile, BlocksTile& rows, uint32_t group,
                                               WindowBlocks<true>& blocks, uint32_t count) {
    const uint32_t lane = threadIdx.x % 32;
    bool deep = false;
#pragma unroll 1
    for (uint32_t start = 0; start < count; start += 8) {
        const uint32_t block = start + lane / 4, top = block < count ? blocks.top[block] : NONE;
        bool far = false;
        if (top != NONE) {
            Reached& own = blocks.columns[block][lane % 4];
            far = !is_near(own, top);
            const Table below = near_columns(own, top);
            own = {below.low, below.high};
        }
        uint32_t all = __ballot_sync(~0u, far);
        all = (all | all >> 1 | all >> 2 | all >> 3) & 0x11111111u;
        __syncwarp();
#pragma unroll 1
        for (; all; all &= all - 1) {
            const uint32_t index = start + (__ffs((int)all) - 1) / 4;
            deep |= find_columns(a, tile, rows, group, blocks.first[index], blocks.first[index + 1], blocks.top[index],
                                 blocks.columns[index]);
        }
        __syncwarp();
    }
    return !__any_sync(~0u, deep);
}

template <bool amax>
__device__ __forceinline__ void turn_window(const ColumnArguments& a, const ColumnTile& tile, BlocksTile& rows,
                                            RowMasks (&all_masks)[SLOTS], WindowBlocks<amax>& blocks, const Share& own) {
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    const int32_t held = (int32_t)tile.held, lane = threadIdx.x % 32;
    const bool exists = tile.column + 32 * own.group < a.k;
    rows.fetch(a, tile.column, tile.row, tile.held, keep);
    clear_masks(all_masks);
    const Segment none = {0, 0, 0}, top = held ? Blocks(a, tile).now : none, bottom = held ? Blocks(a, tile, held - 1).now : none;
    const uint32_t count = bottom.number - top.number + 1;
    const bool many = amax && count > MOST_FOUND;
    const EdgeRow over(a, tile, own.group, top.first + lane, exists && top.first + lane < 0);
    const EdgeRow under(a, tile, own.group, held + lane, exists && held + lane < bottom.end);
    const Starts starts(a, tile, min((int32_t)own.row, max(held - 1, 0)));
    for (uint32_t i = lane; i < count; i += 32) {
        blocks.top[i] = 0;
        if (!amax || many) continue;
#pragma unroll
        for (int l = 0; l < 4; ++l) blocks.columns[i][l] = {0, 0};
    }
    if constexpr (amax) {
        if (lane == 0 && !many) blocks.first[0] = top.first, blocks.first[count] = bottom.end;
        if (lane % 4 == 0 && !many && (int32_t)own.row < held) {
            for (uint32_t bits = starts.bits; bits; bits &= bits - 1) {
                const uint32_t row = __ffs((int)bits) - 1;
                blocks.first[starts.block(row) - top.number] = (int32_t)(own.row + row);
            }
        }
    }
    wait_copies();
    __syncthreads();
    if (!exists) return;
    uint32_t w[32], byte[8], without = 0;
    const uint32_t some = load_planes(rows, own, w), from = lane % 4 * 8;
    load_bytes(rows, own.group, own.row + from, byte);
    uint32_t* at = blocks.top + (starts.block(from) - top.number);
    uint32_t most = 0;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
        if (j && starts.bits >> (from + j) & 1) atomicMax(at++, most), most = 0;
        most = max(most, row_key(byte[j], some >> plane_place(from + j) & 1));
    }
    atomicMax(at, most);
    if (over.key()) atomicMax(blocks.top, over.key());
    if (under.key()) atomicMax(blocks.top + (count - 1), under.key());
    __syncwarp();
    at = blocks.top + (starts.block(from) - top.number);
    uint32_t* masks = all_masks[own.slot].depths();
    uint32_t now = *at;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
        if (j && starts.bits >> (from + j) & 1) now = *++at;
        const uint32_t bit = 1u << plane_place(from + j), depth = now - byte[j];
        without |= now == NONE ? bit : 0;
        if (depth < (amax ? DEPTHS : MAX_DEPTHS)) atomicOr(masks + depth, bit);
    }
    __syncwarp();
    bool slow = many;
    if constexpr (amax) {
        if (!many) {
            const uint32_t first = starts.block(0) - top.number;
            reach_blocks(masks, starts, first, w, blocks);
            if (top.first < 0) reach_edge(over, blocks.top[0], blocks.columns[0]);
            if (bottom.end > held) reach_edge(under, blocks.top[count - 1], blocks.columns[count - 1]);
            __syncwarp();
            slow = !settle_columns(a, tile, rows, own.group, blocks, count);
            if (!slow) turn_rows(masks, blocks, starts, first, w);
        }
    } else {
        Table unused;
        turn_planes<false>(masks, 0, w, unused);
    }
    if (amax && slow) {
        turn_slowly(a, tile, own, w);
    } else {
        if (__any_sync(~0u, without)) {
            without |= __shfl_xor_sync(~0u, without, 1);
            without |= __shfl_xor_sync(~0u, without, 2);
#pragma unroll
            for (int i = 0; i < 32; ++i) w[i] &= ~without;
        }
        to_columns(w);
    }
    if (own.row >= tile.rows) return;
    store_block(a, tile, own, w);
    if (amax && slow) return;
    for (uint32_t bits = (int32_t)own.row < held ? starts.bits : 0; bits; bits &= bits - 1) {
        const uint32_t number = starts.block(__ffs((int)bits) - 1), index = number - top.number, largest = blocks.top[index];
        const uint32_t all = (largest == NONE ? NAN_BYTE : largest) * 0x01010101u;
        const Reached below = amax && largest != NONE ? blocks.columns[index][lane % 4] : Reached{0, 0};
        store_scales(a, number, tile.column + 8 * own.word, all - below.depths);
        store_scales(a, number, tile.column + 8 * own.word + 4, all - below.some);
    }
}

}  // namespace refnum
