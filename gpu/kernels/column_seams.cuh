// Sectors (32 bytes) of an output's columns in which segments meet, where windows are segments that begin anywhere (SPLIT 2;
// clause N9, `amax`). Device only.
//
// A sector that two CTAs write in parts costs several times a whole one, and a sector that is written alone, when L2 has passed
// on the rest of its 128 bytes, twice that. So the segments' CTAs leave such sectors out, and other CTAs of the same grid write them, a
// stripe of columns behind: by then the segments' column bytes are there, and the rest of the line still lies in L2.
// `column_marks` has put marks where column bytes will be, and no column of `amax` has NAN_BYTE; a thread that meets marks for long
// finds the bytes itself, so that no CTA depends on another.
#pragma once

#include "mxfp4_tile.cuh"

namespace refnum {

// Rows of a sector, of a thread, and threads of a sector; columns of a stripe; threads of a stripe's columns of a sector.
constexpr int SEAM = 32, OWN = 8, SHARES = SEAM / OWN, STRIPE = (ACROSS ? ACROSS : 1) * WIDE, ABREAST = STRIPE / 8 * SHARES;
constexpr int TRIES = 64;

// What a CTA does: segments of stripe blockIdx.y, or sectors of the stripe before it, and which ones.
struct Duty {
    bool seams;
    uint32_t number;
};
__device__ __forceinline__ Duty own_duty(const ColumnArguments& a) {
    const uint32_t all = gridDim.x / CLUSTER, unit = blockIdx.x / CLUSTER, within = blockIdx.x % CLUSTER;
    const uint32_t tiles = (a.windows + CLUSTER - 1) / CLUSTER * ACROSS, seams = all - tiles;
    uint32_t before, behind;  // units of sectors before this one and behind it
    if (LINE == 64) before = unit * seams / all, behind = (unit + 1) * seams / all;
    else if (LINE == 128) before = min(unit, seams), behind = min(unit + 1, seams);
    else before = unit < tiles ? 0 : unit - tiles, behind = unit < tiles ? 0 : before + 1;
    return {before != behind, (before != behind ? before : unit - before) * CLUSTER + within};
}

struct SeamRows {
    uint32_t packed[OWN], byte[OWN];
};

// A thread's packed words of its rows, and the bytes of these. A warp's threads have 64 columns, in fours the rows of a sector;
// all of them.
__device__ __forceinline__ SeamRows fetch_rows(const ColumnArguments& a, offset_t row, offset_t column, bool exists) {
    SeamRows rows;
    const uint32_t lane = threadIdx.x % 32, share = lane % SHARES;
    const offset_t own = row - OWN * share + lane, first = column - 8 * (lane / SHARES);  // for bytes: one of the rows, the warp's columns
    const uint8_t* scales = a.scales + own * a.scale_stride + first / 32;
    uint32_t bytes = 0;
#pragma unroll
    for (int g = 0; g < 2; ++g) bytes |= (own < a.m && first + 32 * g < a.k ? load_byte(scales + g) : 0) << 8 * g;
    const uint8_t* x = a.x + row * a.x_stride + column / 2;
#pragma unroll
    for (int i = 0; i < OWN; ++i, x += a.x_stride) {
        uint32_t w[1] = {0};
        if (exists) load<4>(x, a.aligned & VECTORS, w);
        rows.packed[i] = w[0];
    }
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        rows.byte[i] = __shfl_sync(~0u, bytes, OWN * share + i) >> (lane / 16 * 8) & 0xFF;
    }
    return rows;
}

// The segment that has a row, which expert `expert` or one above it has.
struct Owner {
    int32_t first, end;
    uint32_t number;
};
__device__ __forceinline__ Owner owner_of(const ColumnArguments& a, uint32_t expert, int32_t row) {
    while (a.ends[expert] > row) --expert;
    const uint32_t within = (uint32_t)(row - a.ends[expert]) / TALL;
    const int32_t first = a.ends[expert] + (int32_t)within * TALL;
    return {first, min(first + TALL, a.ends[expert + 1]), a.segments[expert] + within};
}

// Bytes of a segment's eight columns, if its CTA has stored them.
__device__ __forceinline__ Table stored_bytes(const ColumnArguments& a, uint32_t segment, offset_t column) {
    const uint8_t* from = a.out_scales + (offset_t)segment * a.k + column;
    Table bytes;
    asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(bytes.low), "=r"(bytes.high) : "l"(from) : "memory");
    return bytes;
}
// A byte is a mark if its upper bit is set and adding 1 to the others carries into it.
__device__ __forceinline__ bool has_mark(Table bytes) {
    const uint32_t low = bytes.low & ((bytes.low & 0x7F7F7F7Fu) + 0x01010101u);
    const uint32_t high = bytes.high & ((bytes.high & 0x7F7F7F7Fu) + 0x01010101u);
    return ((low | high) & 0x80808080u) != 0;
}

// The same, waiting for them, and in the end from the segment's rows.
__device__ __noinline__ Table awaited_bytes(const ColumnArguments& a, Owner owner, offset_t column) {
#pragma unroll 1
    for (int i = 0; i < TRIES; ++i) {
        const Table bytes = stored_bytes(a, owner.number, column);
        if (!has_mark(bytes)) return bytes;
    }
    ColumnMaxima most[2] = {};
#pragma unroll 1
    for (int32_t i = owner.first; i < owner.end; ++i) {
        uint32_t packed[1];
        load<4>(a.x + i * a.x_stride + column / 2, a.aligned & VECTORS, packed);
        const Table table = column_part_table(load_byte(a.scales + i * a.scale_stride + column / 32), E4M3_EMAX);
        raise_maxima(most[0], look_up(table, packed[0] & NIBBLE_MAGNITUDES));
        raise_maxima(most[1], look_up(table, (packed[0] & NIBBLE_MAGNITUDES) >> 16));
    }
    return {column_bytes(column_parts(most[0]), ONE_BYTE), column_bytes(column_parts(most[1]), ONE_BYTE)};
}

// Codes of a thread's rows where each is exact and normal, those before row `before` by bytes `above`: false if one is not. A key
// (column_keys.cuh) rises to a code by 8 * (row - column) + 47, which is 7 or more.
__device__ __forceinline__ bool near_codes(const SeamRows& rows, Table above, Table below, int32_t before,
                                           uint32_t (&low)[OWN], uint32_t (&high)[OWN]) {
    uint32_t odd = 0;
    bool far = false;
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const bool first = i < before;
        const uint32_t byte = rows.byte[i], packed = rows.packed[i], all = (byte + 5) * 0x01010101u;
        const Table rise = {all - (first ? above.low : below.low), all - (first ? above.high : below.high)};
        const Table keys = row_halves(packed, key_table(0));
        far |= byte - 9 > 246 - 9;
        odd |= rise.low | rise.high;
        const Table raised = {keys.low + ((keys.low & KEY_FLAGS) * 0xFF & (8 * rise.low + 0x07070707u)),
                              keys.high + ((keys.high & KEY_FLAGS) * 0xFF & (8 * rise.high + 0x07070707u))};
        const Table codes = signed_keys(packed, raised);
        low[i] = codes.low, high[i] = codes.high;
    }
    return !far && (odd & 0xF0F0F0F0u) == 0;
}

// The codes of any row, which is rare: see `awaited_bytes` and `owner_of`.
__device__ __noinline__ Table any_codes(const ColumnArguments& a, uint32_t expert, int32_t row, offset_t column, uint32_t packed,
                                        uint32_t byte) {
    const Table bytes = awaited_bytes(a, owner_of(a, expert, row), column);
    const ColumnBytes negated[2] = {negated_columns(bytes.low), negated_columns(bytes.high)};
    const uint32_t words[1] = {packed};
    uint32_t codes[2];
    column_codes(words, byte, negated, codes);
    return {codes[0], codes[1]};
}

// The sectors of a stripe that CTA `number` of its writes. Each is the first one of the last segment that begins within it.
__device__ __forceinline__ void column_seams(const ColumnArguments& a, uint32_t number, uint32_t stripe) {
    const uint32_t thread = number * WORKERS + threadIdx.x, window = thread / ABREAST, own = thread % ABREAST;
    if (window >= a.windows) return;
    const offset_t column = (offset_t)stripe * STRIPE + own / SHARES * 8;
    const uint32_t expert = a.at[window], segment = (uint32_t)a.first_window + window;
    const int32_t begin = a.ends[expert] + (int32_t)(segment - a.segments[expert]) * TALL, first = begin & -SEAM;
    const int32_t end = min(begin + TALL, a.ends[expert + 1]), row = first + (int32_t)(own % SHARES) * OWN;
    if (begin == first || (end < first + SEAM && end != a.m)) return;
    const Owner upper = owner_of(a, expert, begin - 1);
    const bool exists = column < a.k && row < a.m;
    Table above = {0, 0}, below = {0, 0};
    if (exists) above = stored_bytes(a, upper.number, column), below = stored_bytes(a, segment, column);
    const SeamRows rows = fetch_rows(a, row, column, exists);
    if (!exists) return;
    if (has_mark(above)) above = awaited_bytes(a, upper, column);
    if (has_mark(below)) below = awaited_bytes(a, {begin, end, segment}, column);
    uint32_t low[OWN], high[OWN];
    if (!near_codes(rows, above, below, begin - row, low, high) || upper.first > first) {
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const Table codes = any_codes(a, expert, row + i, column, rows.packed[i], rows.byte[i]);
            low[i] = codes.low, high[i] = codes.high;
        }
    }
    uint32_t out[8][OWN / 4];
#pragma unroll
    for (int q = 0; q < OWN / 4; ++q) {
        uint32_t left[4], right[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) left[i] = low[4 * q + i], right[i] = high[4 * q + i];
        transpose_bytes(left);
        transpose_bytes(right);
#pragma unroll
        for (int j = 0; j < 4; ++j) out[j][q] = left[j], out[4 + j][q] = right[j];
    }
    uint8_t* to = a.out + column * a.out_stride + row;
#pragma unroll
    for (int j = 0; j < 8; ++j, to += a.out_stride) store<OWN>(to, out[j]);
}

}  // namespace refnum
