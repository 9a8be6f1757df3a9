// Float [M, K] -> thresholds by order statistics, then numbers clamped between them and what was cut off (clause N25.4).
//
// A threshold is found from the top of its key by eight bits a pass: a pass counts the numbers that agree with the bits
// found so far by their next eight. A row is searched by one CTA, and so are 16 columns; for the whole tensor every pass
// is a launch, and CTAs add their counts up in scratch memory.
#include "memory.cuh"
#include "occ.cuh"

namespace refnum {

// gpu/ops/estimators.py has its mirror. A tensor without gaps has any rows: the launcher's.
struct OccArguments {
    const uint8_t* x;
    uint8_t *clamped, *residual, *thresholds;
    uint32_t* scratch;  // of the tensor: counts of each pass
    offset_t x_stride;  // in bytes
    offset_t rows, k, total;  // numbers a row and of all rows: the last row may be short
    offset_t vectors;
    uint32_t lower, upper;  // indices of the order statistics
    uint32_t turn;  // number of the pass; to clear, that of all
    uint32_t aligned;  // what can be read at once: 0 bytes, 1 numbers, 2 chunks, which can be written at once too
};

constexpr uint32_t BINS = 256, SLOTS = 8, STRIP = 16;  // SLOTS: counts of a bin, so that few lanes meet in one

template <int kind>
constexpr uint32_t OCC_BYTES = kind == FLOAT32 ? 4 : 2;
template <int kind>
constexpr int PASSES = kind == FLOAT32 ? 4 : 2;

// What is known of both thresholds of a vector: their upper bits, and their indices among the numbers that have them.
struct OccSearch {
    uint32_t prefix[2], rank[2];
};

// Bits of key above those of a pass.
template <int kind>
__device__ __forceinline__ uint32_t upper_bits(uint32_t key, int pass) {
    return pass == 0 ? 0 : key >> (8 * (PASSES<kind> - pass));
}
template <int kind>
__device__ __forceinline__ uint32_t digit_of(uint32_t key, int pass) {
    return key >> (8 * (PASSES<kind> - 1 - pass)) & (BINS - 1);
}

// What is known of one of them.
struct OccFound {
    uint32_t prefix, rank;
};

// A warp: a threshold with its next eight bits, from counts of bins that lie `stride` words apart.
__device__ __forceinline__ OccFound pick(const uint32_t* bins, uint32_t stride, OccFound known) {
    const uint32_t lane = threadIdx.x % 32, mine = BINS / 32;
    uint32_t counts[BINS / 32], total = 0;
#pragma unroll
    for (uint32_t i = 0; i < mine; ++i) {
        counts[i] = bins[(lane * mine + i) * stride];
        total += counts[i];
    }
    uint32_t end = total;
#pragma unroll
    for (uint32_t d = 1; d < 32; d *= 2) {
        const uint32_t below = __shfl_up_sync(~0u, end, d);
        if (lane >= d) end += below;
    }
    uint32_t before = end - total, digit = 0, rank = 0;
    bool here = false;
#pragma unroll
    for (uint32_t i = 0; i < mine; ++i) {
        if (before <= known.rank && known.rank - before < counts[i]) here = true, digit = lane * mine + i, rank = known.rank - before;
        before += counts[i];
    }
    const int from = __ffs((int)__ballot_sync(~0u, here)) - 1;
    return {known.prefix << 8 | __shfl_sync(~0u, digit, from), __shfl_sync(~0u, rank, from)};
}

// Numbers of a row, the last of which may be short.
__device__ __forceinline__ offset_t row_length(const OccArguments& a, offset_t row) {
    const offset_t left = a.total - row * a.k;
    return left < a.k ? left : a.k;
}

template <int kind>
__device__ __forceinline__ uint32_t load_number(const uint8_t* p, bool aligned) {
    uint32_t word;
    load<OCC_BYTES<kind>>(p, aligned, &word);
    return word;
}

// Calls `use` with the key of each number of a row, from all threads of a CTA.
template <int kind, class Use>
__device__ __forceinline__ void each_key(const OccArguments& a, offset_t row, Use use) {
    constexpr offset_t elements = 16 / OCC_BYTES<kind>;
    const uint8_t* from = a.x + row * a.x_stride;
    const offset_t length = row_length(a, row), chunks = a.aligned > 1 ? length / elements : 0;
#pragma unroll 1
    for (offset_t first = threadIdx.x; first < chunks; first += THREADS * UNROLL) {
        uint32_t in[UNROLL][4];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (first + u * THREADS < chunks) load<16>(from + (first + u * THREADS) * 16, true, in[u]);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (first + u * THREADS >= chunks) break;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                use(key_of<kind>(kind == FLOAT32 ? in[u][i] : in[u][i] & 0xFFFF));
                if (kind != FLOAT32) use(key_of<kind>(in[u][i] >> 16));
            }
        }
    }
#pragma unroll 1
    for (offset_t i = chunks * elements + threadIdx.x; i < length; i += THREADS) {
        use(key_of<kind>(load_number<kind>(from + i * OCC_BYTES<kind>, a.aligned)));
    }
}

// Counts of a CTA of the next eight bits of both thresholds; they are the first's alone while these share all bits. The
// counts of a bin lie in banks of their own.
struct OccCounts {
    uint32_t bins[2][SLOTS][BINS + 32 / SLOTS];
    uint32_t sums[2][BINS];
};

__device__ __forceinline__ void no_counts(OccCounts& counts, bool shared) {
    const uint32_t count = sizeof counts.bins[0] / 4 * (shared ? 1 : 2);
    for (uint32_t i = threadIdx.x; i < count; i += THREADS) (&counts.bins[0][0][0])[i] = 0;
}

// All threads: the sums of a bin's counts.
__device__ __forceinline__ void add_counts(OccCounts& counts, bool shared) {
    for (uint32_t i = threadIdx.x; i < BINS * (shared ? 1 : 2); i += THREADS) {
        uint32_t sum = 0;
#pragma unroll
        for (uint32_t s = 0; s < SLOTS; ++s) sum += counts.bins[i / BINS][s][i % BINS];
        counts.sums[i / BINS][i % BINS] = sum;
    }
}

template <int kind>
__device__ __forceinline__ void count_row(const OccArguments& a, offset_t row, int pass, const OccSearch& search, OccCounts& counts) {
    const uint32_t first = search.prefix[0], second = search.prefix[1], slot = threadIdx.x % SLOTS;
    const bool shared = first == second;
    each_key<kind>(a, row, [&](uint32_t key) {
        const uint32_t upper = upper_bits<kind>(key, pass), digit = digit_of<kind>(key, pass);
        if (upper == first) atomicAdd(&counts.bins[0][slot][digit], 1u);
        if (!shared && upper == second) atomicAdd(&counts.bins[1][slot][digit], 1u);
    });
}

__device__ __forceinline__ void start_search(const OccArguments& a, OccSearch& search) {
    if (threadIdx.x < 2) search.prefix[threadIdx.x] = 0, search.rank[threadIdx.x] = threadIdx.x ? a.upper : a.lower;
}

// Writes a threshold, those of no numbers -Inf and Inf.
template <int kind>
__device__ __forceinline__ void put_threshold(const OccArguments& a, offset_t vector, uint32_t which, uint32_t key, bool empty) {
    const uint32_t bits = empty ? OCC_INF<kind> | (which ? 0 : OCC_SIGN<kind>) : bits_of_key<kind>(key);
    store<OCC_BYTES<kind>>(a.thresholds + (which * a.vectors + vector) * OCC_BYTES<kind>, &bits);
}

template <int kind>
__device__ __forceinline__ void occ_token_thresholds(const OccArguments& a) {
    __shared__ OccCounts counts;
    __shared__ OccSearch search;
    const offset_t row = blockIdx.x;
    const uint32_t warp = threadIdx.x / 32;
    start_search(a, search);
    __syncthreads();
#pragma unroll 1
    for (int pass = 0; pass < PASSES<kind> && a.k; ++pass) {
        const bool shared = search.prefix[0] == search.prefix[1];
        no_counts(counts, shared);
        __syncthreads();
        count_row<kind>(a, row, pass, search, counts);
        __syncthreads();
        add_counts(counts, shared);
        const OccFound known = {search.prefix[warp % 2], search.rank[warp % 2]};
        __syncthreads();
        if (warp < 2) {
            const OccFound found = pick(counts.sums[shared ? 0 : warp], 1, known);
            if (threadIdx.x % 32 == 0) search.prefix[warp] = found.prefix, search.rank[warp] = found.rank;
        }
        __syncthreads();
    }
    if (threadIdx.x < 2) put_threshold<kind>(a, row, threadIdx.x, search.prefix[threadIdx.x], a.k == 0);
}

// The search of a tensor after so many passes, by the first warp.
template <int kind>
__device__ __forceinline__ void searched(const OccArguments& a, int passes, OccSearch& search) {
    if (threadIdx.x < 32) {
        OccFound lower = {0, a.lower}, upper = {0, a.upper};
#pragma unroll 1
        for (int pass = 0; pass < passes; ++pass) {
            const uint32_t* bins = a.scratch + pass * 2 * BINS;
            const bool shared = lower.prefix == upper.prefix;
            lower = pick(bins, 1, lower);
            upper = pick(bins + (shared ? 0 : BINS), 1, upper);
        }
        if (threadIdx.x == 0) search.prefix[0] = lower.prefix, search.prefix[1] = upper.prefix;
    }
    __syncthreads();
}

template <int kind>
__device__ __forceinline__ void occ_count(const OccArguments& a) {
    __shared__ OccCounts counts;
    __shared__ OccSearch search;
    no_counts(counts, false);
    searched<kind>(a, (int)a.turn, search);
    for (offset_t row = blockIdx.x; row < a.rows; row += gridDim.x) count_row<kind>(a, row, (int)a.turn, search, counts);
    __syncthreads();
    add_counts(counts, false);
    for (uint32_t i = threadIdx.x; i < 2 * BINS; i += THREADS) {  // of a thread's own sums
        const uint32_t sum = counts.sums[i / BINS][i % BINS];
        if (sum) atomicAdd(a.scratch + a.turn * 2 * BINS + i, sum);
    }
}

template <int kind>
__device__ __forceinline__ void occ_tensor_thresholds(const OccArguments& a) {
    __shared__ OccSearch search;
    searched<kind>(a, a.total ? PASSES<kind> : 0, search);
    if (threadIdx.x < 2) put_threshold<kind>(a, 0, threadIdx.x, search.prefix[threadIdx.x], a.total == 0);
}

// Counts of 16 columns: a column has a bank of its own.
struct StripCounts {
    uint32_t bins[2][BINS][STRIP];
};

template <int kind>
__device__ __forceinline__ void occ_channel_thresholds(const OccArguments& a) {
    constexpr uint32_t rows_at_once = THREADS / STRIP, ahead = 8;
    __shared__ StripCounts counts;
    __shared__ OccSearch search[STRIP];
    const uint32_t column = blockIdx.x * STRIP + threadIdx.x % STRIP, rows = column < a.k ? (uint32_t)a.rows : 0;
    const uint32_t mine = threadIdx.x % STRIP, warp = threadIdx.x / 32;
    const uint8_t* from = a.x + (offset_t)column * OCC_BYTES<kind>;
    if (threadIdx.x < STRIP) {
        OccSearch& own = search[threadIdx.x];
        own.prefix[0] = own.prefix[1] = 0, own.rank[0] = a.lower, own.rank[1] = a.upper;
    }
#pragma unroll 1
    for (int pass = 0; pass < PASSES<kind>; ++pass) {
        for (uint32_t i = threadIdx.x; i < 2 * BINS * STRIP; i += THREADS) (&counts.bins[0][0][0])[i] = 0;
        __syncthreads();
        const uint32_t first = search[mine].prefix[0], second = search[mine].prefix[1];
#pragma unroll 1
        for (uint32_t row = threadIdx.x / STRIP; row < rows; row += rows_at_once * ahead) {
            uint32_t in[ahead];
#pragma unroll
            for (uint32_t u = 0; u < ahead; ++u) {
                const uint32_t at = row + u * rows_at_once;
                if (at < rows) in[u] = load_number<kind>(from + (offset_t)at * a.x_stride, a.aligned);
            }
#pragma unroll
            for (uint32_t u = 0; u < ahead; ++u) {
                if (row + u * rows_at_once >= rows) continue;
                const uint32_t key = key_of<kind>(in[u]), upper = upper_bits<kind>(key, pass);
                const uint32_t digit = digit_of<kind>(key, pass);
                if (upper == first) atomicAdd(&counts.bins[0][digit][mine], 1u);
                if (first != second && upper == second) atomicAdd(&counts.bins[1][digit][mine], 1u);
            }
        }
        __syncthreads();
#pragma unroll 1
        for (uint32_t one = warp; one < STRIP; one += THREADS / 32) {
            OccSearch& found = search[one];
            const OccFound lower = {found.prefix[0], found.rank[0]}, upper = {found.prefix[1], found.rank[1]};
            const bool shared = lower.prefix == upper.prefix;
            __syncwarp();
            const OccFound first_found = pick(&counts.bins[0][0][one], STRIP, lower);
            const OccFound second_found = pick(&counts.bins[shared ? 0 : 1][0][one], STRIP, upper);
            if (threadIdx.x % 32 == 0) {
                found.prefix[0] = first_found.prefix, found.rank[0] = first_found.rank;
                found.prefix[1] = second_found.prefix, found.rank[1] = second_found.rank;
            }
        }
        __syncthreads();
    }
    if (threadIdx.x < 2 * STRIP && column < a.k) {
        const uint32_t which = threadIdx.x / STRIP;
        put_threshold<kind>(a, column, which, search[mine].prefix[which], a.rows == 0);
    }
}

// Keys of both thresholds at a number.
struct OccKeys {
    uint32_t low, high;
};

template <int kind>
__device__ __forceinline__ OccKeys keys_at(const OccArguments& a, offset_t vector) {
    const uint8_t* low = a.thresholds + vector * OCC_BYTES<kind>;
    return {key_of<kind>(load_number<kind>(low, true)),
            key_of<kind>(load_number<kind>(low + a.vectors * OCC_BYTES<kind>, true))};
}

// Numbers of a row one by one: what fills no chunk, and what is not finite.
template <int kind, int axis>
__device__ __forceinline__ void clamp_one_by_one(const OccArguments& a, offset_t row, offset_t first, offset_t end, uint32_t step) {
    const uint8_t* from = a.x + row * a.x_stride;
#pragma unroll 1
    for (offset_t i = first; i < end; i += step) {
        const OccKeys keys = keys_at<kind>(a, axis == CHANNEL ? i : axis == TOKEN ? row : 0);
        const Clamped found = clamp_any<kind>(load_number<kind>(from + i * OCC_BYTES<kind>, a.aligned), keys.low, keys.high);
        store<OCC_BYTES<kind>>(a.clamped + (row * a.k + i) * OCC_BYTES<kind>, &found.clamped);
        store<OCC_BYTES<kind>>(a.residual + (row * a.k + i) * OCC_BYTES<kind>, &found.residual);
    }
}

template <int kind, int axis>
__device__ __forceinline__ void occ_clamp(const OccArguments& a) {
    constexpr offset_t elements = 16 / OCC_BYTES<kind>;
    constexpr uint32_t both = kind == FLOAT32 ? 1 : 0x00010001u;
    const offset_t row = blockIdx.x, length = row_length(a, row), chunks = a.aligned > 1 ? length / elements : 0;
    const uint8_t* from = a.x + row * a.x_stride;
    const offset_t to = row * a.k * OCC_BYTES<kind>, beside = a.vectors * OCC_BYTES<kind>;
    OccKeys keys = {0, 0};
    if (axis != CHANNEL) {
        keys = keys_at<kind>(a, axis == TOKEN ? row : 0);
        keys.low *= both, keys.high *= both;
    }
#pragma unroll 1
    for (offset_t first = threadIdx.x; first < chunks; first += THREADS * UNROLL) {
        uint32_t in[UNROLL][4];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (first + u * THREADS < chunks) load<16>(from + (first + u * THREADS) * 16, true, in[u]);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const offset_t number = first + u * THREADS;
            if (number >= chunks) break;
            uint32_t clamped[4], residual[4], low[4], high[4], beyond = 0;
            if (axis == CHANNEL) {
                load<16>(a.thresholds + number * 16, true, low);
                load<16>(a.thresholds + beside + number * 16, true, high);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const uint32_t least = axis == CHANNEL ? word_keys<kind>(low[i]) : keys.low;
                const uint32_t most = axis == CHANNEL ? word_keys<kind>(high[i]) : keys.high;
                beyond |= beyond_clamp<kind>(in[u][i], most);
                const Clamped found = clamp_word<kind>(in[u][i], least, most);
                clamped[i] = found.clamped, residual[i] = found.residual;
            }
            store<16>(a.clamped + to + number * 16, clamped);
            store<16>(a.residual + to + number * 16, residual);
            if (beyond & (both * OCC_SIGN<kind>)) {
                clamp_one_by_one<kind, axis>(a, row, number * elements, (number + 1) * elements, 1);
            }
        }
    }
    clamp_one_by_one<kind, axis>(a, row, chunks * elements + threadIdx.x, length, THREADS);
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(THREADS) void occ_clear(refnum::OccArguments a) {
    for (uint32_t i = threadIdx.x; i < a.turn * 2 * refnum::BINS; i += THREADS) a.scratch[i] = 0;
}

#define KERNEL(name, call)                                                                \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::OccArguments a) { \
        refnum::call(a);                                                                  \
    }
#define KERNELS(kind, suffix)                                                                        \
    KERNEL(occ_token_thresholds_##suffix, occ_token_thresholds<refnum::kind>)                        \
    KERNEL(occ_channel_thresholds_##suffix, occ_channel_thresholds<refnum::kind>)                    \
    KERNEL(occ_tensor_thresholds_##suffix, occ_tensor_thresholds<refnum::kind>)                      \
    KERNEL(occ_count_##suffix, occ_count<refnum::kind>)                                              \
    KERNEL(occ_clamp_tensor_##suffix, occ_clamp<refnum::kind COMMA refnum::TENSOR>)                  \
    KERNEL(occ_clamp_token_##suffix, occ_clamp<refnum::kind COMMA refnum::TOKEN>)                    \
    KERNEL(occ_clamp_channel_##suffix, occ_clamp<refnum::kind COMMA refnum::CHANNEL>)
#define COMMA ,
KERNELS(FLOAT32, float32)
KERNELS(BFLOAT16, bfloat16)
