// MXFP4 to MXFP4 columns where a CTA has eight blocks of rows, one behind another, that begin anywhere (SPLIT 2; clause N9). Device only.
//
// A block's rows lie at their numbers modulo 32, so what a thread makes of them lies in the sixteen bytes of its columns as it is: in
// those of its first row, and behind them in the next ones. Blocks pass on what lies in the next one's bytes, and the last block that
// begins in sixteen bytes stores them. At the ends of the eight, where others have bytes of the sixteen too, they leave singly.
#pragma once

namespace refnum {

// A block of rows: the first, how many, the row of its bytes.
struct OwnBlock {
    int32_t first, rows;

    __device__ __forceinline__ int32_t end() const { return first + rows; }
    __device__ __forceinline__ int32_t sixteen() const { return first & -BLOCK_ROWS; }  // the first row of its first sixteen bytes
};

// Block `number` of the launch, the window's first one in expert `expert`; without rows behind the last.
__device__ __forceinline__ OwnBlock own_block(const ColumnArguments& a, uint32_t expert, uint32_t number) {
    int32_t row = 0, end = 0;
#pragma unroll 1
    for (; expert < a.experts; ++expert) {
        end = a.ends[expert + 1];
        row = a.ends[expert] + BLOCK_ROWS * (int32_t)(number - a.segments[expert]);
        if (row < end) break;
    }
    return {row, expert < a.experts ? min(end - row, BLOCK_ROWS) : 0};
}

// A thread's sixteen bytes of its columns, under masks.
__device__ __forceinline__ void put_verges(Verges& verges, uint32_t word, bool last, const uint32_t (&w)[32], const uint32_t (&mask)[4]) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
        verges.put(word % 4, c, last,
                   make_uint4(w[c] & mask[0], w[8 + c] & mask[1], w[16 + c] & mask[2], w[24 + c] & mask[3]));
    }
}

// The same to their columns: rows `begin` to `end` were put.
__device__ __forceinline__ void store_verges(const ColumnArguments& a, offset_t column, const Verges& verges, int32_t begin, int32_t end) {
    const int32_t top = begin & -BLOCK_ROWS, bottom = end & -BLOCK_ROWS;
    const uint32_t skew = (uint32_t)(begin - top) / 2, left = bottom > top ? (uint32_t)(end - bottom) / 2 : 0;
    const uint32_t first_end = bottom == top ? (uint32_t)(end - top) / 2 : skew ? 16 : 0;
    if (first_end == 0 && left == 0) return;
    verges.store(a.out + column * a.out_stride + top / 2, a.out_stride, skew, first_end, left, (bottom - top) / 2, false);
}

__device__ __forceinline__ void fetch_blocks(const ColumnArguments& a, offset_t column, BlocksTile& rows,
                                             const OwnBlock (&blocks)[SLOTS], uint64_t keep) {
    const uint32_t group = threadIdx.x % GROUPS, own = threadIdx.x / GROUPS;
    const uint8_t* x = a.x + (column / 2 + 16 * group);
    const bool here = column + 32 * group < a.k;
    if (a.aligned & VECTORS) {
#pragma unroll
        for (uint32_t i = 0; i < SLOTS; ++i) {
            const OwnBlock block = blocks[i];
            const int32_t row = (own - block.first) % BLOCK_ROWS;
            copy_16(&rows.block(BLOCK_ROWS * i + own, group), x + (block.first + row) * a.x_stride, here && row < block.rows);
        }
    } else {
#pragma unroll 1
        for (uint32_t i = 0; i < SLOTS; ++i) {
            const OwnBlock block = blocks[i];
            const int32_t row = (own - block.first) % BLOCK_ROWS;
            uint32_t w[4] = {0, 0, 0, 0};
            if (here && row < block.rows) load<16>(x + (block.first + row) * a.x_stride, false, w);
            rows.block(BLOCK_ROWS * i + own, group) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
    const bool vectors = a.aligned & SCALES && column + WIDE <= a.k;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < BLOCK_ROWS * SLOTS; i += WORKERS) {
        const OwnBlock block = blocks[i / BLOCK_ROWS];
        const int32_t row = (i - block.first) % BLOCK_ROWS;
        const uint8_t* from = a.scales + (block.first + row) * a.scale_stride + column / 32;
        if (vectors) BlocksTile::copy_scales(rows.bytes + i * GROUPS, from, row < block.rows, keep);
        else BlocksTile::fetch_bytes(a, column, from, row < block.rows, rows.bytes + i * GROUPS);
    }
}

// Bits of a word's rows from row `first` of thirty-two on, of word `i`.
__device__ __forceinline__ uint32_t rows_from(int32_t first, int32_t i) {
    const int32_t before = first - 8 * i;
    return before <= 0 ? ~0u : before >= 8 ? 0 : ~0u << 4 * before;
}

// Every word becomes what its block's first sixteen bytes are. `stays`: the next block begins in the same ones.
__device__ __forceinline__ void pass_on(uint32_t slot, bool stays, const uint32_t (&mask)[4], uint32_t (&w)[32]) {
    const uint32_t from = (threadIdx.x - 4) % 32, staying = stays ? ~0u : 0, sends = slot < SLOTS - 1 ? ~0u : 0;
    uint32_t own[4], next[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) own[i] = mask[i] | staying, next[i] = (~mask[i] | staying) & sends;
    const uint32_t some = __ballot_sync(~0u, stays && sends) & 0x11111111u;
    for (uint32_t run = some; run; run &= run << 4) {  // as many turns as blocks follow each other that pass on what they got
#pragma unroll
        for (int i = 0; i < 32; ++i) w[i] |= __shfl_sync(~0u, w[i] & next[i / 8], from) & staying;
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) w[i] = (w[i] & own[i / 8]) | __shfl_sync(~0u, w[i] & next[i / 8], from);
}

// The same by single bytes, where columns begin anywhere.
__device__ __forceinline__ void store_singly(const ColumnArguments& a, offset_t column, const OwnBlock& block, const uint32_t (&w)[32]) {
    uint8_t* to = a.out + column * a.out_stride;
#pragma unroll
    for (int c = 0; c < 8; ++c, to += a.out_stride) {
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) {
#pragma unroll 1
            for (int32_t j = 0; j < 4; ++j) {
                const int32_t row = (8 * i + 2 * j - block.first) & (BLOCK_ROWS - 1);
                if (row < block.rows) to[(block.first + row) / 2] = (uint8_t)(w[8 * i + c] >> 8 * j);
            }
        }
    }
}

template <bool amax>
__device__ __forceinline__ void turn_blocks(const ColumnArguments& a, BlocksTile& rows, RowMasks (&masks)[SLOTS],
                                            OwnBlock (&blocks)[SLOTS], const Share& own) {
    static_assert(sizeof(Verges) <= sizeof(masks), "the masks' places are free behind `turn_block`");
    Verges& verges = *reinterpret_cast<Verges*>(&masks);
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    const uint32_t across = ACROSS ? ACROSS : a.tiles, window = blockIdx.x / across;
    const uint32_t tile = blockIdx.y * across + (blockIdx.x - window * across), first = SLOTS * ((uint32_t)a.first_window + window);
    if (tile >= a.tiles || window >= a.windows) return;
    const offset_t column = (offset_t)tile * WIDE;
    if (threadIdx.x < SLOTS) blocks[threadIdx.x] = own_block(a, a.at[window], first + threadIdx.x);
    clear_masks(masks);
    __syncthreads();
    fetch_blocks(a, column, rows, blocks, keep);
    wait_copies();
    __syncthreads();
    if (column + 32 * own.group >= a.k) return;
    uint32_t w[32];
    const Table bytes = turn_block<amax>(rows, own, masks[own.slot], w);
    const OwnBlock block = blocks[own.slot], before = blocks[0];
    if (block.rows) store_scales(a, first + own.slot, column + 8 * own.word, bytes);
    if (a.vector != 16) return store_singly(a, column + 8 * own.word, block, w);
    const uint32_t filled = __popc(__ballot_sync(~0u, block.rows != 0)) / 4;
    const int32_t begin = before.first, end = blocks[filled - 1].end(), top = block.sixteen(), rest = block.end() - top - BLOCK_ROWS;
    const bool last = own.slot == filled - 1, stays = block.rows && rest < 0;
    uint32_t mask[4], behind[4];
    const uint32_t all[4] = {~0u, ~0u, ~0u, ~0u};
#pragma unroll
    for (int i = 0; i < 4; ++i) mask[i] = rows_from(block.first - top, i), behind[i] = ~mask[i];
    __syncwarp();
    if (last && rest > 0) put_verges(verges, own.word, true, w, behind);
    pass_on(own.slot, stays, mask, w);
    if (block.rows && (last || !stays)) {
        if (top >= begin && top + BLOCK_ROWS <= end) {
            uint8_t* to = a.out + (column + 8 * own.word) * a.out_stride + top / 2;
#pragma unroll
            for (int c = 0; c < 8; ++c, to += a.out_stride) {
                const uint32_t four[4] = {w[c], w[8 + c], w[16 + c], w[24 + c]};
                store<16>(to, four);
            }
        } else {
            put_verges(verges, own.word, top > begin, w, all);
        }
    }
    __syncwarp();
    store_verges(a, column + 32 * own.group, verges, begin, end);
}

// A warp's sectors at the ends of a CTA's blocks: see column_ends.cuh.
struct BlockEnds {
    uint4 of[GROUPS][4 * 36];

    __device__ __forceinline__ uint4& block(uint32_t i, uint32_t group) { return of[group][i % 4 * 36 + i / 4 + i / 32]; }
};

template <bool amax>
__device__ __forceinline__ void turn_joined(const ColumnArguments& a, BlocksTile& rows, RowMasks (&masks)[SLOTS],
                                            OwnBlock (&blocks)[SLOTS], uint32_t& length, const Share& own) {
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    const uint32_t across = ACROSS ? ACROSS : a.tiles, number = blockIdx.x / CLUSTER, down = number / across;
    const uint32_t window = down * CLUSTER + blockIdx.x % CLUSTER, tile = blockIdx.y * across + (number - down * across);
    const uint32_t first = SLOTS * ((uint32_t)a.first_window + window);
    const bool some = tile < a.tiles && window < a.windows;
    const offset_t column = (offset_t)tile * WIDE;
    const bool here = some && column + 32 * own.group < a.k;
    int32_t begin = 0, end = 0;
    if (some) {
        if (threadIdx.x < SLOTS) blocks[threadIdx.x] = own_block(a, a.at[window], first + threadIdx.x);
        clear_masks(masks);
        __syncthreads();
        fetch_blocks(a, column, rows, blocks, keep);
        const uint32_t filled = __popc(__ballot_sync(~0u, blocks[own.slot].rows != 0)) / 4;
        begin = blocks[0].first, end = blocks[filled - 1].end();
        wait_copies();
        __syncthreads();
    }
    if (threadIdx.x == 0) length = (uint32_t)(end - begin) / 2;
    const Extent extent = {(uint32_t)begin % 64 / 2, (uint32_t)(end - (begin & -64)) / 2};
    uint32_t w[32];
    Table bytes = {0, 0};
    if (here) bytes = turn_block<amax>(rows, own, masks[own.slot], w);
    __syncthreads();  // the ends take the places of the rows
    BlockEnds& ends = *reinterpret_cast<BlockEnds*>(&rows);
    if (here) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) ends.block(threadIdx.x % 32 * 4 + i, own.group) = make_uint4(0, 0, 0, 0);
        __syncwarp();
        const OwnBlock block = blocks[own.slot];
        if (block.rows) store_scales(a, first + own.slot, column + 8 * own.word, bytes);
        if (a.vector != 16) {
            store_singly(a, column + 8 * own.word, block, w);
        } else {
            const int32_t top = block.sixteen(), rest = block.end() - top - BLOCK_ROWS;
            const bool last = block.end() == end && block.rows, stays = block.rows && rest < 0;
            uint32_t mask[4], behind[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) mask[i] = rows_from(block.first - top, i), behind[i] = ~mask[i];
            const uint32_t sixteen = (uint32_t)(top - (begin & -64)) / 32, sector = sixteen / 2;
            const auto put = [&](uint32_t at, const uint32_t (&some_of)[4]) {
                const uint32_t piece = (at / 2 == 0 ? 0 : 2) + at % 2;
#pragma unroll
                for (uint32_t c = 0; c < 8; ++c) {
                    ends.block(4 * (own.word % 4 * 8 + c) + piece, own.group) =
                        make_uint4(w[c] & some_of[0], w[8 + c] & some_of[1], w[16 + c] & some_of[2], w[24 + c] & some_of[3]);
                }
            };
            if (last && rest > 0) put(sixteen + 1, behind);
            pass_on(own.slot, stays, mask, w);
            if (block.rows && (last || !stays)) {
                if (extent.whole(sector)) {
                    uint8_t* to = a.out + (column + 8 * own.word) * a.out_stride + top / 2;
#pragma unroll
                    for (int c = 0; c < 8; ++c, to += a.out_stride) {
                        const uint32_t four[4] = {w[c], w[8 + c], w[16 + c], w[24 + c]};
                        store<16>(to, four);
                    }
                } else {
                    const uint32_t all[4] = {~0u, ~0u, ~0u, ~0u};
                    put(sixteen, all);
                }
            }
            __syncwarp();
        }
    }
    arrive_ends();
    await_ends();
    if (here && a.vector == 16) {
        uint8_t* to = a.out + (column + 32 * own.group) * a.out_stride + (begin & -64) / 2;
        join_ends(ends, length, own.group, to, a.out_stride, extent);
    }
    arrive_ends();  // others read this CTA's ends
    await_ends();
}

}  // namespace refnum
