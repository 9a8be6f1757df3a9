// A warp turns a group of 32 columns and a segment of up to 128 rows of MXFP4 to E4M3 columns (clause N9). Device only.
//
// In windows a thread ends with sixteen rows of eight columns: eight stores of 16 bytes, and eight threads fill 128 bytes of a
// column. Where segments begin anywhere (RAGGED), `max` turns windows of 128 rows, whose segments differ in their tables
// alone; of rows outside the window it needs the scales. `amax` would need all of them, so it walks a strip of segments.
// Each lies in the tile from its first multiple of 32 rows on, the 33rd row of a fifth band in the first one's places. Of every
// band a thread has four rows, so that a warp passes by the bands without any; eight threads fill 32 bytes of a column.
// A band that a segment fills in part waits in shared memory for the next segment; segments that reach beyond the strip
// are turned by both strips.
#pragma once

#include "mxfp4_to_fp8_runs.cuh"

namespace refnum {

// `max`: the larger of `most` and the parts of `count` rows outside the window, from `row` on. One block tells nearly
// always: that of the largest byte. All threads of a warp.
__device__ __forceinline__ uint32_t raise_by_edge(const ColumnArguments& a, const ColumnTile& tile, const uint8_t* bytes,
                                                  int32_t row, uint32_t count, uint32_t group, uint32_t most) {
    const uint8_t* x = a.x + (tile.row + row) * a.x_stride + (tile.column / 2 + 16 * group);
    uint32_t best = 0;
#pragma unroll
    for (uint32_t r = threadIdx.x % 32; r < TALL; r += 32) {
        const uint32_t byte = r < count ? bytes[r * GROUPS + group] : NAN_BYTE;
        best = max(best, byte == NAN_BYTE ? 0 : (byte + 1) << 8 | r);
    }
    best = __reduce_max_sync(~0u, best);
    if (best >> 8 <= most) return most;
    uint32_t w[4];
    load<16>(x + (offset_t)(best & 0xFF) * a.x_stride, a.aligned & VECTORS, w);
    if (!is_empty(w)) return best >> 8;
    uint32_t own = most;
#pragma unroll 1
    for (uint32_t r = threadIdx.x % 32; r < count; r += 32) {
        const uint32_t byte = bytes[r * GROUPS + group];
        load<16>(x + (offset_t)r * a.x_stride, a.aligned & VECTORS, w);
        own = max(own, block_part_max(w, byte));
    }
    return __reduce_max_sync(~0u, own);
}

// `max`: the byte of each of a lane's rows, from all rows' parts; stores those of the segments that begin in the window.
__device__ __forceinline__ void segment_bytes(const ColumnArguments& a, const ColumnTile& tile, uint32_t group,
                                              const uint32_t (&part)[4], EdgeBytes& edges, uint32_t (&shared)[4]) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll 1
    for (TileSegments s(a, tile); s.some(); s.next()) {
        uint32_t most = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) most = max(most, s.now.has(32 * i + lane) ? part[i] : 0);
        most = __reduce_max_sync(~0u, most);
        const int32_t first = s.now.first, behind = s.now.end - TALL;
        if (first < 0) most = raise_by_edge(a, tile, edges.at(first), first, (uint32_t)-first, group, most);
        if (behind > 0) most = raise_by_edge(a, tile, edges.at(TALL), TALL, (uint32_t)behind, group, most);
        const uint32_t own = tile_byte_max(most);
#pragma unroll
        for (int i = 0; i < 4; ++i) shared[i] = s.now.has(32 * i + lane) ? own : shared[i];
        if (first >= 0 && lane < 8) {
            store_scales(a, s.now.number, tile.column + 32 * group + 4 * lane, own * 0x01010101u);
        }
    }
}
// The same where all rows are of one segment, and it has no others.
__device__ __forceinline__ void segment_bytes(const ColumnArguments& a, const ColumnTile& tile, uint32_t group,
                                              const uint32_t (&part)[4], Nothing&, uint32_t (&shared)[4]) {
    const uint32_t lane = threadIdx.x % 32, most = max(max(part[0], part[1]), max(part[2], part[3]));
    const uint32_t byte = tile_byte_max(__reduce_max_sync(~0u, most));
    if (lane < 8) store_scales(a, tile.window, tile.column + 32 * group + 4 * lane, byte * 0x01010101u);
#pragma unroll
    for (int i = 0; i < 4; ++i) shared[i] = byte;
}

// `max`: tables of the rows of a group. The codes of NaN rows are cleared, unless they are already.
template <bool cleared, class Tile, class Tables, class Kept>
__device__ __forceinline__ void max_tables(const ColumnArguments& a, const ColumnTile& tile, Tile& rows,
                                           uint32_t group, Tables& tables, Kept& kept) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t part[4], byte[4], shared[4] = {0, 0, 0, 0};
    block_parts<4>(rows, group, part, byte);
    segment_bytes(a, tile, group, part, kept, shared);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t row = 32 * i + lane;
        tables[row] = row_table(part[i], byte[i], shared[i]);
        if (!cleared && byte[i] == NAN_BYTE) rows.block(row, group) = make_uint4(0, 0, 0, 0);
    }
    __syncwarp();
}

__device__ __forceinline__ void turn_max(const Run<false>& run, uint32_t (&out)[8][4]) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t first[4], second[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            e4m3_words(run.word(4 * q + i), run.table(4 * q + i), first[i], second[i]);
        }
        transpose_bytes(first);
        transpose_bytes(second);
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i][q] = first[i], out[4 + i][q] = second[i];
    }
}

// `amax`: how a group's rows are turned.
enum Way { BY_KEYS, BY_HALVES, ANY_ROWS };

// `amax`: tables of a group's rows in `bands` bands, and what is known of them. All magnitudes of rows without a part are zero,
// whose entry is 0 in any table.
template <class Tile, class Tables>
__device__ __forceinline__ Way amax_tables(Tile& rows, uint32_t group, uint32_t bands, Tables& tables, uint32_t& low) {
    constexpr uint32_t NAN_PART = NAN_BYTE + 1;
    uint32_t part[4], high = 0;
    low = ~0u;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        if (i >= bands) break;
        const uint32_t row = 32 * i + threadIdx.x % 32, byte = rows.bytes[row * GROUPS + group];
        const uint4 four = rows.block(row, group);
        const uint32_t w[4] = {four.x, four.y, four.z, four.w};
        part[i] = is_empty(w) ? 0 : byte + 1;
        high = max(high, max(part[i], (byte + 1) & NAN_PART));
        low = min(low, part[i] - 1);
    }
    high = __reduce_max_sync(~0u, high);
    low = __reduce_min_sync(~0u, low) + 1;
    const bool far = high > low + KEY_SPREAD || low < KEY_LOWEST;
    const Way way = high >= NAN_PART || high > low + E4M3_SPREAD ? ANY_ROWS : high && far ? BY_HALVES : BY_KEYS;
    const Table base = way == BY_KEYS ? key_table(0) : half_bytes(0);
    const uint32_t step = way == BY_KEYS ? 8 : 4;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        if (i >= bands) break;
        const uint32_t lift = step * (part[i] - low);
        tables[32 * i + threadIdx.x % 32] = {base.low + lift * 0x01010100u, base.high + lift * 0x01010101u};
    }
    __syncwarp();
    return way;
}

// The largest lanes of a warp's threads that have the same columns.
__device__ __forceinline__ void meet_maxima(HalfMaxima& most) {
#pragma unroll
    for (uint32_t d = 4; d < 32; d *= 2) {
#pragma unroll
        for (int j = 0; j < 4; ++j) most.w[j] = max_lanes(most.w[j], __shfl_xor_sync(~0u, most.w[j], d));
    }
}

// `amax`, rows nearer each other still: keys, then codes.
template <class Run, class Store>
__device__ __forceinline__ void turn_keys(const Run& run, uint32_t bands, uint32_t low, Store store_bytes,
                                          uint32_t (&out)[8][4]) {
    HalfMaxima most = {};
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
        if (q >= bands) break;
        uint32_t first[4], second[4];
        Table keys[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t packed = run.word(4 * q + i);
            keys[i] = row_halves(packed, run.table(4 * q + i));
            const Table own = signed_keys(packed, keys[i]);
            first[i] = own.low, second[i] = own.high;
        }
        raise_halves(most, keys[0], keys[1]);
        raise_halves(most, keys[2], keys[3]);
        transpose_bytes(first);
        transpose_bytes(second);
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i][q] = first[i], out[4 + i][q] = second[i];
    }
    meet_maxima(most);
    const Table largest = largest_keys(most);
    store_bytes({key_bytes(largest.low, low), key_bytes(largest.high, low)});
    const Table lifts = {key_lifts(largest.low), key_lifts(largest.high)};
    uint32_t lift[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) lift[j] = permute(j < 4 ? lifts.low : lifts.high, 0, 0x4440 + j % 4);
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
        if (q >= bands) break;
#pragma unroll
        for (int j = 0; j < 8; ++j) out[j][q] = lift_keys(out[j][q], lift[j]);
    }
}

// `amax`, rows near each other: codes; stores the bytes of the columns.
template <class Run, class Store>
__device__ __forceinline__ void turn_near(const Run& run, uint32_t bands, uint32_t low, Store store_bytes,
                                          uint32_t (&out)[8][4]) {
    HalfMaxima most = {};
#pragma unroll
    for (uint32_t i = 0; i < RUN; i += 2) {
        if (i / 4 < bands) raise_halves(most, run.halves(i), run.halves(i + 1));
    }
    meet_maxima(most);
    const ColumnScales scales = column_scales(most, low - 1);
    store_bytes(scale_bytes(scales));
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
        if (q >= bands) break;
        uint32_t packed[4], codes[8];
        Table halves[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) packed[i] = run.word(4 * q + i), halves[i] = run.halves(4 * q + i);
        turn_rows(packed, halves, scales.power, codes);
#pragma unroll
        for (int j = 0; j < 8; ++j) out[j][q] = codes[j];
    }
}

// `amax`, any rows: rare, so short.
template <class Run, class Tile, class Store>
__device__ __forceinline__ void turn_any(Tile& rows, const Share& share, uint32_t bands, Store store_bytes,
                                         uint32_t (&out)[8][4]) {
    ColumnMaxima most[2] = {};
#pragma unroll 1
    for (uint32_t i = 0; i < 4 * bands; ++i) {
        const uint32_t row = Run::row(share, i);
        const Table table = column_part_table(rows.bytes[row * GROUPS + share.group], E4M3_EMAX);
        const uint32_t magnitudes = rows.row(row)[share.word] & NIBBLE_MAGNITUDES;
        raise_maxima(most[0], look_up(table, magnitudes));
        raise_maxima(most[1], look_up(table, magnitudes >> 16));
    }
#pragma unroll
    for (uint32_t d = 4; d < 32; d *= 2) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            most[h].even = max_lanes(most[h].even, __shfl_xor_sync(~0u, most[h].even, d));
            most[h].odd = max_lanes(most[h].odd, __shfl_xor_sync(~0u, most[h].odd, d));
        }
    }
    const Table bytes = {column_bytes(column_parts(most[0]), ONE_BYTE), column_bytes(column_parts(most[1]), ONE_BYTE)};
    store_bytes(bytes);
    const ColumnBytes columns[2] = {negated_columns(bytes.low), negated_columns(bytes.high)};
#pragma unroll
    for (int i = 0; i < 32; ++i) out[i / 4][i % 4] = 0;
#pragma unroll 1
    for (uint32_t part = 0; part < 2 * bands; ++part) {  // four rows of four columns
        uint32_t words[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t row = Run::row(share, part / 2 * 4 + i), packed[1] = {rows.row(row)[share.word]};
            uint32_t codes[2];
            column_codes(packed, rows.bytes[row * GROUPS + share.group], columns, codes);
            words[i] = part % 2 ? codes[1] : codes[0];
        }
        transpose_bytes(words);
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {  // registers have no addresses
            out[i / 4][i % 4] = part == i % 4 * 2 + i / 16 ? words[i / 4 % 4] : out[i / 4][i % 4];
        }
    }
}

// cleared: whether the codes of NaN rows are zero, and other warps may read the tile still.
template <bool amax, bool cleared, class Tile, class Tables>
__device__ __forceinline__ void turn_share(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                           Tile& rows, Tables& tables, Kept<amax>& kept, const Share& share,
                                           uint32_t (&out)[8][4]) {
    typedef Run<amax && RAGGED> OwnRun;
    const OwnRun run(rows, tables, share);
    if constexpr (!amax) {
        max_tables<cleared>(a, tile, rows, share.group, tables, kept);
        turn_max(run, out);
    } else {
        uint32_t low;
        const uint32_t bands = RAGGED ? Places(now).bands(now) : TALL / BAND;
        const Way way = amax_tables(rows, share.group, bands, tables, low);
        const auto store = [&](Table bytes) {
            if (share.number == 0) store_bytes(a, tile, now, share.word, bytes);
        };
        if (way == BY_KEYS) turn_keys(run, bands, low, store, out);
        else if (way == BY_HALVES) turn_near(run, bands, low, store, out);
        else turn_any<OwnRun>(rows, share, bands, store, out);
    }
}

// A warp's whole work on its groups, behind the rows' arrival.
template <bool amax, bool cleared, class Tile, class Tables>
__device__ __forceinline__ void turn_groups(const ColumnArguments& a, const ColumnTile& tile, const Segment& now,
                                            Tile& rows, Tables& tables, Kept<amax>& kept) {
#pragma unroll 1
    for (uint32_t turn = 0; turn < TURNS; ++turn) {
        const Share share = own_share(turn);
        if (tile.column + 32 * share.group >= a.k) return;
        uint32_t out[8][4];
        turn_share<amax, cleared>(a, tile, now, rows, tables, kept, share, out);
        store_runs(a, tile, share, now, kept, out);
        __syncwarp();  // the tables are the next group's from here on
    }
}

// Calls `work` with what `amax` has of a CTA's rows at a time, every segment that meets them, and the tile that holds it.
template <class Tile, class Work>
__device__ __forceinline__ void walk_rows(const ColumnArguments& a, const ColumnTile& tile, Tile (&rows)[1 + AHEAD],
                                          OpenBand&, Work work) {
    const uint64_t keep = keep_policy();  // for scales: 64 bytes of DRAM hold a row's for eight or sixteen tiles
    TileSegments s(a, tile);
    const auto fetch = [&](Tile& to) {
        const Places places(s.now);
        to.fetch(a, tile.column, tile.row + places.base, (uint32_t)(s.now.end - places.base), keep, places.skew);
    };
    if (s.some()) fetch(rows[0]);
#pragma unroll 1
    for (uint32_t turn = 0; s.some(); turn = AHEAD - turn) {
        const Segment now = s.now;
        s.next();
        wait_copies();
        __syncthreads();
        if (AHEAD && s.some()) fetch(rows[AHEAD - turn]);
        work(now, rows[turn]);
        if (AHEAD || !s.some()) continue;
        __syncthreads();
        fetch(rows[0]);
    }
    if (tile.held < tile.rows) clear_rows<WORKERS, 1>(a, tile, ((int32_t)tile.held + BAND - 1) & -BAND);
}

__device__ __forceinline__ void fetch_edges(const ColumnArguments&, const ColumnTile&, Nothing&, uint64_t) {}
__device__ __forceinline__ void fetch_edges(const ColumnArguments& a, const ColumnTile& tile, EdgeBytes& edges,
                                            uint64_t keep) {
    const Edges rows = window_edges<TALL, TALL>(a, tile);
    const int32_t first = -(int32_t)rows.before;
    if (rows.before) {
        Shape<false>::Tile::fetch_scales(a, tile.column, tile.row + first, rows.before, rows.before, edges.at(first), keep);
    }
    if (rows.behind) {
        Shape<false>::Tile::fetch_scales(a, tile.column, tile.row + TALL, rows.behind, rows.behind, edges.at(TALL), keep);
    }
}

// The same for a window, at once.
template <class Tile, class Kept, class Work>
__device__ __forceinline__ void walk_rows(const ColumnArguments& a, const ColumnTile& tile, Tile (&rows)[1 + AHEAD],
                                          Kept& kept, Work work) {
    const uint64_t keep = keep_policy();
    rows[0].fetch(a, tile.column, tile.row, tile.held, keep, tile.skew);
    fetch_edges(a, tile, kept, keep);
    wait_copies();
    __syncthreads();
    work({(int32_t)tile.skew, (int32_t)tile.held, tile.window}, rows[0]);
}

}  // namespace refnum
