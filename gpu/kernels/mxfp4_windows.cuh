// MXFP4 to MXFP4 columns by `max` where blocks begin anywhere (clause N9): windows of 256 rows, 32 of them and eight columns a
// thread. Device only.
//
// What a code becomes depends on how far its row's byte lies below its block's, the largest of the block's rows. So a thread turns
// its rows as if they were one block: masks of rows by that distance are all that blocks decide. Threads put the largest bytes
// together in shared memory; rows outside the window that belong to its first or last block are read beside it.
#pragma once

namespace refnum {

constexpr uint32_t NONE = 1u << 16;  // the byte of a block without values

// The largest byte of every block that meets a window, in order.
struct Tops {
    uint32_t of[BLOCK_ROWS * SLOTS / 2 + 2];
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

// The same of a row outside the window.
__device__ __forceinline__ uint32_t edge_key(const ColumnArguments& a, const ColumnTile& tile, uint32_t group, int32_t row) {
    uint32_t w[4];
    load<16>(a.x + (tile.row + row) * a.x_stride + (tile.column / 2 + 16 * group), a.aligned & VECTORS, w);
    return row_key(load_byte(a.scales + (tile.row + row) * a.scale_stride + tile.column / 32 + group), !is_empty(w));
}

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

// A lane's eight rows, from row `from` of a thread's on, by depth; returns the places of those whose block has no values. `tops`: the
// lane's first block, which `find_tops` has found.
__device__ __forceinline__ uint32_t mask_rows(const Starts& starts, uint32_t from, const uint32_t (&byte)[8],
                                              const uint32_t* tops, RowMasks& masks) {
    uint32_t none = 0, now = *tops;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
        if (j && starts.bits >> (from + j) & 1) now = *++tops;
        const uint32_t bit = 1u << plane_place(from + j), depth = now - byte[j];
        none |= now == NONE ? bit : 0;
        if (depth < MAX_DEPTHS) atomicOr(masks.depths() + depth, bit);
    }
    return none;
}
__device__ __forceinline__ void find_tops(const Starts& starts, uint32_t from, const uint32_t (&byte)[8], uint32_t some,
                                          uint32_t* tops) {
    uint32_t most = 0;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
        if (j && starts.bits >> (from + j) & 1) atomicMax(tops++, most), most = 0;
        most = max(most, row_key(byte[j], some >> plane_place(from + j) & 1));
    }
    atomicMax(tops, most);
}

// The bytes of the blocks that begin in a thread's rows.
__device__ __forceinline__ void store_tops(const ColumnArguments& a, const ColumnTile& tile, const Share& own,
                                           const Starts& starts, const uint32_t* tops, uint32_t first) {
#pragma unroll 1
    for (uint32_t bits = own.row < tile.held ? starts.bits : 0; bits; bits &= bits - 1) {
        const uint32_t number = starts.block(__ffs((int)bits) - 1), top = tops[number - first];
        const uint32_t bytes = (top == NONE ? NAN_BYTE : top) * 0x01010101u;
        store_scales(a, number, tile.column + 8 * own.word, Table{bytes, bytes});
    }
}

__device__ __forceinline__ void turn_window(const ColumnArguments& a, const ColumnTile& tile, BlocksTile& rows,
                                            RowMasks (&masks)[SLOTS], Tops& tops, const Share& own) {
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    const int32_t held = (int32_t)tile.held, lane = threadIdx.x % 32;
    const uint32_t from = lane % 4 * 8;
    const bool exists = tile.column + 32 * own.group < a.k;
    rows.fetch(a, tile.column, tile.row, tile.held, keep);
    clear_masks(masks);
    for (uint32_t i = lane; i < sizeof(Tops) / 4; i += 32) tops.of[i] = 0;
    const Segment none = {0, 0, 0}, first = held ? Blocks(a, tile).now : none, last = held ? Blocks(a, tile, held - 1).now : none;
    const bool above = exists && first.first + lane < 0, below = exists && held + lane < last.end;
    const uint32_t over = above ? edge_key(a, tile, own.group, first.first + lane) : 0;
    const uint32_t under = below ? edge_key(a, tile, own.group, held + lane) : 0;
    const Starts starts(a, tile, min((int32_t)own.row, max(held - 1, 0)));
    wait_copies();
    __syncthreads();
    if (!exists) return;
    uint32_t w[32], byte[8];
    const uint32_t some = load_planes(rows, own, w);
    uint32_t* mine = tops.of + (starts.block(from) - first.number);
    load_bytes(rows, own.group, own.row + from, byte);
    find_tops(starts, from, byte, some, mine);
    if (over) atomicMax(tops.of, over);
    if (under) atomicMax(tops.of + (last.number - first.number), under);
    __syncwarp();
    uint32_t without = mask_rows(starts, from, byte, mine, masks[own.slot]);
    __syncwarp();
    Table unused;
    turn_planes<false>(masks[own.slot].depths(), 0, w, unused);
    if (__any_sync(~0u, without)) {
        without |= __shfl_xor_sync(~0u, without, 1);
        without |= __shfl_xor_sync(~0u, without, 2);
#pragma unroll
        for (int i = 0; i < 32; ++i) w[i] &= ~without;
    }
    to_columns(w);
    if (own.row >= tile.rows) return;
    store_block(a, tile, own, w);
    store_tops(a, tile, own, starts, tops.of, first.number);
}

}  // namespace refnum
