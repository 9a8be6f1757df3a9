// MXFP4 to E4M3 columns by `amax` where segments begin anywhere (clause N9): a CTA walks a strip of windows. Device only.
//
// A warp finds the columns' bytes segment by segment, and turns codes window by window: so no row is turned twice, and a
// thread's sixteen rows leave as they are. Rows wait in a ring of tiles, since a segment may reach into the next window.
// What a warp keeps of a segment is a `Record`; RECORDS of them are enough for nearly every window, others are turned a
// batch at a time. Segments that reach beyond the strip are looked at by both strips.
#pragma once

#include "mxfp4_to_fp8_runs.cuh"

namespace refnum {

constexpr int RING = 2 + AHEAD, RECORDS = 8;

// What a warp knows of a segment and its 32 columns. `power`: of eight columns (column_halves.cuh), of `far` segments none; those have
// their columns' bytes instead.
struct Record {
    uint4 power[4][2];
    Table bytes[4];
    int32_t first, end;
    uint32_t far;
};

// What a warp keeps: records, and for rows of two windows how many binades they lie above the lowest of their segment.
struct Kept {
    Record of[RECORDS];
    __align__(16) uint8_t above[2 * TALL];
};

// For every b: lanes of rows below b, of rows (0, 2), (1, 3), (4, 6), ... of sixteen.
struct LaneMasks {
    uint4 of[RUN + 1][2];

    __device__ __forceinline__ void fill() {
        for (uint32_t i = threadIdx.x; i < 8 * (RUN + 1); i += WORKERS) {
            const uint32_t end = i / 8, row = i % 8 / 2 * 4 + i % 2;
            reinterpret_cast<uint32_t*>(of)[i] = (row < end ? 0xFFFFu : 0) | (row + 2 < end ? 0xFFFF0000u : 0);
        }
    }
};

struct Strip {
    RowsTile ring[RING];
    Kept kept[GROUPS];
    LaneMasks lanes;

    // The tile of a row, counted from the strip's first.
    __device__ __forceinline__ RowsTile& tile(int32_t row) {
        return ring[RING == 2 ? (row >> 7) & 1 : (uint32_t)((row >> 7) + RING) % RING];
    }
};

// Calls `work` with the words of a thread's columns in every row of a segment, `place` its place in `above`: two rows at a
// time, or one. Eight threads have every eighth row.
template <class Work>
__device__ __forceinline__ void each_row(Strip& strip, const Share& share, const Segment& now, Work work) {
    const uint32_t own = share.row / RUN;
#pragma unroll 1
    for (int32_t row = now.first; row < now.end;) {
        const int32_t stop = min(now.end, (row & -TALL) + TALL);
        RowsTile& rows = strip.tile(row);
        const uint32_t count = (uint32_t)(stop - row);
        uint32_t place = row & (TALL - 1), above = row & (2 * TALL - 1);
#pragma unroll 2
        for (uint32_t r = own; r < count; r += 16) {
            work(rows, place + r, above + r, r + 8 < count);
        }
        row = stop;
    }
}

// Bytes of a segment's columns, rows near each other. Two rows at a time; the last one may be taken twice.
__device__ __forceinline__ ColumnScales near_columns(Strip& strip, const Kept& kept, const Share& share,
                                                     const Segment& now, uint32_t base) {
    const int32_t own = (int32_t)share.row / RUN;
    HalfMaxima most = {};
#pragma unroll 1
    for (int32_t row = now.first; row < now.end; row = (row & -TALL) + TALL) {
        const uint32_t place = (row & (TALL - 1)) + own;
        int32_t left = min(now.end, (row & -TALL) + TALL) - row - own;
        if (left <= 0) continue;
        RowsTile& rows = strip.tile(row);
        const uint32_t* words = rows.row(place) + share.word;
        const uint8_t* above = kept.above + (row & (2 * TALL - 1)) + own;
        const uint32_t step = 8 * RowsTile::pitch + (place % RUN >= 8 ? 4 : 0);
#pragma unroll 1
        for (; left > 0; left -= RUN, words += RowsTile::run_pitch, above += RUN) {
            const Table one = row_halves(words[0], half_bytes(above[0]));
            const Table other = row_halves(words[left > 8 ? step : 0], half_bytes(above[left > 8 ? 8 : 0]));
            raise_halves(most, one, other);
        }
    }
    __syncwarp();
#pragma unroll
    for (uint32_t d = 4; d < 32; d *= 2) {
#pragma unroll
        for (int j = 0; j < 4; ++j) most.w[j] = max_lanes(most.w[j], __shfl_xor_sync(~0u, most.w[j], d));
    }
    return column_scales(most, base);
}

// The same for any rows: rare, so short.
__device__ __forceinline__ Table far_columns(Strip& strip, const Share& share, const Segment& now) {
    ColumnMaxima most[2] = {};
    each_row(strip, share, now, [&](RowsTile& rows, uint32_t place, uint32_t, bool two) {
#pragma unroll 1
        for (uint32_t row = place; row <= place + (two ? 8 : 0); row += 8) {
            const Table table = column_part_table(rows.bytes[row * GROUPS + share.group], E4M3_EMAX);
            const uint32_t magnitudes = rows.row(row)[share.word] & NIBBLE_MAGNITUDES;
            raise_maxima(most[0], look_up(table, magnitudes));
            raise_maxima(most[1], look_up(table, magnitudes >> 16));
        }
    });
#pragma unroll
    for (uint32_t d = 4; d < 32; d *= 2) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            most[h].even = max_lanes(most[h].even, __shfl_xor_sync(~0u, most[h].even, d));
            most[h].odd = max_lanes(most[h].odd, __shfl_xor_sync(~0u, most[h].odd, d));
        }
    }
    return {column_bytes(column_parts(most[0]), ONE_BYTE), column_bytes(column_parts(most[1]), ONE_BYTE)};
}

// Columns' bytes of a segment, to the output if it begins in the strip, and what turns its rows.
__device__ __forceinline__ void find_columns(const ColumnArguments& a, const ColumnTile& tile, Strip& strip, Kept& kept,
                                             const Share& share, const Segment& now, Record& to) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t part[4], byte[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int32_t row = now.first + 32 * i + (int32_t)lane;
        part[i] = byte[i] = 0;
        if (row >= now.end) continue;
        RowsTile& rows = strip.tile(row);
        const uint4 four = rows.block(row & (TALL - 1), share.group);
        const uint32_t w[4] = {four.x, four.y, four.z, four.w};
        byte[i] = rows.bytes[(row & (TALL - 1)) * GROUPS + share.group];
        part[i] = block_part_max(w, byte[i]);
    }
    const GroupParts all = group_parts(part, byte);
    const bool far = all.nan || all.high > all.low + E4M3_SPREAD;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int32_t row = now.first + 32 * i + (int32_t)lane;
        if (row < now.end) kept.above[row & (2 * TALL - 1)] = (uint8_t)(far || !part[i] ? 0 : part[i] - all.low);
    }
    __syncwarp();
    Table bytes;
    uint4 power[2] = {};
    if (far) {
        bytes = far_columns(strip, share, now);
    } else {
        const ColumnScales scales = near_columns(strip, kept, share, now, all.high ? all.low - 1 : 0);
        bytes = scale_bytes(scales);
        power[0] = make_uint4(scales.power[0], scales.power[1], scales.power[2], scales.power[3]);
        power[1] = make_uint4(scales.power[4], scales.power[5], scales.power[6], scales.power[7]);
    }
    if (lane < 4) {
        store_bytes(a, tile, now, share.word, bytes);
        to.power[lane][0] = power[0], to.power[lane][1] = power[1], to.bytes[lane] = bytes;
    }
    if (lane == 0) to.first = now.first, to.end = now.end, to.far = far;
    __syncwarp();
}

// Records of a batch, the first at `first` of a ring.
struct Batch {
    const Kept& kept;
    uint32_t first, count;

    __device__ __forceinline__ const Record& operator[](uint32_t i) const {
        return kept.of[(first + min(i, count - 1)) % RECORDS];
    }
};

// Codes of a thread's rows, the first of which lies at `first`, under the columns of record `own` of a batch and of the next one;
// with `merge` no rows before those of that record.
template <bool merge>
__device__ __forceinline__ void turn_two(const Run& run, const uint4& above, const LaneMasks& all_lanes, const Batch& batch,
                                         uint32_t own, int32_t first, uint32_t (&out)[8][4]) {
    const uint32_t column = threadIdx.x % 4;
    const Record &one = batch[own], &other = batch[own + 1];
    const uint4* lanes = all_lanes.of[min(max(one.end - first, 0), RUN)];
    const int32_t start = own < batch.count ? min(max(one.first - first, 0), RUN) : RUN;
    const uint4 p[4] = {one.power[column][0], one.power[column][1], other.power[column][0], other.power[column][1]};
    const uint32_t powers[8] = {p[0].x, p[0].y, p[0].z, p[0].w, p[1].x, p[1].y, p[1].z, p[1].w};
    const uint32_t others[8] = {p[2].x, p[2].y, p[2].z, p[2].w, p[3].x, p[3].y, p[3].z, p[3].w};
    const uint32_t masks[8] = {lanes[0].x, lanes[0].y, lanes[0].z, lanes[0].w,
                               lanes[1].x, lanes[1].y, lanes[1].z, lanes[1].w};
    const uint32_t heights[4] = {above.x, above.y, above.z, above.w};
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t packed[4], codes[8], even[8], odd[8];
        Table halves[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            packed[i] = run.words[(4 * q + i) * RowsTile::pitch];
            halves[i] = row_halves(packed[i], half_bytes(heights[q] >> 8 * i & 0xFF));
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            even[j] = choose(powers[j], others[j], masks[2 * q]);
            odd[j] = choose(powers[j], others[j], masks[2 * q + 1]);
        }
        turn_rows(packed, halves, even, odd, codes);
        const uint32_t before = first_bytes(start, q);
#pragma unroll
        for (int j = 0; j < 8; ++j) out[j][q] = merge ? choose(out[j][q], codes[j], before) : codes[j];
    }
}

// The rows of `far` segments among a thread's: rare, so short.
__device__ __forceinline__ void turn_far(RowsTile& rows, const Share& share, const Batch& batch, int32_t first,
                                         uint32_t (&out)[8][4]) {
#pragma unroll 1
    for (uint32_t part = 0; part < 8; ++part) {  // four rows of four columns
        uint32_t words[4] = {0, 0, 0, 0}, here = 0, at = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t place = 4 * (part / 2) + i, row = share.row + place;
            while (at + 1 < batch.count && batch[at].end <= first + (int32_t)place) ++at;
            const Record& own = batch[at];
            if (!own.far || own.first > first + (int32_t)place || own.end <= first + (int32_t)place) continue;
            const Table bytes = own.bytes[share.word % 4];
            const ColumnBytes columns[2] = {negated_columns(bytes.low), negated_columns(bytes.high)};
            const uint32_t packed[1] = {rows.row(row)[share.word]};
            uint32_t codes[2];
            column_codes(packed, rows.bytes[row * GROUPS + share.group], columns, codes);
            words[i] = part % 2 ? codes[1] : codes[0];
            here |= 0xFFu << 8 * i;
        }
        transpose_bytes(words);
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {  // registers have no addresses
            const uint32_t word = choose(words[i / 4 % 4], out[i / 4][i % 4], here);
            out[i / 4][i % 4] = part == i % 4 * 2 + i / 16 ? word : out[i / 4][i % 4];
        }
    }
}

// A thread's rows of the segments of a batch, the first of which lies at `first`. `more`: there were batches before.
__device__ __forceinline__ void turn_batch(Strip& strip, RowsTile& rows, const Kept& kept, const Batch& batch,
                                           const Share& share, int32_t first, bool more, uint32_t (&out)[8][4]) {
    const Run run(rows, share);
    const uint4 above = *reinterpret_cast<const uint4*>(kept.above + (first & (2 * TALL - 1)));
    uint32_t own = 0;
    bool far = false;
#pragma unroll 1
    for (uint32_t i = 0; i < batch.count; ++i) {
        own += batch[i].end <= first;
        far = far || batch[i].far;
    }
    if (!more) {
        turn_two<false>(run, above, strip.lanes, batch, own, first, out);
        own += 2;
    }
#pragma unroll 1
    for (; __any_sync(~0u, own < batch.count && batch[own].first < first + RUN); own += 2) {
        turn_two<true>(run, above, strip.lanes, batch, own, first, out);
    }
    if (far) turn_far(rows, share, batch, first, out);
}

// The windows of a strip, from the one on in which its first segment begins. `rows_work`: what all threads do with the rows of a window
// ahead of that, with a barrier behind them.
template <class RowsWork>
__device__ __forceinline__ void walk_strip(const ColumnArguments& a, const ColumnTile& tile, Strip& strip, RowsWork rows_work) {
    const uint64_t policy = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    const Share share = own_share(0);
    const bool exists = tile.column + 32 * share.group < a.k;
    Kept& kept = strip.kept[share.group];
    const int32_t held = (int32_t)tile.held;
    TileSegments s(a, tile);
    const int32_t stop = held ? TileSegments(a, tile, held - 1).now.end : 0, begin = s.now.first;
    const auto fetch = [&](int32_t row) {
        if (row >= stop) return;
        strip.tile(row).fetch(a, tile.column, tile.row + row, (uint32_t)(stop - row), policy, (uint32_t)max(begin - row, 0));
    };
    strip.lanes.fill();
    for (uint32_t i = threadIdx.x % 32; i < 2 * TALL / 4; i += 32) reinterpret_cast<uint32_t*>(kept.above)[i] = 0;
    Batch batch = {kept, 0, 0};
    int32_t window = begin & -TALL;
    fetch(window);
    if (AHEAD) fetch(window + TALL);
#pragma unroll 1
    for (; window < held; window += TALL) {
        if (!AHEAD) fetch(window + TALL);
        wait_copies();
        __syncthreads();
        if (AHEAD) fetch(window + 2 * TALL);
        RowsTile& rows = strip.tile(window);
        if (window >= 0) rows_work(window, rows);
        uint32_t out[8][4];
#pragma unroll
        for (int i = 0; i < 32; ++i) out[i / 4][i % 4] = 0;
        bool more = false;
        if (exists) {
#pragma unroll 1
            do {
                while (batch.count < RECORDS && s.some() && s.now.first < window + TALL) {
                    find_columns(a, tile, strip, kept, share, s.now, kept.of[(batch.first + batch.count++) % RECORDS]);
                    s.next();
                }
                if (window >= 0) turn_batch(strip, rows, kept, batch, share, window + (int32_t)share.row, more, out);
                const uint32_t last = batch.count - 1;
                const bool waits = batch[last].end > window + TALL;
                batch.first = (batch.first + (waits ? last : batch.count)) % RECORDS;
                batch.count = waits ? 1 : 0;
                more = true;
                __syncwarp();
            } while (s.some() && s.now.first < window + TALL);
        }
        if (exists && window >= 0) store_columns(a, tile, share, window + (int32_t)share.row, out);
        if (!AHEAD) __syncthreads();
    }
    if (tile.held < tile.rows) clear_rows<WORKERS, 1>(a, tile, (held + TALL - 1) & -TALL);
}

}  // namespace refnum
