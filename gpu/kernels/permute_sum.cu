// Expert rows summed back to their tokens, weighted, in ascending expert order (clause N12). Three launches: counts
// of zero; every row entered in its token's list; sums. For few rows one launch: every CTA walks the row map and lists
// its own tokens' rows in shared memory. A list is in no order; its rows are put into theirs by the warp that sums
// them, so the result does not depend on the order in which they were entered. Splits on the device take one launch
// more, before these, that finds where the experts lie.
#include "payload_memory.cuh"

namespace refnum {

// The one parameter (gpu/ops/payload_sum.py has its mirror). Strides are in bytes.
struct SumArguments {
    const uint8_t *x, *map, *weights;  // expert rows; tokens of the rows in expert order; float32, or null for 1
    uint8_t *out, *scratch;            // float32 [tokens, width]; a list of LISTED entries a token, then the counts
    offset_t x_stride, map_stride, weight_stride;
    uint64_t tokens, mapped;           // mapped: rows in expert order
    uint32_t width, span, warps;       // columns; columns that a warp takes; warps a token
    int32_t map_bytes;
    Experts experts;
    // by splits on the device
    const uint8_t* splits;
    offset_t split_stride;
    uint64_t align, rows, lists;       // rows that x has; bytes of the lists, behind which lies what `places_of` says
    int32_t split_bytes;
    uint32_t all_experts;
};

constexpr uint32_t WARPS = THREADS / 32;  // of a CTA

__device__ __forceinline__ uint64_t warp_number() { return (uint64_t)blockIdx.x * WARPS + threadIdx.x / 32; }

// One row of a token: where it lies, and its weight's bits.
struct Entry {
    uint32_t row, weight;
};

__device__ __forceinline__ Entry* entries_of(const SumArguments& a, uint64_t token) {
    return reinterpret_cast<Entry*>(a.scratch) + token * LISTED;
}
__device__ __forceinline__ uint32_t* count_of(const SumArguments& a, uint64_t token) {
    return reinterpret_cast<uint32_t*>(a.scratch + a.tokens * (LISTED * sizeof(Entry))) + token;
}

// First padded row of every expert, then the rows before each, then the number of places: by splits on the device.
__device__ __forceinline__ uint64_t* places_of(const SumArguments& a) {
    return reinterpret_cast<uint64_t*>(a.scratch + a.lists);
}

// Places of the expert order whose rows exist: rows ascend with places, so they are the first ones.
template <bool device>
__device__ __forceinline__ uint64_t mapped_of(const SumArguments& a) {
    return device ? places_of(a)[2 * (uint64_t)a.all_experts] : a.mapped;
}

__device__ __forceinline__ void find_places(const SumArguments& a) {
    uint64_t *first = places_of(a), *taken = first + a.all_experts;
    expert_places(a, first, taken);
    __syncthreads();
    if (threadIdx.x != 0 || a.all_experts == 0) return;
    const uint32_t e = expert_of(first, a.all_experts, a.rows);  // the last that may have a row of `rows`
    taken[a.all_experts] = min(min(taken[e] + (a.rows - first[e]), taken[e + 1]), a.mapped);
}

template <class Item>
__device__ __forceinline__ uint32_t row_at(const Item* first, const Item* taken, uint32_t experts, uint64_t place) {
    const uint32_t e = expert_of(taken, experts, place);
    return (uint32_t)(first[e] + ((Item)place - taken[e]));
}

// The row at a place of the expert order.
template <bool device>
__device__ __forceinline__ Entry entry_at(const SumArguments& a, uint64_t place) {
    const uint32_t row = device ? row_at(places_of(a), places_of(a) + a.all_experts, a.all_experts, place)
                                : row_at(a.experts.first, a.experts.taken, a.experts.count, place);
    const uint8_t* weight = a.weights + (offset_t)place * a.weight_stride;
    return {row, a.weights ? *reinterpret_cast<const uint32_t*>(weight) : FLOAT_ONE};
}

template <bool device>
__device__ __forceinline__ void list_rows(const SumArguments& a) {
    const uint64_t place = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (place >= mapped_of<device>(a)) return;
    const uint64_t token = index_at(a.map, a.map_stride, place, a.map_bytes);
    if (token >= a.tokens) return;
    const uint32_t slot = atomicAdd(count_of(a, token), 1u);
    if (slot < LISTED) entries_of(a, token)[slot] = entry_at<device>(a, place);
}

// Lane i gets the entry of the i-th smallest row; `count` lanes hold one.
__device__ __forceinline__ Entry sorted(Entry mine, uint32_t count) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t rank = 0, from = 0;
    for (uint32_t i = 0; i < count; ++i) rank += __shfl_sync(~0u, mine.row, i) < mine.row;
    for (uint32_t i = 0; i < count; ++i) from = __shfl_sync(~0u, rank, i) == lane ? i : from;
    return {__shfl_sync(~0u, mine.row, from), __shfl_sync(~0u, mine.weight, from)};
}

// `count` neighbouring elements of a row: 4 by one load, or 1 at any alignment. WORDS of them, not yet widened.
template <int kind, int count>
constexpr int WORDS = kind == FLOAT32 || count == 1 ? count : count / 2;

template <int kind, int count>
__device__ __forceinline__ void load_elements(const uint8_t* p, uint32_t* w) {
    if (count == 1) w[0] = float_at<kind>(p, 0);
    else load_vector<4 * WORDS<kind, count>>(p, w);
}
template <int kind, int count>
__device__ __forceinline__ uint32_t element(const uint32_t* w, int i) {
    if (WORDS<kind, count> == count) return w[i];
    return i % 2 ? w[i / 2] & 0xFFFF0000u : w[i / 2] << 16;
}

template <int kind, int count>
__device__ __forceinline__ void add_row(uint32_t (&sums)[count], const uint32_t* w, uint32_t weight, bool first) {
#pragma unroll
    for (int i = 0; i < count; ++i) sums[i] = weighted_sum(sums[i], weight, element<kind, count>(w, i), first);
}

template <int count>
__device__ __forceinline__ void store_sums(const SumArguments& a, uint64_t token, uint32_t column,
                                           uint32_t (&sums)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) sums[i] = canonical_float(sums[i]);
    uint8_t* p = a.out + 4 * (token * a.width + column);
    if (count == 4) store<16>(p, sums);
    else *reinterpret_cast<uint32_t*>(p) = sums[0];
}

// A token's columns from its sorted list: UNROLL rows of two groups of columns are read before the first is used.
template <int kind, int count>
__device__ __forceinline__ void sum_listed(const SumArguments& a, uint64_t token, Entry mine, uint32_t rows,
                                           uint32_t start, uint32_t end) {
    constexpr int size = kind == FLOAT32 ? 4 : 2, groups = 2, words = WORDS<kind, count>;
    constexpr uint32_t step = 32 * count;
#pragma unroll 1
    for (uint32_t group = start; group < end; group += groups * step) {  // the same for all lanes, which shuffle
        const uint32_t column = group + threadIdx.x % 32 * count;
        const uint8_t* in = a.x + (offset_t)column * size;
        uint32_t sums[groups][count] = {};
#pragma unroll 1
        for (uint32_t first = 0; first < rows; first += UNROLL) {
            uint32_t w[UNROLL][groups][words] = {};
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const uint8_t* row = in + (offset_t)__shfl_sync(~0u, mine.row, first + u & 31) * a.x_stride;
#pragma unroll
                for (int g = 0; g < groups; ++g) {
                    if (column + g * step < end && first + u < rows) {
                        load_elements<kind, count>(row + (offset_t)(g * step * size), w[u][g]);
                    }
                }
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const uint32_t weight = __shfl_sync(~0u, mine.weight, first + u & 31);
                if (first + u >= rows) continue;
#pragma unroll
                for (int g = 0; g < groups; ++g) add_row<kind, count>(sums[g], w[u][g], weight, first + u == 0);
            }
        }
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            if (column + g * step < end) store_sums<count>(a, token, column + g * step, sums[g]);
        }
    }
}

// The same for a token with more rows than a list holds: rows are met in expert order by walking the row map.
template <int kind, int count, bool device>
__device__ __forceinline__ void sum_walking(const SumArguments& a, uint64_t token, uint32_t start, uint32_t end) {
    constexpr int size = kind == FLOAT32 ? 4 : 2;
    for (uint32_t column = start + threadIdx.x % 32 * count; column < end; column += 32 * count) {
        uint32_t sums[count] = {};
        bool first = true;
        for (uint64_t place = 0; place < mapped_of<device>(a); ++place) {
            if (index_at(a.map, a.map_stride, place, a.map_bytes) != token) continue;
            const Entry entry = entry_at<device>(a, place);
            uint32_t w[WORDS<kind, count>];
            load_elements<kind, count>(a.x + (offset_t)entry.row * a.x_stride + (offset_t)column * size, w);
            add_row<kind, count>(sums, w, entry.weight, first);
            first = false;
        }
        store_sums<count>(a, token, column, sums);
    }
}

// This warp's columns of a token that has `rows` rows: lane i has the i-th of its list in `mine`, if they fit one.
template <int kind, int count, bool device>
__device__ __forceinline__ void sum_token(const SumArguments& a, uint64_t token, Entry mine, uint32_t rows) {
    const uint32_t part = (uint32_t)(warp_number() - token * a.warps), start = part * a.span, left = a.width - start;
    const uint32_t end = start + (left < a.span ? left : a.span);
    if (rows > LISTED) return sum_walking<kind, count, device>(a, token, start, end);
    sum_listed<kind, count>(a, token, sorted(mine, rows), rows, start, end);
}

template <int kind, int count, bool device>
__device__ __forceinline__ void sum_rows(const SumArguments& a) {
    const uint64_t token = warp_number() / a.warps;
    if (token >= a.tokens) return;
    const uint32_t rows = *count_of(a, token), lane = threadIdx.x % 32;
    const Entry mine = lane < rows ? entries_of(a, token)[lane] : Entry{~0u, 0};
    sum_token<kind, count, device>(a, token, mine, rows);
}

// Enters the places of WARPS tokens from `first` on in their lists; `counts` may pass what a list holds. `bytes`: width
// of the row map's items, known so that the loads of several need not wait for each other; 0: as the arguments say.
template <int bytes, bool device>
__device__ __forceinline__ void enter_own(const SumArguments& a, uint64_t first, uint32_t (&lists)[WARPS][LISTED],
                                          uint32_t (&counts)[WARPS]) {
    constexpr int ahead = bytes ? 8 : 1;  // items that are read before the first is looked at
#pragma unroll 1
    for (uint64_t start = threadIdx.x; start < mapped_of<device>(a); start += ahead * THREADS) {
        uint64_t tokens[ahead];
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            const uint64_t place = start + i * THREADS;
            const bool exists = place < mapped_of<device>(a);
            tokens[i] = exists ? index_at(a.map, a.map_stride, place, bytes ? bytes : a.map_bytes) : ~0ull;
        }
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            if (tokens[i] - first >= WARPS) continue;  // others' tokens, and none; a list behind the last is not read
            const uint32_t own = (uint32_t)(tokens[i] - first), slot = atomicAdd(&counts[own], 1u);
            if (slot < LISTED) lists[own][slot] = (uint32_t)start + i * THREADS;
        }
    }
}

template <bool device>
__device__ __forceinline__ void list_own(const SumArguments& a, uint64_t first, uint32_t (&lists)[WARPS][LISTED],
                                         uint32_t (&counts)[WARPS]) {
    if (threadIdx.x < WARPS) counts[threadIdx.x] = 0;
    __syncthreads();
    switch (a.map_bytes) {
        case 8: case -8: enter_own<8, device>(a, first, lists, counts); break;
        case -4: enter_own<-4, device>(a, first, lists, counts); break;
        default: enter_own<0, device>(a, first, lists, counts);
    }
    __syncthreads();
}

template <int kind, int count, bool device>
__device__ __forceinline__ void list_and_sum(const SumArguments& a) {
    __shared__ uint32_t lists[WARPS][LISTED];
    __shared__ uint32_t counts[WARPS];
    const uint64_t first = (uint64_t)blockIdx.x * WARPS / a.warps, token = warp_number() / a.warps;
    list_own<device>(a, first, lists, counts);
    if (token >= a.tokens) return;
    const uint32_t rows = counts[token - first], lane = threadIdx.x % 32;
    const Entry mine = lane < rows ? entry_at<device>(a, lists[token - first][lane]) : Entry{~0u, 0};
    sum_token<kind, count, device>(a, token, mine, rows);
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(THREADS) void unpermute_clear(refnum::SumArguments a) {
    const unsigned long long token = (unsigned long long)blockIdx.x * THREADS + threadIdx.x;
    if (token < a.tokens) *refnum::count_of(a, token) = 0;
}
extern "C" __global__ __launch_bounds__(1024) void unpermute_places(refnum::SumArguments a) {
    refnum::find_places(a);
}
extern "C" __global__ __launch_bounds__(THREADS) void unpermute_list(refnum::SumArguments a) {
    refnum::list_rows<false>(a);
}
extern "C" __global__ __launch_bounds__(THREADS) void unpermute_list_device(refnum::SumArguments a) {
    refnum::list_rows<true>(a);
}
#define KERNEL(name, kind, count, device)                                        \
    extern "C" __global__ __launch_bounds__(THREADS, 2) void name(refnum::SumArguments a) { \
        refnum::sum_rows<refnum::kind, count, device>(a);                        \
    }                                                                            \
    extern "C" __global__ __launch_bounds__(THREADS, 2) void name##_single(refnum::SumArguments a) { \
        refnum::list_and_sum<refnum::kind, count, device>(a);                    \
    }
#define KERNELS(name, kind, count)     \
    KERNEL(name, kind, count, false)   \
    KERNEL(name##_device, kind, count, true)
KERNELS(unpermute_bfloat16_vector, BFLOAT16, 4)
KERNELS(unpermute_float32_vector, FLOAT32, 4)
KERNELS(unpermute_bfloat16, BFLOAT16, 1)
KERNELS(unpermute_float32, FLOAT32, 1)
