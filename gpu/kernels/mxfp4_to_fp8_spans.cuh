// MXFP4 to E4M3 columns by `amax` where segments begin anywhere (clause N9): a CTA walks a strip of windows of 128 rows, a warp 32
// columns of them. Device only.
//
// Windows wait in shared memory until the one below has come. Then a warp finds the largest element of every column of each segment
// that begins in the upper one, and turns that window by keys (column_keys.cuh), sixteen rows of eight columns a thread: segments
// decide only what is added to a key. So every row is turned once, and every store is of 16 bytes. Of rows outside the strip, those
// of segments that meet it are read. What keys cannot turn (NaN, rows far from each other, more than MEETING segments a window) is
// rare, so short.
#pragma once

#include "mxfp4_to_fp8_tile.cuh"

// Whether the order is one of these kernels: the trial has them beside the strips of mxfp4_to_fp8_tile.cuh.
#define SPANS (RAGGED && !AHEAD && TURNS == 1 && WIDE == 128)
#if SPANS

namespace refnum {

constexpr int RING = LINE == 64 ? 2 : 3, MEETING = 12;              // windows in shared memory; segments that meet one
constexpr uint32_t LOWEST_BYTE = KEY_LOWEST - 1, HIGHEST_OVER = 6;  // part of a column over the lowest row's byte

// A window's rows: runs of sixteen in banks of their own, of codes and of scale bytes.
struct WindowTile {
    static constexpr int pitch = WIDE / 8 + 4, run_pitch = RUN * pitch + 4, bytes_run = RUN * GROUPS + 4;
    static constexpr bool BANDS = false;
    __align__(16) uint32_t codes[TALL / RUN * run_pitch];
    __align__(8) uint8_t bytes[TALL / RUN * bytes_run];

    __device__ __forceinline__ uint32_t* row(uint32_t i) { return codes + i * pitch + i / RUN * 4; }
    __device__ __forceinline__ uint4& block(uint32_t i, uint32_t group) { return *reinterpret_cast<uint4*>(row(i) + 4 * group); }
    __device__ __forceinline__ uint8_t* scales(uint32_t i) { return bytes + i * GROUPS + i / RUN * 4; }

    // The array's rows from `first` on, `rows` of them; those behind are empty blocks. All threads of a CTA; complete behind
    // `wait_copies` and a barrier.
    __device__ __forceinline__ void fetch(const ColumnArguments& a, offset_t column, offset_t first, uint32_t rows, uint64_t keep) {
        static_assert(GROUPS == 4 && WORKERS == TALL, "a thread has a row's scales");
        const uint32_t group = threadIdx.x % GROUPS, own = threadIdx.x / GROUPS, all = VECTORS | SCALES;
        const uint8_t* x = a.x + (first + own) * a.x_stride + (column / 2 + 16 * group);
        const uint8_t* from = a.scales + (first + threadIdx.x) * a.scale_stride + column / 32;
        const offset_t step = ROWS_A_PASS * a.x_stride;
        if (rows >= TALL && (a.aligned & all) == all && column + WIDE <= a.k) {
            static_assert(ROWS_A_PASS % RUN == 0, "passes lie at constant distances");
            uint32_t* to = row(own) + 4 * group;
#pragma unroll
            for (int i = 0; i < TALL / ROWS_A_PASS; ++i, x += step) copy_16(to + i * (ROWS_A_PASS / RUN * run_pitch), x, true);
            copy_4(scales(threadIdx.x), from, true, keep);
            return;
        }
        const bool here = column + 32 * group < a.k;
#pragma unroll 1
        for (uint32_t i = own; i < TALL; i += ROWS_A_PASS, x += step) {
            uint32_t w[4] = {0, 0, 0, 0};
            if (here && i < rows) load<16>(x, a.aligned & VECTORS, w);
            block(i, group) = make_uint4(w[0], w[1], w[2], w[3]);
        }
#pragma unroll 1
        for (uint32_t g = 0; g < GROUPS; ++g) {
            const bool some = threadIdx.x < rows && column + 32 * g < a.k;
            scales(threadIdx.x)[g] = some ? (uint8_t)load_byte(from + g) : 0;
        }
    }
};

// What a warp keeps: the first row, counted from the strip's, and the columns' parts (`column_part_table`) of the segment that the
// window above ends with and of those that begin in the window.
struct Found {
    __align__(8) uint8_t parts[MEETING][32];
    int32_t first[MEETING];
};

// Parts of the magnitudes of a row whose byte is LOWEST_BYTE or more: `column_part_table` in two multiply-adds.
__device__ __forceinline__ Table plain_parts(uint32_t byte) {
    constexpr uint32_t down = (uint32_t)(1 - E4M3_EMAX);
    return {byte * 0x01010100u + (down * 0x01010100u - 0x100u), byte * 0x01010101u + (down * 0x01010101u + 0x02020101u)};
}

// Raises a thread's columns by every eighth of a window's rows `row` to `end` - 1.
__device__ __forceinline__ void raise_rows(WindowTile& rows, const Share& share, uint32_t row, uint32_t end, HalfMaxima& most) {
    constexpr uint32_t run = WindowTile::run_pitch, bytes_run = WindowTile::bytes_run;
    const uint32_t first = row + share.number, over = first % RUN < 8 ? 0 : 4;
    const uint32_t half = 8 * WindowTile::pitch + over, bytes_half = 8 * GROUPS + over;
    const uint32_t* words = rows.row(first) + share.word;
    const uint8_t* bytes = rows.scales(first) + share.group;
#pragma unroll 1
    for (; row + 32 <= end; row += 32, words += 2 * run, bytes += 2 * bytes_run) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const Table a = row_halves(words[i * run], plain_parts(bytes[i * bytes_run]));
            const Table b = row_halves(words[i * run + half], plain_parts(bytes[i * bytes_run + bytes_half]));
            raise_halves(most, a, b);
        }
    }
#pragma unroll 1
    for (; row < end; row += 16) {
        const uint32_t one = min(row + share.number, end - 1), two = min(row + share.number + 8, end - 1);
        const Table a = row_halves(rows.row(one)[share.word], plain_parts(rows.scales(one)[share.group]));
        const Table b = row_halves(rows.row(two)[share.word], plain_parts(rows.scales(two)[share.group]));
        raise_halves(most, a, b);
    }
}

// Bytes of four columns from their parts.
__device__ __forceinline__ uint32_t part_bytes(uint32_t parts) {
    const uint32_t some = ((parts & BYTE_MAGNITUDES) + BYTE_MAGNITUDES) | parts;  // at the tops of bytes
    return choose(parts - (some >> 7 & 0x01010101u), ONE_BYTE * 0x01010101u, sign_bytes(some));
}

// The smallest and the largest byte of a window's rows of a group: of all, or of the first `held` that take part.
struct Heights {
    uint32_t low = MAX_BYTE, high = 0;

    __device__ __forceinline__ bool plain() const { return high < NAN_BYTE && low >= LOWEST_BYTE; }
    __device__ __forceinline__ bool near() const { return plain() && high <= low + KEY_SPREAD; }
};
template <bool all>
__device__ __forceinline__ Heights find_heights(WindowTile& rows, uint32_t group, uint32_t held) {
    Heights out;
#pragma unroll
    for (uint32_t row = threadIdx.x % 32; row < TALL; row += 32) {
        const uint32_t byte = rows.scales(row)[group];
        bool some = true;
        if (!all) {
            const uint4 four = rows.block(row, group);
            const uint32_t w[4] = {four.x, four.y, four.z, four.w};
            some = row < held && (byte == NAN_BYTE || !is_empty(w));
        }
        out.high = max(out.high, some ? byte : 0), out.low = min(out.low, some ? byte : MAX_BYTE);
    }
    out.low = __reduce_min_sync(~0u, out.low);
    out.high = __reduce_max_sync(~0u, out.high);
    return out;
}
__device__ __forceinline__ Heights window_heights(WindowTile& rows, uint32_t group, uint32_t held) {
    Heights out;
    if (held >= TALL) out = find_heights<true>(rows, group, held);
    return held >= TALL && out.near() ? out : find_heights<false>(rows, group, held);
}

// What is added to the keys of eight columns of a segment.
__device__ __forceinline__ void segment_lifts(Found& found, uint32_t segment, uint32_t low, uint32_t (&lift)[8]) {
    const uint2 parts = *reinterpret_cast<const uint2*>(&found.parts[segment][8 * (threadIdx.x % 4)]);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        lift[j] = 8 * (low + HIGHEST_OVER + 1) - 1 - 8 * permute(j < 4 ? parts.x : parts.y, 0, 0x4440 + j % 4);
    }
}

// A thread's rows of a window, whose first lies `origin` behind the strip's, by keys. `count` segments meet it.
__device__ __forceinline__ void turn_run(WindowTile& rows, Found& found, const Share& share, int32_t origin,
                                         uint32_t count, uint32_t low, uint32_t (&out)[8][4]) {
    const uint32_t* words = rows.row(RUN * share.number) + share.word;
    const uint8_t* bytes = rows.scales(RUN * share.number) + share.group;
    const Table base = {key_table(0).low - low * 0x08080800u, key_table(0).high - low * 0x08080808u};
    uint32_t segment = 0, starts = 0, lift[8];
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
        const int32_t first = found.first[i] - origin - RUN * (int32_t)share.number;
        if (first <= 0) segment = i;
        else if (first < RUN) starts |= 1u << first;
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t first[4], second[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t packed = words[(4 * q + i) * WindowTile::pitch], byte = bytes[(4 * q + i) * GROUPS];
            const Table keys = row_halves(packed, {byte * 0x08080800u + base.low, byte * 0x08080808u + base.high});
            const Table turned = signed_keys(packed, keys);
            first[i] = turned.low, second[i] = turned.high;
        }
        transpose_bytes(first);
        transpose_bytes(second);
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i][q] = first[i], out[4 + i][q] = second[i];
    }
    segment_lifts(found, segment, low, lift);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t left = starts >> 4 * q & 0xF;
#pragma unroll 1
        for (; left; left &= left - 1) {  // the rows above a segment; a key that is lifted has no flag any more
            const uint32_t above = KEY_FLAGS & ((1u << 8 * (__ffs((int)left) - 1)) - 1);
#pragma unroll
            for (int j = 0; j < 8; ++j) out[j][q] += (out[j][q] & above) * lift[j];
            segment_lifts(found, ++segment, low, lift);
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) out[j][q] = lift_keys(out[j][q], lift[j]);
    }
}

// The parts of a thread's columns in the segment that begins in row `first`: those found, or those of all its rows, read anew.
__device__ __forceinline__ Table segment_parts(const ColumnArguments& a, const ColumnTile& tile, const Found& found,
                                               const Share& share, uint32_t count, const Segment& now) {
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
        if (found.first[i] != now.first) continue;
        const uint2 two = *reinterpret_cast<const uint2*>(&found.parts[i][8 * (threadIdx.x % 4)]);
        return {two.x, two.y};
    }
    ColumnMaxima most[2] = {};
#pragma unroll 1
    for (int32_t r = now.first; r < now.end; ++r) {
        uint32_t packed[1];
        load<4>(a.x + (tile.row + r) * a.x_stride + (tile.column / 2 + 4 * share.word), a.aligned & VECTORS, packed);
        const uint32_t byte = load_byte(a.scales + (tile.row + r) * a.scale_stride + tile.column / 32 + share.group);
        const Table table = column_part_table(byte, E4M3_EMAX);
        raise_maxima(most[0], look_up(table, packed[0] & NIBBLE_MAGNITUDES));
        raise_maxima(most[1], look_up(table, (packed[0] & NIBBLE_MAGNITUDES) >> 16));
    }
    return {column_parts(most[0]), column_parts(most[1])};
}

// The same, any rows, and their columns; stores the bytes of the segments that begin in these rows, from row `open` on. Rare, so short.
__device__ __forceinline__ void turn_run_any(const ColumnArguments& a, ColumnTile tile, WindowTile& rows, Found& found,
                                          Share share, int32_t origin, uint32_t count, int32_t open) {
    uint32_t out[8][4];
    const int32_t row = origin + RUN * (int32_t)share.number;
#pragma unroll
    for (int i = 0; i < 32; ++i) out[i / 4][i % 4] = 0;
#pragma unroll 1
    for (TileSegments s(a, tile, row); s.some() && s.now.first < row + RUN; s.next()) {
        const Table parts = segment_parts(a, tile, found, share, count, s.now);
        const Table bytes = {part_bytes(parts.low), part_bytes(parts.high)};
        const ColumnBytes columns[2] = {negated_columns(bytes.low), negated_columns(bytes.high)};
        if (s.now.first >= max(row, open)) store_bytes(a, tile, s.now, share.word, bytes);
#pragma unroll 1
        for (int32_t r = max(s.now.first, row); r < min(s.now.end, row + RUN); ++r) {
            const uint32_t packed[1] = {rows.row((uint32_t)(r - origin))[share.word]};
            uint32_t codes[2];
            column_codes(packed, rows.scales((uint32_t)(r - origin))[share.group], columns, codes);
            const int32_t quad = (r - row) / 4, place = 8 * ((r - row) % 4);
#pragma unroll
            for (int i = 0; i < 32; ++i) {  // registers have no addresses
                const uint32_t code = codes[i / 16] >> (i / 4 % 4 * 8) & 0xFF;
                out[i / 4][i % 4] |= quad == i % 4 ? code << place : 0;
            }
        }
    }
    Nothing none;
    store_runs(a, tile, Share{share.group, share.word, origin / RUN + share.number}, Segment{}, none, out);
}

// A warp's way down a strip.
struct Walk {
    TileSegments s;
    Heights upper, lower;         // of the window and of the one below
    uint32_t count = 0, top = 0;  // segments in `found`; the largest part of the last one
    bool known = true;            // whether all parts were found
    int32_t open = 0;             // the first row of the window's segments without parts

    __device__ __forceinline__ Walk(const ColumnArguments& a, const ColumnTile& tile) : s(a, tile) {}

    // Finds the parts of the segments that begin in a window, `origin` rows behind the strip's first, and stores their bytes. Returns
    // whether keys can turn the window.
    __device__ __forceinline__ bool find_parts(const ColumnArguments& a, const ColumnTile& tile, WindowTile& rows,
                                               WindowTile& next, Found& found, const Share& share, int32_t origin) {
        const uint32_t lane = threadIdx.x % 32;
        if (count > 1 && lane < 8) {  // the window above's last segment
            uint32_t* parts = reinterpret_cast<uint32_t*>(found.parts[0]);
            parts[lane] = parts[8 * (count - 1) + lane];
            if (lane == 0) found.first[0] = found.first[count - 1];
        }
        __syncwarp();
        count = min(count, 1);
        const uint32_t kept = count;
        bool turned = known && upper.near();
        uint32_t largest = 0, last = 0;
        known = upper.plain() && lower.plain();
        open = known ? origin + TALL : origin;
#pragma unroll 1
        for (; s.some() && s.now.first < origin + TALL; s.next()) {
            if (known && count == MEETING) known = false, open = s.now.first;
            if (!known) continue;
            const uint32_t end = (uint32_t)(s.now.end - origin);
            HalfMaxima most = {};
            raise_rows(rows, share, (uint32_t)max(s.now.first - origin, 0), min(end, TALL), most);
            if (end > TALL) raise_rows(next, share, 0, end - TALL, most);
            meet_maxima(most);
            const Table parts = largest_keys(most);
            last = max_lanes(max_lanes(most.w[0], most.w[1]), max_lanes(most.w[2], most.w[3]));
            largest = max_lanes(largest, last);
            if (share.number == 0) {
                *reinterpret_cast<uint2*>(&found.parts[count][8 * lane]) = make_uint2(parts.low, parts.high);
                if (lane == 0) found.first[count] = s.now.first;
                store_bytes(a, tile, s.now, share.word, {part_bytes(parts.low), part_bytes(parts.high)});
            }
            ++count;
        }
        turned = turned && known;
        largest = __reduce_max_sync(~0u, larger_lane(largest)) >> 8;
        turned = turned && max(top, largest) <= upper.low + HIGHEST_OVER;
        if (count > kept) top = __reduce_max_sync(~0u, larger_lane(last)) >> 8;
        __syncwarp();
        return turned;
    }
};

// Turns a strip. `work` has what a CTA does with a window beside its columns.
template <class Work>
__device__ __forceinline__ void turn_strip(const ColumnArguments& a, const ColumnTile& tile, WindowTile (&rows)[RING],
                                           Found& found, Work work) {
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    const Share share = own_share(0);
    const bool exists = tile.column + 32 * share.group < a.k;
    const int32_t held = (int32_t)tile.held, end = held ? TileSegments(a, tile, held - 1).now.end : 0;
    Walk walk(a, tile);
    const auto fetch = [&](WindowTile& to, int32_t origin) {
        if (origin < end) to.fetch(a, tile.column, tile.row + origin, (uint32_t)(end - origin), keep);
    };
    const int32_t begin = held && walk.s.now.first < 0 ? -TALL : 0;
    uint32_t ring = 0;  // of the window below
    fetch(rows[0], begin);
#pragma unroll 1
    for (int32_t origin = begin - TALL; origin < held; origin += TALL) {
        const uint32_t above = ring ? ring - 1 : RING - 1, behind = ring < RING - 1 ? ring + 1 : 0;
        wait_copies();
        __syncthreads();
        if (RING > 2) fetch(rows[behind], origin + 2 * TALL);
        if (origin >= 0) work(rows[above], origin);
        if (exists) {
            walk.upper = walk.lower;
            walk.lower = Heights();
            if (origin + TALL < end) {
                walk.lower = window_heights(rows[ring], share.group, (uint32_t)(end - origin - TALL));
            }
            __syncwarp();
        }
        if (exists && origin >= begin) {
            const bool turned = walk.find_parts(a, tile, rows[above], rows[ring], found, share, origin);
            if (origin >= 0) {
                uint32_t out[8][4];
                Nothing none;
                if (turned) {
                    turn_run(rows[above], found, share, origin, walk.count, walk.upper.low, out);
                    store_runs(a, tile, Share{share.group, share.word, origin / RUN + share.number}, Segment{}, none, out);
                } else {
                    turn_run_any(a, tile, rows[above], found, share, origin, walk.count, walk.open);
                }
                __syncwarp();
            }
        }
        if (RING == 2) {
            __syncthreads();
            fetch(rows[above], origin + 2 * TALL);
        }
        ring = behind;
    }
    if (tile.held < tile.rows) clear_rows<WORKERS, 1>(a, tile, ((int32_t)tile.held + TALL - 1) & -TALL);
}

}  // namespace refnum

#endif
