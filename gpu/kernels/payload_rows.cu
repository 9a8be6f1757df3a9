// Payload rows joined, split and gathered by expert (clause N12). A warp moves one row, or `span` bytes of a long one,
// or gathers ROWS short ones; all its loads before its stores.
#include "payload_memory.cuh"

#ifndef ROWS
#define ROWS 1
#endif

namespace refnum {

enum Places : int { SAME, PARAMETERS, MEMORY };  // row r is row r; experts in the launch's parameters; in memory

// Payload row of a padded row, or what is not below `tokens`: a padding row, or an item out of range.
template <class Item>
__device__ __forceinline__ uint64_t source_row(const RowArguments& a, const Item* first, const Item* taken,
                                               uint32_t experts, uint64_t row) {
    if (experts == 0) return ~0ull;
    const uint32_t e = expert_of(first, experts, row);
    const uint64_t within = row - first[e], place = taken[e] + within;
    if (within >= (uint64_t)(taken[e + 1] - taken[e]) || place >= a.mapped) return ~0ull;
    return index_at(a.map, a.map_stride, place, a.map_bytes);
}

template <Places places>
__device__ __forceinline__ uint64_t source(const RowArguments& a, uint64_t row) {
    if (places == PARAMETERS) return source_row(a, a.experts.first, a.experts.taken, a.experts.count, row);
    if (places == MEMORY) {
        return source_row(a, reinterpret_cast<const uint64_t*>(a.offsets), reinterpret_cast<const uint64_t*>(a.scratch),
                          a.all_experts, row);
    }
    return row;
}

__device__ __forceinline__ void write_offsets(const RowArguments& a) {
    if (blockIdx.x != 0 || blockIdx.y != 0) return;
#pragma unroll 1
    for (uint32_t e = threadIdx.x; e < a.experts.count; e += THREADS) {
        reinterpret_cast<uint64_t*>(a.offsets)[e] = a.experts.first[e];
    }
}

// Writes the pieces of a row of the result.
template <int bytes, bool parts>
__device__ __forceinline__ void store_row(const RowArguments& a, uint64_t row, uint32_t mine, uint32_t end,
                                          const uint32_t (&w)[UNROLL][(bytes + 3) / 4]) {
    uint8_t* out = a.out + row * (parts ? a.codes : a.width);
    uint8_t* out_scales = parts ? a.out_scales + row * (a.width - a.codes) - a.codes : out;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const uint32_t place = mine + u * 32 * bytes;
        if (place < end) store_piece<bytes>((parts && place >= a.codes ? out_scales : out) + place, w[u]);
    }
}

template <int bytes, bool joins, bool parts, Places places>
__device__ __forceinline__ void move_rows(const RowArguments& a) {
    constexpr int words = (bytes + 3) / 4, rows = places == SAME ? 1 : ROWS;
    if (places == PARAMETERS) write_offsets(a);
    const uint64_t first = ((uint64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * rows;
    if (first >= a.rows) return;
    const uint32_t start = blockIdx.y * a.span, left = a.width - start, end = start + (left < a.span ? left : a.span);
    const uint32_t mine = start + threadIdx.x % 32 * bytes;
    const uint64_t found = source<places>(a, first + threadIdx.x % rows);  // a lane finds one row
    uint32_t w[rows][UNROLL][words];
#pragma unroll
    for (int r = 0; r < rows; ++r) {
        const uint64_t from = rows > 1 ? __shfl_sync(~0u, found, r) : found;
        const bool exists = first + r < a.rows && (places == SAME || from < a.tokens);
        const uint8_t* in = a.x + (offset_t)from * a.x_stride;
        const uint8_t* in_scales = joins ? a.scales + (offset_t)from * a.scale_stride - a.codes : in;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const uint32_t place = mine + u * 32 * bytes;
#pragma unroll
            for (int i = 0; i < words; ++i) w[r][u][i] = 0;
            if (exists && place < end) load_piece<bytes>((joins && place >= a.codes ? in_scales : in) + place, w[r][u]);
        }
    }
#pragma unroll
    for (int r = 0; r < rows; ++r) {
        if (first + r < a.rows) store_row<bytes, parts>(a, first + r, mine, end, w[r]);
    }
}

// The same gather from the payload's side, for a payload whose rows are taken several times: a warp reads a token's row
// once and writes it to all its places. A token's places come from its list, whose order does not matter.
__device__ __forceinline__ uint32_t* list_of(const RowArguments& a, uint64_t token) {
    return reinterpret_cast<uint32_t*>(a.scratch) + token * LISTED;
}
__device__ __forceinline__ uint32_t* count_of(const RowArguments& a, uint64_t token) {
    return reinterpret_cast<uint32_t*>(a.scratch) + a.tokens * LISTED + token;
}
__device__ __forceinline__ uint32_t row_at(const RowArguments& a, uint64_t place) {
    const uint32_t e = expert_of(a.experts.taken, a.experts.count, place);
    return a.experts.first[e] + ((uint32_t)place - a.experts.taken[e]);
}

// Enters a place of the expert order in its token's list. A place without a token is a row of zeros.
__device__ __forceinline__ void list_place(const RowArguments& a) {
    const uint64_t place = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (place >= a.mapped) return;
    const uint64_t token = index_at(a.map, a.map_stride, place, a.map_bytes);
    const uint32_t row = row_at(a, place);
    if (token < a.tokens) {
        const uint32_t slot = atomicAdd(count_of(a, token), 1u);
        if (slot < LISTED) list_of(a, token)[slot] = row;
        return;
    }
    const uint32_t scales = a.width - a.codes;
#pragma unroll 1
    for (uint32_t i = 0; i < a.codes; ++i) a.out[(uint64_t)row * a.codes + i] = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < scales; ++i) a.out_scales[(uint64_t)row * scales + i] = 0;
}

// The padding row of this number: the padding rows before an expert are its first row less the rows before it.
__device__ __forceinline__ uint32_t padding_row(const RowArguments& a, uint64_t number) {
    uint32_t low = 0, high = a.experts.count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (a.experts.first[middle] - a.experts.taken[middle] <= number) low = middle;
        else high = middle;
    }
    return a.experts.taken[low + 1] + (uint32_t)number;  // first + its rows + (number - (first - taken))
}

template <int bytes, bool parts>
__device__ __forceinline__ void scatter_rows(const RowArguments& a) {
    constexpr int words = (bytes + 3) / 4;
    write_offsets(a);
    const uint64_t item = (uint64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (item >= a.tokens + a.rows - a.mapped) return;
    const bool exists = item < a.tokens;
    const uint32_t start = blockIdx.y * a.span, left = a.width - start, end = start + (left < a.span ? left : a.span);
    const uint32_t mine = start + threadIdx.x % 32 * bytes;
    uint32_t w[UNROLL][words];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const uint32_t place = mine + u * 32 * bytes;
#pragma unroll
        for (int i = 0; i < words; ++i) w[u][i] = 0;
        if (exists && place < end) load_piece<bytes>(a.x + (offset_t)item * a.x_stride + place, w[u]);
    }
    if (!exists) return store_row<bytes, parts>(a, padding_row(a, item - a.tokens), mine, end, w);
    const uint32_t count = *count_of(a, item), lane = threadIdx.x % 32;
    if (count <= LISTED) {
        const uint32_t row = lane < count ? list_of(a, item)[lane] : 0;
#pragma unroll 1
        for (uint32_t i = 0; i < count; ++i) store_row<bytes, parts>(a, __shfl_sync(~0u, row, i), mine, end, w);
        return;
    }
#pragma unroll 1
    for (uint64_t place = 0; place < a.mapped; ++place) {
        if (index_at(a.map, a.map_stride, place, a.map_bytes) != item) continue;
        store_row<bytes, parts>(a, row_at(a, place), mine, end, w);
    }
}

__device__ __forceinline__ void write_places(const RowArguments& a) {
    expert_places(a, reinterpret_cast<uint64_t*>(a.offsets), reinterpret_cast<uint64_t*>(a.scratch));
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(1024) void permute_offsets(refnum::RowArguments a) {
    refnum::write_places(a);
}
extern "C" __global__ __launch_bounds__(THREADS) void permute_clear(refnum::RowArguments a) {
    const unsigned long long token = (unsigned long long)blockIdx.x * THREADS + threadIdx.x;
    if (token < a.tokens) *refnum::count_of(a, token) = 0;
}
extern "C" __global__ __launch_bounds__(THREADS) void permute_list(refnum::RowArguments a) {
    refnum::list_place(a);
}
#define SCATTER(name, bytes, parts)                                              \
    extern "C" __global__ __launch_bounds__(THREADS) void name##_##bytes(refnum::RowArguments a) { \
        refnum::scatter_rows<bytes, parts>(a);                                   \
    }
SCATTER(permute_pad_scatter, 16, false)
SCATTER(permute_pad_scatter, 8, false)
SCATTER(permute_pad_scatter, 4, false)
SCATTER(permute_pad_scatter, 1, false)
SCATTER(permute_unpack_scatter, 16, true)
SCATTER(permute_unpack_scatter, 8, true)
SCATTER(permute_unpack_scatter, 4, true)
SCATTER(permute_unpack_scatter, 1, true)
#define KERNEL(name, bytes, joins, parts, places)                                \
    extern "C" __global__ __launch_bounds__(THREADS) void name##_##bytes(refnum::RowArguments a) { \
        refnum::move_rows<bytes, joins, parts, refnum::places>(a);               \
    }
#define KERNELS(name, joins, parts, places) \
    KERNEL(name, 16, joins, parts, places)  \
    KERNEL(name, 8, joins, parts, places)   \
    KERNEL(name, 4, joins, parts, places)   \
    KERNEL(name, 1, joins, parts, places)
KERNELS(pack_payload, true, false, SAME)
KERNELS(unpack_payload, false, true, SAME)
KERNELS(permute_pad, false, false, PARAMETERS)
KERNELS(permute_unpack, false, true, PARAMETERS)
KERNELS(permute_pad_device, false, false, MEMORY)
KERNELS(permute_unpack_device, false, true, MEMORY)
