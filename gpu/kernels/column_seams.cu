// Sectors (32 bytes) of an output's columns in which segments meet, behind a conversion of MXFP4 to E4M3 columns by `amax` whose
// windows are segments (SPLIT 2; clause N9).
//
// A sector that two CTAs write in parts costs several times a whole one. So the conversion leaves such sectors out, and this kernel
// writes them, by the bytes of columns that the conversion has stored. A thread has sixteen rows of eight columns, neighbouring
// threads the two halves of a sector, so that a store fills it.
#include "column_keys.cuh"
#include "memory.cuh"

#ifndef BLOCKS
#define BLOCKS 6
#endif
// Which CTAs are neighbours: those of the same columns, the last ones first (0) or the first ones (1), or of the same sector (2).
#ifndef ROUTE
#define ROUTE 0
#endif

namespace refnum {

constexpr int SEAM = 32, HALF = SEAM / 2, SEAMS = 480, CHUNK = 512;  // rows of a sector; sectors of a launch; columns of a CTA
constexpr uint32_t VECTORS = 1, SCALES = 2;                          // as in columns.cuh

// Fields before `first_sector` are those of ColumnArguments (columns.cuh).
struct SeamArguments {
    const uint8_t *x, *scales;
    uint8_t *rows, *row_scales;
    uint8_t *out, *out_scales;
    offset_t x_stride, scale_stride, out_stride, k, m;
    offset_t first_sector, first_segment;
    uint32_t aligned;
    uint32_t seams;           // of this launch
    uint32_t starts[SEAMS];   // the sector's rows, a bit each, at which a segment begins
    uint16_t sectors[SEAMS];  // from the launch's first
    uint16_t segments[SEAMS]; // number of the one that has the sector's first row, from the launch's first
};

struct SeamRows {
    uint32_t packed[HALF], byte[HALF];
};

// A thread's packed words of sixteen rows, and the bytes of these. A warp's halves have 128 columns each; all its threads.
__device__ __forceinline__ SeamRows fetch_rows(const SeamArguments& a, offset_t row, offset_t column, bool exists) {
    SeamRows rows;
    const uint32_t lane = threadIdx.x % 32, word = lane / 2, half = lane % 2;
    const offset_t first = column - 8 * word, own = row + word;  // for bytes: the warp's columns, and one of the rows
    const uint8_t* scales = a.scales + own * a.scale_stride + first / 32;
    uint32_t bytes[1] = {0};
    if (own < a.m) {
        if (a.aligned & SCALES && first + 128 <= a.k) {
            load<4>(scales, true, bytes);
        } else {
#pragma unroll
            for (int g = 0; g < 4; ++g) bytes[0] |= (first + 32 * g < a.k ? load_byte(scales + g) : 0) << 8 * g;
        }
    }
    const uint8_t* x = a.x + row * a.x_stride + column / 2;
#pragma unroll
    for (int i = 0; i < HALF; ++i, x += a.x_stride) {
        uint32_t w[1] = {0};
        if (exists) load<4>(x, a.aligned & VECTORS, w);
        rows.packed[i] = w[0];
    }
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
        const uint32_t four = __shfl_sync(~0u, bytes[0], 2 * i + half);
        rows.byte[i] = four >> (word / 4 * 8) & 0xFF;
    }
    return rows;
}

__device__ __forceinline__ Table column_bytes_of(const SeamArguments& a, offset_t segment, offset_t column) {
    uint32_t two[2];
    load<8>(a.out_scales + segment * a.k + column, true, two);
    return {two[0], two[1]};
}

// Codes of sixteen rows where each is exact and normal: false if one is not. A key (column_keys.cuh) rises to a code by
// 8 * (row - column) + 47, which is 7 or more.
__device__ __forceinline__ bool near_codes(const SeamRows& rows, Table above, Table below, int32_t before,
                                           uint32_t (&low)[HALF], uint32_t (&high)[HALF]) {
    uint32_t odd = 0;
    bool far = false;
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
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

// The same of any rows and segments, which is rare.
__device__ __noinline__ Table any_codes(uint32_t packed, uint32_t byte, Table columns) {
    const ColumnBytes negated[2] = {negated_columns(columns.low), negated_columns(columns.high)};
    const uint32_t words[1] = {packed};
    uint32_t codes[2];
    column_codes(words, byte, negated, codes);
    return {codes[0], codes[1]};
}

__device__ __forceinline__ void column_seams(const SeamArguments& a) {
    const uint32_t seam = ROUTE == 2 ? blockIdx.y : blockIdx.x, chunks = ROUTE == 2 ? gridDim.x : gridDim.y;
    const uint32_t chunk = ROUTE == 2 ? blockIdx.x : ROUTE == 1 ? blockIdx.y : chunks - 1 - blockIdx.y;
    const uint32_t word = threadIdx.x / 2, half = threadIdx.x % 2;
    const offset_t column = (offset_t)chunk * CHUNK + 8 * word;
    const offset_t row = (a.first_sector + a.sectors[seam]) * SEAM + HALF * half;
    const offset_t segment = a.first_segment + a.segments[seam];
    const uint32_t starts = a.starts[seam];
    const bool exists = column < a.k && row < a.m, two = (starts & (starts - 1)) == 0;
    Table above = {0, 0}, below = {0, 0};
    if (exists) above = column_bytes_of(a, segment, column), below = column_bytes_of(a, segment + 1, column);
    const SeamRows rows = fetch_rows(a, row, column, exists);
    if (!exists) return;
    const int32_t before = (int32_t)(__ffs((int)starts) - 1) - (int32_t)(HALF * half);
    uint32_t low[HALF], high[HALF];
    if (!near_codes(rows, above, below, before, low, high) || !two) {
#pragma unroll
        for (int i = 0; i < HALF; ++i) {
            const uint32_t begun = (uint32_t)__popc(starts & (2u << (HALF * half + i)) - 1);
            const Table codes = any_codes(rows.packed[i], rows.byte[i], column_bytes_of(a, segment + begun, column));
            low[i] = codes.low, high[i] = codes.high;
        }
    }
    uint32_t out[8][HALF / 4];
#pragma unroll
    for (int q = 0; q < HALF / 4; ++q) {
        uint32_t first[4], second[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) first[i] = low[4 * q + i], second[i] = high[4 * q + i];
        transpose_bytes(first);
        transpose_bytes(second);
#pragma unroll
        for (int j = 0; j < 4; ++j) out[j][q] = first[j], out[4 + j][q] = second[j];
    }
    uint8_t* to = a.out + column * a.out_stride + row;
#pragma unroll
    for (int j = 0; j < 8; ++j, to += a.out_stride) store<16>(to, out[j]);
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(refnum::CHUNK / 4, BLOCKS) void column_seams(const __grid_constant__ refnum::SeamArguments a) {
    refnum::column_seams(a);
}
