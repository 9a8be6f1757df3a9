// Sectors (32 bytes) of an output's columns in which segments meet, by `amax` where a window is a segment that begins anywhere
// (SPLIT 2; clause N9). Device only.
//
// A sector that two CTAs write in parts costs several times a whole one. So the last segment that begins in a sector stores
// all of it: its CTA fetches the rows above too, fewer than 32, and turns them by the bytes of their columns, which the CTAs of
// their segments have stored by then nearly always. `column_marks` has put marks where bytes will be, and no column of `amax` has NAN_BYTE;
// a thread that meets marks for long finds the bytes itself.
#pragma once

#include "mxfp4_tile.cuh"

namespace refnum {

constexpr int SEAM = 32, TRIES = 24;
constexpr uint32_t MARK = NAN_BYTE;

struct Seam {
    PackedTile<SEAM, 16, 4> rows;      // those above the segment in its first sector, at their places
    __align__(16) uint32_t number[SEAM];  // of their segments
};

// Rows of segments that begin anywhere: which expert has row `row`, at or above expert `expert`.
__device__ __forceinline__ uint32_t expert_of(const ColumnArguments& a, uint32_t expert, int32_t row) {
    while (a.ends[expert] > row) --expert;
    return expert;
}

// The rows above a segment, `count` of them, `row`: the first. All threads; complete with the segment's.
__device__ __forceinline__ void fetch_seam(const ColumnArguments& a, const ColumnTile& tile, Seam& seam, uint32_t count, uint64_t keep) {
    seam.rows.fetch(a, tile.column, tile.row, count, keep);
    if (threadIdx.x >= count) return;
    const int32_t row = (int32_t)tile.row + (int32_t)threadIdx.x;
    const uint32_t expert = expert_of(a, a.at[tile.window - (uint32_t)a.first_window], row);
    seam.number[threadIdx.x] = a.segments[expert] + (uint32_t)(row - a.ends[expert]) / TALL;
}

// Bytes of eight columns of the segment that has a row, from its rows.
__device__ __noinline__ Table found_bytes(const ColumnArguments& a, uint32_t window, int32_t row, offset_t column) {
    const uint32_t expert = expert_of(a, a.at[window], row);
    const int32_t first = row - (row - a.ends[expert]) % TALL, end = min(first + TALL, a.ends[expert + 1]);
    ColumnMaxima most[2] = {};
#pragma unroll 1
    for (int32_t i = first; i < end; ++i) {
        uint32_t packed[1];
        load<4>(a.x + i * a.x_stride + column / 2, a.aligned & VECTORS, packed);
        const Table table = column_part_table(load_byte(a.scales + i * a.scale_stride + column / 32), E4M3_EMAX);
        raise_maxima(most[0], look_up(table, packed[0] & NIBBLE_MAGNITUDES));
        raise_maxima(most[1], look_up(table, (packed[0] & NIBBLE_MAGNITUDES) >> 16));
    }
    return {column_bytes(column_parts(most[0]), ONE_BYTE), column_bytes(column_parts(most[1]), ONE_BYTE)};
}

// The same, as the segment's CTA stores them.
__device__ __forceinline__ Table known_bytes(const ColumnArguments& a, const ColumnTile& tile, uint32_t number, int32_t row, offset_t column) {
    const uint8_t* from = a.out_scales + (offset_t)number * a.k + column;
#pragma unroll 1
    for (int i = 0; i < TRIES; ++i) {
        Table bytes;
        asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(bytes.low), "=r"(bytes.high) : "l"(from) : "memory");
        // a byte is a mark if its upper bit is set and adding 1 to the others carries into it
        const uint32_t low = bytes.low & ((bytes.low & 0x7F7F7F7Fu) + 0x01010101u), high = bytes.high & ((bytes.high & 0x7F7F7F7Fu) + 0x01010101u);
        if (((low | high) & 0x80808080u) == 0 || LINE == 64) return bytes;
    }
    return found_bytes(a, tile.window - (uint32_t)a.first_window, row, column);
}

// By how much keys (column_keys.cuh) of a row rise to codes, of four columns: 8 (row - column) + 47. None is below 7, so codes are normal.
struct Rises {
    uint32_t low, high;
    bool exact;
};
__device__ __forceinline__ Rises key_rises(uint32_t byte, Table columns) {
    const uint32_t low = (byte + 5) * 0x01010101u - columns.low, high = (byte + 5) * 0x01010101u - columns.high;
    return {8 * low + 0x07070707u, 8 * high + 0x07070707u, byte >= 9 && byte <= 246 && ((low | high) & 0xF0F0F0F0u) == 0};
}

// A row's codes of eight columns under their bytes: any, which is rare.
__device__ __noinline__ Table any_codes(uint32_t packed, uint32_t byte, Table columns) {
    const ColumnBytes negated[2] = {negated_columns(columns.low), negated_columns(columns.high)};
    const uint32_t words[1] = {packed};
    uint32_t codes[2];
    column_codes(words, byte, negated, codes);
    return {codes[0], codes[1]};
}

__device__ __forceinline__ Table seam_codes(uint32_t packed, uint32_t byte, Table columns) {
    const Rises rises = key_rises(byte, columns);
    if (!rises.exact) return any_codes(packed, byte, columns);
    const Table keys = row_halves(packed, key_table(0));
    const Table raised = {keys.low + ((keys.low & KEY_FLAGS) * 0xFF & rises.low), keys.high + ((keys.high & KEY_FLAGS) * 0xFF & rises.high)};
    return signed_keys(packed, raised);
}

// The first sector of a warp's columns: a thread has four rows of eight columns. `own`: the segment's codes, column by column, in
// pairs of blocks of the tile. `word`, `number`: the thread's packed word, and which four rows.
template <class Tile>
__device__ __forceinline__ void store_seam(const ColumnArguments& a, const ColumnTile& tile, const Seam& seam, Tile& own, uint32_t group,
                                           uint32_t word, uint32_t number, uint32_t skew) {
    const uint32_t first = 4 * number;
    const offset_t column = tile.column + 8 * word;
    uint32_t low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0}, before = 0;
    if (first < skew) {
        Table columns = {0, 0};
        uint32_t known = ~0u;
        before = first + 4 <= skew ? ~0u : (1u << 8 * (skew - first)) - 1;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            if (first + i >= skew) break;
            const uint32_t of = seam.number[first + i];
            if (of != known) columns = known_bytes(a, tile, of, (int32_t)(tile.row + first + i), column);
            known = of;
            const Table codes = seam_codes(const_cast<Seam&>(seam).rows.row(first + i)[word],
                                           seam.rows.bytes[(first + i) * GROUPS + group], columns);
            low[i] = codes.low, high[i] = codes.high;
        }
        transpose_bytes(low);
        transpose_bytes(high);
    }
    uint8_t* to = a.out + column * a.out_stride + (tile.row + first);
    if (tile.row + first >= a.m) return;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j, to += a.out_stride) {
        const uint4* block = &own.block(2 * (8 * (word % 4) + j) + number / 4, group);
        const uint32_t mine = reinterpret_cast<const uint32_t*>(block)[number % 4];
        *reinterpret_cast<uint32_t*>(to) = choose(j < 4 ? low[j % 4] : high[j % 4], mine, before);
    }
}

}  // namespace refnum
